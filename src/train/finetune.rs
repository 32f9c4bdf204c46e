//! Fine-tuning: a head over a pre-trained encoder, every parameter trained for a few epochs (Devlin
//! et al., section 3 and appendix A.3).

use std::time::{Duration, Instant};

use crate::data::glue::Target;
use crate::data::sequences::BatchSize;
use crate::data::{Packed, Sequences};
use crate::engine::{Engine, objective};
use crate::error::{Error, Result};
use crate::eval::{Metric, measure};
use crate::model::Dropout;

use super::optimizer::{Optimizer, Update};
use super::schedule::Schedule;
use super::stop::Stop;

/// Tokens in a batch of an evaluation: the larger it is, the less packing the weights counts.
const EVALUATION_TOKENS: usize = 4096;

/// How a run goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub epochs: u32,
    pub batch: BatchSize,
    /// The highest learning rate, reached after the warm-up.
    pub learning_rate: f64,
    /// The share of all steps in which the learning rate rises.
    pub warmup: f64,
    pub optimizer: Optimizer,
    /// The gradients' global norm is cut to this.
    pub max_norm: f64,
    /// At most so many sequences go through the model at once; the gradients of the parts of a batch
    /// are added up. 0 for the whole batch.
    pub micro_batch: usize,
    /// Key of the order of examples and of dropout.
    pub seed: u64,
}

impl Default for Settings {
    /// The paper's recipe: 3 epochs of batches of 32, warm-up over a tenth of the steps.
    fn default() -> Self {
        Self {
            epochs: 3,
            batch: BatchSize::Sequences(32),
            learning_rate: 5e-5,
            warmup: 0.1,
            optimizer: Optimizer::default(),
            max_norm: 1.0,
            micro_batch: 0,
            seed: 0,
        }
    }
}

/// Sequences with what is to be told of each.
#[derive(Debug, Clone)]
pub struct Labelled {
    pub sequences: Sequences,
    pub targets: Vec<Target>,
}

/// One step as it is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskStep {
    /// Counted from 1.
    pub step: u64,
    /// Mean over the batch: cross-entropy in nats, or squared error.
    pub loss: f64,
    pub learning_rate: f64,
    /// Global norm of the gradients before clipping.
    pub norm: f64,
    /// Real tokens a second in this step.
    pub tokens_per_s: f64,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub steps: Vec<TaskStep>,
    /// Steps of the whole run; more than `steps` has where it was stopped.
    pub planned: u64,
    /// Real tokens that went through the model.
    pub tokens: u64,
    /// Time in training steps alone.
    pub training: Duration,
}

/// A run of fine-tuning.
pub struct Finetuner {
    engine: Box<dyn Engine>,
    data: Labelled,
    settings: Settings,
}

impl Finetuner {
    /// A run over `data`, whose targets fit the engine's task head.
    pub fn new(engine: Box<dyn Engine>, data: Labelled, settings: Settings) -> Self {
        Self {
            engine,
            data,
            settings,
        }
    }

    /// The engine with the trained parameters.
    pub fn engine(&mut self) -> &mut dyn Engine {
        self.engine.as_mut()
    }

    /// The batches of an epoch.
    fn epoch(&self, epoch: u32) -> Vec<Vec<usize>> {
        let Settings { seed, batch, .. } = self.settings;
        self.data.sequences.epoch(seed, epoch, batch)
    }

    /// Steps of the whole run.
    pub fn steps(&self) -> u64 {
        let epochs = 0..self.settings.epochs;
        epochs.map(|epoch| self.epoch(epoch).len() as u64).sum()
    }

    /// Trains through all epochs, or until a stop is asked for.
    pub fn run(&mut self, tell: &mut dyn FnMut(&TaskStep), stop: &Stop) -> Result<Outcome> {
        let settings = self.settings.clone();
        let planned = self.steps();
        let schedule = Schedule {
            peak: settings.learning_rate,
            warmup: (planned as f64 * settings.warmup) as u64,
            total: planned,
        };
        let mut outcome = Outcome {
            planned,
            ..Outcome::default()
        };
        let batches: Vec<_> = (0..settings.epochs).flat_map(|e| self.epoch(e)).collect();
        for (step, batch) in (1..).zip(&batches) {
            crate::interrupt::poll();
            if stop.requested() {
                break;
            }
            let started = Instant::now();
            let (loss, tokens) = self.gradients(batch, step)?;
            if !loss.is_finite() {
                return Err(Error::Failed(format!(
                    "the loss of step {step} is not a number: the run has diverged; a lower \
                     learning rate helps"
                )));
            }
            let learning_rate = schedule.rate(step);
            let norm = self.engine.update(&Update {
                optimizer: settings.optimizer,
                learning_rate,
                step,
                max_norm: settings.max_norm,
            })?;
            let took = started.elapsed();
            outcome.training += took;
            outcome.tokens += tokens;
            let done = TaskStep {
                step,
                loss,
                learning_rate,
                norm,
                tokens_per_s: tokens as f64 / took.as_secs_f64(),
            };
            outcome.steps.push(done);
            tell(&done);
        }
        Ok(outcome)
    }

    /// Adds the gradients of a batch, part by part; gives its mean loss and its tokens.
    fn gradients(&mut self, batch: &[usize], step: u64) -> Result<(f64, u64)> {
        let dropout = Dropout {
            seed: self.settings.seed,
            step: step as u32,
        };
        let size = match self.settings.micro_batch {
            0 => batch.len(),
            size => size,
        };
        let outputs = outputs(self.engine.as_ref())?;
        let weight = 1.0 / batch.len() as f32;
        let (mut loss, mut tokens) = (0.0, 0);
        for part in batch.chunks(size) {
            let packed = self.data.sequences.batch(part);
            tokens += packed.rows() as u64;
            let targets: Vec<Target> = part.iter().map(|&i| self.data.targets[i]).collect();
            let mut score = |logits: &mut [f32]| loss += scored(logits, outputs, &targets, weight);
            self.engine.task_gradients(&packed, dropout, &mut score)?;
        }
        Ok((loss / batch.len() as f64, tokens))
    }

    /// Metrics on other data.
    pub fn evaluate(&mut self, data: &Labelled, metrics: &[Metric]) -> Result<Vec<(Metric, f64)>> {
        evaluate(self.engine.as_mut(), data, metrics)
    }
}

/// Outputs of the engine's task head.
fn outputs(engine: &dyn Engine) -> Result<usize> {
    let head = engine.layout().task_head();
    head.map(|head| head.outputs)
        .ok_or_else(|| Error::Failed("the model has no task head".into()))
}

/// The summed loss, its gradient times `weight` in the place of the logits.
fn scored(logits: &mut [f32], outputs: usize, targets: &[Target], weight: f32) -> f64 {
    let classes: Vec<u32> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Class(class) => Some(*class),
            Target::Value(_) => None,
        })
        .collect();
    if !classes.is_empty() {
        return objective::cross_entropy(logits, outputs, &classes, weight).loss;
    }
    let values: Vec<f32> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Class(_) => None,
            Target::Value(value) => Some(*value),
        })
        .collect();
    objective::squared_error(logits, &values, weight).loss
}

/// Metrics of a model on labelled data.
pub fn evaluate(
    engine: &mut dyn Engine,
    data: &Labelled,
    metrics: &[Metric],
) -> Result<Vec<(Metric, f64)>> {
    let outputs = outputs(engine)?;
    let logits = logits(engine, &data.sequences)?;
    Ok(measure(metrics, &logits, outputs, &data.targets))
}

/// The task head's logits for all sequences, in their order.
pub fn logits(engine: &mut dyn Engine, sequences: &Sequences) -> Result<Vec<f32>> {
    let outputs = outputs(engine)?;
    let mut all = vec![0.0; sequences.len() * outputs];
    for batch in sequences.by_length(BatchSize::Tokens(EVALUATION_TOKENS)) {
        crate::interrupt::poll();
        let packed: Packed = sequences.batch(&batch);
        let logits = engine.task_logits(&packed)?;
        for (&index, row) in batch.iter().zip(logits.chunks_exact(outputs)) {
            all[index * outputs..(index + 1) * outputs].copy_from_slice(row);
        }
    }
    Ok(all)
}
