//! Reads, copies and removes the folders of templates and sessions.

use std::fs::File;
use std::path::{Path, PathBuf};

use cloze::{Error, Result};

use crate::paths;

/// Returns the entries of `folder`, sorted.
pub fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut entries = std::fs::read_dir(folder)
        .and_then(|entries| {
            entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()
        })
        .map_err(|source| Error::io(folder, source))?;
    entries.sort();
    Ok(entries)
}

/// Copies a file, or a folder with everything in it.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        paths::create(to)?;
        for entry in sorted(from)? {
            // `sorted` gives paths below `from`, which all have a name.
            let name = entry.file_name().unwrap_or_default();
            copy_tree(&entry, &to.join(name))?;
        }
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        paths::create(parent)?;
    }
    std::fs::copy(from, to).map(drop).map_err(|source| Error::io(from, source))
}

/// Returns the last part of a path.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes a file, and creates its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        paths::create(parent)?;
    }
    std::fs::write(path, text).map_err(|source| Error::io(path, source))
}

/// Writes a file that only the user can read, because it contains secrets.
pub fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    std::io::Write::write_all(&mut file, bytes)
}

/// Removes a file or a folder, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    let removed =
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, error)),
        _ => Ok(()),
    }
}
