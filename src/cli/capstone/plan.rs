//! The plan of a capstone: every run gets the same share of the time, and as many steps as fit into it at the speed
//! that a short trial measures.

use std::path::Path;
use std::time::Instant;

use super::work::Work;
use crate::cli::shared::checks::refuse;
use crate::error::{Error, Result};
use crate::files::Scratch;
use crate::train::record::lines_in;

/// Steps of a first trial, and of the longest. With these numbers a trial measures the model as often as a run does,
/// and each phase has its share of the steps.
const FEW: u64 = 20;
const MANY: u64 = 2000;
/// A run with fewer steps teaches nothing.
const LEAST: u64 = 20;
/// The share of a run's time that the steps of its trial should take.
const TRIAL: f64 = 0.02;
/// The share of a run's time that is planned: the rest is for steps that are slower than those of the trial, and for
/// checkpoints.
const PLANNED: f64 = 0.9;

/// The time that a run needs, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    /// A step, as a mean over both phases.
    pub(super) step: f64,
    /// Everything but the steps: reading, measuring, fine-tuning, the exam.
    pub(super) beside: f64,
    /// The trial that measured this.
    pub(super) trial: f64,
}

impl Pace {
    /// Returns the steps that fit into `share` seconds; None if they are too few.
    pub(super) fn steps(&self, share: f64) -> Option<u64> {
        let steps = ((PLANNED * share - self.trial - self.beside) / self.step).floor();
        (steps >= LEAST as f64).then_some(steps as u64)
    }

    /// Returns the steps that fit into `share` seconds, at most `most`.
    ///
    /// # Errors
    /// If too few fit, with the numbers that say why.
    pub(super) fn plan(&self, title: &str, share: f64, most: u64) -> Result<u64> {
        let Some(steps) = self.steps(share) else {
            let Self { step, beside, trial } = self;
            refuse!(
                "--minutes: each run has {share:.1} s, too few for {title}: its steps take {step:.3} s each, its trial \
                 took {trial:.1} s, and reading, fine-tuning and measuring take {beside:.1} s; give more minutes, a \
                 smaller model, or fewer rows to fine-tune on (--limit)"
            );
        };
        Ok(steps.min(most))
    }
}

/// Measures the pace of a run with these options, which has `share` seconds and at most `most` steps; None if a stop
/// was requested. `folder` is that of the capstone.
pub(super) fn measure(
    work: &Work<'_>,
    words: &[String],
    (share, most): (f64, u64),
    folder: &Path,
) -> Result<Option<Pace>> {
    let began = Instant::now();
    let mut steps = FEW;
    loop {
        let scratch = Scratch::at(&folder.join("trial"))?;
        let started = Instant::now();
        let trained = work.pretrain(words, steps, scratch.path(), false)?;
        if trained.stopped() {
            return Ok(None);
        }
        let whole = started.elapsed().as_secs_f64();
        let step = seconds_of_a_step(&scratch.path().join("trainer"))?;
        let wanted = (TRIAL * share / step) as u64 / FEW * FEW;
        let wanted = wanted.min(MANY).min(most);
        if wanted > steps {
            steps = wanted;
            continue;
        }
        let besides = whole - steps as f64 * step;
        let started = Instant::now();
        let Some(times) = work.try_finetuning(scratch.path())? else {
            return Ok(None);
        };
        let finetuning = times as f64 * started.elapsed().as_secs_f64();
        let started = Instant::now();
        work.exam.mark(scratch.path())?;
        let beside = besides.max(0.0) + finetuning + started.elapsed().as_secs_f64();
        return Ok(Some(Pace { step, beside, trial: began.elapsed().as_secs_f64() }));
    }
}

/// Returns the mean time from a step to the next one, from the records of a run. Where the model was measured in
/// between, and at the first step, the time is not that of a step.
fn seconds_of_a_step(records: &Path) -> Result<f64> {
    let lines = lines_in(records)?;
    let at = |index: usize, name: &str| lines[index].get(name).and_then(|value| value.as_f64());
    let is_step = |index: usize| at(index, "loss").is_some();
    let times: Vec<f64> = (2..lines.len())
        .filter(|&index| is_step(index) && is_step(index - 1))
        .filter_map(|index| Some(at(index, "time")? - at(index - 1, "time")?))
        .collect();
    let sum: f64 = times.iter().sum();
    match sum > 0.0 {
        true => Ok(sum / times.len() as f64),
        false => Err(Error::file(records, "the trial has no records of its steps' times")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_fill_the_share_that_is_planned() {
        let pace = Pace { step: 0.1, beside: 10.0, trial: 8.0 };
        assert_eq!(pace.steps(120.0), Some(900));
        assert_eq!(pace.steps(22.5), Some(22));
        assert_eq!(pace.steps(22.0), None);
        assert_eq!(pace.plan("yours", 120.0, u64::MAX).unwrap(), 900);
        assert_eq!(pace.plan("yours", 120.0, 30).unwrap(), 30);
        let error = pace.plan("yours", 22.0, 5).unwrap_err();
        assert!(error.to_string().contains("each run has 22.0 s, too few for yours"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_step_s_time_is_that_between_two_steps_without_a_measurement_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"step\":0,\"time\":1.0,\"eval\":{}}\n{\"step\":1,\"time\":5.0,\"loss\":2}\n\
            {\"step\":2,\"time\":5.5,\"loss\":2}\n{\"step\":2,\"time\":9.0,\"eval\":{}}\n\
            {\"step\":3,\"time\":9.5,\"loss\":2}\n{\"step\":4,\"time\":10.25,\"loss\":2}\n";
        std::fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        assert_eq!(seconds_of_a_step(folder.path()).unwrap(), 0.625);
        std::fs::write(folder.path().join("metrics.jsonl"), "{\"step\":0,\"time\":1.0}\n").unwrap();
        assert!(seconds_of_a_step(folder.path()).is_err());
    }
}
