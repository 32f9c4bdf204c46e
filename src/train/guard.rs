//! Bad steps: a loss or a gradient that is not finite, or a loss far above the ones before. They end the
//! run or are skipped, as the settings say.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a bad step does to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum BadSteps {
    /// Ends it.
    #[default]
    Stop,
    /// Is skipped: its gradients are discarded.
    Skip,
}

/// Which steps are bad, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GuardSettings {
    /// Whether bad steps end the run.
    pub bad_steps: BadSteps,
    /// A loss above this many times the running mean is bad too; None for no limit.
    pub spike: Option<f64>,
}

/// Number of losses before spikes are judged: the first losses of a run fall fast.
const SETTLED: u32 = 20;
/// This many bad steps in a row end any run: the parameters themselves must be damaged.
const MOST_IN_A_ROW: u32 = 20;

/// Decides which steps of a run are bad.
#[derive(Debug, Default)]
pub struct Guard {
    settings: GuardSettings,
    state: GuardState,
}

/// What a guard knows about the steps so far. A resumed run needs it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GuardState {
    /// Running mean of the good losses, and how many went into it.
    usual: f64,
    seen: u32,
    /// Bad steps in a row.
    in_a_row: u32,
}

impl Guard {
    /// Creates a guard for a new run.
    pub fn new(settings: GuardSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Returns what the guard knows by now.
    pub fn state(&self) -> GuardState {
        self.state
    }

    /// Continues from the state that was saved with the run.
    pub fn resume(&mut self, state: GuardState) {
        self.state = state;
    }

    /// Returns the number of good steps.
    pub fn good_steps(&self) -> u64 {
        self.state.seen.into()
    }

    /// Returns what is wrong with a step's loss, if anything.
    pub fn fault(&self, loss: f64) -> Option<String> {
        if !loss.is_finite() {
            return Some("the loss is not a number".into());
        }
        let GuardState { usual, seen, .. } = self.state;
        let limit = self.settings.spike? * usual;
        (seen >= SETTLED && loss > limit)
            .then(|| format!("the loss jumped to {loss:.3} from a mean of {usual:.3}"))
    }

    /// Adds a good step's loss to the running mean.
    pub fn good(&mut self, loss: f64) {
        let state = &mut self.state;
        state.seen += 1;
        state.in_a_row = 0;
        state.usual += (loss - state.usual) / f64::from(state.seen.min(SETTLED));
    }

    /// Counts a bad step.
    ///
    /// # Errors
    /// If it ends the run.
    pub fn bad(&mut self, step: u64, fault: &str) -> Result<()> {
        self.state.in_a_row += 1;
        let why = match self.settings.bad_steps {
            BadSteps::Stop => "lower the learning rate, or skip bad steps",
            BadSteps::Skip if self.state.in_a_row < MOST_IN_A_ROW => return Ok(()),
            BadSteps::Skip => "that happened many times in a row; lower the learning rate",
        };
        Err(Error::Failed(format!("step {step}: {fault}: the run has diverged; {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_or_far_above_the_others_is_bad() {
        let mut guard = Guard::new(GuardSettings { bad_steps: BadSteps::Skip, spike: Some(3.0) });
        assert_eq!(guard.fault(100.0), None);
        for _ in 0..SETTLED {
            guard.good(2.0);
        }
        assert_eq!(guard.fault(5.9), None);
        assert!(guard.fault(6.1).unwrap().contains("jumped to 6.100"));
        assert!(guard.fault(f64::NAN).unwrap().contains("not a number"));
        assert!(Guard::default().fault(f64::INFINITY).is_some());
        // One that goes on with the same run knows the same; a new one does not.
        let mut resumed = Guard::new(guard.settings);
        assert_eq!(resumed.fault(6.1), None);
        resumed.resume(guard.state());
        assert!(resumed.fault(6.1).is_some());
    }

    #[test]
    fn a_run_ends_at_once_or_after_too_many_bad_steps() {
        let message = Guard::default().bad(7, "x").unwrap_err().to_string();
        assert!(message.starts_with("step 7: x: the run has diverged"));
        let mut guard = Guard::new(GuardSettings { bad_steps: BadSteps::Skip, spike: None });
        for step in 1..u64::from(MOST_IN_A_ROW) {
            guard.bad(step, "x").unwrap();
        }
        assert!(guard.bad(99, "x").is_err());
        guard.good(1.0);
        assert!(guard.bad(100, "x").is_ok());
    }
}
