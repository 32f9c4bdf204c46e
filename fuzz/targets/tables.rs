//! A user's own rows: TSV, CSV and other delimiters, JSON lines, plain lines, packed or not.

#![no_main]

use std::path::Path;

use cloze::data::bad::BadRows;
use cloze::data::csv::{self, Record};
use cloze::data::table::{Columns, Row};
use cloze_fuzz::file;
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 4] = ["rows.tsv", "rows.csv", "rows.jsonl", "rows.txt"];
const COLUMNS: [&str; 4] = ["text,label", "2,1", "label", "1,text"];

// The first byte of an input chooses the format and the columns.
fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    // Letters, so that the seeds can be read.
    let choice = choice.wrapping_sub(b'a') as usize;
    let path = file(NAMES[choice % 4], rest);
    let columns = Columns::parse(COLUMNS[choice / 4 % 4]).expect("these are columns");
    rows(&columns, &path);
    quoted(rest, &path);
});

fn rows(columns: &Columns, path: &Path) {
    let read = |mut bad| columns.read_as(path, 1, &mut bad, |_, row| Ok(row));
    let lenient = read(BadRows::skipped());
    if let Ok(strict) = read(BadRows::refused()) {
        assert_eq!(Some(&strict), lenient.as_ref().ok(), "without bad rows");
    }
    let rows: &[Row] = lenient.as_deref().unwrap_or_default();
    for row in rows {
        assert_eq!(row.fields.len(), columns.len());
        assert!(row.fields[0].is_some(), "the first column is needed");
    }
    assert!(rows.is_sorted_by(|a, b| a.line <= b.line && a.place < b.place));
    if let Ok(texts) = columns.open_texts(path) {
        let _ = texts.note();
        let _ = texts.read(&mut BadRows::skipped(), |_, row| Ok(row));
    }
}

/// Records are the same when they are written with quotes and read again.
fn quoted(data: &[u8], path: &Path) {
    for delimiter in [b',', b';'] {
        let Ok(records) = csv::read(data, path, delimiter) else {
            continue;
        };
        let records: Vec<Record> = records.into_iter().flatten().collect();
        assert!(records.is_sorted_by(|a, b| a.line <= b.line));
        let mut text = String::new();
        for Record { fields, .. } in &records {
            let fields = fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\"")));
            text += &fields.collect::<Vec<_>>().join(&char::from(delimiter).to_string());
            text.push('\n');
        }
        // Quotes may push the bytes that are no text out of the part that is checked, or into it.
        let Ok(again) = csv::read(text.as_bytes(), path, delimiter) else {
            continue;
        };
        let again: Vec<Vec<String>> =
            again.into_iter().map(|record| record.expect("we wrote it").fields).collect();
        let before: Vec<Vec<String>> = records.into_iter().map(|record| record.fields).collect();
        assert_eq!(again, before);
    }
}
