//! Progress of a run, as a callback receives it.

use std::fmt;

use crate::engine::TaskEngine;
use crate::error::Result;
use crate::eval::Scores;

use super::finetune::{TaskReport, TaskStep};
use super::report::{EvalReport, Report, StepReport};

/// An event in a training run. Printing it gives one line.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// A step is done.
    Step {
        /// Counted from 1.
        step: u64,
        /// Steps of the whole run.
        steps: u64,
        /// The batch's loss, in nats.
        loss: f64,
        /// The step's learning rate.
        learning_rate: f64,
        /// Real tokens a second.
        tokens_per_s: f64,
    },
    /// A bad step was skipped.
    Skipped {
        /// Counted from 1.
        step: u64,
        /// What was wrong with it.
        reason: String,
    },
    /// Held-out text was measured.
    HeldOut(EvalReport),
    /// The development data was measured.
    Scores {
        /// Steps done.
        step: u64,
        /// The scores by name.
        scores: Scores,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { step, steps, loss, tokens_per_s, .. } => {
                write!(f, "step {step} of {steps}: loss {loss:.3}, {tokens_per_s:.0} tokens/s")
            }
            Self::Skipped { step, reason } => write!(f, "step {step} skipped: {reason}"),
            Self::HeldOut(report) => write!(
                f,
                "after step {}: held-out loss {:.3}, {:.1} % of masked tokens predicted",
                report.step,
                report.mlm_loss,
                100.0 * report.mlm_accuracy
            ),
            Self::Scores { step, scores } => {
                write!(f, "after step {step}:")?;
                for (name, score) in scores.iter().filter(|(_, score)| score.is_number()) {
                    write!(f, " {name} {score}")?;
                }
                Ok(())
            }
        }
    }
}

/// Passes the reports of a run to a callback.
pub(super) struct Callback<'a> {
    steps: u64,
    call: &'a mut dyn FnMut(&Progress),
}

impl<'a> Callback<'a> {
    /// Reports a run of `steps` steps to `call`.
    pub fn new(steps: u64, call: &'a mut dyn FnMut(&Progress)) -> Self {
        Self { steps, call }
    }

    /// Reports scores on the development data.
    pub fn scores(&mut self, step: u64, scores: Scores) {
        (self.call)(&Progress::Scores { step, scores });
    }

    fn skip(&mut self, step: u64, why: &str) {
        (self.call)(&Progress::Skipped { step, reason: why.to_owned() });
    }
}

impl Report for Callback<'_> {
    fn step(&mut self, report: &StepReport) {
        (self.call)(&Progress::Step {
            step: report.step,
            steps: self.steps,
            loss: report.loss,
            learning_rate: report.learning_rate,
            tokens_per_s: report.tokens_per_s,
        });
    }

    fn evaluated(&mut self, report: &EvalReport) {
        (self.call)(&Progress::HeldOut(*report));
    }

    fn saved(&mut self, _: u64) {}

    fn skipped(&mut self, step: u64, why: &str) {
        self.skip(step, why);
    }
}

impl TaskReport for Callback<'_> {
    fn step(&mut self, report: &TaskStep) {
        (self.call)(&Progress::Step {
            step: report.step,
            steps: self.steps,
            loss: report.loss,
            learning_rate: report.learning_rate,
            tokens_per_s: report.tokens_per_s,
        });
    }

    fn skipped(&mut self, step: u64, why: &str) {
        self.skip(step, why);
    }

    fn epoch(&mut self, _: u32, _: u64, _: &mut dyn TaskEngine) -> Result<()> {
        Ok(())
    }
}
