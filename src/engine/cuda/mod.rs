//! Runs the model fast on a GPU: packed rows, flat buffers, fused kernels.
//!
//! The files correspond to those of the CPU engine: [`layer`], [`masked_lm`] and [`heads`] combine
//! kernels ([`kernels`]) and matrix products, [`run`] makes a step of them. They use a [`Device`]:
//! [`driver`] is a GPU, `emulated` runs the same kernels on the processor. [`state`] owns the flat
//! buffers, [`arena`], [`shape`] and [`activations`] place the activations, [`batch`] uploads a
//! batch, which [`buckets`] fills up, [`graphs`] records repeated steps, [`update`] is the optimizer, and
//! [`reduction`] adds up the gradients of several ranks; [`watched`] measures a device launch by launch.
//!
//! Activations, their gradients and the factors of matrix products are stored in one format: f32,
//! bf16, or f16 with a scaled loss. Parameters, their gradients, the optimizer, biases, LayerNorms'
//! scales and statistics and all sums are always f32. Every kernel adds in a fixed order, so the
//! same batches give the same bits.

// Only the self-test, which is a command, uses all of it.
#![cfg_attr(not(feature = "cli"), allow(dead_code))]

#[cfg(test)]
#[expect(dead_code, reason = "builds without the feature `cuda` use it")]
mod absent;
mod activations;
mod arena;
mod batch;
mod buckets;
pub mod device;
pub mod driver;
#[cfg(any(test, feature = "emulator"))]
mod emulated;
mod engine;
#[cfg(any(test, feature = "cli"))]
pub mod expected;
mod forecast;
mod graphs;
mod heads;
pub mod kernels;
mod layer;
mod linear;
mod masked_lm;
mod pass;
pub mod peak;
mod reduction;
mod run;
#[cfg(any(test, feature = "cli"))]
pub mod selftest;
mod shape;
mod state;
#[cfg(test)]
mod tests;
mod update;
mod watched;
mod ways;

use std::cell::RefCell;
use std::sync::Arc;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, HeadInput, Layout, TaskHead};
use crate::ranks::{Group, Ranks};

use self::activations::{Activations, Scores};
use self::arena::Arena;
use self::batch::{DeviceBatch, HeadInputs, Staging};
use self::buckets::{Filled, filled};
use self::device::{Address, Device, Element};
use self::driver::nccl::{Gpus, Nccl};
use self::driver::{Gpu, Missing, probe, take_gpu};
use self::graphs::{Graphs, Key, Work};
use self::heads::{Head, NEXT_SENTENCE};
use self::kernels::{SCORED, cast};
use self::pass::Pass;
use self::reduction::Reduction;
use self::run::{Model, Run};
use self::shape::{MaskedLmMode, Purpose, Shape};
use self::state::{State, download};
use self::update::Updater;
use self::ways::Ways;

use super::memory::{self, Work as Load};
use super::{Backend, BertEngine, LossWeights, Precision, PretrainingScores, Recompute, Setup};

pub use self::forecast::forecast;

/// Opens the GPU of this machine; the error names what is missing.
pub fn open() -> Result<Box<dyn Device>> {
    Ok(Box::new(Gpu::open(probe()?)?))
}

/// Returns a device that prints each launch to stderr and waits for it, so that an error or a hang is that launch's.
#[cfg(any(test, feature = "cli"))]
pub(crate) fn waiting(device: Box<dyn Device>) -> Box<dyn Device> {
    Box::new(watched::Watched::new(device, watched::Watch::Wait).0)
}

/// Opens the emulated device.
#[cfg(any(test, feature = "emulator"))]
pub(crate) fn open_emulated() -> Result<Box<dyn Device>> {
    Ok(Box::new(emulated::Emulated::new()?))
}

#[cfg(all(feature = "cli", not(any(test, feature = "emulator"))))]
pub(crate) fn open_emulated() -> Result<Box<dyn Device>> {
    Err(Error::Usage(
        "this build of Cloze lacks the emulated device: build it with `cargo build --release \
         --features emulator`"
            .into(),
    ))
}

/// Builds an engine on the GPU with these parameters.
pub(super) fn engine(
    setup: Setup,
    config: &Config,
    layout: &Arc<Layout>,
    values: Vec<f32>,
) -> Result<Box<dyn BertEngine>> {
    let engine = CudaEngine::new(open()?, config, layout, values, setup.into())?;
    Ok(Box::new(engine))
}

/// Returns a new identity for a group of ranks, which the first rank makes and all need for [`connect`].
pub(crate) fn fresh_id() -> Result<Vec<u8>> {
    Nccl::find()?.fresh_id()
}

/// Connects the GPUs of the ranks that have this identity, once all have called this. This process computes on the GPU
/// of this place on its host from here on.
pub(crate) fn connect(rank: usize, size: usize, place: usize, id: &[u8]) -> Result<Arc<dyn Group>> {
    take_gpu(place);
    Ok(Arc::new(Gpus::connect(&Nccl::find()?, &probe()?, rank, size, id)?))
}

/// Returns the free bytes of the GPU's memory.
#[cfg(feature = "cli")]
pub(crate) fn free_memory() -> Result<u64> {
    open()?.free_memory()
}

/// Measures the floating-point operations per second of large matrix products on the GPU.
pub(super) fn measured_peak(setup: Setup) -> Result<f64> {
    let settings = Settings::from(setup);
    peak::product_peak(open()?.as_mut(), settings.element, settings.tf32)
}

/// Returns the GPU's name, or "GPU" if no GPU is found.
pub(super) fn name() -> String {
    probe().map_or_else(|_| "GPU".into(), |found| found.properties().name.clone())
}

/// Resolves [`Backend::Auto`] on this machine, and describes the choice if there is a driver.
pub(super) fn choose() -> (Backend, Option<String>) {
    choice(probe().map(|found| found.properties().name.clone()))
}

/// [`choose`] for the GPU's name or what is missing.
fn choice(found: std::result::Result<String, Missing>) -> (Backend, Option<String>) {
    match found {
        Ok(name) => (Backend::Cuda, Some(format!("computing on {name}"))),
        Err(Missing::Driver(_) | Missing::Device { visible: None }) => (Backend::Cpu, None),
        Err(missing) => (Backend::Cpu, Some(format!("computing on the CPU: {missing}"))),
    }
}

/// The engine's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Number format of activations and of the factors of products.
    pub element: Element,
    /// Whether products in f32 may round their factors to TF32.
    pub tf32: bool,
    /// The activations that are recomputed.
    pub recompute: Recompute,
}

impl Settings {
    /// Returns the precision of the factors of products.
    fn precision(self) -> Precision {
        match self.element {
            Element::F32 if self.tf32 => Precision::Bf16x3,
            Element::F32 => Precision::F32,
            Element::Bf16 => Precision::Bf16,
            Element::F16 => Precision::F16,
        }
    }
}

impl From<Setup> for Settings {
    fn from(setup: Setup) -> Self {
        Self {
            element: match setup.precision {
                // Int8 is rejected earlier.
                Precision::F32 | Precision::Bf16x3 | Precision::Int8 => Element::F32,
                Precision::Bf16 => Element::Bf16,
                Precision::F16 => Element::F16,
            },
            tf32: setup.precision == Precision::Bf16x3,
            recompute: setup.recompute,
        }
    }
}

/// The CUDA engine.
pub struct CudaEngine {
    // Reading parameters doesn't change the engine, but every call to the device goes through one
    // stream in order.
    device: RefCell<Box<dyn Device>>,
    config: Config,
    settings: Settings,
    ways: Ways,
    state: State,
    model: Model,
    arena: Arena,
    staging: Staging,
    graphs: Graphs,
    updater: Updater,
    reduction: Reduction,
}

/// A batch on the device and the addresses of its activations.
struct Prepared {
    batch: DeviceBatch,
    activations: Activations,
    scores: Scores,
    /// The sizes of a recording's [`Key`].
    sizes: [usize; 5],
    /// Rows and sequences on the device, with those that fill the batch.
    rows: usize,
    sequences: usize,
}

/// What a pass computes besides the encoder.
#[derive(Clone, Copy)]
struct Request<'a> {
    head_inputs: HeadInputs<'a>,
    masked: MaskedLmMode,
    head: Option<TaskHead>,
    states: bool,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self {
            head_inputs: HeadInputs::default(),
            masked: MaskedLmMode::Scores,
            head: None,
            states: false,
        }
    }
}

impl CudaEngine {
    /// Builds a model of any size with these parameters on `device`.
    pub fn new(
        mut device: Box<dyn Device>,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
        settings: Settings,
    ) -> Result<Self> {
        let state = State::new(device.as_mut(), layout, &values, settings.element)?;
        let updater = Updater::new(device.as_mut(), &state)?;
        let model = Model::find(&state.offsets, config);
        let reduction = Reduction::new(Ranks::ALONE, &state.offsets);
        let mut engine = Self {
            device: RefCell::new(device),
            config: config.clone(),
            settings,
            ways: Ways::of_process(),
            state,
            model,
            arena: Arena::default(),
            staging: Staging::default(),
            graphs: Graphs::default(),
            updater,
            reduction,
        };
        engine.copy_weights()?;
        Ok(engine)
    }

    /// Returns how many steps were replayed.
    pub fn replayed(&self) -> u64 {
        self.graphs.replayed()
    }

    /// Returns how many bytes of the device's memory activations take.
    pub fn activation_bytes(&self) -> u64 {
        self.arena.bytes()
    }

    /// Updates the working copy of the parameters.
    fn copy_weights(&mut self) -> Result<()> {
        let state = &self.state;
        if state.element == Element::F32 {
            return Ok(());
        }
        let from = (state.values, Element::F32);
        let to = (state.weights, state.element);
        cast(self.device.get_mut().as_mut(), state.offsets.total() as u64, from, to)
    }

    fn shape(&self, batch: &Packed, purpose: Purpose, request: &Request<'_>) -> Shape<'_> {
        Shape {
            config: &self.config,
            element: self.settings.element,
            purpose,
            rows: batch.rows(),
            sequences: batch.sequences(),
            longest: batch.longest(),
            picked: request.head_inputs.rows.len(),
            labels: request.head_inputs.head_labels.len(),
            masked: request.masked,
            head: request.head,
            states: request.states,
        }
    }

    /// Uploads a batch and places its activations.
    fn prepare(
        &mut self,
        batch: &Packed,
        dropout: Option<Dropout>,
        request: Request<'_>,
    ) -> Result<Prepared> {
        let c = &self.config;
        batch.check(c.vocab_size, c.positions(), c.type_vocab_size)?;
        let purpose = match dropout {
            Some(_) => Purpose::Training(self.settings.recompute),
            None => Purpose::Inference,
        };
        // A teacher's outputs have no rows for what fills a batch.
        let fills =
            self.ways.buckets && dropout.is_some() && request.masked == MaskedLmMode::Scores;
        let mut filled: Option<Filled> =
            fills.then(|| filled(batch, request.head_inputs, c.positions())).flatten();
        if let Some(more) = &filled {
            let head_inputs = more.inputs(request.head_inputs);
            let request = Request { head_inputs, ..request };
            // Without room for more, the batch stays as it is.
            if self.shape(&more.packed, purpose, &request).bytes() > self.room()? {
                filled = None;
            }
        }
        let (batch, request, longest) = match &filled {
            None => (batch, request, batch.longest()),
            Some(filled) => {
                let head_inputs = filled.inputs(request.head_inputs);
                (&filled.packed, Request { head_inputs, ..request }, filled.longest)
            }
        };
        let shape = self.shape(batch, purpose, &request);
        let (plan, scores) = (shape.plan(), Scores::of(&shape));
        self.check_memory(batch, purpose, &request, plan.bytes())?;
        let device = self.device.get_mut().as_mut();
        // Whatever comes of it: a buffer that could not grow is gone too.
        let moved = self.arena.reserve(device, plan.bytes());
        if !matches!(moved, Ok(false)) {
            self.graphs.clear(device);
        }
        moved?;
        let head_inputs =
            HeadInputs { left_to_right: self.config.is_decoder, ..request.head_inputs };
        let sent = self.staging.send(device, batch, head_inputs, dropout, self.config.vocab_size);
        if !matches!(sent, Ok((_, false))) {
            self.graphs.clear(device);
        }
        let (mut batch_on_device, _) = sent?;
        batch_on_device.batch.longest = longest as u32;
        let shape = self.shape(batch, purpose, &request);
        Ok(Prepared {
            batch: batch_on_device,
            activations: plan.place(self.arena.at(), |plan| Activations::take(plan, &shape)),
            scores,
            sizes: [
                batch.rows(),
                batch.sequences(),
                longest,
                head_inputs.rows.len(),
                head_inputs.head_labels.len(),
            ],
            rows: batch.rows(),
            sequences: batch.sequences(),
        })
    }

    /// Returns the bytes that activations can take: the arena is released before a larger one is allocated, and a share
    /// of the memory is left for the code of kernels, which the driver loads when they are launched first.
    fn room(&self) -> Result<u64> {
        const OF_CODE: u64 = 256;
        let device = self.device.borrow();
        let free = device.free_memory()? + self.arena.bytes();
        Ok(free.saturating_sub(device.properties().memory / OF_CODE))
    }

    /// Returns an error if the activations of a batch don't fit, with the number of sequences that
    /// do.
    fn check_memory(
        &mut self,
        batch: &Packed,
        purpose: Purpose,
        request: &Request<'_>,
        needs: u64,
    ) -> Result<()> {
        if needs <= self.arena.bytes() {
            return Ok(());
        }
        let free = self.room()?;
        if needs <= free {
            return Ok(());
        }
        let whole = self.shape(batch, purpose, request);
        let work = Load {
            rows: batch.rows(),
            sequences: batch.sequences(),
            longest: batch.longest(),
            predicted: whole.picked,
        };
        let fit = memory::largest(work, free, |part| {
            let share = |n: usize| (n * part.sequences).div_ceil(work.sequences);
            let shape = Shape {
                rows: part.rows,
                sequences: part.sequences,
                longest: part.longest,
                picked: part.predicted,
                labels: share(whole.labels),
                ..whole
            };
            shape.bytes()
        });
        let advice = match fit {
            0 => "not even one such sequence fits".to_owned(),
            fit => format!("{fit} at once fit (micro-batch {fit} in training)"),
        };
        Err(Error::Failed(format!(
            "{} sequences of up to {} tokens need {} of the GPU's memory, but {} are free: {advice}",
            work.sequences,
            work.longest,
            crate::memory::format_bytes(needs),
            crate::memory::format_bytes(free),
        )))
    }

    /// Launches or replays `work` for a prepared batch.
    fn launch(
        &mut self,
        prepared: &Prepared,
        key: Option<Key>,
        dropout: bool,
        work: impl FnOnce(&mut dyn Device, Run<'_>) -> Result<()>,
    ) -> Result<()> {
        let pass = Pass {
            config: &self.config,
            state: &self.state,
            device_batch: &prepared.batch,
            tf32: self.settings.tf32,
            dropout,
            ways: self.ways,
        };
        let run = Run {
            pass,
            model: &self.model,
            activations: &prepared.activations,
            recompute: self.settings.recompute,
            scores: prepared.scores,
            shared: self.reduction.is_shared(),
        };
        let device = self.device.get_mut().as_mut();
        match key {
            None => work(device, run),
            Some(key) => self.graphs.run(device, key, |device| work(device, run)),
        }
    }

    /// Called after each launch of a backward pass.
    fn launched(&mut self) -> Result<()> {
        self.reduction.launched(self.device.get_mut().as_mut(), self.state.gradients)
    }

    fn download<T: crate::bytes::Number>(&mut self, from: Address, count: usize) -> Result<Vec<T>> {
        download(self.device.get_mut().as_mut(), from, count)
    }

    /// Downloads rows of `columns` f32 values that are `stride` values apart.
    fn download_rows(
        &mut self,
        from: Address,
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> Result<Vec<f32>> {
        let padded: Vec<f32> = self.download(from, rows * stride)?;
        if columns == stride {
            return Ok(padded);
        }
        let rows = padded.chunks_exact(stride);
        Ok(rows.flat_map(|row| row[..columns].iter().copied()).collect())
    }

    /// Returns the summed losses of `n` rows, the number of correct rows, and the sum of a third
    /// value per row if rows of `size` bytes have one.
    fn scored(&mut self, at: Address, n: usize, size: u64) -> Result<(f64, u64, f64)> {
        let words = size as usize / 4;
        let values: Vec<u32> = self.download(at, n * words)?;
        let mut sums = (0.0, 0, 0.0);
        for row in values.chunks_exact(words) {
            sums.0 += f64::from(f32::from_bits(row[0]));
            sums.1 += u64::from(row[1]);
            if let Some(&third) = row.get(2) {
                sums.2 += f64::from(f32::from_bits(third));
            }
        }
        Ok(sums)
    }

    /// Runs a pre-training batch forward, and with weights and dropout backward.
    fn pretraining(
        &mut self,
        batch: &PretrainingBatch,
        training: Option<(LossWeights, Dropout)>,
    ) -> Result<PretrainingScores> {
        let mut scores = PretrainingScores::default();
        if batch.packed.rows() == 0 {
            return Ok(scores);
        }
        let (masked, pairs) = (batch.masked_rows.len(), batch.next_labels.len());
        if masked > 0 {
            self.model.masked_lm()?;
        }
        if pairs > 0 {
            self.model.next_sentence()?;
        }
        let request = Request {
            head_inputs: HeadInputs {
                rows: &batch.masked_rows,
                labels: &batch.masked_labels,
                head_labels: &batch.next_labels,
                ..HeadInputs::default()
            },
            head: (pairs > 0).then_some(NEXT_SENTENCE),
            ..Request::default()
        };
        let dropout = training.map(|(_, dropout)| dropout);
        let prepared = self.prepare(&batch.packed, dropout, request)?;
        let scale = self.updater.scale() as f32;
        let weights = training.map(|(weights, _)| LossWeights {
            masked: weights.masked * scale,
            pair: weights.pair * scale,
        });
        let key = weights.map(|weights| Key {
            work: Work::Pretraining,
            sizes: prepared.sizes,
            numbers: [weights.masked.to_bits(), weights.pair.to_bits(), 0, 0],
        });
        self.launch(&prepared, key, dropout.is_some(), |device, run| {
            run.pretraining(device, weights)
        })?;
        if training.is_some() {
            self.launched()?;
        }
        let at = prepared.activations.scores;
        (scores.mlm_loss, scores.mlm_correct, _) = self.scored(at, masked, SCORED)?;
        let at = at.offset(prepared.scores.masked);
        (scores.nsp_loss, scores.nsp_correct, _) = self.scored(at, pairs, SCORED)?;
        (scores.mlm_total, scores.nsp_total) = (masked as u64, pairs as u64);
        Ok(scores)
    }

    /// Returns the logits of a head without its padding columns.
    fn head_logits(
        &mut self,
        batch: &Packed,
        head: impl Fn(&Model) -> Result<&Head>,
    ) -> Result<Vec<f32>> {
        let shape = head(&self.model)?.shape;
        if batch.rows() == 0 {
            return Ok(Vec::new());
        }
        let request = Request { head: Some(shape), ..Request::default() };
        let prepared = self.prepare(batch, None, request)?;
        self.launch(&prepared, None, false, |device, run| run.logits(device, head(run.model)?))?;
        let at = prepared.activations.head.map(|buffers| buffers.logits);
        let columns = head(&self.model)?.columns();
        let rows = head_rows(shape, batch);
        self.download_rows(at.unwrap_or_default(), rows, shape.outputs, columns)
    }

    /// Returns the masked-LM head's logits at `rows`, and with `hidden` the last hidden states of
    /// all rows.
    fn masked_lm(
        &mut self,
        batch: &Packed,
        rows: &[u32],
        hidden: bool,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        self.model.masked_lm()?;
        if batch.rows() == 0 {
            return Ok((Vec::new(), Vec::new()));
        }
        let request = Request {
            head_inputs: HeadInputs { rows, ..HeadInputs::default() },
            masked: MaskedLmMode::Logits,
            states: hidden,
            ..Request::default()
        };
        let prepared = self.prepare(batch, None, request)?;
        let mut states = Vec::new();
        self.launch(&prepared, None, false, |device, run| {
            run.encode(device, &mut |_, _, _| Ok(()))?;
            if hidden {
                states = read_states(device, run, run.last())?;
            }
            match run.masked_lm_buffers() {
                Some(buffers) => {
                    let head = run.model.masked_lm()?;
                    head.logits(device, run.pass, run.last(), buffers)
                }
                None => Ok(()),
            }
        })?;
        let Some(buffers) = prepared.activations.masked_lm else {
            return Ok((Vec::new(), states));
        };
        let (classes, stride) =
            (self.config.vocab_size, state::padded_vocabulary(self.config.vocab_size));
        let logits = self.download_rows(buffers.logits, rows.len(), classes, stride)?;
        Ok((logits, states))
    }
}

/// Returns the number of rows of a head's logits.
fn head_rows(head: TaskHead, batch: &Packed) -> usize {
    match head.input {
        HeadInput::Pooled => batch.sequences(),
        HeadInput::Rows => batch.rows(),
    }
}

/// Downloads hidden states, (rows, hidden) in f32.
fn read_states(device: &mut dyn Device, run: Run<'_>, hidden: Address) -> Result<Vec<f32>> {
    let count = run.pass.rows() * run.pass.config.hidden_size;
    let element = run.pass.element();
    if element == Element::F32 {
        return download(device, hidden, count);
    }
    let states = run.activations.states;
    cast(device, count as u64, (hidden, element), (states, Element::F32))?;
    download(device, states, count)
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        let device = self.device.get_mut().as_mut();
        self.graphs.clear(device);
        self.staging.release(device);
        self.arena.release(device);
        self.updater.release(device);
        self.state.release(device);
    }
}
