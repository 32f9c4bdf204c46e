//! The building blocks of the reference model: embeddings, self-attention, feed-forward block,
//! encoder layer. Plain dfdx, with hidden size, heads and head size in the types; the number of
//! sequences and their length are known at run time.
//!
//! Shapes in the comments: B sequences, S positions, H hidden size, A heads, K head size, I
//! intermediate size. Source: Devlin et al., arXiv 1810.04805, and Vaswani et al., arXiv 1706.03762.

use dfdx::nn::modules::{LayerNorm1D, Linear};
use dfdx::prelude::*;

use crate::data::Packed;
use crate::random::Site;

use super::Config;
use super::dropout::Dropout;
use super::ops::{BertDevice, Real, gelu};

/// Activations of padded sequences: (B, S, H).
pub type Hidden<const H: usize, E, D, T = NoneTape> = Tensor<(usize, usize, Const<H>), E, D, T>;

/// What a forward pass needs besides the activations.
pub struct Pass<'a, E: Dtype, D: Device<E>> {
    /// The batch that is encoded.
    pub batch: &'a Packed,
    /// The model's hyperparameters.
    pub config: &'a Config,
    /// None for inference.
    pub dropout: Option<Dropout>,
    /// Padding mask (B, S): 0 at real tokens, a large negative number at padding. None if nothing
    /// is padded.
    pub mask: Option<Tensor<(usize, usize), E, D>>,
    /// Causal mask (S, S): 0 up to the query's own position, a large negative number at later keys.
    /// None if attention is bidirectional.
    pub future: Option<Tensor<(usize, usize), E, D>>,
}

impl<E: Real, D: BertDevice<E>> Pass<'_, E, D> {
    fn drop_hidden<const H: usize, T: Tape<E, D>>(
        &self,
        x: Hidden<H, E, D, T>,
        site: Site,
    ) -> Hidden<H, E, D, T> {
        match self.dropout {
            Some(dropout) => dropout.hidden(x, self.batch, site, self.config.dropout_at(site)),
            None => x,
        }
    }
}

/// The tape of a function of f32 tensors that works both with and without one: in training and after it.
pub trait Taped<D: Storage<f32> = Cpu>: Tape<f32, D> + Merge<Self> + Merge<NoneTape> {}

impl<D: Storage<f32>, T: Tape<f32, D> + Merge<T> + Merge<NoneTape>> Taped<D> for T {}

/// Applies a linear layer at every position: (B, S, I) to (B, S, O).
///
/// dfdx multiplies a batch of matrices by one matrix sequence by sequence, and adds each sequence's
/// weight gradient to the last. One matrix of all rows takes a single product, several times
/// faster.
pub fn project<const I: usize, const O: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
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
    /// (positions, H)
    pub positions: Tensor<(usize, Const<H>), E, D>,
    /// (segments, H)
    pub segments: Tensor<(usize, Const<H>), E, D>,
    /// The LayerNorm of the sum.
    pub norm: LayerNorm1D<H, E, D>,
}

impl<const H: usize, E: Real, D: BertDevice<E>> Embeddings<H, E, D> {
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
        let embed = |table: &Tensor<(usize, Const<H>), E, D>, rows: &[u32]| {
            table.retaped::<T>().gather(padded(rows))
        };
        let first = pass.config.position_offset() as u32;
        let positions: Vec<u32> = pass.batch.positions.iter().map(|p| first + p).collect();
        let sum: Hidden<H, E, D, T> = embed(&self.words, &pass.batch.ids)
            + embed(&self.segments, &pass.batch.segments)
            + embed(&self.positions, &positions);
        pass.drop_hidden(self.norm.forward(sum), Site::EmbeddingDropout)
    }
}

/// The queries of every head: (B, A, S, K).
pub type Queries<A, K, E, D, T = NoneTape> = Tensor<(usize, A, usize, K), E, D, T>;
/// The keys of every head, transposed: (B, A, K, S).
pub type Keys<A, K, E, D, T = NoneTape> = Tensor<(usize, A, K, usize), E, D, T>;

/// Returns the attention probabilities, `softmax(Q K^T / sqrt(K))`: (B, A, S, S), where every row
/// sums to 1. Heads and head size may also be run-time dimensions. `mask` hides padding (see
/// [`Pass::mask`]), `future` later positions ([`Pass::future`]).
pub fn attention_probabilities<
    A: Dim,
    K: Dim,
    E: Real,
    D: BertDevice<E>,
    T: Tape<E, D> + Merge<T>,
>(
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
    /// Projects to queries.
    pub query: Linear<H, H, E, D>,
    /// Projects to keys.
    pub key: Linear<H, H, E, D>,
    /// Projects to values.
    pub value: Linear<H, H, E, D>,
    /// Projects the concatenated heads.
    pub output: Linear<H, H, E, D>,
}

impl<const H: usize, const A: usize, const K: usize, E: Real, D: BertDevice<E>>
    Attention<H, A, K, E, D>
{
    /// Fails to compile if the heads don't fill the hidden size.
    const HEADS_FILL_HIDDEN: () = assert!(A * K == H, "heads × head size must be the hidden size");

    /// Returns the queries: each head has its own K columns of the projection.
    pub fn queries<T: Tape<E, D>>(
        &self,
        x: Hidden<H, E, D, T>,
    ) -> Queries<Const<A>, Const<K>, E, D, T> {
        const { Self::HEADS_FILL_HIDDEN };
        let heads = (x.shape().0, x.shape().1, Const::<A>, Const::<K>);
        let q = project(&self.query, x).reshape_like(&heads);
        q.permute::<_, Axes4<0, 2, 1, 3>>()
    }

    /// Returns the keys, transposed for the product with the queries.
    pub fn keys<T: Tape<E, D>>(&self, x: Hidden<H, E, D, T>) -> Keys<Const<A>, Const<K>, E, D, T> {
        let heads = (x.shape().0, x.shape().1, Const::<A>, Const::<K>);
        let k = project(&self.key, x).reshape_like(&heads);
        k.permute::<_, Axes4<0, 2, 3, 1>>()
    }

    /// Returns `softmax(Q K^T / sqrt(K)) V` of every head, concatenated and projected: (B, S, H).
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        x: Hidden<H, E, D, T>,
        layer: u32,
        pass: &Pass<'_, E, D>,
    ) -> Hidden<H, E, D, T> {
        let (b, s) = (x.shape().0, x.shape().1);
        let q = self.queries(x.retaped::<T>());
        let k = self.keys(x.retaped::<T>());
        let v = project(&self.value, x).reshape_like(&(b, s, Const::<A>, Const::<K>));
        let v = v.permute::<_, Axes4<0, 2, 1, 3>>();

        let probabilities = attention_probabilities(q, k, pass.mask.as_ref(), pass.future.as_ref());
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
        project(&self.output, context.reshape_like(&(b, s, Const::<H>)))
    }
}

/// One encoder layer: attention and a feed-forward block, each followed by dropout, skip connection
/// and LayerNorm.
pub struct Layer<
    const H: usize,
    const A: usize,
    const K: usize,
    const I: usize,
    E: Dtype,
    D: Device<E>,
> {
    /// Self-attention.
    pub attention: Attention<H, A, K, E, D>,
    /// The LayerNorm after the attention block.
    pub attention_norm: LayerNorm1D<H, E, D>,
    /// The first feed-forward layer.
    pub intermediate: Linear<H, I, E, D>,
    /// The second feed-forward layer.
    pub output: Linear<I, H, E, D>,
    /// The LayerNorm after the feed-forward block.
    pub output_norm: LayerNorm1D<H, E, D>,
}

impl<const H: usize, const A: usize, const K: usize, const I: usize, E: Real, D: BertDevice<E>>
    Layer<H, A, K, I, E, D>
{
    /// Maps (B, S, H) to (B, S, H). LayerNorm comes after the skip connection, as in the paper
    /// ("post-norm").
    pub fn forward<T: Tape<E, D> + Merge<T>>(
        &self,
        x: Hidden<H, E, D, T>,
        layer: u32,
        pass: &Pass<'_, E, D>,
    ) -> Hidden<H, E, D, T> {
        let attended = self.attention.forward(x.retaped::<T>(), layer, pass);
        let attended = pass.drop_hidden(attended, Site::AttentionOutputDropout(layer));
        let x = self.attention_norm.forward(attended + x);
        let inner = gelu(project(&self.intermediate, x.retaped::<T>()));
        let inner = pass.drop_hidden(project(&self.output, inner), Site::FeedForwardDropout(layer));
        self.output_norm.forward(inner + x)
    }
}
