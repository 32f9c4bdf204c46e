//! The optimizer step that pre-training and fine-tuning share.

use std::borrow::Cow;

use crate::data::PretrainingBatch;
use crate::engine::Engine;
use crate::engine::optimizer::Update;
use crate::error::Result;

use super::guard::Guard;

/// The result of a training step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<R> {
    /// The parameters were updated.
    Done(R),
    /// The step was skipped, for this reason: its gradients were discarded.
    Skipped(String),
}

/// Updates the parameters with the gradients in `engine`, unless the guard finds the step bad. `loss` is
/// the loss of these gradients, and the update's step that of the run. Returns their global norm before clipping.
///
/// # Errors
/// If a bad step ends the run, or the engine fails.
pub(super) fn update(
    engine: &mut dyn Engine,
    guard: &mut Guard,
    loss: f64,
    update: &Update,
) -> Result<Step<f64>> {
    let fault = match guard.fault(loss) {
        Some(fault) => {
            engine.discard()?;
            fault
        }
        None => {
            // A skipped step changed no running mean, so the bias correction does not count it.
            let norm = engine.update(&Update { step: guard.good_steps() + 1, ..*update })?;
            if norm.is_finite() {
                guard.good(loss);
                return Ok(Step::Done(norm));
            }
            // A loss scale that was too high is normal: the next step uses a lower one.
            if let Some(overflow) = engine.overflow() {
                return Ok(Step::Skipped(overflow));
            }
            "the norm of the gradients is not a number".to_owned()
        }
    };
    guard.bad(update.step, &fault)?;
    Ok(Step::Skipped(fault))
}

/// What the losses of a batch divide by, counted over all ranks.
pub(super) struct Counts {
    /// Tokens.
    pub rows: usize,
    /// Masked tokens.
    pub masked: usize,
    /// Pairs.
    pub pairs: usize,
}

/// Splits a batch into micro-batches of `size` sequences (0 for the whole batch), each with whether it is the last.
pub(super) fn micro_batches(
    batch: &PretrainingBatch,
    size: usize,
) -> impl Iterator<Item = (Cow<'_, PretrainingBatch>, bool)> {
    let sequences = batch.packed.sequences();
    let size = if size == 0 { sequences } else { size };
    let starts = (0..sequences).step_by(size.max(1));
    starts.map(move |start| {
        let part = if size >= sequences {
            Cow::Borrowed(batch)
        } else {
            Cow::Owned(batch.slice(start..sequences.min(start + size)))
        };
        (part, start + size >= sequences)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Packed;
    use crate::engine::optimizer::Optimizer;
    use crate::engine::{CpuEngine, TaskEngine};
    use crate::model::{Config, Dropout, Layout, Part};
    use crate::train::guard::{BadSteps, GuardSettings};

    #[test]
    fn a_skipped_step_does_not_count_in_the_bias_correction() {
        let mut config = Config::new(1, 8, 2, 16, 8);
        (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (0.0, 0.0);
        let layout = Layout::new(&config, &Part::SequenceClassifier(2).with_encoder());
        let mut batch = Packed::default();
        batch.push(0, &[2, 5, 3], &[0; 3]);
        let trained = |losses: &[f64]| {
            let mut engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
            let skip = GuardSettings { bad_steps: BadSteps::Skip, spike: None };
            let mut guard = Guard::new(skip);
            for (step, &loss) in (1..).zip(losses) {
                let dropout = Dropout { seed: 0, step: step as u32 };
                let mut of_logits = |logits: &mut [f32]| logits.copy_from_slice(&[0.5, -0.5]);
                engine.task_gradients(&batch, dropout, &mut of_logits).unwrap();
                let optimizer = Optimizer::default();
                let of_step = Update { optimizer, learning_rate: 1e-3, step, max_norm: 1.0 };
                update(&mut engine, &mut guard, loss, &of_step).unwrap();
            }
            engine.parameters().unwrap()
        };
        assert!(trained(&[f64::NAN, f64::NAN, 1.0]) == trained(&[1.0]));
        assert!(trained(&[1.0, 1.0]) != trained(&[1.0]));
    }

    #[test]
    fn micro_batches_are_the_batch_in_parts_and_the_last_one_is_known() {
        let mut batch = PretrainingBatch::default();
        for example in 0..7 {
            batch.packed.push(example, &[example as u32; 3], &[0; 3]);
        }
        for (size, expected) in [(0, 1), (1, 7), (2, 4), (3, 3), (4, 2), (7, 1), (9, 1)] {
            let parts: Vec<_> = micro_batches(&batch, size).collect();
            let ids: Vec<u32> =
                parts.iter().flat_map(|(part, _)| part.packed.ids.clone()).collect();
            assert_eq!(ids, batch.packed.ids, "{size}");
            let last: Vec<bool> = parts.iter().map(|(_, is_last)| *is_last).collect();
            assert_eq!(last, [&vec![false; expected - 1][..], &[true]].concat(), "{size}");
        }
    }
}
