//! A class for every word: named entities in CoNLL's columns, and your own data of that kind. The
//! first piece of a word carries its label (Devlin et al., section 5.3).

mod rows;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    Answers, Dataset, KIND, Labels, Measurement, OwnData, Reading, Role, TOKENS, Task,
    labels_unused, nothing_to_measure, stored_labels, unlabelled,
};
use crate::data::bad::BadRows;
use crate::data::conll::{self, Sentence};
use crate::data::table::Columns;
use crate::data::tags::{Tags, broken_scheme, entities, is_entity_tag, types};
use crate::data::{Examples, Sequences, Targets};
use crate::engine::inference::Logits;
use crate::error::{Error, Result};
use crate::eval::entities;
use crate::eval::{ClassReport, Metric, best, measure_classes, softmax};
use crate::model::{Config, Part};
use crate::text::WordPiece;
use crate::text::reader::check_readable_twice;
use crate::text::words::Text;
use crate::train::task::{LOSS, OPTIONS};
use rows::{OwnRow, own_row};

/// A label for every word.
pub struct Words {
    /// The columns of your own words and labels; None for CoNLL's files.
    columns: Option<Columns>,
    labels: Vec<String>,
    /// Whether the rows of your own data are texts with entities as spans of characters, not words with a label
    /// each.
    texts: bool,
}

/// The key in a model's options of whether it was trained on texts with entities as spans.
const TEXTS: &str = "entity_spans";

impl Words {
    /// Entities in CoNLL's columns. Their types are collected from the training file, whose malformed rows go to
    /// `bad`.
    pub fn conll(labels: Labels<'_>, bad: &mut BadRows) -> Result<Self> {
        let labels = match labels {
            Labels::Model(config) => stored_labels(config)?,
            Labels::Training(path) => {
                check_readable_twice(path)?;
                discovered(&conll::read(path, true, bad)?)
            }
        };
        Ok(Self { columns: None, labels, texts: false })
    }

    /// Your own words and labels, or texts and entities. The labels are collected from the training file, whose
    /// malformed rows go to `bad`.
    pub fn custom(own: OwnData, labels: Labels<'_>, bad: &mut BadRows) -> Result<Self> {
        own.check(&[1], "two, words,labels")?;
        let columns = own.columns.with_nested_labels();
        let (labels, texts) = match labels {
            Labels::Model(config) => {
                let stored = config.other.get(OPTIONS).and_then(|options| options.get(TEXTS));
                (stored_labels(config)?, stored == Some(&Value::Bool(true)))
            }
            Labels::Training(path) => {
                check_readable_twice(path)?;
                let rows = columns
                    .open(path, 2)?
                    .read(bad, |file, row| own_row(file, &row, &Tags::Any, false))?;
                let texts = rows.iter().any(|row| row.text.is_some());
                (discovered(&in_scheme(path, rows, bad)?), texts)
            }
        };
        Ok(Self { columns: Some(columns), labels, texts })
    }

    fn rows(&self, path: &Path, role: Role, reading: &mut Reading<'_>) -> Result<Vec<OwnRow>> {
        let tags = match &self.columns {
            _ if role == Role::Test => Tags::Unread,
            None => Tags::entities(&self.labels),
            Some(_) => Tags::known(&self.labels),
        };
        let Some(columns) = &self.columns else {
            let sentences = conll::read_tagged(path, &tags, reading.bad)?;
            self.refuse_texts(path, &sentences)?;
            let sentences = sentences.into_iter().enumerate();
            let row = |(place, sentence)| OwnRow { place, sentence, ..OwnRow::default() };
            return Ok(sentences.map(row).collect());
        };
        let table = match role {
            Role::Test => columns.open_texts(path)?,
            Role::Train | Role::Dev => columns.open(path, 2)?,
        };
        if role == Role::Test {
            reading.notes.extend(table.note());
        }
        let texts = self.texts || table.is_plain();
        table.read(reading.bad, |file, row| own_row(file, &row, &tags, texts))
    }
}

impl Words {
    /// Returns an error if the last column of a file in CoNLL's columns holds no tag at all: its lines are texts.
    fn refuse_texts(&self, path: &Path, sentences: &[Sentence]) -> Result<()> {
        let tags = || sentences.iter().flat_map(|sentence| &sentence.tags);
        let is_tag = |tag: &String| is_entity_tag(tag) || self.labels.contains(tag);
        if tags().next().is_none() || tags().any(is_tag) {
            return Ok(());
        }
        let message = "no line ends with a tag; expected a word a line, alone or with its tag in the last column, \
                       and an empty line between sentences (`cloze predict custom --columns text` reads a text a line)";
        Err(Error::file(path, message))
    }
}

/// Returns the sentences of a training file. If its labels are entities' tags of a scheme, rows with other labels
/// are malformed.
fn in_scheme(path: &Path, rows: Vec<OwnRow>, bad: &mut BadRows) -> Result<Vec<Sentence>> {
    let broken = broken_scheme(&labels(rows.iter().map(|row| &row.sentence)));
    let tags = if broken { Tags::Entities(None) } else { Tags::Any };
    let mut sentences = Vec::new();
    for OwnRow { line, sentence, .. } in rows {
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
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        let mut options = self.columns.as_ref().map(Columns::options).unwrap_or_default();
        options.push((KIND, TOKENS.into()));
        if self.texts {
            options.push((TEXTS, true.into()));
        }
        options
    }

    fn metric(&self) -> &'static str {
        if self.labels.iter().all(|label| is_entity_tag(label)) {
            Metric::F1.name()
        } else {
            Metric::Accuracy.name()
        }
    }

    fn metrics(&self) -> Vec<&'static str> {
        let (accuracy, f1) = (Metric::Accuracy.name(), Metric::F1.name());
        match self.metric() == f1 {
            true => vec![f1, "precision", "recall", accuracy, LOSS],
            false => vec![accuracy, Metric::MacroF1.name(), LOSS],
        }
    }

    fn read(&self, path: &Path, role: Role, mut reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let rows = self.rows(path, role, &mut reading)?;
        // Sentences with the same labels are divided by the same share.
        let rows = reading.part(rows, role, |row| {
            let mut tags = row.sentence.tags.clone();
            tags.sort_unstable();
            tags.dedup();
            tags
        });
        let count = |which: usize| rows.iter().map(|row| row.entities[which]).sum::<usize>();
        if role != Role::Test && count(1) > 0 {
            reading.notes.push(format!(
                "{}: {} of {} entities begin or end inside a word, which gets their label as a whole",
                path.display(),
                count(1),
                count(0)
            ));
        }
        let mut sources = Vec::new();
        let sentences = rows.into_iter().map(|OwnRow { place, sentence, text, .. }| {
            // Only answers need the text.
            sources.push(Source { place, text: text.filter(|_| role == Role::Test) });
            sentence
        });
        let sentences: Vec<Sentence> = sentences.collect();
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
            sources,
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
    /// Where each sentence is from.
    sources: Vec<Source>,
    labels: Vec<String>,
    measured: bool,
}

/// The row of a sentence in its file, and the text that it was split from; None if the words were given.
struct Source {
    place: usize,
    text: Option<Text>,
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

impl Read {
    /// Returns the numbers of each word as an object with one for each label.
    fn by_label<'n, N: Copy + Into<Value> + 'n>(
        &self,
        words: impl Iterator<Item = &'n [N]>,
    ) -> Vec<Map<String, Value>> {
        let object = |numbers: &[N]| {
            let labels = self.labels.iter().cloned();
            labels.zip(numbers.iter().map(|&number| number.into())).collect()
        };
        words.map(object).collect()
    }
}

impl Dataset for Read {
    fn rows(&self) -> usize {
        self.sentences.len()
    }

    fn examples(&self) -> &Examples {
        &self.examples
    }

    fn measure(&self, logits: &Logits) -> Result<Measurement> {
        if !self.measured {
            return Err(nothing_to_measure());
        }
        let predicted = self.predicted(logits);
        let gold = self.sentences.iter().map(|sentence| &sentence.tags);
        let gold: Vec<Vec<&str>> =
            gold.map(|tags| tags.iter().map(String::as_str).collect()).collect();
        let all_entities = |tags: &[Vec<&str>]| tags.iter().flatten().all(|tag| is_entity_tag(tag));
        // Of entities' tags, the type is what is right or wrong about a word.
        let types = all_entities(&gold) && all_entities(&predicted);
        let class = |tag: &&'_ str| match tag.split_once('-') {
            Some((_, kind)) if types => kind.to_owned(),
            _ => (*tag).to_owned(),
        };
        // Each class as its index in the sorted list of all.
        let mut names: Vec<String> = gold.iter().chain(&predicted).flatten().map(class).collect();
        names.sort_unstable();
        names.dedup();
        let indices = |tags: &[Vec<&str>]| -> Vec<u32> {
            let index = |tag: &&str| names.binary_search(&class(tag)).unwrap_or_default() as u32;
            tags.iter().flatten().map(index).collect()
        };
        let (found, right) = (indices(&predicted), indices(&gold));
        let mut report = ClassReport::of_classes(&names, &found, &right);
        if types {
            let pairs = || predicted.iter().cloned().zip(gold.iter().cloned());
            report.classes = entities::classes(pairs());
            return Ok((entities::score(pairs()), Some(report)));
        }
        let metrics = [Metric::Accuracy, Metric::MacroF1];
        Ok((measure_classes(&metrics, &found, &right), Some(report)))
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let mut columns = String::new();
        let mut lines = Vec::new();
        let mut rows = self.first_rows.iter().map(|row| {
            let logits = &logits.values()[row * logits.outputs..][..logits.outputs];
            (logits, softmax(logits))
        });
        let predicted = self.predicted(logits);
        for ((sentence, source), tags) in self.sentences.iter().zip(&self.sources).zip(predicted) {
            for (index, (word, tag)) in sentence.words.iter().zip(&tags).enumerate() {
                let gold = sentence.tags.get(index).map(|gold| format!("{gold} "));
                // Writing to a string cannot fail.
                let _ = writeln!(columns, "{word} {}{tag}", gold.unwrap_or_default());
            }
            columns.push('\n');
            let (logits, shares): (Vec<&[f32]>, Vec<Vec<f64>>) =
                rows.by_ref().take(tags.len()).unzip();
            let scores: Vec<f64> =
                shares.iter().map(|shares| shares.iter().copied().fold(0.0, f64::max)).collect();
            let joined = || Text::of_words(&sentence.words);
            let text = source.text.clone().unwrap_or_else(joined);
            let found: Vec<Value> = entities(&tags)
                .iter()
                .map(|e| {
                    let place = text.span(e.start..e.end);
                    let score = scores[e.start..e.end].iter().sum::<f64>() / (e.end - e.start) as f64;
                    let part = text.cut(place.clone());
                    let (start, end) = (place.start, place.end);
                    match source.text {
                        Some(_) => json!({
                            "label": e.kind, "start": start, "end": end, "text": part, "score": score,
                        }),
                        None => json!({
                            "type": e.kind, "start": e.start, "end": e.end, "text": part,
                            "label": e.kind, "start_char": start, "end_char": end, "score": score,
                        }),
                    }
                })
                .collect();
            lines.push(json!({
                "index": source.place,
                "text": text.cut(0..text.len()),
                "words": sentence.words,
                "tags": tags,
                "scores": scores,
                "entities": found,
                "probabilities": self.by_label(shares.iter().map(Vec::as_slice)),
                "logits": self.by_label(logits.into_iter()),
            }));
        }
        Ok(Answers { documents: vec![("predictions.txt".into(), columns)], lines })
    }
}
