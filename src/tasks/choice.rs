//! SWAG and CODAH: choose one of four endings. Each ending is a sequence of its own, and the head gives it one
//! score (Devlin et al., section 4.4).

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{
    Answers, Dataset, Measurement, Reading, Role, Task, labels_unused, nothing_to_measure,
    unlabelled,
};
use crate::data::choices::{CHOICES, Question, read_codah, read_swag_rows};
use crate::data::{Examples, Sequences, Targets};
use crate::engine::inference::Logits;
use crate::error::{Error, Result};
use crate::eval::{Metric, best, measure_classes, softmax};
use crate::model::{Config, Part};
use crate::train::task::LOSS;

/// Number of parts of CODAH's cross-validation.
pub const FOLDS: u32 = 5;

/// SWAG or CODAH.
pub struct Choice {
    /// Which fifth of CODAH is held out for measuring, counted from 0; None for SWAG.
    fold: Option<u32>,
}

impl Choice {
    /// SWAG.
    pub fn swag() -> Self {
        Self { fold: None }
    }

    /// CODAH, which has one file for both: every fifth row is for measuring, from row `fold` on, counted from 1;
    /// the others are for training.
    pub fn codah(fold: u32) -> Result<Self> {
        match fold {
            1..=FOLDS => Ok(Self { fold: Some(fold - 1) }),
            _ => Err(Error::Usage(format!("fold {fold}: expected a number from 1 to {FOLDS}"))),
        }
    }

    fn rows(&self, path: &Path, role: Role, reading: &mut Reading<'_>) -> Result<Vec<Question>> {
        let labels = role != Role::Test;
        let Some(fold) = self.fold else {
            return read_swag_rows(path, labels, reading.bad);
        };
        let all = read_codah(path, labels, reading.bad)?;
        let count = all.len();
        // The categories are mixed in the file, so every part has rows of each.
        let held_out = |index: usize| index as u32 % FOLDS == fold;
        let wanted = |index: usize| match role {
            Role::Train => !held_out(index),
            Role::Dev => held_out(index),
            Role::Test => true,
        };
        let rows = all.into_iter().enumerate();
        let rows: Vec<Question> =
            rows.filter(|(index, _)| wanted(*index)).map(|(_, row)| row).collect();
        if rows.is_empty() {
            let purpose = match role {
                Role::Train => "train on",
                Role::Dev | Role::Test => "measure on",
            };
            let fold = fold + 1;
            let message = format!(
                "has too few questions ({count}): with fold {fold} none is left to {purpose}"
            );
            return Err(Error::file(path, message));
        }
        Ok(rows)
    }
}

impl Task for Choice {
    fn name(&self) -> &str {
        match self.fold {
            None => "swag",
            Some(_) => "codah",
        }
    }

    fn part(&self) -> Part {
        Part::MultipleChoice
    }

    fn describe(&self, _: &mut Config) {}

    fn options(&self) -> Vec<(&'static str, Value)> {
        let fold = self.fold.map(|fold| ("fold", (fold + 1).into()));
        fold.into_iter().collect()
    }

    fn metric(&self) -> &'static str {
        Metric::Accuracy.name()
    }

    fn metrics(&self) -> Vec<&'static str> {
        vec![self.metric(), LOSS]
    }

    fn read(&self, path: &Path, role: Role, mut reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let rows = self.rows(path, role, &mut reading)?;
        let rows = reading.part(rows, role, |row| row.right);
        let right: Vec<u32> = rows.iter().filter_map(|row| row.right).collect();
        let labelled = rows.iter().any(|row| row.labelled);
        match role {
            Role::Test if labelled => reading.notes.push(labels_unused(path)),
            Role::Train | Role::Dev if right.len() < rows.len() => return Err(unlabelled(path)),
            _ => {}
        }
        let pairs: Vec<(String, String)> = rows.iter().flat_map(Question::pairs).collect();
        let texts: Vec<(&str, Option<&str>)> =
            pairs.iter().map(|(a, b)| (a.as_str(), Some(b.as_str()))).collect();
        let sequences = Sequences::tokenise(reading.wordpiece, &texts, reading.max_len)?;
        reading.notes.extend(sequences.cut_note(path, reading.max_len));
        Ok(Box::new(Read {
            name: self.name().to_owned(),
            examples: Examples {
                sequences: sequences.with_choices(CHOICES),
                targets: match role {
                    Role::Test => Targets::Unknown,
                    Role::Train | Role::Dev => Targets::Choices(right),
                },
            },
            questions: rows,
        }))
    }
}

/// A file of questions.
struct Read {
    name: String,
    questions: Vec<Question>,
    examples: Examples,
}

impl Dataset for Read {
    fn rows(&self) -> usize {
        self.examples.len()
    }

    fn examples(&self) -> &Examples {
        &self.examples
    }

    fn measure(&self, logits: &Logits) -> Result<Measurement> {
        let Targets::Choices(gold) = &self.examples.targets else {
            return Err(nothing_to_measure());
        };
        let predicted: Vec<u32> = (0..self.rows()).map(|i| best(logits.of(i))).collect();
        Ok((measure_classes(&[Metric::Accuracy], &predicted, gold), None))
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let mut text = String::from("index\tprediction\n");
        let mut lines = Vec::new();
        for (example, question) in self.questions.iter().enumerate() {
            let (index, row) = (question.place, logits.of(example));
            let (prediction, probabilities) = (best(row), softmax(row));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{index}\t{prediction}");
            lines.push(json!({
                "index": index,
                "context": question.context,
                "endings": question.pairs().map(|(_, ending)| ending),
                "prediction": prediction,
                "score": probabilities[prediction as usize],
                "probabilities": probabilities,
                "logits": row,
            }));
        }
        Ok(Answers { documents: vec![(format!("{}.tsv", self.name), text)], lines })
    }
}
