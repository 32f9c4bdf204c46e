//! Reports of a pre-training run: for a terminal's progress bar, a notebook's live chart, the records.

use serde::{Deserialize, Serialize};

use crate::engine::PretrainingScores;

use super::series::Series;

/// One optimizer step of pre-training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Number of the step, from 1.
    pub step: u64,
    /// Mean masked-LM loss plus mean next-sentence loss, in nats.
    pub loss: f64,
    /// Mean masked-LM loss, in nats.
    pub mlm_loss: f64,
    /// 0 without next-sentence prediction.
    pub nsp_loss: f64,
    /// Learning rate of the step.
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
    /// Mean masked-LM loss, in nats.
    pub mlm_loss: f64,
    /// Share of masked tokens predicted correctly.
    pub mlm_accuracy: f64,
    /// Mean next-sentence loss, in nats; None without next-sentence prediction.
    pub nsp_loss: Option<f64>,
    /// Share of pairs classified correctly; None without next-sentence prediction.
    pub nsp_accuracy: Option<f64>,
}

impl EvalReport {
    /// Returns the report of scores that were measured after `step` steps.
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

    /// Returns the perplexity of the masked tokens: e to the power of the loss.
    pub fn perplexity(&self) -> f64 {
        self.mlm_loss.exp()
    }
}

/// Receives the reports of a run.
pub trait Report {
    /// Receives a step.
    fn step(&mut self, report: &StepReport);
    /// Receives a measurement on held-out documents.
    fn evaluated(&mut self, report: &EvalReport);
    /// Is called when a checkpoint after `step` steps is on the disk.
    fn saved(&mut self, step: u64);
    /// Is called when a step was skipped, for this reason.
    fn skipped(&mut self, step: u64, why: &str);
}

/// Ignores all reports.
pub struct Silent;

impl Report for Silent {
    fn step(&mut self, _: &StepReport) {}
    fn evaluated(&mut self, _: &EvalReport) {}
    fn saved(&mut self, _: u64) {}
    fn skipped(&mut self, _: u64, _: &str) {}
}

/// Passes every report to both, to the first one first.
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

/// The reports of a run so far, from which its curves are drawn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The steps; thinned in a long run.
    pub steps: Series<StepReport>,
    /// All measurements on held-out documents.
    pub evaluations: Vec<EvalReport>,
}

impl History {
    /// Returns the mean speed of the steps.
    pub fn tokens_per_s(&self) -> f64 {
        mean(self.steps.iter().map(|step| step.tokens_per_s))
    }
}

/// Returns the mean of the values; 0 if there are none.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the names of what it receives.
    #[derive(Default)]
    struct Names(Vec<&'static str>);

    impl Report for Names {
        fn step(&mut self, _: &StepReport) {
            self.0.push("step");
        }

        fn evaluated(&mut self, _: &EvalReport) {
            self.0.push("evaluated");
        }

        fn saved(&mut self, _: u64) {
            self.0.push("saved");
        }

        fn skipped(&mut self, _: u64, _: &str) {
            self.0.push("skipped");
        }
    }

    #[test]
    fn both_of_a_pair_receive_every_report() {
        let (mut first, mut second) = (Names::default(), Names::default());
        let mut both = (&mut first, &mut second);
        both.step(&StepReport {
            step: 1,
            loss: 2.0,
            mlm_loss: 1.5,
            nsp_loss: 0.5,
            learning_rate: 1e-4,
            norm: 1.0,
            tokens_per_s: 10.0,
        });
        both.evaluated(&EvalReport::of(1, &PretrainingScores::default()));
        both.saved(1);
        both.skipped(2, "the loss is NaN");
        assert_eq!(first.0, ["step", "evaluated", "saved", "skipped"]);
        assert_eq!(second.0, first.0);
    }
}
