//! One run of fine-tuning: training, checkpoints, evaluation.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Args, Head, Measured, Trained, write_model};
use crate::cli::checks::option_name;
use crate::cli::progress::TrainingBar;
use crate::cli::task::line;
use crate::engine::{Setup, TaskEngine};
use crate::error::Result;
use crate::note;

use crate::eval::Scores;
use crate::model::Config;
use crate::model::weights::Model;
use crate::tasks::{self, Dataset, Task};
use crate::text::WordPiece;
use crate::train::best::Best;
use crate::train::finetune::{Outcome, Settings, State, TaskReport, TaskStep};
use crate::train::identity::FinetuningIdentity;
use crate::train::{Finetuner, Records, Stop, checkpoint};

/// What all runs of a command share.
pub struct Runner<'a> {
    pub args: &'a Args,
    pub task: &'a dyn Task,
    pub train: &'a dyn Dataset,
    pub devs: &'a [Measured],
    pub wordpiece: &'a WordPiece,
    pub setup: Setup,
    /// The head on a frozen encoder.
    pub head: Option<&'a Head>,
    pub stop: Stop,
}

/// The results of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub seed: u64,
    pub learning_rate: f64,
    pub outcome: Outcome,
    /// Scores on every development file, by the name of the result.
    pub scores: Vec<(String, Scores)>,
    /// The epoch whose model was kept; None for the last.
    #[serde(default)]
    pub kept: Option<u32>,
}

impl Run {
    /// Returns the name of one of several runs, which is that of its folder of records.
    pub fn name(&self) -> String {
        format!("lr-{:e}-seed-{}", self.learning_rate, self.seed)
    }

    /// Returns the score by which models are compared.
    pub fn score(&self, task: &dyn Task) -> f64 {
        let scores = self.scores.first();
        scores.map_or(NO_SCORE, |(_, scores)| score(task, scores))
    }

    /// Returns the results as JSON, with the scores under the names of their files.
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
            object[name.as_str()] = Value::Object(scores.clone());
        }
        if let Some(epoch) = self.kept {
            object["kept_epoch"] = epoch.into();
        }
        if !outcome.epochs.is_empty() {
            let of = |(epoch, scores): &(u32, Scores)| json!({"epoch": epoch, "dev": scores});
            object["epochs"] = outcome.epochs.iter().map(of).collect();
        }
        object
    }
}

/// The results of a command.
pub struct Runs {
    /// The finished runs; if the first was stopped, only that one.
    pub done: Vec<Run>,
    /// Index of the run whose model is in `--out`.
    pub best: usize,
    /// A later run that was stopped.
    pub stopped: Option<Run>,
}

impl Runs {
    /// Returns the run whose model is in `--out`.
    pub fn kept(&self) -> &Run {
        &self.done[self.best]
    }

    /// Returns the run in which the command was stopped, if it was.
    pub fn unfinished(&self) -> Option<&Run> {
        let last = self.stopped.as_ref().or(self.done.last());
        last.filter(|run| run.outcome.stopped())
    }
}

/// Below every score. It is not minus infinity, because the best score is stored as JSON, which has no
/// such number.
const NO_SCORE: f64 = f64::MIN;

/// Returns the score by which models are compared.
fn score(task: &dyn Task, scores: &Scores) -> f64 {
    let score = scores.get(task.metric()).and_then(Value::as_f64);
    score.unwrap_or(NO_SCORE)
}

impl<'a> Runner<'a> {
    /// Creates a run over the training data.
    pub fn trainer(&self, model: Model, settings: Settings) -> Result<Finetuner<'a>> {
        let Model { config, layout, values, .. } = model;
        let engine = match self.head {
            None => self.setup.engine(&config, &layout, values)?,
            Some(head) => head.engine(&config, self.task.part(), self.setup, settings.seed)?,
        };
        Finetuner::new(engine, self.train.examples(), settings)
    }

    /// Trains, with `resume` from the state in `--out`. A stopped run leaves its state there; a finished one
    /// leaves its last checkpoint until its model is written.
    pub fn train(
        &self,
        mut trainer: Finetuner<'a>,
        config: Config,
        resume: bool,
        records: &mut Records,
    ) -> Result<Trained<'a>> {
        let FinetuningIdentity { seed, learning_rate, .. } = *trainer.identity();
        let out = self.args.out.as_path();
        let resumed = if resume { self::resume(&mut trainer, out)? } else { None };
        let mut run = Run {
            seed,
            learning_rate,
            outcome: Outcome::default(),
            scores: Vec::new(),
            kept: None,
        };
        if resumed.is_none() {
            Best::remove(out)?;
        }
        let keep_best = self.args.keep_best;
        let name = self.args.several().then(|| run.name());
        records.begin(name.as_deref(), trainer.steps(), resumed);
        let mut reporter = Reporter {
            bar: TrainingBar::new(trainer.steps(), trainer.outcome().done()),
            task: self.task,
            dev: (self.args.eval_epochs || keep_best).then_some(self.devs).and_then(<[_]>::first),
            scores: None,
            keep_in: keep_best.then_some(out),
            records,
        };
        let trained = trainer.run(Some(out), &mut reporter, &self.stop);
        reporter.bar.finish();
        trained?;
        run.outcome = trainer.outcome().clone();
        if run.outcome.stopped() {
            trainer.save(out)?;
        } else if keep_best {
            run.kept = Best::read(out)?.map(|best| best.epoch);
            Best::restore(out, trainer.engine())?;
        }
        Ok(Trained { run, trainer, config })
    }

    /// Evaluates on every development file. The model of a single run is written.
    pub fn measure(&self, trained: &mut Trained<'_>, records: &mut Records) -> Result<()> {
        // Before the evaluation, which may take long.
        if !self.args.several() {
            self.write(trained)?;
        }
        for (name, data) in self.devs {
            let scores = tasks::measure(trained.trainer.engine(), data.as_ref())?;
            records.measured(trained.run.outcome.done(), name, &scores);
            trained.run.scores.push((name.to_string(), scores));
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

/// Continues the run in `folder`. Returns the number of steps done; None if there is no run.
fn resume(trainer: &mut Finetuner<'_>, folder: &Path) -> Result<Option<u64>> {
    let Some(state) = State::read(folder)? else {
        note!("{} holds no checkpoint: starting a fresh run", folder.display());
        return Ok(None);
    };
    same_run(folder, &state.run.identity, trainer.identity())?;
    let step = state.step;
    note!("continuing after step {step}");
    for change in state.numerics_changes(trainer.numerics()) {
        note!("{change}");
    }
    trainer.resume(state)?;
    Ok(Some(step))
}

/// Checks that `now` continues the run in `folder`, whose identity is `was`.
pub fn same_run(folder: &Path, was: &FinetuningIdentity, now: &FinetuningIdentity) -> Result<()> {
    let was = FinetuningIdentity {
        precision: was.precision.or(now.precision),
        keep_best: was.keep_best.or(now.keep_best),
        model: was.model.clone().or(now.model.clone()),
        ..was.clone()
    };
    checkpoint::same_run(folder, &settings(&was), &settings(now))
}

/// Returns the settings that may not change, by the names of their options.
fn settings(identity: &FinetuningIdentity) -> Vec<(&'static str, String)> {
    let frozen = identity.frozen.clone();
    vec![
        ("--seed", identity.seed.to_string()),
        ("--epochs", identity.epochs.to_string()),
        ("a batch", identity.batch.clone()),
        ("--lr", identity.learning_rate.to_string()),
        ("--warmup", identity.warmup.to_string()),
        ("--optimizer", option_name(identity.optimizer.rule)),
        ("--adam-beta2", identity.optimizer.beta2.to_string()),
        ("--adam-epsilon", format!("{:e}", identity.optimizer.epsilon)),
        ("--weight-decay", identity.optimizer.weight_decay.to_string()),
        ("the dropout", identity.dropout.to_string()),
        ("--bad-steps", option_name(identity.guard.bad_steps)),
        ("--spike", identity.guard.spike.map_or("none".into(), |x| x.to_string())),
        ("--dtype", identity.precision.map_or_else(String::new, |p| p.to_string())),
        ("the number of examples", identity.examples.to_string()),
        ("the number of their tokens", identity.tokens.to_string()),
        ("the training data (by checksum)", format!("{:08x}", identity.checksum)),
        ("what the head reads", frozen.unwrap_or_else(|| "an encoder that is trained".to_owned())),
        ("--keep-best", identity.keep_best.unwrap_or_default().to_string()),
        ("the model", identity.model.as_ref().map_or_else(String::new, |m| m.to_string())),
        ("the model that it starts from (by checksum)", format!("{:08x}", identity.started_from)),
    ]
}

/// Shows and records a run, and evaluates after every epoch if required.
struct Reporter<'a> {
    bar: TrainingBar,
    task: &'a dyn Task,
    dev: Option<&'a Measured>,
    /// The last epoch's, until they are read.
    scores: Option<Scores>,
    /// The folder for the best epoch's parameters, if they are kept.
    keep_in: Option<&'a Path>,
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

    fn epoch(&mut self, epoch: u32, step: u64, engine: &mut dyn TaskEngine) -> Result<()> {
        if let Some((name, data)) = self.dev {
            let scores = tasks::measure(engine, data.as_ref())?;
            self.bar.say(&format!("epoch {epoch}: {}", line(&scores)));
            self.records.measured(step, name, &scores);
            if let Some(folder) = self.keep_in {
                let this = Best { epoch, score: score(self.task, &scores) };
                if Best::read(folder)?.is_none_or(|best| this.score > best.score) {
                    this.write(folder, engine)?;
                }
            }
            self.scores = Some(scores);
        }
        Ok(())
    }

    fn scores(&mut self) -> Option<Scores> {
        self.scores.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_without_a_score_can_be_kept_and_is_below_all_others() {
        let best = Best { epoch: 1, score: NO_SCORE };
        let written = serde_json::to_string(&best).unwrap();
        assert_eq!(serde_json::from_str::<Best>(&written).unwrap(), best);
        assert!(best.score < -1e300);
    }
}
