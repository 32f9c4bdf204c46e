//! The reference BERT: the forward pass of the whole model.

use dfdx::nn::modules::Linear;
use dfdx::prelude::*;

use super::dropout::Dropout;
use super::heads::{LinearHead, MaskedLmHead, Rows};
use super::layers::{Embeddings, Hidden, Layer, Pass};
use super::ops::{BertDevice, Real};
use super::{Config, HeadInput, TaskHead};
use crate::data::Packed;
use crate::random::Site;

/// BERT with hidden size `H`, `A` heads of size `K` and intermediate size `I`; the number of layers
/// and the vocabulary size are known at run time.
pub struct Bert<
    const H: usize,
    const A: usize,
    const K: usize,
    const I: usize,
    E: Dtype,
    D: Device<E>,
> {
    /// The model's hyperparameters.
    pub config: Config,
    /// Token, segment and position embeddings.
    pub embeddings: Embeddings<H, E, D>,
    /// The encoder layers, first to last.
    pub layers: Vec<Layer<H, A, K, I, E, D>>,
    /// The dense layer of the pooler.
    pub pooler: Option<Linear<H, H, E, D>>,
    /// The masked-LM head.
    pub masked_lm: Option<MaskedLmHead<H, E, D>>,
    /// The next-sentence head.
    pub next_sentence: Option<Linear<H, 2, E, D>>,
    /// The head of a fine-tuning task.
    pub task: Option<(TaskHead, LinearHead<H, E, D>)>,
}

impl<const H: usize, const A: usize, const K: usize, const I: usize, E: Real, D: BertDevice<E>>
    Bert<H, A, K, I, E, D>
{
    /// Encodes a batch: returns one row of `H` values per real token, (rows, H).
    ///
    /// `observe` gets the padded activations (B, S, H) after the embeddings (0) and after each
    /// layer (1 to L). With `dropout` this is a training pass.
    pub fn encode<T: Tape<E, D> + Merge<T>>(
        &self,
        batch: &Packed,
        dropout: Option<Dropout>,
        observe: &mut dyn FnMut(usize, Hidden<H, E, D>),
    ) -> Rows<H, E, D, T> {
        let dev = self.embeddings.words.device();
        let pass = Pass {
            batch,
            config: &self.config,
            dropout,
            mask: padding_mask(batch, dev),
            future: (self.config.is_decoder).then(|| future_mask(batch.longest(), dev)),
        };
        let mut x = self.embeddings.forward::<T>(&pass);
        observe(0, x.retaped::<NoneTape>());
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(x, i as u32, &pass);
            observe(i + 1, x.retaped::<NoneTape>());
        }
        real_rows(x, batch)
    }

    /// Returns the pooler's output, `tanh(W h[CLS] + b)`, for every sequence: (sequences, H). A
    /// left-to-right model has seen nothing at `[CLS]`, so its pooler reads the last token. None if
    /// the model has no pooler.
    pub fn pool<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
        batch: &Packed,
    ) -> Option<Rows<H, E, D, T>> {
        self.pool_dropped(rows, batch, None)
    }

    /// Like [`pool`](Self::pool), with dropout of this probability on the pooler's input.
    fn pool_dropped<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
        batch: &Packed,
        dropout: Option<(Dropout, f64)>,
    ) -> Option<Rows<H, E, D, T>> {
        let pooler = self.pooler.as_ref()?;
        let which: Vec<u32> = batch.pooled_rows(self.config.is_decoder).collect();
        let mut x = pick(rows, &which);
        if let Some((dropout, p)) = dropout {
            x = dropout.rows(x, &one_row_each(batch), Site::PoolerDropout, p);
        }
        Some(pooler.forward(x).tanh())
    }

    /// Returns the task head's logits, (sequences or rows, outputs). None if the model has no such
    /// head or lacks the pooler that it reads.
    pub fn task_logits<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
        batch: &Packed,
        dropout: Option<Dropout>,
    ) -> Option<Tensor<(usize, usize), E, D, T>> {
        let (head, linear) = self.task.as_ref()?;
        let (mut x, places) = match head.input {
            HeadInput::Pooled => {
                let before = dropout.map(|dropout| (dropout, self.config.pooler_dropout(*head)));
                (self.pool_dropped(rows, batch, before)?, one_row_each(batch))
            }
            HeadInput::Rows => (rows, batch.examples_and_positions().collect()),
        };
        if let Some(dropout) = dropout {
            let p = self.config.head_dropout(*head);
            x = dropout.rows(x, &places, Site::HeadDropout, p);
        }
        Some(linear.forward(x))
    }
}

/// Returns example and position of every sequence's only row.
fn one_row_each(batch: &Packed) -> Vec<(u64, u32)> {
    batch.examples.iter().map(|&example| (example, 0)).collect()
}

/// Returns the rows `which`, in that order.
pub fn pick<const H: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
    rows: Rows<H, E, D, T>,
    which: &[u32],
) -> Rows<H, E, D, T> {
    let index: Vec<usize> = which.iter().map(|&row| row as usize).collect();
    let shape = (index.len(),);
    let index = rows.device().tensor_from_vec(index, shape);
    rows.gather(index)
}

/// Turns padded activations (B, S, H) into rows of real tokens; a batch without padding is only
/// reshaped.
pub fn real_rows<const H: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
    x: Hidden<H, E, D, T>,
    batch: &Packed,
) -> Rows<H, E, D, T> {
    let (b, s, _) = *x.shape();
    let flat = x.reshape_like(&(b * s, Const::<H>));
    if batch.rows() == b * s {
        return flat;
    }
    let real: Vec<u32> = batch
        .ranges()
        .enumerate()
        .flat_map(|(sequence, range)| (0..range.len()).map(move |i| (sequence * s + i) as u32))
        .collect();
    pick(flat, &real)
}

/// A score that a softmax turns into 0: far below any real score, but small enough for sums to stay
/// finite.
fn masked_score<E: Real>() -> E {
    E::from_f64(-1e9).expect("both precisions hold 1e9")
}

/// Returns the causal mask (S, S), queries by keys: 0 up to the query's own position, the masked
/// score after it.
pub(super) fn future_mask<E: Real, D: BertDevice<E>>(
    length: usize,
    dev: &D,
) -> Tensor<(usize, usize), E, D> {
    let mut mask = vec![masked_score(); length * length];
    for (query, row) in mask.chunks_exact_mut(length).enumerate() {
        row[..=query].fill(E::default());
    }
    dev.tensor_from_vec(mask, (length, length))
}

/// Returns the padding mask (B, S): 0 at real tokens, the masked score at padding. None if nothing
/// is padded.
fn padding_mask<E: Real, D: BertDevice<E>>(
    batch: &Packed,
    dev: &D,
) -> Option<Tensor<(usize, usize), E, D>> {
    let shape = (batch.sequences(), batch.longest());
    if batch.rows() == shape.0 * shape.1 {
        return None;
    }
    let mut mask = vec![masked_score(); shape.0 * shape.1];
    for (sequence, range) in batch.ranges().enumerate() {
        mask[sequence * shape.1..][..range.len()].fill(E::default());
    }
    Some(dev.tensor_from_vec(mask, shape))
}
