//! The heads: masked LM over rows of real tokens, and the linear layer of a task.

use dfdx::nn::modules::{LayerNorm1D, Linear};
use dfdx::prelude::*;

use crate::error::Result;

use super::build::{Builder, Collector};
use super::ops::{BertDevice, Real, gelu};

/// One activation a row: (rows, H).
pub type Rows<const H: usize, E, D, T = NoneTape> = Tensor<(usize, Const<H>), E, D, T>;

/// Predicts the token at a row: dense, GELU, LayerNorm, then the token embedding as output matrix
/// and a bias for each token (google-research/bert, run_pretraining.py, `get_masked_lm_output`).
pub struct MaskedLmHead<const H: usize, E: Dtype, D: Device<E>> {
    pub dense: Linear<H, H, E, D>,
    pub norm: LayerNorm1D<H, E, D>,
    /// (vocabulary)
    pub bias: Tensor<(usize,), E, D>,
}

impl<const H: usize, E: Real, D: BertDevice<E>> MaskedLmHead<H, E, D> {
    pub(super) fn build(b: &mut Builder<'_, E, D>, vocab_size: usize) -> Result<Self> {
        Ok(Self {
            dense: b.linear("transform.dense")?,
            norm: b.layer_norm("transform.LayerNorm")?,
            bias: b.tensor("bias", (vocab_size,))?,
        })
    }

    pub(super) fn collect(&self, c: &mut Collector<'_, E, D>) {
        c.linear("transform.dense", &self.dense);
        c.layer_norm("transform.LayerNorm", &self.norm);
        c.tensor("bias", &self.bias);
    }

    /// (rows, H) to logits (rows, vocabulary). `words` is the token embedding.
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
        words: &Tensor<(usize, Const<H>), E, D>,
    ) -> Tensor<(usize, usize), E, D, T> {
        let x = self.norm.forward(gelu(self.dense.forward(rows)));
        product_with_bias(x, words, &self.bias)
    }
}

/// A linear layer with a number of outputs known at run time: the head of a task.
pub struct LinearHead<const H: usize, E: Dtype, D: Device<E>> {
    pub weight: Tensor<(usize, Const<H>), E, D>,
    pub bias: Tensor<(usize,), E, D>,
}

impl<const H: usize, E: Real, D: BertDevice<E>> LinearHead<H, E, D> {
    pub(super) fn build(b: &mut Builder<'_, E, D>, outputs: usize) -> Result<Self> {
        Ok(Self {
            weight: b.tensor("weight", (outputs, Const))?,
            bias: b.tensor("bias", (outputs,))?,
        })
    }

    pub(super) fn collect(&self, c: &mut Collector<'_, E, D>) {
        c.tensor("weight", &self.weight);
        c.tensor("bias", &self.bias);
    }

    /// (rows, H) to logits (rows, outputs).
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
    ) -> Tensor<(usize, usize), E, D, T> {
        product_with_bias(rows, &self.weight, &self.bias)
    }
}

/// `x Wᵀ + b`.
fn product_with_bias<const H: usize, E: Real, D: BertDevice<E>, T: Tape<E, D> + Merge<T>>(
    x: Rows<H, E, D, T>,
    weight: &Tensor<(usize, Const<H>), E, D>,
    bias: &Tensor<(usize,), E, D>,
) -> Tensor<(usize, usize), E, D, T> {
    let y = x.matmul(weight.retaped::<T>().permute::<_, Axes2<1, 0>>());
    let shape = *y.shape();
    y + bias.retaped::<T>().broadcast_like::<_, Axis<0>>(&shape)
}

/// Cross-entropy summed over rows: `-Σ log softmax(logits)[row, label[row]]`, in nats.
pub fn cross_entropy<V: Dim, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
    logits: Tensor<(usize, V), E, D, T>,
    labels: &[u32],
) -> Tensor<Rank0, E, D, T> {
    let labels: Vec<usize> = labels.iter().map(|&label| label as usize).collect();
    let shape = (labels.len(),);
    let labels = logits.device().tensor_from_vec(labels, shape);
    -logits
        .log_softmax::<Axis<1>>()
        .select::<(usize,), _>(labels)
        .sum::<Rank0, Axis<0>>()
}
