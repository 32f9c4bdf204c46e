//! The file that keeps the history of all sessions: one record per line, appended while cells run.

use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
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
pub fn open(path: &Path) -> Result<(Vec<Entry>, usize)> {
    let _held = hold(path)?;
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
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
    let begins = line((session, 0), None, None)?;
    if length > FULL {
        let mut whole = tempfile::NamedTempFile::new_in(folder(path))?;
        let lines = entries
            .iter()
            .map(|entry| line((entry.session, entry.count), Some(&entry.code), Some(&entry.value)));
        whole.write_all(&lines.chain([Ok(begins)]).collect::<Result<Vec<_>>>()?.concat())?;
        whole.persist(path)?;
    } else {
        let torn = !bytes.is_empty() && !bytes.ends_with(b"\n");
        let end: &[u8] = if torn { b"\n" } else { b"" };
        append(path, &[end, &begins].concat())?;
    }
    Ok((entries, session))
}

/// Appends an input.
pub fn add(path: &Path, entry: &Entry) -> Result<()> {
    let line = line((entry.session, entry.count), Some(&entry.code), None)?;
    let _held = hold(path)?;
    append(path, &line)
}

/// Appends the value of an input.
pub fn add_value(path: &Path, entry: &Entry) -> Result<()> {
    let line = line((entry.session, entry.count), None, Some(&entry.value))?;
    let _held = hold(path)?;
    append(path, &line)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Keeps other kernels from changing the file until the result is dropped. The folder is locked, because a new file
/// may take the place of the history.
fn hold(path: &Path) -> Result<File> {
    let folder = File::open(folder(path))?;
    folder.lock()?;
    Ok(folder)
}

/// Appends lines to the file, which only its user may read.
fn append(path: &Path, lines: &[u8]) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(lines)
}

fn line(
    (session, count): (usize, usize),
    input: Option<&str>,
    value: Option<&str>,
) -> Result<Vec<u8>> {
    let record =
        Record { session, count, input: input.map(str::to_owned), value: value.map(str::to_owned) };
    let mut line = serde_json::to_vec(&record)?;
    line.push(b'\n');
    Ok(line)
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
        let (entries, first) = open(&path).unwrap();
        assert_eq!((entries.len(), first), (0, 1));
        let (_, second) = open(&path).unwrap();
        assert_eq!(second, 2);
        let mut a = entry(first, 1, "let a = \"\n\";");
        add(&path, &a).unwrap();
        add(&path, &entry(second, 1, "b")).unwrap();
        a.value = "7".into();
        add_value(&path, &a).unwrap();
        // A record cut in two is skipped, and the next one begins a new line.
        append(&path, b"{\"session\":1,").unwrap();
        let (entries, third) = open(&path).unwrap();
        assert_eq!(third, 3);
        let read: Vec<_> = entries.iter().map(|e| (e.session, &*e.code, &*e.value)).collect();
        assert_eq!(read, [(1, "let a = \"\n\";", "7"), (2, "b", "")]);
        assert_eq!(open(&path).unwrap().1, 4);
    }

    #[test]
    fn a_long_history_loses_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (_, session) = open(&path).unwrap();
        for count in 1..=FULL {
            add(&path, &entry(session, count, "x")).unwrap();
        }
        let (entries, _) = open(&path).unwrap();
        assert_eq!((entries.len(), entries[KEPT - 1].count), (KEPT, FULL));
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(lines, KEPT + 1);
        // A kernel that runs meanwhile writes to the new file.
        add(&path, &entry(session, FULL + 1, "y")).unwrap();
        let (entries, _) = open(&path).unwrap();
        assert_eq!((entries.len(), entries[KEPT - 1].code.as_str()), (KEPT, "y"));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
