//! The reference BERT: the lessons' modules put together.

use dfdx::nn::modules::Linear;
use dfdx::prelude::*;

use crate::data::Packed;
use crate::error::{Error, Result};

use super::build::{Builder, Collector};
use super::dropout::Dropout;
use super::heads::{LinearHead, MaskedLmHead, Rows};
use super::layers::{Embeddings, Hidden, Layer, Pass};
use super::ops::{BertDevice, Real};
use super::{Config, Layout, Over, Part, TaskHead};
use crate::random::Site;

/// BERT with hidden size `H`, `A` heads of size `K` and feed-forward width `I`; the number of
/// layers and the vocabulary are run-time dimensions.
pub struct Bert<
    const H: usize,
    const A: usize,
    const K: usize,
    const I: usize,
    E: Dtype,
    D: Device<E>,
> {
    pub config: Config,
    pub embeddings: Embeddings<H, E, D>,
    pub layers: Vec<Layer<H, A, K, I, E, D>>,
    pub pooler: Option<Linear<H, H, E, D>>,
    pub masked_lm: Option<MaskedLmHead<H, E, D>>,
    pub next_sentence: Option<Linear<H, 2, E, D>>,
    pub task: Option<(TaskHead, LinearHead<H, E, D>)>,
}

impl<const H: usize, const A: usize, const K: usize, const I: usize, E: Real, D: BertDevice<E>>
    Bert<H, A, K, I, E, D>
{
    /// Takes its parameters from `values`, which are laid out as `layout` says.
    pub fn build(config: &Config, layout: &Layout, values: &[E], device: &D) -> Result<Self> {
        let mut b = Builder::new(layout, values, device, config.layer_norm_eps);
        let has = |part: Part| layout.parts().contains(&part);
        let embeddings = b.within("embeddings", Embeddings::build)?;
        let layers = (0..config.num_hidden_layers)
            .map(|i| b.within(&format!("encoder.layer.{i}"), Layer::build))
            .collect::<Result<_>>()?;
        let pooler = has(Part::Pooler)
            .then(|| b.linear("pooler.dense"))
            .transpose()?;
        let masked_lm = has(Part::MaskedLm)
            .then(|| {
                b.within("cls.predictions", |b| {
                    MaskedLmHead::build(b, config.vocab_size)
                })
            })
            .transpose()?;
        let next_sentence = has(Part::NextSentence)
            .then(|| b.linear("cls.seq_relationship"))
            .transpose()?;
        let task = layout
            .task_head()
            .map(|head| {
                let linear = b.within(head.name, |b| LinearHead::build(b, head.outputs))?;
                Ok::<_, Error>((head, linear))
            })
            .transpose()?;
        Ok(Self {
            config: config.clone(),
            embeddings,
            layers,
            pooler,
            masked_lm,
            next_sentence,
            task,
        })
    }

    /// The parameters as they are now, laid out as in [`build`](Self::build): an engine takes them.
    pub fn parameters(&self, layout: &Layout) -> Vec<E> {
        let mut values = vec![E::default(); layout.total()];
        self.collect(&mut Collector::new(layout, &mut values));
        values
    }

    /// Adds the gradients of all parameters to `flat`, which is laid out as `layout` says.
    pub fn add_gradients(&self, gradients: &mut Gradients<E, D>, layout: &Layout, flat: &mut [E]) {
        self.collect(&mut Collector::new(layout, flat).of_gradients(gradients));
    }

    fn collect(&self, c: &mut Collector<'_, E, D>) {
        c.within("embeddings", |c| self.embeddings.collect(c));
        for (i, layer) in self.layers.iter().enumerate() {
            c.within(&format!("encoder.layer.{i}"), |c| layer.collect(c));
        }
        if let Some(pooler) = &self.pooler {
            c.linear("pooler.dense", pooler);
        }
        if let Some(head) = &self.masked_lm {
            c.within("cls.predictions", |c| head.collect(c));
        }
        if let Some(head) = &self.next_sentence {
            c.linear("cls.seq_relationship", head);
        }
        if let Some((task, head)) = &self.task {
            c.within(task.name, |c| head.collect(c));
        }
    }

    /// Encodes a batch: one row of `H` numbers for each real token, (rows, H).
    ///
    /// `observe` sees the padded activations (B, S, H) after the embeddings (0) and after each
    /// layer (1 to L). With `dropout` the pass is a training pass.
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

    /// The pooler's output for every sequence, `tanh(W h[CLS] + b)`: (sequences, H). A model that
    /// reads from left to right has seen nothing at `[CLS]`: its pooler takes the last token. None
    /// when the model has no pooler.
    pub fn pool<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
        batch: &Packed,
    ) -> Option<Rows<H, E, D, T>> {
        let pooler = self.pooler.as_ref()?;
        let which: Vec<u32> = batch.pooled_rows(self.config.is_decoder).collect();
        Some(pooler.forward(pick(rows, &which)).tanh())
    }

    /// The task head's logits, (sequences or rows, outputs). None when the model has no such head,
    /// or lacks the pooler that it reads.
    pub fn task_logits<T: Tape<E, D> + Merge<T>>(
        &self,
        rows: Rows<H, E, D, T>,
        batch: &Packed,
        dropout: Option<Dropout>,
    ) -> Option<Tensor<(usize, usize), E, D, T>> {
        let (head, linear) = self.task.as_ref()?;
        let (mut x, places) = match head.over {
            Over::Pooled => (
                self.pool(rows, batch)?,
                batch.examples.iter().map(|&e| (e, 0)).collect::<Vec<_>>(),
            ),
            Over::Rows => (rows, batch.examples_and_positions().collect()),
        };
        if let Some(dropout) = dropout
            && head.dropout
        {
            let p = self.config.hidden_dropout_prob;
            x = dropout.rows(x, &places, Site::HeadDropout, p);
        }
        Some(linear.forward(x))
    }
}

/// The rows named by `which`, in that order.
pub fn pick<const H: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
    rows: Rows<H, E, D, T>,
    which: &[u32],
) -> Rows<H, E, D, T> {
    let index: Vec<usize> = which.iter().map(|&row| row as usize).collect();
    let shape = (index.len(),);
    let index = rows.device().tensor_from_vec(index, shape);
    rows.gather(index)
}

/// Padded activations (B, S, H) to rows of real tokens; a batch without padding is only reshaped.
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

/// What a softmax turns into 0: far below any score, far above the smallest number, so that sums
/// stay finite.
fn unseen<E: Real>() -> E {
    E::from_f64(-1e9).expect("both precisions hold 1e9")
}

/// (S, S), queries by keys: 0 up to the query's own place, behind it a number that a softmax turns
/// into 0.
pub(super) fn future_mask<E: Real, D: BertDevice<E>>(
    length: usize,
    dev: &D,
) -> Tensor<(usize, usize), E, D> {
    let mut mask = vec![unseen(); length * length];
    for (query, row) in mask.chunks_exact_mut(length).enumerate() {
        row[..=query].fill(E::default());
    }
    dev.tensor_from_vec(mask, (length, length))
}

/// (B, S): 0 at real tokens and a number at padding that a softmax turns into 0.
fn padding_mask<E: Real, D: BertDevice<E>>(
    batch: &Packed,
    dev: &D,
) -> Option<Tensor<(usize, usize), E, D>> {
    let shape = (batch.sequences(), batch.longest());
    if batch.rows() == shape.0 * shape.1 {
        return None;
    }
    let mut mask = vec![unseen(); shape.0 * shape.1];
    for (sequence, range) in batch.ranges().enumerate() {
        mask[sequence * shape.1..][..range.len()].fill(E::default());
    }
    Some(dev.tensor_from_vec(mask, shape))
}
