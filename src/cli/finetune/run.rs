//! One run of fine-tuning: training, checkpoints, measuring.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::recipe::Recipe;
use super::selection::{NO_SCORE, Selection};
use super::{Args, Head, Measured};
use crate::cli::shared::checks::option_name;
use crate::cli::shared::progress::TrainingBar;
use crate::cli::shared::task::line;
use crate::cli::shared::training::{or_empty, read_state, spike};
use crate::engine::{Setup, TaskEngine};
use crate::error::Result;
use crate::eval::{ClassReport, Scores};
use crate::model::Config;
use crate::model::weights::Model;
use crate::note;
use crate::tasks::{self, Dataset, Task};
use crate::text::WordPiece;
use crate::train::best::Best;
use crate::train::finetune::{FinetuningRun, Outcome, Settings, TaskReport, TaskStep};
use crate::train::finetuning::write;
use crate::train::identity::FinetuningIdentity;
use crate::train::task::measure_classes;
use crate::train::{Finetuner, Records, Stop, checkpoint};

/// What all runs of a command share.
pub(crate) struct Runner<'a> {
    pub(crate) args: &'a Args,
    pub(crate) task: &'a dyn Task,
    pub(crate) train: &'a dyn Dataset,
    pub(crate) devs: &'a [Measured],
    pub(crate) wordpiece: &'a WordPiece,
    pub(crate) setup: Setup,
    pub(crate) recipe: &'a Recipe,
    pub(crate) selection: &'a Selection,
    /// The head on a frozen encoder.
    pub(crate) head: Option<&'a Head>,
    pub(crate) stop: Stop,
}

/// The result of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) learning_rate: f64,
    pub(crate) outcome: Outcome,
    /// Scores on every development file, by the name of the result.
    pub(crate) scores: Vec<(String, Scores)>,
    /// With --keep-best: the epoch whose model was kept.
    #[serde(default)]
    pub(crate) kept: Option<u32>,
    /// The report on the classes of the first development file.
    #[serde(default)]
    pub(crate) report: Option<ClassReport>,
}

impl Run {
    /// Returns the name of the run's folder of records.
    pub(crate) fn name(&self) -> String {
        format!("lr-{:e}-seed-{}", self.learning_rate, self.seed)
    }

    /// Returns the score by which runs are compared: more is better.
    pub(crate) fn score(&self, selection: &Selection) -> f64 {
        let scores = self.scores.first();
        scores.map_or(NO_SCORE, |(_, scores)| selection.score(scores))
    }

    /// Returns the name and the value of that score.
    pub(crate) fn shown(&self, selection: &Selection) -> String {
        let value = self.scores.first().and_then(|(_, scores)| selection.value(scores));
        let value = value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.4}"));
        format!("{} {value}", selection.metric)
    }

    /// Converts the result to JSON, with the scores under their names.
    pub(crate) fn json(&self) -> Value {
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
        if let (Some(report), Value::Object(object)) = (&self.report, &mut object) {
            object.extend(report.to_json());
        }
        if let Some(epoch) = outcome.ended_early {
            object["ended_after_epoch"] = epoch.into();
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
pub(crate) struct Runs {
    /// The finished runs, or the first one if it was stopped.
    pub(crate) done: Vec<Run>,
    /// Index of the run whose model is in `--out`.
    pub(crate) best: usize,
    /// A later run that was stopped.
    pub(crate) stopped: Option<Run>,
}

impl Runs {
    /// Returns the run whose model is in `--out`.
    pub(crate) fn kept(&self) -> &Run {
        &self.done[self.best]
    }

    /// Returns the run in which the command was stopped.
    pub(crate) fn unfinished(&self) -> Option<&Run> {
        let last = self.stopped.as_ref().or(self.done.last());
        last.filter(|run| run.outcome.stopped())
    }
}

impl<'a> Runner<'a> {
    /// Returns a trainer before its first step.
    pub(crate) fn trainer(
        &self,
        model: Model,
        settings: &Settings,
        learning_rate: f64,
        seed: u64,
    ) -> Result<Finetuner<'a>> {
        let (config, values) = (&model.config, model.values);
        let engine = match self.head {
            None => self.setup.engine(config, &model.layout, values)?,
            Some(head) => head.engine(config, self.task.part(), self.setup, seed)?,
        };
        let mut settings = settings.clone();
        (settings.learning_rate, settings.seed) = (learning_rate, seed);
        Finetuner::new(engine, self.train.examples(), settings)
    }

    /// Trains; with `resume` from the state in `--out`. A stopped run leaves its state there, a finished
    /// one that of its last checkpoint, until its model is on the disk.
    pub(crate) fn train(
        &self,
        mut trainer: Finetuner<'a>,
        config: Config,
        resume: bool,
        records: &mut Records,
    ) -> Result<Trained<'a>> {
        let identity = trainer.identity();
        let (seed, learning_rate) = (identity.seed, identity.learning_rate);
        let out = self.args.out.as_path();
        let resumed = match resume {
            true => continue_from(&mut trainer, out)?,
            false => None,
        };
        let mut run = Run {
            seed,
            learning_rate,
            outcome: Outcome::default(),
            scores: Vec::new(),
            kept: None,
            report: None,
        };
        if resumed.is_none() {
            Best::remove(out)?;
        }
        let Selection { keep_best, every_epoch, .. } = *self.selection;
        let name = self.args.several().then(|| run.name());
        records.begin(name.as_deref(), trainer.steps(), resumed);
        let mut reporter = Reporter {
            bar: TrainingBar::new(trainer.steps(), trainer.outcome().done()),
            selection: self.selection,
            dev: self.devs.first().filter(|_| every_epoch),
            scores: None,
            keep_in: keep_best.then_some(out),
            records,
        };
        let trained = trainer.run(Some(out), &mut reporter, &self.stop);
        reporter.bar.finish();
        trained?;
        run.outcome = trainer.outcome().clone();
        if keep_best && !run.outcome.stopped() {
            run.kept = Best::read(out)?.map(|best| best.epoch);
            Best::restore(out, trainer.engine())?;
        }
        Ok(Trained { run, trainer, config })
    }

    /// Measures on every development file. Writes the model if there is only one run.
    pub(crate) fn measure(&self, trained: &mut Trained<'_>, records: &mut Records) -> Result<()> {
        // First: measuring may take long.
        if !self.args.several() {
            self.write(trained)?;
        }
        for (name, data) in self.devs {
            let (scores, report) = measure_classes(trained.trainer.engine(), data.as_ref())?;
            if trained.run.scores.is_empty() {
                trained.run.report = report;
            }
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

    /// Writes the model, its configuration and its vocabulary into `--out`.
    pub(crate) fn write(&self, trained: &mut Trained<'_>) -> Result<()> {
        let (out, wordpiece) = (&self.args.out, self.wordpiece);
        let (engine, config) = (trained.trainer.engine(), &trained.config);
        match self.head {
            Some(head) => {
                let parameters = engine.parameters()?;
                head.write(out, config, engine.layout(), &parameters, wordpiece)
            }
            None => write(out, engine, config, wordpiece),
        }
    }
}

/// A trained model, before it is known whether it is kept.
pub(crate) struct Trained<'a> {
    pub(crate) run: Run,
    trainer: Finetuner<'a>,
    config: Config,
}

/// Continues the run in `folder` if it is the same. Returns its finished steps.
fn continue_from(trainer: &mut Finetuner<'_>, folder: &Path) -> Result<Option<u64>> {
    let Some(state) = read_state::<FinetuningRun>(folder)? else {
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

/// Returns an error that names the first difference between two runs.
pub(crate) fn same_run(
    folder: &Path,
    was: &FinetuningIdentity,
    now: &FinetuningIdentity,
) -> Result<()> {
    checkpoint::same_run(folder, &identity(was), &identity(now))
}

/// Returns the settings that may not change when the run is resumed, by the names of their options.
fn identity(run: &FinetuningIdentity) -> Vec<(&'static str, String)> {
    let optimizer = &run.optimizer;
    let frozen = run.frozen.clone();
    let frozen = frozen.unwrap_or_else(|| "an encoder that is trained".to_owned());
    let (checksum, start) = (run.checksum, run.started_from);
    vec![
        ("the task", or_empty(run.task.as_ref())),
        ("--seed", run.seed.to_string()),
        ("--epochs", run.epochs.to_string()),
        ("--max-steps", or_empty(run.max_steps)),
        ("a batch", run.batch.clone()),
        ("--sampling balanced", run.balanced.to_string()),
        ("--lr", run.learning_rate.to_string()),
        ("--warmup", run.warmup.to_string()),
        ("--schedule", option_name(run.decay)),
        ("--layer-decay", run.tuning.layer_decay.to_string()),
        ("--freeze", or_empty(run.tuning.freeze)),
        ("the class weights", format!("{:?}", run.loss.class_weights)),
        ("--label-smoothing", run.loss.label_smoothing.to_string()),
        ("--optimizer", option_name(optimizer.rule)),
        ("--adam-beta2", optimizer.beta2.to_string()),
        ("--adam-epsilon", format!("{:e}", optimizer.epsilon)),
        ("--weight-decay", optimizer.weight_decay.to_string()),
        ("the dropout", run.dropout.to_string()),
        ("--bad-steps", option_name(run.guard.bad_steps)),
        ("--spike", spike(run.guard)),
        ("--dtype", run.precision.to_string()),
        ("the number of examples", run.examples.to_string()),
        ("the number of their tokens", run.tokens.to_string()),
        ("the training data (by checksum)", format!("{checksum:08x}")),
        ("what the head reads", frozen),
        ("--keep-best", run.keep_best.to_string()),
        ("--metric", or_empty(run.metric.as_ref())),
        ("--patience", or_empty(run.patience)),
        ("the model", run.model.to_string()),
        ("the model to start from (by checksum)", format!("{start:08x}")),
    ]
}

/// Shows and records a run; with --eval-epochs or --keep-best measures after every epoch.
struct Reporter<'a> {
    bar: TrainingBar,
    selection: &'a Selection,
    dev: Option<&'a Measured>,
    /// The scores of the last epoch, until the trainer takes them.
    scores: Option<Scores>,
    /// With --keep-best: the folder for the best epoch's parameters.
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
                let score = self.selection.score(&scores);
                if Best::read(folder)?.is_none_or(|best| score > best.score) {
                    Best { epoch, score }.write(folder, engine)?;
                }
            }
            self.scores = Some(scores);
        }
        Ok(())
    }

    fn scores(&mut self) -> Option<Scores> {
        self.scores.take()
    }

    fn ends_after(&self, epochs: &[(u32, Scores)]) -> bool {
        self.selection.is_over(epochs)
    }
}
