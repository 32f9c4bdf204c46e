//! Distillation: besides predicting masked tokens, a student learns to reproduce its teacher's
//! outputs.
//!
//! Source: Sanh et al., "DistilBERT", arXiv 1910.01108, section 2, and its code (huggingface,
//! research_projects/distillation/distiller.py): the loss is a weighted sum of the soft targets'
//! Kullback-Leibler divergence at a temperature (Hinton et al., arXiv 1503.02531), the masked-LM loss
//! and one minus the cosine between the last hidden states.

use std::ops::{AddAssign, Range};

use serde::{Deserialize, Serialize};

use super::PretrainingScores;
use crate::data::pretraining::PretrainingBatch;
use crate::error::Result;
use crate::ranks::Ranks;

/// Added to squared norms, as in PyTorch's cosine embedding loss.
pub(super) const EPSILON: f32 = 1e-12;

/// The weights of the parts of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Distillation {
    /// T: divides the logits of both models before they are compared.
    pub temperature: f64,
    /// Weight of T² times the divergence of the student's from the teacher's distribution, averaged
    /// over masked tokens.
    pub ce: f64,
    /// Weight of the masked-LM loss.
    pub mlm: f64,
    /// Weight of one minus the cosine between the last hidden states of both models, averaged over
    /// all tokens.
    pub cos: f64,
}

impl Default for Distillation {
    /// DistilBERT's weights (from its README's command line).
    fn default() -> Self {
        Self { temperature: 2.0, ce: 5.0, mlm: 2.0, cos: 1.0 }
    }
}

impl Distillation {
    /// Returns the weights of single tokens of `batch`, so that the gradients of its parts add up.
    pub fn weights(&self, batch: &PretrainingBatch) -> DistillationWeights {
        self.weights_of_counts(batch.masked_rows.len(), batch.packed.rows())
    }

    /// Returns the weights for a batch with this many masked tokens, and tokens, on all ranks.
    pub fn weights_of_counts(&self, masked: usize, rows: usize) -> DistillationWeights {
        let masked = masked.max(1) as f64;
        DistillationWeights {
            temperature: self.temperature as f32,
            soft: (self.ce / masked) as f32,
            hard: (self.mlm / masked) as f32,
            cosine: (self.cos / rows.max(1) as f64) as f32,
        }
    }
}

/// The weights of single tokens in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistillationWeights {
    /// T: see [`Distillation::temperature`].
    pub temperature: f32,
    /// Weight of T² times the divergence at a masked token.
    pub soft: f32,
    /// Weight of the cross-entropy at a masked token.
    pub hard: f32,
    /// Weight of one minus the cosine at a token.
    pub cosine: f32,
}

/// A teacher's outputs for a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SoftTargets {
    /// The masked-LM head's logits, (masked rows, vocabulary), row-major.
    pub logits: Vec<f32>,
    /// The last hidden states, (rows, hidden).
    pub hidden: Vec<f32>,
}

impl SoftTargets {
    /// Returns the outputs of sequences `which` of `batch`.
    pub(super) fn slice(&self, batch: &PretrainingBatch, which: Range<usize>) -> Self {
        let ends = &batch.packed.cu_seqlens;
        let (first, end) = (ends[which.start], ends[which.end]);
        let masked = &batch.masked_rows;
        let classes = self.logits.len() / masked.len().max(1);
        let width = self.hidden.len() / batch.packed.rows().max(1);
        let offset = |row: u32| masked.partition_point(|&r| r < row) * classes;
        Self {
            logits: self.logits[offset(first)..offset(end)].to_vec(),
            hidden: self.hidden[first as usize * width..end as usize * width].to_vec(),
        }
    }
}

/// The scores of distillation on a batch. They are sums, so that parts of a batch add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DistillationScores {
    /// Scores of the masked tokens.
    pub hard: PretrainingScores,
    /// T² times the divergence, summed over masked tokens, in nats.
    pub soft: f64,
    /// One minus the cosine, summed over all tokens.
    pub cosine: f64,
    /// Tokens.
    pub rows: u64,
}

impl DistillationScores {
    /// Returns the loss that `recipe` minimises.
    pub fn loss(&self, recipe: &Distillation) -> f64 {
        recipe.ce * self.soft / self.hard.mlm_total.max(1) as f64
            + recipe.mlm * self.hard.mean_mlm_loss()
            + recipe.cos * self.cosine / self.rows.max(1) as f64
    }

    /// Returns the sums of all ranks' scores.
    pub fn of_all(self, ranks: &Ranks) -> Result<Self> {
        let [soft, cosine, rows] = ranks.sum([self.soft, self.cosine, self.rows as f64])?;
        Ok(Self { hard: self.hard.of_all(ranks)?, soft, cosine, rows: rows as u64 })
    }
}

impl AddAssign for DistillationScores {
    fn add_assign(&mut self, other: Self) {
        self.hard += other.hard;
        self.soft += other.soft;
        self.cosine += other.cosine;
        self.rows += other.rows;
    }
}
