//! One encoder layer, forward and backward, with the activations that it saves in between.

use crate::data::Packed;
use crate::engine::Precision;
use crate::model::{Config, Dropout, Layout};
use crate::random::Site;

use super::attention::{Heads, Queries, Scratch};
use super::dropout::{Mask, Rows};
use super::elementwise::{Partials, add_bias, bias_gelu, gelu_backward};
use super::floats::Floats;
use super::gemm::Output;
use super::grow;
use super::linear::Linear;
use super::norm::{self, NormRanges, SkipConnection, Statistics, Sums};
use super::selection::Selection;
use crate::engine::simd::Simd;

/// The settings and the batch of a pass.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub simd: Simd,
    pub precision: Precision,
    pub config: &'a Config,
    pub batch: &'a Packed,
    pub rows: &'a Rows,
    /// The rows of the last layer that heads read.
    pub selection: &'a Selection,
    /// None for inference.
    pub dropout: Option<Dropout>,
}

impl<'a> Pass<'a> {
    /// Returns which rows of a layer's output are computed. None for all.
    fn selection(&self, layer: u32) -> Option<&'a Selection> {
        let last = layer as usize + 1 == self.config.num_hidden_layers;
        self.selection.get().filter(|_| last)
    }

    pub fn hidden_mask(&self, site: Site) -> Option<Mask> {
        Mask::new(self.dropout, site, self.config.dropout_at(site))
    }

    pub fn epsilon(&self) -> f32 {
        self.config.layer_norm_eps as f32
    }

    fn heads(&self, layer: u32) -> Heads {
        let c = self.config;
        let site = Site::AttentionDropout(layer);
        Heads {
            count: c.num_attention_heads,
            size: c.hidden_size / c.num_attention_heads,
            causal: c.is_decoder,
            dropout: Mask::new(self.dropout, site, c.attention_probs_dropout_prob),
            precision: self.precision,
        }
    }
}

/// The ranges of a layer's parameters.
pub struct Layer {
    index: u32,
    /// Query, key and value joined.
    qkv: Linear,
    attention: Linear,
    attention_norm: NormRanges,
    intermediate: Linear,
    output: Linear,
    output_norm: NormRanges,
}

/// The activations that a layer saves for its backward pass; (selected rows, hidden) unless noted.
#[derive(Default)]
pub struct Saved {
    /// (rows, 3 × hidden)
    qkv: Floats,
    /// (selected rows, heads)
    log_sums: Floats,
    context: Floats,
    attended: Floats,
    attended_statistics: Vec<Statistics>,
    normed: Floats,
    /// The intermediate layer before the bias and after GELU, (selected rows, intermediate).
    inner: Floats,
    activated: Floats,
    feed_forward: Floats,
    feed_forward_statistics: Vec<Statistics>,
}

/// Gradients of activations, shared by all layers.
#[derive(Default)]
pub struct Gradients {
    /// Gradient of the layer's output; the backward pass overwrites it with that of its input:
    /// (rows, hidden).
    pub hidden: Floats,
    residual: Floats,
    linear: Floats,
    /// (selected rows, hidden)
    selected: Floats,
    /// (rows, intermediate)
    inner: Floats,
    /// (rows, 3 × hidden)
    qkv: Floats,
    pub partials: Partials,
}

impl Gradients {
    /// Makes room for `rows` rows and zeroes the gradient of the hidden states.
    pub fn start(&mut self, rows: usize, config: &Config) {
        let hidden = rows * config.hidden_size;
        self.hidden.zero(hidden);
        for buffer in [&mut self.residual, &mut self.linear] {
            buffer.grow(hidden);
        }
        self.inner.grow(rows * config.intermediate_size);
        self.qkv.grow(3 * hidden);
    }

    /// Runs backward through the projection of the embeddings `x`: turns the gradient of the hidden states
    /// in `hidden` into that of `x`, and adds the parameters' gradients.
    pub fn project(
        &mut self,
        projection: &Linear,
        pass: Pass<'_>,
        values: &[f32],
        x: &[f32],
        gradients: &mut [f32],
    ) {
        let precision = pass.precision;
        let dy = &self.hidden[..x.len() / projection.inputs * projection.outputs];
        projection.add_bias_gradient(pass.simd, gradients, dy, &mut self.partials);
        projection.add_weight_gradient(precision, gradients, x, dy);
        self.residual.grow(x.len());
        let d = &mut self.residual[..x.len()];
        projection.backward(precision, values, dy, d, Output::Overwrite);
        std::mem::swap(&mut self.hidden, &mut self.residual);
        self.residual.grow(x.len());
    }

    /// Returns the gradient of the embeddings, of `len` values, and scratch for their backward pass.
    pub fn for_embeddings(&mut self, len: usize) -> (&mut [f32], &mut [f32], &mut Partials) {
        (&mut self.hidden[..len], &mut self.residual[..len], &mut self.partials)
    }
}

impl Layer {
    pub fn find(layout: &Layout, index: usize) -> Self {
        let name = |rest: &str| format!("encoder.layer.{index}.{rest}");
        let linear = |rest: &str| Linear::find(layout, &name(rest));
        Self {
            index: index as u32,
            qkv: Linear::joined(
                layout,
                ["query", "key", "value"].map(|n| name(&format!("attention.self.{n}"))),
            ),
            attention: linear("attention.output.dense"),
            attention_norm: NormRanges::find(layout, &name("attention.output.LayerNorm")),
            intermediate: linear("intermediate.dense"),
            output: linear("output.dense"),
            output_norm: NormRanges::find(layout, &name("output.LayerNorm")),
        }
    }

    /// Returns the layer's matrices.
    pub fn linears(&mut self) -> [&mut Linear; 4] {
        [&mut self.qkv, &mut self.attention, &mut self.intermediate, &mut self.output]
    }

    /// Maps `x`, (rows, hidden), to `output` of that size, of which only the selected rows have a meaning.
    pub fn forward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        x: &[f32],
        saved: &mut Saved,
        output: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (all, h, precision) = (pass.batch.rows(), pass.config.hidden_size, pass.precision);
        let (i, heads) = (pass.config.intermediate_size, pass.heads(self.index));
        let selection = pass.selection(self.index);
        let rows = selection.map_or(all, Selection::len);
        saved.reserve(all, rows, h, i, heads.count);
        let qkv = &mut saved.qkv[..all * 3 * h];
        self.qkv.forward(precision, values, x, qkv);
        add_bias(pass.simd, qkv, &values[self.qkv.bias.clone()]);
        let context = &mut saved.context[..rows * h];
        let log_sums = &mut saved.log_sums[..rows * heads.count];
        let queries = Queries { batch: pass.batch, selection };
        heads.forward(pass.simd, queries, qkv, context, log_sums, scratch);
        let (places, residual) = match selection {
            None => (pass.rows, x),
            Some(selection) => {
                // `output` has room for them until the last step.
                selection.pick(x, h, &mut output[..rows * h]);
                (selection.rows(), &output[..rows * h])
            }
        };
        let attended = &mut saved.attended[..rows * h];
        self.attention.forward(precision, values, context, attended);
        let normed = &mut saved.normed[..rows * h];
        norm::forward(
            pass.simd,
            SkipConnection {
                bias: &values[self.attention.bias.clone()],
                dropout: pass.hidden_mask(Site::AttentionOutputDropout(self.index)),
                rows: places,
                residual,
            },
            self.attention_norm.of(values, pass.epsilon()),
            attended,
            &mut saved.attended_statistics[..rows],
            normed,
        );
        let inner = &mut saved.inner[..rows * i];
        let activated = &mut saved.activated[..rows * i];
        self.intermediate.forward(precision, values, normed, inner);
        let bias = &values[self.intermediate.bias.clone()];
        bias_gelu(pass.simd, inner, bias, activated);
        let feed_forward = &mut saved.feed_forward[..rows * h];
        self.output.forward(precision, values, activated, feed_forward);
        norm::forward(
            pass.simd,
            SkipConnection {
                bias: &values[self.output.bias.clone()],
                dropout: pass.hidden_mask(Site::FeedForwardDropout(self.index)),
                rows: places,
                residual: normed,
            },
            self.output_norm.of(values, pass.epsilon()),
            feed_forward,
            &mut saved.feed_forward_statistics[..rows],
            &mut output[..rows * h],
        );
        if let Some(selection) = selection {
            selection.spread(h, output);
        }
    }

    /// Turns the gradient of the layer's output in `d.hidden` into that of its input `x`, and adds
    /// the parameters' gradients.
    #[expect(clippy::too_many_arguments, reason = "each is another buffer of the pass")]
    pub fn backward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        x: &[f32],
        saved: &Saved,
        gradients: &mut [f32],
        d: &mut Gradients,
        scratch: &mut Scratch,
    ) {
        let (all, h, simd) = (pass.batch.rows(), pass.config.hidden_size, pass.simd);
        let (i, heads) = (pass.config.intermediate_size, pass.heads(self.index));
        let selection = pass.selection(self.index);
        let rows = selection.map_or(all, Selection::len);
        if let Some(selection) = selection {
            // Until the gradients of all rows are needed again, `d.hidden` has those of the selected rows.
            d.selected.grow(rows * h);
            selection.pick(&d.hidden, h, &mut d.selected[..rows * h]);
            std::mem::swap(&mut d.hidden, &mut d.selected);
        }
        let places = selection.map_or(pass.rows, Selection::rows);
        let (hidden, residual) = (&mut d.hidden[..rows * h], &mut d.residual[..rows * h]);
        let (linear, inner) = (&mut d.linear[..rows * h], &mut d.inner[..rows * i]);
        let (partials, precision) = (&mut d.partials, pass.precision);

        // Feed-forward block.
        let input = (&saved.feed_forward[..rows * h], &saved.feed_forward_statistics[..rows]);
        let mask = pass.hidden_mask(Site::FeedForwardDropout(self.index));
        let dropout = mask.map(|mask| (mask, places));
        let norm = self.output_norm.of(values, pass.epsilon());
        let sums = Sums::of(gradients, &self.output_norm, &self.output, partials);
        norm::backward_through_dropout(simd, dropout, norm, input, hidden, residual, linear, sums);
        let activated = &saved.activated[..rows * i];
        self.output.add_weight_gradient(precision, gradients, activated, linear);
        self.output.backward(precision, values, linear, inner, Output::Overwrite);
        let bias = self.intermediate.bias.clone();
        gelu_backward(
            simd,
            &saved.inner[..rows * i],
            &values[bias.clone()],
            inner,
            &mut gradients[bias],
            partials,
        );
        let normed = &saved.normed[..rows * h];
        self.intermediate.add_weight_gradient(precision, gradients, normed, inner);
        self.intermediate.backward(precision, values, inner, residual, Output::Accumulate);

        // Attention block: `residual` is now the gradient of its output.
        let context = &saved.context[..rows * h];
        let input = (&saved.attended[..rows * h], &saved.attended_statistics[..rows]);
        let mask = pass.hidden_mask(Site::AttentionOutputDropout(self.index));
        let dropout = mask.map(|mask| (mask, places));
        let norm = self.attention_norm.of(values, pass.epsilon());
        let sums = Sums::of(gradients, &self.attention_norm, &self.attention, partials);
        norm::backward_through_dropout(simd, dropout, norm, input, residual, hidden, linear, sums);
        self.attention.add_weight_gradient(precision, gradients, context, linear);
        self.attention.backward(precision, values, linear, residual, Output::Overwrite);
        let d_context = residual;
        if let Some(selection) = selection {
            std::mem::swap(&mut d.hidden, &mut d.selected);
            selection.put(&d.selected[..rows * h], h, &mut d.hidden[..all * h]);
        }
        let (hidden, d_qkv) = (&mut d.hidden[..all * h], &mut d.qkv[..all * 3 * h]);
        heads.backward(
            simd,
            Queries { batch: pass.batch, selection },
            &saved.qkv[..all * 3 * h],
            &saved.log_sums[..rows * heads.count],
            context,
            d_context,
            d_qkv,
            scratch,
        );
        self.qkv.add_bias_gradient(simd, gradients, d_qkv, partials);
        self.qkv.add_weight_gradient(precision, gradients, x, d_qkv);
        self.qkv.backward(precision, values, d_qkv, hidden, Output::Accumulate);
    }
}

impl Saved {
    /// Makes room for `all` rows, of which `rows` are selected.
    fn reserve(
        &mut self,
        all: usize,
        rows: usize,
        hidden: usize,
        intermediate: usize,
        heads: usize,
    ) {
        self.qkv.grow(all * 3 * hidden);
        self.log_sums.grow(rows * heads);
        for buffer in
            [&mut self.context, &mut self.attended, &mut self.normed, &mut self.feed_forward]
        {
            buffer.grow(rows * hidden);
        }
        self.inner.grow(rows * intermediate);
        self.activated.grow(rows * intermediate);
        grow(&mut self.attended_statistics, rows);
        grow(&mut self.feed_forward_statistics, rows);
    }
}
