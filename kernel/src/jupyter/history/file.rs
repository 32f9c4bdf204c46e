//! The file in which history outlives a session: a record a line, appended as cells are run.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Entry;

/// So many inputs are kept when the file is read.
const KEPT: usize = 10_000;
/// The file is rewritten when it holds so many records.
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

/// Reads what is kept, oldest first, and takes the next session number. Two kernels that start at
/// the same time get two numbers.
pub fn open(path: &Path) -> std::io::Result<(File, Vec<Entry>, usize)> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    file.lock()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // A line that was cut off by a full disk or a kill is not worth more than itself.
    let records = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let records: Vec<Record> = records.collect();
    let session = records
        .iter()
        .map(|record| record.session)
        .max()
        .unwrap_or(0)
        + 1;
    let length = records.len();
    let mut entries: Vec<Entry> = Vec::new();
    for Record {
        session,
        count,
        input,
        value,
    } in records
    {
        if let Some(code) = input {
            entries.push(Entry {
                session,
                count,
                code,
                value: value.unwrap_or_default(),
            });
        } else if let Some(value) = value
            && let Some(entry) = entries
                .iter_mut()
                .rfind(|entry| (entry.session, entry.count) == (session, count))
        {
            entry.value = value;
        }
    }
    entries.drain(..entries.len().saturating_sub(KEPT));
    if length > FULL {
        file.set_len(0)?;
        for entry in &entries {
            let record = Record {
                session: entry.session,
                count: entry.count,
                input: Some(entry.code.clone()),
                value: Some(entry.value.clone()),
            };
            append(&mut file, &record)?;
        }
    }
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        file.write_all(b"\n")?;
    }
    append(
        &mut file,
        &Record {
            session,
            count: 0,
            input: None,
            value: None,
        },
    )?;
    file.unlock()?;
    Ok((file, entries, session))
}

/// Keeps an input.
pub fn add(file: &mut File, entry: &Entry) -> std::io::Result<()> {
    let input = Some(entry.code.clone());
    append(
        file,
        &Record {
            session: entry.session,
            count: entry.count,
            input,
            value: None,
        },
    )
}

/// Keeps the value of an input that is kept already.
pub fn add_value(file: &mut File, entry: &Entry) -> std::io::Result<()> {
    let value = Some(entry.value.clone());
    append(
        file,
        &Record {
            session: entry.session,
            count: entry.count,
            input: None,
            value,
        },
    )
}

/// One write a record: the system appends it whole, whoever else writes.
fn append(file: &mut File, record: &Record) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    file.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(session: usize, count: usize, code: &str) -> Entry {
        Entry {
            session,
            count,
            code: code.into(),
            value: String::new(),
        }
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
        // A record cut in two is left out, and the next one stands on a line of its own.
        one.write_all(b"{\"session\":1,").unwrap();
        let (_, entries, third) = open(&path).unwrap();
        assert_eq!(third, 3);
        let read: Vec<_> = entries
            .iter()
            .map(|e| (e.session, &*e.code, &*e.value))
            .collect();
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
