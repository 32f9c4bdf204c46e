//! Runs a task's head over the sequences of a data set, for predictions and scores.

use crate::data::sequences::{BatchSize, Sequences};
use crate::error::{Error, Result};
use crate::model::HeadInput;

use super::{Engine, TaskEngine};

/// Returns the number of outputs of the engine's task head.
///
/// # Errors
/// If the model has no task head.
pub fn outputs(engine: &(impl Engine + ?Sized)) -> Result<usize> {
    let head = engine.layout().task_head();
    head.map(|head| head.outputs).ok_or_else(|| Error::Failed("the model has no task head".into()))
}

/// The task head's outputs for the examples of a data set, in order.
#[derive(Debug, Clone, Default)]
pub struct Logits {
    values: Vec<f32>,
    /// The end of each example's logits in `values`.
    ends: Vec<usize>,
    /// Number of logits per sequence or row.
    pub outputs: usize,
}

impl Logits {
    /// Returns the logits of all examples, concatenated.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns the logits of example `index`: (its sequences or rows, outputs).
    pub fn of(&self, index: usize) -> &[f32] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.values[start..self.ends[index]]
    }
}

/// Returns the mean logits of each example, (examples, outputs), of those of its windows, (windows, outputs).
/// `counts` has the number of windows of each example.
pub fn mean_of_windows(logits: &[f32], counts: &[usize], outputs: usize) -> Vec<f32> {
    let mut rows = logits.chunks_exact(outputs);
    let mut means = vec![0.0; counts.len() * outputs];
    for (mean, &count) in means.chunks_exact_mut(outputs).zip(counts) {
        for row in rows.by_ref().take(count) {
            for (sum, x) in mean.iter_mut().zip(row) {
                *sum += x / count as f32;
            }
        }
    }
    means
}

/// Computes the task head's logits for all examples.
///
/// # Errors
/// If the model has no task head, or a logit is not finite.
pub fn logits(engine: &mut dyn TaskEngine, sequences: &Sequences) -> Result<Logits> {
    let outputs = outputs(engine)?;
    let windows = sequences.has_windows();
    let over_rows = engine.layout().task_head().map(|head| head.input) == Some(HeadInput::Rows);
    let count = |example| {
        let predictions = if over_rows {
            sequences.tokens_of(example)
        } else {
            sequences.of_example(example).len()
        };
        predictions * outputs
    };
    let mut total = 0;
    let ends: Vec<usize> = (0..sequences.examples())
        .map(|example| {
            total += if windows { outputs } else { count(example) };
            total
        })
        .collect();
    let mut values = vec![0.0; total];
    let ranks = engine.ranks().clone();
    // All ranks must make the same batches, but may have different numbers of threads.
    let tokens = ranks.least(engine.inference_tokens())?;
    let batches = sequences.by_length(BatchSize::Tokens(tokens));
    let mut own = Vec::new();
    // Neighbours have similar lengths, so that dealing the batches out gives every rank as much work.
    for batch in batches.iter().skip(ranks.rank()).step_by(ranks.size()) {
        crate::interrupt::poll();
        own.extend(engine.task_logits(&sequences.batch(batch))?);
    }
    let all = ranks.gather_values(own)?;
    let mut rests: Vec<&[f32]> = all.iter().map(Vec::as_slice).collect();
    for (index, batch) in batches.iter().enumerate() {
        let rest = &mut rests[index % ranks.size()];
        for &example in batch {
            let (own, others) = rest.split_at(count(example));
            if own.iter().any(|logit| !logit.is_finite()) {
                return Err(Error::Failed(format!(
                    "the model's output for example {} is not a finite number: training diverged, \
                     for example because the learning rate was too high",
                    example + 1
                )));
            }
            let mean;
            let own = if windows {
                mean = mean_of_windows(own, &[own.len() / outputs], outputs);
                &mean[..]
            } else {
                own
            };
            values[ends[example] - own.len()..ends[example]].copy_from_slice(own);
            *rest = others;
        }
    }
    Ok(Logits { values, ends, outputs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_s_logits_are_the_mean_of_its_windows() {
        let logits = [1.0, 2.0, 3.0, 4.0, 5.0, 8.0];
        assert_eq!(mean_of_windows(&logits, &[1, 2], 2), [1.0, 2.0, 4.0, 6.0]);
    }
}
