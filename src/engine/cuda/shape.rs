//! The size of a pass, which determines the size of its activations.

use crate::engine::Recompute;
use crate::model::{Config, TaskHead};

use super::device::Element;
use super::state::padded_vocabulary;

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Activations are saved, or made again, for a backward pass.
    Training(Recompute),
    /// Only the result counts.
    Inference,
}

/// What the masked-LM head is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskedLmMode {
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
    pub masked: MaskedLmMode,
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
