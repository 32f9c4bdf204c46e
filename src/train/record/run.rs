//! What the report knows of a run: where it stands, its curves, its scores.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::eval::Scores;

use super::curve::Curve;

/// The group of what is told of every step; its names stand at the top of a line.
pub const TRAIN: &str = "train";
/// Names in a line that are no numbers of the run.
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

/// What the report knows of a run.
pub struct Run {
    pub name: Option<String>,
    /// Steps of the whole run.
    pub planned: u64,
    /// Steps that were done before this process went on with it.
    pub resumed: u64,
    pub step: u64,
    /// Steps that were left out.
    pub left_out: u64,
    /// When this process began with it.
    pub began: Instant,
    /// How long this process took for it, once it has ended.
    pub took: Duration,
    pub state: State,
    /// By group and name, in the order of their coming.
    curves: Vec<(String, Curve)>,
    /// The newest scores by group, and the step that they are of.
    pub scores: Vec<(String, u64, Scores)>,
}

impl Run {
    /// A run at its start, or behind step `resumed`.
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

    /// The numbers of a group and name.
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

    /// Takes in a line of an earlier process.
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

    /// Takes in what was measured.
    pub fn measured(&mut self, step: u64, group: &str, scores: &Scores) {
        for (name, value) in numbers(scores) {
            self.push(format!("{group}/{name}"), step, value);
        }
        self.scores.retain(|(name, ..)| name != group);
        self.scores.push((group.to_owned(), step, scores.clone()));
    }

    /// Whether the group was measured after this step.
    pub fn has_scores(&self, group: &str, step: u64) -> bool {
        self.scores
            .iter()
            .any(|(name, at, _)| name == group && *at == step)
    }

    /// The share of the steps that are done.
    pub fn done(&self) -> f64 {
        self.step as f64 / self.planned.max(1) as f64
    }

    /// How long the rest will take, at the speed so far.
    pub fn left(&self) -> Option<Duration> {
        let steps = self.step.saturating_sub(self.resumed);
        let each = (steps > 0).then(|| self.began.elapsed().as_secs_f64() / steps as f64)?;
        let left = self.planned.saturating_sub(self.step) as f64;
        Some(Duration::from_secs_f64(each * left))
    }
}

/// The scores that are single numbers.
pub fn numbers(scores: &Scores) -> impl Iterator<Item = (&str, f64)> {
    let number = |(name, value)| Some((String::as_str(name), Value::as_f64(value)?));
    scores.iter().filter_map(number)
}
