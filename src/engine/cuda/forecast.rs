//! Forecasts the GPU memory that the engine will allocate, from the arena's own plan.

use crate::engine::memory::{Forecast, Work, masked_share};
use crate::model::{Config, Layout, Part};

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
    let shape = Shape {
        config,
        element: settings.element,
        purpose: Purpose::Training(settings.recompute),
        rows: work.rows,
        sequences: work.sequences,
        longest: work.longest,
        picked: if masked_lm { masked_share(config, work.rows) } else { 0 },
        masked: if distils { MaskedLmMode::Distilled } else { MaskedLmMode::Scores },
        head: layout.task_head().or(pairs.then_some(NEXT_SENTENCE)),
        states: false,
    };
    Forecast { state: State::bytes(layout, settings.element), activations: shape.bytes() }
}
