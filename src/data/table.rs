//! The user's own data: rows of named columns from `.tsv`, `.csv` and `.jsonl` files.
//!
//! TSV has no quoting, CSV has that of RFC 4180; both start with a header unless columns are given by
//! number. JSONL has one object a line. Any of them may be `.gz`. The format of standard input is
//! detected from its first line.

use std::io::{BufRead, Cursor, Read};
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::raw;
use crate::text::reader::{Lines, open_or_stdin};

use super::bad::{BadRows, NO_TABS, QUOTES, Width};
use super::csv::{self, Record};
use super::labels::listed;

/// The columns to read: names, or numbers from 1 in files without a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Vec<String>);

/// The requested fields of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The line, counted from 1.
    pub line: usize,
    /// Its index in the file, counted from 0, including bad rows.
    pub place: usize,
    /// One for each column; `None` if the file doesn't have the column.
    pub fields: Vec<Option<Field>>,
}

/// The content of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// A text, or a single JSON value.
    Text(String),
    /// A JSON array.
    List(Vec<String>),
}

impl Field {
    /// Returns the text; the words of a list are joined by blanks.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(words) => words.join(" "),
        }
    }

    /// Returns the list; a text is split at blanks.
    pub fn list(&self) -> Vec<String> {
        match self {
            Self::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
            Self::List(words) => words.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Tsv,
    Csv,
    Jsonl,
}

/// A file or standard input.
type Input = Box<dyn BufRead + Send>;

impl Format {
    /// Returns the format that a file's name states; `None` for standard input.
    fn of(path: &Path) -> Result<Option<Self>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit('.').next().unwrap_or(name) {
            "-" => Ok(None),
            "tsv" | "txt" => Ok(Some(Self::Tsv)),
            "csv" => Ok(Some(Self::Csv)),
            "jsonl" | "ndjson" | "json" => Ok(Some(Self::Jsonl)),
            _ => {
                let message = "is named neither .tsv, .csv nor .jsonl (or those with .gz)";
                Err(Error::file(path, message))
            }
        }
    }

    /// Detects the format from the first line that isn't blank: JSONL starts with a brace; CSV has a header
    /// with commas and without tabs; everything else is TSV. Returns the input from its start.
    fn sniffed(mut input: Input, path: &Path, header: bool) -> Result<(Self, Input)> {
        let mut start = Vec::new();
        // A line that is too long is an error when the lines are read.
        let mut limited = (&mut input).take(raw::LONGEST_LINE as u64 + 1);
        let line = loop {
            let from = start.len();
            let read = limited.read_until(b'\n', &mut start);
            let read = read.map_err(|e| Error::io(path, e))?;
            let line = &start[from..];
            if read == 0 || !line.trim_ascii().is_empty() {
                break line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
            }
        };
        let format = if line.trim_ascii_start().starts_with(b"{") {
            Self::Jsonl
        } else if header && line.contains(&b',') && !line.contains(&b'\t') {
            Self::Csv
        } else {
            Self::Tsv
        };
        Ok((format, Box::new(Cursor::new(start).chain(input))))
    }
}

/// Formats columns as on the command line.
impl std::fmt::Display for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl Columns {
    /// Parses names or numbers separated by commas, as on the command line.
    pub fn parse(text: &str) -> Result<Self> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let empty = names.iter().any(String::is_empty);
        let zero = names.iter().any(|name| name.parse() == Ok(0usize));
        if empty || zero {
            return Err(Error::Usage(format!(
                "columns {text:?}: expected names of columns separated by commas, or numbers from 1"
            )));
        }
        Ok(Self(names))
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no column.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the columns' indices if all are given by number.
    fn numbers(&self) -> Option<Vec<usize>> {
        let number = |name: &String| name.parse::<usize>().ok()?.checked_sub(1);
        self.0.iter().map(number).collect()
    }

    /// Returns whether the columns are given by number in a format that could have a header, which would
    /// then be read as a row.
    pub fn without_header(&self, path: &Path) -> Result<bool> {
        Ok(self.numbers().is_some() && Format::of(path)? != Some(Format::Jsonl))
    }

    /// Reads a file's rows and converts each by `make`, whose errors make a row bad. The first `needed`
    /// columns must exist; fields of the others may hold anything.
    pub fn read_as<T>(
        &self,
        path: &Path,
        needed: usize,
        bad: &mut BadRows,
        mut make: impl FnMut(Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        let named = Format::of(path)?;
        let input = open_or_stdin(path)?;
        let (format, input) = match named {
            Some(format) => (format, input),
            None => Format::sniffed(input, path, self.numbers().is_none())?,
        };
        let mut rows = Vec::new();
        let mut take = |row: Result<Row>| -> Result<()> {
            rows.extend(bad.keep(row.and_then(&mut make))?);
            Ok(())
        };
        match format {
            Format::Jsonl => {
                let objects = Lines::new(input, path)
                    .filled()
                    .filter(|(_, line)| !matches!(line, Ok(line) if line.trim().is_empty()));
                for (place, (number, line)) in objects.enumerate() {
                    take(line.and_then(|line| self.object(path, number, place, &line, needed)))?;
                }
            }
            Format::Tsv => {
                let records = Lines::new(input, path).filled().map(|(number, line)| {
                    line.map(|line| Record {
                        line: number,
                        fields: line.split('\t').map(str::to_owned).collect(),
                    })
                });
                self.under_header(path, records, NO_TABS, needed, take)?;
            }
            Format::Csv => {
                let records = csv::read(input, path)?.into_iter();
                self.under_header(path, records, QUOTES, needed, take)?;
            }
        }
        bad.some(path, rows, "row")
    }

    /// Passes the rows of a file of records to `take`. The first record is a header, unless the columns are
    /// numbers; then the first row sets the number of columns. `advice` is for rows that have more.
    fn under_header(
        &self,
        path: &Path,
        mut records: impl Iterator<Item = Result<Record>>,
        advice: &'static str,
        needed: usize,
        mut take: impl FnMut(Result<Row>) -> Result<()>,
    ) -> Result<()> {
        let width = |record: &Record, of| Width(record.fields.len(), of, advice);
        let (indices, mut width_limit) = match self.numbers() {
            Some(numbers) => (numbers.into_iter().map(Some).collect(), None),
            None => match records.next().transpose()? {
                Some(header) => {
                    let indices = self.find(path, &header, needed)?;
                    (indices, Some(width(&header, "the header")))
                }
                None => return Ok(()),
            },
        };
        for (place, record) in records.enumerate() {
            take(record.and_then(|record| {
                let limit = width_limit.get_or_insert_with(|| width(&record, "the first row"));
                limit.check(path, record.line, record.fields.len())?;
                picked(path, place, record, &indices, needed)
            }))?;
        }
        Ok(())
    }

    /// Finds the columns in a header.
    fn find(&self, path: &Path, header: &Record, needed: usize) -> Result<Vec<Option<usize>>> {
        let find = |(index, name): (usize, &String)| {
            let found = header.fields.iter().position(|column| column == name);
            if found.is_none() && index < needed {
                let there = listed(&header.fields);
                let message = format!("there is no column {name}; there are {there}");
                return Err(Error::line(path, header.line, message));
            }
            Ok(found)
        };
        self.0.iter().enumerate().map(find).collect()
    }

    fn object(
        &self,
        path: &Path,
        number: usize,
        place: usize,
        line: &str,
        needed: usize,
    ) -> Result<Row> {
        let object: serde_json::Map<String, Value> = serde_json::from_str(line)
            .map_err(|e| Error::line(path, number, format!("is no JSON object: {e}")))?;
        let field = |(index, name): (usize, &String)| match object.get(name) {
            None | Some(Value::Null) if index >= needed => Ok(None),
            None | Some(Value::Null) => {
                let there: Vec<&str> = object.keys().map(String::as_str).collect();
                let message = format!("the object has no {name:?}; it has {}", listed(&there));
                Err(Error::line(path, number, message))
            }
            Some(value) => match as_field(value) {
                Some(field) => Ok(Some(field)),
                None if index >= needed => Ok(Some(Field::Text(value.to_string()))),
                None => {
                    let message = format!("{name:?} is neither text, a number nor a list of them");
                    Err(Error::line(path, number, message))
                }
            },
        };
        let fields = self.0.iter().enumerate().map(field);
        Ok(Row { line: number, place, fields: fields.collect::<Result<_>>()? })
    }
}

/// Converts a JSON value; returns `None` for objects and nested lists.
fn as_field(value: &Value) -> Option<Field> {
    let single = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    Some(match value {
        Value::Array(all) => Field::List(all.iter().map(single).collect::<Option<_>>()?),
        other => Field::Text(single(other)?),
    })
}

/// Picks the requested fields of a record.
fn picked(
    path: &Path,
    place: usize,
    record: Record,
    indices: &[Option<usize>],
    needed: usize,
) -> Result<Row> {
    let Record { line, fields } = record;
    let field = |(index, column): (usize, &Option<usize>)| {
        let text = column.and_then(|column| fields.get(column));
        if text.is_none() && index < needed {
            let message = format!(
                "the row has {} columns, but column {} is needed",
                fields.len(),
                column.map_or(0, |column| column + 1)
            );
            return Err(Error::line(path, line, message));
        }
        Ok(text.map(|text| Field::Text(text.clone())))
    };
    let picked = indices.iter().enumerate().map(field);
    Ok(Row { line, place, fields: picked.collect::<Result<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_file;

    fn read(name: &str, text: &str, columns: &str, needed: usize) -> Result<Vec<Row>> {
        let (_folder, path) = test_file(name, text);
        Columns::parse(columns)?.read_as(&path, needed, &mut BadRows::refused(), Ok)
    }

    fn texts(row: &Row) -> Vec<Option<String>> {
        let fields = row.fields.iter();
        fields.map(|f| f.as_ref().map(Field::text)).collect()
    }

    #[test]
    fn every_format_gives_the_same_rows() {
        let expected = [Some("spam".to_owned()), Some("Buy, \"now\"!".to_owned())];
        for (name, text) in [
            ("a.tsv", "text\tlabel\nBuy, \"now\"!\tspam\n"),
            ("a.csv", "text,label\n\"Buy, \"\"now\"\"!\",spam\n"),
            ("a.jsonl", r#"{"text": "Buy, \"now\"!", "label": "spam", "more": {}}"#),
        ] {
            let rows = read(name, text, "label,text", 2).unwrap();
            assert_eq!(rows.len(), 1, "{name}");
            assert_eq!(texts(&rows[0]), expected, "{name}");
        }
        let rows = read("a.csv", "x,1.5\ny,2\n", "2,1", 2).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(texts(&rows[1]), [Some("2".into()), Some("y".into())]);
        let rows = read("a.jsonl", r#"{"w": ["New", 3], "n": 4}"#, "w,n", 2).unwrap();
        assert_eq!(rows[0].fields[0].as_ref().unwrap().list(), ["New", "3"]);
        assert_eq!(texts(&rows[0])[1].as_deref(), Some("4"));
    }

    #[test]
    fn a_column_that_is_not_needed_may_be_missing() {
        for (name, text) in
            [("a.tsv", "text\nA\n"), ("a.csv", "text\nA\n"), ("a.jsonl", "{\"text\":\"A\"}\n")]
        {
            let rows = read(name, text, "text,label", 1).unwrap();
            assert_eq!(texts(&rows[0]), [Some("A".into()), None], "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for case in [
            "a.tsv|text\tx\n1\t2\n|:1: there is no column label; there are text, x",
            "a.csv|text,label\nA\n|:2: the row has 1 columns, but column 2",
            "a.jsonl|{\"text\":1}|:1: the object has no \"label\"; it has text",
            "a.jsonl|{\"text\":|:1: is no JSON object",
            "a.jsonl|{\"text\":{},\"label\":1}|neither text, a number",
            "a.parquet|x|neither .tsv, .csv nor .jsonl",
            "a.tsv|text\tlabel\n|holds no row",
            "a.csv||holds no row",
            "a.csv|text,label\nA,\"x\nB,y\n|a.csv:2: a quote opens",
        ] {
            let [name, text, expected] = case.split('|').collect::<Vec<_>>()[..] else {
                panic!("{case}")
            };
            let error = read(name, text, "text,label", 2).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Columns::parse("text,,label").is_err() && Columns::parse("0,1").is_err());
    }

    #[test]
    fn bad_rows_of_every_format_are_skipped_and_still_counted() {
        let tsv = b"text\tlabel\nA\tx\nonly\n\xff\tx\n\nHello\t world\tx\nC\ty\n";
        let csv = b"text,label\nA,x\nonly\n\xff,x\n\nHello, world,x\nC,y\n";
        let jsonl = b"{\"text\":\"A\",\"label\":1}\n{}\n{\"text\":\"\xff\"}\n\n[]\n{\"text\":\"C\",\"label\":2}";
        let columns = Columns::parse("text,label").unwrap();
        for (name, text, first) in
            [("a.tsv", &tsv[..], 2), ("a.csv", csv, 2), ("a.jsonl", jsonl, 1)]
        {
            let (_folder, path) = test_file(name, text);
            let mut bad = BadRows::skipped();
            let rows = columns.read_as(&path, 2, &mut bad, Ok).unwrap();
            let places: Vec<_> = rows.iter().map(|row| (row.place, row.line)).collect();
            assert_eq!(places, [(0, first), (4, first + 5)], "{name}");
            let report = bad.report().unwrap();
            let (path, line) = (path.display(), first + 1);
            let expected = format!("3 bad rows left out, the first: {path}:{line}");
            assert!(report.starts_with(&expected), "{report}");
        }
    }

    #[test]
    fn without_a_header_the_first_row_limits_the_columns() {
        let text = "Hello,spam\nHello, world,spam\n";
        let error = read("a.csv", text, "1,2", 1).unwrap_err().to_string();
        let expected = "a.csv:2: the row has 3 columns, but the first row has 2: a text with commas needs quotes";
        assert!(error.ends_with(expected), "{error}");
        let quoted = "text,label\n\"Hello, world\",spam\n";
        let rows = read("a.csv", quoted, "text,label", 2).unwrap();
        assert_eq!(texts(&rows[0])[0].as_deref(), Some("Hello, world"));
    }

    #[test]
    fn zero_bytes_are_dropped_from_every_field() {
        for (name, text) in [
            ("a.tsv", "text\tlabel\0\n\0\nA\0 b\tspam\0\n"),
            ("a.csv", "text,label\0\n\n\"A\0 b\",spam\0\n"),
            ("a.jsonl", "\n\n{\"text\":\"A\0 b\",\"label\":\"spam\"}\0\n"),
        ] {
            let rows = read(name, text, "text,label", 2).unwrap();
            let expected = [Some("A b".to_owned()), Some("spam".to_owned())];
            assert_eq!((rows.len(), rows[0].line), (1, 3), "{name}");
            assert_eq!(texts(&rows[0]), expected, "{name}");
        }
    }

    #[test]
    fn the_format_of_standard_input_follows_from_its_first_line() {
        let sniffed = |text: &'static str, header: bool| {
            let input = Box::new(text.as_bytes());
            let (format, mut input) = Format::sniffed(input, Path::new("-"), header).unwrap();
            let mut whole = String::new();
            input.read_to_string(&mut whole).unwrap();
            assert_eq!(whole, text);
            format
        };
        for (text, format) in [
            ("\n \n {\"text\": \"a\tb\"}\n", Format::Jsonl),
            ("\u{feff}{}", Format::Jsonl),
            ("text,label\na\tb,c\n", Format::Csv),
            ("text, or so\tlabel\n", Format::Tsv),
            ("text\nOne, two\n", Format::Tsv),
            ("", Format::Tsv),
        ] {
            assert_eq!(sniffed(text, true), format, "{text:?}");
        }
        // Without a header the first line may be a text with a comma.
        assert_eq!(sniffed("One, two\n", false), Format::Tsv);
    }

    #[test]
    fn a_field_that_is_not_needed_may_hold_anything() {
        let text = "{\"text\":\"A\",\"label\":{\"x\":1}}\n";
        let rows = read("a.jsonl", text, "text,label", 1).unwrap();
        assert_eq!(texts(&rows[0])[1].as_deref(), Some("{\"x\":1}"));
    }
}
