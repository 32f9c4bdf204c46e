//! The description of fine-tuning in the records and the model card.

use serde_json::Value;

use crate::cli::records;
use crate::engine::optimizer::Optimizer;
use crate::error::Result;
use crate::eval::Scores;
use crate::model::Part;
use crate::model::weights::Model;
use crate::tasks::{Dataset, Task};
use crate::train::card::{Card, Measured as OnData};
use crate::train::record::{About, Chart, numbers};
use crate::view::page::Table;
use crate::view::style::number;

use super::run::{Run, Runs};
use super::summary::Several;
use super::{Args, Measured};

impl Args {
    /// Describes the command for the records.
    pub(super) fn about(
        &self,
        task: &dyn Task,
        model: &Model,
        train: &dyn Dataset,
        devs: &[Measured],
    ) -> Result<About> {
        let setup = self.engine.setup()?;
        let mut loss = Chart::new("Loss", task.loss());
        loss = loss.curve("training batches", "train/loss");
        let mut scores = Chart::new("Scores", task.metric());
        for (name, _) in devs {
            scores = scores.curve(*name, format!("{name}/{}", task.metric()));
        }
        let mut charts = vec![loss, scores];
        charts.extend(Chart::usual());
        Ok(About {
            title: format!("Fine-tuning on {}", task.name()),
            command: records::command(),
            tables: vec![
                self.recipe(model),
                self.data_table(train, devs)?,
                records::model(&model.config, &model.layout),
                records::machine(setup),
            ],
            charts,
        })
    }

    fn recipe(&self, model: &Model) -> Table {
        let batch = match self.batch_tokens {
            Some(tokens) => format!("{tokens} tokens"),
            None => format!("{} rows", self.batch),
        };
        let rate = if self.lr_search {
            "the best of 5e-5, 4e-5, 3e-5, 2e-5".to_owned()
        } else {
            format!("{:e}", self.lr())
        };
        let table = Table::new("Recipe")
            .row("task", &self.task.task)
            .row("model", records::name_of_model(&self.model))
            .row("epochs", self.epochs())
            .row("batch", batch)
            .row("highest learning rate", rate)
            .row("share of steps with a rising rate", self.warmup)
            .row("optimizer", self.optimizer.describe(Optimizer::default()))
            .row("dropout", model.config.hidden_dropout_prob)
            .row("number format", self.engine.dtype())
            .row("seed", self.seed);
        let table = match self.seeds {
            1 => table,
            seeds => table.row("seeds", seeds),
        };
        let table = match self.keep_best {
            true => table.row("kept", "the best epoch on the development data"),
            false => table,
        };
        match (self.from_scratch, self.frozen.describe(&model.config)) {
            (true, _) => table.row("encoder", "started from random weights"),
            (false, Some(reads)) => table.row("encoder", reads),
            (false, None) => table,
        }
    }

    fn data_table(&self, train: &dyn Dataset, devs: &[Measured]) -> Result<Table> {
        let size = |data: &dyn Dataset| {
            let tokens = data.examples().sequences.tokens();
            format!("{} rows, {tokens} tokens", data.rows())
        };
        let file = self.train_file()?.display().to_string();
        let mut table = Table::new("Data").row(format!("trained on {file}"), size(train));
        for ((name, data), (_, path)) in devs.iter().zip(self.dev_files()?) {
            table = table.row(format!("{name}: {}", path.display()), size(data.as_ref()));
        }
        Ok(table)
    }

    /// Returns the card of the model that was kept.
    pub(super) fn card(&self, about: About, task: &dyn Task, runs: &Runs) -> Card {
        let kept = runs.kept();
        let name = records::name_of(&self.out);
        let base = records::name_of_model(&self.model);
        let (dataset, config) = match hub(task.name()) {
            Some(hub) if self.train.is_none() && self.dev.is_none() => hub,
            _ => ("", None),
        };
        let results = kept.scores.iter().map(|(result, scores)| OnData {
            data: format!("{} ({result})", task.name()),
            dataset: if dataset.is_empty() { "own-data" } else { dataset }.into(),
            config: config.map(str::to_owned),
            split: split(task.name(), result),
            scores: numbers(scores)
                .filter(|(name, _)| is_metric(scores, name))
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        });
        let (pipeline, class) = transformers(task.part());
        let outcome = &kept.outcome;
        let stopped = if outcome.stopped() {
            let (done, planned) = (outcome.done(), outcome.planned);
            format!(" The run was stopped after {done} of {planned} steps.")
        } else {
            String::new()
        };
        let mut tables = about.tables;
        if runs.done.len() > 1 {
            tables.insert(0, all(task, &runs.done, kept.learning_rate));
        }
        let speed = Table::new("Speed")
            .row("steps", outcome.done())
            .row("seconds of training", format!("{:.1}", outcome.training.as_secs_f64()))
            .row("real tokens a second", format!("{:.0}", outcome.tokens_per_s()));
        tables.push(speed);
        Card {
            summary: format!(
                "{base} fine-tuned for {} with Cloze, learning rate {:e}, seed {}.{stopped}",
                task.name(),
                kept.learning_rate,
                kept.seed,
            ),
            pipeline,
            base_model: Some(base),
            datasets: Some(dataset.to_owned()).into_iter().filter(|id| !id.is_empty()).collect(),
            results: results.collect(),
            tables,
            command: about.command,
            usage: if self.frozen.is_set() {
                format!(
                    "`cloze predict {} --model {name} --input FILE`. The encoder is \
                     `BertModel.from_pretrained(\"{name}\")` with transformers, the head is in \
                     `head.safetensors`, whose header names the layers that it reads.",
                    task.name(),
                )
            } else {
                format!(
                    "`cloze predict {} --model {name} --input FILE`, or \
                     `{class}.from_pretrained(\"{name}\")` with transformers.",
                    task.name(),
                )
            },
            name,
        }
    }
}

/// Returns whether a score measures the model: counts of rows and thresholds don't.
fn is_metric(scores: &Scores, name: &str) -> bool {
    !name.contains("thresh") && scores.get(name).is_some_and(Value::is_f64)
}

/// Returns a table of the score of every run, and of the mean over the seeds of the kept learning rate.
fn all(task: &dyn Task, runs: &[Run], learning_rate: f64) -> Table {
    let mut table = Table::new(format!("Runs: {} on the development file", task.metric()));
    for run in runs {
        let which = format!("learning rate {:e}, seed {}", run.learning_rate, run.seed);
        table = table.row(which, number(run.score(task)));
    }
    let Some(several) = Several::of(runs, learning_rate) else {
        return table;
    };
    let (mean, deviation) = (&several.mean, &several.deviation);
    for ((name, mean), (_, deviation)) in numbers(mean).zip(numbers(deviation)) {
        let value = format!("{} ± {}", number(mean), number(deviation));
        table = table.row(format!("{name}, mean of {} seeds", several.seeds), value);
    }
    table
}

/// Returns the Hub's names of a task's data set and of its part; None for your own data.
fn hub(task: &str) -> Option<(&'static str, Option<&'static str>)> {
    const GLUE: &str = "nyu-mll/glue";
    Some(match task {
        "cola" => (GLUE, Some("cola")),
        "sst-2" => (GLUE, Some("sst2")),
        "mrpc" => (GLUE, Some("mrpc")),
        "sts-b" => (GLUE, Some("stsb")),
        "qqp" => (GLUE, Some("qqp")),
        "mnli" => (GLUE, Some("mnli")),
        "qnli" => (GLUE, Some("qnli")),
        "rte" => (GLUE, Some("rte")),
        "wnli" => (GLUE, Some("wnli")),
        "swag" => ("allenai/swag", Some("regular")),
        "codah" => ("jaredfern/codah", Some("codah")),
        "ner" => ("eriktks/conll2003", None),
        "squad" => ("rajpurkar/squad", None),
        "squad2" => ("rajpurkar/squad_v2", None),
        _ => return None,
    })
}

/// Returns the Hub's name of the split of a result.
fn split(task: &str, result: &str) -> &'static str {
    match (task, result) {
        ("mnli", "dev") => "validation_matched",
        ("mnli", _) => "validation_mismatched",
        (_, "test") => "test",
        _ => "validation",
    }
}

/// Returns the Hub's name of a head's task, and the class of transformers that loads it.
fn transformers(part: Part) -> (&'static str, &'static str) {
    match part {
        Part::TokenClassifier(_) => ("token-classification", "BertForTokenClassification"),
        Part::MultipleChoice => ("multiple-choice", "BertForMultipleChoice"),
        Part::Span => ("question-answering", "BertForQuestionAnswering"),
        _ => ("text-classification", "BertForSequenceClassification"),
    }
}
