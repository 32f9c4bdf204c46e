//! The masked-LM head: picked rows of the hidden states, their loss and its gradients.

use crate::engine::objective::Scored;
use crate::engine::simd::Simd;
use crate::model::{Layout, Part};

use super::elementwise::{Partials, add_bias, bias_gelu, gelu_backward};
use super::floats::Floats;
use super::gemm::Output;
use super::layer::Pass;
use super::linear::{Linear, parameter_range};
use super::loss::Distilled;
use super::norm::{self, NormRanges, Statistics};
use super::selection::{add_picked, pick};
use super::{grow, parts};

/// Predicts the token at a row: dense layer, GELU, LayerNorm, then the token embedding as output
/// matrix and a bias per token.
pub struct MaskedLm {
    dense: Linear,
    norm: NormRanges,
    /// The token embeddings, and the bias per token.
    output: Linear,
}

/// Activations and gradients of the masked-LM head, for (picked rows, …). From the dense layer on they are
/// as wide as the embeddings.
#[derive(Default)]
pub struct MaskedLmBuffers {
    picked: Floats,
    dense: Floats,
    activated: Floats,
    statistics: Vec<Statistics>,
    normed: Floats,
    d: Floats,
    d_dense: Floats,
    logits: Floats,
    partials: Partials,
    parts: LossParts,
}

/// Partial sums of a loss, one per task.
#[derive(Default)]
pub struct LossParts {
    pub scored: Vec<Scored>,
    pub distilled: Vec<Distilled>,
    pub cosines: Vec<f64>,
}

impl MaskedLmBuffers {
    pub fn parts(&mut self) -> &mut LossParts {
        &mut self.parts
    }
}

impl MaskedLm {
    /// Returns None if the model has no such head.
    pub fn find(layout: &Layout) -> Option<Self> {
        layout.parts().contains(&Part::MaskedLm).then(|| {
            let dense = Linear::find(layout, "cls.predictions.transform.dense");
            let weight = parameter_range(layout, "embeddings.word_embeddings.weight");
            let bias = parameter_range(layout, "cls.predictions.bias");
            Self {
                norm: NormRanges::find(layout, "cls.predictions.transform.LayerNorm"),
                output: Linear::new(weight, bias),
                dense,
            }
        })
    }

    /// Writes the logits without their bias, (rows, vocabulary), to `b.logits`.
    fn forward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        rows: &[u32],
        b: &mut MaskedLmBuffers,
    ) {
        let (n, v) = (rows.len(), self.output.outputs);
        let (h, e) = (self.dense.inputs, self.dense.outputs);
        b.picked.grow(n * h);
        b.d.grow(n * h.max(e));
        for buffer in [&mut b.dense, &mut b.activated, &mut b.normed, &mut b.d_dense] {
            buffer.grow(n * e);
        }
        grow(&mut b.statistics, n);
        b.logits.grow(n * v);
        pick(hidden, rows, h, &mut b.picked[..n * h]);
        let dense = &mut b.dense[..n * e];
        self.dense.forward(pass.precision, values, &b.picked[..n * h], dense);
        let bias = &values[self.dense.bias.clone()];
        bias_gelu(pass.simd, dense, bias, &mut b.activated[..n * e]);
        let norm = self.norm.of(values, pass.epsilon());
        norm::forward_alone(
            pass.simd,
            norm,
            &b.activated[..n * e],
            &mut b.statistics[..n],
            &mut b.normed[..n * e],
        );
        self.output.forward(pass.precision, values, &b.normed[..n * e], &mut b.logits[..n * v]);
    }

    /// Returns the logits of the given rows of the hidden states.
    pub fn logits<'b>(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        rows: &[u32],
        b: &'b mut MaskedLmBuffers,
    ) -> &'b [f32] {
        self.forward(pass, values, hidden, rows, b);
        let logits = &mut b.logits[..rows.len() * self.output.outputs];
        add_bias(pass.simd, logits, &values[self.output.bias.clone()]);
        logits
    }

    /// Scores the predictions of `rows`: `loss` gets their logits without the bias, and the bias,
    /// and overwrites the logits with the gradient of the loss. With `training` (gradients of the
    /// parameters, of the hidden states), adds the resulting gradients to both.
    #[expect(clippy::too_many_arguments, reason = "each is another buffer of the pass")]
    pub fn score<S>(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        rows: &[u32],
        b: &mut MaskedLmBuffers,
        training: Option<(&mut [f32], &mut [f32])>,
        loss: impl FnOnce(Simd, &mut [f32], &[f32], &mut LossParts) -> S,
    ) -> S {
        self.forward(pass, values, hidden, rows, b);
        let (n, v) = (rows.len(), self.output.outputs);
        let (h, e) = (self.dense.inputs, self.dense.outputs);
        let (simd, precision) = (pass.simd, pass.precision);
        let logits = &mut b.logits[..n * v];
        let bias = &values[self.output.bias.clone()];
        let scored = loss(simd, logits, bias, &mut b.parts);
        let Some((gradients, d_hidden)) = training else {
            return scored;
        };
        self.output.add_bias_gradient(simd, gradients, logits, &mut b.partials);
        self.output.add_weight_gradient(precision, gradients, &b.normed[..n * e], logits);
        let d = &mut b.d[..n * e];
        self.output.backward(precision, values, logits, d, Output::Overwrite);
        let saved = (&b.activated[..n * e], &b.statistics[..n]);
        let [dw, db] = parts(gradients, [&self.norm.weight, &self.norm.bias]);
        norm::add_parameter_gradients(simd, saved, d, dw, db, &mut b.partials);
        let norm = self.norm.of(values, pass.epsilon());
        let d_dense = &mut b.d_dense[..n * e];
        norm::backward(simd, norm, saved, d, d_dense);
        let bias = self.dense.bias.clone();
        gelu_backward(
            simd,
            &b.dense[..n * e],
            &values[bias.clone()],
            d_dense,
            &mut gradients[bias],
            &mut b.partials,
        );
        let (picked, d) = (&b.picked[..n * h], &mut b.d[..n * h]);
        self.dense.add_weight_gradient(precision, gradients, picked, d_dense);
        self.dense.backward(precision, values, d_dense, d, Output::Overwrite);
        add_picked(d, rows, h, d_hidden);
        scored
    }
}
