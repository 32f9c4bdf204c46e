//! Runs the model fast on a CPU: packed rows, flat buffers, fused kernels, every core.
//!
//! One file per subject: [`gemm`] (matrix products), [`attention`], [`norm`], [`elementwise`]
//! (biases and GELU), [`embedding`], [`loss`], [`dropout`]. [`layer`], [`masked_lm`] and [`heads`]
//! combine them, [`network`] is the forward pass, [`selection`] leaves out rows that no head reads,
//! [`run`] makes a training step, and [`workers`] divide a batch for inference. [`floats`] are the
//! buffers, [`kernel_times`] times the kernels, and [`super::simd`] runs them with the processor's
//! widest instructions. Only the factors of matrix products may have less precision than f32.
//!
//! Activation buffers grow to the largest batch seen and are reused.

pub(super) mod attention;
pub(super) mod dropout;
pub(super) mod elementwise;
pub(super) mod embedding;
mod floats;
mod gemm;
pub(super) mod heads;
pub mod kernel_times;
mod layer;
mod linear;
pub(super) mod loss;
mod masked_lm;
mod muon;
mod network;
pub(super) mod norm;
mod optimizer;
mod run;
mod selection;
mod workers;

use std::collections::HashMap;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::engine::optimizer::{Moments, Update};
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, Layout};
use crate::ranks::Ranks;

use self::attention::Scratch;
pub(crate) use self::dropout::Mask;
pub(super) use self::elementwise::STRIPE;
pub use self::gemm::round_to_bf16;
pub(crate) use self::gemm::{Matrix, MatrixMut, Output, Threads, product};
use self::heads::Head;
use self::kernel_times::Kernel;
use self::layer::{Layer, Pass};
pub(crate) use self::linear::{Linear, parameter_range};
use self::masked_lm::MaskedLm;
pub(super) use self::muon::scratch_bytes as muon_scratch_bytes;
use self::network::{Activations, Network};
use self::norm::{NormRanges, Statistics};
pub use self::optimizer::global_norm;
use self::run::Run;
use self::workers::Workers;

use super::reduction::Reduction;
use super::simd::Simd;
use super::state::{Snapshot, State};
use super::{
    DistillationScores, DistillationWeights, Engine, HiddenStates, INFERENCE_ONLY,
    INFERENCE_TOKENS, LossWeights, Precision, PretrainingEngine, PretrainingScores, SoftTargets,
    TaskEngine,
};

/// Grows a buffer to at least `len` rows.
fn grow(buffer: &mut Vec<Statistics>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, Statistics::default());
    }
}

/// Returns the given ranges of a buffer; parameters don't overlap.
fn parts<'a, const N: usize>(
    values: &'a mut [f32],
    ranges: [&Range<usize>; N],
) -> [&'a mut [f32]; N] {
    values.get_disjoint_mut(ranges.map(Clone::clone)).expect("the layout's ranges are disjoint")
}

/// Runs `work` on a thread of the rayon pool, so that a step enters the pool once, not with each of
/// its parallel loops.
fn on_the_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

/// Returns how many f32 values attention needs as scratch.
pub(super) fn attention_scratch(longest: usize, head_size: usize) -> usize {
    Scratch::len(longest, head_size)
}

/// Measures the floating-point operations per second that large matrix products reach on this
/// machine: the best of several products.
pub fn measured_peak(precision: Precision) -> f64 {
    const SIZE: usize = 1536;
    let a = vec![0.5; SIZE * SIZE];
    let b = vec![0.25; SIZE * SIZE];
    let mut c = vec![0.0; SIZE * SIZE];
    let rounded = if precision == Precision::Int8 {
        gemm::pack_weight(Simd::detect(), precision, &b, SIZE)
    } else {
        None
    };
    let fastest = (0..8)
        .map(|_| {
            let started = std::time::Instant::now();
            match &rounded {
                Some(weight) => weight.multiply(&a, &mut c),
                None => product(
                    MatrixMut::new(&mut c, SIZE, SIZE),
                    Output::Overwrite,
                    1.0,
                    Matrix::new(&a, SIZE, SIZE),
                    Matrix::new(&b, SIZE, SIZE).t(),
                    Threads::All,
                    precision,
                ),
            }
            started.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    2.0 * (SIZE as f64).powi(3) / fastest
}

/// Which of the last hidden states the heads read.
enum Read<'a> {
    All,
    /// Those of the rows that the pooler reads.
    Pooled,
    /// Those of these rows.
    Rows(&'a [u32]),
    /// Those that a batch has labels for.
    Pretraining(&'a PretrainingBatch),
}

/// The CPU engine.
pub struct CpuEngine {
    config: Config,
    state: State,
    simd: Simd,
    precision: Precision,
    /// Whether the backward pass recomputes layers instead of reading stored activations.
    recompute: bool,
    /// Whether each part's gradients are computed from zero and then added to those of the parts before.
    fixed_order: bool,
    reduction: Reduction,
    /// Parts of the step whose gradients have been accumulated.
    parts: u64,
    model: Model,
    activations: Activations,
    workers: Workers,
    /// Whether the layers' weights are packed.
    packed: bool,
    /// Whether the engine trains. Its weights, which change with every step, are not packed then.
    trains: bool,
    /// Number of forward passes so far.
    passes: u64,
}

/// The ranges of the model's parts in the flat buffers.
struct Model {
    words: Range<usize>,
    /// From the first position that the model uses.
    positions: Range<usize>,
    /// None if the model has no segments.
    segments: Option<Range<usize>>,
    embedding_norm: NormRanges,
    /// None if the embeddings are as wide as the layers.
    projection: Option<Linear>,
    layers: Vec<Layer>,
    masked_lm: Option<MaskedLm>,
    next_sentence: Option<Head>,
    task: Option<Head>,
}

impl Model {
    /// Packs the weights of the layers for inference. Layers that share parameters share these too.
    fn pack_weights(&mut self, simd: Simd, precision: Precision, values: &[f32]) {
        let different: HashMap<_, _> = self
            .linears()
            .map(|linear| (linear.weight.start, (linear.weight.clone(), linear.inputs)))
            .collect();
        let pack = |(start, (range, inputs)): (usize, (Range<usize>, usize))| {
            (start, gemm::pack_weight(simd, precision, &values[range], inputs))
        };
        let packed: HashMap<_, _> = different.into_par_iter().map(pack).collect();
        for linear in self.linears() {
            linear.packed.clone_from(&packed[&linear.weight.start]);
        }
    }

    fn drop_packed_weights(&mut self) {
        self.linears().for_each(|linear| linear.packed = None);
    }

    fn linears(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.layers.iter_mut().flat_map(Layer::linears).chain(&mut self.projection)
    }

    fn masked_lm(&self) -> Result<&MaskedLm> {
        let head = self.masked_lm.as_ref();
        head.ok_or_else(|| super::missing_head("masked-LM"))
    }

    fn next_sentence(&self) -> Result<&Head> {
        let head = self.next_sentence.as_ref();
        head.ok_or_else(|| super::missing_head("next-sentence"))
    }

    fn task(&self) -> Result<&Head> {
        let head = self.task.as_ref();
        head.ok_or_else(|| super::missing_head("task"))
    }
}

impl CpuEngine {
    /// Builds a model of any size with these parameters.
    pub fn new(config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        let layers = config.num_hidden_layers;
        let embedding = |name: &str| parameter_range(layout, &format!("embeddings.{name}.weight"));
        let positions = embedding("position_embeddings");
        let first = positions.start + config.position_offset() * config.embedding_width();
        let projects = config.projects_embeddings();
        let segmented = config.type_vocab_size > 0;
        let model = Model {
            words: embedding("word_embeddings"),
            positions: first..positions.end,
            segments: segmented.then(|| embedding("token_type_embeddings")),
            embedding_norm: NormRanges::find(layout, "embeddings.LayerNorm"),
            projection: projects.then(|| Linear::find(layout, "embeddings_project")),
            layers: (0..layers).map(|i| Layer::find(layout, i)).collect(),
            masked_lm: MaskedLm::find(layout),
            next_sentence: Head::next_sentence(layout),
            task: Head::task(layout),
        };
        Ok(Self {
            config: config.clone(),
            state: State::new(layout, values)?,
            simd: Simd::detect(),
            precision: Precision::F32,
            recompute: false,
            fixed_order: false,
            reduction: Reduction::new(Ranks::ALONE, layout),
            parts: 0,
            model,
            activations: Activations::new(layers),
            workers: Workers::default(),
            packed: false,
            trains: false,
            passes: 0,
        })
    }

    /// Computes matrix products in this precision.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self.drop_packed_weights();
        self
    }

    /// Returns what multiplies matrices in this precision on this machine: AMX, AVX512-BF16, NEON-BF16, f32, or int8 and
    /// the processor's vector instructions.
    pub fn unit(precision: Precision) -> String {
        match precision {
            Precision::Int8 => format!("int8 on {}", Simd::detect().name()),
            _ => gemm::Unit::detect().of(precision).to_string(),
        }
    }

    /// Packs the layers' weights before the first inference.
    fn pack_weights(&mut self) {
        if self.packs_weights() && !self.packed {
            self.model.pack_weights(self.simd, self.precision, &self.state.values);
            self.packed = true;
        }
    }

    fn packs_weights(&self) -> bool {
        !self.trains && gemm::packs_weights(self.precision)
    }

    /// Drops packed weights, because the parameters change.
    fn drop_packed_weights(&mut self) {
        if self.packed {
            self.model.drop_packed_weights();
            self.packed = false;
        }
    }

    fn begin_training(&mut self) {
        self.trains = true;
        self.drop_packed_weights();
    }

    /// Stores only each layer's input for the backward pass and recomputes the rest: about a third
    /// more work, and a small part of the memory (Chen et al., arXiv 1604.06174).
    pub fn with_recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// Computes the gradients of each part of a batch from zero and then adds them up, so that the sums have the
    /// same bits as those of ranks that compute one part each. Takes the memory of another copy of the gradients.
    pub fn with_fixed_order(mut self, fixed_order: bool) -> Self {
        self.fixed_order = fixed_order;
        self
    }

    /// Runs a part of a training step, which adds its gradients to the engine's.
    fn part<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> Result<R> + Send) -> Result<R> {
        if self.precision == Precision::Int8 {
            return Err(Error::Usage(INFERENCE_ONLY.into()));
        }
        self.parts += 1;
        if !self.fixed_order || self.parts == 1 {
            return on_the_pool(|| run(self));
        }
        // Sums that start within this part would lack the parts before it.
        self.reduction.hold();
        let zeros = vec![0.0; self.state.gradients.len()];
        let before = std::mem::replace(&mut self.state.gradients, zeros);
        let result = on_the_pool(|| run(self));
        self.state.add(&before);
        result
    }

    /// Returns whether inference is faster if each thread computes sequences of its own.
    fn gains_from_parts(&self) -> bool {
        workers::gain(self.simd, self.precision, self.packs_weights())
    }

    fn check(&self, batch: &Packed) -> Result<()> {
        let c = &self.config;
        batch.check(c.vocab_size, c.positions(), c.type_vocab_size)
    }

    /// Runs the encoder and returns what the heads need.
    fn encode<'a>(
        &'a mut self,
        batch: &'a Packed,
        read: Read<'_>,
        dropout: Option<Dropout>,
    ) -> Result<Run<'a>> {
        let (last, _) = self.forward(batch, read, dropout, 0..0)?;
        Ok(self.run(batch, dropout, last))
    }

    /// Returns what the task's head reads.
    fn task_reads(&self) -> Result<Read<'static>> {
        Ok(if self.model.task()?.is_pooled() { Read::Pooled } else { Read::All })
    }

    /// Runs the encoder for heads that read `read`. Returns which of the hidden states are the last layer's, and copies
    /// of those after the layers in `copied` (0: the embeddings).
    fn forward(
        &mut self,
        batch: &Packed,
        read: Read<'_>,
        dropout: Option<Dropout>,
        copied: Range<usize>,
    ) -> Result<(usize, Vec<Vec<f32>>)> {
        self.check(batch)?;
        match dropout {
            Some(dropout) => {
                dropout.check(&self.config, batch)?;
                self.begin_training();
            }
            None => self.pack_weights(),
        }
        self.passes += 1;
        let gain = self.gains_from_parts();
        let network = Network {
            config: &self.config,
            model: &self.model,
            values: &self.state.values,
            simd: self.simd,
            precision: self.precision,
            recompute: self.recompute,
        };
        let (a, rows) = (&mut self.activations, batch.rows());
        let pooled = batch.pooled_rows(self.config.is_decoder);
        match read {
            Read::All => a.selection.set(iter::empty(), rows),
            Read::Pooled => a.selection.set(pooled, rows),
            Read::Rows(read) => a.selection.set(read.iter().copied(), rows),
            Read::Pretraining(batch) => {
                let pooled = pooled.take(batch.next_labels.len());
                a.selection.set(pooled.chain(batch.masked_rows.iter().copied()), rows);
            }
        }
        let parts = if dropout.is_none() && gain { workers::divide(batch) } else { None };
        let Some(parts) = parts else {
            return Ok(network.forward(batch, dropout, a, copied));
        };
        a.rows.set(batch);
        let len = rows * self.config.hidden_size;
        a.hidden[0].grow(len);
        let hidden = &mut a.hidden[0][..len];
        Ok((0, self.workers.forward(network, batch, &a.selection, parts, hidden, copied)?))
    }

    /// Returns what heads and backward pass need, after [`forward`](Self::forward) of the same
    /// batch.
    fn run<'a>(&'a mut self, batch: &'a Packed, dropout: Option<Dropout>, last: usize) -> Run<'a> {
        let a = &mut self.activations;
        Run {
            pass: Pass {
                simd: self.simd,
                precision: self.precision,
                config: &self.config,
                batch,
                rows: &a.rows,
                selection: &a.selection,
                dropout,
            },
            model: &self.model,
            layout: &self.state.layout,
            values: &self.state.values,
            parameter_gradients: &mut self.state.gradients,
            reduction: &mut self.reduction,
            embedding_sums: &a.embedding_sums,
            embedding_statistics: &a.embedding_statistics,
            embedded: &a.embedded,
            hidden: &mut a.hidden,
            last,
            saved: &mut a.saved,
            recompute: self.recompute,
            gradients: &mut a.gradients,
            scratch: &mut a.scratch,
            masked_lm: &mut a.masked_lm,
            head: &mut a.head,
        }
    }

    /// Returns the number of forward passes so far.
    pub(super) fn passes(&self) -> u64 {
        self.passes
    }

    /// Runs the encoder and returns the last hidden states, (rows, hidden). With `dropout`,
    /// [`add_gradients`](Self::add_gradients) may follow.
    pub(super) fn last_hidden(
        &mut self,
        batch: &Packed,
        dropout: Option<Dropout>,
    ) -> Result<Vec<f32>> {
        let (last, _) = on_the_pool(|| self.forward(batch, Read::All, dropout, 0..0))?;
        Ok(self.activations.hidden[last][..batch.rows() * self.config.hidden_size].to_vec())
    }

    /// Adds the gradients of the parameters that follow from those of the last hidden states. The
    /// batch must be that of the last pass.
    pub(super) fn add_gradients(&mut self, batch: &Packed, dropout: Dropout, d_hidden: &[f32]) {
        let rows = batch.rows();
        assert_eq!(d_hidden.len(), rows * self.config.hidden_size);
        let last = self.config.num_hidden_layers;
        self.activations.hidden[last].grow(d_hidden.len());
        self.activations.gradients.start(rows, &self.config);
        self.activations.gradients.hidden[..d_hidden.len()].copy_from_slice(d_hidden);
        on_the_pool(|| self.run(batch, Some(dropout), last).backward());
    }

    /// Runs the encoder for inference.
    fn infer<'a>(&'a mut self, batch: &'a Packed, read: Read<'_>) -> Result<Run<'a>> {
        self.encode(batch, read, None)
    }
}

impl Engine for CpuEngine {
    fn config(&self) -> &Config {
        &self.config
    }

    fn layout(&self) -> &Arc<Layout> {
        &self.state.layout
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        Ok(self.state.values.clone())
    }

    fn set_parameters(&mut self, values: &[f32]) -> Result<()> {
        self.state.set_values(values)?;
        self.drop_packed_weights();
        Ok(())
    }

    fn moments(&self) -> Result<Moments> {
        Ok(self.state.moments.clone())
    }

    fn set_moments(&mut self, moments: Moments) -> Result<()> {
        self.state.set_moments(moments)
    }

    fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(self.state.snapshot())
    }

    fn join(&mut self, ranks: &Ranks) -> Result<()> {
        self.reduction = Reduction::new(ranks, &self.state.layout);
        Ok(())
    }

    fn ranks(&self) -> &Ranks {
        self.reduction.ranks()
    }

    fn last_part(&mut self) {
        self.reduction.last_part();
    }

    fn start_sums(&mut self) -> Result<()> {
        self.reduction.start_rest(&self.state.gradients);
        Ok(())
    }

    fn update(&mut self, update: &Update) -> Result<f64> {
        self.parts = 0;
        self.begin_training();
        self.reduction.complete(&mut self.state.gradients)?;
        let _timer = Kernel::Update.on_values(self.state.values.len(), 15, 9);
        Ok(on_the_pool(|| self.state.update(update, self.precision)))
    }

    fn discard(&mut self) -> Result<()> {
        self.parts = 0;
        // The other ranks wait for the sums that have been started.
        self.reduction.complete(&mut self.state.gradients)?;
        self.state.gradients.fill(0.0);
        Ok(())
    }

    fn gradients(&self) -> Result<Vec<f32>> {
        Ok(self.state.gradients.clone())
    }

    fn inference_tokens(&self) -> usize {
        if self.gains_from_parts() { workers::batch_tokens() } else { INFERENCE_TOKENS }
    }

    fn hidden_states(&mut self, batch: &Packed, layers: Range<usize>) -> Result<HiddenStates> {
        on_the_pool(|| {
            let (last, copies) = self.forward(batch, Read::All, None, layers)?;
            let run = self.run(batch, None, last);
            let hidden = &run.hidden[run.last][..run.len()];
            let pooled = heads::pooled(run.pass, run.layout, run.values, hidden, run.head);
            Ok(HiddenStates { layers: copies, pooled: pooled.map(<[f32]>::to_vec) })
        })
    }
}

impl PretrainingEngine for CpuEngine {
    fn pretraining_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<PretrainingScores> {
        self.part(|engine| {
            let read = Read::Pretraining(batch);
            let mut run = engine.encode(&batch.packed, read, Some(dropout))?;
            run.pretraining(batch, Some(weights))
        })
    }

    fn distillation_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        targets: &SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<DistillationScores> {
        self.part(|engine| {
            let mut run = engine.encode(&batch.packed, Read::All, Some(dropout))?;
            run.distillation(batch, targets, weights)
        })
    }

    fn soft_targets(&mut self, batch: &Packed, rows: &[u32], into: &mut SoftTargets) -> Result<()> {
        on_the_pool(|| {
            let run = self.infer(batch, Read::All)?;
            let head = run.model.masked_lm()?;
            let hidden = &run.hidden[run.last][..run.len()];
            let logits = head.logits(run.pass, run.values, hidden, rows, run.masked_lm);
            // Refilled, not reallocated: these are the largest buffers of a step.
            into.hidden.clear();
            into.hidden.extend_from_slice(hidden);
            into.logits.clear();
            into.logits.extend_from_slice(logits);
            Ok(())
        })
    }

    fn pretraining_scores(&mut self, batch: &PretrainingBatch) -> Result<PretrainingScores> {
        on_the_pool(|| {
            let read = Read::Pretraining(batch);
            self.infer(&batch.packed, read)?.pretraining(batch, None)
        })
    }

    fn masked_lm_logits(&mut self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>> {
        on_the_pool(|| {
            let run = self.infer(batch, Read::Rows(rows))?;
            let head = run.model.masked_lm()?;
            let hidden = &run.hidden[run.last][..run.len()];
            Ok(head.logits(run.pass, run.values, hidden, rows, run.masked_lm).to_vec())
        })
    }

    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>> {
        on_the_pool(|| {
            let run = self.infer(batch, Read::Pooled)?;
            let head = run.model.next_sentence()?;
            let hidden = &run.hidden[run.last][..run.len()];
            let logits = head.forward(run.pass, run.values, hidden, run.head);
            Ok(logits.as_chunks().0.to_vec())
        })
    }
}

impl TaskEngine for CpuEngine {
    fn task_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        loss: &mut (dyn FnMut(&mut [f32]) + Send),
    ) -> Result<()> {
        self.part(|engine| {
            let read = engine.task_reads()?;
            engine.encode(batch, read, Some(dropout))?.task(loss)
        })
    }

    fn task_logits(&mut self, batch: &Packed) -> Result<Vec<f32>> {
        on_the_pool(|| {
            let read = self.task_reads()?;
            let run = self.infer(batch, read)?;
            let head = run.model.task()?;
            let hidden = &run.hidden[run.last][..run.len()];
            Ok(head.forward(run.pass, run.values, hidden, run.head).to_vec())
        })
    }
}
