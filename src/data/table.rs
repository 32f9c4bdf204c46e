//! Your own data: rows of named columns from `.tsv`, `.csv` and `.jsonl` files.
//!
//! TSV has no quoting, CSV has that of RFC 4180; both start with a header unless columns are asked
//! for by number. JSONL has one object a line. Any of them may be `.gz`.

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::files::{Lines, open_or_stdin};

use super::bad::BadRows;

/// Which columns are asked for: by name, or by number from 1 in files without a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Vec<String>);

/// The fields that were asked for, of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Counted from 1.
    pub line: usize,
    /// One for each column; None where the file doesn't have the column at all.
    pub fields: Vec<Option<Field>>,
}

/// What stands in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Text(String),
    /// A JSON array.
    List(Vec<String>),
}

impl Field {
    /// The text; a list's words with blanks between.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(words) => words.join(" "),
        }
    }

    /// The list; a text's words between blanks.
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

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name
            .rsplit_once('.')
            .map_or(name, |(_, extension)| extension)
        {
            // Standard input has no name.
            "tsv" | "txt" | "-" => Ok(Self::Tsv),
            "csv" => Ok(Self::Csv),
            "jsonl" | "ndjson" | "json" => Ok(Self::Jsonl),
            _ => Err(Error::file(
                path,
                "is named neither .tsv, .csv nor .jsonl (or those with .gz)",
            )),
        }
    }
}

impl Columns {
    /// From names with commas between, as on the command line.
    pub fn parse(text: &str) -> Result<Self> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let empty = names.iter().any(String::is_empty);
        let zero = names.iter().any(|name| name.parse() == Ok(0usize));
        if empty || zero {
            return Err(Error::Usage(format!(
                "--columns {text:?}: expected names of columns with commas between, or numbers from 1"
            )));
        }
        Ok(Self(names))
    }

    /// How many are asked for.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The columns' places where all are numbers.
    fn numbers(&self) -> Option<Vec<usize>> {
        let number = |name: &String| name.parse::<usize>().ok()?.checked_sub(1);
        self.0.iter().map(number).collect()
    }

    /// Reads a file's rows. The first `needed` columns must be there.
    pub fn read(&self, path: &Path, needed: usize, bad: &mut BadRows) -> Result<Vec<Row>> {
        let rows = match Format::of(path)? {
            Format::Jsonl => self.jsonl(path, needed, bad)?,
            Format::Tsv => self.tsv(path, needed, bad)?,
            Format::Csv => self.csv(path, needed, bad)?,
        };
        if rows.is_empty() {
            return Err(Error::file(path, "holds no row that could be used"));
        }
        Ok(rows)
    }

    /// Where the columns are under a header.
    fn places<'h>(
        &self,
        path: &Path,
        header: impl Iterator<Item = &'h str> + Clone,
        needed: usize,
    ) -> Result<Vec<Option<usize>>> {
        let place = |(index, name): (usize, &String)| {
            let found = header.clone().position(|column| column == name);
            if found.is_none() && index < needed {
                let there: Vec<&str> = header.clone().collect();
                let message = format!("there is no column {name}; there are {}", there.join(", "));
                return Err(Error::line(path, 1, message));
            }
            Ok(found)
        };
        self.0.iter().enumerate().map(place).collect()
    }

    fn tsv(&self, path: &Path, needed: usize, bad: &mut BadRows) -> Result<Vec<Row>> {
        let mut places = None;
        if let Some(numbers) = self.numbers() {
            places = Some(numbers.into_iter().map(Some).collect());
        }
        let mut rows = Vec::new();
        for (index, line) in Lines::new(open_or_stdin(path)?, path).enumerate() {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            match &places {
                None => places = Some(self.places(path, line.split('\t'), needed)?),
                Some(places) => {
                    let fields: Vec<&str> = line.split('\t').collect();
                    let row = picked(path, index + 1, &fields, places, needed);
                    rows.extend(bad.keep(row)?);
                }
            }
        }
        Ok(rows)
    }

    fn csv(&self, path: &Path, needed: usize, bad: &mut BadRows) -> Result<Vec<Row>> {
        let numbers = self.numbers();
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(numbers.is_none())
            .flexible(true)
            .from_reader(open_or_stdin(path)?);
        let places = match numbers {
            Some(numbers) => numbers.into_iter().map(Some).collect(),
            None => {
                let header = reader.headers().map_err(|e| malformed(path, &e))?;
                self.places(path, header.iter(), needed)?
            }
        };
        let mut rows = Vec::new();
        for record in reader.records() {
            let row = record.map_err(|e| malformed(path, &e)).and_then(|record| {
                let line = record.position().map_or(0, |p| p.line() as usize);
                let fields: Vec<&str> = record.iter().collect();
                picked(path, line, &fields, &places, needed)
            });
            rows.extend(bad.keep(row)?);
        }
        Ok(rows)
    }

    fn jsonl(&self, path: &Path, needed: usize, bad: &mut BadRows) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (index, line) in Lines::new(open_or_stdin(path)?, path).enumerate() {
            let line = line?;
            if !line.trim().is_empty() {
                rows.extend(bad.keep(self.object(path, index + 1, &line, needed))?);
            }
        }
        Ok(rows)
    }

    fn object(&self, path: &Path, number: usize, line: &str, needed: usize) -> Result<Row> {
        let object: serde_json::Map<String, Value> = serde_json::from_str(line)
            .map_err(|e| Error::line(path, number, format!("is no JSON object: {e}")))?;
        let field = |(index, name): (usize, &String)| match object.get(name) {
            None | Some(Value::Null) if index >= needed => Ok(None),
            None | Some(Value::Null) => {
                let there: Vec<&str> = object.keys().map(String::as_str).collect();
                let message = format!("the object has no {name:?}; it has {}", there.join(", "));
                Err(Error::line(path, number, message))
            }
            Some(value) => as_field(value).map(Some).ok_or_else(|| {
                let message = format!("{name:?} is neither text, a number nor a list of them");
                Error::line(path, number, message)
            }),
        };
        Ok(Row {
            line: number,
            fields: self
                .0
                .iter()
                .enumerate()
                .map(field)
                .collect::<Result<_>>()?,
        })
    }
}

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

fn picked(
    path: &Path,
    line: usize,
    fields: &[&str],
    places: &[Option<usize>],
    needed: usize,
) -> Result<Row> {
    let field = |(index, place): (usize, &Option<usize>)| {
        let text = place.and_then(|place| fields.get(place));
        if text.is_none() && index < needed {
            let message = format!(
                "the row has {} columns, but column {} is needed",
                fields.len(),
                place.map_or(0, |place| place + 1)
            );
            return Err(Error::line(path, line, message));
        }
        Ok(text.map(|&text| Field::Text(text.to_owned())))
    };
    Ok(Row {
        line,
        fields: places
            .iter()
            .enumerate()
            .map(field)
            .collect::<Result<_>>()?,
    })
}

/// What the CSV reader complains of, in our words.
pub(super) fn malformed(path: &Path, error: &csv::Error) -> Error {
    let line = error.position().map_or(0, |p| p.line() as usize);
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            let message = format!(
                "the row has {len} columns (comma-separated), but the header has {expected_len}"
            );
            Error::line(path, line, message)
        }
        csv::ErrorKind::Utf8 { .. } => {
            Error::line(path, line, "not valid UTF-8; expected UTF-8 text")
        }
        other => Error::file(path, format!("is no CSV file: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str, columns: &str, needed: usize) -> Result<Vec<Row>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Columns::parse(columns)?.read(&path, needed, &mut BadRows::refused())
    }

    fn texts(row: &Row) -> Vec<Option<String>> {
        row.fields
            .iter()
            .map(|f| f.as_ref().map(Field::text))
            .collect()
    }

    #[test]
    fn every_format_gives_the_same_rows() {
        let expected = [Some("spam".to_owned()), Some("Buy, \"now\"!".to_owned())];
        for (name, text) in [
            ("a.tsv", "text\tlabel\nBuy, \"now\"!\tspam\n"),
            ("a.csv", "text,label\n\"Buy, \"\"now\"\"!\",spam\n"),
            (
                "a.jsonl",
                "{\"text\": \"Buy, \\\"now\\\"!\", \"label\": \"spam\", \"more\": {}}\n",
            ),
        ] {
            let rows = read(name, text, "label,text", 2).unwrap();
            assert_eq!(
                (rows.len(), texts(&rows[0])),
                (1, expected.to_vec()),
                "{name}"
            );
        }
        let rows = read("a.csv", "x,1.5\ny,2\n", "2,1", 2).unwrap();
        assert_eq!(
            (rows.len(), texts(&rows[1])),
            (2, vec![Some("2".into()), Some("y".into())])
        );
        let rows = read("a.jsonl", "{\"w\": [\"New\", 3], \"n\": 4}\n", "w,n", 2).unwrap();
        let list = rows[0].fields[0].as_ref().unwrap().list();
        assert_eq!(
            (list, texts(&rows[0])[1].as_deref()),
            (vec!["New".into(), "3".into()], Some("4"))
        );
    }

    #[test]
    fn a_column_that_is_not_needed_may_be_missing() {
        for (name, text) in [
            ("a.tsv", "text\nA\n"),
            ("a.csv", "text\nA\n"),
            ("a.jsonl", "{\"text\":\"A\"}\n"),
        ] {
            let rows = read(name, text, "text,label", 1).unwrap();
            assert_eq!(texts(&rows[0]), [Some("A".into()), None], "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let message =
            |name: &str, text: &str| read(name, text, "text,label", 2).unwrap_err().to_string();
        assert!(
            message("a.tsv", "text\tx\n1\t2\n")
                .contains(":1: there is no column label; there are text, x")
        );
        assert!(
            message("a.csv", "text,label\nA\n").contains(":2: the row has 1 columns, but column 2")
        );
        assert!(
            message("a.jsonl", "{\"text\":1}\n")
                .contains(":1: the object has no \"label\"; it has text")
        );
        assert!(message("a.jsonl", "{\"text\":\n").contains(":1: is no JSON object"));
        assert!(
            message("a.jsonl", "{\"text\":{},\"label\":1}\n").contains("neither text, a number")
        );
        assert!(message("a.parquet", "x").contains("neither .tsv, .csv nor .jsonl"));
        assert!(message("a.tsv", "text\tlabel\n").contains("holds no row"));
        assert!(Columns::parse("text,,label").is_err() && Columns::parse("0,1").is_err());
    }
}
