//! The size of a pass, which determines the size of its activations.

use crate::engine::Recompute;
use crate::model::{Config, TaskHead};

use super::device::Element;
use super::kernels::{Heads, attention_kept};
use super::state::padded_vocabulary;

/// The purpose of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Activations are stored or recomputed for a backward pass.
    Training(Recompute),
    /// Only the result is needed.
    Inference,
}

/// The task of the masked-LM head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskedLmMode {
    /// A loss against labels.
    Scores,
    /// A loss against labels and a teacher's outputs.
    Distilled,
    /// The logits themselves, in f32.
    Logits,
}

/// Everything that determines the addresses of activations.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    pub config: &'a Config,
    pub element: Element,
    pub purpose: Purpose,
    pub rows: usize,
    pub sequences: usize,
    /// Rows of the longest sequence, or more.
    pub longest: usize,
    /// Rows that the masked-LM head reads.
    pub picked: usize,
    /// Labels of the linear head.
    pub labels: usize,
    pub masked: MaskedLmMode,
    /// The linear head to run.
    pub head: Option<TaskHead>,
    /// Whether hidden states or the pooler's output are requested in f32.
    pub states: bool,
}

impl Shape<'_> {
    /// Returns the bytes of (rows, hidden) activations.
    pub fn hidden(&self) -> u64 {
        (self.rows * self.config.hidden_size) as u64 * self.element.bytes()
    }

    /// Returns the bytes of the embeddings before their projection, (rows, embedding width).
    pub fn embedded(&self) -> u64 {
        (self.rows * self.config.embedding_width()) as u64 * self.element.bytes()
    }

    /// Returns the bytes of (rows, intermediate) activations.
    pub fn inner(&self) -> u64 {
        (self.rows * self.config.intermediate_size) as u64 * self.element.bytes()
    }

    /// Returns the bytes of a LayerNorm's mean and deviation per row.
    pub fn statistics(&self) -> u64 {
        8 * self.rows as u64
    }

    /// Returns the bytes of which probabilities a layer's attention kept.
    pub fn kept(&self) -> u64 {
        let c = self.config;
        if !self.trains() || c.attention_probs_dropout_prob == 0.0 {
            return 0;
        }
        let size = (self.rows, self.sequences, self.longest);
        attention_kept(self.element, size, Heads::of(c))
    }

    /// Returns the columns of the vocabulary's logits.
    pub fn classes(&self) -> usize {
        padded_vocabulary(self.config.vocab_size)
    }

    /// Returns whether there is a backward pass.
    pub fn trains(&self) -> bool {
        self.purpose != Purpose::Inference
    }
}
