//! Records of comma-separated values (RFC 4180), each with its line.
//!
//! A field may stand in quotes, and then hold commas, line ends and, doubled, quotes. A quote whose
//! closing one is missing would make all that follows part of one field: it is an error of the line in
//! which it stands, and reading goes on behind that line.

use std::collections::VecDeque;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::text::files::checked;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it starts, counted from 1.
    pub line: usize,
    pub fields: Vec<String>,
}

/// The records of a file; empty lines between them are left out.
pub struct Records<R> {
    reader: R,
    path: PathBuf,
    /// Lines that were read, but belong to no record yet.
    waiting: VecDeque<Vec<u8>>,
    /// The number of the line taken last.
    line: usize,
}

impl<R: BufRead> Records<R> {
    /// Reads `reader`; `path` stands in error messages.
    pub fn new(reader: R, path: &Path) -> Self {
        Self {
            reader,
            path: path.to_path_buf(),
            waiting: VecDeque::new(),
            line: 0,
        }
    }

    /// The next line with its end; None behind the last.
    fn take(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(line) = self.waiting.pop_front() {
            self.line += 1;
            return Ok(Some(line));
        }
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line);
        if read.map_err(|e| Error::io(&self.path, e))? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.line == 1 && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        Ok(Some(line))
    }

    fn record(&mut self) -> Result<Option<Record>> {
        let first = loop {
            match self.take()? {
                None => return Ok(None),
                Some(line) if split_end(&line).0.is_empty() => {}
                Some(line) => break line,
            }
        };
        let start = self.line;
        let mut fields = Fields::default();
        let mut lines = Vec::new();
        let mut next = Some(first);
        while let Some(line) = next {
            let step = fields.read(&line, lines.len());
            lines.push(line);
            match step {
                Step::Whole => return self.whole(start, &lines, fields.all).map(Some),
                Step::Open => next = self.take()?,
                Step::Misplaced => {
                    let message = format!(
                        "a quote opens in this line, and the next one, in line {}, closes no field: a quote is missing",
                        self.line
                    );
                    return Err(self.unclosed(start, lines, fields.opened, message));
                }
            }
        }
        let message = "a quote opens in this line that is never closed".to_owned();
        Err(self.unclosed(start, lines, fields.opened, message))
    }

    fn whole(&self, start: usize, lines: &[Vec<u8>], fields: Vec<Vec<u8>>) -> Result<Record> {
        for (number, line) in (start..).zip(lines) {
            checked(line.clone(), &self.path, number)?;
        }
        // The lines are UTF-8 and were split at ASCII characters: nothing is lost.
        let text = |field: Vec<u8>| String::from_utf8_lossy(&field).into_owned();
        Ok(Record {
            line: start,
            fields: fields.into_iter().map(text).collect(),
        })
    }

    /// The complaint about the quote in the record's line `opened`; the lines behind that one are
    /// read again.
    fn unclosed(
        &mut self,
        start: usize,
        mut lines: Vec<Vec<u8>>,
        opened: usize,
        message: String,
    ) -> Error {
        self.line = start + opened;
        for line in lines.drain(opened + 1..).rev() {
            self.waiting.push_front(line);
        }
        Error::line(&self.path, self.line, message)
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.record().transpose()
    }
}

/// A line without its end, and the end.
fn split_end(line: &[u8]) -> (&[u8], &[u8]) {
    let content = line.strip_suffix(b"\n").unwrap_or(line);
    let content = content.strip_suffix(b"\r").unwrap_or(content);
    line.split_at(content.len())
}

/// Where in a field the reader is.
#[derive(Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Plain,
    Quoted,
    /// Behind a quote in quotes: a closing one, or the first of a doubled one.
    Closed,
}

/// What a line has made of a record.
enum Step {
    /// It is done.
    Whole,
    /// A quote is open.
    Open,
    /// A quote that was opened in an earlier line is followed by text in this one.
    Misplaced,
}

/// The fields of a record while its lines are read.
#[derive(Default)]
struct Fields {
    all: Vec<Vec<u8>>,
    field: Vec<u8>,
    state: State,
    /// The record's line, counted from 0, in which the last quote opened.
    opened: usize,
}

impl Fields {
    /// Reads the record's line `number`, counted from 0.
    fn read(&mut self, line: &[u8], number: usize) -> Step {
        let (content, end) = split_end(line);
        for &byte in content {
            self.state = match (&self.state, byte) {
                (State::Start, b'"') => {
                    self.opened = number;
                    State::Quoted
                }
                (State::Quoted, b'"') => State::Closed,
                (State::Start | State::Plain | State::Closed, b',') => {
                    self.close();
                    State::Start
                }
                (State::Closed, b'"') => self.push(byte, State::Quoted),
                (State::Quoted, _) => self.push(byte, State::Quoted),
                (State::Closed, _) if self.opened != number => return Step::Misplaced,
                // In one line, text behind a closing quote belongs to the field, as most readers
                // have it.
                (State::Start | State::Plain | State::Closed, _) => self.push(byte, State::Plain),
            };
        }
        if self.state == State::Quoted {
            self.field.extend(end);
            return Step::Open;
        }
        self.close();
        Step::Whole
    }

    fn push(&mut self, byte: u8, state: State) -> State {
        self.field.push(byte);
        state
    }

    fn close(&mut self) {
        self.all.push(std::mem::take(&mut self.field));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &[u8]) -> Vec<Result<Record>> {
        Records::new(text, Path::new("x.csv")).collect()
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
        let never = "x.csv:2: a quote opens in this line that is never closed".to_owned();
        assert_eq!(got, [Ok(1), Err(never), Ok(3), Ok(4)]);
        // The quote of line 3 would close that of line 1, and what follows it be lost.
        let got = told(b"spam,\"Buy now\nham,no\nham,\"Hi, you\"\nham,yes\n");
        let message = got[0].clone().unwrap_err();
        assert!(
            message.starts_with("x.csv:1: ") && message.contains("the next one, in line 3, closes"),
            "{message}"
        );
        assert_eq!(got[1..], [Ok(2), Ok(3), Ok(4)]);
        // The record starts in line 1, the quote in line 2.
        let got = told(b"\"a\nb\",\"c\nd\n");
        assert!(got[0].clone().unwrap_err().starts_with("x.csv:2: "));
        assert_eq!(got[1..], [Ok(3)]);
    }

    #[test]
    fn what_is_no_text_is_a_bad_record() {
        let got = told(b"a\n\"b\n\xff,\"\nc\nd\0\ne\n");
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
                .starts_with("x.csv:5: this is a binary")
        );
        assert_eq!((&got[0], &got[2], &got[4]), (&Ok(1), &Ok(4), &Ok(6)));
    }
}
