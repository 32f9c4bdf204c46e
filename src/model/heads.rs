//! The heads: the masked-LM head over rows of real tokens, and the linear layer of a task.

use dfdx::nn::modules::{LayerNorm1D, Linear};
use dfdx::prelude::*;

use super::ops::{BertDevice, Real, gelu};

/// Activations, one row per real token: (rows, H).
pub type Rows<const H: usize, E, D, T = NoneTape> = Tensor<(usize, Const<H>), E, D, T>;

/// Predicts the token at a row: dense layer, GELU, LayerNorm, then the token embedding as output
/// matrix and a bias per token (google-research/bert, run_pretraining.py, `get_masked_lm_output`).
pub struct MaskedLmHead<const H: usize, E: Dtype, D: Device<E>> {
    /// The dense layer before the GELU.
    pub dense: Linear<H, H, E, D>,
    /// The LayerNorm after the GELU.
    pub norm: LayerNorm1D<H, E, D>,
    /// The output bias, (vocabulary).
    pub bias: Tensor<(usize,), E, D>,
}

impl<const H: usize, E: Real, D: BertDevice<E>> MaskedLmHead<H, E, D> {
    /// Maps (rows, H) to logits (rows, vocabulary). `words` is the token embedding.
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
        words: &Tensor<(usize, Const<H>), E, D>,
    ) -> Tensor<(usize, usize), E, D, T> {
        let x = self.norm.forward(gelu(self.dense.forward(rows)));
        product_with_bias(x, words, &self.bias)
    }
}

/// The head of a task: a linear layer whose number of outputs is known at run time.
pub struct LinearHead<const H: usize, E: Dtype, D: Device<E>> {
    /// The weights, (outputs, H).
    pub weight: Tensor<(usize, Const<H>), E, D>,
    /// The bias, (outputs).
    pub bias: Tensor<(usize,), E, D>,
}

impl<const H: usize, E: Real, D: BertDevice<E>> LinearHead<H, E, D> {
    /// Maps (rows, H) to logits (rows, outputs).
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
    ) -> Tensor<(usize, usize), E, D, T> {
        product_with_bias(rows, &self.weight, &self.bias)
    }
}

/// Returns `x Wᵀ + b`.
fn product_with_bias<const H: usize, E: Real, D: BertDevice<E>, T: Tape<E, D> + Merge<T>>(
    x: Rows<H, E, D, T>,
    weight: &Tensor<(usize, Const<H>), E, D>,
    bias: &Tensor<(usize,), E, D>,
) -> Tensor<(usize, usize), E, D, T> {
    let y = x.matmul(weight.retaped::<T>().permute::<_, Axes2<1, 0>>());
    let shape = *y.shape();
    y + bias.retaped::<T>().broadcast_like::<_, Axis<0>>(&shape)
}

/// Returns the cross-entropy summed over rows, `-Σ log softmax(logits)[row, label[row]]`, in nats.
pub fn cross_entropy<V: Dim, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
    logits: Tensor<(usize, V), E, D, T>,
    labels: &[u32],
) -> Tensor<Rank0, E, D, T> {
    let labels: Vec<usize> = labels.iter().map(|&label| label as usize).collect();
    let shape = (labels.len(),);
    let labels = logits.device().tensor_from_vec(labels, shape);
    -logits.log_softmax::<Axis<1>>().select::<(usize,), _>(labels).sum::<Rank0, Axis<0>>()
}
