//! What a run tells while it goes on: to a terminal's progress bar, to a live chart in a notebook.

use serde::{Deserialize, Deserializer, Serialize};

use crate::engine::PretrainingScores;

use super::series::Series;

/// One optimizer step of pre-training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Counted from 1.
    pub step: u64,
    /// Mean masked-LM loss plus mean next-sentence loss, in nats.
    pub loss: f64,
    pub mlm_loss: f64,
    /// 0 without next-sentence prediction.
    pub nsp_loss: f64,
    pub learning_rate: f64,
    /// Global norm of the gradients before clipping.
    pub norm: f64,
    /// Real tokens a second in this step.
    pub tokens_per_s: f64,
}

/// A measurement on held-out documents.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// Steps done; 0 before the first.
    pub step: u64,
    #[serde(deserialize_with = "number_or_nan")]
    pub mlm_loss: f64,
    pub mlm_accuracy: f64,
    /// None without next-sentence prediction.
    pub nsp_loss: Option<f64>,
    pub nsp_accuracy: Option<f64>,
}

/// Reads a number; JSON has no NaN, so `null` stands for it.
fn number_or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl EvalReport {
    /// What was measured after `step` steps.
    pub fn of(step: u64, scores: &PretrainingScores) -> Self {
        let pairs = scores.nsp_total > 0;
        Self {
            step,
            mlm_loss: scores.mean_mlm_loss(),
            mlm_accuracy: scores.mlm_accuracy(),
            nsp_loss: pairs.then(|| scores.mean_nsp_loss()),
            nsp_accuracy: pairs.then(|| scores.nsp_accuracy()),
        }
    }

    /// Among how many tokens a blank is left open, as it were: e to the power of the loss.
    pub fn perplexity(&self) -> f64 {
        self.mlm_loss.exp()
    }
}

/// Receives the reports of a run.
pub trait Report {
    fn step(&mut self, report: &StepReport);
    fn evaluated(&mut self, report: &EvalReport);
    /// A checkpoint after `step` steps is on the disk.
    fn saved(&mut self, step: u64);
    /// A step was left out because something went wrong in it.
    fn skipped(&mut self, step: u64, why: &str);
}

/// Tells nobody.
pub struct Silent;

impl Report for Silent {
    fn step(&mut self, _: &StepReport) {}
    fn evaluated(&mut self, _: &EvalReport) {}
    fn saved(&mut self, _: u64) {}
    fn skipped(&mut self, _: u64, _: &str) {}
}

/// Tells both, the first one first.
impl<A: Report, B: Report> Report for (&mut A, &mut B) {
    fn step(&mut self, report: &StepReport) {
        self.0.step(report);
        self.1.step(report);
    }

    fn evaluated(&mut self, report: &EvalReport) {
        self.0.evaluated(report);
        self.1.evaluated(report);
    }

    fn saved(&mut self, step: u64) {
        self.0.saved(step);
        self.1.saved(step);
    }

    fn skipped(&mut self, step: u64, why: &str) {
        self.0.skipped(step, why);
        self.1.skipped(step, why);
    }
}

/// What a run has reported so far: the data of its curves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    pub steps: Series<StepReport>,
    pub evaluations: Vec<EvalReport>,
}

impl History {
    /// Mean speed of the steps.
    pub fn tokens_per_s(&self) -> f64 {
        mean(self.steps.iter().map(|step| step.tokens_per_s))
    }
}

/// The mean; 0 of no values.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / count.max(1) as f64
}
