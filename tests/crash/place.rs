//! A folder in which a command runs, is broken off, and runs again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use cloze::files::watch::{self, Change, Death};
use cloze::notes;

use crate::cases::Case;
use crate::common::Folder;
use crate::power::Disk;

/// The files of a result: the same run has the same bits in them.
const RESULT: [&str; 8] = [
    "model.safetensors",
    "config.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "head.safetensors",
    "manifest.json",
    "file.bin",
];

pub struct Place {
    pub folder: Folder,
}

/// How a run ended.
pub enum Ended {
    Well,
    Failed(String),
    Panicked,
}

/// What an unbroken run leaves.
pub struct Known {
    /// What its folder held after each complete save.
    pub saves: BTreeSet<String>,
    pub result: BTreeMap<PathBuf, Vec<u8>>,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: Folder::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// Returns the folder that is watched.
    pub fn root(&self) -> PathBuf {
        self.path("run")
    }

    /// Returns the folder of the command's result.
    pub fn out(&self) -> PathBuf {
        self.root().join("out")
    }

    /// Puts everything back as it was before the command.
    pub fn reset(&self, case: &Case) {
        case.before.write(&self.root());
    }

    /// Runs the command, `again` as after a crash, and kills it at `death`. Returns its messages too.
    pub fn run(&self, case: &Case, again: bool, death: Option<Death>) -> (Ended, String) {
        notes::keep();
        if death.is_some() {
            watch::begin(&self.root(), death);
        }
        let ended = catch_unwind(AssertUnwindSafe(|| (case.run)(again)));
        if death.is_some() {
            watch::end();
        }
        let ended = match ended {
            Ok(Ok(())) => Ended::Well,
            Ok(Err(error)) => Ended::Failed(error.to_string()),
            Err(_) => Ended::Panicked,
        };
        (ended, notes::keep())
    }

    /// Runs the command to its end. Returns what it leaves, and its changes.
    pub fn unbroken(&self, case: &Case) -> (Known, Vec<Change>) {
        self.reset(case);
        let mut saves: BTreeSet<String> = self.load(case).into_iter().collect();
        notes::keep();
        watch::begin(&self.root(), None);
        let ended = (case.run)(false);
        let (changes, _) = watch::end();
        ended.unwrap_or_else(|e| panic!("{}: {e}: {}", case.name, notes::keep()));
        let result = self.result();
        saves.insert(self.load(case).unwrap());
        // A save is complete when its folder is synced.
        let out = self.out();
        for (at, change) in changes.iter().enumerate() {
            if matches!(change, Change::SyncFolder(folder) if *folder == out) {
                Disk::after(&case.before, &changes[..at]).write(&self.root());
                saves.extend(self.load(case));
            }
        }
        (Known { saves, result }, changes)
    }

    /// Returns a digest of what the folder holds, or why it holds nothing that can be used.
    pub fn load(&self, case: &Case) -> Result<String, String> {
        let loaded = catch_unwind(AssertUnwindSafe(|| (case.load)(&self.out())));
        loaded
            .unwrap_or_else(|_| panic!("{}: loading panicked", case.name))
            .map_err(|e| e.to_string())
    }

    /// Returns the files of the result.
    pub fn result(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(self.out()).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if RESULT.contains(&name) || name.starts_with("shard-") {
                files.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
        files
    }

    /// Returns the temporary files in the folders of the result.
    pub fn left(&self) -> Vec<PathBuf> {
        let folders = [self.out(), self.out().join("trainer")];
        let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_left = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(".cloze-") || name == "tokens" || name.ends_with(".part")
        };
        paths.filter(is_left).collect()
    }
}

/// Returns a message without its paths and numbers, to count its kind.
pub fn kind(why: &str) -> String {
    let words = why.split_whitespace().filter(|word| !word.contains('/'));
    let words: Vec<_> = words.take(9).collect();
    words.join(" ").chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Returns what the messages of a run say about the state that it continues, if it is not just the newest of this run.
pub fn reports(notes: &str) -> Option<&'static str> {
    let all = [
        ("holds no checkpoint", "started anew, reported"),
        ("is continued from the state before", "older state, reported"),
        ("from here on", "change reported"),
    ];
    all.iter().find(|(part, _)| notes.contains(part)).map(|(_, what)| *what)
}

/// Returns the digest of bytes.
pub fn digest(bytes: &[u8]) -> String {
    format!("{:08x}{:x}", crc32fast::hash(bytes), bytes.len())
}

/// Removes a folder with its files.
pub fn remove(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}
