//! What makes a run that run: the settings that may not change when it is resumed, and those that may.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::data::Packing;
use crate::engine::optimizer::{Optimizer, Rule};
use crate::engine::{Distillation, Precision};
use crate::model::{Config, Tuning};

use super::guard::GuardSettings;
use super::loss::Loss;
use super::schedule::{Decay, Schedule};

/// The settings of a pre-training run that may not change when it is resumed, because the data and the
/// random numbers of every step depend on them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PretrainingIdentity {
    /// Key of every random choice.
    pub seed: u64,
    /// Sequences a step.
    pub batch: usize,
    /// Longest sequence, in tokens.
    pub max_len: usize,
    /// Longest sequence in the first phase.
    pub first_max_len: usize,
    /// Whether all pieces of a word are masked together.
    pub whole_word: bool,
    /// Share of masked tokens.
    pub mask_probability: f64,
    /// Share of short sequences.
    pub short_probability: f64,
    /// What a sequence is made of.
    pub packing: Packing,
    /// Whether each token sees only those before it.
    pub left_to_right: bool,
    /// The teacher of a distillation.
    pub distilled: Option<Distilled>,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// The model's dimensions.
    pub model: Architecture,
    /// Tokens of the training text: another text would be another run.
    pub tokens: u64,
    /// CRC-32 of the corpus's tokens in their order, held-out documents included.
    pub checksum: u32,
    /// The optimizer's rule.
    pub optimizer: Rule,
    /// [`ORDER`] when the run began.
    pub order: u32,
}

/// The settings of a pre-training run that may change when it is resumed. No single command repeats such
/// a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Changeable {
    /// Learning rate by step.
    pub schedule: Schedule,
    /// The last step of the first phase; 0 without one.
    pub first_until: u64,
    /// The optimizer and its constants.
    pub optimizer: Optimizer,
    /// Upper limit of the gradients' global norm.
    pub max_norm: f64,
    /// What to do with a bad step.
    pub guard: GuardSettings,
    /// Dropout in the encoder.
    pub dropout: f64,
    /// The number format of products.
    pub precision: Precision,
}

/// The settings of a fine-tuning run that may not change when it is resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinetuningIdentity {
    /// The task's name, if the model's configuration has it.
    pub task: Option<String>,
    /// Key of the order of examples and of dropout.
    pub seed: u64,
    /// Passes over the training data.
    pub epochs: u32,
    /// Steps of the run, in the place of a number of epochs.
    pub max_steps: Option<u64>,
    /// Examples or tokens a step, in words.
    pub batch: String,
    /// Whether every class has the same share of an epoch.
    pub balanced: bool,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Share of the steps in which the learning rate rises.
    pub warmup: f64,
    /// How the learning rate falls.
    pub decay: Decay,
    /// How much of the learning rate each layer gets.
    pub tuning: Tuning,
    /// Class weights and label smoothing.
    pub loss: Loss,
    /// The optimizer and its constants.
    pub optimizer: Optimizer,
    /// Dropout in the encoder.
    pub dropout: f64,
    /// What to do with a bad step.
    pub guard: GuardSettings,
    /// The number format of products.
    pub precision: Precision,
    /// Number of training examples.
    pub examples: usize,
    /// Their tokens.
    pub tokens: usize,
    /// CRC-32 of the training data's tokens and targets in their order.
    pub checksum: u32,
    /// [`checksum`] of the trained parameters before the first step.
    pub started_from: u32,
    /// The frozen encoder and what is read from it, in words; None if the encoder is trained.
    pub frozen: Option<String>,
    /// Whether the best epoch's model is kept.
    pub keep_best: bool,
    /// The score that compares epochs.
    pub metric: Option<String>,
    /// The number of epochs without a better score after which the run ends.
    pub patience: Option<u32>,
    /// The model's dimensions.
    pub model: Architecture,
}

/// The settings of a distillation that may not change when its run is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Distilled {
    /// Temperature and weights of the losses.
    pub recipe: Distillation,
    /// CRC-32 of the teacher's parameters.
    pub teacher: u32,
}

/// The dimensions of a model. Models of different dimensions can have the same number of parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Architecture {
    /// Encoder layers.
    pub layers: usize,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Attention heads a layer.
    pub heads: usize,
    /// Width of the feed-forward layers.
    pub intermediate_size: usize,
    /// Longest sequence, in tokens.
    pub positions: usize,
    /// Segment embeddings.
    pub segments: usize,
    /// The epsilon of LayerNorm.
    pub layer_norm_eps: f64,
    /// Whether each token sees only those before it.
    pub left_to_right: bool,
}

impl From<&Config> for Architecture {
    fn from(config: &Config) -> Self {
        Self {
            layers: config.num_hidden_layers,
            hidden_size: config.hidden_size,
            heads: config.num_attention_heads,
            intermediate_size: config.intermediate_size,
            positions: config.max_position_embeddings,
            segments: config.type_vocab_size,
            layer_norm_eps: config.layer_norm_eps,
            left_to_right: config.is_decoder,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} layers, hidden size {}, {} heads, intermediate size {}, {} positions, {} segments, \
             layer_norm_eps {:e}",
            self.layers,
            self.hidden_size,
            self.heads,
            self.intermediate_size,
            self.positions,
            self.segments,
            self.layer_norm_eps
        )?;
        if self.left_to_right {
            f.write_str(", left to right")?;
        }
        Ok(())
    }
}

/// The version of the parameters' order in memory. Increase it when the declaration changes that order: a
/// state in another order would load without an error and be wrong.
pub const ORDER: u32 = 1;

/// Returns the CRC-32 of parameters in their order in memory.
pub fn checksum(parameters: &[f32]) -> u32 {
    let mut crc = flate2::Crc::new();
    for chunk in parameters.chunks(4096) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|x| x.to_le_bytes()).collect();
        crc.update(&bytes);
    }
    crc.sum()
}
