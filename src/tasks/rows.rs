//! The rows of a file of texts with the outputs of a model's head: what the outputs mean, how they are measured, and
//! how they become answers.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Answers, Dataset, Measurement, nothing_to_measure};
use crate::data::glue::{self, Row, Target};
use crate::data::{Examples, Targets};
use crate::engine::inference::Logits;
use crate::error::Result;
use crate::eval::{ClassReport, Metric, best, measure_classes, measure_values, sets, softmax};

/// What the outputs of the model's head mean.
#[derive(Clone)]
pub(super) enum Outputs {
    /// The task's classes.
    Classes {
        names: Vec<String>,
        /// The output of each class; other programs may have written the model with another order.
        outputs: Vec<u32>,
    },
    /// Any number of the classes.
    Sets {
        names: Vec<String>,
        /// The probabilities above which the classes count as predicted; None before they are chosen.
        thresholds: Option<Vec<f64>>,
    },
    /// A number.
    Number { limits: Option<[f32; 2]> },
}

impl Outputs {
    pub(super) fn classes(names: Vec<String>) -> Self {
        let outputs = (0..names.len() as u32).collect();
        Self::Classes { names, outputs }
    }
}

/// Returns the classes or the numbers of all rows, in their order.
pub(super) fn targets(rows: &[Row], outputs: &Outputs) -> Targets {
    let output_of = |class: u32| match outputs {
        Outputs::Classes { outputs, .. } => outputs[class as usize],
        Outputs::Sets { .. } | Outputs::Number { .. } => class,
    };
    let mut classes = Vec::new();
    let (mut values, mut sets) = (Vec::new(), Vec::new());
    for row in rows {
        match &row.target {
            Some(Target::Class(class)) => classes.push(output_of(*class)),
            Some(Target::Classes(classes)) => sets.push(classes.clone()),
            Some(Target::Value(value)) => values.push(*value),
            None => {}
        }
    }
    match (values.is_empty(), sets.is_empty()) {
        (false, _) => Targets::Values(values),
        (true, false) => Targets::Sets(sets),
        (true, true) => Targets::Classes(classes),
    }
}

/// A file of texts.
pub(super) struct Read {
    pub(super) examples: Examples,
    /// The rows; those of a training file without their texts.
    pub(super) rows: Vec<Row>,
    pub(super) outputs: Outputs,
    pub(super) metrics: &'static [Metric],
    pub(super) submission: String,
}

/// Returns the numbers of a model's outputs by the names of their classes.
fn by_name<N: Copy + Into<Value>>(names: &[String], outputs: &[u32], row: &[N]) -> Value {
    let of = |(name, &output): (&String, &u32)| (name.clone(), row[output as usize].into());
    Value::Object(names.iter().zip(outputs).map(of).collect())
}

/// Returns the class of one of the head's outputs.
fn class_of(outputs: &[u32], output: u32) -> u32 {
    // Every output has a class, because the head has as many outputs as there are classes.
    outputs.iter().position(|&o| o == output).unwrap_or(0) as u32
}

/// Returns the class whose logit is the largest.
fn class(outputs: &[u32], row: &[f32]) -> u32 {
    class_of(outputs, best(row))
}

/// Returns the limits of the numbers of a task; none if it has classes or your own numbers.
pub fn limits(task: &str) -> Option<[f32; 2]> {
    let task = glue::Task::find(task)?;
    task.classes().is_none().then_some([0.0, 5.0])
}

/// Returns the number between the limits that is nearest to `value`.
pub fn limited(value: f32, limits: Option<[f32; 2]>) -> f32 {
    limits.map_or(value, |[low, high]| value.clamp(low, high))
}

impl Read {
    /// Returns the report on the task's classes, with the rows that are wrong.
    fn report(
        &self,
        names: &[String],
        outputs: &[u32],
        logits: &Logits,
        gold: &[u32],
    ) -> ClassReport {
        let rows = logits.values().chunks_exact(logits.outputs).map(softmax);
        let of_classes = |row: Vec<f64>| {
            outputs.iter().map(|&output| row[output as usize]).collect::<Vec<f64>>()
        };
        let rows: Vec<Vec<f64>> = rows.map(of_classes).collect();
        let mut report = ClassReport::of_probabilities(names, &rows, gold);
        for error in &mut report.errors {
            let row = &self.rows[error.index];
            (error.text, error.pair) = (row.a.clone(), row.b.clone());
            // The row's index in the file, where bad rows count too.
            error.index = row.index.parse().unwrap_or(error.index);
        }
        report
    }

    /// Returns the report on the sets of classes that reach their thresholds, and these sets.
    fn sets(
        &self,
        names: &[String],
        logits: &Logits,
        thresholds: &[f64],
        gold: &[Vec<u32>],
    ) -> (ClassReport, Vec<Vec<u32>>) {
        let rows = logits.values().chunks_exact(logits.outputs);
        let predicted: Vec<Vec<u32>> = rows.map(|row| sets::predicted(row, thresholds)).collect();
        (sets::report(names, &predicted, gold), predicted)
    }
}

impl Dataset for Read {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn examples(&self) -> &Examples {
        &self.examples
    }

    fn measure(&self, logits: &Logits) -> Result<Measurement> {
        match (&self.outputs, &self.examples.targets) {
            (Outputs::Classes { names, outputs }, Targets::Classes(gold)) => {
                let rows = logits.values().chunks_exact(logits.outputs);
                let predicted: Vec<u32> = rows.map(|row| class(outputs, row)).collect();
                let gold: Vec<u32> = gold.iter().map(|&o| class_of(outputs, o)).collect();
                let scores = measure_classes(self.metrics, &predicted, &gold);
                Ok((scores, Some(self.report(names, outputs, logits, &gold))))
            }
            (Outputs::Sets { names, thresholds }, Targets::Sets(gold)) => {
                let tuned = || sets::best_thresholds(logits.values(), logits.outputs, gold);
                let chosen = thresholds.clone().unwrap_or_else(tuned);
                let (report, predicted) = self.sets(names, logits, &chosen, gold);
                let mut scores = sets::measure(&report, &predicted, gold);
                if thresholds.is_none() {
                    let of = |(name, threshold): (&String, f64)| (name.clone(), threshold.into());
                    let chosen: Map<_, _> = names.iter().zip(chosen).map(of).collect();
                    scores.insert(sets::THRESHOLDS.into(), chosen.into());
                    let (report, predicted) = self.sets(names, logits, &[], gold);
                    let usual = sets::measure(&report, &predicted, gold);
                    scores.insert("micro_f1_at_0.5".into(), usual[Metric::MicroF1.name()].clone());
                }
                Ok((scores, Some(report)))
            }
            (Outputs::Number { .. }, Targets::Values(gold)) => {
                Ok((measure_values(self.metrics, logits.values(), gold), None))
            }
            _ => Err(nothing_to_measure()),
        }
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let mut text = String::from("index\tprediction\n");
        let mut lines = Vec::new();
        for (row, logits) in self.rows.iter().zip(logits.values().chunks_exact(logits.outputs)) {
            let mut line = json!({"index": row.index, "text": row.a});
            if let Some(pair) = &row.b {
                line["pair"] = pair.as_str().into();
            }
            let prediction = match &self.outputs {
                Outputs::Classes { names, outputs } => {
                    let class = class(outputs, logits) as usize;
                    let probabilities = softmax(logits);
                    line["prediction"] = names[class].as_str().into();
                    line["score"] = probabilities[outputs[class] as usize].into();
                    line["probabilities"] = by_name(names, outputs, &probabilities);
                    line["logits"] = by_name(names, outputs, logits);
                    names[class].clone()
                }
                Outputs::Sets { names, thresholds } => {
                    let thresholds = thresholds.as_deref().unwrap_or_default();
                    let classes = sets::predicted(logits, thresholds);
                    let predicted: Vec<&str> =
                        classes.iter().map(|&class| names[class as usize].as_str()).collect();
                    let outputs: Vec<u32> = (0..names.len() as u32).collect();
                    let probabilities: Vec<f64> =
                        logits.iter().map(|&logit| sets::sigmoid(logit)).collect();
                    line["probabilities"] = by_name(names, &outputs, &probabilities);
                    line["logits"] = by_name(names, &outputs, logits);
                    let joined = predicted.join("|");
                    line["prediction"] = predicted.into();
                    joined
                }
                Outputs::Number { limits } => {
                    let value = limited(logits[0], *limits);
                    line["prediction"] = value.into();
                    line["logits"] = logits.into();
                    format!("{value:.3}")
                }
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}\t{prediction}", row.index);
            lines.push(line);
        }
        Ok(Answers { documents: vec![(self.submission.clone(), text)], lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_predicted_similarities_have_limits() {
        assert_eq!(limits("sts-b"), Some([0.0, 5.0]));
        assert_eq!((limits("cola"), limits("custom")), (None, None));
        let limited = |value| limited(value, limits("sts-b"));
        assert_eq!([-0.1, 2.5, 5.1].map(limited), [0.0, 2.5, 5.0]);
        assert_eq!(super::limited(5.1, None), 5.1);
    }
}
