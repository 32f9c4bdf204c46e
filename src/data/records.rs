//! Records of comma-separated values (RFC 4180), each with its line.
//!
//! A quote whose closing one is missing makes all that follows part of one field, up to the next
//! quote or the end of the file, and the `csv` crate takes it so. Here it is an error of the line in
//! which it stands, and reading goes on behind that line.

use std::io::Read;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use crate::error::{Error, Result};
use crate::text::raw;
use crate::text::reader::{checked, without_zeros};

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it starts, counted from 1.
    pub line: usize,
    pub fields: Vec<String>,
}

/// The largest number of columns that a row of a file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    pub columns: usize,
    /// What sets the limit, for the message: the header or the first row.
    pub of: &'static str,
    /// How to mend a row with more columns.
    pub advice: &'static str,
}

/// What mends a row of a CSV file that has too many columns.
pub const QUOTES: &str = "a text with commas needs quotes";
/// The same of a TSV file.
pub const NO_TABS: &str = "a text must not hold tabs";

impl Width {
    /// Refuses a row of more columns: a separator in a text has cut it, and what stands behind belongs
    /// to other columns than it seems.
    pub fn check(self, path: &Path, line: usize, found: usize) -> Result<()> {
        let Self {
            columns,
            of,
            advice,
        } = self;
        if found <= columns {
            return Ok(());
        }
        let message = format!("the row has {found} columns, but {of} has {columns}: {advice}");
        Err(Error::line(path, line, message))
    }
}

/// Reads all records; empty lines between them are left out. `path` stands in error messages.
pub fn read(input: impl Read, path: &Path) -> Result<Vec<Result<Record>>> {
    let bytes = raw::whole(input, path)?;
    let mut records = Vec::new();
    let (mut rest, mut line) = (&bytes[..], 1);
    while let Some(opened) = read_up_to_fault(rest, line, path, &mut records)? {
        let (place, behind) = opened;
        (rest, line) = (&rest[behind..], place + 1);
    }
    Ok(records)
}

/// Reads records up to one with a quote that is never closed; gives that quote's line, and where the
/// bytes behind that line begin. `first` is the number of the first line of `bytes`.
fn read_up_to_fault(
    bytes: &[u8],
    first: usize,
    path: &Path,
    records: &mut Vec<Result<Record>>,
) -> Result<Option<(usize, usize)>> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(bytes);
    let mut record = ByteRecord::new();
    while reader
        .read_byte_record(&mut record)
        .map_err(|e| Error::file(path, format!("is no CSV file: {e}")))?
    {
        // A record that was just read has a position.
        let (start, line) = record
            .position()
            .map_or((0, 0), |at| (at.byte() as usize, at.line() as usize));
        // It lies before the end of the line before and empty lines, which the reader skips.
        let raw = &bytes[start..reader.position().byte() as usize];
        let skipped = raw.iter().take_while(|byte| b"\r\n".contains(byte));
        let (skipped, raw) = raw.split_at(skipped.count());
        let start = start + skipped.len();
        let line = first + line - 1 + skipped.iter().filter(|&&byte| byte == b'\n').count();
        if let Some(opened) = unclosed(raw) {
            let place = line + opened;
            let message = "a quote opens in this line that no quote closes where a field ends";
            records.push(Err(Error::line(path, place, message)));
            let lines = raw.split_inclusive(|&byte| byte == b'\n');
            let behind: usize = lines.take(opened + 1).map(<[u8]>::len).sum();
            return Ok(Some((place, start + behind)));
        }
        records.push(whole(raw, line, &record, path));
    }
    Ok(None)
}

fn whole(raw: &[u8], line: usize, record: &ByteRecord, path: &Path) -> Result<Record> {
    for (number, text) in (line..).zip(raw.split(|&byte| byte == b'\n')) {
        checked(text.to_vec(), path, number)?;
    }
    // The lines are UTF-8 and were split at ASCII characters: nothing is lost.
    let text = |field: &[u8]| without_zeros(String::from_utf8_lossy(field).into_owned());
    Ok(Record {
        line,
        fields: record.iter().map(text).collect(),
    })
}

/// The line of a record, counted from 0, in which a quote opens that is not closed: the next one is
/// missing, or stands in a later line before text, and so opens another field.
fn unclosed(raw: &[u8]) -> Option<usize> {
    let (mut quoted, mut starts, mut opened, mut line) = (false, true, 0, 0);
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
            }
            b'"' if quoted => {
                quoted = false;
                let ends = matches!(bytes.peek(), None | Some(b',' | b'\r' | b'\n'));
                // In one line, text behind a closing quote belongs to the field, as most readers
                // have it.
                if !ends && opened < line {
                    return Some(opened);
                }
            }
            b'"' if starts => (quoted, opened) = (true, line),
            _ => {}
        }
        line += usize::from(byte == b'\n');
        starts = !quoted && matches!(byte, b',' | b'\n');
    }
    quoted.then_some(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &[u8]) -> Vec<Result<Record>> {
        read(text, Path::new("x.csv")).unwrap()
    }

    fn good(text: &str) -> Vec<(usize, Vec<String>)> {
        let records = records(text.as_bytes()).into_iter();
        records
            .map(|record| record.unwrap())
            .map(|record| (record.line, record.fields))
            .collect()
    }

    /// Lines of good records, and what is said of bad ones.
    fn told(text: &[u8]) -> Vec<std::result::Result<usize, String>> {
        let records = records(text).into_iter();
        records
            .map(|record| record.map(|r| r.line).map_err(|e| e.to_string()))
            .collect()
    }

    fn expected(all: &[(usize, &[&str])]) -> Vec<(usize, Vec<String>)> {
        let owned = |fields: &[&str]| fields.iter().map(|&f| f.to_owned()).collect();
        all.iter().map(|(n, fields)| (*n, owned(fields))).collect()
    }

    #[test]
    fn quotes_hold_commas_line_ends_and_doubled_quotes() {
        let text = "\u{feff}a,b\r\n\r\n\"x, \"\"y\"\"\",\"two\r\nlines\"\n,\n\"\",z \"q\"\"\nlast";
        let all = [
            (1, &["a", "b"][..]),
            (3, &["x, \"y\"", "two\r\nlines"]),
            (5, &["", ""]),
            (6, &["", "z \"q\"\""]),
            (7, &["last"]),
        ];
        assert_eq!(good(text), expected(&all));
        assert_eq!(good("\"a\"b,\"c\" \n"), expected(&[(1, &["ab", "c "])]));
        assert_eq!(
            good("a,\"b\nc\nd\",e"),
            expected(&[(1, &["a", "b\nc\nd", "e"])])
        );
        assert!(records(b"").is_empty() && records(b"\n\r\n").is_empty());
    }

    #[test]
    fn a_missing_quote_costs_its_own_line_only() {
        let got = told(b"h\n\"a\nb\nc\n");
        let never = "x.csv:2: a quote opens in this line that no quote closes where a field ends";
        assert_eq!(got, [Ok(1), Err(never.to_owned()), Ok(3), Ok(4)]);
        // The quote of line 3 would close that of line 1, and what follows it be lost.
        let got = told(b"spam,\"Buy now\nham,no\nham,\"Hi, you\"\nham,yes\n");
        let message = got[0].clone().unwrap_err();
        assert!(message.starts_with("x.csv:1: a quote opens"), "{message}");
        assert_eq!(got[1..], [Ok(2), Ok(3), Ok(4)]);
        // The record starts in line 1, the quote in line 2.
        let got = told(b"\"a\nb\",\"c\nd\n");
        assert!(got[0].clone().unwrap_err().starts_with("x.csv:2: "));
        assert_eq!(got[1..], [Ok(3)]);
    }

    #[test]
    fn what_is_no_text_is_a_bad_record() {
        let got = told(b"a\n\"b\n\xff,\"\nc\n\xfe\ne\n");
        assert!(
            got[1]
                .clone()
                .unwrap_err()
                .starts_with("x.csv:3: byte 1 of the line")
        );
        assert!(
            got[3]
                .clone()
                .unwrap_err()
                .starts_with("x.csv:5: byte 1 of the line")
        );
        assert_eq!((&got[0], &got[2], &got[4]), (&Ok(1), &Ok(4), &Ok(6)));
    }
}
