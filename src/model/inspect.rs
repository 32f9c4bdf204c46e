//! The attention probabilities of every head, with the queries and keys that they come from and the
//! hidden states between the layers: for views and analysis.
//!
//! The probabilities of a layer follow from the hidden states before it, so the forward pass need
//! not keep them: [`Bert::attention`] calls the modules again, and
//! [`SequenceAttention::of_hidden_states`] does the same for models whose sizes are not in the
//! types. Both use the model's own [`attention_probabilities`].

use dfdx::prelude::*;

use crate::data::Packed;

use super::bert::future_mask;
use super::layers::{Keys, Queries, attention_probabilities};
use super::ops::{BertDevice, Real};
use super::{Bert, Config, Layout};

/// The attention of one layer in one sequence, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerAttention<E = f32> {
    /// (heads, tokens, head size).
    pub queries: Vec<E>,
    /// (heads, tokens, head size).
    pub keys: Vec<E>,
    /// Attention probabilities (heads, tokens, tokens), queries by keys; every row sums to 1.
    pub weights: Vec<E>,
}

/// The attention of all layers in one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceAttention<E = f32> {
    /// Length of the sequence.
    pub tokens: usize,
    /// Attention heads per layer.
    pub heads: usize,
    /// Size of a head.
    pub head_size: usize,
    /// The layers, first to last.
    pub layers: Vec<LayerAttention<E>>,
    /// The activations after the embeddings and after each layer, (tokens, hidden size) each.
    pub hidden: Vec<Vec<E>>,
}

impl<E> SequenceAttention<E> {
    /// Returns the attention probabilities of one head, (tokens, tokens).
    ///
    /// # Panics
    /// If there is no such layer or head.
    pub fn weights(&self, layer: usize, head: usize) -> &[E] {
        let map = self.tokens * self.tokens;
        &self.layers[layer].weights[head * map..][..map]
    }

    /// Returns the query of `token` in a head: (head size).
    ///
    /// # Panics
    /// If there is no such layer, head or token.
    pub fn query(&self, layer: usize, head: usize, token: usize) -> &[E] {
        self.vector(&self.layers[layer].queries, head, token)
    }

    /// Returns the key of `token` in a head: (head size).
    ///
    /// # Panics
    /// If there is no such layer, head or token.
    pub fn key(&self, layer: usize, head: usize, token: usize) -> &[E] {
        self.vector(&self.layers[layer].keys, head, token)
    }

    fn vector<'a>(&self, all: &'a [E], head: usize, token: usize) -> &'a [E] {
        &all[(head * self.tokens + token) * self.head_size..][..self.head_size]
    }
}

impl SequenceAttention {
    /// Computes the attention of a model of any size from its parameters and the hidden states of
    /// one sequence as an engine returns them: the embeddings first, then the output of each layer.
    ///
    /// # Panics
    /// If the layout doesn't belong to a model of this configuration.
    pub fn of_hidden_states(
        config: &Config,
        layout: &Layout,
        values: &[f32],
        hidden: Vec<Vec<f32>>,
    ) -> Self {
        let width = config.hidden_size;
        let tokens = hidden[0].len() / width;
        let dev = Cpu::default();
        let take = |name: &str| {
            let found = layout.find(name);
            &values[found.unwrap_or_else(|| panic!("the layout has no {name}")).1]
        };
        let heads = (1, tokens, config.num_attention_heads, config.head_size());
        // A layer reads the output of the one before it; no layer reads the last.
        let layers = (0..config.num_hidden_layers).zip(&hidden);
        let layers = layers
            .map(|(layer, hidden)| {
                let projected = |which: &str| {
                    let name = format!("encoder.layer.{layer}.attention.self.{which}");
                    let weight = take(&format!("{name}.weight")).to_vec();
                    let bias = take(&format!("{name}.bias")).to_vec();
                    let x = dev.tensor_from_vec(hidden.clone(), (tokens, width));
                    let weight = dev.tensor_from_vec(weight, (width, width));
                    let bias = dev.tensor_from_vec(bias, (width,));
                    let y = x.matmul(weight.permute::<_, Axes2<1, 0>>());
                    let y = y + bias.broadcast_like::<_, Axis<0>>(&(tokens, width));
                    y.reshape_like(&heads)
                };
                let q = projected("query").permute::<_, Axes4<0, 2, 1, 3>>();
                let k = projected("key").permute::<_, Axes4<0, 2, 3, 1>>();
                LayerAttention::of(config, q, k)
            })
            .collect();
        Self {
            tokens,
            heads: config.num_attention_heads,
            head_size: config.head_size(),
            layers,
            hidden,
        }
    }
}

impl<E: Real> LayerAttention<E> {
    /// Computes the attention of one layer for a batch of one sequence.
    fn of<A: Dim, K: Dim, D: BertDevice<E>>(
        config: &Config,
        q: Queries<A, K, E, D>,
        k: Keys<A, K, E, D>,
    ) -> Self {
        let future = config.is_decoder.then(|| future_mask(q.shape().2, q.device()));
        Self {
            queries: q.as_vec(),
            keys: k.clone().permute::<_, Axes4<0, 1, 3, 2>>().as_vec(),
            weights: attention_probabilities(q, k, None, future.as_ref()).as_vec(),
        }
    }
}

impl<const H: usize, const A: usize, const K: usize, const I: usize, E: Real, D: BertDevice<E>>
    Bert<H, A, K, I, E, D>
{
    /// Computes the attention in each sequence of a batch, without dropout.
    pub fn attention(&self, batch: &Packed) -> Vec<SequenceAttention<E>> {
        let sequences = (0..batch.sequences()).map(|i| self.attention_of(&batch.slice(i..i + 1)));
        sequences.collect()
    }

    /// Computes the attention for a batch of one sequence, which has no padding.
    fn attention_of(&self, batch: &Packed) -> SequenceAttention<E> {
        let (mut layers, mut hidden) = (Vec::new(), Vec::new());
        self.encode::<NoneTape>(batch, None, &mut |before, x| {
            hidden.push(x.as_vec());
            if let Some(layer) = self.layers.get(before) {
                let q = layer.attention.queries(x.clone());
                layers.push(LayerAttention::of(&self.config, q, layer.attention.keys(x)));
            }
        });
        SequenceAttention { tokens: batch.rows(), heads: A, head_size: K, layers, hidden }
    }
}
