//! What a classifier gets right and wrong, class by class: precision, recall and F1 of each class, the confusion
//! matrix, calibration, and the errors that it is surest of.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{best, ratio};

/// Number of bins of probabilities, each equally wide, as in Guo et al., "On calibration of modern neural
/// networks", arXiv 1706.04599, section 3.
const BINS: usize = 15;

/// Number of errors that are kept.
const ERRORS: usize = 20;

/// The report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Scores of each class, in the order of the classes.
    pub classes: Vec<ClassScores>,
    /// The names of the rows and columns of the confusion matrix. A tagger's have words outside all entities too.
    pub labels: Vec<String>,
    /// Number of examples by true class (rows) and predicted class (columns); empty if an example can have several
    /// classes.
    pub confusion: Vec<Vec<u64>>,
    /// None where there are no probabilities of classes that exclude each other.
    pub calibration: Option<Calibration>,
    /// The errors whose predictions are the most probable, the most probable first.
    pub errors: Vec<Mistake>,
}

/// Scores of one class against all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// The class.
    pub name: String,
    /// Share of correct predictions among all predictions of this class.
    pub precision: f64,
    /// Share of this class's examples that were found.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
    /// Number of examples of this class.
    pub support: u64,
}

/// How well the probability of the predicted class agrees with the share of correct predictions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The expected calibration error: the mean distance of both, over all examples.
    pub ece: f64,
    /// The bins of probabilities that hold examples.
    pub bins: Vec<Bin>,
}

/// The examples whose predictions have similar probabilities.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Mean probability of the predicted class.
    pub probability: f64,
    /// Share of correct predictions.
    pub accuracy: f64,
    /// Number of examples.
    pub count: u64,
}

/// An example that was classified wrongly.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mistake {
    /// The example's index in its file, counted from 0.
    pub index: usize,
    /// The true class.
    pub label: String,
    /// The predicted class.
    pub prediction: String,
    /// The prediction's probability.
    pub probability: f64,
    /// The text.
    #[serde(default)]
    pub text: String,
    /// The second text.
    #[serde(default)]
    pub pair: Option<String>,
}

impl ClassScores {
    /// Computes the scores of a class from its numbers of correct, predicted and true examples.
    pub fn of(name: &str, right: u64, predicted: u64, support: u64) -> Self {
        let (right, all) = (right as f64, (predicted + support) as f64);
        Self {
            name: name.to_owned(),
            precision: ratio(right, predicted as f64),
            recall: ratio(right, support as f64),
            f1: ratio(2.0 * right, all),
            support,
        }
    }
}

impl ClassReport {
    /// Reports on examples of one class each, given the probabilities of all classes, (examples, classes). The
    /// errors have no texts yet.
    pub fn of_probabilities(names: &[String], probabilities: &[Vec<f64>], gold: &[u32]) -> Self {
        let predicted: Vec<u32> = probabilities
            .iter()
            .map(|row| best(&row.iter().map(|&p| p as f32).collect::<Vec<f32>>()))
            .collect();
        let sure = |example: usize| probabilities[example][predicted[example] as usize];
        let mut wrong: Vec<usize> =
            (0..gold.len()).filter(|&example| predicted[example] != gold[example]).collect();
        wrong.sort_by(|&a, &b| sure(b).total_cmp(&sure(a)));
        let name = |class: u32| names.get(class as usize).cloned().unwrap_or_default();
        let errors = wrong.iter().take(ERRORS).map(|&index| Mistake {
            index,
            label: name(gold[index]),
            prediction: name(predicted[index]),
            probability: sure(index),
            ..Mistake::default()
        });
        let outcomes = (0..gold.len()).map(|i| (sure(i), predicted[i] == gold[i]));
        Self {
            calibration: Some(Calibration::of(outcomes)),
            errors: errors.collect(),
            ..Self::of_classes(names, &predicted, gold)
        }
    }

    /// Reports on predicted classes without probabilities.
    pub fn of_classes(names: &[String], predicted: &[u32], gold: &[u32]) -> Self {
        let count = names.len();
        let mut confusion = vec![vec![0; count]; count];
        for (&p, &g) in predicted.iter().zip(gold) {
            confusion[g as usize][p as usize] += 1;
        }
        let of = |(class, name): (usize, &String)| {
            let predicted = confusion.iter().map(|row| row[class]).sum();
            let row: &Vec<u64> = &confusion[class];
            ClassScores::of(name, row[class], predicted, row.iter().sum())
        };
        let classes = names.iter().enumerate().map(of).collect();
        Self { classes, labels: names.to_vec(), confusion, ..Self::default() }
    }

    /// Returns `classes`, `labels`, `confusion`, `calibration` and `errors`.
    pub fn to_json(&self) -> Map<String, Value> {
        let scores = |class: &ClassScores| {
            let ClassScores { precision, recall, f1, support, .. } = *class;
            let scores =
                json!({"precision": precision, "recall": recall, "f1": f1, "support": support});
            (class.name.clone(), scores)
        };
        let mut object = Map::new();
        object.insert(
            "classes".into(),
            self.classes.iter().map(scores).collect::<Map<_, _>>().into(),
        );
        if !self.confusion.is_empty() {
            object.insert("labels".into(), json!(self.labels));
            object.insert("confusion".into(), json!(self.confusion));
        }
        if let Some(calibration) = &self.calibration {
            object.insert("calibration".into(), json!(calibration));
        }
        if !self.errors.is_empty() {
            object.insert("errors".into(), json!(self.errors));
        }
        object
    }
}

impl Calibration {
    /// Compares the probabilities of predictions with whether they are correct.
    pub fn of(outcomes: impl Iterator<Item = (f64, bool)>) -> Self {
        // Sums of probabilities, correct predictions and all predictions.
        let mut sums = [(0.0, 0.0, 0u64); BINS];
        for (probability, right) in outcomes {
            let bin = ((probability * BINS as f64) as usize).min(BINS - 1);
            let (probabilities, correct, count) = &mut sums[bin];
            *probabilities += probability;
            *correct += f64::from(u8::from(right));
            *count += 1;
        }
        let all: u64 = sums.iter().map(|(.., count)| count).sum();
        let distance: f64 = sums.iter().map(|(p, right, _)| (p - right).abs()).sum();
        let bins = sums.iter().filter(|(.., count)| *count > 0).map(|&(p, right, count)| Bin {
            probability: p / count as f64,
            accuracy: right / count as f64,
            count,
        });
        Self { ece: ratio(distance, all as f64), bins: bins.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_scores_and_the_surest_errors_come_first() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let probabilities = [
            vec![0.6, 0.3, 0.1],
            vec![0.1, 0.8, 0.1],
            vec![0.05, 0.95, 0.0],
            vec![0.4, 0.5, 0.1],
            vec![0.9, 0.0, 0.1],
        ];
        let report = ClassReport::of_probabilities(&names, &probabilities, &[0, 1, 0, 1, 1]);
        assert_eq!(report.confusion, [[1, 1, 0], [1, 2, 0], [0, 0, 0]]);
        let [a, b, c] = &report.classes[..] else { panic!() };
        assert_eq!((a.precision, a.recall, a.f1, a.support), (0.5, 0.5, 0.5, 2));
        let third = 2.0 / 3.0;
        assert_eq!((b.precision, b.recall, b.f1, b.support), (third, third, third, 3));
        assert_eq!((c.precision, c.recall, c.f1, c.support), (0.0, 0.0, 0.0, 0));
        let errors: Vec<(usize, f64)> =
            report.errors.iter().map(|e| (e.index, e.probability)).collect();
        assert_eq!(errors, [(2, 0.95), (4, 0.9)]);
        assert_eq!((&report.errors[1].label[..], &report.errors[1].prediction[..]), ("b", "a"));
        let json = report.to_json();
        assert_eq!(json["classes"]["b"]["support"], 3);
        assert_eq!(json["confusion"][1][0], 1);
    }

    #[test]
    fn the_calibration_error_is_the_mean_distance_over_examples() {
        // Two predictions of 0.9, one of them right, and two of 0.5, both right.
        let outcomes = [(0.9, true), (0.9, false), (0.5, true), (0.5, true)];
        let calibration = Calibration::of(outcomes.into_iter());
        assert!((calibration.ece - (2.0 * 0.4 + 2.0 * 0.5) / 4.0).abs() < 1e-12);
        assert_eq!(calibration.bins.len(), 2);
        assert_eq!((calibration.bins[0].accuracy, calibration.bins[0].count), (1.0, 2));
        // A probability of 1 is in the last bin; nothing at all has no error.
        assert_eq!(Calibration::of([(1.0, true)].into_iter()).ece, 0.0);
        assert_eq!(Calibration::of(std::iter::empty()).ece, 0.0);
    }
}
