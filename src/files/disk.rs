//! The one place where files and folders are changed: every change can be watched, see [`super::watch`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::watch::{self, Change};

/// A file that is open for reading and writing.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    appends: bool,
}

impl Output {
    /// Creates a file; it is an error if there is one.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        let create = || OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = watch::make(path, || Change::Create(path.into()), create)?;
        Ok(Self { file, path: path.to_path_buf(), appends: false })
    }

    /// Opens a file, or creates it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with(path, OpenOptions::new().read(true).write(true), false)
    }

    /// Opens or creates a file whose writes all go to its end, even if another process adds to it too.
    pub fn append(path: &Path) -> io::Result<Self> {
        Self::with(path, OpenOptions::new().read(true).append(true), true)
    }

    fn with(path: &Path, options: &mut OpenOptions, appends: bool) -> io::Result<Self> {
        let mut open = || options.create(true).open(path);
        let file = match path.exists() {
            true => open(),
            false => watch::make(path, || Change::Create(path.into()), open),
        };
        Ok(Self { file: file?, path: path.to_path_buf(), appends })
    }

    /// Returns the file, for locks and for reading.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Returns the file, for reading.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Returns another handle with the same position.
    pub fn try_clone(&self) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        Ok(Self { file, path: self.path.clone(), appends: self.appends })
    }

    /// Cuts the file to a length.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        let change = || Change::SetLength(self.path.clone(), length);
        watch::make(&self.path, change, || self.file.set_len(length))
    }

    /// Forces the bytes to the disk.
    pub fn sync(&self) -> io::Result<()> {
        watch::make(&self.path, || Change::Sync(self.path.clone()), || self.file.sync_all())
    }
}

impl Write for &Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = &self.file;
        let at = || match self.appends {
            true => Ok(self.file.metadata()?.len()),
            false => (&self.file).stream_position(),
        };
        watch::write(&self.path, bytes, at, |bytes| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Output {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.file.read(into)
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Renames a file.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    watch::make(to, || Change::Rename(from.into(), to.into()), || fs::rename(from, to))
}

/// Removes a file.
pub fn remove(path: &Path) -> io::Result<()> {
    watch::make(path, || Change::Remove(path.into()), || fs::remove_file(path))
}

/// Creates a folder in one that exists.
pub fn create_folder(path: &Path) -> io::Result<()> {
    watch::make(path, || Change::CreateFolder(path.into()), || fs::create_dir(path))
}

/// Removes an empty folder.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    watch::make(path, || Change::RemoveFolder(path.into()), || fs::remove_dir(path))
}

/// Removes a folder with all that it holds. Links are removed, not followed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => remove_tree(&entry.path())?,
            false => remove(&entry.path())?,
        }
    }
    remove_folder(path)
}

/// Makes a symbolic link to `target`, relative to the folder of `path`.
#[cfg(unix)]
pub fn link(target: &Path, path: &Path) -> io::Result<()> {
    let make = || std::os::unix::fs::symlink(target, path);
    watch::make(path, || Change::Link(target.into(), path.into()), make)
}

/// Forces a folder's entries to the disk.
#[cfg(unix)]
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let sync = || File::open(path)?.sync_all();
    watch::make(path, || Change::SyncFolder(path.into()), sync)
}

/// Only Unix can open and sync a folder.
#[cfg(not(unix))]
pub fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
