//! What fine-tuning asks of a task: which head it needs, how its files are read, by which metrics its
//! logits are measured, and how they become answers. [`crate::tasks`] has the implementations.

use std::path::Path;

use serde_json::{Map, Value};

use crate::data::bad::BadRows;
use crate::data::split::Split;
use crate::data::{Examples, Targets};
use crate::engine::TaskEngine;
use crate::engine::inference::{self, Logits};
use crate::error::Result;
use crate::eval::{ClassReport, Scores};
use crate::model::{Config, Part};
use crate::text::WordPiece;

use super::loss::Loss;

/// What a file is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Training: its rows must have labels.
    Train,
    /// Evaluation: its rows must have labels.
    Dev,
    /// Prediction: labels are neither needed nor used.
    Test,
}

/// Settings for reading a file.
pub struct Reading<'a> {
    /// The model's tokenizer.
    pub wordpiece: &'a WordPiece,
    /// Longest sequence in tokens.
    pub max_len: usize,
    /// Upper limit of rows; the rest of the file is not used.
    pub limit: Option<usize>,
    /// Which rows of a training file are held out: they are read as [`Role::Dev`], the others as
    /// [`Role::Train`].
    pub split: Option<Split>,
    /// What to do with malformed rows, and how many there were.
    pub bad: &'a mut BadRows,
    /// Receives remarks that a person should read.
    pub notes: &'a mut Vec<String>,
}

impl Reading<'_> {
    /// Returns the rows that `role` uses; rows of the same `class` are divided by the same share.
    pub fn part<T, C: Ord>(&self, rows: Vec<T>, role: Role, class: impl Fn(&T) -> C) -> Vec<T> {
        let mut rows = match self.split {
            Some(split) => split.part(rows, role == Role::Dev, class),
            None => rows,
        };
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        rows
    }
}

/// A task and its labels.
pub trait Task {
    /// Returns the name that the command line uses.
    fn name(&self) -> &str;
    /// Returns the head that the task needs.
    fn part(&self) -> Part;
    /// Stores the labels in the configuration of a model without a task, as transformers does.
    fn describe(&self, config: &mut Config);
    /// Returns how the task's files are read, as far as `evaluate` and `predict` must read theirs in the same
    /// way.
    fn options(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
    /// Stores what the scores on a development file decided, such as a threshold, for later predictions.
    fn remember(&self, _scores: &Scores, _config: &mut Config) {}
    /// Returns the name of the score by which models are compared.
    fn metric(&self) -> &'static str;
    /// Returns the names of all scores by which models can be compared, the usual one first.
    fn metrics(&self) -> Vec<&'static str> {
        vec![self.metric()]
    }
    /// Returns the name of the loss, with its unit.
    fn loss(&self) -> &'static str {
        "cross-entropy (nats)"
    }
    /// Reads a file; `-` is standard input.
    fn read(&self, path: &Path, role: Role, reading: Reading<'_>) -> Result<Box<dyn Dataset>>;
}

/// The scores on a file, and the report on its classes if it has any.
pub type Measurement = (Scores, Option<ClassReport>);

/// The examples of a file.
pub trait Dataset {
    /// Returns the number of rows, questions or sentences.
    fn rows(&self) -> usize;
    /// Returns the tokenised examples.
    fn examples(&self) -> &Examples;
    /// Computes the official metrics, and reports class by class what is right and wrong; None for a task
    /// without classes.
    ///
    /// # Errors
    /// If the file has no labels.
    fn measure(&self, logits: &Logits) -> Result<Measurement>;
    /// Turns logits into answers.
    fn answers(&self, logits: &Logits) -> Result<Answers>;
}

/// A model's answers.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// Names and texts of the official submission files, the main one first.
    pub documents: Vec<(String, String)>,
    /// The same answers as one JSON object for each row, with its texts, probabilities and logits.
    pub lines: Vec<Value>,
}

/// Where a configuration keeps how the files of its task were read. transformers leaves keys alone that it
/// does not know.
pub const OPTIONS: &str = "finetuning_options";

/// Stores the task, its labels, and how its files are read in a model's configuration.
pub fn describe(task: &dyn Task, max_len: usize, config: &mut Config) {
    config.clear_task();
    task.describe(config);
    let other = &mut config.other;
    other.insert("finetuning_task".into(), task.name().into());
    let mut options = Map::new();
    options.insert("max_len".into(), max_len.into());
    options.extend(task.options().into_iter().map(|(key, value)| (key.to_owned(), value)));
    other.insert(OPTIONS.into(), options.into());
}

/// Returns a number that fine-tuning stored in a model's configuration about its task's files.
pub fn stored(config: &Config, key: &str) -> Option<usize> {
    let options = config.other.get(OPTIONS)?;
    options.get(key)?.as_u64().map(|number| number as usize)
}

/// The name of the mean loss among the scores; the only one of which less is better.
pub const LOSS: &str = "loss";

/// Returns a model's scores on a file, with its mean loss if the file has a target for each of the head's
/// outputs.
pub fn measure(engine: &mut dyn TaskEngine, data: &dyn Dataset) -> Result<Scores> {
    Ok(measure_classes(engine, data)?.0)
}

/// Returns a model's scores on a file and the report on its classes.
pub fn measure_classes(engine: &mut dyn TaskEngine, data: &dyn Dataset) -> Result<Measurement> {
    let examples = data.examples();
    let logits = inference::logits(engine, &examples.sequences)?;
    let (mut scores, report) = data.measure(&logits)?;
    if !matches!(examples.targets, Targets::Unknown | Targets::Spans(_)) {
        let loss = Loss::default().mean(&examples.targets, logits.values(), logits.outputs);
        scores.insert(LOSS.into(), loss.into());
    }
    Ok((scores, report))
}
