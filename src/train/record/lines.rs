//! Files that grow during a run, by whole records.

use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::files::Output;

/// Records are passed to the operating system at least this often while any are written.
const FLUSH_EVERY: Duration = Duration::from_secs(2);

/// A file whose records are written whole, so an interrupted one ends with a whole record.
pub struct Appended {
    file: Output,
    path: PathBuf,
    waiting: Vec<u8>,
    /// None before the first record, which is written at once.
    flushed: Option<Instant>,
}

impl Appended {
    /// Continues the file at byte `end` and removes what follows.
    pub fn at(mut file: Output, path: PathBuf, end: u64) -> Result<Self> {
        let placed = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
        placed.map_err(|e| Error::io(&path, e))?;
        Ok(Self { file, path, waiting: Vec::new(), flushed: None })
    }

    /// Adds a record.
    pub fn append(&mut self, record: &[u8]) -> Result<()> {
        self.waiting.extend(record);
        if self.flushed.is_none_or(|at| at.elapsed() >= FLUSH_EVERY) {
            self.flush()?;
        }
        Ok(())
    }

    /// Passes everything to the operating system.
    pub fn flush(&mut self) -> Result<()> {
        let written = self.file.write_all(&self.waiting);
        self.waiting.clear();
        self.flushed = Some(Instant::now());
        written.map_err(|e| Error::io(&self.path, e))
    }
}

/// A file with a JSON object on each line. Each has a `step`, and the steps rise.
pub struct Lines {
    file: Appended,
}

impl Lines {
    /// Continues the file at `path`: removes the lines after step `kept`, and all from the first damaged line
    /// on, and passes every kept line to `seen`. Without `kept`, the file starts anew.
    pub fn open(
        path: &Path,
        kept: Option<u64>,
        mut seen: impl FnMut(u64, &Map<String, Value>),
    ) -> Result<Self> {
        let failed = |e| Error::io(path, e);
        let file = Output::open(path).map_err(failed)?;
        let mut end = 0;
        if let Some(last) = kept {
            let mut reader = BufReader::new(file.as_file());
            let mut line = Vec::new();
            loop {
                line.clear();
                let length = reader.read_until(b'\n', &mut line).map_err(failed)?;
                let Some(line) = line.strip_suffix(b"\n") else {
                    break;
                };
                let Ok(object) = serde_json::from_slice::<Map<_, _>>(line) else {
                    break;
                };
                match object.get("step").and_then(Value::as_u64) {
                    Some(step) if step <= last => seen(step, &object),
                    _ => break,
                }
                end += length as u64;
            }
        }
        Ok(Self { file: Appended::at(file, path.to_path_buf(), end)? })
    }

    /// Adds a line.
    pub fn write(&mut self, object: &Map<String, Value>) -> Result<()> {
        // It has only names and numbers, which always serialise.
        let mut line = serde_json::to_vec(object).expect("plain data");
        line.push(b'\n');
        self.file.append(&line)
    }

    /// Passes everything to the operating system.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_run_cuts_off_what_lies_behind_its_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        std::fs::write(
            &path,
            "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.5}\n{\"step\":3,\"loss\":9}\n{\"st",
        )
        .unwrap();
        let mut seen = Vec::new();
        let mut lines = Lines::open(&path, Some(2), |step, _| seen.push(step)).unwrap();
        let object = serde_json::json!({"step": 3, "loss": 1.0});
        lines.write(object.as_object().unwrap()).unwrap();
        lines.flush().unwrap();
        assert_eq!(seen, [1, 2]);
        let expected =
            "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.5}\n{\"step\":3,\"loss\":1.0}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        drop(Lines::open(&path, None, |_, _| panic!("a new run keeps nothing")).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }
}
