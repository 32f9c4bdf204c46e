//! Fine-tuning: trains a task head and the pre-trained encoder below it for a few epochs (Devlin et al.,
//! section 3 and appendix A.3).

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::data::examples::{Examples, Targets};
use crate::data::sequences::BatchSize;
use crate::engine::inference::outputs;
use crate::engine::{Numerics, TaskEngine, objective};
use crate::error::Result;
use crate::eval::Scores;
use crate::files::Staged;
use crate::model::Dropout;

use super::checkpoint;
use super::guard::{Guard, GuardSettings};
use super::identity::{FinetuningIdentity, checksum};
use super::report::mean;
use super::schedule::Schedule;
use super::series::Series;
use super::step::{self, Step};
use super::stop::Stop;
use crate::engine::optimizer::{Optimizer, Update};

/// The hyperparameters and options of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Passes over the training data.
    pub epochs: u32,
    /// Examples or tokens a step.
    pub batch: BatchSize,
    /// The highest learning rate, reached after the warm-up.
    pub learning_rate: f64,
    /// Share of the steps in which the learning rate rises.
    pub warmup: f64,
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
    /// What computes the run; stored in its checkpoints.
    pub numerics: Option<Numerics>,
}

impl Default for Settings {
    /// The paper's recipe: 3 epochs of batches of 32, warm-up over a tenth of the steps.
    fn default() -> Self {
        Self {
            epochs: 3,
            batch: BatchSize::Examples(32),
            learning_rate: 5e-5,
            warmup: 0.1,
            optimizer: Optimizer::default(),
            max_norm: 1.0,
            micro_batch: 0,
            seed: 0,
            save_every: 0,
            guard: GuardSettings::default(),
            frozen: None,
            keep_best: false,
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
}

/// The results of a run so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The steps; thinned in a long run.
    pub steps: Series<TaskStep>,
    /// Number of skipped steps.
    pub skipped: u64,
    /// Steps of the whole run.
    pub planned: u64,
    /// Real tokens that the model was trained on.
    pub tokens: u64,
    /// Time in training steps alone.
    pub training: Duration,
    /// Scores by epoch, counted from 1.
    #[serde(default)]
    pub epochs: Vec<(u32, Scores)>,
}

impl Outcome {
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
    settings: Settings,
    outcome: Outcome,
    guard: Guard,
    identity: FinetuningIdentity,
}

impl<'a> Finetuner<'a> {
    /// Creates a run over `data`, whose targets fit the engine's task head.
    pub fn new(
        engine: Box<dyn TaskEngine>,
        data: &'a Examples,
        settings: Settings,
    ) -> Result<Self> {
        Ok(Self {
            identity: FinetuningIdentity {
                seed: settings.seed,
                epochs: settings.epochs,
                batch: match settings.batch {
                    BatchSize::Examples(n) => format!("{n} examples"),
                    BatchSize::Tokens(n) => format!("{n} tokens"),
                },
                learning_rate: settings.learning_rate,
                warmup: settings.warmup,
                optimizer: settings.optimizer,
                dropout: engine.config().hidden_dropout_prob,
                guard: settings.guard,
                precision: Some(engine.precision()),
                examples: data.len(),
                tokens: data.sequences.tokens(),
                checksum: data.checksum(),
                started_from: checksum(&engine.snapshot()?.parameters),
                frozen: settings.frozen.clone(),
                keep_best: Some(settings.keep_best),
                model: Some(engine.config().into()),
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
        self.data.sequences.epoch(seed, epoch, batch)
    }

    /// Returns the number of steps of the whole run.
    pub fn steps(&self) -> u64 {
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
        let state =
            checkpoint::stage(folder, step, &run, engine, &snapshot, &self.guard, numerics)?;
        Staged::place(vec![state])
    }

    /// Trains for all epochs, or until a stop is requested. Checkpoints go to `folder`.
    pub fn run(
        &mut self,
        folder: Option<&Path>,
        report: &mut dyn TaskReport,
        stop: &Stop,
    ) -> Result<()> {
        self.outcome.planned = self.steps();
        let mut step = 0;
        for epoch in 0..self.settings.epochs {
            let batches = self.epoch(epoch);
            let already = self.outcome.done();
            for batch in &batches {
                step += 1;
                if step <= already {
                    continue;
                }
                crate::interrupt::poll();
                if stop.requested() {
                    return Ok(());
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
            }
        }
        Ok(())
    }

    fn train_step(&mut self, batch: &[usize], step: u64) -> Result<Step<TaskStep>> {
        let started = Instant::now();
        let dropout = Dropout { seed: self.settings.seed, step: step as u32 };
        let micro_batch = self.settings.micro_batch;
        let engine = self.engine.as_mut();
        let (loss, tokens) = gradients(engine, self.data, batch, micro_batch, dropout)?;
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
        }
    }
}

/// Adds the gradients of the mean loss of the examples in `batch` to the engine's, at most `micro_batch`
/// examples at a time (0 for all at once). Returns the loss and the number of tokens.
pub fn gradients(
    engine: &mut dyn TaskEngine,
    data: &Examples,
    batch: &[usize],
    micro_batch: usize,
    dropout: Dropout,
) -> Result<(f64, u64)> {
    let size = match micro_batch {
        0 => batch.len(),
        size => size,
    };
    let outputs = outputs(engine)?;
    let terms = data.targets_of(batch).terms().max(1);
    let weight = 1.0 / terms as f32;
    let (mut loss, mut tokens) = (0.0, 0);
    for part in batch.chunks(size) {
        let packed = data.sequences.batch(part);
        tokens += packed.rows() as u64;
        let targets = data.targets_of(part);
        targets.check(outputs)?;
        let (ends, mut scored) = (&packed.cu_seqlens, 0.0);
        let mut score = |logits: &mut [f32]| {
            scored = summed_loss(&targets, ends, logits, outputs, weight);
        };
        engine.task_gradients(&packed, dropout, &mut score)?;
        loss += scored;
    }
    Ok((loss / terms as f64, tokens))
}

/// Returns the summed loss of a batch's logits, and replaces them by `weight` times its gradient.
fn summed_loss(
    targets: &Targets,
    cu_seqlens: &[u32],
    logits: &mut [f32],
    outputs: usize,
    weight: f32,
) -> f64 {
    let scored = match targets {
        // Without a loss. A task refuses such data when it reads it.
        Targets::Unknown => {
            logits.fill(0.0);
            return 0.0;
        }
        Targets::Classes(classes) => objective::cross_entropy(logits, outputs, classes, weight),
        Targets::Values(values) => objective::squared_error(logits, values, weight),
        Targets::Choices(right) => {
            let choices = logits.len() / right.len().max(1);
            objective::cross_entropy(logits, choices, right, weight)
        }
        Targets::Rows(labels) => {
            let labels = labels.iter().copied();
            objective::labelled_cross_entropy(logits, outputs, labels, weight)
        }
        Targets::Spans(spans) => objective::spans(logits, cu_seqlens, spans, weight),
    };
    scored.loss
}
