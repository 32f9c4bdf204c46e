//! One encoder layer, forward and backward, with the activations that it saves in between.

use crate::engine::Recompute;
use crate::error::Result;
use crate::random::Site;

use super::arena::{Plan, Span};
use super::device::{Address, Device};
use super::kernels::{
    AttentionBackward, Heads, NormBackward, NormForward, attention_backward, attention_forward,
    attention_scratch, bias_gelu, bias_gradient, gelu_backward, norm_backward, norm_forward,
    partials,
};
use super::linear::{Linear, NormOffsets};
use super::pass::Pass;
use super::shape::{Purpose, Shape};
use super::state::Offsets;

/// The offsets of a layer's parameters.
pub struct Layer {
    index: u32,
    /// Query, key and value joined.
    qkv: Linear,
    attention: Linear,
    attention_norm: NormOffsets,
    intermediate: Linear,
    output: Linear,
    output_norm: NormOffsets,
}

/// The activations that a layer saves for its backward pass; (rows, hidden) unless noted.
#[derive(Debug, Clone, Copy)]
pub struct Saved {
    /// (rows, 3 × hidden)
    qkv: Address,
    /// (rows, heads), f32
    log_sums: Address,
    context: Address,
    attended: Address,
    /// (rows, 2), f32, like the other statistics.
    attended_statistics: Address,
    normed: Address,
    /// The intermediate layer before the bias and after GELU, (rows, intermediate).
    inner: Address,
    activated: Address,
    feed_forward: Address,
    feed_forward_statistics: Address,
}

impl Saved {
    /// Takes addresses for all layers; layers share buffers that are recomputed.
    pub fn take(plan: &mut Plan, shape: &Shape<'_>) -> Vec<Self> {
        let layers = shape.config.num_hidden_layers;
        match shape.purpose {
            Purpose::Inference | Purpose::Training(Recompute::Layers) => {
                let cheap = Self::take_cheap(plan, shape);
                vec![Self::take_one(plan, shape, Span::Layers, cheap); layers]
            }
            Purpose::Training(Recompute::Cheap) => {
                let cheap = Self::take_cheap(plan, shape);
                let one = |_| Self::take_one(plan, shape, Span::Step, cheap);
                (0..layers).map(one).collect()
            }
            Purpose::Training(Recompute::Nothing) => {
                let one = |_| {
                    let cheap = [
                        plan.take(Span::Step, shape.hidden()),
                        plan.take(Span::Step, shape.inner()),
                    ];
                    Self::take_one(plan, shape, Span::Step, cheap)
                };
                (0..layers).map(one).collect()
            }
        }
    }

    /// Takes the buffers that are cheap to recompute, `normed` and `activated`, shared by all
    /// layers.
    fn take_cheap(plan: &mut Plan, shape: &Shape<'_>) -> [Address; 2] {
        [shape.hidden(), shape.inner()].map(|bytes| plan.take(Span::Layers, bytes))
    }

    fn take_one(
        plan: &mut Plan,
        shape: &Shape<'_>,
        span: Span,
        [normed, activated]: [Address; 2],
    ) -> Self {
        let heads = shape.config.num_attention_heads;
        let mut take = |bytes: u64| plan.take(span, bytes);
        Self {
            qkv: take(3 * shape.hidden()),
            log_sums: take(4 * (shape.rows * heads) as u64),
            context: take(shape.hidden()),
            attended: take(shape.hidden()),
            attended_statistics: take(shape.statistics()),
            normed,
            inner: take(shape.inner()),
            activated,
            feed_forward: take(shape.hidden()),
            feed_forward_statistics: take(shape.statistics()),
        }
    }
}

/// Gradients of activations, shared by all layers.
#[derive(Debug, Clone, Copy)]
pub struct Gradients {
    /// Gradient of the layer's output; the backward pass overwrites it with that of its input:
    /// (rows, hidden).
    pub hidden: Address,
    /// Wide enough for the embeddings too, like the next.
    pub residual: Address,
    pub linear: Address,
    /// (rows, intermediate)
    inner: Address,
    /// (rows, 3 × hidden)
    qkv: Address,
    attention: Address,
    pub partials: Address,
}

impl Gradients {
    pub fn take(plan: &mut Plan, shape: &Shape<'_>) -> Self {
        let c = shape.config;
        let heads = Heads {
            count: c.num_attention_heads as u32,
            size: c.head_size() as u32,
            causal: c.is_decoder,
            // Either needs as much.
            tf32: false,
        };
        let widest = c.intermediate_size.max(3 * c.hidden_size).max(c.embedding_width());
        let wide = shape.hidden().max(shape.embedded());
        let scratch = attention_scratch(shape.rows as u32, heads);
        let mut take = |bytes: u64| plan.take(Span::Layers, bytes);
        Self {
            residual: take(wide),
            linear: take(wide),
            inner: take(shape.inner()),
            qkv: take(3 * shape.hidden()),
            attention: take(4 * scratch as u64),
            partials: take(partials(widest as u32)),
            // Passed from the heads to the layers.
            hidden: plan.take(Span::Step, shape.hidden()),
        }
    }
}

impl Layer {
    pub fn find(offsets: &Offsets, index: usize) -> Self {
        let name = |rest: &str| format!("encoder.layer.{index}.{rest}");
        let linear = |rest: &str| Linear::find(offsets, &name(rest));
        Self {
            index: index as u32,
            qkv: Linear::joined(
                offsets,
                ["query", "key", "value"].map(|n| name(&format!("attention.self.{n}"))),
            ),
            attention: linear("attention.output.dense"),
            attention_norm: NormOffsets::find(offsets, &name("attention.output.LayerNorm")),
            intermediate: linear("intermediate.dense"),
            output: linear("output.dense"),
            output_norm: NormOffsets::find(offsets, &name("output.LayerNorm")),
        }
    }

    /// Maps `x`, (rows, hidden), to `y` of that size.
    pub fn forward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        x: Address,
        saved: &Saved,
        y: Address,
    ) -> Result<()> {
        let (element, batch, h) = (pass.element(), pass.batch(), pass.width());
        let (rows, inner) = (batch.rows, self.intermediate.outputs as u32);
        let all = (pass.rows(), element);
        self.qkv.forward_with_bias(device, pass, all, x, (saved.qkv, element))?;
        attention_forward(
            device,
            element,
            batch,
            pass.heads(),
            pass.attention_dropout(self.index).as_ref(),
            saved.qkv,
            saved.context,
            saved.log_sums,
        )?;
        self.attention.forward(device, pass, all, saved.context, (saved.attended, element))?;
        let drops = pass.hidden_dropout(Site::AttentionOutputDropout(self.index));
        let norm = NormForward {
            n: rows,
            width: h,
            x: saved.attended,
            bias: pass.value(self.attention.bias),
            dropout: drops.map(|drops| (*batch, drops)),
            residual: x,
            norm: self.attention_norm.of(pass),
            statistics: saved.attended_statistics,
            out: saved.normed,
        };
        norm_forward(device, element, &norm)?;
        self.intermediate.forward(device, pass, all, saved.normed, (saved.inner, element))?;
        let bias = pass.value(self.intermediate.bias);
        let size = (rows, inner);
        bias_gelu(device, element, size, saved.inner, bias, saved.activated)?;
        self.output.forward(device, pass, all, saved.activated, (saved.feed_forward, element))?;
        let drops = pass.hidden_dropout(Site::FeedForwardDropout(self.index));
        let norm = NormForward {
            x: saved.feed_forward,
            bias: pass.value(self.output.bias),
            dropout: drops.map(|drops| (*batch, drops)),
            residual: saved.normed,
            norm: self.output_norm.of(pass),
            statistics: saved.feed_forward_statistics,
            out: y,
            ..norm
        };
        norm_forward(device, element, &norm)
    }

    /// Recomputes the layer's output from saved activations.
    pub fn recompute_output(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        saved: &Saved,
        y: Address,
    ) -> Result<()> {
        let sums = (saved.feed_forward, saved.feed_forward_statistics);
        normalise(device, pass, &self.output_norm, sums, y)
    }

    /// Recomputes the cheap activations.
    pub fn recompute_cheap(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        saved: &Saved,
    ) -> Result<()> {
        let sums = (saved.attended, saved.attended_statistics);
        normalise(device, pass, &self.attention_norm, sums, saved.normed)?;
        let size = (pass.batch().rows, self.intermediate.outputs as u32);
        let bias = pass.value(self.intermediate.bias);
        bias_gelu(device, pass.element(), size, saved.inner, bias, saved.activated)
    }

    /// Turns the gradient of the layer's output in `d.hidden` into that of its input `x`, and adds
    /// the parameters' gradients.
    pub fn backward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        x: Address,
        saved: &Saved,
        d: &Gradients,
    ) -> Result<()> {
        let (element, batch, h) = (pass.element(), pass.batch(), pass.width());
        let (rows, inner) = (batch.rows, self.intermediate.outputs as u32);
        let all = (pass.rows(), element);

        // Feed-forward block.
        let drops = pass.hidden_dropout(Site::FeedForwardDropout(self.index));
        let norm = NormBackward {
            n: rows,
            width: h,
            gain: pass.value(self.output_norm.weight),
            sums: saved.feed_forward,
            statistics: saved.feed_forward_statistics,
            dropout: drops.map(|drops| (*batch, drops)),
            d_out: d.hidden,
            d_residual: d.residual,
            d_linear: d.linear,
            gain_gradient: pass.gradient(self.output_norm.weight),
            bias_gradient: pass.gradient(self.output_norm.bias),
            linear_bias_gradient: pass.gradient(self.output.bias),
            partials: d.partials,
        };
        norm_backward(device, element, &norm)?;
        self.output.add_weight_gradient(device, pass, all, saved.activated, d.linear)?;
        self.output.backward(device, pass, all, d.linear, d.inner, false)?;
        let bias = self.intermediate.bias;
        gelu_backward(
            device,
            element,
            (rows, inner),
            saved.inner,
            pass.value(bias),
            d.inner,
            pass.gradient(bias),
            d.partials,
        )?;
        self.intermediate.add_weight_gradient(device, pass, all, saved.normed, d.inner)?;
        self.intermediate.backward(device, pass, all, d.inner, d.residual, true)?;

        // Attention block: `residual` is now the gradient of its output.
        let drops = pass.hidden_dropout(Site::AttentionOutputDropout(self.index));
        let norm = NormBackward {
            gain: pass.value(self.attention_norm.weight),
            sums: saved.attended,
            statistics: saved.attended_statistics,
            dropout: drops.map(|drops| (*batch, drops)),
            d_out: d.residual,
            d_residual: d.hidden,
            gain_gradient: pass.gradient(self.attention_norm.weight),
            bias_gradient: pass.gradient(self.attention_norm.bias),
            linear_bias_gradient: pass.gradient(self.attention.bias),
            ..norm
        };
        norm_backward(device, element, &norm)?;
        self.attention.add_weight_gradient(device, pass, all, saved.context, d.linear)?;
        let d_context = d.residual;
        self.attention.backward(device, pass, all, d.linear, d_context, false)?;
        attention_backward(
            device,
            element,
            batch,
            pass.heads(),
            pass.attention_dropout(self.index).as_ref(),
            &AttentionBackward {
                qkv: saved.qkv,
                context: saved.context,
                log_sums: saved.log_sums,
                d_context,
                d_qkv: d.qkv,
                scratch: d.attention,
            },
        )?;
        let size = (rows, 3 * h, 3 * h);
        let into = pass.gradient(self.qkv.bias);
        bias_gradient(device, element, size, d.qkv, into, d.partials)?;
        self.qkv.add_weight_gradient(device, pass, all, x, d.qkv)?;
        self.qkv.backward(device, pass, all, d.qkv, d.hidden, true)
    }
}

/// Recomputes the LayerNorm of saved sums with their statistics.
fn normalise(
    device: &mut dyn Device,
    pass: Pass<'_>,
    norm: &NormOffsets,
    (sums, statistics): (Address, Address),
    out: Address,
) -> Result<()> {
    let norm = NormForward {
        n: pass.batch().rows,
        width: pass.width(),
        x: sums,
        norm: norm.of(pass),
        statistics,
        out,
        ..NormForward::default()
    };
    norm_forward(device, pass.element(), &norm)
}
