//! Metrics as the benchmarks define them, computed from a model's outputs.

mod classes;
pub mod entities;
mod metrics;
pub mod sets;
pub mod squad;

pub use classes::{Bin, Calibration, ClassReport, ClassScores, Mistake};
use metrics::ratio;
pub use metrics::{Metric, accuracy, f1, macro_f1, matthews, pearson, spearman};

/// Metrics by their keys in results, in the order in which they are printed.
pub type Scores = serde_json::Map<String, serde_json::Value>;

/// Computes metrics of predicted classes against the true ones.
pub fn measure_classes(metrics: &[Metric], predicted: &[u32], gold: &[u32]) -> Scores {
    collect(metrics, |metric| match metric {
        Metric::Accuracy => accuracy(predicted, gold),
        Metric::F1 => f1(predicted, gold),
        Metric::MacroF1 => macro_f1(predicted, gold),
        // Every wrong prediction is one class too many and one too few.
        Metric::MicroF1 => accuracy(predicted, gold),
        Metric::Mcc => matthews(predicted, gold),
        Metric::Pearson | Metric::Spearman => correlation(metric, predicted, gold),
    })
}

/// Computes metrics of predicted numbers against the true ones.
pub fn measure_values(metrics: &[Metric], predicted: &[f32], gold: &[f32]) -> Scores {
    collect(metrics, |metric| correlation(metric, predicted, gold))
}

fn correlation<T: Copy + Into<f64>>(metric: Metric, predicted: &[T], gold: &[T]) -> f64 {
    let numbers = |all: &[T]| -> Vec<f64> { all.iter().map(|&x| x.into()).collect() };
    let (predicted, gold) = (numbers(predicted), numbers(gold));
    match metric {
        Metric::Spearman => spearman(&predicted, &gold),
        _ => pearson(&predicted, &gold),
    }
}

fn collect(metrics: &[Metric], value: impl Fn(Metric) -> f64) -> Scores {
    let entry = |&metric: &Metric| (metric.name().to_owned(), value(metric).into());
    metrics.iter().map(entry).collect()
}

/// Returns the class with the largest logit, the first of equals.
pub fn best(row: &[f32]) -> u32 {
    let mut best = 0;
    for (class, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = class;
        }
    }
    best as u32
}

/// Returns the softmax of logits, in f64: probabilities that add up to 1.
pub fn softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp: Vec<f64> = logits.iter().map(|&x| f64::from(x - max).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.into_iter().map(|x| x / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_in_the_order_that_was_asked_for() {
        assert_eq!((best(&[0.1, 0.9, 0.9]), best(&[2.0, -1.0])), (1, 0));
        let got = measure_classes(&[Metric::F1, Metric::Accuracy], &[1, 0, 0], &[1, 0, 1]);
        let expected = [("f1", 2.0 / 3.0), ("accuracy", 2.0 / 3.0)];
        let got = got.iter().map(|(k, v)| (k.as_str(), v.as_f64().unwrap()));
        assert!(got.eq(expected));
        let got = measure_values(&[Metric::Spearman], &[0.0, 0.5, 0.75], &[1.0, 2.0, 4.0]);
        assert_eq!(got["spearman"], 1.0);
    }
}
