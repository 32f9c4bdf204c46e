//! The disk after a power cut: files and folders as recorded changes leave them, if some of the changes that were not
//! forced to the disk are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cloze::files::watch::Change;

use crate::place::{digest, remove};

/// What is at a path.
#[derive(Clone, Debug)]
enum Entry {
    Folder,
    /// The number of a file's bytes.
    File(usize),
    Link(PathBuf),
}

/// The files and folders below a folder.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    entries: BTreeMap<PathBuf, Entry>,
    files: Vec<Vec<u8>>,
}

/// A change, with the file that it concerns.
struct Effect<'a> {
    change: &'a Change,
    file: usize,
    /// The number of changes after which it is on the disk for certain.
    durable: usize,
}

/// What becomes of a change that was not forced to the disk.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Kept,
    Half,
}

impl Disk {
    /// Reads the files and folders below `root`.
    pub fn read(root: &Path) -> Self {
        let mut disk = Self::default();
        disk.read_below(root);
        disk
    }

    fn read_below(&mut self, folder: &Path) {
        if !folder.exists() {
            return;
        }
        self.entries.insert(folder.to_path_buf(), Entry::Folder);
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                self.entries.insert(path, Entry::Link(target));
            } else if path.is_dir() {
                self.read_below(&path);
            } else {
                self.entries.insert(path.clone(), Entry::File(self.files.len()));
                self.files.push(fs::read(&path).unwrap());
            }
        }
    }

    /// Returns the disk after all of these changes.
    pub fn after(before: &Self, changes: &[Change]) -> Self {
        let mut disk = before.clone();
        for effect in effects(before, changes) {
            disk.apply(&effect, Fate::Kept);
        }
        disk
    }

    /// Applies a change; it does nothing if it needs one that was lost.
    fn apply(&mut self, effect: &Effect<'_>, fate: Fate) {
        let file = effect.file;
        if file != usize::MAX && self.files.len() <= file {
            self.files.resize(file + 1, Vec::new());
        }
        match effect.change {
            Change::Create(path) => drop(self.entries.insert(path.clone(), Entry::File(file))),
            Change::Write(_, at, bytes) => {
                let count = if fate == Fate::Half { bytes.len() / 2 } else { bytes.len() };
                let (at, content) = (*at as usize, &mut self.files[file]);
                if content.len() < at + count {
                    content.resize(at + count, 0);
                }
                content[at..at + count].copy_from_slice(&bytes[..count]);
            }
            Change::SetLength(_, length) => self.files[file].resize(*length as usize, 0),
            Change::Rename(from, to) => {
                if matches!(self.entries.get(from), Some(Entry::File(other)) if *other == file) {
                    self.entries.remove(from);
                }
                self.entries.insert(to.clone(), Entry::File(file));
            }
            Change::Remove(path) | Change::RemoveFolder(path) => drop(self.entries.remove(path)),
            Change::CreateFolder(path) => {
                self.entries.insert(path.clone(), Entry::Folder);
            }
            Change::Link(target, path) => {
                self.entries.insert(path.clone(), Entry::Link(target.clone()));
            }
            Change::Sync(_) | Change::SyncFolder(_) => {}
        }
    }

    /// Returns the entries whose folders are there too.
    fn reachable(&self) -> Vec<(&PathBuf, &Entry)> {
        let mut gone: Vec<&Path> = Vec::new();
        let mut found = Vec::new();
        let root = self.entries.keys().next();
        for (path, entry) in &self.entries {
            let parent = path.parent().unwrap();
            let whole =
                Some(path) == root || matches!(self.entries.get(parent), Some(Entry::Folder));
            match whole && !gone.iter().any(|folder| path.starts_with(folder)) {
                true => found.push((path, entry)),
                false => gone.push(path),
            }
        }
        found
    }

    /// Writes the files and folders, in place of what is at `root`.
    pub fn write(&self, root: &Path) {
        remove(root);
        fs::create_dir_all(root).unwrap();
        for (path, entry) in self.reachable() {
            match entry {
                Entry::Folder => fs::create_dir_all(path).unwrap(),
                Entry::File(file) => fs::write(path, &self.files[*file]).unwrap(),
                Entry::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            }
        }
    }

    /// Writes the files and folders below `root` to `to`.
    pub fn write_as(&self, root: &Path, to: &Path) {
        let moved = |path: &PathBuf| to.join(path.strip_prefix(root).unwrap());
        let entries = self.entries.iter().map(|(path, entry)| (moved(path), entry.clone()));
        Self { entries: entries.collect(), files: self.files.clone() }.write(to);
    }

    fn digest(&self) -> String {
        let mut all = Vec::new();
        for (path, entry) in self.reachable() {
            let name = path.file_name().unwrap().to_string_lossy();
            // Temporary files have random names, and nobody reads them.
            if !name.starts_with(".cloze-") {
                let content = match entry {
                    Entry::File(file) => digest(&self.files[*file]),
                    other => format!("{other:?}"),
                };
                all.extend(format!("{} {content}\n", path.display()).into_bytes());
            }
        }
        digest(&all)
    }
}

/// Resolves the files that changes concern, and finds what forces each change to the disk.
fn effects<'a>(before: &Disk, changes: &'a [Change]) -> Vec<Effect<'a>> {
    let mut now = before.clone();
    let mut effects: Vec<Effect<'a>> = Vec::new();
    let mut files = before.files.len();
    for change in changes {
        let file = match change {
            Change::Create(_) => {
                files += 1;
                files - 1
            }
            Change::Write(path, ..)
            | Change::SetLength(path, _)
            | Change::Sync(path)
            | Change::Rename(path, _) => match now.entries.get(path) {
                Some(Entry::File(file)) => *file,
                other => panic!("{change:?}: {other:?}"),
            },
            _ => usize::MAX,
        };
        let effect = Effect { change, file, durable: usize::MAX };
        now.apply(&effect, Fate::Kept);
        effects.push(effect);
    }
    for at in 0..effects.len() {
        let parent = |path: &'a Path| path.parent();
        let folder = match effects[at].change {
            Change::Create(path)
            | Change::Rename(_, path)
            | Change::Remove(path)
            | Change::CreateFolder(path)
            | Change::RemoveFolder(path)
            | Change::Link(_, path) => parent(path),
            _ => None,
        };
        let forces = |later: &Effect<'_>| match later.change {
            Change::SyncFolder(synced) => folder == Some(synced.as_path()),
            Change::Sync(_) => folder.is_none() && later.file == effects[at].file,
            _ => false,
        };
        let later = (at + 1..effects.len()).find(|&later| forces(&effects[later]));
        effects[at].durable = later.map_or(usize::MAX, |later| later + 1);
    }
    effects
}

/// Random numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Pending changes up to this number have all their subsets.
const ALL_SUBSETS: usize = 4;
/// The random subsets of more pending changes.
const DRAWN: usize = 6;

/// Returns at most `most` different disks that a power cut may leave, with the number of changes before the cut.
pub fn states(before: &Disk, changes: &[Change], most: usize) -> Vec<(usize, Disk)> {
    let effects = effects(before, changes);
    let mut dice = Dice(1);
    let mut seen = BTreeSet::new();
    let mut plans: Vec<(usize, Vec<(usize, Fate)>)> = Vec::new();
    for cut in 0..=changes.len() {
        let changing =
            |effect: &Effect<'_>| !matches!(effect.change, Change::Sync(_) | Change::SyncFolder(_));
        let is_pending = |at: &usize| changing(&effects[*at]) && effects[*at].durable > cut;
        let pending: Vec<usize> = (0..cut).filter(is_pending).collect();
        let fates: Vec<Vec<Fate>> = if pending.len() <= ALL_SUBSETS {
            let fate = |kept: bool| if kept { Fate::Kept } else { Fate::Lost };
            let subset =
                |bits: usize| (0..pending.len()).map(|i| fate(bits >> i & 1 == 1)).collect();
            (0..1 << pending.len()).map(subset).collect()
        } else {
            let mut all = vec![vec![Fate::Lost; pending.len()], vec![Fate::Kept; pending.len()]];
            for _ in 0..DRAWN {
                let mut one = || match dice.below(8) {
                    0..4 => Fate::Kept,
                    4..7 => Fate::Lost,
                    _ => Fate::Half,
                };
                all.push(pending.iter().map(|_| one()).collect());
            }
            all
        };
        for fates in fates {
            plans.push((cut, pending.iter().copied().zip(fates).collect()));
        }
    }
    let mut states = Vec::new();
    for (cut, fates) in plans {
        let mut disk = before.clone();
        for (at, effect) in effects[..cut].iter().enumerate() {
            let fate = fates.iter().find(|(i, _)| *i == at).map_or(Fate::Kept, |(_, fate)| *fate);
            if fate != Fate::Lost {
                disk.apply(effect, fate);
            }
        }
        if seen.insert(disk.digest()) {
            states.push((cut, disk));
        }
    }
    // Of too many, evenly in time and by chance within.
    while states.len() > most {
        let at = dice.below(states.len() as u64) as usize;
        states.swap_remove(at);
    }
    states.sort_by_key(|(cut, _)| *cut);
    states
}
