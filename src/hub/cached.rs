//! A model or a data set in the cache, in the layout of Python's `huggingface_hub`: files named by their checksums in
//! `blobs`, links to them in `snapshots/COMMIT`, and the commit of a branch or tag in `refs`.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{Output, create_folder, write_atomic};
use crate::model::weights::{self, CONFIG, INDEX, WEIGHTS};
use crate::note;

use super::Id;

/// A repository's part of the cache.
pub(super) struct Cached<'a> {
    id: &'a Id,
    /// The repository's folder in the cache.
    folder: PathBuf,
    /// The folder of the repository's locks, which Python uses too.
    locks: PathBuf,
}

impl<'a> Cached<'a> {
    pub(super) fn new(cache: &Path, id: &'a Id) -> Self {
        let name = format!("{}--{}", id.kind.plural(), id.name.replace('/', "--"));
        Self { id, folder: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    /// Returns the folder of a commit's files.
    pub(super) fn commit(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Returns the path of the file with this checksum.
    pub(super) fn blob(&self, checksum: &str) -> PathBuf {
        self.folder.join("blobs").join(checksum)
    }

    /// Returns the file that holds the revision's commit.
    fn reference(&self) -> PathBuf {
        self.folder.join("refs").join(&self.id.revision)
    }

    /// Returns the commit of the revision when it was last downloaded, or the revision if it is no branch or tag.
    fn known_commit(&self) -> String {
        match std::fs::read_to_string(self.reference()) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => self.id.revision.clone(),
        }
    }

    /// Returns which file is missing, as the end of a sentence.
    pub(super) fn lacks(&self, what: &str) -> String {
        format!("the cache has no {what} of {} ({})", self.id, self.folder.display())
    }

    /// Returns the path of the Hub's description of a commit, which Python does not keep.
    fn description_of(&self, commit: &str) -> PathBuf {
        self.folder.join(".cloze").join(format!("{commit}.json"))
    }

    /// Keeps the Hub's description of a commit.
    pub(super) fn describe(&self, commit: &str, description: &[u8]) -> Result<()> {
        let path = self.description_of(commit);
        create_folder(&self.folder.join(".cloze"))?;
        write_atomic(&path, description)
    }

    /// Returns the description of the revision that was kept, or what is missing, as the end of a sentence.
    pub(super) fn description(&self) -> std::result::Result<Vec<u8>, String> {
        let path = self.description_of(&self.known_commit());
        std::fs::read(path).map_err(|_| self.lacks("list of the files"))
    }

    /// Returns the folder of the revision's files, or which file is missing, as the end of a sentence.
    pub(super) fn snapshot(&self) -> std::result::Result<PathBuf, String> {
        let folder = self.commit(&self.known_commit());
        let missing = |what: &str| Err(self.lacks(what));
        if !folder.join(CONFIG).exists() {
            return missing(CONFIG);
        }
        if folder.join(WEIGHTS).exists() {
            return Ok(folder);
        }
        let Ok(index) = std::fs::read_to_string(folder.join(INDEX)) else {
            return missing(WEIGHTS);
        };
        let shards = weights::files_of(&index).map_err(|message| format!("{INDEX} {message}"))?;
        match shards.iter().find(|shard| !folder.join(shard).exists()) {
            Some(shard) => missing(shard),
            None => Ok(folder),
        }
    }

    /// Locks the file with this checksum against downloads by other processes until the lock is dropped;
    /// waits while another process holds it.
    pub(super) fn lock(&self, checksum: &str, name: &str) -> Result<Output> {
        create_folder(&self.locks)?;
        let path = self.locks.join(format!("{checksum}.lock"));
        let file = Output::open(&path).map_err(|e| Error::io(&path, e))?;
        match file.as_file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                note!("{name}: another process is downloading it; waiting for that to end");
                file.as_file().lock().map_err(|e| Error::io(&path, e))?;
            }
            // The file system has no locks, like some network drives.
            Err(TryLockError::Error(e)) => note!(
                "{}: files cannot be locked here ({e}): make sure that no other process \
                 downloads {name}",
                path.display()
            ),
        }
        Ok(file)
    }

    /// Links a blob into a snapshot, at `path`.
    pub(super) fn link(&self, blob: &Path, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        #[cfg(unix)]
        let done = {
            // Links are relative, as in Python, so that a cache can be moved. Both paths begin with the
            // model's folder.
            let below = |path: &Path| path.strip_prefix(&self.folder).unwrap_or(path).to_path_buf();
            let up = "../".repeat(below(path).components().count().saturating_sub(1));
            crate::files::disk::link(&Path::new(&up).join(below(blob)), path)
        };
        #[cfg(not(unix))]
        let done = std::fs::copy(blob, path).map(|_| ());
        match done {
            // Another process was faster.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            done => done.map_err(|e| Error::io(path, e)),
        }
    }

    /// Records the commit of a revision whose files are complete.
    pub(super) fn refer(&self, commit: &str) -> Result<()> {
        let path = self.reference();
        let noted = std::fs::read_to_string(&path).is_ok_and(|noted| noted.trim() == commit);
        if noted || self.id.revision == commit {
            return Ok(());
        }
        write_atomic(&path, commit.as_bytes())
    }
}
