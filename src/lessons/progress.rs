//! What a learner has passed, kept across sessions and shared by notebooks, the REPL and programs.
//!
//! One file in the user's data folder, one line of JSON for each exercise that was passed, with the
//! moment. A line is appended by one write, which the system does not mix with another's, so two
//! notebooks at once need no lock; nothing is ever rewritten, so nothing passed can be lost; and a line
//! that a power cut or a hand spoiled is left out without a word about the others.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files;
use crate::files::create_folder;

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    exercise: String,
    /// RFC 3339, in UTC.
    passed: String,
}

/// Which exercises were passed, and when for the first time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    passed: BTreeMap<String, String>,
}

/// The file that keeps it; none where the user has no data folder.
pub fn path() -> Option<PathBuf> {
    files::data_folder().map(|folder| folder.join("progress.jsonl"))
}

impl Progress {
    /// The user's own; empty where nothing was passed yet.
    ///
    /// # Errors
    /// Where the file is there and can't be read.
    pub fn load() -> Result<Self> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    /// What a file keeps; empty where there is none.
    ///
    /// # Errors
    /// Where the file is there and can't be read.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(path, e)),
        };
        let mut passed = BTreeMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Line>(line) else {
                continue;
            };
            if humantime::parse_rfc3339(&line.passed).is_ok() {
                // The first time counts: lines are in the order of time.
                passed.entry(line.exercise).or_insert(line.passed);
            }
        }
        Ok(Self { passed })
    }

    /// The moment at which an exercise was first passed, as RFC 3339 in UTC.
    pub fn moment(&self, id: &str) -> Option<&str> {
        self.passed.get(id).map(String::as_str)
    }

    /// Its day, as in 2026-01-31.
    pub fn day(&self, id: &str) -> Option<&str> {
        // A parsed moment begins with ten characters of ASCII.
        self.moment(id).map(|moment| &moment[..10])
    }
}

/// Notes in the user's file that an exercise was passed just now; does nothing where it is noted already,
/// or where the user has no data folder.
///
/// # Errors
/// Where the file can't be written.
pub fn note(id: &str) -> Result<()> {
    match path() {
        Some(path) => note_in(&path, id),
        None => Ok(()),
    }
}

fn note_in(path: &Path, id: &str) -> Result<()> {
    if Progress::read(path)?.moment(id).is_some() {
        return Ok(());
    }
    let io = |e| Error::io(path, e);
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(io)?;
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let line = Line {
        exercise: id.to_owned(),
        passed: now,
    };
    let json = serde_json::to_string(&line)
        .map_err(|e| Error::file(path, format!("progress can't be written: {e}")))?;
    // Behind a line that was cut off a new one begins.
    let begin = if ends_whole(&mut file).map_err(io)? {
        ""
    } else {
        "\n"
    };
    file.write_all(format!("{begin}{json}\n").as_bytes())
        .and_then(|()| file.sync_data())
        .map_err(io)
}

/// Whether the file is empty or ends with a line end.
fn ends_whole(file: &mut std::fs::File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_is_kept_with_its_day() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/progress.jsonl");
        assert_eq!(Progress::read(&path).unwrap(), Progress::default());
        note_in(&path, "01.1").unwrap();
        note_in(&path, "01.2").unwrap();
        let first = Progress::read(&path).unwrap();
        note_in(&path, "01.1").unwrap();
        assert_eq!(Progress::read(&path).unwrap(), first);
        let today = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        // Midnight may fall between the two.
        assert_eq!(first.day("01.1").unwrap()[..4], today[..4]);
        assert_eq!(first.day("01.3"), None);
    }

    #[test]
    fn damage_costs_no_more_than_the_lines_that_it_hit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.jsonl");
        let text = concat!(
            "{\"exercise\":\"01.1\",\"passed\":\"2026-01-31T10:00:00Z\"}\n",
            "\u{0}\u{0}nonsense\n",
            "{\"exercise\":\"01.2\",\"passed\":\"yesterday\"}\n",
            "{\"exercise\":\"01.1\",\"passed\":\"2026-02-01T10:00:00Z\",\"more\":1}\n",
            "\n",
            "{\"exercise\":\"01.3\",\"pas",
        );
        std::fs::write(&path, [text.as_bytes(), b"\xff\xfe"].concat()).unwrap();
        let progress = Progress::read(&path).unwrap();
        assert_eq!(progress.day("01.1"), Some("2026-01-31"));
        assert_eq!((progress.day("01.2"), progress.day("01.3")), (None, None));
        // And what is noted next is whole.
        note_in(&path, "01.3").unwrap();
        assert!(Progress::read(&path).unwrap().day("01.3").is_some());
    }

    #[test]
    fn several_at_once_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.jsonl");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for one in 0..10 {
                        note_in(path, &format!("{thread:02}.{one}")).unwrap();
                    }
                });
            }
        });
        assert_eq!(Progress::read(&path).unwrap().passed.len(), 40);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Progress::read(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains(&*dir.path().display().to_string()),
            "{error}"
        );
    }
}
