//! `cloze finetune`: a pre-trained model trained for a task.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::data::glue::{self as data, Labels, Task};
use crate::data::sequences::BatchSize;
use crate::error::{Error, Result};
use crate::eval::Metric;
use crate::hub;
use crate::model::weights::{self, Model};
use crate::train::Stop;
use crate::train::finetune::{Finetuner, Outcome, Settings};
use crate::train::optimizer::{Optimizer, Rule};
use crate::view::LineChart;

use super::engine::EngineArgs;
use super::glue;
use super::memory;
use super::model::wordpiece_of;
use super::progress::TrainingBar;

#[derive(clap::Args)]
pub struct Args {
    /// The task
    #[arg(value_parser = glue::names())]
    task: String,
    /// Folder with the task's official files, train.tsv and dev.tsv
    #[arg(long, value_name = "DIR", required_unless_present_all = ["train", "dev"])]
    data: Option<PathBuf>,
    /// File to train on in place of the official one
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// File to measure on in place of the official one
    #[arg(long, value_name = "FILE")]
    dev: Option<PathBuf>,
    /// Folder of the pre-trained model, or the name of one on the Hub
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Folder for the fine-tuned model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Train on the first N rows only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[arg(long, default_value_t = 3)]
    epochs: u32,
    /// Sequences a step
    #[arg(long, default_value_t = 32, value_name = "N")]
    batch: usize,
    /// Tokens a step, in place of a number of sequences
    #[arg(long, value_name = "N", conflicts_with = "batch")]
    batch_tokens: Option<usize>,
    /// Sequences that go through the model at once; the gradients of a step's parts are added up
    #[arg(long, value_name = "N")]
    micro_batch: Option<usize>,
    /// Highest learning rate, reached after a tenth of the steps
    #[arg(long, default_value_t = 5e-5)]
    lr: f64,
    /// What turns gradients into updates
    #[arg(long, value_enum, default_value_t = Rule::Adamw)]
    optimizer: Rule,
    /// Longest sequence in tokens; longer texts are cut
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_len: usize,
    /// Key of the order of rows, of dropout, and of the head's first weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    args.check()?;
    let task = glue::task(&args.task)?;
    let folder = hub::folder_of(&args.model)?;
    let mut model = Model::read(&folder, &glue::parts(task), Some(args.seed))?;
    let wordpiece = wordpiece_of(&folder, &model.config)?;
    let max_len = glue::max_len(&model.config, args.max_len)?;
    let train_file = args.file(args.train.as_deref(), data::TRAIN)?;
    let dev_file = args.file(args.dev.as_deref(), task.dev)?;
    let train = glue::labelled(task, &train_file, &wordpiece, max_len, args.limit)?;
    let dev = glue::labelled(task, &dev_file, &wordpiece, max_len, None)?;
    std::fs::create_dir_all(&args.out).map_err(|e| Error::io(&args.out, e))?;
    for part in &model.fresh {
        eprintln!(
            "the {} starts from random weights",
            weights::describe(*part)
        );
    }
    set_labels(&mut model, task);

    let settings = args.settings();
    let setup = args.engine.setup()?;
    let largest = memory::largest(&train.sequences, settings.batch, settings.micro_batch);
    memory::tell(
        &model.config,
        &model.layout,
        setup,
        largest,
        "--micro-batch",
    )?;
    let (config, layout) = (model.config.clone(), model.layout.clone());
    let engine = setup.engine(&config, &layout, model.values)?;
    let rows = train.targets.len();
    let mut trainer = Finetuner::new(engine, train, settings);
    let stop = Stop::on_signals()?;
    let mut bar = TrainingBar::new(trainer.steps(), 0);
    let outcome = trainer.run(
        &mut |done| bar.advance(done.step, done.loss, done.tokens_per_s),
        &stop,
    );
    bar.finish();
    let outcome = outcome?;
    let parameters = trainer.engine().parameters()?;
    weights::write(&args.out, &config, &layout, &parameters)?;
    wordpiece.save(&args.out)?;
    let metrics = trainer.evaluate(&dev, task.metrics)?;
    args.chart(task, &outcome)?;
    args.summary(task, rows, &outcome, &metrics)
}

/// What a later run needs to name the model's answers, as transformers stores it.
fn set_labels(model: &mut Model, task: &Task) {
    let config = &mut model.config;
    let problem = match task.labels {
        Labels::Classes(names) => {
            config.set_labels(names);
            "single_label_classification"
        }
        Labels::Score => {
            config.set_labels(&["score"]);
            "regression"
        }
    };
    config.other.insert("problem_type".into(), problem.into());
    config
        .other
        .insert("finetuning_task".into(), task.name.into());
}

impl Args {
    fn check(&self) -> Result<()> {
        for (name, value) in [
            ("--epochs", self.epochs as usize),
            ("--batch", self.batch),
            ("--batch-tokens", self.batch_tokens.unwrap_or(1)),
            ("--micro-batch", self.micro_batch.unwrap_or(1)),
            ("--limit", self.limit.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(Error::Usage(format!("{name} 0: at least 1 is needed")));
            }
        }
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return Err(Error::Usage(format!(
                "--lr {}: a positive number is needed",
                self.lr
            )));
        }
        Ok(())
    }

    fn file(&self, given: Option<&Path>, official: &str) -> Result<PathBuf> {
        if let Some(path) = given {
            return Ok(path.to_path_buf());
        }
        // The parser asks for --data unless both files are given.
        let folder = self.data.as_deref().unwrap_or(Path::new("."));
        let plain = folder.join(official);
        let packed = folder.join(format!("{official}.gz"));
        Ok(if packed.exists() && !plain.exists() {
            packed
        } else {
            plain
        })
    }

    fn settings(&self) -> Settings {
        Settings {
            epochs: self.epochs,
            batch: match self.batch_tokens {
                Some(tokens) => BatchSize::Tokens(tokens),
                None => BatchSize::Sequences(self.batch),
            },
            learning_rate: self.lr,
            optimizer: Optimizer {
                rule: self.optimizer,
                ..Optimizer::default()
            },
            micro_batch: self.micro_batch.unwrap_or(0),
            seed: self.seed,
            ..Settings::default()
        }
    }

    fn chart(&self, task: &Task, outcome: &Outcome) -> Result<()> {
        let folder = self.out.join("trainer");
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let points: Vec<(f64, f64)> = outcome
            .steps
            .iter()
            .map(|s| (s.step as f64, s.loss))
            .collect();
        let loss = match task.labels {
            Labels::Classes(_) => "cross-entropy (nats)",
            Labels::Score => "squared error",
        };
        LineChart::new(format!("Fine-tuning on {}", task.name))
            .axes("step", loss)
            .smoothed("training batches", &points)
            .save(folder.join("loss.svg"))
    }

    fn summary(
        &self,
        task: &Task,
        rows: usize,
        outcome: &Outcome,
        metrics: &[(Metric, f64)],
    ) -> Result<()> {
        let steps = outcome.steps.len() as u64;
        let last = &outcome.steps[outcome.steps.len().saturating_sub(50)..];
        // One batch is noisy: the last loss is the mean of the last fifty.
        let loss_last = last.iter().map(|s| s.loss).sum::<f64>() / last.len().max(1) as f64;
        let seconds = outcome.training.as_secs_f64();
        let tokens_per_s = outcome.tokens as f64 / seconds.max(1e-9);
        let stopped = steps < outcome.planned;
        if self.json {
            let object = json!({
                "task": task.name,
                "rows": rows,
                "steps": steps,
                "stopped": stopped,
                "train_seconds": seconds,
                "real_tokens_per_s": tokens_per_s,
                "loss_last": loss_last,
                "dev": glue::json(metrics),
            });
            println!("{object}");
        } else {
            println!(
                "{steps} steps on {rows} rows in {seconds:.1} s, {tokens_per_s:.0} tokens/s; loss of the last steps {loss_last:.3}"
            );
            println!("dev: {}", glue::line(metrics));
            println!("model in {}", self.out.display());
        }
        if stopped {
            eprintln!(
                "stopped after step {steps} of {}: the model is as trained as it was then",
                outcome.planned
            );
        }
        Ok(())
    }
}
