//! One run of fine-tuning: training, checkpoints, measuring.

use std::path::Path;

use serde_json::{Value, json};

use super::{Args, Head, Measured, Trained, write_model};
use crate::cli::progress::TrainingBar;
use crate::cli::task::line;
use crate::engine::{Engine, Setup};
use crate::error::{Error, Result};
use crate::eval::Scores;
use crate::model::weights::Model;
use crate::tasks::{self, Dataset, Task};
use crate::text::WordPiece;
use crate::train::finetune::{Identity, Outcome, Settings, State, TaskReport, TaskStep};
use crate::train::{Finetuner, Records, Stop, checkpoint};

/// What every run of a command shares.
pub struct Runner<'a> {
    pub args: &'a Args,
    pub task: &'a dyn Task,
    pub train: &'a dyn Dataset,
    pub devs: &'a [Measured],
    pub wordpiece: &'a WordPiece,
    pub setup: Setup,
    /// What is trained on an encoder that stands still.
    pub head: Option<&'a Head>,
    pub stop: Stop,
}

/// What a run came to.
pub struct Run {
    pub seed: u64,
    pub learning_rate: f64,
    pub outcome: Outcome,
    /// Scores on every development file, by the name of the result.
    pub scores: Vec<(&'static str, Scores)>,
    /// Scores on the first development file after each epoch, where they were asked for.
    pub epochs: Vec<(u32, Scores)>,
}

impl Run {
    /// The score that the task is judged by.
    pub fn score(&self, task: &dyn Task) -> f64 {
        let scores = self.scores.first().map(|(_, scores)| scores);
        let score = scores.and_then(|scores| scores.get(task.metric())?.as_f64());
        score.unwrap_or(f64::NEG_INFINITY)
    }

    /// As JSON, the scores under the names of their results.
    pub fn json(&self) -> Value {
        let outcome = &self.outcome;
        let mut object = json!({
            "seed": self.seed,
            "lr": self.learning_rate,
            "steps": outcome.done(),
            "stopped": outcome.stopped(),
            "train_seconds": outcome.training.as_secs_f64(),
            "real_tokens_per_s": outcome.tokens_per_s(),
            "loss_last": outcome.last_loss(),
        });
        if outcome.skipped > 0 {
            object["steps_left_out"] = outcome.skipped.into();
        }
        for (name, scores) in &self.scores {
            object[*name] = Value::Object(scores.clone());
        }
        if !self.epochs.is_empty() {
            let of = |(epoch, scores): &(u32, Scores)| json!({"epoch": epoch, "dev": scores});
            object["epochs"] = self.epochs.iter().map(of).collect();
        }
        object
    }
}

impl<'a> Runner<'a> {
    /// Trains and measures. A run that was stopped leaves its state in `--out`.
    pub fn train(
        &self,
        model: Model,
        settings: Settings,
        records: &mut Records,
    ) -> Result<Trained<'a>> {
        let (seed, learning_rate) = (settings.seed, settings.learning_rate);
        let config = model.config;
        let engine = match self.head {
            None => self.setup.engine(&config, &model.layout, model.values)?,
            Some(head) => head.engine(&config, self.task.part(), self.setup, seed)?,
        };
        let mut trainer = Finetuner::new(engine, self.train.examples(), settings);
        let out = self.args.out.as_path();
        let resumed = if self.args.resume {
            resume(&mut trainer, out)?
        } else {
            None
        };
        let name = format!("lr-{learning_rate:e}-seed-{seed}");
        let name = self.args.several().then_some(name.as_str());
        records.begin(name, trainer.steps(), resumed);
        let mut reporter = Reporter {
            bar: TrainingBar::new(trainer.steps(), trainer.outcome().done()),
            dev: self
                .args
                .eval_epochs
                .then_some(self.devs)
                .and_then(<[_]>::first),
            epochs: Vec::new(),
            records,
        };
        let trained = trainer.run(Some(out), &mut reporter, &self.stop);
        reporter.bar.finish();
        trained?;
        let outcome = trainer.outcome().clone();
        if outcome.stopped() {
            trainer.save(out)?;
        } else {
            checkpoint::remove(out)?;
        }
        let epochs = reporter.epochs;
        let mut trained = Trained {
            run: Run {
                seed,
                learning_rate,
                outcome,
                scores: Vec::new(),
                epochs,
            },
            trainer,
            config,
        };
        self.measure(&mut trained, records)?;
        records.end();
        Ok(trained)
    }

    fn measure(&self, trained: &mut Trained<'_>, records: &mut Records) -> Result<()> {
        // Of a single run the model is safe before it is measured: that may take long.
        if !self.args.several() {
            self.write(trained)?;
        }
        for (name, data) in self.devs {
            let scores = tasks::measure(trained.trainer.engine(), data.as_ref())?;
            records.measured(trained.run.outcome.done(), name, &scores);
            trained.run.scores.push((name, scores));
        }
        if let Some((_, scores)) = trained.run.scores.first() {
            let before = trained.config.clone();
            self.task.remember(scores, &mut trained.config);
            if !self.args.several() && trained.config != before {
                self.write(trained)?;
            }
        }
        Ok(())
    }

    /// Writes the model into `--out`.
    pub fn write(&self, trained: &mut Trained<'_>) -> Result<()> {
        write_model(&self.args.out, trained, self.head, self.wordpiece)
    }
}

/// Continues the run that `folder` holds, if it is the same; gives the steps that are done.
fn resume(trainer: &mut Finetuner<'_>, folder: &Path) -> Result<Option<u64>> {
    let Some(state) = State::read(folder)? else {
        eprintln!(
            "{} holds no checkpoint: starting a fresh run",
            folder.display()
        );
        return Ok(None);
    };
    let (was, now) = (told(&state.run.identity), told(&trainer.identity()));
    let mut differences = was.iter().zip(&now).filter(|(was, now)| was != now);
    if let Some(((what, was), (_, now))) = differences.next() {
        return Err(Error::Usage(format!(
            "the run in {} can't be continued: {what} was {was} and is {now} now",
            folder.display()
        )));
    }
    if state.parameters.len() != trainer.engine().layout().total() {
        return Err(Error::Usage(format!(
            "the run in {} can't be continued: it is of another model",
            folder.display()
        )));
    }
    let step = state.step;
    eprintln!("continuing after step {step}");
    trainer.resume(state)?;
    Ok(Some(step))
}

/// What makes a run this run, in the words of the command line.
fn told(identity: &Identity) -> [(&'static str, String); 8] {
    [
        ("--seed", identity.seed.to_string()),
        ("--epochs", identity.epochs.to_string()),
        ("a batch", identity.batch.clone()),
        ("--lr", identity.learning_rate.to_string()),
        (
            "--optimizer",
            format!("{:?}", identity.optimizer).to_lowercase(),
        ),
        ("the number of examples", identity.examples.to_string()),
        ("the number of their tokens", identity.tokens.to_string()),
        (
            "the order of the parameters in memory",
            identity.order.to_string(),
        ),
    ]
}

/// Shows and records a run, and measures after epochs where that is asked for.
struct Reporter<'a> {
    bar: TrainingBar,
    dev: Option<&'a Measured>,
    epochs: Vec<(u32, Scores)>,
    records: &'a mut Records,
}

impl TaskReport for Reporter<'_> {
    fn step(&mut self, step: &TaskStep) {
        self.bar.advance(step.step, step.loss, step.tokens_per_s);
        self.records.trained(step);
    }

    fn skipped(&mut self, step: u64, why: &str) {
        self.bar.say(&format!("step {step} left out: {why}"));
        self.records.left_out(step, why);
    }

    fn epoch(&mut self, epoch: u32, step: u64, engine: &mut dyn Engine) -> Result<()> {
        if let Some((name, data)) = self.dev {
            let scores = tasks::measure(engine, data.as_ref())?;
            self.bar.say(&format!("epoch {epoch}: {}", line(&scores)));
            self.records.measured(step, name, &scores);
            self.epochs.push((epoch, scores));
        }
        Ok(())
    }
}
