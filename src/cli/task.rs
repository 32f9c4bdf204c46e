//! What `finetune`, `evaluate` and `predict` share: the options that name a task and its data, and
//! scores in words.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::data::bad::BadRows;
use crate::data::table::Columns;
use crate::engine::{Engine, Setup};
use crate::error::{Error, Result};
use crate::eval::Scores;
use crate::hub;
use crate::model::{Config, weights};
use crate::tasks::{self, Dataset, Kind, Labels, Options, Reading, Role, SpanOptions, Task};
use crate::text::WordPiece;

use super::model::Loaded;

#[derive(clap::Args)]
pub struct TaskArgs {
    /// The task
    #[arg(value_parser = PossibleValuesParser::new(tasks::names()))]
    pub task: String,
    /// Longest sequence in tokens; longer texts are cut [default: 128; squad and
    /// squad2 384, swag and codah 80]
    #[arg(long, value_name = "N")]
    max_len: Option<usize>,
    /// Columns of your own data, by name or, in files without a header, by number: text[,pair],label,
    /// or words,labels
    #[arg(long, value_name = "A[,B],LABEL")]
    columns: Option<String>,
    /// What the labels of your own data are [default: as the model was fine-tuned for; to fine-tune,
    /// class]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Which fifth of codah is kept for measuring
    #[arg(long, default_value_t = 1, value_name = "1..5")]
    fold: u32,
    /// SQuAD: pieces by which a window is farther on than the one before
    #[arg(long, default_value_t = SpanOptions::default().stride, value_name = "N")]
    doc_stride: usize,
    /// SQuAD: most pieces of a question
    #[arg(long, default_value_t = SpanOptions::default().max_question, value_name = "N")]
    max_query_len: usize,
    /// SQuAD: most pieces of an answer
    #[arg(long, default_value_t = SpanOptions::default().max_answer, value_name = "N")]
    max_answer_len: usize,
    /// SQuAD: answers told for each question
    #[arg(long, default_value_t = SpanOptions::default().n_best, value_name = "N")]
    n_best: usize,
    /// SQuAD 2.0: answer nothing where the score of no answer exceeds the best answer's by more
    /// [default: as fine-tuning chose it; else the best on the data]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    null_threshold: Option<f64>,
    /// Leave out bad rows and say how many there were, in place of stopping at the first
    #[arg(long)]
    skip_bad: bool,
}

/// What [`TaskArgs::ask`] gives.
pub struct Asked {
    pub task: Box<dyn Task>,
    pub engine: Box<dyn Engine>,
    pub data: Box<dyn Dataset>,
}

impl TaskArgs {
    /// The task with its labels.
    pub fn open(&self, labels: Labels<'_>) -> Result<Box<dyn Task>> {
        let options = Options {
            columns: self.columns.as_deref().map(Columns::parse).transpose()?,
            kind: self.kind,
            skip_bad: self.skip_bad,
            fold: self.fold,
            spans: SpanOptions {
                stride: self.doc_stride,
                max_question: self.max_query_len,
                max_answer: self.max_answer_len,
                n_best: self.n_best,
                threshold: self.null_threshold,
            },
        };
        tasks::open(&self.task, &options, labels)
    }

    /// A fine-tuned model with its task, and the data that it is asked about.
    pub fn ask(&self, model: &Path, data: &Path, role: Role, setup: Setup) -> Result<Asked> {
        let folder = hub::folder_of(model)?;
        let config = Config::read(&folder.join(weights::CONFIG))?;
        let task = self.open(Labels::Model(&config))?;
        let made_for = config.other.get("finetuning_task").and_then(Value::as_str);
        if let Some(other) = made_for.filter(|&other| !akin(other, task.name())) {
            eprintln!(
                "{}: was fine-tuned for {other}, not for {}",
                folder.display(),
                task.name()
            );
        }
        let Loaded { engine, wordpiece } = Loaded::read_task(&folder, task.part(), setup)?;
        let data = self.read(task.as_ref(), data, role, &config, &wordpiece, None)?;
        Ok(Asked { task, engine, data })
    }

    /// The longest sequence, refused where the model has fewer positions.
    pub fn max_len(&self, config: &Config) -> Result<usize> {
        let usual = tasks::usual_max_len(&self.task).min(config.max_position_embeddings);
        max_len(config, self.max_len.unwrap_or(usual))
    }

    /// Reads a file and says on stderr what is to be said of it.
    pub fn read(
        &self,
        task: &dyn Task,
        path: &Path,
        role: Role,
        config: &Config,
        wordpiece: &WordPiece,
        limit: Option<usize>,
    ) -> Result<Box<dyn Dataset>> {
        let mut bad = BadRows::skipped_if(self.skip_bad);
        let mut notes = Vec::new();
        let reading = Reading {
            wordpiece,
            max_len: self.max_len(config)?,
            limit,
            bad: &mut bad,
            notes: &mut notes,
        };
        let dataset = task.read(path, role, reading)?;
        for note in bad.told().iter().chain(&notes) {
            eprintln!("{note}");
        }
        Ok(dataset)
    }
}

/// Whether a model that was fine-tuned for one task may well be asked another's questions. Names are
/// Cloze's or those of transformers' scripts.
fn akin(made_for: &str, task: &str) -> bool {
    const FAMILIES: [[&str; 2]; 3] = [["squad", "squad2"], ["swag", "codah"], ["mnli", "ax"]];
    let names = [made_for, task];
    made_for.replace('-', "") == task.replace('-', "")
        || names.contains(&"custom")
        || FAMILIES
            .iter()
            .any(|family| names.iter().all(|name| family.contains(name)))
}

/// The longest sequence asked for, refused where the model has fewer positions.
pub fn max_len(config: &Config, asked: usize) -> Result<usize> {
    if asked > config.max_position_embeddings {
        return Err(Error::Usage(format!(
            "--max-len {asked}: the model has only {} positions",
            config.max_position_embeddings
        )));
    }
    Ok(asked)
}

/// Scores in a line for people.
pub fn line(scores: &Scores) -> String {
    let told = |(name, value): (&String, &Value)| match value {
        Value::Number(number) if number.is_f64() => {
            Some(format!("{name} {:.4}", number.as_f64().unwrap_or(f64::NAN)))
        }
        Value::Number(number) => Some(format!("{name} {number}")),
        // Details by type stand in the JSON only.
        _ => None,
    };
    scores
        .iter()
        .filter_map(told)
        .collect::<Vec<_>>()
        .join(", ")
}
