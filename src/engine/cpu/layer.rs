//! One encoder layer, forward and backward, with the activations that it keeps between the two.

use crate::data::Packed;
use crate::engine::Precision;
use crate::model::{Config, Dropout, Layout};
use crate::random::Site;

use super::attention::{Heads, Scratch};
use super::dropout::{Mask, Rows};
use super::elementwise::{Partials, add_bias, bias_gelu, gelu_backward};
use super::gemm::{Matrix, MatrixMut, Old};
use super::grow;
use super::linear::{Linear, NormAt};
use super::norm::{self, Before, Statistics, Sums};
use crate::engine::simd::Simd;

/// What every step of a pass needs to know.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub simd: Simd,
    pub precision: Precision,
    pub config: &'a Config,
    pub batch: &'a Packed,
    pub rows: &'a Rows,
    /// None for inference.
    pub dropout: Option<Dropout>,
}

impl Pass<'_> {
    pub fn hidden_mask(&self, site: Site) -> Option<Mask> {
        Mask::new(self.dropout, site, self.config.hidden_dropout_prob)
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

/// Where a layer's parameters are.
pub struct Layer {
    index: u32,
    /// Query, key and value in one.
    qkv: Linear,
    attention: Linear,
    attention_norm: NormAt,
    intermediate: Linear,
    output: Linear,
    output_norm: NormAt,
}

/// What a layer keeps for its backward pass; (rows, hidden) where nothing else is said.
#[derive(Default)]
pub struct Kept {
    /// (rows, 3 × hidden)
    qkv: Vec<f32>,
    /// (rows, heads)
    log_sums: Vec<f32>,
    context: Vec<f32>,
    attended: Vec<f32>,
    attended_statistics: Vec<Statistics>,
    normed: Vec<f32>,
    /// Before the bias and after GELU, (rows, intermediate).
    inner: Vec<f32>,
    activated: Vec<f32>,
    fed: Vec<f32>,
    fed_statistics: Vec<Statistics>,
}

/// Gradients of activations, shared by all layers.
#[derive(Default)]
pub struct Gradients {
    /// Of a layer's output before, of its input after the layer's backward pass: (rows, hidden).
    pub hidden: Vec<f32>,
    residual: Vec<f32>,
    linear: Vec<f32>,
    /// (rows, intermediate)
    inner: Vec<f32>,
    /// (rows, 3 × hidden)
    qkv: Vec<f32>,
    pub partials: Partials,
}

impl Gradients {
    /// Room for `rows` rows, the hidden states' gradients zero.
    pub fn start(&mut self, rows: usize, config: &Config) {
        let hidden = rows * config.hidden_size;
        self.hidden.clear();
        self.hidden.resize(hidden, 0.0);
        for buffer in [&mut self.residual, &mut self.linear] {
            grow(buffer, hidden);
        }
        grow(&mut self.inner, rows * config.intermediate_size);
        grow(&mut self.qkv, 3 * hidden);
    }

    /// Hidden states' gradients with the scratch that the embeddings' backward pass needs.
    pub fn for_embeddings(&mut self) -> (&mut [f32], &mut [f32], &mut Partials) {
        let rows = self.hidden.len();
        (
            &mut self.hidden,
            &mut self.residual[..rows],
            &mut self.partials,
        )
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
            attention_norm: NormAt::find(layout, &name("attention.output.LayerNorm")),
            intermediate: linear("intermediate.dense"),
            output: linear("output.dense"),
            output_norm: NormAt::find(layout, &name("output.LayerNorm")),
        }
    }

    /// `x` (rows, hidden) to `output` of that size.
    pub fn forward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        x: &[f32],
        kept: &mut Kept,
        output: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (rows, h) = (pass.batch.rows(), pass.config.hidden_size);
        let (i, heads) = (pass.config.intermediate_size, pass.heads(self.index));
        kept.reserve(rows, h, i, heads.count);
        let qkv = &mut kept.qkv[..rows * 3 * h];
        let input = Matrix::new(x, rows, h);
        self.qkv.forward(
            pass.precision,
            values,
            input,
            MatrixMut::new(qkv, rows, 3 * h),
        );
        add_bias(pass.simd, qkv, &values[self.qkv.bias.clone()]);
        heads.forward(
            pass.simd,
            pass.batch,
            qkv,
            &mut kept.context[..rows * h],
            &mut kept.log_sums[..rows * heads.count],
            scratch,
        );
        let attended = &mut kept.attended[..rows * h];
        let context = Matrix::new(&kept.context, rows, h);
        self.attention.forward(
            pass.precision,
            values,
            context,
            MatrixMut::new(attended, rows, h),
        );
        let normed = &mut kept.normed[..rows * h];
        norm::forward(
            pass.simd,
            Before {
                bias: &values[self.attention.bias.clone()],
                dropout: pass.hidden_mask(Site::AttentionOutputDropout(self.index)),
                rows: pass.rows,
                residual: x,
            },
            self.attention_norm.of(values, pass.epsilon()),
            attended,
            &mut kept.attended_statistics[..rows],
            normed,
        );
        let inner = &mut kept.inner[..rows * i];
        let activated = &mut kept.activated[..rows * i];
        self.intermediate.forward(
            pass.precision,
            values,
            Matrix::new(normed, rows, h),
            MatrixMut::new(inner, rows, i),
        );
        bias_gelu(
            pass.simd,
            inner,
            &values[self.intermediate.bias.clone()],
            activated,
        );
        let fed = &mut kept.fed[..rows * h];
        self.output.forward(
            pass.precision,
            values,
            Matrix::new(activated, rows, i),
            MatrixMut::new(fed, rows, h),
        );
        norm::forward(
            pass.simd,
            Before {
                bias: &values[self.output.bias.clone()],
                dropout: pass.hidden_mask(Site::FeedForwardDropout(self.index)),
                rows: pass.rows,
                residual: normed,
            },
            self.output_norm.of(values, pass.epsilon()),
            fed,
            &mut kept.fed_statistics[..rows],
            output,
        );
    }

    /// From the gradient of the layer's output to that of its input `x`, both in `d.hidden`; adds
    /// the parameters' gradients.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is another buffer of the pass"
    )]
    pub fn backward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        x: &[f32],
        kept: &Kept,
        gradients: &mut [f32],
        d: &mut Gradients,
        scratch: &mut Scratch,
    ) {
        let (rows, h, simd) = (pass.batch.rows(), pass.config.hidden_size, pass.simd);
        let (i, heads) = (pass.config.intermediate_size, pass.heads(self.index));
        let (hidden, residual) = (&mut d.hidden[..rows * h], &mut d.residual[..rows * h]);
        let (linear, inner) = (&mut d.linear[..rows * h], &mut d.inner[..rows * i]);
        let partials = &mut d.partials;

        // Feed-forward block.
        let saved = (&kept.fed[..rows * h], &kept.fed_statistics[..rows]);
        let mask = pass.hidden_mask(Site::FeedForwardDropout(self.index));
        let dropout = mask.map(|mask| (mask, pass.rows));
        let norm = self.output_norm.of(values, pass.epsilon());
        let sums = Sums::of(gradients, &self.output_norm, &self.output, partials);
        norm::backward_through_dropout(simd, dropout, norm, saved, hidden, residual, linear, sums);
        let dy = Matrix::new(linear, rows, h);
        let activated = Matrix::new(&kept.activated, rows, i);
        self.output
            .add_weight_gradient(pass.precision, gradients, activated, dy);
        let into = MatrixMut::new(inner, rows, i);
        self.output
            .backward(pass.precision, values, dy, into, Old::Overwrite);
        let bias = self.intermediate.bias.clone();
        gelu_backward(
            simd,
            &kept.inner[..rows * i],
            &values[bias.clone()],
            inner,
            &mut gradients[bias],
            partials,
        );
        let dy = Matrix::new(inner, rows, i);
        let normed = Matrix::new(&kept.normed, rows, h);
        self.intermediate
            .add_weight_gradient(pass.precision, gradients, normed, dy);
        let into = MatrixMut::new(residual, rows, h);
        self.intermediate
            .backward(pass.precision, values, dy, into, Old::Add);

        // Attention block: `residual` is now the gradient of its output.
        let saved = (
            &kept.attended[..rows * h],
            &kept.attended_statistics[..rows],
        );
        let mask = pass.hidden_mask(Site::AttentionOutputDropout(self.index));
        let dropout = mask.map(|mask| (mask, pass.rows));
        let norm = self.attention_norm.of(values, pass.epsilon());
        let sums = Sums::of(gradients, &self.attention_norm, &self.attention, partials);
        norm::backward_through_dropout(simd, dropout, norm, saved, residual, hidden, linear, sums);
        let dy = Matrix::new(linear, rows, h);
        let context = Matrix::new(&kept.context, rows, h);
        self.attention
            .add_weight_gradient(pass.precision, gradients, context, dy);
        let d_context = residual;
        let into = MatrixMut::new(d_context, rows, h);
        self.attention
            .backward(pass.precision, values, dy, into, Old::Overwrite);
        let d_qkv = &mut d.qkv[..rows * 3 * h];
        heads.backward(
            simd,
            pass.batch,
            &kept.qkv[..rows * 3 * h],
            &kept.log_sums[..rows * heads.count],
            &kept.context[..rows * h],
            d_context,
            d_qkv,
            scratch,
        );
        let input = Matrix::new(x, rows, h);
        self.qkv.add_bias_gradient(simd, gradients, d_qkv, partials);
        let dy = Matrix::new(d_qkv, rows, 3 * h);
        self.qkv
            .add_weight_gradient(pass.precision, gradients, input, dy);
        let into = MatrixMut::new(hidden, rows, h);
        self.qkv
            .backward(pass.precision, values, dy, into, Old::Add);
    }
}

impl Kept {
    fn reserve(&mut self, rows: usize, hidden: usize, intermediate: usize, heads: usize) {
        grow(&mut self.qkv, rows * 3 * hidden);
        grow(&mut self.log_sums, rows * heads);
        for buffer in [
            &mut self.context,
            &mut self.attended,
            &mut self.normed,
            &mut self.fed,
        ] {
            grow(buffer, rows * hidden);
        }
        grow(&mut self.inner, rows * intermediate);
        grow(&mut self.activated, rows * intermediate);
        grow(&mut self.attended_statistics, rows);
        grow(&mut self.fed_statistics, rows);
    }
}
