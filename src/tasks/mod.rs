//! The tasks that a model is fine-tuned for. A [`Task`] names the head that it needs, reads its files into
//! examples, measures the head's logits by its official metrics, and turns them into answers in its official
//! layout.

mod choice;
mod classes;
mod official;
mod rows;
mod sentences;
mod span;
#[cfg(test)]
mod tests;
mod words;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::bad::BadRows;
use crate::data::glue;
use crate::data::table::Columns;
use crate::error::{Error, Result};
use crate::model::Config;

use crate::train::task::OPTIONS;
pub use crate::train::task::{Answers, Dataset, Measurement, Reading, Role, Task, measure};
pub use official::{Files, files};
pub(crate) use rows::{limited, limits};
pub(crate) use sentences::stored_thresholds;
pub(crate) use span::QuestionWindows;
pub use span::SpanOptions;
pub(crate) use words::WordSequences;

/// What a model predicts for a row of your own data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Kind {
    /// One of the classes in the training file.
    #[default]
    Class,
    /// Any number of the classes in the training file: a list in JSONL, separated by | in other files.
    Classes,
    /// A number.
    Number,
    /// A class for each word.
    Tokens,
}

/// The key in a model's options of its kind, if that is [`Kind::Tokens`]: the configuration of a frozen encoder
/// names no class of a head.
const KIND: &str = "kind";
/// Its value.
const TOKENS: &str = "tokens";

impl Kind {
    /// Returns what a model was fine-tuned for, according to its configuration.
    pub fn of(config: &Config) -> Self {
        let stored = config.other.get(OPTIONS).and_then(|options| options.get(KIND));
        if stored.and_then(serde_json::Value::as_str) == Some(TOKENS) {
            return Self::Tokens;
        }
        if config.architectures.iter().any(|class| class.ends_with("ForTokenClassification")) {
            return Self::Tokens;
        }
        let problem = config.other.get("problem_type");
        match problem.and_then(serde_json::Value::as_str) {
            Some("regression") => Self::Number,
            Some("multi_label_classification") => Self::Classes,
            _ => Self::Class,
        }
    }
}

/// Settings of a task beside its name.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The columns of your own data: those of its texts, then that of its labels.
    pub columns: Option<Columns>,
    /// Whether `columns` leaves out the labels, because the data is only for prediction.
    pub unlabelled: bool,
    /// What is predicted for your own data. The default is what the model was fine-tuned for, else classes.
    pub kind: Option<Kind>,
    /// Whether malformed rows of a training file are skipped when its labels are collected.
    pub skip_bad: bool,
    /// Which fifth of CODAH is held out for measuring, counted from 1.
    pub fold: u32,
    /// How SQuAD's paragraphs are read and its answers chosen.
    pub spans: SpanOptions,
    /// What is done with a text of your own data that is longer than a sequence.
    pub long_text: LongText,
}

/// What is done with a text that is longer than a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum LongText {
    /// It is cut.
    #[default]
    Cut,
    /// It is read in windows that overlap, whose logits are averaged.
    Windows,
}

impl LongText {
    /// Returns how a model's texts were read when it was fine-tuned, according to its configuration.
    pub fn of(config: &Config) -> Self {
        let stored = config.other.get(OPTIONS).and_then(|options| options.get("long_text"));
        let stored = stored.and_then(|stored| Self::deserialize(stored).ok());
        stored.unwrap_or_default()
    }
}

/// Where the names of a task's classes come from.
#[derive(Clone, Copy)]
pub enum Labels<'a> {
    /// The training file, unless the task itself defines them.
    Training(&'a Path),
    /// The configuration of a model that was fine-tuned for the task.
    Model(&'a Config),
}

/// Returns the names of all tasks, as on the command line.
pub fn names() -> impl Iterator<Item = &'static str> {
    let others = ["squad", "squad2", "swag", "codah", "ner", "custom"];
    glue::TASKS.iter().map(|task| task.name).chain(others)
}

/// Finds a task's name in any case and with or without hyphens: `sst2` is `sst-2`.
pub fn named(typed: &str) -> Option<&'static str> {
    let bare = |name: &str| name.replace('-', "").to_lowercase();
    names().find(|name| bare(name) == bare(typed))
}

/// Returns the default of a task's longest sequence, in tokens.
pub fn usual_max_len(name: &str) -> usize {
    match name {
        "squad" | "squad2" => 384,
        "swag" | "codah" => 80,
        _ => 128,
    }
}

/// Returns the task of learning the last of these columns of your own TSV, CSV or JSONL file, such as
/// `text,label` or `text,pair,label`, from the others. The file to train on names the classes.
pub fn your_own(columns: &str, train: impl AsRef<Path>) -> Result<Box<dyn Task>> {
    let options = Options { columns: Some(Columns::parse(columns)?), ..Options::default() };
    open("custom", &options, Labels::Training(train.as_ref()))
}

/// Returns the task of that name.
///
/// # Errors
/// If there is no such task, or its labels cannot be found.
pub fn open(name: &str, options: &Options, labels: Labels<'_>) -> Result<Box<dyn Task>> {
    if let Some(task) = glue::Task::find(name) {
        return Ok(Box::new(sentences::Sentences::glue(task, labels)?));
    }
    let kind = options.kind.unwrap_or_else(|| match labels {
        Labels::Model(config) => Kind::of(config),
        Labels::Training(_) => Kind::default(),
    });
    let source = || {
        let message = "columns are needed for your own data: that of the text, of a second text if there is \
                       one, and of the label, such as text,label";
        match &options.columns {
            Some(columns) => {
                Ok(OwnData { columns: columns.clone(), labelled: !options.unlabelled })
            }
            None => {
                // Columns would not help a model that has no classes.
                if let (Labels::Model(config), true) = (labels, kind != Kind::Number) {
                    stored_labels(config)?;
                }
                Err(Error::Usage(message.into()))
            }
        }
    };
    let mut bad = BadRows::skipped_if(options.skip_bad);
    if (name, kind, options.long_text) == ("custom", Kind::Tokens, LongText::Windows) {
        let message =
            "windows of long texts are for classes and numbers: of words all are read anyway";
        return Err(Error::Usage(message.into()));
    }
    Ok(match (name, kind) {
        ("squad", _) => Box::new(span::Spans::new(false, options.spans, labels)?),
        ("squad2", _) => Box::new(span::Spans::new(true, options.spans, labels)?),
        ("swag", _) => Box::new(choice::Choice::swag()),
        ("codah", _) => Box::new(choice::Choice::codah(options.fold)?),
        ("ner", _) => Box::new(words::Words::conll(labels, &mut bad)?),
        ("custom", Kind::Tokens) => Box::new(words::Words::custom(source()?, labels, &mut bad)?),
        ("custom", kind) => {
            Box::new(sentences::Sentences::custom(source()?, kind, options, labels, &mut bad)?)
        }
        _ => return Err(Error::Usage(format!("{name:?} is no task"))),
    })
}

/// The columns of your own data.
struct OwnData {
    columns: Columns,
    /// Whether the last column is the label's.
    labelled: bool,
}

impl OwnData {
    /// Returns the number of text columns.
    fn texts(&self) -> usize {
        self.columns.len() - usize::from(self.labelled)
    }

    /// Returns an error if the number of text columns is not among these.
    fn check(&self, texts: &[usize], expected: &str) -> Result<()> {
        if texts.contains(&self.texts()) {
            return Ok(());
        }
        Err(Error::Usage(format!("columns {}: expected {expected}", self.columns)))
    }
}

/// Returns the class names that a fine-tuned model stores.
fn stored_labels(config: &Config) -> Result<Vec<String>> {
    match config.labels() {
        Some(labels) => Ok(labels.into_iter().map(str::to_owned).collect()),
        None => Err(Error::Failed(
            "the model's config.json names no classes (id2label): it was not fine-tuned for this task"
                .into(),
        )),
    }
}

/// The error for a file that must have labels and has none.
fn unlabelled(path: &Path) -> Error {
    let message = "has no label column: it can be predicted, but not trained on or measured";
    Error::file(path, message)
}

/// The error for measuring without labels.
fn nothing_to_measure() -> Error {
    Error::Failed("the labels are not known: there is nothing to measure by".into())
}

/// The remark on labels in a file for prediction.
fn labels_unused(path: &Path) -> String {
    format!(
        "{}: has labels, which are not used here; `cloze evaluate` measures by them",
        path.display()
    )
}
