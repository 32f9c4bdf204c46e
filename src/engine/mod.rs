//! Engines: fast ways to run the one model. An engine owns parameters, gradients and optimizer
//! state; training, evaluation and the commands know only the [`Engine`] traits.
//!
//! [`Reference`] runs the dfdx model of [`crate::model`]; [`CpuEngine`] runs the same model with
//! fused kernels, and `cuda` runs it on a GPU.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
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
pub(crate) mod reduction;
mod reference;
pub(crate) mod simd;
pub(crate) mod state;
pub mod timing;

use std::borrow::Cow;
use std::ops::{AddAssign, Range};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use self::objective::{Labels, Scored};
use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, Layout, SequenceAttention};
use crate::ranks::Ranks;

pub use cpu::{CpuEngine, global_norm, kernel_times, measured_peak, round_to_bf16};
pub use distillation::{Distillation, DistillationScores, DistillationWeights, SoftTargets};
pub use encode::Encoder;
pub use loss_scale::LossScale;
use memory::{Forecast, Work};
pub use numerics::Numerics;
use optimizer::{Moments, Update};
pub use reference::{MaskedLogits, OwnParts, PairLogits, Recorded, Reference, TinyBert};
pub use state::Snapshot;

/// The scores of pre-training on a batch. They are sums, so that parts of a batch add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PretrainingScores {
    /// Cross-entropy summed over masked tokens, in nats.
    pub mlm_loss: f64,
    /// Masked tokens predicted correctly.
    pub mlm_correct: u64,
    /// Masked tokens.
    pub mlm_total: u64,
    /// Cross-entropy summed over sequences, in nats.
    pub nsp_loss: f64,
    /// Pairs classified correctly.
    pub nsp_correct: u64,
    /// Pairs.
    pub nsp_total: u64,
}

impl PretrainingScores {
    /// Returns the loss that pre-training minimises: mean cross-entropy per masked token plus mean
    /// cross-entropy per pair (Devlin et al., appendix A.2).
    pub fn loss(&self) -> f64 {
        self.mean_mlm_loss() + self.mean_nsp_loss()
    }

    /// Returns the mean loss in nats per masked token; 0 without masked tokens.
    pub fn mean_mlm_loss(&self) -> f64 {
        self.mlm_loss / (self.mlm_total.max(1)) as f64
    }

    /// Returns the mean loss in nats per pair; 0 without pairs.
    pub fn mean_nsp_loss(&self) -> f64 {
        self.nsp_loss / (self.nsp_total.max(1)) as f64
    }

    /// Returns the fraction of masked tokens predicted correctly.
    pub fn mlm_accuracy(&self) -> f64 {
        self.mlm_correct as f64 / (self.mlm_total.max(1)) as f64
    }

    /// Returns the fraction of pairs classified correctly.
    pub fn nsp_accuracy(&self) -> f64 {
        self.nsp_correct as f64 / (self.nsp_total.max(1)) as f64
    }
}

impl PretrainingScores {
    /// Returns the sums of all ranks' scores.
    pub fn of_all(self, ranks: &Ranks) -> Result<Self> {
        let counts = [self.mlm_correct, self.mlm_total, self.nsp_correct, self.nsp_total];
        // A f64 holds every count exactly.
        let [a, b, c, d] = counts.map(|count| count as f64);
        let [mlm_loss, nsp_loss, a, b, c, d] =
            ranks.sum([self.mlm_loss, self.nsp_loss, a, b, c, d])?;
        let [mlm_correct, mlm_total, nsp_correct, nsp_total] =
            [a, b, c, d].map(|count| count as u64);
        Ok(Self { mlm_loss, mlm_correct, mlm_total, nsp_loss, nsp_correct, nsp_total })
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

/// The weights of a masked token and of a pair in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossWeights {
    /// Weight of a masked token.
    pub masked: f32,
    /// Weight of a pair.
    pub pair: f32,
}

impl LossWeights {
    /// Returns the weights in [the loss](PretrainingScores::loss) of `batch`: one over the number
    /// of each, so that the gradients of the batch's parts add up to those of the whole.
    pub fn of(batch: &PretrainingBatch) -> Self {
        Self::of_counts(batch.masked_rows.len(), batch.next_labels.len())
    }

    /// Returns the weights for a batch with this many masked tokens and pairs on all ranks.
    pub fn of_counts(masked: usize, pairs: usize) -> Self {
        Self { masked: 1.0 / masked.max(1) as f32, pair: 1.0 / pairs.max(1) as f32 }
    }
}

/// Activations of a batch for real tokens only.
#[derive(Debug, Clone)]
pub struct HiddenStates {
    /// The requested layers, (rows, hidden size) each, row-major.
    pub layers: Vec<Vec<f32>>,
    /// The pooler's output, (sequences, hidden size); None if the model has no pooler.
    pub pooled: Option<Vec<f32>>,
}

/// Runs the encoder: owns its parameters, updates them and computes hidden states. Parameters are
/// flat, laid out as [`Engine::layout`] describes.
pub trait Engine: Send {
    /// Returns the model's hyperparameters.
    fn config(&self) -> &Config;

    /// Returns the layout of the parameters.
    fn layout(&self) -> &Arc<Layout>;

    /// Returns the precision of the factors of matrix products.
    fn precision(&self) -> Precision;

    /// Returns a copy of the parameters.
    fn parameters(&self) -> Result<Vec<f32>>;

    /// Replaces the parameters.
    fn set_parameters(&mut self, values: &[f32]) -> Result<()>;

    /// Returns a copy of the optimizer's moments.
    fn moments(&self) -> Result<Moments>;

    /// Replaces the optimizer's moments.
    fn set_moments(&mut self, moments: Moments) -> Result<()>;

    /// Returns parameters and moments, copied only if they are in a device's memory.
    fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(Snapshot {
            parameters: Cow::Owned(self.parameters()?),
            moments: Cow::Owned(self.moments()?),
        })
    }

    /// Makes the engine that of one of several ranks: [`update`](Engine::update) adds up their gradients first.
    ///
    /// # Errors
    /// If the engine can only train alone.
    fn join(&mut self, ranks: &Ranks) -> Result<()> {
        match ranks.size() {
            1 => Ok(()),
            size => Err(Error::Usage(format!(
                "this engine can't train on {size} ranks: expected the backend cpu or cuda"
            ))),
        }
    }

    /// Returns the ranks that train together.
    fn ranks(&self) -> &Ranks {
        Ranks::ALONE
    }

    /// Announces that the next gradients are the last of a step: their sums over the ranks may start while the
    /// backward pass still runs.
    fn last_part(&mut self) {}

    /// Starts those sums of the gradients over the ranks that have not started. Each rank calls this when its share of
    /// a step, which may be empty, is done, before it uses the ranks for anything else: all ranks must make the same
    /// calls in the same order.
    fn start_sums(&mut self) -> Result<()> {
        Ok(())
    }

    /// Clips the gradients, summed over all ranks, by their global norm, updates the parameters and zeroes the
    /// gradients. Returns the norm before clipping; if that is not finite, the parameters and the moments stay
    /// unchanged.
    fn update(&mut self, update: &Update) -> Result<f64>;

    /// Returns how many bytes of the device's memory are in use, by other programs too; None if the
    /// engine uses main memory.
    fn device_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the loss scale of an engine in f16; part of a run's state.
    fn loss_scale(&self) -> Option<&LossScale> {
        None
    }

    /// Continues with this loss scale, if the engine has one.
    fn set_loss_scale(&mut self, _scale: LossScale) {}

    /// Returns why the last [`update`](Engine::update) overflowed, if only because the loss scale
    /// was too high.
    fn overflow(&self) -> Option<String> {
        self.loss_scale()?.overflow().map(str::to_owned)
    }

    /// Zeroes the gradients that were accumulated for [`Engine::update`].
    fn discard(&mut self) -> Result<()>;

    /// Returns a copy of the gradients that were accumulated for [`Engine::update`].
    fn gradients(&self) -> Result<Vec<f32>>;

    /// Returns how many tokens a batch for inference should have.
    fn inference_tokens(&self) -> usize {
        INFERENCE_TOKENS
    }

    /// Returns the activations after some layers (0: the embeddings), and the pooler's output.
    fn hidden_states(&mut self, batch: &Packed, layers: Range<usize>) -> Result<HiddenStates>;

    /// Returns the attention probabilities, queries, keys and hidden states of each sequence. For
    /// views: slower and larger than a forward pass.
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

/// Usual tokens of a batch for inference. Larger batches spend less time on packing the weights, but need more memory.
const INFERENCE_TOKENS: usize = 4096;

/// An engine with the masked-LM and the next-sentence head.
pub trait PretrainingEngine: Engine {
    /// Runs forward and backward over a part of a pre-training batch and adds the gradients of the
    /// weighted loss to the engine's. `weights` are those of the whole batch.
    fn pretraining_gradients_of_part(
        &mut self,
        part: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<PretrainingScores>;

    /// Runs forward and backward over a pre-training batch and adds the gradients of [the
    /// loss](PretrainingScores::loss) to the engine's.
    fn pretraining_gradients(
        &mut self,
        batch: &PretrainingBatch,
        dropout: Dropout,
    ) -> Result<PretrainingScores> {
        self.pretraining_gradients_of_part(batch, LossWeights::of(batch), dropout)
    }

    /// Runs forward and backward over a part of a pre-training batch with a teacher's outputs for
    /// it, and adds the gradients of the weighted loss of [distillation](Distillation) to the
    /// engine's. `weights` are those of the whole batch; pairs are ignored.
    fn distillation_gradients_of_part(
        &mut self,
        part: &PretrainingBatch,
        targets: &SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<DistillationScores>;

    /// Writes a teacher's outputs at the given rows to `into`, without dropout.
    fn soft_targets(&mut self, batch: &Packed, rows: &[u32], into: &mut SoftTargets) -> Result<()>;

    /// Scores a pre-training batch, without dropout.
    fn pretraining_scores(&mut self, batch: &PretrainingBatch) -> Result<PretrainingScores>;

    /// Returns the masked-LM head's logits at the given rows: (rows, vocabulary), row-major.
    fn masked_lm_logits(&mut self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>>;

    /// Returns the next-sentence head's logits of every sequence: class 0 "B follows A", class 1
    /// "random".
    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>>;
}

/// An engine with the head of a task.
pub trait TaskEngine: Engine {
    /// Runs forward and backward with the task's head. `loss` gets the logits, (sequences or rows,
    /// outputs), and overwrites them with their gradients (see [`objective`]).
    fn task_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        loss: &mut (dyn FnMut(&mut [f32]) + Send),
    ) -> Result<()>;

    /// Like [`task_gradients`](Self::task_gradients) with `weight` times the cross-entropy against labels, which is
    /// returned without the weight. An engine on a device computes it there.
    ///
    /// # Errors
    /// If the model has no task head, or there are not as many labels as it needs.
    fn labelled_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        labels: Labels<'_>,
        weight: f32,
    ) -> Result<Scored> {
        let outputs = inference::outputs(self)?;
        let mut scored = Scored::default();
        self.task_gradients(batch, dropout, &mut |logits| {
            scored = labels.score(logits, &batch.cu_seqlens, outputs, weight);
        })?;
        Ok(scored)
    }

    /// Returns the task head's logits without dropout, (sequences or rows, outputs).
    fn task_logits(&mut self, batch: &Packed) -> Result<Vec<f32>>;
}

/// An engine for the whole model, with the heads that its layout declares.
pub trait BertEngine: PretrainingEngine + TaskEngine {}

impl<E: PretrainingEngine + TaskEngine> BertEngine for E {}

/// The engine to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Backend {
    /// The dfdx model of the lessons, slow and readable: on the CPU, or on the first GPU if Cloze
    /// was built with the feature `dfdx-cuda`.
    Reference,
    /// Fused kernels on the CPU.
    Cpu,
    /// Fused kernels on an NVIDIA GPU.
    Cuda,
    /// The fastest engine that this machine can run.
    Auto,
}

/// The precision of the factors of matrix products. Sums, parameters, gradients and the optimizer
/// are always f32. Activations between the products are f32 on the CPU; on a GPU they have the
/// precision of the factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// bf16, rounded to nearest even. Subnormal values count as zero.
    Bf16,
    /// f32 factors as sums of two bf16 numbers, high and low; of the four products the one of the
    /// two low parts is omitted. The error is at most 2⁻¹⁵ of `Σ|a||b|`, and about 4e-6 of the norm
    /// of a result of random factors. An infinite factor may give NaN for infinity. On a processor
    /// that gains no speed, plain f32; on a GPU TF32, whose factors have 11 bits.
    Bf16x3,
    /// f16 with a scaled loss, so that small gradients don't vanish (Micikevicius et al., "Mixed
    /// precision training", arXiv 1710.03740). On a GPU only.
    F16,
    /// 8 bits: the layers' weights with a scale for each output, and what they are multiplied by with a scale and a zero
    /// for each row. Attention, heads and the masked-LM head's matrices are f32. For inference on the CPU only.
    Int8,
}

/// The error of training with [`Precision::Int8`].
pub(crate) const INFERENCE_ONLY: &str =
    "dtype int8 is for inference: train in f32 or bf16, then predict with int8";

/// Its name in texts for people.
impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Bf16x3 => "f32 with fast matrix products",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        })
    }
}

/// Which activations the backward pass recomputes instead of reading stored ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Recompute {
    /// None
    #[default]
    #[cfg_attr(feature = "cli", value(skip))]
    Nothing,
    /// The cheap ones: outputs of GELU and of the LayerNorms
    Cheap,
    /// Whole layers: about a third more work, a small part of the memory (Chen et al., arXiv
    /// 1604.06174)
    Layers,
}

/// An engine and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// The engine.
    pub backend: Backend,
    /// Whether the gradients of a batch are added up in an order that does not depend on the number of ranks that
    /// share it.
    pub deterministic: bool,
    /// The precision of matrix products.
    pub precision: Precision,
    /// The activations that are recomputed.
    pub recompute: Recompute,
}

impl From<Backend> for Setup {
    fn from(backend: Backend) -> Self {
        Self {
            backend,
            deterministic: false,
            precision: Precision::default(),
            recompute: Recompute::default(),
        }
    }
}

impl Setup {
    /// Builds an engine with these parameters, which belongs to the ranks of this process. The reference engine
    /// supports only f32 and the sizes that have a type.
    pub fn engine(
        self,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
    ) -> Result<Box<dyn BertEngine>> {
        self.check()?;
        let mut engine: Box<dyn BertEngine> = match self.backend.resolve().0 {
            #[cfg(not(feature = "dfdx-cuda"))]
            Backend::Reference => Box::new(Reference::new(config, layout, values)?),
            #[cfg(feature = "dfdx-cuda")]
            Backend::Reference => Box::new(Reference::on_gpu(config, layout, values)?),
            Backend::Cuda => cuda::engine(self, config, layout, values)?,
            Backend::Cpu | Backend::Auto => {
                let engine = CpuEngine::new(config, layout, values)?;
                let engine = engine.with_precision(self.precision);
                let engine = engine.with_recompute(self.recompute == Recompute::Layers);
                Box::new(engine.with_fixed_order(self.deterministic))
            }
        };
        engine.join(Ranks::of_process())?;
        Ok(engine)
    }

    /// Measures the floating-point operations per second that large matrix products reach with this
    /// setup.
    pub fn measured_peak(self) -> Result<f64> {
        match self.backend.resolve().0 {
            Backend::Cuda => cuda::measured_peak(self),
            Backend::Cpu | Backend::Auto | Backend::Reference => Ok(measured_peak(self.precision)),
        }
    }

    /// Forecasts the memory of a training step; `distilled` if a teacher's outputs take part in it.
    pub fn forecast(
        self,
        config: &Config,
        layout: &Layout,
        work: Work,
        distilled: bool,
    ) -> Forecast {
        match self.backend.resolve().0 {
            Backend::Cuda => cuda::forecast(config, layout, work, self, distilled),
            Backend::Cpu | Backend::Auto | Backend::Reference => {
                Forecast::of(config, layout, work, self.recompute != Recompute::Nothing)
            }
        }
    }

    /// Returns an error if the backend doesn't support these settings.
    pub fn check(self) -> Result<()> {
        let backend = self.backend.resolve().0;
        let usual = self.precision == Precision::F32 && self.recompute == Recompute::Nothing;
        let refused = match backend {
            Backend::Reference if !usual => {
                "the reference engine computes in f32 and keeps its activations; \
                 bf16, int8, fast matrix products and recomputing need the backend cpu"
            }
            Backend::Cpu | Backend::Auto if self.precision == Precision::F16 => {
                "dtype f16 needs a GPU (backend cuda): on the CPU bf16 is the short format"
            }
            Backend::Cuda if self.precision == Precision::Int8 => {
                "dtype int8 runs on the CPU (backend cpu): on a GPU bf16 is faster"
            }
            // The savings would be small beside what the CPU engine stores in f32.
            Backend::Cpu | Backend::Auto if self.recompute == Recompute::Cheap => {
                "recompute cheap needs a GPU (backend cuda): on the CPU whole layers are recomputed"
            }
            _ => return Ok(()),
        };
        Err(Error::Usage(refused.into()))
    }
}

impl Backend {
    /// Resolves `Auto`: CUDA if there is a GPU, otherwise the CPU. Also returns a sentence about
    /// the choice, if there is something to report.
    pub fn resolve(self) -> (Self, Option<&'static str>) {
        static AUTO: OnceLock<(Backend, Option<String>)> = OnceLock::new();
        if self != Self::Auto {
            return (self, None);
        }
        let (backend, why) = AUTO.get_or_init(cuda::choose);
        (*backend, why.as_deref())
    }

    /// Builds an engine in f32: see [`Setup::engine`].
    pub fn engine(
        self,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
    ) -> Result<Box<dyn BertEngine>> {
        Setup::from(self).engine(config, layout, values)
    }
}

/// Returns an error if the teacher's outputs belong to another batch or have other dimensions.
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

/// The error of a model that lacks a head.
pub(crate) fn missing_head(head: &str) -> Error {
    Error::Failed(format!("the model has no {head} head"))
}
