//! What the report shows of a run: its state, its curves, its scores.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::eval::Scores;

use super::curve::Curve;

/// The group of the numbers of a step. In a line, they have no group.
pub const TRAIN: &str = "train";
/// Entries of a line that are not numbers of the run.
pub const STEP: &str = "step";
pub const TIME: &str = "time";
pub const LEFT_OUT: &str = "left_out";

/// How a run ended, if it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    Ended,
    BrokenOff,
}

/// A run in the report.
pub struct Run {
    pub name: Option<String>,
    /// Steps of the whole run.
    pub planned: u64,
    /// Steps that were done before this process continued the run.
    pub resumed: u64,
    pub step: u64,
    /// Number of skipped steps.
    pub left_out: u64,
    /// When this process began or continued the run.
    pub began: Instant,
    /// How long this process took for the run, once it has ended.
    pub took: Duration,
    pub state: State,
    /// By group and name, in order of their first number.
    curves: Vec<(String, Curve)>,
    /// The newest scores by group, with their step.
    pub scores: Vec<(String, u64, Scores)>,
}

impl Run {
    /// Creates a run at its start, or after step `resumed`.
    pub fn new(name: Option<&str>, planned: u64, resumed: u64) -> Self {
        Self {
            name: name.map(str::to_owned),
            planned,
            resumed,
            step: resumed,
            left_out: 0,
            began: Instant::now(),
            took: Duration::ZERO,
            state: State::Running,
            curves: Vec::new(),
            scores: Vec::new(),
        }
    }

    /// Returns the numbers of a group and name.
    pub fn curve(&self, key: &str) -> Option<&Curve> {
        let found = self.curves.iter().find(|(name, _)| name == key);
        found.map(|(_, curve)| curve)
    }

    /// Adds a number.
    pub fn push(&mut self, key: String, step: u64, value: f64) {
        let found = self.curves.iter().position(|(name, _)| *name == key);
        let index = found.unwrap_or_else(|| {
            self.curves.push((key, Curve::default()));
            self.curves.len() - 1
        });
        self.curves[index].1.push(step as f64, value);
    }

    /// Adds a line that an earlier process wrote.
    pub fn take(&mut self, step: u64, line: &Map<String, Value>) {
        self.step = self.step.max(step);
        self.left_out += u64::from(line.contains_key(LEFT_OUT));
        for (name, value) in line {
            match value {
                Value::Number(value) if name != STEP && name != TIME => {
                    let value = value.as_f64().unwrap_or(f64::NAN);
                    self.push(format!("{TRAIN}/{name}"), step, value);
                }
                Value::Object(scores) => self.measured(step, name, scores),
                _ => {}
            }
        }
    }

    /// Adds scores.
    pub fn measured(&mut self, step: u64, group: &str, scores: &Scores) {
        for (name, value) in numbers(scores) {
            self.push(format!("{group}/{name}"), step, value);
        }
        self.scores.retain(|(name, ..)| name != group);
        self.scores.push((group.to_owned(), step, scores.clone()));
    }

    /// Returns whether the group has scores of this step.
    pub fn has_scores(&self, group: &str, step: u64) -> bool {
        self.scores.iter().any(|(name, at, _)| name == group && *at == step)
    }

    /// Returns the share of the steps that are done.
    pub fn done(&self) -> f64 {
        self.step as f64 / self.planned.max(1) as f64
    }

    /// Returns how long the rest will take at the speed so far.
    pub fn left(&self) -> Option<Duration> {
        let steps = self.step.saturating_sub(self.resumed);
        let each = (steps > 0).then(|| self.began.elapsed().as_secs_f64() / steps as f64)?;
        let left = self.planned.saturating_sub(self.step) as f64;
        Some(Duration::from_secs_f64(each * left))
    }
}

/// Returns the scores that are single numbers.
pub fn numbers(scores: &Scores) -> impl Iterator<Item = (&str, f64)> {
    let number = |(name, value)| Some((String::as_str(name), Value::as_f64(value)?));
    scores.iter().filter_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_left_takes_as_long_for_each_step_as_what_was_done_here() {
        let mut run = Run::new(None, 100, 20);
        assert_eq!(run.left(), None);
        run.step = 40;
        run.began = Instant::now() - Duration::from_secs(10);
        let left = run.left().unwrap().as_secs_f64();
        // 20 steps took 10 s, and 60 are left.
        assert!((left - 30.0).abs() < 1.0, "{left}");
        assert_eq!(run.done(), 0.4);
        run.step = 110;
        assert_eq!(run.left(), Some(Duration::ZERO));
    }

    #[test]
    fn the_lines_of_an_earlier_process_become_curves_and_scores() {
        let mut run = Run::new(None, 10, 0);
        for line in [
            json!({"step": 3, "time": 1.0, "loss": 2.0}),
            json!({"step": 4, "loss": 1.5, "left_out": "no number"}),
            json!({"step": 4, "dev": {"accuracy": 0.5, "matrix": [1]}}),
        ] {
            run.take(line["step"].as_u64().unwrap(), line.as_object().unwrap());
        }
        assert_eq!((run.step, run.left_out), (4, 1));
        assert_eq!(run.curve("train/loss").unwrap().points(), [(3.0, 2.0), (4.0, 1.5)]);
        assert_eq!(run.curve("dev/accuracy").unwrap().points(), [(4.0, 0.5)]);
        assert!(run.curve("train/step").is_none() && run.curve("train/time").is_none());
        assert!(run.has_scores("dev", 4) && !run.has_scores("dev", 3));
        let scores = json!({"accuracy": 0.5, "matrix": [1]});
        let found: Vec<_> = numbers(scores.as_object().unwrap()).collect();
        assert_eq!(found, [("accuracy", 0.5)]);
    }
}
