//! AdamW, LAMB and Muon with decay groups, bias correction and clipping by the global norm: the settings
//! and the state that every engine shares. The arithmetic is in `cpu/optimizer.rs`, `cpu/muon.rs` and
//! `cuda/kernels/optimizer.rs`.
//!
//! Sources: Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv 1711.05101; You
//! et al., "Large batch optimization for deep learning: training BERT in 76 minutes", arXiv
//! 1904.00962, algorithm 2. The settings are those of google-research/bert, optimization.py, except
//! that the bias correction of Adam is kept, as in PyTorch's AdamW and NVIDIA's LAMB.

use serde::{Deserialize, Serialize};

/// The update rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Rule {
    /// Adam with decoupled weight decay.
    #[default]
    Adamw,
    /// AdamW with each weight matrix's update scaled to the matrix's own norm: for large batches.
    Lamb,
    /// Each weight matrix of the layers moves by its gradients' running mean with all singular values near one, the
    /// other parameters by AdamW: fewer steps, each with more work. On the CPU only.
    Muon,
}

/// The update rule and its constants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Optimizer {
    /// The update rule.
    pub rule: Rule,
    /// Decay rate of the gradients' running mean.
    pub beta1: f64,
    /// Decay rate of the squared gradients' running mean.
    pub beta2: f64,
    /// Added to the denominator.
    pub epsilon: f64,
    /// Applied to weights only, not to biases and LayerNorms.
    pub weight_decay: f64,
}

impl Optimizer {
    /// AdamW with BERT's constants.
    pub const BERT: Self =
        Self { rule: Rule::Adamw, beta1: 0.9, beta2: 0.999, epsilon: 1e-6, weight_decay: 0.01 };
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::BERT
    }
}

/// One update of the parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    /// The rule and its constants.
    pub optimizer: Optimizer,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// Number of this update, counted from 1: the bias correction's exponent.
    pub step: u64,
    /// The limit to which the gradients' global norm is clipped; infinity for no clipping.
    pub max_norm: f64,
}

/// The optimizer's state: the running means of the gradients and of their squares.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moments {
    /// Running mean of the gradients; Muon's is their decayed sum.
    pub first: Vec<f32>,
    /// Running mean of the squared gradients; zero where Muon updates.
    pub second: Vec<f32>,
}

impl Moments {
    /// Returns the zero state of `len` parameters.
    pub fn zeros(len: usize) -> Self {
        Self { first: vec![0.0; len], second: vec![0.0; len] }
    }
}
