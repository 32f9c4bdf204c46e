//! Writes files so that an interruption at any moment leaves either the old file or the new one; also
//! finds the folder for the user's data.
//!
//! A file is written under a temporary name in the same folder, synced and renamed; then the folder is
//! synced too, because only that makes a rename durable. Files that belong together are all written
//! before the first is renamed.
//!
//! Every change of a file or folder goes through [`disk`], which tests can watch and break off at any change: see
//! [`watch`].

pub mod disk;
#[doc(hidden)]
pub mod watch;

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

pub use self::disk::Output;
use crate::error::{Error, Result};

/// The environment variable that overrides [`data_folder`].
pub const DATA_VARIABLE: &str = "CLOZE_DATA";

/// Returns `$CLOZE_DATA`, or `cloze` in the user's data folder (usually `~/.local/share`), which may not
/// exist yet; `None` if the user has no such folder.
pub fn data_folder() -> Option<PathBuf> {
    match std::env::var_os(DATA_VARIABLE).filter(|value| !value.is_empty()) {
        Some(folder) => Some(folder.into()),
        None => dirs::data_dir().map(|folder| folder.join("cloze")),
    }
}

/// The folder of the sources that this library was built from: sessions of the notebook kernel
/// compile them.
pub const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// Prefix of the names of temporary files.
pub(crate) const PREFIX: &str = ".cloze-";

/// A temporary file that will replace the file at `path`.
pub struct Staged {
    file: Output,
    /// None once it has been renamed.
    temporary: Option<PathBuf>,
    path: PathBuf,
    checksum: Option<u32>,
    previous: Option<PathBuf>,
}

impl Staged {
    /// Creates the temporary file, with the permissions of any new file.
    ///
    /// # Errors
    /// If `path` is a folder, a device or a pipe, or the file can't be created.
    pub fn begin(path: &Path) -> Result<Self> {
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Error::file(path, "is not a regular file, so no file can take its place"));
        }
        let folder = folder_of(path);
        create_folder(folder)?;
        let mut names = tempfile::Builder::new();
        let made = names.prefix(PREFIX).make_in(folder, Output::create_new);
        let (file, temporary) = made.map_err(|e| Error::io(folder, e))?.into_parts();
        // From here on it is removed by `Drop`.
        let temporary = temporary.keep().map_err(|e| Error::io(folder, e.error))?;
        // The lock protects the file from [`sweep`], which removes nothing in a file system without locks.
        let _ = file.as_file().try_lock();
        Ok(Self {
            file,
            temporary: Some(temporary),
            path: path.to_path_buf(),
            checksum: None,
            previous: None,
        })
    }

    /// Keeps the file that is replaced, under the name `previous` in the same folder.
    pub fn keeping(mut self, previous: PathBuf) -> Self {
        self.previous = Some(previous);
        self
    }

    /// Returns the path of the file in its place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the CRC-32 of its bytes, if [`stage`] has written them.
    pub fn checksum(&self) -> Option<u32> {
        self.checksum
    }

    /// Returns the file, for writing.
    pub fn file(&self) -> &Output {
        &self.file
    }

    /// Syncs all files, then renames each to its path. The last one vouches for the others: it appears only when they
    /// are on the disk in their places.
    pub fn place(mut files: Vec<Self>) -> Result<()> {
        for staged in &files {
            let synced = staged.file.sync();
            synced.map_err(|e| Error::io(&staged.path, e))?;
        }
        let last = files.pop();
        Self::rename_all(files)?;
        Self::rename_all(last.into_iter().collect())
    }

    /// Renames files to their paths, durably.
    fn rename_all(files: Vec<Self>) -> Result<()> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for staged in files {
            let folder = folder_of(&staged.path).to_path_buf();
            staged.rename()?;
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    fn rename(mut self) -> Result<()> {
        if let Some(temporary) = &self.temporary {
            if let Some(previous) = self.previous.as_ref().filter(|_| self.path.exists()) {
                disk::rename(&self.path, previous).map_err(|e| Error::io(previous, e))?;
            }
            disk::rename(temporary, &self.path).map_err(|e| Error::io(&self.path, e))?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // If it can't be removed, the next run sweeps it away.
            let _ = disk::remove(temporary);
        }
    }
}

/// A folder that is removed with its files when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a folder in the system's folder for temporary files.
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), e))?;
        Ok(Self(folder.keep()))
    }

    /// Creates this folder. What is left of an earlier one is removed first.
    pub fn at(path: &Path) -> Result<Self> {
        create_folder(folder_of(path))?;
        let left = || if path.exists() { disk::remove_tree(path) } else { Ok(()) };
        let made = left().and_then(|()| disk::create_folder(path));
        made.map_err(|e| Error::io(path, e))?;
        Ok(Self(path.to_path_buf()))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only temporary files are left behind if this fails.
        let _ = disk::remove_tree(&self.0);
    }
}

/// Writes a temporary file for `path`; [`Staged::place`] puts it in place.
pub fn stage(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Staged> {
    let mut staged = Staged::begin(path)?;
    let checksum = {
        let out = BufWriter::new(staged.file());
        let mut summed = Summed { out, sum: crc32fast::Hasher::new() };
        write(&mut summed)?;
        summed.flush().map_err(|e| Error::io(path, e))?;
        summed.sum.clone().finalize()
    };
    staged.checksum = Some(checksum);
    Ok(staged)
}

/// Computes the checksum of what is written.
struct Summed<W> {
    out: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Writes `bytes` to a temporary file for `path`.
pub fn stage_bytes(path: &Path, bytes: &[u8]) -> Result<Staged> {
    stage(path, |file| file.write_all(bytes).map_err(|e| Error::io(path, e)))
}

/// Replaces the file at `path` by `bytes`, durably.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    Staged::place(vec![stage_bytes(path, bytes)?])
}

/// Replaces the file at `path` by what `write` writes, durably; if it fails, the old file stays.
pub fn write_atomic_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    Staged::place(vec![stage(path, write)?])
}

/// Replaces a file that is soon written again: readers always find a complete file, but nothing waits for
/// the disk, so a power cut may lose the newest state.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    stage_bytes(path, bytes)?.rename()
}

/// Renames a file within its folder, durably.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    disk::rename(from, to).map_err(|e| Error::io(to, e))?;
    sync_folder(folder_of(to))
}

/// Creates a folder and its missing parents, durably.
pub fn create_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder_of(folder);
    if parent != folder {
        create_folder(parent)?;
    }
    match disk::create_folder(folder) {
        Ok(()) => sync_folder(parent),
        // Another process was faster.
        Err(_) if folder.is_dir() => Ok(()),
        Err(e) => Err(Error::io(folder, e)),
    }
}

/// Removes a file if it exists, durably.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match disk::remove(path) {
        Ok(()) => sync_folder(folder_of(path)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io(path, e)),
    }
}

/// Removes the temporary files that killed processes left in `folder`, including those of earlier
/// versions. Files that are still being written are locked and stay.
pub fn sweep(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|e| Error::io(folder, e))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let random = |end: &str| end.len() == 6 && end.bytes().all(|b| b.is_ascii_alphanumeric());
        let mut prefixes = [PREFIX, ".tmp"].iter();
        let temporary = prefixes.any(|prefix| name.strip_prefix(prefix).is_some_and(random));
        let path = entry.path();
        if temporary
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
        {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

/// Returns the folder that a file lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        // The root has none.
        None => path,
    }
}

fn sync_folder(folder: &Path) -> Result<()> {
    disk::sync_folder(folder).map_err(|e| Error::io(folder, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_replaces_the_old_one_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/vocab.txt");
        write_atomic(&path, b"old").unwrap();
        write_atomic(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        replace(&path, b"newer").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write_atomic(&file, b"").unwrap();
        let error = write_atomic(&file.join("below"), b"").unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }

    #[test]
    fn files_that_belong_together_appear_together() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "deep/b"].map(|name| folder.path().join(name));
        let staged = paths.iter().map(|path| stage_bytes(path, b"x").unwrap()).collect();
        assert!(paths.iter().all(|path| !path.exists()));
        Staged::place(staged).unwrap();
        assert!(paths.iter().all(|path| path.exists()));
    }

    #[cfg(unix)]
    #[test]
    fn a_saved_file_has_the_permissions_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            let metadata = fs::metadata(folder.path().join(name)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        fs::write(folder.path().join("plain"), "").unwrap();
        write_atomic(&folder.path().join("saved"), b"").unwrap();
        assert_eq!(mode("saved"), mode("plain"));
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_open_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let kept = [".cloze-notes.txt", ".tmp", ".tmp-notes", "model.safetensors"];
        for name in [".cloze-a1B2c3", ".tmpXyZ012"].iter().chain(&kept) {
            fs::write(path(name), "x").unwrap();
        }
        fs::create_dir(path(".tmpABCDEF")).unwrap();
        let staged = stage_bytes(&path("new"), b"x").unwrap();
        sweep(folder.path()).unwrap();
        Staged::place(vec![staged]).unwrap();
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = kept.to_vec();
        expected.extend([".tmpABCDEF", "new"]);
        expected.sort_unstable();
        assert_eq!(left, expected);
    }
}
