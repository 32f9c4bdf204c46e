//! The forward pass through the embeddings and the encoder layers.

use std::ops::Range;

use crate::data::Packed;
use crate::engine::Precision;
use crate::engine::simd::Simd;
use crate::model::{Config, Dropout};
use crate::random::Site;

use super::attention::Scratch;
use super::dropout::Rows;
use super::elementwise::add_bias;
use super::floats::Floats;
use super::layer::{Gradients, Pass, Saved};
use super::masked_lm::MaskedLmBuffers;
use super::norm::Statistics;
use super::selection::Selection;
use super::{Model, embedding, grow, heads};

/// The model, its parameters, and how they are computed with.
#[derive(Clone, Copy)]
pub struct Network<'a> {
    pub config: &'a Config,
    pub model: &'a Model,
    pub values: &'a [f32],
    pub simd: Simd,
    pub precision: Precision,
    pub recompute: bool,
}

/// The buffers of a pass; they grow to the largest batch seen.
#[derive(Default)]
pub struct Activations {
    pub rows: Rows,
    pub selection: Selection,
    pub embedding_sums: Floats,
    pub embedding_statistics: Vec<Statistics>,
    /// The embeddings before their projection, if there is one.
    pub embedded: Floats,
    /// Hidden states: after the embeddings, then after each layer. Inference alternates between the
    /// first two.
    pub hidden: Vec<Floats>,
    /// Each layer's activations for its backward pass. With recomputing and in inference, all
    /// layers share the first.
    pub saved: Vec<Saved>,
    pub gradients: Gradients,
    pub scratch: Scratch,
    pub masked_lm: MaskedLmBuffers,
    pub head: heads::Buffers,
}

impl Activations {
    /// Returns empty buffers for a backward pass through `layers` layers. Inference needs those for one.
    pub fn new(layers: usize) -> Self {
        let mut new = Self::default();
        new.saved.resize_with(layers, Saved::default);
        new.hidden.resize_with(layers + 1, Floats::default);
        new
    }
}

impl Network<'_> {
    /// Runs the encoder for the rows that `a` selects. Returns which of the hidden states in `a` are the last layer's,
    /// and copies of those after the layers in `copied` (0: the embeddings).
    pub fn forward(
        self,
        batch: &Packed,
        dropout: Option<Dropout>,
        a: &mut Activations,
        copied: Range<usize>,
    ) -> (usize, Vec<Vec<f32>>) {
        a.rows.set(batch);
        a.selection.find(&a.rows);
        let (simd, precision, config) = (self.simd, self.precision, self.config);
        let (rows, selection) = (&a.rows, &a.selection);
        let pass = Pass { simd, precision, config, batch, rows, selection, dropout };
        let (rows, h, values) = (batch.rows(), config.hidden_size, self.values);
        let embedded = rows * config.embedding_width();
        a.embedding_sums.grow(embedded);
        grow(&mut a.embedding_statistics, rows);
        a.hidden[0].grow(rows * h);
        let projection = self.model.projection.as_ref();
        let out = match projection {
            Some(_) => &mut a.embedded,
            None => &mut a.hidden[0],
        };
        out.grow(embedded);
        let mask = pass.hidden_mask(Site::EmbeddingDropout);
        embedding::forward(
            simd,
            batch,
            embedding::Tables {
                words: &values[self.model.words.clone()],
                positions: &values[self.model.positions.clone()],
                segments: self.model.segments.clone().map(|range| &values[range]),
            },
            self.model.embedding_norm.of(values, pass.epsilon()),
            mask.map(|mask| (mask, &a.rows)),
            &mut a.embedding_sums[..embedded],
            &mut a.embedding_statistics[..rows],
            &mut out[..embedded],
        );
        if let Some(projection) = projection {
            let hidden = &mut a.hidden[0][..rows * h];
            projection.forward(precision, values, &a.embedded[..embedded], hidden);
            add_bias(simd, hidden, &values[projection.bias.clone()]);
        }
        let mut copies = Vec::with_capacity(copied.len());
        let mut copy = |layer: usize, hidden: &[f32]| {
            if copied.contains(&layer) {
                copies.push(hidden.to_vec());
            }
        };
        copy(0, &a.hidden[0][..rows * h]);
        let mut last = 0;
        for (index, layer) in self.model.layers.iter().enumerate() {
            let (from, to) = match dropout {
                Some(_) => (index, index + 1),
                None => (index % 2, (index + 1) % 2),
            };
            let saved = match dropout {
                Some(_) if !self.recompute => &mut a.saved[index],
                _ => &mut a.saved[0],
            };
            a.hidden[to].grow(rows * h);
            let [x, y] = a.hidden.get_disjoint_mut([from, to]).expect("different indices");
            let (x, y) = (&x[..rows * h], &mut y[..rows * h]);
            layer.forward(pass, values, x, saved, y, &mut a.scratch);
            copy(index + 1, y);
            last = to;
        }
        (last, copies)
    }
}
