//! Steps that went wrong: a loss or a gradient that is not a number, or a loss far above those
//! before. They end the run, or are left out and told of, as the user chose.

use crate::error::{Error, Result};

/// What a bad step does to a run.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    clap::ValueEnum,
    serde::Serialize,
    serde::Deserialize,
)]
pub enum BadSteps {
    /// Ends it.
    #[default]
    Stop,
    /// Is left out: its gradients are thrown away.
    Skip,
}

/// What counts as a bad step, and what then.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Care {
    pub bad_steps: BadSteps,
    /// A loss above so many times the running mean is bad too; none for no such limit.
    pub spike: Option<f64>,
}

/// Losses before a spike is judged: the first of a run fall fast.
const SETTLED: u32 = 20;
/// Bad steps in a row that end a run in any case: the parameters themselves must be at fault.
const MOST_IN_A_ROW: u32 = 20;

/// What is wrong with a step whose gradients have no finite norm.
pub const NO_GRADIENT: &str = "the norm of the gradients is not a number";

/// Judges the steps of a run.
#[derive(Debug, Default)]
pub struct Guard {
    care: Care,
    experience: Experience,
}

/// What a guard knows of the steps so far; a run that goes on needs it again.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Experience {
    /// Running mean of the good losses, and how many went into it.
    usual: f64,
    seen: u32,
    /// Bad steps in a row.
    in_a_row: u32,
}

impl Guard {
    /// A guard at the start of a run.
    pub fn new(care: Care) -> Self {
        Self {
            care,
            ..Self::default()
        }
    }

    /// What it knows by now.
    pub fn experience(&self) -> Experience {
        self.experience
    }

    /// Goes on with what it knew when the run was saved.
    pub fn resume(&mut self, experience: Experience) {
        self.experience = experience;
    }

    /// What is wrong with the loss of a step, if anything is.
    pub fn look(&self, loss: f64) -> Option<String> {
        if !loss.is_finite() {
            return Some("the loss is not a number".into());
        }
        let Experience { usual, seen, .. } = self.experience;
        let limit = self.care.spike? * usual;
        (seen >= SETTLED && loss > limit)
            .then(|| format!("the loss jumped to {loss:.3} from a mean of {usual:.3}"))
    }

    /// Takes a good step's loss into the running mean.
    pub fn good(&mut self, loss: f64) {
        let known = &mut self.experience;
        known.seen += 1;
        known.in_a_row = 0;
        known.usual += (loss - known.usual) / f64::from(known.seen.min(SETTLED));
    }

    /// Whether the run goes on without step `step`, in which `what` went wrong.
    pub fn bad(&mut self, step: u64, what: &str) -> Result<()> {
        self.experience.in_a_row += 1;
        let why = match self.care.bad_steps {
            BadSteps::Stop => "a lower learning rate helps, or --bad-steps skip",
            BadSteps::Skip if self.experience.in_a_row < MOST_IN_A_ROW => return Ok(()),
            BadSteps::Skip => "so it went many times in a row; a lower learning rate helps",
        };
        Err(Error::Failed(format!(
            "step {step}: {what}: the run has diverged; {why}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_or_far_above_the_others_is_bad() {
        let mut guard = Guard::new(Care {
            bad_steps: BadSteps::Skip,
            spike: Some(3.0),
        });
        assert_eq!(guard.look(100.0), None);
        for _ in 0..SETTLED {
            guard.good(2.0);
        }
        assert_eq!(guard.look(5.9), None);
        assert!(guard.look(6.1).unwrap().contains("jumped to 6.100"));
        assert!(guard.look(f64::NAN).unwrap().contains("not a number"));
        assert!(Guard::default().look(f64::INFINITY).is_some());
        // One that goes on with the same run knows the same; a new one does not.
        let mut resumed = Guard::new(guard.care);
        assert_eq!(resumed.look(6.1), None);
        resumed.resume(guard.experience());
        assert!(resumed.look(6.1).is_some());
    }

    #[test]
    fn a_run_ends_at_once_or_after_too_many_bad_steps() {
        let message = Guard::default().bad(7, "x").unwrap_err().to_string();
        assert!(message.starts_with("step 7: x: the run has diverged"));
        let mut guard = Guard::new(Care {
            bad_steps: BadSteps::Skip,
            spike: None,
        });
        for step in 1..u64::from(MOST_IN_A_ROW) {
            guard.bad(step, "x").unwrap();
        }
        assert!(guard.bad(99, "x").is_err());
        guard.good(1.0);
        assert!(guard.bad(100, "x").is_ok());
    }
}
