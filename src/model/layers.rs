//! The building blocks of the reference model: embeddings, self-attention, feed-forward, encoder
//! layer. Plain dfdx, with the hidden size, the heads and the head size in the types; the number of
//! sequences and their length are known at run time.
//!
//! Shapes in the comments: B sequences, S positions, H hidden size, A heads, K head size, I
//! intermediate size. Source: Devlin et al., arXiv 1810.04805, and Vaswani et al., arXiv 1706.03762.

use dfdx::nn::modules::{LayerNorm1D, Linear};
use dfdx::prelude::*;

use crate::data::Packed;
use crate::error::Result;
use crate::random::Site;

use super::Config;
use super::build::{Builder, Collector};
use super::dropout::Dropout;
use super::ops::{BertDevice, Real, gelu};

/// Activations with a sequence a row, padded to the longest: (B, S, H).
pub type Hidden<const H: usize, E, D, T = NoneTape> = Tensor<(usize, usize, Const<H>), E, D, T>;

/// What a forward pass needs beside the activations.
pub struct Pass<'a, E: Dtype, D: Device<E>> {
    pub batch: &'a Packed,
    pub config: &'a Config,
    /// None for inference.
    pub dropout: Option<Dropout>,
    /// (B, S): 0 at real tokens, a large negative number at padding; None where nothing is padded.
    pub mask: Option<Tensor<(usize, usize), E, D>>,
    /// (S, S): the same for keys behind their query; None where all are seen.
    pub future: Option<Tensor<(usize, usize), E, D>>,
}

impl<E: Real, D: BertDevice<E>> Pass<'_, E, D> {
    fn drop_hidden<const H: usize, T: Tape<E, D>>(
        &self,
        x: Hidden<H, E, D, T>,
        site: Site,
    ) -> Hidden<H, E, D, T> {
        match self.dropout {
            Some(dropout) => dropout.hidden(x, self.batch, site, self.config.hidden_dropout_prob),
            None => x,
        }
    }
}

/// Applies a linear layer at every position: (B, S, I) to (B, S, O).
///
/// dfdx multiplies a batch of matrices by one matrix a sequence at a time, and adds each sequence's
/// weight gradient to the last; as rows of one matrix it is a single product, several times faster.
fn at_every_position<const I: usize, const O: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
    linear: &Linear<I, O, E, D>,
    x: Hidden<I, E, D, T>,
) -> Hidden<O, E, D, T> {
    let (b, s, _) = *x.shape();
    let rows = x.reshape_like(&(b * s, Const::<I>));
    linear.forward(rows).reshape_like(&(b, s, Const::<O>))
}

/// Token + segment + position embeddings, LayerNorm, dropout.
pub struct Embeddings<const H: usize, E: Dtype, D: Device<E>> {
    /// (vocabulary, H); the masked-LM head reads it again as its output matrix.
    pub words: Tensor<(usize, Const<H>), E, D>,
    pub positions: Tensor<(usize, Const<H>), E, D>,
    pub segments: Tensor<(usize, Const<H>), E, D>,
    pub norm: LayerNorm1D<H, E, D>,
}

impl<const H: usize, E: Real, D: BertDevice<E>> Embeddings<H, E, D> {
    pub(super) fn build(b: &mut Builder<'_, E, D>) -> Result<Self> {
        Ok(Self {
            words: b.table("word_embeddings.weight")?,
            positions: b.table("position_embeddings.weight")?,
            segments: b.table("token_type_embeddings.weight")?,
            norm: b.layer_norm("LayerNorm")?,
        })
    }

    pub(super) fn collect(&self, c: &mut Collector<'_, E, D>) {
        c.tensor("word_embeddings.weight", &self.words);
        c.tensor("position_embeddings.weight", &self.positions);
        c.tensor("token_type_embeddings.weight", &self.segments);
        c.layer_norm("LayerNorm", &self.norm);
    }

    /// Embeds the batch, padded to its longest sequence: (B, S, H).
    pub fn forward<T: Tape<E, D>>(&self, pass: &Pass<'_, E, D>) -> Hidden<H, E, D, T> {
        let dev = self.words.device();
        let shape = (pass.batch.sequences(), pass.batch.longest());
        let padded = |rows: &[u32]| {
            let mut table = vec![0usize; shape.0 * shape.1];
            for (sequence, range) in pass.batch.ranges().enumerate() {
                for (i, &value) in rows[range].iter().enumerate() {
                    table[sequence * shape.1 + i] = value as usize;
                }
            }
            dev.tensor_from_vec(table, shape)
        };
        let words: Hidden<H, E, D, T> = self.words.retaped::<T>().gather(padded(&pass.batch.ids));
        let segments: Hidden<H, E, D, T> = self
            .segments
            .retaped::<T>()
            .gather(padded(&pass.batch.segments));
        let positions: Hidden<H, E, D, T> = self
            .positions
            .retaped::<T>()
            .gather(padded(&pass.batch.positions));
        let sum = words + segments + positions;
        pass.drop_hidden(self.norm.forward(sum), Site::EmbeddingDropout)
    }
}

/// What each position asks in each head: (B, A, S, K).
pub type Queries<A, K, E, D, T = NoneTape> = Tensor<(usize, A, usize, K), E, D, T>;
/// What each position is asked by in each head: (B, A, K, S).
pub type Keys<A, K, E, D, T = NoneTape> = Tensor<(usize, A, K, usize), E, D, T>;

/// How much each position looks at each other, `softmax(Q K^T / sqrt(K))`: (B, A, S, S), every row
/// with the sum 1. Heads and head size may be known at run time only. `mask` hides padding (see
/// [`Pass::mask`]), `future` what is behind a position ([`Pass::future`]).
pub fn look<A: Dim, K: Dim, E: Real, D: BertDevice<E>, T: Tape<E, D> + Merge<T>>(
    q: Queries<A, K, E, D, T>,
    k: Keys<A, K, E, D, T>,
    mask: Option<&Tensor<(usize, usize), E, D>>,
    future: Option<&Tensor<(usize, usize), E, D>>,
) -> Tensor<(usize, A, usize, usize), E, D, T> {
    let size = q.shape().3.size();
    let scale = E::from_f64(1.0 / (size as f64).sqrt()).expect("a finite number");
    let scores = q.matmul(k) * scale;
    let scores = match mask {
        Some(mask) => {
            let shape = *scores.shape();
            scores + mask.retaped::<T>().broadcast_like::<_, Axes2<1, 2>>(&shape)
        }
        None => scores,
    };
    let scores = match future {
        Some(mask) => {
            let shape = *scores.shape();
            scores + mask.retaped::<T>().broadcast_like::<_, Axes2<0, 1>>(&shape)
        }
        None => scores,
    };
    scores.softmax::<Axis<3>>()
}

/// Multi-head scaled dot-product self-attention with its output projection.
pub struct Attention<const H: usize, const A: usize, const K: usize, E: Dtype, D: Device<E>> {
    pub query: Linear<H, H, E, D>,
    pub key: Linear<H, H, E, D>,
    pub value: Linear<H, H, E, D>,
    pub output: Linear<H, H, E, D>,
}

impl<const H: usize, const A: usize, const K: usize, E: Real, D: BertDevice<E>>
    Attention<H, A, K, E, D>
{
    /// Fails when the model is compiled with heads that don't fill the hidden size.
    const HEADS_FILL_HIDDEN: () = assert!(A * K == H, "heads × head size must be the hidden size");

    fn build(b: &mut Builder<'_, E, D>) -> Result<Self> {
        const { Self::HEADS_FILL_HIDDEN };
        Ok(Self {
            query: b.linear("self.query")?,
            key: b.linear("self.key")?,
            value: b.linear("self.value")?,
            output: b.linear("output.dense")?,
        })
    }

    fn collect(&self, c: &mut Collector<'_, E, D>) {
        c.linear("self.query", &self.query);
        c.linear("self.key", &self.key);
        c.linear("self.value", &self.value);
        c.linear("output.dense", &self.output);
    }

    /// What each position asks in each head: the head's own K columns of the projection.
    pub fn queries<T: Tape<E, D>>(
        &self,
        x: Hidden<H, E, D, T>,
    ) -> Queries<Const<A>, Const<K>, E, D, T> {
        let heads = (x.shape().0, x.shape().1, Const::<A>, Const::<K>);
        let q = at_every_position(&self.query, x).reshape_like(&heads);
        q.permute::<_, Axes4<0, 2, 1, 3>>()
    }

    /// What each position is asked by in each head, laid out ready for the product with the query.
    pub fn keys<T: Tape<E, D>>(&self, x: Hidden<H, E, D, T>) -> Keys<Const<A>, Const<K>, E, D, T> {
        let heads = (x.shape().0, x.shape().1, Const::<A>, Const::<K>);
        let k = at_every_position(&self.key, x).reshape_like(&heads);
        k.permute::<_, Axes4<0, 2, 3, 1>>()
    }

    /// `softmax(Q K^T / sqrt(K)) V` in every head, heads side by side, projected: (B, S, H).
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        x: Hidden<H, E, D, T>,
        layer: u32,
        pass: &Pass<'_, E, D>,
    ) -> Hidden<H, E, D, T> {
        let (b, s) = (x.shape().0, x.shape().1);
        let q = self.queries(x.retaped::<T>());
        let k = self.keys(x.retaped::<T>());
        let v = at_every_position(&self.value, x).reshape_like(&(b, s, Const::<A>, Const::<K>));
        let v = v.permute::<_, Axes4<0, 2, 1, 3>>();

        let probabilities = look(q, k, pass.mask.as_ref(), pass.future.as_ref());
        let probabilities = match pass.dropout {
            Some(dropout) => dropout.attention(
                probabilities,
                pass.batch,
                Site::AttentionDropout(layer),
                pass.config.attention_probs_dropout_prob,
            ),
            None => probabilities,
        };
        let context = probabilities.matmul(v).permute::<_, Axes4<0, 2, 1, 3>>();
        at_every_position(&self.output, context.reshape_like(&(b, s, Const::<H>)))
    }
}

/// One encoder layer: attention and a feed-forward block, each with dropout, residual, LayerNorm.
pub struct Layer<
    const H: usize,
    const A: usize,
    const K: usize,
    const I: usize,
    E: Dtype,
    D: Device<E>,
> {
    pub attention: Attention<H, A, K, E, D>,
    pub attention_norm: LayerNorm1D<H, E, D>,
    pub intermediate: Linear<H, I, E, D>,
    pub output: Linear<I, H, E, D>,
    pub output_norm: LayerNorm1D<H, E, D>,
}

impl<const H: usize, const A: usize, const K: usize, const I: usize, E: Real, D: BertDevice<E>>
    Layer<H, A, K, I, E, D>
{
    pub(super) fn build(b: &mut Builder<'_, E, D>) -> Result<Self> {
        Ok(Self {
            attention: b.within("attention", Attention::build)?,
            attention_norm: b.layer_norm("attention.output.LayerNorm")?,
            intermediate: b.linear("intermediate.dense")?,
            output: b.linear("output.dense")?,
            output_norm: b.layer_norm("output.LayerNorm")?,
        })
    }

    pub(super) fn collect(&self, c: &mut Collector<'_, E, D>) {
        c.within("attention", |c| self.attention.collect(c));
        c.layer_norm("attention.output.LayerNorm", &self.attention_norm);
        c.linear("intermediate.dense", &self.intermediate);
        c.linear("output.dense", &self.output);
        c.layer_norm("output.LayerNorm", &self.output_norm);
    }

    /// (B, S, H) to (B, S, H). LayerNorm comes after the residual, as in the paper ("post-norm").
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        x: Hidden<H, E, D, T>,
        layer: u32,
        pass: &Pass<'_, E, D>,
    ) -> Hidden<H, E, D, T> {
        let attended = self.attention.forward(x.retaped::<T>(), layer, pass);
        let attended = pass.drop_hidden(attended, Site::AttentionOutputDropout(layer));
        let x = self.attention_norm.forward(attended + x);
        let inner = gelu(at_every_position(&self.intermediate, x.retaped::<T>()));
        let inner = pass.drop_hidden(
            at_every_position(&self.output, inner),
            Site::FeedForwardDropout(layer),
        );
        self.output_norm.forward(inner + x)
    }
}
