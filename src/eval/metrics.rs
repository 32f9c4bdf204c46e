//! The metrics of GLUE: accuracy, F1, and the correlations of Matthews, Pearson and Spearman.
//!
//! All are fractions or correlations, not percentages. A metric that is not defined (no positive
//! row, all values alike) is 0, as in scikit-learn's `f1_score` and `matthews_corrcoef`.

use crate::data::glue;

/// A metric of classes or of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The share of correct predictions.
    Accuracy,
    /// F1 of class 1 against class 0.
    F1,
    /// The mean of every class's F1 against all others.
    MacroF1,
    /// F1 over all classes of texts that can have several.
    MicroF1,
    /// Matthews' correlation coefficient.
    Mcc,
    /// Pearson's correlation coefficient.
    Pearson,
    /// Spearman's rank correlation.
    Spearman,
}

impl Metric {
    /// Returns the metric's key in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1 => "f1",
            Self::MacroF1 => "macro_f1",
            Self::MicroF1 => "micro_f1",
            Self::Mcc => "mcc",
            Self::Pearson => "pearson",
            Self::Spearman => "spearman",
        }
    }

    /// Returns the official metrics of a GLUE task, the most important one first.
    pub fn of_glue(task: &glue::Task) -> &'static [Self] {
        match task.name {
            "cola" | "ax" => &[Self::Mcc, Self::Accuracy],
            "mrpc" | "qqp" => &[Self::Accuracy, Self::F1],
            "sts-b" => &[Self::Pearson, Self::Spearman],
            _ => &[Self::Accuracy],
        }
    }
}

/// Returns the share of correct predictions.
pub fn accuracy(predicted: &[u32], gold: &[u32]) -> f64 {
    let right = predicted.iter().zip(gold).filter(|(p, g)| p == g).count();
    ratio(right as f64, gold.len() as f64)
}

/// Returns the F1 of class 1: the harmonic mean of its precision and recall.
pub fn f1(predicted: &[u32], gold: &[u32]) -> f64 {
    // Rows by (predicted class is 1, true class is 1).
    let mut counts = [[0.0; 2]; 2];
    for (&p, &g) in predicted.iter().zip(gold) {
        counts[usize::from(p == 1)][usize::from(g == 1)] += 1.0;
    }
    let [[_, missed], [wrong, found]] = counts;
    ratio(2.0 * found, 2.0 * found + wrong + missed)
}

/// Returns the mean of every class's F1 against all others, over the classes that occur in either list.
pub fn macro_f1(predicted: &[u32], gold: &[u32]) -> f64 {
    let mut classes: Vec<u32> = predicted.iter().chain(gold).copied().collect();
    classes.sort_unstable();
    classes.dedup();
    let of = |class: u32| {
        let is = |all: &[u32]| -> Vec<u32> { all.iter().map(|&c| u32::from(c == class)).collect() };
        f1(&is(predicted), &is(gold))
    };
    let sum: f64 = classes.iter().map(|&class| of(class)).sum();
    ratio(sum, classes.len() as f64)
}

/// Returns Matthews' correlation coefficient, for more than two classes as Gorodkin generalises it
/// (doi.org/10.1016/j.compbiolchem.2004.09.006, and scikit-learn's `matthews_corrcoef`).
pub fn matthews(predicted: &[u32], gold: &[u32]) -> f64 {
    let largest = predicted.iter().chain(gold).max();
    let classes = largest.map_or(0, |&class| class as usize + 1);
    let counts = |all: &[u32]| {
        let mut counts = vec![0.0; classes];
        all.iter().for_each(|&class| counts[class as usize] += 1.0);
        counts
    };
    let (predictions, truths) = (counts(predicted), counts(gold));
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let all = predicted.len() as f64;
    let right = predicted.iter().zip(gold).filter(|(p, g)| p == g).count() as f64;
    let spread = |counts: &[f64]| all * all - product(counts, counts);
    ratio(
        right * all - product(&predictions, &truths),
        (spread(&predictions) * spread(&truths)).sqrt(),
    )
}

/// Returns Pearson's correlation coefficient.
pub fn pearson(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        xy += (x - mean_x) * (y - mean_y);
        xx += (x - mean_x) * (x - mean_x);
        yy += (y - mean_y) * (y - mean_y);
    }
    ratio(xy, (xx * yy).sqrt())
}

/// Returns Spearman's rank correlation: Pearson's of the ranks, equal values sharing their mean rank.
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    pearson(&ranks(x), &ranks(y))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let mean = start as f64 + (group.len() - 1) as f64 / 2.0;
        for &index in group {
            ranks[index] = mean;
        }
        start += group.len();
    }
    ranks
}

/// Divides; an undefined metric, whose denominator is 0, is 0.
pub(super) fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREDICTED: [u32; 10] = [1, 0, 1, 1, 0, 0, 1, 0, 1, 1];
    const GOLD: [u32; 10] = [1, 0, 0, 1, 1, 0, 1, 0, 1, 0];

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-12, "{got}, expected {expected}");
    }

    /// What scikit-learn 1.9 and SciPy 1.17 compute for the same numbers.
    #[test]
    fn metrics_are_those_of_scikit_learn_and_scipy() {
        close(accuracy(&PREDICTED, &GOLD), 0.7);
        close(f1(&PREDICTED, &GOLD), 0.727_272_727_272_727_3);
        close(matthews(&PREDICTED, &GOLD), 0.408_248_290_463_863);
        let (predicted, gold) = ([0, 2, 1, 1, 0, 3], [0, 1, 1, 2, 0, 0]);
        close(macro_f1(&predicted, &gold), 0.325);
        close(matthews(&predicted, &gold), 0.292_684_703_502_481_77);
        let x = [0.5, 2.0, 2.0, 4.75, 3.0, 1.0, 0.0, 2.0];
        let y = [1.0, 2.5, 2.0, 5.0, 2.0, 0.0, 0.5, 3.0];
        close(pearson(&x, &y), 0.888_669_869_428_974_7);
        close(spearman(&x, &y), 0.785_409_109_878_105_5);
    }

    #[test]
    fn what_is_not_defined_is_zero() {
        close(f1(&[0, 0], &[0, 0]), 0.0);
        close(matthews(&[1, 1], &[0, 1]), 0.0);
        close(pearson(&[1.0, 1.0], &[0.0, 1.0]), 0.0);
        close(accuracy(&[], &[]), 0.0);
    }
}
