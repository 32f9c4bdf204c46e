//! Writing files so that an interruption at any moment leaves either the old file or the new one,
//! and the folder in which Cloze keeps what it makes for the user.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// Overrides the folder of [`data_folder`].
pub const DATA_VARIABLE: &str = "CLOZE_DATA";

/// `$CLOZE_DATA`, or `cloze` in the user's data folder (usually `~/.local/share`), whether or not it
/// is there yet; `None` where the user has no such folder.
pub fn data_folder() -> Option<PathBuf> {
    match std::env::var_os(DATA_VARIABLE).filter(|value| !value.is_empty()) {
        Some(folder) => Some(folder.into()),
        None => dirs::data_dir().map(|folder| folder.join("cloze")),
    }
}

/// Writes `bytes` beside `path`, forces them to the disk and renames them into place.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_with(path, |file| {
        file.write_all(bytes).map_err(|e| Error::io(path, e))
    })
}

/// The same with what `write` writes; a file that it fails to write is not put in place.
pub fn write_atomic_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    write_beside(path, write, File::sync_all)?;
    sync_folder(folder_of(path))
}

/// The same for what wants a path to write to.
pub fn write_atomic_at(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    place(path, |file| write(file.path()), File::sync_all)?;
    sync_folder(folder_of(path))
}

/// The same for what is soon written again: whoever reads the file finds it whole at any time, but
/// nothing waits for the disk, so that a power cut may take the newest state.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = |file: &mut dyn Write| file.write_all(bytes).map_err(|e| Error::io(path, e));
    write_beside(path, write, |_| Ok(()))
}

/// Makes a folder and those above it, where they are not there.
pub fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))
}

/// Takes a file away, if it is there.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

/// The folder that a file lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn write_beside(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
    settle: impl FnOnce(&File) -> std::io::Result<()>,
) -> Result<()> {
    let write = |file: &NamedTempFile| {
        let mut buffered = BufWriter::new(file.as_file());
        write(&mut buffered)?;
        buffered.flush().map_err(|e| Error::io(path, e))
    };
    place(path, write, settle)
}

/// Has a file written beside `path`, settled, and renamed into place.
fn place(
    path: &Path,
    write: impl FnOnce(&NamedTempFile) -> Result<()>,
    settle: impl FnOnce(&File) -> std::io::Result<()>,
) -> Result<()> {
    let folder = folder_of(path);
    create_folder(folder)?;
    let file = tempfile::Builder::new()
        .prefix(".cloze-")
        .tempfile_in(folder)
        .map_err(|e| Error::io(folder, e))?;
    write(&file)?;
    readable_by_others(file.as_file()).map_err(|e| Error::io(path, e))?;
    settle(file.as_file()).map_err(|e| Error::io(path, e))?;
    file.persist(path).map_err(|e| Error::io(path, e.error))?;
    Ok(())
}

/// Temporary files are private to their owner; a saved model is as readable as any other file.
#[cfg(unix)]
pub(crate) fn readable_by_others(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
pub(crate) fn readable_by_others(_: &File) -> std::io::Result<()> {
    Ok(())
}

/// A rename is only durable once the folder that holds the name has reached the disk too.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|f| f.sync_all())
        .map_err(|e| Error::io(folder, e))
}

/// Only Unix lets a folder be opened and synced.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_takes_the_place_of_the_old_one_and_leaves_nothing_beside_it() {
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
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write_atomic(&file, b"").unwrap();
        let error = write_atomic(&file.join("below"), b"").unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
}
