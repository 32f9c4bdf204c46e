//! Forecasts the memory that an engine will allocate.

use crate::model::{Config, HeadInput, Layout, Part};

use super::cpu::{STRIPE, attention_scratch, muon_scratch_bytes};
use super::optimizer::Rule;

/// The size of the largest batch that the model runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Tokens.
    pub rows: usize,
    /// Sequences.
    pub sequences: usize,
    /// Tokens of the longest sequence.
    pub longest: usize,
    /// Tokens whose words the model must predict: none but in pre-training.
    pub predicted: usize,
}

impl Work {
    /// Returns the average size of a part with fewer sequences.
    pub fn part(self, sequences: usize) -> Self {
        let share = |tokens: usize| (tokens * sequences).div_ceil(self.sequences.max(1));
        Self {
            rows: share(self.rows),
            sequences,
            longest: self.longest,
            predicted: share(self.predicted),
        }
    }
}

/// Returns how many sequences of `work` fit into `free` bytes at once; `needs` returns the bytes
/// for a given size.
pub fn largest(work: Work, free: u64, needs: impl Fn(Work) -> u64) -> usize {
    // Bisects between what fits and what doesn't.
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

/// The memory that a training run holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// Parameters, gradients, and the optimizer's moments and buffers.
    pub state: u64,
    /// Activations and their gradients.
    pub activations: u64,
}

impl Forecast {
    /// Forecasts a training step on the CPU engine, which recomputes layers with `recompute`.
    pub fn of(config: &Config, layout: &Layout, work: Work, recompute: bool) -> Self {
        let (h, i) = (config.hidden_size, config.intermediate_size);
        let (layers, heads) = (config.num_hidden_layers, config.num_attention_heads);
        let Work { rows, sequences, longest, predicted } = work;
        // The last layer computes only the rows that a pooled head reads. Those that pre-training reads depend on the
        // masks, so all are counted.
        let pooled = layout.task_head().is_some_and(|head| head.input == HeadInput::Pooled);
        let last = if pooled && !recompute { sequences } else { rows };
        // A LayerNorm keeps mean and deviation of a row; attention keeps the log-sum-exp per head.
        let kept = |rows: usize| rows * (4 * h + 2 * i + heads + 4);
        let others = if recompute { 0 } else { layers - 1 };
        let kept = (others + 1) * 3 * h * rows + others * kept(rows) + kept(last);
        let projected = if config.projects_embeddings() { config.embedding_width() } else { 0 };
        let hidden = rows * (h * (layers + 1) + config.embedding_width() + projected + 2);
        let partials = rows.div_ceil(STRIPE) * i.max(3 * h);
        let gradients = rows * (6 * h + i) + partials;
        let scores = attention_scratch(longest, config.head_size());
        let head = match layout.task_head() {
            None => 0,
            Some(head) => {
                let dropped = usize::from(config.head_dropout(head) > 0.0);
                match head.input {
                    HeadInput::Pooled => (4 + dropped) * sequences * h,
                    HeadInput::Rows => rows * ((1 + dropped) * h + head.outputs),
                }
            }
        };
        // The masked-LM head's logits, and its activations of the predicted tokens.
        let masked = if layout.parts().contains(&Part::MaskedLm) {
            predicted * (config.vocab_size + 6 * h)
        } else {
            0
        };
        Self {
            state: 16 * layout.total() as u64,
            activations: 4 * (kept + hidden + gradients + scores + head + masked) as u64,
        }
    }

    /// Returns the bytes besides parameters that a teacher needs for `work`: the activations of one
    /// layer at a time, its logits at masked tokens and its last hidden states.
    pub fn teacher(config: &Config, layout: &Layout, work: Work) -> u64 {
        let outputs = work.predicted * config.vocab_size + work.rows * config.hidden_size;
        Self::of(config, layout, work, true).activations + 4 * outputs as u64
    }

    /// Adds the buffers that the CPU engine keeps for this update rule.
    pub fn with_rule(mut self, rule: Rule, layout: &Layout) -> Self {
        if rule == Rule::Muon {
            self.state += muon_scratch_bytes(layout);
        }
        self
    }

    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.state + self.activations
    }
}
