//! Metrics of texts with any number of classes, and the thresholds above which a class counts as predicted.

use super::{ClassReport, ClassScores, Scores, ratio};

/// The name of the thresholds among the scores and in a model's configuration.
pub const THRESHOLDS: &str = "thresholds";

/// The threshold of a class about which nothing is known.
pub const USUAL_THRESHOLD: f64 = 0.5;

/// Returns the probability of a class, the sigmoid of its logit.
pub fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// Returns the classes whose probabilities reach their thresholds. `thresholds` may be empty: then all are
/// [`USUAL_THRESHOLD`].
pub fn predicted(logits: &[f32], thresholds: &[f64]) -> Vec<u32> {
    let reaches = |&(class, &logit): &(usize, &f32)| {
        sigmoid(logit) >= thresholds.get(class).copied().unwrap_or(USUAL_THRESHOLD)
    };
    logits.iter().enumerate().filter(reaches).map(|(class, _)| class as u32).collect()
}

/// Returns for each class the threshold with the highest F1 on these examples, in the middle between two
/// probabilities; of equally good ones that nearest to [`USUAL_THRESHOLD`]. `logits` are (examples, classes).
pub fn best_thresholds(logits: &[f32], classes: usize, gold: &[Vec<u32>]) -> Vec<f64> {
    (0..classes)
        .map(|class| {
            let rows = logits.chunks_exact(classes).zip(gold);
            let mut examples: Vec<(f64, bool)> = rows
                .map(|(row, set)| (sigmoid(row[class]), set.contains(&(class as u32))))
                .collect();
            examples.sort_by(|a, b| b.0.total_cmp(&a.0));
            let positives = examples.iter().filter(|(_, has)| *has).count() as f64;
            let (mut found, mut best) = (0.0, (0.0, USUAL_THRESHOLD));
            for (index, &(probability, has)) in examples.iter().enumerate() {
                found += f64::from(u8::from(has));
                let next = examples.get(index + 1).map_or(0.0, |&(next, _)| next);
                if next == probability {
                    continue;
                }
                let f1 = ratio(2.0 * found, positives + (index + 1) as f64);
                // Every threshold between the two probabilities gives this F1.
                let threshold = match next < USUAL_THRESHOLD && USUAL_THRESHOLD <= probability {
                    true => USUAL_THRESHOLD,
                    false => (probability + next) / 2.0,
                };
                let distance = |threshold: f64| (threshold - USUAL_THRESHOLD).abs();
                if f1 > best.0 || f1 == best.0 && distance(threshold) < distance(best.1) && f1 > 0.0
                {
                    best = (f1, threshold);
                }
            }
            best.1
        })
        .collect()
}

/// Reports on sets of classes.
pub fn report(names: &[String], predicted: &[Vec<u32>], gold: &[Vec<u32>]) -> ClassReport {
    let count =
        |sets: &[Vec<u32>], class| sets.iter().filter(|set| set.contains(&class)).count() as u64;
    let of = |(name, class): (&String, u32)| {
        let both = |(p, g): &(&Vec<u32>, &Vec<u32>)| p.contains(&class) && g.contains(&class);
        let right = predicted.iter().zip(gold).filter(both).count() as u64;
        ClassScores::of(name, right, count(predicted, class), count(gold, class))
    };
    ClassReport { classes: names.iter().zip(0..).map(of).collect(), ..ClassReport::default() }
}

/// Returns `micro_f1` over all classes of all examples, `macro_f1`, the mean of the classes' F1, and `accuracy`, the
/// share of examples whose set is exactly right, as scikit-learn defines them.
pub fn measure(report: &ClassReport, predicted: &[Vec<u32>], gold: &[Vec<u32>]) -> Scores {
    let size = |sets: &[Vec<u32>]| sets.iter().map(Vec::len).sum::<usize>() as f64;
    let found = |(p, g): (&Vec<u32>, &Vec<u32>)| p.iter().filter(|class| g.contains(class)).count();
    let right: usize = predicted.iter().zip(gold).map(found).sum();
    let exact = predicted.iter().zip(gold).filter(|(p, g)| p == g).count() as f64;
    let sum: f64 = report.classes.iter().map(|class| class.f1).sum();
    let scores = [
        ("micro_f1", ratio(2.0 * right as f64, size(predicted) + size(gold))),
        ("macro_f1", ratio(sum, report.classes.len() as f64)),
        ("accuracy", ratio(exact, gold.len() as f64)),
    ];
    scores.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scikit-learn 1.9: `f1_score(average="micro" | "macro", zero_division=0)` and `accuracy_score`.
    #[test]
    fn metrics_are_those_of_scikit_learn() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let gold = [vec![0, 1], vec![1], vec![], vec![0]];
        let predicted = [vec![0], vec![1], vec![2], vec![0, 1]];
        let report = report(&names, &predicted, &gold);
        let scores = measure(&report, &predicted, &gold);
        assert!((scores["micro_f1"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(
            (scores["macro_f1"].as_f64(), scores["accuracy"].as_f64()),
            (Some(0.5), Some(0.25))
        );
        assert_eq!((report.classes[1].precision, report.classes[1].support), (0.5, 2));
    }

    #[test]
    fn a_threshold_lies_where_f1_is_highest() {
        // Class 0: three of four have it, the second with a low probability. Class 1: no example has it.
        let logits = [2.0, -1.0, -1.0, -3.0, 3.0, 0.0, -2.0, 0.5];
        let gold = [vec![0], vec![0], vec![0], vec![]];
        let thresholds = best_thresholds(&logits, 2, &gold);
        let middle = (sigmoid(-1.0) + sigmoid(-2.0)) / 2.0;
        assert!((thresholds[0] - middle).abs() < 1e-12, "{thresholds:?}");
        assert_eq!(thresholds[1], USUAL_THRESHOLD);
        assert_eq!(predicted(&logits[2..4], &thresholds), [0]);
        assert_eq!(predicted(&logits[2..4], &[]), [] as [u32; 0]);
        // Where the usual threshold is as good as any, it stays.
        assert_eq!(best_thresholds(&[2.0, -2.0], 1, &[vec![0], vec![]]), [0.5]);
        // Of two that are equally good, the nearer one to it.
        let gold = [vec![0], vec![], vec![], vec![0], vec![]];
        assert_eq!(best_thresholds(&[3.0, 2.5, 2.0, 1.5, -1.0], 1, &gold), [0.5]);
    }
}
