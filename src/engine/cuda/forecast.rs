//! Forecasts the GPU memory that the engine will allocate, from the arena's own plan.

use crate::engine::memory::{Forecast, Work};
use crate::model::{Config, HeadInput, Layout, Part};

use super::Settings;
use super::heads::NEXT_SENTENCE;
use super::shape::{MaskedLmMode, Purpose, Shape};
use super::state::State;

/// Returns the bytes of a training step with the layout's heads. With `distils`, a teacher's
/// outputs are on the device too.
pub fn forecast(
    config: &Config,
    layout: &Layout,
    work: Work,
    settings: impl Into<Settings>,
    distils: bool,
) -> Forecast {
    let settings = settings.into();
    let masked_lm = layout.parts().contains(&Part::MaskedLm);
    let pairs = layout.parts().contains(&Part::NextSentence);
    let labels = match layout.task_head() {
        None => {
            if pairs {
                work.sequences
            } else {
                0
            }
        }
        Some(_) if layout.parts().contains(&Part::Span) => 2 * work.sequences,
        Some(head) => match head.input {
            HeadInput::Pooled => work.sequences,
            HeadInput::Rows => work.rows,
        },
    };
    let shape = Shape {
        config,
        element: settings.element,
        purpose: Purpose::Training(settings.recompute),
        rows: work.rows,
        sequences: work.sequences,
        longest: work.longest,
        picked: if masked_lm { work.predicted } else { 0 },
        labels,
        masked: if distils { MaskedLmMode::Distilled } else { MaskedLmMode::Scores },
        head: layout.task_head().or(pairs.then_some(NEXT_SENTENCE)),
        states: false,
    };
    Forecast { state: State::bytes(layout, settings.element), activations: shape.bytes() }
}
