//! Fine-tuning: trains a task head and the pre-trained encoder below it for a few epochs (Devlin et al.,
//! section 3 and appendix A.3).

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::data::examples::Examples;
use crate::data::sequences::BatchSize;
use crate::engine::{Numerics, TaskEngine};
use crate::error::{Error, Result};
use crate::eval::Scores;
use crate::model::{Dropout, Tuning};

use super::checkpoint;
use super::guard::{Guard, GuardSettings};
use super::identity::{FinetuningIdentity, checksum};
use super::loss::Loss;
use super::report::mean;
use super::schedule::{Decay, Schedule};
use super::series::Series;
use super::step::{self, Step};
use super::stop::Stop;
use crate::engine::optimizer::{Optimizer, Update};

/// The hyperparameters and options of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Passes over the training data.
    pub epochs: u32,
    /// Steps of the run, in the place of a number of epochs.
    pub max_steps: Option<u64>,
    /// Examples or tokens a step.
    pub batch: BatchSize,
    /// Whether every epoch draws as many examples from each class as from any other.
    pub balanced: bool,
    /// The highest learning rate, reached after the warm-up.
    pub learning_rate: f64,
    /// Share of the steps in which the learning rate rises.
    pub warmup: f64,
    /// How the learning rate falls after the warm-up.
    pub decay: Decay,
    /// How much of the learning rate each layer gets.
    pub tuning: Tuning,
    /// Class weights and label smoothing.
    pub loss: Loss,
    /// The optimizer and its constants.
    pub optimizer: Optimizer,
    /// Upper limit of the gradients' global norm.
    pub max_norm: f64,
    /// Upper limit of the examples that are computed at once: gradient accumulation over the parts of a
    /// batch. 0 for no limit.
    pub micro_batch: usize,
    /// Key of the order of examples and of dropout.
    pub seed: u64,
    /// Steps between two checkpoints; 0 for none, except when the run is stopped.
    pub save_every: u64,
    /// What to do with a bad step.
    pub guard: GuardSettings,
    /// The frozen encoder and what is read from it, in words; None if the encoder is trained.
    pub frozen: Option<String>,
    /// Whether the best epoch's model is kept, and not the last one's.
    pub keep_best: bool,
    /// The name of the score that compares epochs, if the report does.
    pub metric: Option<String>,
    /// The number of epochs without a better score after which the report ends the run.
    pub patience: Option<u32>,
    /// What computes the run; stored in its checkpoints.
    pub numerics: Option<Numerics>,
}

impl Default for Settings {
    /// The paper's recipe: 3 epochs of batches of 32, warm-up over a tenth of the steps.
    fn default() -> Self {
        Self {
            epochs: 3,
            max_steps: None,
            batch: BatchSize::Examples(32),
            balanced: false,
            learning_rate: 5e-5,
            warmup: 0.1,
            decay: Decay::default(),
            tuning: Tuning::default(),
            loss: Loss::default(),
            optimizer: Optimizer::default(),
            max_norm: 1.0,
            micro_batch: 0,
            seed: 0,
            save_every: 0,
            guard: GuardSettings::default(),
            frozen: None,
            keep_best: false,
            metric: None,
            patience: None,
            numerics: None,
        }
    }
}

/// One optimizer step of fine-tuning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TaskStep {
    /// Number of the step, from 1.
    pub step: u64,
    /// Mean over the batch: cross-entropy in nats, or squared error.
    pub loss: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Global norm of the gradients before clipping.
    pub norm: f64,
    /// Real tokens a second in this step.
    pub tokens_per_s: f64,
}

/// Receives the reports of a run.
pub trait TaskReport {
    /// Receives a step.
    fn step(&mut self, step: &TaskStep);
    /// Is called when a step was skipped, for this reason.
    fn skipped(&mut self, step: u64, why: &str);
    /// Is called when an epoch, counted from 1, ended with step `step`. It may measure the model, which
    /// does not count as training time.
    fn epoch(&mut self, epoch: u32, step: u64, engine: &mut dyn TaskEngine) -> Result<()>;
    /// Returns the scores that [`epoch`](Self::epoch) has just measured, if it has: they are kept with
    /// the run and its checkpoints.
    fn scores(&mut self) -> Option<Scores> {
        None
    }
    /// Returns whether the run should end after these epochs, given their scores.
    fn ends_after(&self, _epochs: &[(u32, Scores)]) -> bool {
        false
    }
}

/// The results of a run so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The steps; thinned in a long run.
    pub steps: Series<TaskStep>,
    /// Number of skipped steps.
    pub skipped: u64,
    /// Steps of the whole run; fewer than the settings plan if it ended early.
    pub planned: u64,
    /// Real tokens that the model was trained on.
    pub tokens: u64,
    /// Time in training steps alone.
    pub training: Duration,
    /// Scores by epoch, counted from 1.
    #[serde(default)]
    pub epochs: Vec<(u32, Scores)>,
    /// The epoch after which the run ended early, because its scores had stopped rising.
    #[serde(default)]
    pub ended_early: Option<u32>,
}

impl Outcome {
    /// Returns the mean loss of the first ten kept steps: the first ten of a run of up to 8,192.
    pub fn first_loss(&self) -> f64 {
        mean(self.steps.iter().take(10).map(|step| step.loss))
    }

    /// Returns whether the run was stopped before its last step.
    pub fn stopped(&self) -> bool {
        self.done() < self.planned
    }

    /// Returns the number of steps done, with skipped ones.
    pub fn done(&self) -> u64 {
        self.steps.len() + self.skipped
    }

    /// Returns the mean loss of the last fifty steps, because a single batch's is noisy.
    pub fn last_loss(&self) -> f64 {
        mean(self.steps.latest(50).map(|step| step.loss))
    }

    /// Returns the speed in real tokens a second of training.
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens as f64 / self.training.as_secs_f64().max(1e-9)
    }
}

/// What a fine-tuning run keeps beside its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinetuningRun {
    /// The settings that may not change when the run is resumed.
    pub identity: FinetuningIdentity,
    /// Steps, tokens and scores so far.
    pub outcome: Outcome,
}

/// A fine-tuning run at a step boundary.
pub type State = checkpoint::State<FinetuningRun>;

/// A run of fine-tuning.
pub struct Finetuner<'a> {
    engine: Box<dyn TaskEngine>,
    data: &'a Examples,
    /// With balanced classes: the examples of each.
    classes: Option<Vec<Vec<usize>>>,
    settings: Settings,
    outcome: Outcome,
    guard: Guard,
    identity: FinetuningIdentity,
}

impl<'a> Finetuner<'a> {
    /// Creates a run over `data`, whose targets fit the engine's task head, and the rates of whose layout are
    /// those of the settings.
    ///
    /// # Errors
    /// If classes are to be balanced that the data does not have.
    pub fn new(
        engine: Box<dyn TaskEngine>,
        data: &'a Examples,
        settings: Settings,
    ) -> Result<Self> {
        if matches!(settings.batch, BatchSize::Examples(0) | BatchSize::Tokens(0)) {
            return Err(Error::Usage("a batch needs at least one example".into()));
        }
        settings.loss.check(&data.targets)?;
        let classes = match settings.balanced {
            false => None,
            true => Some(data.targets.by_class().ok_or_else(|| {
                Error::Usage("balanced sampling needs a task with one class for each text".into())
            })?),
        };
        let task = engine.config().other.get("finetuning_task");
        Ok(Self {
            classes,
            identity: FinetuningIdentity {
                task: task.and_then(Value::as_str).map(str::to_owned),
                seed: settings.seed,
                epochs: settings.epochs,
                batch: match settings.batch {
                    BatchSize::Examples(n) => format!("{n} examples"),
                    BatchSize::Tokens(n) => format!("{n} tokens"),
                },
                max_steps: settings.max_steps,
                balanced: settings.balanced,
                learning_rate: settings.learning_rate,
                warmup: settings.warmup,
                decay: settings.decay,
                tuning: settings.tuning,
                loss: settings.loss.clone(),
                optimizer: settings.optimizer,
                dropout: engine.config().hidden_dropout_prob,
                guard: settings.guard,
                precision: engine.precision(),
                examples: data.len(),
                tokens: data.sequences.tokens(),
                checksum: data.checksum(),
                started_from: checksum(&engine.snapshot()?.parameters),
                frozen: settings.frozen.clone(),
                keep_best: settings.keep_best,
                metric: settings.metric.clone(),
                patience: settings.patience,
                model: engine.config().into(),
            },
            engine,
            data,
            guard: Guard::new(settings.guard),
            settings,
            outcome: Outcome::default(),
        })
    }

    /// Returns the engine with the trained parameters.
    pub fn engine(&mut self) -> &mut dyn TaskEngine {
        self.engine.as_mut()
    }

    /// Ends the run and returns its engine.
    pub fn into_engine(self) -> Box<dyn TaskEngine> {
        self.engine
    }

    /// Returns the results so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the batches of an epoch.
    fn epoch(&self, epoch: u32) -> Vec<Vec<usize>> {
        let Settings { seed, batch, .. } = self.settings;
        match &self.classes {
            None => self.data.sequences.epoch(seed, epoch, batch),
            Some(classes) => self.data.sequences.balanced_epoch(classes, seed, epoch, batch),
        }
    }

    /// Returns the number of steps of the whole run.
    pub fn steps(&self) -> u64 {
        if let Some(steps) = self.settings.max_steps.filter(|_| !self.data.is_empty()) {
            return steps;
        }
        let epochs = 0..self.settings.epochs;
        epochs.map(|epoch| self.epoch(epoch).len() as u64).sum()
    }

    /// Returns the settings that may not change when the run is resumed.
    pub fn identity(&self) -> &FinetuningIdentity {
        &self.identity
    }

    /// Returns what computes the run, if the settings describe it.
    pub fn numerics(&self) -> Option<&Numerics> {
        self.settings.numerics.as_ref()
    }

    /// Continues where `state` was saved.
    pub fn resume(&mut self, state: State) -> Result<()> {
        let (_, run) = state.restore(self.engine.as_mut(), &mut self.guard)?;
        self.outcome = run.outcome;
        Ok(())
    }

    /// Writes the run's state into `folder`.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let run = FinetuningRun { identity: self.identity.clone(), outcome: self.outcome.clone() };
        let (engine, snapshot) = (self.engine.as_ref(), self.engine.snapshot()?);
        let (step, numerics) = (self.outcome.done(), self.settings.numerics.as_ref());
        let (run, snapshot, guard) = (&run, &snapshot, &self.guard);
        checkpoint::Save { step, run, engine, snapshot, guard, numerics }.place(folder, Vec::new())
    }

    /// Trains for all epochs or steps, until the report ends the run, or until a stop is requested, which leaves a
    /// checkpoint. Checkpoints go to `folder`.
    pub fn run(
        &mut self,
        folder: Option<&Path>,
        report: &mut dyn TaskReport,
        stop: &Stop,
    ) -> Result<()> {
        self.outcome.planned = self.steps();
        let ranks = self.engine.ranks().clone();
        if ranks.size() > 1 {
            ranks.agree("the step", &self.outcome.done().to_string())?;
            ranks.agree("the run", &format!("{:?}", self.identity))?;
        }
        // One rank writes the files.
        let folder = folder.filter(|_| ranks.is_first());
        let (mut step, mut epoch) = (0, 0);
        while step < self.outcome.planned {
            let mut batches = self.epoch(epoch);
            batches.truncate((self.outcome.planned - step) as usize);
            let already = self.outcome.done();
            for batch in &batches {
                step += 1;
                if step <= already {
                    continue;
                }
                crate::interrupt::poll();
                if ranks.any(stop.requested())? {
                    return folder.map_or(Ok(()), |folder| self.save(folder));
                }
                match self.train_step(batch, step)? {
                    Step::Done(done) => report.step(&done),
                    Step::Skipped(why) => report.skipped(step, &why),
                }
                let every = self.settings.save_every;
                if let Some(folder) = folder
                    && every > 0
                    && step.is_multiple_of(every)
                {
                    self.save(folder)?;
                }
            }
            // A checkpoint of an epoch's last step is written before the epoch is measured.
            let is_measured = |(measured, _): &(u32, Scores)| *measured == epoch + 1;
            if step >= already && !self.outcome.epochs.iter().any(is_measured) {
                report.epoch(epoch + 1, step, self.engine.as_mut())?;
                let scores = report.scores().map(|scores| (epoch + 1, scores));
                self.outcome.epochs.extend(scores);
                if step < self.outcome.planned && report.ends_after(&self.outcome.epochs) {
                    self.outcome.planned = step;
                    self.outcome.ended_early = Some(epoch + 1);
                }
            }
            epoch += 1;
        }
        Ok(())
    }

    fn train_step(&mut self, batch: &[usize], step: u64) -> Result<Step<TaskStep>> {
        let started = Instant::now();
        let dropout = Dropout { seed: self.settings.seed, step: step as u32 };
        let micro_batch = self.settings.micro_batch;
        let engine = self.engine.as_mut();
        let (loss, tokens) =
            self.settings.loss.gradients(engine, self.data, batch, micro_batch, dropout)?;
        let update = Update {
            optimizer: self.settings.optimizer,
            learning_rate: self.schedule().rate(step),
            step,
            max_norm: self.settings.max_norm,
        };
        let norm = match step::update(self.engine.as_mut(), &mut self.guard, loss, &update)? {
            Step::Done(norm) => norm,
            Step::Skipped(why) => {
                self.outcome.skipped += 1;
                return Ok(Step::Skipped(why));
            }
        };
        let took = started.elapsed();
        self.outcome.training += took;
        self.outcome.tokens += tokens;
        let done = TaskStep {
            step,
            loss,
            learning_rate: update.learning_rate,
            norm,
            tokens_per_s: tokens as f64 / took.as_secs_f64(),
        };
        self.outcome.steps.push(done);
        Ok(Step::Done(done))
    }

    fn schedule(&self) -> Schedule {
        let planned = self.outcome.planned;
        Schedule {
            peak: self.settings.learning_rate,
            warmup: (planned as f64 * self.settings.warmup) as u64,
            total: planned,
            decay: self.settings.decay,
        }
    }
}

/// Adds the gradients of the mean loss of the examples in `batch` to the engine's, at most `micro_batch`
/// examples at a time (0 for all at once), without class weights and label smoothing. Returns the loss and the
/// number of tokens.
pub fn gradients(
    engine: &mut dyn TaskEngine,
    data: &Examples,
    batch: &[usize],
    micro_batch: usize,
    dropout: Dropout,
) -> Result<(f64, u64)> {
    Loss::default().gradients(engine, data, batch, micro_batch, dropout)
}
