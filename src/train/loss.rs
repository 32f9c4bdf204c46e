//! The loss of a task's head over a batch: class weights, label smoothing, and texts that were read in
//! several windows.

use serde::{Deserialize, Serialize};

use crate::data::examples::{Examples, Targets};
use crate::engine::TaskEngine;
use crate::engine::inference::{mean_of_windows, outputs};
use crate::engine::objective::{self, Labels};
use crate::error::{Error, Result};
use crate::model::Dropout;

/// The options of a task's loss. By default, every class counts the same and labels are taken as they stand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Weight of each class: in cross-entropy that of its rows, as in PyTorch's `CrossEntropyLoss`; with
    /// several classes a text that of the texts that have it (`pos_weight` of `BCEWithLogitsLoss`). Empty
    /// if all are 1.
    pub class_weights: Vec<f32>,
    /// Share of each label that is spread over all classes (Szegedy et al., arXiv 1512.00567, section 7).
    pub label_smoothing: f64,
}

/// Returns the weights under which all classes count the same: rows / (classes × rows of the class), as
/// scikit-learn's `balanced`; with several classes a text, the texts without a class for each text with it.
/// A class without rows has weight 1.
///
/// # Errors
/// If the targets are not classes.
pub fn balanced(targets: &Targets, classes: usize) -> Result<Vec<f32>> {
    let (all, several) = match targets {
        Targets::Classes(all) => (all.clone(), None),
        Targets::Rows(all) => (all.iter().flatten().copied().collect(), None),
        Targets::Sets(all) => (all.concat(), Some(all.len() as f64)),
        Targets::Unknown | Targets::Values(_) | Targets::Choices(_) | Targets::Spans(_) => {
            return Err(Error::Usage("class weights need a task with classes".into()));
        }
    };
    targets.check(classes)?;
    let mut counts = vec![0u64; classes];
    all.iter().for_each(|&class| counts[class as usize] += 1);
    let total = all.len() as f64;
    let weight = |&count: &u64| match (count as f64, several) {
        (0.0, _) => 1.0,
        (count, None) => (total / (classes as f64 * count)) as f32,
        (count, Some(texts)) => ((texts - count) / count) as f32,
    };
    Ok(counts.iter().map(weight).collect())
}

impl Loss {
    /// Returns an error if an option does not apply to these targets.
    pub fn check(&self, targets: &Targets) -> Result<()> {
        let one_class = matches!(
            targets,
            Targets::Classes(_) | Targets::Rows(_) | Targets::Choices(_) | Targets::Unknown
        );
        if self.label_smoothing > 0.0 && !one_class {
            let message = "label smoothing needs a task with one class for each text or word";
            return Err(Error::Usage(message.into()));
        }
        Ok(())
    }

    /// Adds the gradients of the mean loss of the examples in `batch` to the engine's, those of its rank's share at
    /// most `micro_batch` examples at a time (0 for all at once). Returns the loss and the number of tokens.
    pub fn gradients(
        &self,
        engine: &mut dyn TaskEngine,
        data: &Examples,
        batch: &[usize],
        micro_batch: usize,
        dropout: Dropout,
    ) -> Result<(f64, u64)> {
        let ranks = engine.ranks().clone();
        let outputs = outputs(engine)?;
        let terms = self.terms(&data.targets_of(batch), outputs);
        let weight = (1.0 / terms) as f32;
        let (mut loss, mut tokens) = (0.0, 0);
        let share = &batch[ranks.share(batch.len())];
        let parts = share.chunks(match micro_batch {
            0 => share.len().max(1),
            size => size,
        });
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.enumerate() {
            if index == last {
                engine.last_part();
            }
            let packed = data.sequences.batch(part);
            tokens += packed.rows() as u64;
            let targets = data.targets_of(part);
            targets.check(outputs)?;
            let windows = data.sequences.windows_of(part);
            let labels = self.labels(&targets).filter(|_| windows.is_none());
            if let Some(labels) = labels {
                loss += engine.labelled_gradients(&packed, dropout, labels, weight)?.loss;
                continue;
            }
            let (ends, mut scored) = (&packed.cu_seqlens, 0.0);
            let mut score = |logits: &mut [f32]| match &windows {
                None => scored = self.summed(&targets, ends, logits, outputs, weight),
                Some(windows) => {
                    let mut means = mean_of_windows(logits, windows, outputs);
                    scored = self.summed(&targets, ends, &mut means, outputs, weight);
                    spread_over_windows(&means, windows, outputs, logits);
                }
            };
            engine.task_gradients(&packed, dropout, &mut score)?;
            loss += scored;
        }
        engine.start_sums()?;
        let [loss, tokens] = ranks.sum([loss, tokens as f64])?;
        Ok((loss / terms, tokens as u64))
    }

    /// Returns the labels of a loss that is cross-entropy alone.
    fn labels<'a>(&self, targets: &'a Targets) -> Option<Labels<'a>> {
        match targets {
            Targets::Spans(spans) => Some(Labels::Spans(spans)),
            Targets::Classes(classes) if self.is_plain() => Some(Labels::Classes(classes)),
            Targets::Rows(labels) if self.is_plain() => Some(Labels::Rows(labels)),
            _ => None,
        }
    }

    /// Whether all classes count the same, and labels are taken as they stand.
    fn is_plain(&self) -> bool {
        self.class_weights.is_empty() && self.label_smoothing == 0.0
    }

    /// Returns the mean loss of logits of whole examples.
    pub fn mean(&self, targets: &Targets, logits: &[f32], outputs: usize) -> f64 {
        let mut scratch = logits.to_vec();
        self.summed(targets, &[], &mut scratch, outputs, 1.0) / self.terms(targets, outputs)
    }

    /// Returns what the mean loss divides by: the predictions, or the weights of their classes.
    fn terms(&self, targets: &Targets, outputs: usize) -> f64 {
        let weighed =
            |class: u32| self.class_weights.get(class as usize).map_or(1.0, |&w| f64::from(w));
        let terms = match targets {
            Targets::Unknown => 0.0,
            Targets::Classes(all) => all.iter().map(|&class| weighed(class)).sum(),
            Targets::Rows(all) => all.iter().flatten().map(|&class| weighed(class)).sum(),
            Targets::Choices(all) => all.len() as f64,
            Targets::Values(all) => all.len() as f64,
            Targets::Sets(all) => (all.len() * outputs) as f64,
            Targets::Spans(all) => all.len() as f64,
        };
        // A batch without a target has no loss.
        if terms > 0.0 { terms } else { 1.0 }
    }

    /// Returns the summed loss of a batch's logits, and replaces them by `weight` times its gradient.
    fn summed(
        &self,
        targets: &Targets,
        cu_seqlens: &[u32],
        logits: &mut [f32],
        outputs: usize,
        weight: f32,
    ) -> f64 {
        let plain = self.is_plain();
        if let Some(labels) = self.labels(targets) {
            return labels.score(logits, cu_seqlens, outputs, weight).loss;
        }
        match targets {
            // Without a loss: a task refuses such data when it reads it. Spans have labels.
            Targets::Unknown | Targets::Spans(_) => {
                logits.fill(0.0);
                0.0
            }
            Targets::Classes(classes) => {
                let labels = classes.iter().copied().map(Some);
                self.smoothed(logits, outputs, labels, weight)
            }
            Targets::Values(values) => objective::squared_error(logits, values, weight).loss,
            Targets::Choices(right) => {
                let choices = logits.len() / right.len().max(1);
                match plain {
                    true => objective::cross_entropy(logits, choices, right, weight).loss,
                    false => {
                        let labels = right.iter().copied().map(Some);
                        self.smoothed(logits, choices, labels, weight)
                    }
                }
            }
            Targets::Sets(sets) => {
                let weights = &self.class_weights;
                objective::binary_cross_entropy(logits, outputs, sets, weights, weight)
            }
            Targets::Rows(labels) => self.smoothed(logits, outputs, labels.iter().copied(), weight),
        }
    }

    fn smoothed(
        &self,
        logits: &mut [f32],
        classes: usize,
        labels: impl Iterator<Item = Option<u32>>,
        weight: f32,
    ) -> f64 {
        let (weights, smoothing) = (&self.class_weights, self.label_smoothing);
        objective::smoothed_cross_entropy(logits, classes, labels, weights, smoothing, weight)
    }
}

/// Divides the gradient of each example's mean logits over its windows.
fn spread_over_windows(means: &[f32], windows: &[usize], outputs: usize, into: &mut [f32]) {
    let mut into = into.chunks_exact_mut(outputs);
    for (mean, &count) in means.chunks_exact(outputs).zip(windows) {
        for row in into.by_ref().take(count) {
            for (x, &gradient) in row.iter_mut().zip(mean) {
                *x = gradient / count as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_weights_are_scikit_learn_s() {
        // compute_class_weight("balanced", classes=[0, 1, 2], y=[0, 0, 0, 1, 1, 2]).
        let classes = Targets::Classes(vec![0, 0, 0, 1, 1, 2]);
        let weights = balanced(&classes, 3).unwrap();
        for (got, expected) in weights.iter().zip([0.666_666_7, 1.0, 2.0]) {
            assert!((got - expected).abs() < 1e-6, "{weights:?}");
        }
        let rows = Targets::Rows(vec![Some(0), None, Some(0), Some(0), Some(1)]);
        let weights = balanced(&rows, 3).unwrap();
        assert_eq!(weights[2], 1.0);
        let sets = Targets::Sets(vec![vec![0], vec![0, 1], vec![], vec![0]]);
        let weights = balanced(&sets, 2).unwrap();
        assert!((weights[0] - 1.0 / 3.0).abs() < 1e-6 && weights[1] == 3.0, "{weights:?}");
        assert!(balanced(&Targets::Classes(vec![2]), 2).is_err());
        for other in [Targets::Values(vec![1.0]), Targets::Choices(vec![3, 0])] {
            let message = balanced(&other, 4).unwrap_err().to_string();
            assert_eq!(message, "class weights need a task with classes");
        }
    }

    /// PyTorch 2: `CrossEntropyLoss(weight, label_smoothing=0.1)` and `BCEWithLogitsLoss(pos_weight)`.
    #[test]
    fn the_mean_loss_is_pytorch_s() {
        let logits = [0.5, -1.25, 2.0, 0.0, 3.5, -0.75];
        let loss = Loss { class_weights: vec![0.5, 2.0, 1.5], label_smoothing: 0.1 };
        let mean = loss.mean(&Targets::Classes(vec![1, 2]), &logits, 3);
        assert!((mean - 3.6040752).abs() < 1e-6, "{mean}");
        let loss = Loss { class_weights: vec![0.5, 2.0, 1.5], label_smoothing: 0.0 };
        let mean = loss.mean(&Targets::Sets(vec![vec![0, 2], vec![]]), &logits, 3);
        assert!((mean - 0.8815214).abs() < 1e-6, "{mean}");
    }

    #[test]
    fn the_gradient_of_a_mean_is_divided_over_the_windows() {
        let mut into = [9.0; 6];
        spread_over_windows(&[1.0, 2.0, 3.0, 6.0], &[1, 2], 2, &mut into);
        assert_eq!(into, [1.0, 2.0, 1.5, 3.0, 1.5, 3.0]);
    }
}
