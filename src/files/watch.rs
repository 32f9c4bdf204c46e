//! For tests of crashes: records the changes that this process makes below a folder, and lets it "die" at one of
//! them. From then on every change below the folder fails and nothing there changes any more, as if the process had
//! been killed. Without a watch, a change costs one relaxed load.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new, empty file.
    Create(PathBuf),
    /// Bytes written to a file at an offset.
    Write(PathBuf, u64, Vec<u8>),
    /// A file cut to a length, or filled up with zeros to it.
    SetLength(PathBuf, u64),
    /// A file's bytes forced to the disk.
    Sync(PathBuf),
    /// A file renamed, in place of another one if there was one.
    Rename(PathBuf, PathBuf),
    /// A file removed.
    Remove(PathBuf),
    /// A new folder.
    CreateFolder(PathBuf),
    /// An empty folder removed.
    RemoveFolder(PathBuf),
    /// A symbolic link to the first path at the second.
    Link(PathBuf, PathBuf),
    /// A folder's entries forced to the disk.
    SyncFolder(PathBuf),
}

/// Where the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// The number of changes that are made before.
    pub after: usize,
    /// Whether the next change, if it writes bytes, is made by half.
    pub half: bool,
}

struct Watch {
    folder: PathBuf,
    death: Option<Death>,
    dead: bool,
    changes: Vec<Change>,
}

static ON: AtomicBool = AtomicBool::new(false);
static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

fn watch() -> MutexGuard<'static, Option<Watch>> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch the changes below `folder`, in place of an earlier watch.
pub fn begin(folder: &Path, death: Option<Death>) {
    let folder = folder.to_path_buf();
    *watch() = Some(Watch { folder, death, dead: false, changes: Vec::new() });
    ON.store(true, Ordering::Relaxed);
}

/// Ends the watch. Returns the changes that were made, and whether the process died.
pub fn end() -> (Vec<Change>, bool) {
    ON.store(false, Ordering::Relaxed);
    watch().take().map_or_else(Default::default, |watch| (watch.changes, watch.dead))
}

impl Watch {
    /// Returns an error if the process is dead or dies here.
    fn pass(&mut self) -> io::Result<()> {
        self.dead |= self.death.is_some_and(|death| death.after == self.changes.len());
        match self.dead {
            true => Err(io::Error::other("the process was killed here by a test")),
            false => Ok(()),
        }
    }
}

/// Makes a change at `path` with `act`; `change` describes it.
pub(super) fn make<T>(
    path: &Path,
    change: impl FnOnce() -> Change,
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    if !ON.load(Ordering::Relaxed) {
        return act();
    }
    let mut watch = watch();
    let Some(watch) = watch.as_mut().filter(|watch| path.starts_with(&watch.folder)) else {
        return act();
    };
    watch.pass()?;
    let done = act()?;
    watch.changes.push(change());
    Ok(done)
}

/// Writes bytes to the file at `path` with `act`, which returns the number of bytes written; `at` returns the offset.
pub(super) fn write(
    path: &Path,
    bytes: &[u8],
    at: impl FnOnce() -> io::Result<u64>,
    act: impl FnOnce(&[u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    if !ON.load(Ordering::Relaxed) {
        return act(bytes);
    }
    let mut watch = watch();
    let Some(watch) = watch.as_mut().filter(|watch| path.starts_with(&watch.folder)) else {
        return act(bytes);
    };
    let was_alive = !watch.dead;
    if let Err(dead) = watch.pass() {
        if was_alive && watch.death.is_some_and(|death| death.half) {
            act(&bytes[..bytes.len() / 2])?;
        }
        return Err(dead);
    }
    let at = at()?;
    let count = act(bytes)?;
    watch.changes.push(Change::Write(path.to_path_buf(), at, bytes[..count].to_vec()));
    Ok(count)
}
