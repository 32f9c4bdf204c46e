//! The layout of a file of rows, by its name and its first line: JSON lines, columns between delimiters, or
//! plain lines.

use std::borrow::Cow;
use std::path::Path;

use crate::data::csv;
use crate::error::{Error, Result};
use crate::text::reader::{Input, first_line};

use super::Columns;

/// How the rows of a file are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// One JSON object a line.
    Jsonl,
    /// Columns with this delimiter between them.
    Delimited(u8),
    /// A text a line.
    Lines,
    /// Parquet.
    Parquet,
}

/// The delimiters that are recognised.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Returns the name of a delimiter in the plural.
pub(super) fn plural(delimiter: u8) -> Cow<'static, str> {
    match delimiter {
        b',' => "commas".into(),
        b';' => "semicolons".into(),
        b'\t' => "tabs".into(),
        b'|' => "vertical bars".into(),
        other => format!("{:?}", char::from(other)).into(),
    }
}

/// Returns the layout that a file's name states, with the format's usual delimiter; `None` for standard
/// input.
fn of_name(path: &Path) -> Result<Option<Layout>> {
    Ok(match extension(path).as_str() {
        "-" => None,
        "tsv" | "txt" => Some(Layout::Delimited(b'\t')),
        "csv" => Some(Layout::Delimited(b',')),
        "jsonl" | "ndjson" | "json" => Some(Layout::Jsonl),
        "parquet" => Some(Layout::Parquet),
        _ => {
            let message =
                "is named neither .tsv, .csv, .txt, .jsonl (or those with .gz) nor .parquet";
            return Err(Error::file(path, message));
        }
    })
}

/// Returns the ending by which a file is known to hold rows, such as `csv`.
pub fn format_of(path: &Path) -> Option<String> {
    let known = matches!(of_name(path), Ok(Some(_)));
    known.then(|| extension(path))
}

/// Returns what follows the last dot of a file's name, without `.gz`, in lower case.
fn extension(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

/// Returns whether every row of the file names its columns, according to the file's name.
pub(super) fn names_columns(path: &Path) -> Result<bool> {
    Ok(matches!(of_name(path)?, Some(Layout::Jsonl | Layout::Parquet)))
}

/// Detects the layout of an open file; also returns the input from its start. With `texts`, standard input
/// and `.txt` files without a fitting header are plain lines.
pub(super) fn detect(
    columns: &Columns,
    input: Input,
    path: &Path,
    needed: usize,
    texts: bool,
) -> Result<(Layout, Input)> {
    let named = of_name(path)?;
    if let Some(named @ (Layout::Jsonl | Layout::Parquet)) = named {
        return Ok((named, input));
    }
    let (line, input) = first_line(input, path)?;
    if named.is_none() && is_json(&line) {
        return Ok((Layout::Jsonl, input));
    }
    if let Some(delimiter) = columns.delimiter {
        return Ok((Layout::Delimited(delimiter), input));
    }
    let usual = match named {
        Some(Layout::Delimited(usual)) => usual,
        _ => b'\t',
    };
    let (delimiter, fits) = columns.delimiter_of(&line, path, needed, usual);
    let may_be_plain = texts && !fits && matches!(extension(path).as_str(), "-" | "txt");
    // A line with tabs is hardly a text: it is a header without the wanted column.
    let layout = match may_be_plain && !line.contains('\t') {
        true => Layout::Lines,
        false => Layout::Delimited(delimiter),
    };
    Ok((layout, input))
}

/// Returns whether a first line begins a JSON object, or an array of objects, whose lines are then refused.
fn is_json(line: &str) -> bool {
    let line = line.trim();
    let inside = line.strip_prefix('[').map(str::trim_start);
    line.starts_with('{') || inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
}

impl Columns {
    /// Returns the delimiter under which the first line fits best, and whether it has the first `needed`
    /// columns then. Of delimiters that fit equally well it is the `usual` one, else the first.
    fn delimiter_of(&self, line: &str, path: &Path, needed: usize, usual: u8) -> (u8, bool) {
        let numbers = self.numbers();
        // Whether it fits, then the number of wanted columns, then, if there is none, of columns.
        let fit = |delimiter: u8| -> (bool, usize, usize) {
            let fields = fields(line, path, delimiter);
            if let Some(numbers) = &numbers {
                let last = numbers.iter().take(needed).max();
                return (last.is_none_or(|&last| last < fields.len()), 0, 0);
            }
            let has = |name: &&String| fields.contains(name);
            let found = self.names.iter().filter(has).count();
            let columns = if found == 0 { fields.len() } else { 0 };
            (self.names.iter().take(needed).all(|name| has(&name)), found, columns)
        };
        let mut best = (usual, fit(usual));
        for delimiter in DELIMITERS {
            let fit = fit(delimiter);
            if fit > best.1 {
                best = (delimiter, fit);
            }
        }
        (best.0, best.1.0)
    }
}

/// Splits a header. None of its fields is known if a quote is still open at its end.
fn fields(line: &str, path: &Path, delimiter: u8) -> Vec<String> {
    if delimiter == b'\t' {
        return trimmed(line.split('\t'));
    }
    let records = csv::read(line.as_bytes(), path, delimiter).unwrap_or_default();
    let first = records.into_iter().next().and_then(Result::ok);
    first.map(|record| trimmed(record.fields)).unwrap_or_default()
}

/// Returns the names in a header without the white space around them.
pub(super) fn trimmed<S: AsRef<str>>(fields: impl IntoIterator<Item = S>) -> Vec<String> {
    fields.into_iter().map(|field| field.as_ref().trim().to_owned()).collect()
}
