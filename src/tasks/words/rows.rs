//! Rows of your own data for a task over words: words with a label each, or texts with entities as spans.

use std::path::Path;

use crate::data::conll::Sentence;
use crate::data::spans::{self, Span, Tagged};
use crate::data::table::{Field, Row};
use crate::data::tags::{Tags, in_iob2};
use crate::error::{Error, Result};
use crate::text::words::Text;

/// A row, or a sentence in CoNLL's columns.
#[derive(Default)]
pub(super) struct OwnRow {
    /// Its line, counted from 1.
    pub(super) line: usize,
    /// Its index in the file.
    pub(super) place: usize,
    pub(super) sentence: Sentence,
    /// The text that the sentence was split from; None if the words were given.
    pub(super) text: Option<Text>,
    /// Number of its entities, and of those that begin or end inside a word.
    pub(super) entities: [usize; 2],
}

/// Reads a row; with `texts`, a line in no other format is a text.
pub(super) fn own_row(path: &Path, row: &Row, expected: &Tags<'_>, texts: bool) -> Result<OwnRow> {
    let spans = match row.fields.get(1) {
        Some(Some(Field::Text(json))) => spans::parse(json),
        Some(Some(Field::List(empty))) if empty.is_empty() => Some(Ok(Vec::new())),
        _ => None,
    };
    let read = match &row.fields[0] {
        Some(Field::Text(text)) if texts || spans.is_some() => split(text, spans, expected),
        _ => sentence(row, expected).map(|sentence| OwnRow { sentence, ..OwnRow::default() }),
    };
    match read {
        Ok(read) => Ok(OwnRow { line: row.line, place: row.place, ..read }),
        Err(complaint) => Err(Error::line(path, row.line, complaint)),
    }
}

/// Splits a text into words with the tags of its entities, or returns what is wrong with them. Entities that are
/// not read may be anything.
fn split(
    text: &str,
    spans: Option<std::result::Result<Vec<Span>, String>>,
    expected: &Tags<'_>,
) -> std::result::Result<OwnRow, String> {
    let text = Text::new(text);
    let words = text.words();
    if words.is_empty() {
        return Err("the row has no words".into());
    }
    let no_list = || Err("the entities are no list; expected [[start, end, label], ...]".into());
    let tagged = spans.unwrap_or_else(no_list).and_then(|spans| {
        let Tagged { tags, cut } = spans::tags(&text, spans.clone())?;
        match tags.iter().find_map(|tag| expected.complaint(tag)) {
            Some(complaint) => Err(complaint),
            None => Ok((tags, [spans.len(), cut])),
        }
    });
    let (tags, entities) = match tagged {
        Err(_) if *expected == Tags::Unread => (Vec::new(), [0, 0]),
        tagged => tagged?,
    };
    let sentence = Sentence { words, tags };
    Ok(OwnRow { sentence, text: Some(text), entities, ..OwnRow::default() })
}

/// Reads words and their labels, or returns what is wrong with them.
fn sentence(row: &Row, expected: &Tags<'_>) -> std::result::Result<Sentence, String> {
    let list = |index: usize| row.fields.get(index)?.as_ref().map(Field::list);
    let words = list(0).unwrap_or_default();
    if words.is_empty() {
        return Err("the row has no words".into());
    }
    let mut tags = list(1).unwrap_or_default();
    if tags.len() != words.len() {
        if *expected != Tags::Unread {
            return Err(format!("the row has {} words, but {} labels", words.len(), tags.len()));
        }
        tags.clear();
    }
    match tags.iter().find_map(|tag| expected.complaint(tag)) {
        Some(complaint) => Err(complaint),
        None => Ok(Sentence { words, tags: in_iob2(tags) }),
    }
}
