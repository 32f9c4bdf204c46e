//! The two phases of a pre-training run: short sequences first, then long ones.

use crate::data::PretrainingData;
use crate::engine::PretrainingEngine;
use crate::error::Result;

/// Shorter sequences for the first steps of a run (Devlin et al., appendix A.2, train nine tenths
/// of the steps at a length of 128 before 512). They cost less, and they decide whether a small model
/// learns anything in minutes, because attention must learn every position separately: on Pride and
/// Prejudice, a tiny model predicted no better than word frequencies for 6,000 steps at a length of 128,
/// and did better within 3,000 at 40.
pub struct FirstPhase {
    /// The data to train on.
    pub data: PretrainingData,
    /// The held-out data of this phase: the positions beyond its length are not trained yet.
    pub held_out: PretrainingData,
    /// The phase's last step.
    pub until: u64,
    /// Whether the model is new: then the positions beyond the phase's length are repeated from the others when it
    /// ends. A model that was trained before keeps its own.
    pub of_new_model: bool,
}

impl FirstPhase {
    /// Continues after `step` a run of which the first phase was to end after step `was`. A phase can end no earlier
    /// than it has lasted, and one that has ended does not begin again: the second phase has trained all positions.
    pub(super) fn resume(&mut self, step: u64, was: u64) {
        self.until = if step <= was { self.until.max(step) } else { was };
    }
}

/// Returns the first phase if it includes this step.
pub(super) fn phase_at(first: &Option<FirstPhase>, step: u64) -> Option<&FirstPhase> {
    first.as_ref().filter(|phase| step <= phase.until)
}

/// Prepares the model for the second phase if the first ends after this step: the vectors of the trained positions are
/// repeated for those that were never trained, as Beltagy et al. lengthen a model (arXiv 2004.05150, section 5). So
/// attention finds neighbours there as before.
pub(super) fn between(
    first: &Option<FirstPhase>,
    step: u64,
    engine: &mut dyn PretrainingEngine,
) -> Result<()> {
    let Some(phase) =
        first.as_ref().filter(|phase| phase.of_new_model && phase.until == step && step > 0)
    else {
        return Ok(());
    };
    let Some((_, table)) = engine.layout().find(POSITIONS) else { return Ok(()) };
    let config = engine.config();
    let width = config.hidden_size;
    let used = table.start + config.position_offset() * width..table.end;
    let mut values = engine.parameters()?;
    repeat(&mut values[used], width, phase.data.options().max_len);
    engine.set_parameters(&values)
}

/// The table of positions.
const POSITIONS: &str = "embeddings.position_embeddings.weight";

/// Fills a table of rows of `width` values from its first `trained` rows. Row 0 is only `[CLS]`'s and is not repeated.
fn repeat(table: &mut [f32], width: usize, trained: usize) {
    for row in trained..table.len() / width {
        let from = 1 + (row - 1) % (trained - 1).max(1);
        table.copy_within(from * width..(from + 1) * width, row * width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::PretrainingOptions;
    use crate::text::{Casing, WordPiece, embedded};

    #[test]
    fn a_resumed_run_repeats_positions_once() {
        let options = PretrainingOptions { max_len: 24, ..PretrainingOptions::default() };
        let paragraphs = || embedded::paragraphs().take(60);
        let wordpiece =
            WordPiece::train(paragraphs().map(|p| Ok(p.text)), 300, Casing::Uncased).unwrap();
        let resumed = |until: u64, step: u64, was: u64| {
            let text = paragraphs().map(Ok);
            let (data, held_out) =
                PretrainingData::build_split(text, &wordpiece, &options, None, 4).unwrap();
            let mut phase = FirstPhase { data, held_out, until, of_new_model: true };
            phase.resume(step, was);
            phase.until
        };
        assert_eq!(resumed(80, 50, 80), 80);
        // The phase is shortened to a step that has passed.
        assert_eq!(resumed(40, 50, 80), 50);
        // The phase had ended and would be longer.
        assert_eq!(resumed(90, 60, 50), 50);
    }

    #[test]
    fn rows_repeat_but_the_first() {
        let mut table: Vec<f32> = (0..16).map(|value| value as f32).collect();
        repeat(&mut table, 2, 3);
        let rows: Vec<f32> = table.chunks(2).map(|row| row[0]).collect();
        assert_eq!(rows, [0.0, 2.0, 4.0, 2.0, 4.0, 2.0, 4.0, 2.0]);
        let before = table.clone();
        repeat(&mut table, 2, 8);
        assert_eq!(table, before);
    }
}
