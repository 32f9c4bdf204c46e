//! What the records and the model card say about fine-tuning.

use std::path::Path;

use super::recipe::Recipe;
use super::run::{Run, Runs};
use super::selection::Selection;
use super::summary::Several;
use super::{Args, Measured};
use crate::cli::shared::checks::option_name;
use crate::cli::shared::records;
use crate::cli::shared::training::describe;
use crate::data::sequences::BatchSize;
use crate::error::Result;
use crate::model::Part;
use crate::model::weights::Model;
use crate::tasks::{Dataset, Task};
use crate::train::card::{Card, Measured as OnData, in_code};
use crate::train::finetune::Settings;
use crate::train::record::{About, Chart, numbers};
use crate::train::task::LOSS;
use crate::view::page::Table;
use crate::view::style::number;

impl Args {
    /// Returns what the records say about the command besides its numbers.
    pub(super) fn about(
        &self,
        task: &dyn Task,
        model: &Model,
        (train, devs): (&dyn Dataset, &[Measured]),
        (recipe, selection): (&Recipe, &Selection),
    ) -> Result<About> {
        let setup = self.training.engine.setup()?;
        let mut loss = Chart::new("Loss", task.loss());
        loss = loss.curve("training batches", "train/loss");
        let metric = &selection.metric;
        let mut scores = Chart::new("Scores", metric);
        for (name, _) in devs {
            loss = loss.curve(*name, format!("{name}/{LOSS}"));
            scores = scores.curve(*name, format!("{name}/{metric}"));
        }
        let mut charts = vec![loss, scores];
        charts.extend(Chart::usual());
        Ok(About {
            title: format!("Fine-tuning on {}", self.data_name()),
            command: records::command(),
            tables: vec![
                self.recipe_table(model, recipe, selection),
                self.data_table(train, devs)?,
                records::model(&model.config, &model.layout),
                records::machine(setup),
            ],
            charts,
        })
    }

    fn recipe_table(&self, model: &Model, recipe: &Recipe, selection: &Selection) -> Table {
        let batch = match recipe.batch {
            BatchSize::Tokens(tokens) => format!("{tokens} tokens"),
            BatchSize::Examples(rows) => format!("{rows} rows"),
        };
        let rates: Vec<String> = recipe.rates.iter().map(|rate| format!("{rate:e}")).collect();
        let rate = match &rates[..] {
            [rate] => rate.clone(),
            rates => format!("the best of {}", rates.join(", ")),
        };
        let (length, name) = match recipe.max_steps {
            Some(steps) => (steps, "steps"),
            None => (u64::from(recipe.epochs), "epochs"),
        };
        let usual = Settings::default();
        let mut table = Table::new("Recipe")
            .row("task", &self.task.task)
            .row("model", records::name_of_model(&self.model))
            .row(name, length)
            .row("batch", batch)
            .row("highest learning rate", rate)
            .row("learning rate after the warm-up", option_name(self.training.decay(usual.decay)))
            .row("share of steps with a rising rate", self.training.warmup(usual.warmup))
            .row("optimizer", describe(self.training.optimizer(usual.optimizer)))
            .row("dropout", model.config.hidden_dropout_prob)
            .row("number format", self.training.engine.dtype())
            .row("seed", self.seed);
        if self.seeds > 1 {
            table = table.row("seeds", self.seeds);
        }
        if selection.keep_best {
            let metric = &selection.metric;
            table = table.row("kept", format!("the epoch with the best {metric}"));
        }
        if let Some(patience) = selection.patience {
            table = table.row("epochs without a better one that end the run", patience);
        }
        let Recipe { tuning, loss, balanced, .. } = recipe;
        if let Some(layers) = tuning.freeze {
            table = table.row("frozen", format!("embeddings and {layers} layers"));
        }
        if tuning.layer_decay < 1.0 {
            table = table.row("learning rate from layer to layer", tuning.layer_decay);
        }
        if !loss.class_weights.is_empty() {
            table = table.row("class weights", format!("{:?}", loss.class_weights));
        }
        if loss.label_smoothing > 0.0 {
            table = table.row("label smoothing", loss.label_smoothing);
        }
        if *balanced {
            table = table.row("rows of an epoch", "as many from each class as from any other");
        }
        match (self.from_scratch, self.frozen.describe(&model.config)) {
            (true, _) => table.row("encoder", "started from random weights"),
            (false, Some(frozen)) => table.row("encoder", frozen),
            (false, None) => table,
        }
    }

    fn data_table(&self, train: &dyn Dataset, devs: &[Measured]) -> Result<Table> {
        let size = |data: &dyn Dataset| {
            let tokens = data.examples().sequences.tokens();
            format!("{} rows, {tokens} tokens", data.rows())
        };
        // A file of the Hub lies in the cache, under a long path.
        let shown = |set: &Option<String>, path: &Path| match set {
            Some(set) => format!("{set}, {}", file_name(path)),
            None => path.display().to_string(),
        };
        let file = self.train_file()?;
        let trained = shown(&self.hub.train, &file);
        let mut table = Table::new("Data").row("trained on", format!("{trained}: {}", size(train)));
        let (files, split) = self.dev_files(&file)?;
        for ((name, data), (_, path)) in devs.iter().zip(files) {
            let measured = match split {
                Some(_) => format!("held out of {trained}"),
                None => shown(&self.hub.dev, &path),
            };
            table = table.row(*name, format!("{measured}: {}", size(data.as_ref())));
        }
        Ok(table)
    }

    /// Returns the name of the task, or of your own data.
    fn data_name(&self) -> String {
        let task = &self.task.task;
        match (&self.hub.train, self.train_file()) {
            (Some(set), _) => set.clone(),
            (None, Ok(file)) if task == "custom" => file_name(&file),
            _ => task.clone(),
        }
    }

    /// Returns the card of the model that was kept.
    pub(super) fn card(
        &self,
        about: About,
        task: &dyn Task,
        selection: &Selection,
        runs: &Runs,
    ) -> Card {
        let kept = runs.kept();
        let name = records::name_of(&self.out);
        let base = records::name_of_model(&self.model);
        let hub = hub_name(task.name()).filter(|_| self.train.is_none() && self.dev.is_none());
        let (official, config) = hub.unzip();
        let held_out = self.dev.is_none() && (self.split.is_some() || self.hub.train.is_some());
        let own = if held_out { &self.hub.train } else { &self.hub.dev };
        let results = kept.scores.iter().map(|(result, scores)| OnData {
            data: format!("{} ({result})", self.data_name()),
            dataset: own.as_deref().or(official).unwrap_or("own-data").to_owned(),
            config: config.clone().flatten(),
            split: if held_out { "train" } else { split(task.name(), result) },
            scores: numbers(scores)
                // Counts of rows and thresholds don't measure the model.
                .filter(|(name, _)| !name.contains("thresh") && scores[*name].is_f64())
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        });
        let (pipeline, class) = transformers(task.part());
        let task_name = task.name();
        let named = in_code(&name);
        let predict = format!("`cloze predict {task_name} --model {named} --input FILE`");
        let outcome = &kept.outcome;
        let (done, planned) = (outcome.done(), outcome.planned);
        let stopped = match outcome.stopped() {
            true => format!(" The run was stopped after {done} of {planned} steps."),
            false => String::new(),
        };
        let mut tables = about.tables;
        if runs.done.len() > 1 {
            tables.insert(0, all(selection, &runs.done, kept.learning_rate));
        }
        let seconds = format!("{:.1}", outcome.training.as_secs_f64());
        let tokens_per_s = format!("{:.0}", outcome.tokens_per_s());
        let speed = Table::new("Speed")
            .row("steps", done)
            .row("seconds of training", seconds)
            .row("real tokens a second", tokens_per_s);
        tables.push(speed);
        Card {
            summary: format!(
                "{base} fine-tuned on {} with Cloze, learning rate {:e}, seed {}.{stopped}",
                self.data_name(),
                kept.learning_rate,
                kept.seed,
            ),
            pipeline,
            base_model: Some(base),
            datasets: Vec::from_iter(self.hub.train.as_deref().or(official).map(str::to_owned)),
            results: results.collect(),
            tables,
            command: about.command,
            usage: if self.frozen.on() {
                format!(
                    "{predict}. The encoder is `AutoModel.from_pretrained(\"{named}\")` with \
                     transformers, the head is in `head.safetensors`, whose header says what it reads.",
                )
            } else {
                format!("{predict}, or `{class}.from_pretrained(\"{named}\")` with transformers.")
            },
            name,
        }
    }
}

/// Returns a file's name without its folder.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Lists the score of every run, and the mean over the seeds of the kept learning rate.
fn all(selection: &Selection, runs: &[Run], learning_rate: f64) -> Table {
    let mut table = Table::new("Runs: the score on the development data");
    for run in runs {
        let which = format!("learning rate {:e}, seed {}", run.learning_rate, run.seed);
        table = table.row(which, run.shown(selection));
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

/// Returns the Hub's name of a task's data set, and of its part in it; None for your own data.
fn hub_name(task: &str) -> Option<(&'static str, Option<String>)> {
    Some(match task {
        "ax" | "custom" => return None,
        "swag" => ("allenai/swag", Some("regular".into())),
        "codah" => ("jaredfern/codah", Some("codah".into())),
        "ner" => ("eriktks/conll2003", None),
        "squad" => ("rajpurkar/squad", None),
        "squad2" => ("rajpurkar/squad_v2", None),
        glue => ("nyu-mll/glue", Some(glue.replace('-', ""))),
    })
}

/// Returns the Hub's name of the rows behind a result.
fn split(task: &str, result: &str) -> &'static str {
    match (task, result) {
        ("mnli", "dev") => "validation_matched",
        ("mnli", _) => "validation_mismatched",
        (_, "test") => "test",
        _ => "validation",
    }
}

/// Returns the Hub's name for a head's task, and the class of transformers that loads the head.
fn transformers(part: Part) -> (&'static str, &'static str) {
    match part {
        Part::TokenClassifier(_) => ("token-classification", "AutoModelForTokenClassification"),
        Part::MultipleChoice => ("multiple-choice", "AutoModelForMultipleChoice"),
        Part::Span => ("question-answering", "AutoModelForQuestionAnswering"),
        _ => ("text-classification", "AutoModelForSequenceClassification"),
    }
}
