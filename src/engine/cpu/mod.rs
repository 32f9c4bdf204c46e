//! The model run fast on a CPU: packed rows, flat buffers, fused kernels, every core.
//!
//! One file a subject: [`gemm`] (matrix products), [`attention`], [`norm`], [`elementwise`] (biases
//! and GELU), [`embedding`], [`loss`], [`dropout`]; [`layer`] and [`heads`] put them together, and
//! [`simd`] runs them with the widest instructions of the processor. Everything is f32.
//!
//! Activations live in buffers that grow to the largest batch seen and are then used again.

mod attention;
mod dropout;
mod elementwise;
mod embedding;
mod gemm;
mod heads;
mod layer;
mod linear;
mod loss;
mod norm;
mod simd;

use std::ops::Range;
use std::sync::Arc;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::error::Result;
use crate::model::{Config, Dropout, Layout};
use crate::random::Site;
use crate::train::optimizer::{Moments, Update};

use self::attention::Scratch;
use self::dropout::Rows;
use self::heads::{MaskedLm, MaskedLmBuffers, Pooled, PooledBuffers};
use self::layer::{Gradients, Kept, Layer, Pass};
use self::linear::{NormAt, place};
use self::norm::Statistics;
use self::simd::Simd;

use super::state::State;
use super::{Engine, HiddenStates, PretrainingScores};

/// Makes a buffer at least `len` long.
fn grow<T: Default + Clone>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}

/// Two parts of a buffer that don't overlap, as a layer's weight and bias don't.
fn two<'a>(
    values: &'a mut [f32],
    a: &Range<usize>,
    b: &Range<usize>,
) -> (&'a mut [f32], &'a mut [f32]) {
    let [a, b] = values
        .get_disjoint_mut([a.clone(), b.clone()])
        .expect("parameters lie one behind the other in the buffer");
    (a, b)
}

/// Runs `work` on a thread of the rayon pool, so that a step is handed over once and not with each
/// of its parallel loops.
fn on_the_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

/// The engine: flat buffers and the activations.
pub struct CpuEngine {
    config: Config,
    state: State,
    simd: Simd,
    model: Places,
    activations: Activations,
}

/// Where the parts of the model are in the flat buffers.
struct Places {
    words: Range<usize>,
    positions: Range<usize>,
    segments: Range<usize>,
    embedding_norm: NormAt,
    layers: Vec<Layer>,
    masked_lm: Option<MaskedLm>,
    pooled: Option<Pooled>,
}

#[derive(Default)]
struct Activations {
    rows: Rows,
    embedding_sums: Vec<f32>,
    embedding_statistics: Vec<Statistics>,
    embedded: Vec<f32>,
    layers: Vec<Kept>,
    gradients: Gradients,
    scratch: Scratch,
    masked_lm: MaskedLmBuffers,
    pooled: PooledBuffers,
}

impl CpuEngine {
    /// A model with these parameters; any size that the configuration allows.
    pub fn new(config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        let layers = config.num_hidden_layers;
        let embedding = |name: &str| place(layout, &format!("embeddings.{name}.weight"));
        let model = Places {
            words: embedding("word_embeddings"),
            positions: embedding("position_embeddings"),
            segments: embedding("token_type_embeddings"),
            embedding_norm: NormAt::find(layout, "embeddings.LayerNorm"),
            layers: (0..layers).map(|i| Layer::find(layout, i)).collect(),
            masked_lm: MaskedLm::find(layout),
            pooled: Pooled::find(layout),
        };
        let mut activations = Activations::default();
        activations.layers.resize_with(layers, Kept::default);
        Ok(Self {
            config: config.clone(),
            state: State::new(layout, values)?,
            simd: Simd::detect(),
            model,
            activations,
        })
    }

    fn check(&self, batch: &Packed) -> Result<()> {
        let c = &self.config;
        batch.check(c.vocab_size, c.max_position_embeddings, c.type_vocab_size)
    }

    /// Runs the encoder and gives what the heads need: the pass and the parts it works on.
    fn encode<'a>(&'a mut self, batch: &'a Packed, dropout: Option<Dropout>) -> Result<Run<'a>> {
        self.check(batch)?;
        let a = &mut self.activations;
        a.rows.set(batch);
        let pass = Pass {
            simd: self.simd,
            config: &self.config,
            batch,
            rows: &a.rows,
            dropout,
        };
        let (rows, h, values) = (batch.rows(), self.config.hidden_size, &self.state.values);
        grow(&mut a.embedding_sums, rows * h);
        grow(&mut a.embedding_statistics, rows);
        grow(&mut a.embedded, rows * h);
        let mask = pass.hidden_mask(Site::EmbeddingDropout);
        embedding::forward(
            self.simd,
            batch,
            embedding::Tables {
                words: &values[self.model.words.clone()],
                positions: &values[self.model.positions.clone()],
                segments: &values[self.model.segments.clone()],
            },
            self.model.embedding_norm.of(values, pass.epsilon()),
            mask.map(|mask| (mask, &a.rows)),
            &mut a.embedding_sums[..rows * h],
            &mut a.embedding_statistics[..rows],
            &mut a.embedded[..rows * h],
        );
        for (index, layer) in self.model.layers.iter().enumerate() {
            let (before, kept) = a.layers.split_at_mut(index);
            let x = before.last().map_or(&a.embedded, |kept| &kept.output);
            layer.forward(pass, values, &x[..rows * h], &mut kept[0], &mut a.scratch);
        }
        Ok(Run {
            pass,
            model: &self.model,
            values: &self.state.values,
            parameter_gradients: &mut self.state.gradients,
            embedding_sums: &a.embedding_sums[..rows * h],
            embedding_statistics: &a.embedding_statistics[..rows],
            embedded: &a.embedded[..rows * h],
            layers: &a.layers,
            gradients: &mut a.gradients,
            scratch: &mut a.scratch,
            masked_lm: &mut a.masked_lm,
            pooled: &mut a.pooled,
        })
    }
}

/// A forward pass through the encoder that has been made: what heads and backward pass work on.
struct Run<'a> {
    pass: Pass<'a>,
    model: &'a Places,
    values: &'a [f32],
    parameter_gradients: &'a mut [f32],
    embedding_sums: &'a [f32],
    embedding_statistics: &'a [Statistics],
    embedded: &'a [f32],
    layers: &'a [Kept],
    gradients: &'a mut Gradients,
    scratch: &'a mut Scratch,
    masked_lm: &'a mut MaskedLmBuffers,
    pooled: &'a mut PooledBuffers,
}

impl<'a> Run<'a> {
    /// Hidden states after layer `layer`; 0 is after the embeddings.
    fn hidden(&self, layer: usize) -> &'a [f32] {
        let len = self.embedded.len();
        match layer.checked_sub(1) {
            None => self.embedded,
            Some(layer) => &self.layers[layer].output[..len],
        }
    }

    fn last_hidden(&self) -> &'a [f32] {
        self.hidden(self.layers.len())
    }

    /// Scores masked tokens and pairs; when `training`, with gradients of both losses down to the
    /// embedding tables.
    fn pretraining(
        &mut self,
        batch: &PretrainingBatch,
        training: bool,
    ) -> Result<PretrainingScores> {
        let (pass, values, hidden) = (self.pass, self.values, self.last_hidden());
        let mut scores = PretrainingScores::default();
        if training {
            self.gradients.start(batch.packed.rows(), pass.config);
        }
        if !batch.masked_rows.is_empty() {
            let head = self.model.masked_lm.as_ref();
            let head = head.ok_or_else(|| super::lacks("masked-LM"))?;
            let targets = (&batch.masked_rows[..], &batch.masked_labels[..]);
            let into = training.then(|| {
                let hidden = &mut self.gradients.hidden[..];
                (&mut *self.parameter_gradients, hidden)
            });
            let scored = head.score(pass, values, hidden, targets, self.masked_lm, into);
            scores.mlm_loss = scored.loss;
            scores.mlm_correct = scored.correct;
            scores.mlm_total = batch.masked_rows.len() as u64;
        }
        if !batch.next_labels.is_empty() {
            let head = self.model.pooled.as_ref();
            let head = head.ok_or_else(|| super::lacks("pooler"))?;
            let into = training.then(|| {
                let hidden = &mut self.gradients.hidden[..];
                (&mut *self.parameter_gradients, hidden)
            });
            let scored = head
                .score(pass, values, hidden, &batch.next_labels, self.pooled, into)
                .ok_or_else(|| super::lacks("next-sentence"))?;
            scores.nsp_loss = scored.loss;
            scores.nsp_correct = scored.correct;
            scores.nsp_total = batch.next_labels.len() as u64;
        }
        if training {
            self.backward();
        }
        Ok(scores)
    }

    /// From the gradient of the last hidden states to those of every parameter of the encoder.
    fn backward(&mut self) {
        let (pass, values) = (self.pass, self.values);
        for (index, layer) in self.model.layers.iter().enumerate().rev() {
            let (x, kept) = (self.hidden(index), &self.layers[index]);
            let (gradients, d) = (&mut *self.parameter_gradients, &mut *self.gradients);
            layer.backward(pass, values, x, kept, gradients, d, self.scratch);
        }
        let (simd, batch, h) = (pass.simd, pass.batch, pass.config.hidden_size);
        let (dy, d_sums) = self.gradients.for_embeddings();
        let mask = pass.hidden_mask(Site::EmbeddingDropout);
        let norm = &self.model.embedding_norm;
        let saved = (self.embedding_sums, self.embedding_statistics);
        embedding::backward(
            simd,
            norm.of(values, pass.epsilon()),
            mask.map(|mask| (mask, pass.rows)),
            saved,
            dy,
            d_sums,
        );
        let gradients = &mut *self.parameter_gradients;
        let (dw, db) = two(gradients, &norm.weight, &norm.bias);
        norm::add_parameter_gradients(simd, saved, dy, dw, db);
        for (table, index) in [
            (&self.model.words, &batch.ids),
            (&self.model.positions, &batch.positions),
            (&self.model.segments, &batch.segments),
        ] {
            let table = &mut gradients[table.clone()];
            embedding::add_to_table(simd, index, d_sums, h, table);
        }
    }
}

impl Engine for CpuEngine {
    fn config(&self) -> &Config {
        &self.config
    }

    fn layout(&self) -> &Arc<Layout> {
        &self.state.layout
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        Ok(self.state.values.clone())
    }

    fn set_parameters(&mut self, values: &[f32]) -> Result<()> {
        self.state.values.copy_from_slice(values);
        Ok(())
    }

    fn moments(&self) -> Result<Moments> {
        Ok(self.state.moments.clone())
    }

    fn set_moments(&mut self, moments: Moments) -> Result<()> {
        self.state.moments = moments;
        Ok(())
    }

    fn pretraining_gradients(
        &mut self,
        batch: &PretrainingBatch,
        dropout: Dropout,
    ) -> Result<PretrainingScores> {
        on_the_pool(|| {
            self.encode(&batch.packed, Some(dropout))?
                .pretraining(batch, true)
        })
    }

    fn update(&mut self, update: &Update) -> Result<f64> {
        Ok(on_the_pool(|| self.state.update(update)))
    }

    fn gradients(&self) -> Result<Vec<f32>> {
        Ok(self.state.gradients.clone())
    }

    fn pretraining_scores(&mut self, batch: &PretrainingBatch) -> Result<PretrainingScores> {
        on_the_pool(|| self.encode(&batch.packed, None)?.pretraining(batch, false))
    }

    fn hidden_states(&mut self, batch: &Packed) -> Result<HiddenStates> {
        let layers = self.config.num_hidden_layers;
        let run = on_the_pool(|| self.encode(batch, None))?;
        let pooled = run.model.pooled.as_ref().map(|head| {
            head.pool(run.pass, run.values, run.last_hidden(), run.pooled)
                .to_vec()
        });
        Ok(HiddenStates {
            layers: (0..=layers).map(|l| run.hidden(l).to_vec()).collect(),
            pooled,
        })
    }

    fn masked_lm_logits(&mut self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>> {
        let run = on_the_pool(|| self.encode(batch, None))?;
        let head = run.model.masked_lm.as_ref();
        let head = head.ok_or_else(|| super::lacks("masked-LM"))?;
        let hidden = run.last_hidden();
        Ok(head.logits(run.pass, run.values, hidden, rows, run.masked_lm))
    }

    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>> {
        let run = on_the_pool(|| self.encode(batch, None))?;
        let head = run.model.pooled.as_ref();
        let head = head.ok_or_else(|| super::lacks("pooler"))?;
        head.next_logits(run.pass, run.values, run.last_hidden(), run.pooled)
            .ok_or_else(|| super::lacks("next-sentence"))
    }
}
