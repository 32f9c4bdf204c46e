//! Reads records of comma-separated values (RFC 4180) or of such with another delimiter, each with its line.
//!
//! To the `csv` crate, a quote without a closing one makes everything up to the next quote or the end of
//! the file part of one field. Here it is an error of its line, and reading continues after that line.

use std::io::Read;
use std::path::Path;

use ::csv::{ByteRecord, ReaderBuilder};

use crate::error::{Error, Result};
use crate::text::raw;
use crate::text::reader::{checked, without_zeros};

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The line in which it starts, counted from 1.
    pub line: usize,
    /// Its fields, without quotes.
    pub fields: Vec<String>,
}

/// Reads all records with this delimiter between their fields; empty lines between them are skipped. `path` is
/// for error messages.
pub fn read(input: impl Read, path: &Path, delimiter: u8) -> Result<Vec<Result<Record>>> {
    let bytes = raw::whole(input, path)?;
    let mut records = Vec::new();
    let (mut rest, mut line) = (&bytes[..], 1);
    while let Some((fault, end)) = read_up_to_fault(rest, line, path, delimiter, &mut records)? {
        (rest, line) = (&rest[end..], fault + 1);
    }
    Ok(records)
}

/// Reads records up to one with a quote that is never closed; returns that quote's line, and the index
/// of the byte after that line. `first` is the number of the first line of `bytes`.
fn read_up_to_fault(
    bytes: &[u8],
    first: usize,
    path: &Path,
    delimiter: u8,
    records: &mut Vec<Result<Record>>,
) -> Result<Option<(usize, usize)>> {
    let mut builder = ReaderBuilder::new();
    let builder = builder.has_headers(false).flexible(true).delimiter(delimiter);
    let mut reader = builder.from_reader(bytes);
    let mut record = ByteRecord::new();
    while reader
        .read_byte_record(&mut record)
        .map_err(|e| Error::file(path, format!("is no CSV file: {e}")))?
    {
        // A record that has just been read has a position.
        let (start, line) =
            record.position().map_or((0, 0), |at| (at.byte() as usize, at.line() as usize));
        // It is before empty lines and the end of the line before, which the reader skips.
        let raw = &bytes[start..reader.position().byte() as usize];
        let skipped = raw.iter().take_while(|byte| b"\r\n".contains(byte));
        let (skipped, raw) = raw.split_at(skipped.count());
        let start = start + skipped.len();
        let line = first + line - 1 + skipped.iter().filter(|&&byte| byte == b'\n').count();
        if let Some(opened) = unclosed(raw, delimiter) {
            let fault = line + opened;
            let message = "a quote opens in this line that no quote closes where a field ends";
            records.push(Err(Error::line(path, fault, message)));
            let lines = raw.split_inclusive(|&byte| byte == b'\n');
            let length: usize = lines.take(opened + 1).map(<[u8]>::len).sum();
            return Ok(Some((fault, start + length)));
        }
        records.push(decoded(raw, line, &record, path));
    }
    Ok(None)
}

/// Checks that a record is UTF-8 and converts it.
fn decoded(raw: &[u8], line: usize, record: &ByteRecord, path: &Path) -> Result<Record> {
    for (number, text) in (line..).zip(raw.split(|&byte| byte == b'\n')) {
        checked(text.to_vec(), path, number)?;
    }
    // The lines are UTF-8 and were split at ASCII characters: nothing is lost.
    let text = |field: &[u8]| without_zeros(String::from_utf8_lossy(field).into_owned());
    Ok(Record { line, fields: record.iter().map(text).collect() })
}

/// Returns the line of a record, counted from 0, in which a quote opens that is not closed: there is no
/// further quote, or the next one is in a later line and text follows it, so it opens another field.
fn unclosed(raw: &[u8], delimiter: u8) -> Option<usize> {
    let (mut quoted, mut starts, mut opened, mut line) = (false, true, 0, 0);
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
            }
            b'"' if quoted => {
                quoted = false;
                let ends = bytes.peek().is_none_or(|next| [delimiter, b'\r', b'\n'].contains(next));
                // In the same line, text after a closing quote belongs to the field, as in most readers.
                if !ends && opened < line {
                    return Some(opened);
                }
            }
            b'"' if starts => (quoted, opened) = (true, line),
            _ => {}
        }
        line += usize::from(byte == b'\n');
        starts = !quoted && [delimiter, b'\n'].contains(&byte);
    }
    quoted.then_some(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &[u8]) -> Vec<Result<Record>> {
        read(text, Path::new("x.csv"), b',').unwrap()
    }

    fn check(text: &str, expected: &[(usize, &[&str])]) {
        let records = records(text.as_bytes()).into_iter();
        let records: Vec<Record> = records.map(|record| record.unwrap()).collect();
        assert_eq!(records.len(), expected.len());
        for (record, (line, fields)) in records.iter().zip(expected) {
            assert!(record.line == *line && record.fields == *fields, "{record:?}");
        }
    }

    /// Lines of good records, and the errors of bad ones.
    fn lines(text: &[u8]) -> Vec<std::result::Result<usize, String>> {
        let records = records(text).into_iter();
        records.map(|record| record.map(|r| r.line).map_err(|e| e.to_string())).collect()
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
        check(text, &all);
        check("\"a\"b,\"c\" \n", &[(1, &["ab", "c "])]);
        check("a,\"b\nc\nd\",e", &[(1, &["a", "b\nc\nd", "e"])]);
        assert!(records(b"").is_empty() && records(b"\n\r\n").is_empty());
    }

    #[test]
    fn a_missing_quote_costs_its_own_line_only() {
        let got = lines(b"h\n\"a\nb\nc\n");
        let never = "x.csv:2: a quote opens in this line that no quote closes where a field ends";
        assert_eq!(got, [Ok(1), Err(never.to_owned()), Ok(3), Ok(4)]);
        // The quote of line 3 would close that of line 1, and the text after it would be lost.
        let got = lines(b"spam,\"Buy now\nham,no\nham,\"Hi, you\"\nham,yes\n");
        let message = got[0].clone().unwrap_err();
        assert!(message.starts_with("x.csv:1: a quote opens"), "{message}");
        assert_eq!(got[1..], [Ok(2), Ok(3), Ok(4)]);
        // The record starts in line 1, the quote in line 2.
        let got = lines(b"\"a\nb\",\"c\nd\n");
        assert!(got[0].clone().unwrap_err().starts_with("x.csv:2: "));
        assert_eq!(got[1..], [Ok(3)]);
    }

    #[test]
    fn a_record_that_is_not_utf_8_is_bad() {
        let got = lines(b"a\n\"b\n\xff,\"\nc\n\xfe\ne\n");
        for (index, line) in [(1, 3), (3, 5)] {
            let error = got[index].as_ref().unwrap_err();
            assert!(error.starts_with(&format!("x.csv:{line}: byte 1 of the line")));
        }
        assert_eq!((&got[0], &got[2], &got[4]), (&Ok(1), &Ok(4), &Ok(6)));
    }
}
