//! The folder of a run: what may be overwritten in it, and the lock that keeps other runs out.

use std::fs::TryLockError;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{Output, Staged, create_folder, folder_of, sweep};
use crate::model::weights::any_weights_in;
use crate::note;

/// What to do with a run or a model in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Refuse to begin if there is one.
    Begin,
    /// Continue the run.
    Resume,
    /// Replace it.
    Overwrite,
}

impl Intent {
    /// Returns the intent of these options, which exclude each other.
    pub fn of(resume: bool, overwrite: bool) -> Self {
        match (resume, overwrite) {
            (true, _) => Self::Resume,
            (false, true) => Self::Overwrite,
            (false, false) => Self::Begin,
        }
    }

    /// Checks that nothing in the folder `out` would be lost. `unfinished` are the files from which a run can
    /// be resumed, `done` those of a finished run.
    ///
    /// # Errors
    /// If a run or a model would be lost, or there is no run to resume.
    pub fn check(self, out: &Path, unfinished: &[PathBuf], done: &[PathBuf]) -> Result<()> {
        let any = |files: &[PathBuf]| files.iter().any(|path| path.exists());
        let shown = out.display();
        let refused = match self {
            Self::Begin if any(unfinished) => format!(
                "{shown} already holds a run: give --resume to continue it, --overwrite to start anew, \
                 or another --out"
            ),
            _ if !any_weights_in(out) => return Ok(()),
            Self::Begin => format!(
                "{shown} already holds a model: give --overwrite to replace it, or another --out"
            ),
            Self::Resume if !any(unfinished) && !any(done) => format!(
                "{shown} holds a model, but no run that could be resumed: give --overwrite to replace \
                 the model, or another --out"
            ),
            Self::Resume | Self::Overwrite => return Ok(()),
        };
        Err(Error::Usage(refused))
    }
}

/// A lock on a folder, which this process holds until it ends or drops this.
pub struct Lock(Output);

impl Drop for Lock {
    /// Releases the lock itself. Closing the file would not suffice: a program that another thread starts at this
    /// moment has a copy of it, and so the lock, until its own code begins.
    fn drop(&mut self) {
        // A lock that could not be taken cannot be released either.
        let _ = self.0.as_file().unlock();
    }
}

impl Lock {
    /// Locks the folder `out` by the file at `path`, which the system releases when the process ends, however
    /// it ends.
    ///
    /// # Errors
    /// If another process has locked the folder, or if the file cannot be written.
    pub fn take(path: &Path, out: &Path) -> Result<Self> {
        create_folder(folder_of(path))?;
        let mut file = Output::open(path).map_err(|e| Error::io(path, e))?;
        match file.as_file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                // Only for the message.
                let _ = file.read_to_string(&mut process);
                return Err(Error::Usage(format!(
                    "{} is in use by another run (process {}): wait until it ends, or give another \
                     --out",
                    out.display(),
                    process.trim()
                )));
            }
            Err(TryLockError::Error(e)) => note!(
                "{}: files cannot be locked here ({e}): make sure that no other run uses the folder",
                out.display()
            ),
        }
        let said = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        said.map_err(|e| Error::io(path, e))?;
        Ok(Self(file))
    }
}

/// The folder of a run, locked by this process until it ends or drops this.
pub struct RunFolder {
    _lock: Lock,
}

impl RunFolder {
    /// Creates the folder if needed, locks it, checks that files can be written into it, and removes
    /// the temporary files of killed processes.
    ///
    /// # Errors
    /// If another process trains in the folder, or if it cannot be written to.
    pub fn open(out: &Path) -> Result<Self> {
        let trainer = out.join("trainer");
        let lock = Lock::take(&trainer.join("lock"), out)?;
        for folder in [out, &trainer] {
            sweep(folder)?;
            // A full disk or a folder of somebody else is found now and not after the training.
            Staged::begin(&folder.join("probe"))?;
        }
        Ok(Self { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_belongs_to_one_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/out");
        let first = RunFolder::open(&out).unwrap();
        let message = RunFolder::open(&out).err().unwrap().to_string();
        let own = format!("in use by another run (process {})", std::process::id());
        assert!(message.contains(&own), "{message}");
        drop(first);
        std::fs::write(out.join(".cloze-aBcDe1"), "left").unwrap();
        let again = RunFolder::open(&out).unwrap();
        let names = |folder: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(folder).unwrap();
            let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            entries.map(|e| name(e).into_string().unwrap()).collect()
        };
        assert_eq!(names(&out), ["trainer"]);
        assert_eq!(names(&out.join("trainer")), ["lock"]);
        drop(again);
    }

    #[test]
    fn nothing_is_lost_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        let (state, done) = ([out.join("state")], [out.join("done")]);
        let check = |intent: Intent| intent.check(out, &state, &done).map_err(|e| e.to_string());
        let refused = |intent| check(intent).unwrap_err();
        for intent in [Intent::Begin, Intent::Resume, Intent::Overwrite] {
            assert!(check(intent).is_ok());
        }
        for name in [
            "model.safetensors.index.json",
            "pytorch_model.bin",
            "tf_model.h5",
            "model.onnx",
            "model.safetensors",
        ] {
            let weights = out.join(name);
            std::fs::write(&weights, "").unwrap();
            assert!(refused(Intent::Begin).contains("already holds a model"), "{name}");
            std::fs::remove_file(weights).unwrap();
            assert!(check(Intent::Begin).is_ok(), "{name}");
        }
        std::fs::write(out.join("model.safetensors"), "").unwrap();
        assert!(refused(Intent::Begin).contains("already holds a model"));
        assert!(refused(Intent::Resume).contains("no run that could be resumed"));
        assert!(check(Intent::Overwrite).is_ok());
        std::fs::write(&done[0], "").unwrap();
        assert!(check(Intent::Resume).is_ok() && check(Intent::Begin).is_err());
        std::fs::write(&state[0], "").unwrap();
        assert!(refused(Intent::Begin).contains("already holds a run"));
        assert!(check(Intent::Resume).is_ok() && check(Intent::Overwrite).is_ok());
    }
}
