//! What an engine will need, said before it is allocated.

use crate::model::{Config, HeadInput, Layout, Part};

use super::cpu::STRIPE;
use super::{Backend, Recompute, Setup, cuda};

/// Per cent of the tokens that are masked (Devlin et al., section 3.1).
const MASKED: usize = 15;

/// The size of the largest batch that goes through the model at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Tokens.
    pub rows: usize,
    pub sequences: usize,
    /// Tokens of the longest sequence.
    pub longest: usize,
}

impl Work {
    /// The same with fewer sequences.
    pub fn part(self, sequences: usize) -> Self {
        Self {
            rows: (self.rows * sequences).div_ceil(self.sequences.max(1)),
            sequences,
            longest: self.longest,
        }
    }
}

/// How many of the sequences of `work` can go through at once where `needs` says what work needs and
/// `free` bytes are there.
pub fn largest(work: Work, free: u64, needs: impl Fn(Work) -> u64) -> usize {
    // Halves the span between what fits and what doesn't.
    let (mut fit, mut not) = (0, work.sequences + 1);
    while not - fit > 1 {
        let middle = fit + (not - fit) / 2;
        if needs(work.part(middle)) <= free {
            fit = middle;
        } else {
            not = middle;
        }
    }
    fit
}

/// Tokens that are predicted of `rows`: from left to right every one.
pub(super) fn masked_share(config: &Config, rows: usize) -> usize {
    let share = if config.is_decoder { 100 } else { MASKED };
    (rows * share).div_ceil(100)
}

/// Bytes that a training run holds for as long as it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// Parameters, gradients and the optimizer's two means.
    pub state: u64,
    /// Activations and their gradients.
    pub activations: u64,
}

impl Forecast {
    /// Of a training step with the engine of `setup`; `taught` where it is distillation.
    pub fn with(setup: Setup, config: &Config, layout: &Layout, work: Work, taught: bool) -> Self {
        match setup.backend.resolve().0 {
            Backend::Cuda => cuda::forecast(config, layout, work, setup, taught),
            Backend::Cpu | Backend::Auto | Backend::Reference => {
                Self::of(config, layout, work, setup.recompute != Recompute::Nothing)
            }
        }
    }

    /// Of a training step of a model with a task's head on the CPU engine, which computes layers
    /// again with `recompute`.
    pub fn of(config: &Config, layout: &Layout, work: Work, recompute: bool) -> Self {
        let (h, i) = (config.hidden_size, config.intermediate_size);
        let (layers, heads) = (config.num_hidden_layers, config.num_attention_heads);
        let Work {
            rows,
            sequences,
            longest,
        } = work;
        // A LayerNorm keeps mean and deviation of a row; attention the logarithm of a sum.
        let kept = rows * (7 * h + 2 * i + heads + 4);
        let kept = kept * if recompute { 1 } else { layers };
        let hidden = rows * (h * (layers + 1) + h + 2);
        let partials = rows.div_ceil(STRIPE) * i.max(3 * h);
        let gradients = rows * (6 * h + i) + partials;
        let scores = super::cpu::attention_scratch(longest, config.head_size());
        let head = match layout.task_head() {
            None => 0,
            Some(head) => {
                let dropped = usize::from(head.dropout);
                match head.input {
                    HeadInput::Pooled => (3 + dropped) * sequences * h,
                    HeadInput::Rows => rows * ((1 + dropped) * h + head.outputs),
                }
            }
        };
        // The masked-LM head's logits, and what it keeps of the tokens that are predicted.
        let masked = if layout.parts().contains(&Part::MaskedLm) {
            masked_share(config, rows) * (config.vocab_size + 6 * h)
        } else {
            0
        };
        Self {
            state: 16 * layout.total() as u64,
            activations: 4 * (kept + hidden + gradients + scores + head + masked) as u64,
        }
    }

    /// Bytes beside its parameters that a teacher of a student needs to answer `work`: the activations of
    /// one layer at a time, its logits at masked tokens and its last hidden states.
    pub fn teacher(config: &Config, layout: &Layout, work: Work) -> u64 {
        let answers = work.rows * (MASKED * config.vocab_size / 100 + config.hidden_size);
        Self::of(config, layout, work, true).activations + 4 * answers as u64
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.state + self.activations
    }
}
