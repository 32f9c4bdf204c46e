//! What `finetune` and `evaluate` share: GLUE's rows made ready for a model, and results as JSON.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value};

use crate::data::Sequences;
use crate::data::glue::{Row, TASKS, Target, Task};
use crate::error::{Error, Result};
use crate::eval::Metric;
use crate::model::{Config, Part};
use crate::text::WordPiece;
use crate::train::finetune::Labelled;

/// The names that the command line takes for a task.
pub fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(TASKS.iter().map(|task| task.name))
}

/// The task of a name that the parser has let through.
pub fn task(name: &str) -> Result<&'static Task> {
    Task::find(name).ok_or_else(|| Error::Usage(format!("{name:?} is no task of GLUE")))
}

/// The parts of a model for the task.
pub fn parts(task: &Task) -> Vec<Part> {
    Part::SequenceClassifier(task.outputs()).with_encoder()
}

/// Reads labelled rows and tokenises them; `limit` takes the first so many.
pub fn labelled(
    task: &Task,
    path: &Path,
    wordpiece: &WordPiece,
    max_len: usize,
    limit: Option<usize>,
) -> Result<Labelled> {
    let mut rows = task.read(path)?;
    if let Some(limit) = limit {
        rows.truncate(limit);
    }
    let targets: Vec<Target> = rows.iter().filter_map(|row| row.target).collect();
    if targets.len() < rows.len() {
        let message = "has no label column: it can be predicted, but not trained on or measured";
        return Err(Error::file(path, message));
    }
    let texts: Vec<(&str, Option<&str>)> = rows
        .iter()
        .map(|Row { a, b, .. }| (a.as_str(), b.as_deref()))
        .collect();
    Ok(Labelled {
        sequences: Sequences::tokenise(wordpiece, &texts, max_len)?,
        targets,
    })
}

/// The longest sequence that a model takes, or the one asked for.
pub fn max_len(config: &Config, asked: usize) -> Result<usize> {
    if asked > config.max_position_embeddings {
        return Err(Error::Usage(format!(
            "--max-len {asked}: the model has only {} positions",
            config.max_position_embeddings
        )));
    }
    Ok(asked)
}

/// Metrics as a JSON object.
pub fn json(metrics: &[(Metric, f64)]) -> Value {
    let entries = metrics
        .iter()
        .map(|(metric, value)| (metric.name().to_owned(), Value::from(*value)));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Metrics in a line for people.
pub fn line(metrics: &[(Metric, f64)]) -> String {
    let parts: Vec<String> = metrics
        .iter()
        .map(|(metric, value)| format!("{} {value:.4}", metric.name()))
        .collect();
    parts.join(", ")
}
