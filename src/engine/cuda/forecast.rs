//! What the engine will need of a GPU's memory, said before it is allocated: the arena's own plan.

use crate::engine::memory::{Forecast, Work, masked_share};
use crate::model::{Config, Layout, Part};

use super::How;
use super::heads::NEXT_SENTENCE;
use super::shape::{Masked, Purpose, Shape};
use super::state::State;

/// Bytes of a training step with the layout's heads. With a teacher (`distils`), its answers lie on
/// the device too.
pub fn forecast(
    config: &Config,
    layout: &Layout,
    work: Work,
    how: impl Into<How>,
    distils: bool,
) -> Forecast {
    let how = how.into();
    let masked_lm = layout.parts().contains(&Part::MaskedLm);
    let pairs = layout.parts().contains(&Part::NextSentence);
    let shape = Shape {
        config,
        element: how.element,
        purpose: Purpose::Training(how.recompute),
        rows: work.rows,
        sequences: work.sequences,
        picked: if masked_lm {
            masked_share(config, work.rows)
        } else {
            0
        },
        masked: if distils {
            Masked::Distilled
        } else {
            Masked::Scores
        },
        head: layout.task_head().or(pairs.then_some(NEXT_SENTENCE)),
        states: false,
    };
    Forecast {
        state: State::bytes(layout, how.element),
        activations: shape.bytes(),
    }
}
