//! How large a pass is.

use crate::engine::Recompute;
use crate::model::{Config, TaskHead};

use super::device::Element;
use super::state::padded_vocabulary;

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Activations are kept, or made again, for a backward pass.
    Training(Recompute),
    /// Only the result counts.
    Inference,
}

/// What the masked-LM head is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masked {
    /// A loss beside the labels.
    Scores,
    /// One beside a teacher's answers too.
    Distilled,
    /// The logits themselves, in f32.
    Logits,
}

/// All that the places of activations depend on.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    pub config: &'a Config,
    pub element: Element,
    pub purpose: Purpose,
    pub rows: usize,
    pub sequences: usize,
    /// Rows that the masked-LM head reads, and what for.
    pub picked: usize,
    pub masked: Masked,
    /// The linear head over the pooler or over all rows that is run.
    pub head: Option<TaskHead>,
    /// Whether hidden states or the pooler's output are asked for in f32.
    pub states: bool,
}

impl Shape<'_> {
    /// Bytes of (rows, hidden) as activations are stored.
    pub fn hidden(&self) -> u64 {
        (self.rows * self.config.hidden_size) as u64 * self.element.bytes()
    }

    /// Bytes of (rows, intermediate).
    pub fn inner(&self) -> u64 {
        (self.rows * self.config.intermediate_size) as u64 * self.element.bytes()
    }

    /// Bytes of a LayerNorm's mean and deviation of every row.
    pub fn statistics(&self) -> u64 {
        8 * self.rows as u64
    }

    /// Columns of the vocabulary's logits.
    pub fn classes(&self) -> usize {
        padded_vocabulary(self.config.vocab_size)
    }

    /// Whether there is a backward pass.
    pub fn trains(&self) -> bool {
        self.purpose != Purpose::Inference
    }
}

/// Where in [`Activations::scores`](super::activations::Activations::scores) each loss leaves what it has to say of its rows, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Scores {
    /// Of masked tokens, from 0 on.
    pub masked: u64,
    pub pairs: u64,
    pub cosines: u64,
}

impl Scores {
    pub fn of(shape: &Shape<'_>) -> Self {
        use super::kernels::{DISTILLED, SCORED};
        let (masked, cosines) = match shape.masked {
            Masked::Distilled => (DISTILLED, 4),
            Masked::Scores | Masked::Logits => (SCORED, 0),
        };
        Self {
            masked: (masked * shape.picked as u64).next_multiple_of(16),
            pairs: (SCORED * shape.sequences as u64).next_multiple_of(16),
            cosines: cosines * shape.rows as u64,
        }
    }

    /// Bytes of all.
    pub fn bytes(self) -> u64 {
        self.masked + self.pairs + self.cosines
    }
}
