//! The exercises that a learner has passed, shared by all sessions of notebooks, the REPL and programs.
//!
//! A file in the user's data folder has one line of JSON for each passed exercise, with its time. A line is
//! appended by a single write, which the system does not mix with others, so two notebooks at once need no
//! lock. Nothing is ever rewritten, so nothing can be lost. Damaged lines are skipped.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::Exercise;
use crate::error::{Error, Result};
use crate::files;
use crate::files::{Output, create_folder};

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// Its key, or its id in the first edition of the course.
    exercise: String,
    /// RFC 3339, in UTC.
    passed: String,
}

/// The passed exercises, each with the time when it was first passed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    passed: BTreeMap<String, String>,
}

/// Returns the path of the file; `None` if the user has no data folder.
pub fn path() -> Option<PathBuf> {
    files::data_folder().map(|folder| folder.join("progress.jsonl"))
}

impl Progress {
    /// Reads the user's progress; empty if nothing has been passed.
    ///
    /// # Errors
    /// If the file exists and can't be read.
    pub fn load() -> Result<Self> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    /// Reads the progress in a file; empty if it doesn't exist.
    ///
    /// # Errors
    /// If the file exists and can't be read.
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
                // The first time counts; lines are in the order of time.
                passed.entry(line.exercise).or_insert(line.passed);
            }
        }
        Ok(Self { passed })
    }

    /// Returns the time when an exercise was first passed, as RFC 3339 in UTC.
    pub fn moment(&self, exercise: &Exercise) -> Option<&str> {
        let was = exercise.was.as_ref().and_then(|was| self.passed.get(was));
        was.or_else(|| self.passed.get(&exercise.key)).map(String::as_str)
    }

    /// Returns the day when an exercise was first passed, such as 2026-01-31.
    pub fn day(&self, exercise: &Exercise) -> Option<&str> {
        // A valid time begins with ten ASCII characters.
        self.moment(exercise).map(|moment| &moment[..10])
    }
}

/// Records in the user's file that an exercise was passed now; does nothing if it was passed before, or if
/// the user has no data folder.
///
/// # Errors
/// If the file can't be written.
pub fn note(exercise: &Exercise) -> Result<()> {
    match path() {
        Some(path) => note_in(&path, exercise),
        None => Ok(()),
    }
}

fn note_in(path: &Path, exercise: &Exercise) -> Result<()> {
    if Progress::read(path)?.moment(exercise).is_some() {
        return Ok(());
    }
    let line = Line {
        exercise: exercise.key.clone(),
        passed: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
    };
    append(path, &line)
}

/// Appends a line of JSON to a file of the learner's, by a single write; creates the file and its folder.
pub(super) fn append(path: &Path, line: &impl Serialize) -> Result<()> {
    let io = |e| Error::io(path, e);
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let mut file = Output::append(path).map_err(io)?;
    let json = serde_json::to_string(line)
        .map_err(|e| Error::file(path, format!("progress can't be written: {e}")))?;
    // An incomplete last line is ended first.
    let start = match ends_in_line_end(&mut file).map_err(io)? {
        true => "",
        false => "\n",
    };
    file.write_all(format!("{start}{json}\n").as_bytes()).and_then(|()| file.sync()).map_err(io)
}

/// Returns whether the file is empty or ends with a line end.
fn ends_in_line_end(file: &mut Output) -> std::io::Result<bool> {
    if file.as_file().metadata()?.len() == 0 {
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

    fn exercise(id: &str) -> Exercise {
        Exercise {
            id: id.to_owned(),
            key: format!("key_{id}"),
            was: Some(id.to_owned()),
            title: String::new(),
            hints: Vec::new(),
        }
    }

    #[test]
    fn the_first_time_is_kept_with_its_day() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/progress.jsonl");
        assert_eq!(Progress::read(&path).unwrap(), Progress::default());
        note_in(&path, &exercise("01.1")).unwrap();
        note_in(&path, &exercise("01.2")).unwrap();
        let first = Progress::read(&path).unwrap();
        note_in(&path, &exercise("01.1")).unwrap();
        assert_eq!(Progress::read(&path).unwrap(), first);
        let today = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        // Midnight may fall between the two.
        assert_eq!(first.day(&exercise("01.1")).unwrap()[..4], today[..4]);
        assert_eq!(first.day(&exercise("01.3")), None);
    }

    #[test]
    fn a_line_of_the_first_edition_counts_for_the_exercise_that_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.jsonl");
        std::fs::write(&path, "{\"exercise\":\"03.5\",\"passed\":\"2026-01-31T10:00:00Z\"}\n")
            .unwrap();
        let progress = Progress::read(&path).unwrap();
        let passed = |id: &str| progress.day(&crate::lessons::declared(id));
        // Multi-head attention; another exercise may have that number now.
        assert_eq!(passed("05.3"), Some("2026-01-31"));
        assert_eq!(passed("03.3"), None);
    }

    #[test]
    fn only_damaged_lines_are_lost() {
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
        assert_eq!(progress.day(&exercise("01.1")), Some("2026-01-31"));
        assert_eq!(
            (progress.day(&exercise("01.2")), progress.day(&exercise("01.3"))),
            (None, None)
        );
        // The next line is complete.
        note_in(&path, &exercise("01.3")).unwrap();
        assert!(Progress::read(&path).unwrap().day(&exercise("01.3")).is_some());
    }

    #[test]
    fn concurrent_writers_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.jsonl");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for one in 0..10 {
                        note_in(path, &exercise(&format!("{thread:02}.{one}"))).unwrap();
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
        let path = dir.path().display().to_string();
        assert!(error.contains(&path), "{error}");
    }
}
