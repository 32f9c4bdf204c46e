//! A class for every word: named entities in CoNLL's columns, and your own data of that kind. The
//! first piece of a word carries its label (Devlin et al., section 5.3).

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{
    Answers, Dataset, Labels, OwnData, Reading, Role, Task, labels_unused, nothing_to_measure,
    stored_labels, unlabelled,
};
use crate::data::bad::BadRows;
use crate::data::conll::{self, Sentence};
use crate::data::table::{Columns, Field, Row};
use crate::data::tags::{Tags, broken_scheme, entities, in_iob2, is_entity_tag, types};
use crate::data::{Examples, Sequences, Targets};
use crate::engine::inference::Logits;
use crate::error::{Error, Result};
use crate::eval::entities;
use crate::eval::{Metric, Scores, best, measure_classes};
use crate::model::{Config, Part};
use crate::text::WordPiece;

/// A label for every word.
pub struct Words {
    /// The columns of your own words and labels; None for CoNLL's files.
    columns: Option<Columns>,
    labels: Vec<String>,
}

impl Words {
    /// Entities in CoNLL's columns. Their types are collected from the training file, whose malformed rows go to
    /// `bad`.
    pub fn conll(labels: Labels<'_>, bad: &mut BadRows) -> Result<Self> {
        let labels = match labels {
            Labels::Model(config) => stored_labels(config)?,
            Labels::Training(path) => discovered(&conll::read(path, true, bad)?),
        };
        Ok(Self { columns: None, labels })
    }

    /// Your own words and labels. The labels are collected from the training file, whose malformed rows go to
    /// `bad`.
    pub fn custom(own: OwnData, labels: Labels<'_>, bad: &mut BadRows) -> Result<Self> {
        own.check(&[1], "two, words,labels")?;
        let labels = match labels {
            Labels::Model(config) => stored_labels(config)?,
            Labels::Training(path) => {
                let rows = own_rows(&own.columns, path, &Tags::Any, bad)?;
                discovered(&in_scheme(path, rows, bad)?)
            }
        };
        Ok(Self { columns: Some(own.columns), labels })
    }

    fn sentences(&self, path: &Path, role: Role, bad: &mut BadRows) -> Result<Vec<Sentence>> {
        let tags = match &self.columns {
            _ if role == Role::Test => Tags::Unread,
            None => Tags::entities(&self.labels),
            Some(_) => Tags::known(&self.labels),
        };
        let Some(columns) = &self.columns else {
            return conll::read_tagged(path, &tags, bad);
        };
        let rows = own_rows(columns, path, &tags, bad)?;
        Ok(rows.into_iter().map(|(_, sentence)| sentence).collect())
    }
}

/// Reads your own data: each row with the number of its line.
fn own_rows(
    columns: &Columns,
    path: &Path,
    tags: &Tags<'_>,
    bad: &mut BadRows,
) -> Result<Vec<(usize, Sentence)>> {
    let needed = if *tags == Tags::Unread { 1 } else { 2 };
    columns.read_as(path, needed, bad, |row| match sentence(&row, tags) {
        Ok(sentence) => Ok((row.line, sentence)),
        Err(complaint) => Err(Error::line(path, row.line, complaint)),
    })
}

/// Reads a row of your own data, or returns what is wrong with it.
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

/// Returns the sentences of a training file. If its labels are entities' tags of a scheme, rows with other labels
/// are malformed.
fn in_scheme(
    path: &Path,
    rows: Vec<(usize, Sentence)>,
    bad: &mut BadRows,
) -> Result<Vec<Sentence>> {
    let broken = broken_scheme(&labels(rows.iter().map(|(_, sentence)| sentence)));
    let tags = if broken { Tags::Entities(None) } else { Tags::Any };
    let mut sentences = Vec::new();
    for (line, sentence) in rows {
        let complaint = sentence.tags.iter().find_map(|tag| tags.complaint(tag));
        sentences.extend(bad.keep(match complaint {
            Some(complaint) => Err(Error::line(path, line, complaint)),
            None => Ok(sentence),
        })?);
    }
    bad.some(path, sentences, "row")
}

/// Returns the different labels of sentences, sorted by name.
fn labels<'s>(sentences: impl Iterator<Item = &'s Sentence>) -> Vec<&'s str> {
    let mut labels: Vec<&str> =
        sentences.flat_map(|sentence| &sentence.tags).map(String::as_str).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// Returns all labels: if they are entities' tags, `O` and for each type `B-` and `I-`, else as they stand.
fn discovered(sentences: &[Sentence]) -> Vec<String> {
    let tags = labels(sentences.iter());
    if !tags.iter().all(|tag| is_entity_tag(tag)) {
        return tags.into_iter().map(str::to_owned).collect();
    }
    let mut labels = vec!["O".to_owned()];
    for kind in types(tags.into_iter()) {
        labels.extend([format!("B-{kind}"), format!("I-{kind}")]);
    }
    labels
}

impl Task for Words {
    fn name(&self) -> &str {
        match self.columns {
            None => "ner",
            Some(_) => "custom",
        }
    }

    fn part(&self) -> Part {
        Part::TokenClassifier(self.labels.len())
    }

    fn describe(&self, config: &mut Config) {
        config.set_labels(&self.labels);
        // The model may have been a regression model before.
        config.other.remove("problem_type");
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        let columns = self.columns.as_ref();
        let columns = columns.map(|columns| ("columns", columns.to_string().into()));
        columns.into_iter().collect()
    }

    fn metric(&self) -> &'static str {
        if self.labels.iter().all(|label| is_entity_tag(label)) {
            Metric::F1.name()
        } else {
            Metric::Accuracy.name()
        }
    }

    fn read(&self, path: &Path, role: Role, reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let mut sentences = self.sentences(path, role, reading.bad)?;
        sentences.truncate(reading.limit.unwrap_or(usize::MAX));
        let tagged = sentences.iter().filter(|s| !s.tags.is_empty()).count();
        match role {
            Role::Test if tagged > 0 => reading.notes.push(labels_unused(path)),
            Role::Train | Role::Dev if tagged < sentences.len() => return Err(unlabelled(path)),
            _ => {}
        }
        let cut = WordSequences::new(&sentences, reading.wordpiece, reading.max_len)?;
        let targets = match role {
            Role::Test => Targets::Unknown,
            Role::Train | Role::Dev => Targets::Rows(cut.targets(&sentences, &self.labels)),
        };
        Ok(Box::new(Read {
            examples: Examples { sequences: cut.sequences, targets },
            first_rows: cut.first_rows,
            sentences,
            labels: self.labels.clone(),
            measured: role != Role::Test,
        }))
    }
}

/// Sentences as token sequences.
pub struct WordSequences {
    /// The sequences; a long sentence has several.
    pub sequences: Sequences,
    /// The row of each word's first piece among the rows of all sequences.
    pub first_rows: Vec<usize>,
}

impl WordSequences {
    /// Cuts words into pieces. A sentence of more than `max_len` tokens goes on in another sequence.
    ///
    /// # Errors
    /// If `max_len` leaves no room for a word.
    pub fn new(sentences: &[Sentence], wordpiece: &WordPiece, max_len: usize) -> Result<Self> {
        if max_len < 3 {
            return Err(Error::Usage(format!(
                "max_len {max_len} leaves no room for a word beside [CLS] and [SEP]: at least 3 are needed"
            )));
        }
        let special = wordpiece.special();
        let mut sequences = Sequences::default();
        let mut first_rows = Vec::new();
        let (mut ids, mut pieces) = (Vec::new(), Vec::new());
        for sentence in sentences {
            ids.push(special.cls);
            for word in &sentence.words {
                pieces.clear();
                wordpiece.encode_ids_after_blank(word, &mut pieces);
                // A word whose characters are all removed by the tokenizer has a label nevertheless.
                if pieces.is_empty() {
                    pieces.push(special.unk);
                }
                pieces.truncate(max_len - 2);
                if ids.len() + pieces.len() + 1 > max_len {
                    ids.push(special.sep);
                    sequences.push(&[(&ids, 0)]);
                    ids.clear();
                    ids.push(special.cls);
                }
                first_rows.push(sequences.tokens() + ids.len());
                ids.extend(&pieces);
            }
            ids.push(special.sep);
            sequences.push(&[(&ids, 0)]);
            ids.clear();
        }
        Ok(Self { sequences, first_rows })
    }

    /// Returns the label of every word's first piece; None for a tag that the model does not know.
    fn targets(&self, sentences: &[Sentence], labels: &[String]) -> Vec<Option<u32>> {
        let mut targets = vec![None; self.sequences.tokens()];
        let tags = sentences.iter().flat_map(|sentence| &sentence.tags);
        for (&row, tag) in self.first_rows.iter().zip(tags) {
            let label = labels.iter().position(|label| label == tag);
            targets[row] = label.map(|label| label as u32);
        }
        targets
    }
}

/// A file of sentences.
struct Read {
    examples: Examples,
    first_rows: Vec<usize>,
    sentences: Vec<Sentence>,
    labels: Vec<String>,
    measured: bool,
}

impl Read {
    /// Returns the predicted label of every word of each sentence.
    fn predicted(&self, logits: &Logits) -> Vec<Vec<&str>> {
        let outputs = logits.outputs;
        let label = |&row: &usize| {
            let logits = &logits.values()[row * outputs..(row + 1) * outputs];
            self.labels[best(logits) as usize].as_str()
        };
        let mut all = self.first_rows.iter().map(label);
        let words = self.sentences.iter().map(|sentence| sentence.words.len());
        words.map(|words| all.by_ref().take(words).collect()).collect()
    }
}

impl Dataset for Read {
    fn rows(&self) -> usize {
        self.sentences.len()
    }

    fn examples(&self) -> &Examples {
        &self.examples
    }

    fn measure(&self, logits: &Logits) -> Result<Scores> {
        if !self.measured {
            return Err(nothing_to_measure());
        }
        let predicted = self.predicted(logits);
        let gold: Vec<Vec<&str>> = self
            .sentences
            .iter()
            .map(|sentence| sentence.tags.iter().map(String::as_str).collect())
            .collect();
        let all_entities = |tags: &[Vec<&str>]| tags.iter().flatten().all(|tag| is_entity_tag(tag));
        if all_entities(&predicted) && all_entities(&gold) {
            return Ok(entities::score(predicted.into_iter().zip(gold)));
        }
        // Each label as its index in the sorted list of all.
        let mut names: Vec<&str> = predicted.iter().chain(&gold).flatten().copied().collect();
        names.sort_unstable();
        names.dedup();
        let classes = |tags: &[Vec<&str>]| -> Vec<u32> {
            let index = |tag: &&str| names.binary_search(tag).unwrap_or_default() as u32;
            tags.iter().flatten().map(index).collect()
        };
        let metrics = [Metric::Accuracy, Metric::MacroF1];
        Ok(measure_classes(&metrics, &classes(&predicted), &classes(&gold)))
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let mut text = String::new();
        let mut lines = Vec::new();
        for (sentence, tags) in self.sentences.iter().zip(self.predicted(logits)) {
            for (index, (word, tag)) in sentence.words.iter().zip(&tags).enumerate() {
                let gold = sentence.tags.get(index).map(|gold| format!("{gold} "));
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{word} {}{tag}", gold.unwrap_or_default());
            }
            text.push('\n');
            let found: Vec<Value> = entities(&tags)
                .iter()
                .map(|e| {
                    let words = sentence.words[e.start..e.end].join(" ");
                    json!({"type": e.kind, "start": e.start, "end": e.end, "text": words})
                })
                .collect();
            lines.push(json!({"words": sentence.words, "tags": tags, "entities": found}));
        }
        Ok(Answers { documents: vec![("predictions.txt".into(), text)], lines })
    }
}
