//! The file that keeps the history of all sessions: one record per line, appended while cells run.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Entry;

/// How many inputs are kept.
const KEPT: usize = 10_000;
/// The number of records after which the file is rewritten.
const FULL: usize = 3 * KEPT;

#[derive(Serialize, Deserialize)]
struct Record {
    session: usize,
    count: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

/// Reads the kept entries, oldest first, and reserves the next session number. Two kernels that start at
/// the same time get different numbers.
pub fn open(path: &Path) -> std::io::Result<(File, Vec<Entry>, usize)> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    file.lock()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // Skips lines that a full disk or a kill has cut off.
    let lines = text.lines();
    let records: Vec<Record> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = records.iter().map(|record| record.session).max();
    let session = last.unwrap_or(0) + 1;
    let length = records.len();
    let mut entries: Vec<Entry> = Vec::new();
    for Record { session, count, input, value } in records {
        if let Some(code) = input {
            entries.push(Entry { session, count, code, value: value.unwrap_or_default() });
        } else if let Some(value) = value
            && let Some(entry) =
                entries.iter_mut().rfind(|entry| (entry.session, entry.count) == (session, count))
        {
            entry.value = value;
        }
    }
    entries.drain(..entries.len().saturating_sub(KEPT));
    if length > FULL {
        file.set_len(0)?;
        for entry in &entries {
            let place = (entry.session, entry.count);
            append(&mut file, place, Some(&entry.code), Some(&entry.value))?;
        }
    }
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        file.write_all(b"\n")?;
    }
    append(&mut file, (session, 0), None, None)?;
    file.unlock()?;
    Ok((file, entries, session))
}

/// Appends an input.
pub fn add(file: &mut File, entry: &Entry) -> std::io::Result<()> {
    append(file, (entry.session, entry.count), Some(&entry.code), None)
}

/// Appends the value of an input.
pub fn add_value(file: &mut File, entry: &Entry) -> std::io::Result<()> {
    append(file, (entry.session, entry.count), None, Some(&entry.value))
}

/// Appends a record, in one write: the system keeps it whole even if other processes write too.
fn append(
    file: &mut File,
    (session, count): (usize, usize),
    input: Option<&str>,
    value: Option<&str>,
) -> std::io::Result<()> {
    let record =
        Record { session, count, input: input.map(str::to_owned), value: value.map(str::to_owned) };
    let mut line = serde_json::to_vec(&record)?;
    line.push(b'\n');
    file.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(session: usize, count: usize, code: &str) -> Entry {
        Entry { session, count, code: code.into(), value: String::new() }
    }

    #[test]
    fn sessions_are_numbered_and_read_back_with_their_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (mut one, entries, first) = open(&path).unwrap();
        assert_eq!((entries.len(), first), (0, 1));
        let (mut two, _, second) = open(&path).unwrap();
        assert_eq!(second, 2);
        let mut a = entry(first, 1, "let a = \"\n\";");
        add(&mut one, &a).unwrap();
        add(&mut two, &entry(second, 1, "b")).unwrap();
        a.value = "7".into();
        add_value(&mut one, &a).unwrap();
        // A record cut in two is skipped, and the next one begins a new line.
        one.write_all(b"{\"session\":1,").unwrap();
        let (_, entries, third) = open(&path).unwrap();
        assert_eq!(third, 3);
        let read: Vec<_> = entries.iter().map(|e| (e.session, &*e.code, &*e.value)).collect();
        assert_eq!(read, [(1, "let a = \"\n\";", "7"), (2, "b", "")]);
        assert_eq!(open(&path).unwrap().2, 4);
    }

    #[test]
    fn a_long_history_loses_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (mut file, _, session) = open(&path).unwrap();
        for count in 1..=FULL {
            add(&mut file, &entry(session, count, "x")).unwrap();
        }
        let (_, entries, _) = open(&path).unwrap();
        assert_eq!((entries.len(), entries[KEPT - 1].count), (KEPT, FULL));
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(lines, KEPT + 1);
        assert_eq!(open(&path).unwrap().1.len(), KEPT);
    }
}
