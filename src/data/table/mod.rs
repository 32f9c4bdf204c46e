//! The user's own data: rows of named columns from `.tsv`, `.csv`, `.txt`, `.jsonl` and
//! `.parquet` files, of which a pattern such as `train-*.parquet` names several.
//!
//! The header decides which delimiter separates the columns, whatever the file's name says. Between tabs
//! nothing is quoted, between other delimiters fields are quoted as in RFC 4180. There is a header unless
//! the columns are given by number. JSONL has one object a line. Any of these may be `.gz`. The layout of
//! standard input is detected from its first line.

mod files;
mod layout;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "parquet/absent.rs"]
mod parquet;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::reader::{Input, Lines, open_or_stdin};

use super::bad::{BadRows, NO_TABS, QUOTES, Width};
use super::csv::{self, Record};
use super::labels::listed;
pub use files::pattern_of;
use layout::Layout;
pub use layout::format_of;

/// The columns to read: names, or numbers from 1 in files without a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    names: Vec<String>,
    /// What separates them; by default the header decides.
    delimiter: Option<u8>,
    /// Whether the last column may hold any JSON value, which is then given as a text.
    nested: bool,
}

/// A file that was opened and whose layout is known, and the other files of its pattern.
pub struct Table<'a> {
    columns: &'a Columns,
    /// The file, or the pattern.
    path: &'a Path,
    /// How many of the columns must exist.
    needed: usize,
    /// The files that are still to be opened, after the first one.
    files: Vec<PathBuf>,
    first: Opened,
}

/// An open file.
struct Opened {
    path: PathBuf,
    layout: Layout,
    input: Input,
}

/// The requested fields of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The line, counted from 1; in Parquet the row.
    pub line: usize,
    /// Its index in the file, or in all files of a pattern, counted from 0, including bad rows.
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

    /// Returns the list; a text is split at blanks, but not at those that hold a word together.
    pub fn list(&self) -> Vec<String> {
        match self {
            Self::Text(text) => text.split_ascii_whitespace().map(str::to_owned).collect(),
            Self::List(words) => words.clone(),
        }
    }
}

/// Formats columns as on the command line.
impl std::fmt::Display for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.names.join(","))
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
        Ok(Self::named(names))
    }

    /// Returns columns of these names.
    pub fn named(names: Vec<String>) -> Self {
        Self { names, delimiter: None, nested: false }
    }

    /// Sets what separates the columns: one character, or `tab`.
    ///
    /// # Errors
    /// If it can't separate columns.
    pub fn with_delimiter(self, text: &str) -> Result<Self> {
        let delimiter = match text.as_bytes() {
            b"tab" => b'\t',
            [one] if one.is_ascii() && !b"\"\r\n\0".contains(one) => *one,
            _ => {
                return Err(Error::Usage(format!(
                    "delimiter {text:?}: expected one character, such as ; or the word tab"
                )));
            }
        };
        Ok(Self { delimiter: Some(delimiter), ..self })
    }

    /// Lets the last column hold any JSON value, which is given as a text.
    pub fn with_nested_labels(self) -> Self {
        Self { nested: true, ..self }
    }

    /// Returns how the files are read, as a model's configuration keeps it.
    pub fn options(&self) -> Vec<(&'static str, Value)> {
        let delimiter = self.delimiter.map(|delimiter| match delimiter {
            b'\t' => "tab".to_owned(),
            other => char::from(other).to_string(),
        });
        let delimiter = delimiter.map(|delimiter| ("delimiter", delimiter.into()));
        [("columns", self.to_string().into())].into_iter().chain(delimiter).collect()
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there is no column.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the columns' indices if all are given by number.
    fn numbers(&self) -> Option<Vec<usize>> {
        let number = |name: &String| name.parse::<usize>().ok()?.checked_sub(1);
        self.names.iter().map(number).collect()
    }

    /// Returns whether the columns are given by number in a format that could have a header, which would
    /// then be read as a row.
    pub fn without_header(&self, path: &Path) -> Result<bool> {
        Ok(self.numbers().is_some() && !layout::names_columns(path)?)
    }

    /// Reads the rows of a file, or of the files of a pattern one after another, and converts each by `make`,
    /// which gets the row's file and whose errors make a row bad. The first `needed` columns must exist; fields
    /// of the others may hold anything.
    pub fn read_as<T>(
        &self,
        path: &Path,
        needed: usize,
        bad: &mut BadRows,
        make: impl FnMut(&Path, Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.open(path, needed)?.read(bad, make)
    }

    /// Opens a file, or the files of a pattern, of which the first `needed` columns must exist.
    pub fn open<'a>(&'a self, path: &'a Path, needed: usize) -> Result<Table<'a>> {
        let mut files = files::files_of(path)?;
        let first = files.remove(0);
        let input = open_or_stdin(&first)?;
        let first = self.opened(first, input, needed, false)?;
        Ok(Table { columns: self, path, needed, files, first })
    }

    fn opened(&self, path: PathBuf, input: Input, needed: usize, texts: bool) -> Result<Opened> {
        let (layout, input) = layout::detect(self, input, &path, needed, texts)?;
        Ok(Opened { path, layout, input })
    }

    /// Opens a file of texts, of which the first column must exist. Standard input and `.txt` files that are
    /// neither JSONL nor have a header with this column are plain lines, each of them a text.
    pub fn open_texts<'a>(&'a self, path: &'a Path) -> Result<Table<'a>> {
        self.open_texts_from(open_or_stdin(path)?, path)
    }

    /// Does the same with an open file.
    pub(crate) fn open_texts_from<'a>(&'a self, input: Input, path: &'a Path) -> Result<Table<'a>> {
        let first = self.opened(path.to_owned(), input, 1, true)?;
        Ok(Table { columns: self, path, needed: 1, files: Vec::new(), first })
    }
}

impl Table<'_> {
    /// Returns whether each line is a text.
    pub fn is_plain(&self) -> bool {
        self.first.layout == Layout::Lines
    }

    /// Returns a remark on how the rows are read if the file's name doesn't say it.
    pub fn note(&self) -> Option<String> {
        let stdin = self.path == Path::new("-");
        if !stdin && !self.is_plain() {
            return None;
        }
        let how = match self.first.layout {
            Layout::Jsonl => "JSON lines".to_owned(),
            Layout::Parquet => "Parquet".to_owned(),
            Layout::Lines => "plain lines, each of them a text".to_owned(),
            Layout::Delimited(delimiter) => {
                let header = match self.columns.numbers() {
                    Some(_) => "without",
                    None => "under",
                };
                format!("rows {header} a header, separated by {}", layout::plural(delimiter))
            }
        };
        let path = if stdin { "standard input".into() } else { self.path.to_string_lossy() };
        Some(format!("{path}: read as {how}"))
    }

    /// Reads the rows and converts each by `make`, which gets the row's file and whose errors make a row bad.
    pub fn read<T>(
        self,
        bad: &mut BadRows,
        mut make: impl FnMut(&Path, Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Self { columns, path, needed, files, first } = self;
        let (mut rows, mut place) = (Vec::new(), 0);
        let mut read = |file: Opened| {
            let path = file.path.clone();
            columns.rows(file, needed, &mut |row| {
                let row = row.and_then(|row| make(&path, Row { place, ..row }));
                place += 1;
                rows.extend(bad.keep(row)?);
                Ok(())
            })
        };
        read(first)?;
        for file in files {
            let input = open_or_stdin(&file)?;
            read(columns.opened(file, input, needed, false)?)?;
        }
        bad.some(path, rows, "row")
    }
}

/// Receives the rows of a file in their order, without their places.
type Take<'t> = &'t mut dyn FnMut(Result<Row>) -> Result<()>;

impl Columns {
    /// Passes the rows of a file to `take`.
    fn rows(&self, file: Opened, needed: usize, take: Take<'_>) -> Result<()> {
        let Opened { path, layout, input } = file;
        let path = path.as_path();
        let lines = |input| {
            let lines = Lines::new(input, path).filled();
            lines.filter(|(_, line)| !matches!(line, Ok(line) if line.trim().is_empty()))
        };
        match layout {
            Layout::Jsonl => {
                for (number, line) in lines(input) {
                    take(line.and_then(|line| {
                        let object = serde_json::from_str(&line)
                            .map_err(|e| Error::line(path, number, no_object(&line, &e)))?;
                        self.object(path, number, &object, needed)
                    }))?;
                }
                Ok(())
            }
            Layout::Parquet => {
                for (object, number) in parquet::rows(path, &self.names, needed)?.zip(1..) {
                    take(self.object(path, number, &object?, needed))?;
                }
                Ok(())
            }
            Layout::Lines => {
                for (line, text) in lines(input) {
                    let mut fields = vec![None; self.len()];
                    take(text.map(|text| {
                        fields[0] = Some(Field::Text(text));
                        Row { line, place: 0, fields }
                    }))?;
                }
                Ok(())
            }
            Layout::Delimited(b'\t') => {
                let records = Lines::new(input, path).filled().map(|(number, line)| {
                    line.map(|line| Record {
                        line: number,
                        fields: line.split('\t').map(str::to_owned).collect(),
                    })
                });
                self.under_header(path, records, NO_TABS, needed, take)
            }
            Layout::Delimited(delimiter) => {
                let records = csv::read(input, path, delimiter)?.into_iter();
                let advice = match delimiter {
                    b',' => QUOTES,
                    _ => "a text with the delimiter needs quotes",
                };
                self.under_header(path, records, advice, needed, take)
            }
        }
    }

    /// Passes the rows of a file of records to `take`. The first record is a header, unless the columns are
    /// numbers; then the first row sets the number of columns. `advice` is for rows that have more.
    fn under_header(
        &self,
        path: &Path,
        mut records: impl Iterator<Item = Result<Record>>,
        advice: &'static str,
        needed: usize,
        take: Take<'_>,
    ) -> Result<()> {
        let width = |record: &Record, of| Width(record.fields.len(), of, advice);
        let (indices, mut width_limit) = match self.numbers() {
            Some(numbers) => (numbers.into_iter().map(Some).collect(), None),
            None => match records.next().transpose()? {
                Some(Record { line, fields }) => {
                    let header = Record { line, fields: layout::trimmed(fields) };
                    let indices = self.find(path, &header, needed)?;
                    (indices, Some(width(&header, "the header")))
                }
                None => return Ok(()),
            },
        };
        for record in records {
            take(record.and_then(|record| {
                let limit = width_limit.get_or_insert_with(|| width(&record, "the first row"));
                limit.check(path, record.line, record.fields.len())?;
                picked(path, record, &indices, needed)
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
        self.names.iter().enumerate().map(find).collect()
    }

    fn object(
        &self,
        path: &Path,
        number: usize,
        object: &serde_json::Map<String, Value>,
        needed: usize,
    ) -> Result<Row> {
        let field = |(index, name): (usize, &String)| match object.get(name) {
            None | Some(Value::Null) if index >= needed => Ok(None),
            Some(Value::Null) => Err(Error::line(path, number, format!("{name:?} is null"))),
            None => {
                let there: Vec<&str> = object.keys().map(String::as_str).collect();
                let message = format!("the object has no {name:?}; it has {}", listed(&there));
                Err(Error::line(path, number, message))
            }
            Some(value) => match as_field(value) {
                Some(field) => Ok(Some(field)),
                None if index >= needed || (self.nested && index + 1 == self.len()) => {
                    Ok(Some(Field::Text(value.to_string())))
                }
                None => {
                    let message = format!("{name:?} is neither text, a number nor a list of them");
                    Err(Error::line(path, number, message))
                }
            },
        };
        let fields = self.names.iter().enumerate().map(field);
        Ok(Row { line: number, place: 0, fields: fields.collect::<Result<_>>()? })
    }
}

/// Returns why a line is no JSON object.
fn no_object(line: &str, error: &serde_json::Error) -> String {
    match line.trim_start().starts_with('[') {
        true => {
            "is a JSON array; expected an object in each line, as `jq -c '.[]'` writes them".into()
        }
        false => format!("is no JSON object: {error}"),
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
fn picked(path: &Path, record: Record, indices: &[Option<usize>], needed: usize) -> Result<Row> {
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
    Ok(Row { line, place: 0, fields: picked.collect::<Result<_>>()? })
}
