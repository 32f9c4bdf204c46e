//! Metrics as the benchmarks define them, and the measuring of a model's outputs by them.

mod metrics;
pub mod squad;

use crate::data::glue::Target;

pub use metrics::{Metric, accuracy, f1, matthews, pearson, spearman};

/// Metrics of the logits (rows, outputs) of a head against what was to be told: classes where the
/// head has several outputs, else values.
pub fn measure(
    metrics: &[Metric],
    logits: &[f32],
    outputs: usize,
    targets: &[Target],
) -> Vec<(Metric, f64)> {
    let classes: Vec<u32> = logits.chunks_exact(outputs).map(best).collect();
    let gold: Vec<u32> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Class(class) => Some(*class),
            Target::Value(_) => None,
        })
        .collect();
    let values: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let wanted: Vec<f64> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Class(_) => None,
            Target::Value(value) => Some(f64::from(*value)),
        })
        .collect();
    metrics
        .iter()
        .map(|&metric| {
            let value = match metric {
                Metric::Accuracy => accuracy(&classes, &gold),
                Metric::F1 => f1(&classes, &gold),
                Metric::Mcc => matthews(&classes, &gold),
                Metric::Pearson => pearson(&values, &wanted),
                Metric::Spearman => spearman(&values, &wanted),
            };
            (metric, value)
        })
        .collect()
}

/// The first class with the largest logit.
fn best(row: &[f32]) -> u32 {
    let mut best = 0;
    for (class, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = class;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_measured_as_classes_or_as_values() {
        let logits = [0.1, 0.9, 2.0, -1.0, 0.5, 0.5];
        let targets = [1, 0, 1].map(Target::Class);
        let got = measure(&[Metric::Accuracy, Metric::F1], &logits, 2, &targets);
        assert_eq!(got[0], (Metric::Accuracy, 2.0 / 3.0));
        assert_eq!(got[1], (Metric::F1, 2.0 / 3.0));
        let targets = [1.0, 2.0, 4.0].map(Target::Value);
        let got = measure(&[Metric::Spearman], &[0.0, 0.5, 0.75], 1, &targets);
        assert_eq!(got, [(Metric::Spearman, 1.0)]);
    }
}
