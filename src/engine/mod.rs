//! Engines: ways to run the one model fast. An engine owns parameters, gradients and optimizer
//! state; the trainer, the evaluation and the commands know only the [`Engine`] trait.
//!
//! [`Reference`] runs the dfdx model of [`crate::model`]; [`CpuEngine`] runs the same model with
//! fused kernels.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "cuda/absent.rs"]
pub(crate) mod cuda;
pub mod distillation;
mod encode;
pub mod inference;
mod loss_scale;
pub mod memory;
mod numerics;
pub mod objective;
pub mod optimizer;
mod reference;
pub(crate) mod simd;
pub(crate) mod state;
pub mod timing;

use std::borrow::Cow;
use std::ops::{AddAssign, Range};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, Layout, SequenceAttention};

pub use cpu::{CpuEngine, global_norm, measured_peak, round_to_bf16};
#[cfg(feature = "cuda")]
pub use cuda::{CudaEngine, How as CudaHow};
pub use distillation::{Distillation, DistillationScores, DistillationWeights, SoftTargets};
pub use encode::Encoder;
pub use loss_scale::LossScale;
pub use numerics::Numerics;
use optimizer::{Moments, Update};
pub use reference::Reference;
pub use state::Snapshot;

/// What pre-training measures on a batch. Sums, so that parts of a batch add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PretrainingScores {
    /// Cross-entropy over masked tokens, in nats, summed.
    pub mlm_loss: f64,
    pub mlm_correct: u64,
    pub mlm_total: u64,
    /// Cross-entropy over sequences, in nats, summed.
    pub nsp_loss: f64,
    pub nsp_correct: u64,
    pub nsp_total: u64,
}

impl PretrainingScores {
    /// Mean cross-entropy of a masked token plus mean cross-entropy of a pair: the loss that
    /// pre-training minimises (Devlin et al., appendix A.2).
    pub fn loss(&self) -> f64 {
        self.mean_mlm_loss() + self.mean_nsp_loss()
    }

    /// Nats a masked token; 0 when there was none.
    pub fn mean_mlm_loss(&self) -> f64 {
        self.mlm_loss / (self.mlm_total.max(1)) as f64
    }

    /// Nats a pair; 0 when there was none.
    pub fn mean_nsp_loss(&self) -> f64 {
        self.nsp_loss / (self.nsp_total.max(1)) as f64
    }

    /// Share of masked tokens predicted right.
    pub fn mlm_accuracy(&self) -> f64 {
        self.mlm_correct as f64 / (self.mlm_total.max(1)) as f64
    }

    /// Share of pairs told right.
    pub fn nsp_accuracy(&self) -> f64 {
        self.nsp_correct as f64 / (self.nsp_total.max(1)) as f64
    }
}

impl AddAssign for PretrainingScores {
    fn add_assign(&mut self, other: Self) {
        self.mlm_loss += other.mlm_loss;
        self.mlm_correct += other.mlm_correct;
        self.mlm_total += other.mlm_total;
        self.nsp_loss += other.nsp_loss;
        self.nsp_correct += other.nsp_correct;
        self.nsp_total += other.nsp_total;
    }
}

/// What a masked token and a pair count in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossWeights {
    pub masked: f32,
    pub pair: f32,
}

impl LossWeights {
    /// Those of [the loss](PretrainingScores::loss) of `batch`: one over the number of each, so that
    /// the gradients of the parts of a batch add up to those of the whole.
    pub fn of(batch: &PretrainingBatch) -> Self {
        Self {
            masked: 1.0 / batch.masked_rows.len().max(1) as f32,
            pair: 1.0 / batch.next_labels.len().max(1) as f32,
        }
    }
}

/// Activations of a batch: those of the layers that were asked for, (rows, hidden size) each,
/// row-major, for real tokens only.
#[derive(Debug, Clone)]
pub struct HiddenStates {
    pub layers: Vec<Vec<f32>>,
    /// (sequences, hidden size); None when the model has no pooler.
    pub pooled: Option<Vec<f32>>,
}

/// A way to run the encoder: its parameters, their update, and what it computes of a batch. Parameters are
/// flat and laid out by [`Engine::layout`].
pub trait Engine: Send {
    fn config(&self) -> &Config;

    fn layout(&self) -> &Arc<Layout>;

    /// What it rounds the factors of matrix products to.
    fn precision(&self) -> Precision;

    /// A copy of the parameters.
    fn parameters(&self) -> Result<Vec<f32>>;

    fn set_parameters(&mut self, values: &[f32]) -> Result<()>;

    /// A copy of the optimizer's moments.
    fn moments(&self) -> Result<Moments>;

    fn set_moments(&mut self, moments: Moments) -> Result<()>;

    /// Both, copied only where they lie on a device.
    fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(Snapshot {
            parameters: Cow::Owned(self.parameters()?),
            moments: Cow::Owned(self.moments()?),
        })
    }

    /// Clips the gradients by their global norm, updates the parameters and zeroes the gradients.
    /// Returns the norm before clipping. Where that is not a finite number, the parameters and the
    /// optimizer stay as they are.
    fn update(&mut self, update: &Update) -> Result<f64>;

    /// Bytes of a device's memory that are in use, other programs' too; None where the engine has none of
    /// its own but the process's.
    fn device_bytes(&self) -> Option<u64> {
        None
    }

    /// The scale of the loss of an engine in f16, which looks for the largest that its gradients allow:
    /// part of a run's state.
    fn loss_scale(&self) -> Option<&LossScale> {
        None
    }

    /// Goes on with this scale, where the engine has any.
    fn set_loss_scale(&mut self, _scale: LossScale) {}

    /// Why the last [`update`](Engine::update) had no finite norm, where that is no fault of the run but
    /// the scale's.
    fn overflow(&self) -> Option<String> {
        self.loss_scale()?.overflow().map(str::to_owned)
    }

    /// Zeroes the gradients that wait for [`Engine::update`].
    fn discard(&mut self) -> Result<()>;

    /// A copy of the gradients that wait for [`Engine::update`].
    fn gradients(&self) -> Result<Vec<f32>>;

    /// Activations after some layers, 0 being the embeddings, and the pooler's output.
    fn hidden_states(&mut self, batch: &Packed, layers: Range<usize>) -> Result<HiddenStates>;

    /// What the model looks at in each sequence: attention weights with their queries and keys, and
    /// all hidden states. For views: slower and larger than a forward pass.
    fn attention(&mut self, batch: &Packed) -> Result<Vec<SequenceAttention>> {
        let config = self.config().clone();
        let states = self.hidden_states(batch, 0..config.num_hidden_layers + 1)?;
        let (layout, values) = (self.layout().clone(), self.parameters()?);
        let width = config.hidden_size;
        let sequences = batch.ranges().map(|rows| {
            let of = |layer: &Vec<f32>| layer[rows.start * width..rows.end * width].to_vec();
            let hidden = states.layers.iter().map(of).collect();
            SequenceAttention::of_hidden_states(&config, &layout, &values, hidden)
        });
        Ok(sequences.collect())
    }
}

/// An engine with the masked-LM and the next-sentence head.
pub trait PretrainingEngine: Engine {
    /// Forward and backward over a part of a pre-training batch: adds the gradients of the weighted
    /// loss to the engine's own. `weights` are those of the whole batch.
    fn pretraining_gradients_of_part(
        &mut self,
        part: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<PretrainingScores>;

    /// Forward and backward over a pre-training batch: adds the gradients of [the
    /// loss](PretrainingScores::loss) to the engine's own.
    fn pretraining_gradients(
        &mut self,
        batch: &PretrainingBatch,
        dropout: Dropout,
    ) -> Result<PretrainingScores> {
        self.pretraining_gradients_of_part(batch, LossWeights::of(batch), dropout)
    }

    /// Forward and backward over a part of a pre-training batch with a teacher's answers to it: adds
    /// the gradients of the weighted loss of [distillation](Distillation) to the engine's own.
    /// `weights` are those of the whole batch; pairs take no part.
    fn distillation_gradients_of_part(
        &mut self,
        part: &PretrainingBatch,
        targets: &SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<DistillationScores>;

    /// A teacher's answers at the given rows, without dropout, in place of what `into` held.
    fn soft_targets(&mut self, batch: &Packed, rows: &[u32], into: &mut SoftTargets) -> Result<()>;

    /// Forward only, without dropout.
    fn pretraining_scores(&mut self, batch: &PretrainingBatch) -> Result<PretrainingScores>;

    /// The masked-LM head's logits at the given rows: (rows, vocabulary), row-major.
    fn masked_lm_logits(&mut self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>>;

    /// The next-sentence head's logits of every sequence: class 0 "B follows A", class 1 "random".
    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>>;
}

/// An engine with the head of a task.
pub trait TaskEngine: Engine {
    /// Forward and backward with the task's head. `loss` is given the logits, (sequences or rows,
    /// outputs), and leaves the gradient of what it minimises in their place (see [`objective`]).
    fn task_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        loss: &mut (dyn FnMut(&mut [f32]) + Send),
    ) -> Result<()>;

    /// The task head's logits without dropout, (sequences or rows, outputs).
    fn task_logits(&mut self, batch: &Packed) -> Result<Vec<f32>>;
}

/// An engine that runs the whole model, with the heads that its layout declares.
pub trait BertEngine: PretrainingEngine + TaskEngine {}

impl<E: PretrainingEngine + TaskEngine> BertEngine for E {}

/// Which engine is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Backend {
    /// The dfdx model of the lessons, slow and readable. On the CPU; on the first GPU where Cloze was
    /// built with the feature `dfdx-cuda`.
    Reference,
    /// Fused kernels on the CPU.
    Cpu,
    /// The same on an NVIDIA GPU.
    Cuda,
    /// The fastest that this machine has.
    Auto,
}

/// What the factors of matrix products are rounded to. Their sums, parameters, gradients and the
/// optimizer are f32 always; so is everything between the products on the CPU, whereas on a GPU
/// activations are stored as what factors are rounded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Not at all.
    #[default]
    F32,
    /// To bf16, to nearest even. Values below the smallest normal one count as zero.
    Bf16,
    /// To the sum of two bf16 numbers, high and low; of the four products that of the two low ones
    /// is left out. The error is at most 2⁻¹⁵ of `Σ|a||b|`, and about 4e-6 of the norm of a
    /// result of random factors. An infinite factor may give NaN for infinity. F32 on a processor
    /// that would not be faster at it. On a GPU TF32 in its place: factors of 11 bits.
    Bf16x3,
    /// To f16, with the loss scaled so that small gradients are not lost (Micikevicius et al., "Mixed
    /// precision training", arXiv 1710.03740). On a GPU alone.
    F16,
}

/// As on the command line.
impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Bf16x3 => "f32 with --matmul fast",
            Self::F16 => "f16",
        })
    }
}

/// What is computed again in the backward pass in place of being kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Recompute {
    #[default]
    #[cfg_attr(feature = "cli", value(skip))]
    Nothing,
    /// What is little work: GELU's output and those of the LayerNorms
    Cheap,
    /// Whole layers: about a third more work, a small part of the memory (Chen et al., arXiv 1604.06174)
    Layers,
}

/// Which engine, and how it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub backend: Backend,
    pub precision: Precision,
    pub recompute: Recompute,
}

impl From<Backend> for Setup {
    fn from(backend: Backend) -> Self {
        Self {
            backend,
            precision: Precision::default(),
            recompute: Recompute::default(),
        }
    }
}

impl Setup {
    /// An engine with these parameters. The reference refuses sizes that have no type of their own
    /// and everything but f32.
    pub fn engine(
        self,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
    ) -> Result<Box<dyn BertEngine>> {
        self.check()?;
        Ok(match self.backend.resolve().0 {
            #[cfg(not(feature = "dfdx-cuda"))]
            Backend::Reference => Box::new(Reference::new(config, layout, values)?),
            #[cfg(feature = "dfdx-cuda")]
            Backend::Reference => Box::new(Reference::on_gpu(config, layout, values)?),
            Backend::Cuda => cuda::engine(self, config, layout, values)?,
            Backend::Cpu | Backend::Auto => {
                let engine = CpuEngine::new(config, layout, values)?;
                let engine = engine.with_precision(self.precision);
                Box::new(engine.with_recompute(self.recompute == Recompute::Layers))
            }
        })
    }

    /// Floating-point operations a second that large matrix products reach on what computes here.
    pub fn measured_peak(self) -> Result<f64> {
        match self.backend.resolve().0 {
            Backend::Cuda => cuda::measured_peak(self),
            Backend::Cpu | Backend::Auto | Backend::Reference => Ok(measured_peak(self.precision)),
        }
    }

    /// Refuses what the backend can't do, before anything is done for it.
    pub fn check(self) -> Result<()> {
        let backend = self.backend.resolve().0;
        let usual = self.precision == Precision::F32 && self.recompute == Recompute::Nothing;
        let refused = match backend {
            Backend::Reference if !usual => {
                "the reference engine computes in f32 and keeps its activations; \
                 other number formats and recomputation need the engine cpu or cuda"
            }
            Backend::Cpu | Backend::Auto if self.precision == Precision::F16 => {
                "the number format f16 needs a GPU: on the CPU bf16 is the short format"
            }
            // Nothing to gain: what it would save is little beside what the CPU engine keeps in f32.
            Backend::Cpu | Backend::Auto if self.recompute == Recompute::Cheap => {
                "cheap recomputation needs a GPU: on the CPU only whole layers are recomputed"
            }
            _ => return Ok(()),
        };
        Err(Error::Usage(refused.into()))
    }
}

impl Backend {
    /// The engine that is meant on this machine: `Auto` is the GPU's where there is a GPU, else the
    /// CPU's. With it, in a sentence, what was chosen and why, where there is something to say.
    pub fn resolve(self) -> (Self, Option<&'static str>) {
        static AUTO: OnceLock<(Backend, Option<String>)> = OnceLock::new();
        if self != Self::Auto {
            return (self, None);
        }
        let (backend, why) = AUTO.get_or_init(cuda::choose);
        (*backend, why.as_deref())
    }

    /// An engine in f32: see [`Setup::engine`].
    pub fn engine(
        self,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
    ) -> Result<Box<dyn BertEngine>> {
        Setup::from(self).engine(config, layout, values)
    }
}

/// Refuses a teacher's answers that are not to this batch or not by a model of this shape.
fn check_targets(config: &Config, batch: &PretrainingBatch, targets: &SoftTargets) -> Result<()> {
    let logits = batch.masked_rows.len() * config.vocab_size;
    let hidden = batch.packed.rows() * config.hidden_size;
    if (targets.logits.len(), targets.hidden.len()) != (logits, hidden) {
        return Err(Error::Failed(format!(
            "the teacher gave {} logits and {} hidden values, but the student needs {logits} and {hidden}: \
             both must have the same vocabulary and width",
            targets.logits.len(),
            targets.hidden.len()
        )));
    }
    Ok(())
}

/// What a model says that is asked for a head it doesn't have.
pub(crate) fn lacks(head: &str) -> Error {
    Error::Failed(format!("the model has no {head} head"))
}
