//! The addresses of all activations of a pass.

use crate::engine::Recompute;
use crate::model::HeadInput;

use super::arena::{Plan, Span};
use super::device::Address;
use super::heads;
use super::layer::{Gradients, Kept};
use super::masked_lm;
use super::shape::{Masked, Purpose, Scores, Shape};

/// Where the activations of a pass are.
#[derive(Debug, Clone)]
pub struct Activations {
    pub embedding_sums: Address,
    pub embedding_statistics: Address,
    /// Hidden states: after the embeddings, then after each layer. Several may be in one place.
    pub hidden: Vec<Address>,
    /// What each layer keeps; see [`Kept::take`].
    pub kept: Vec<Kept>,
    /// Of a training pass.
    pub gradients: Option<Gradients>,
    pub masked_lm: Option<masked_lm::Buffers>,
    pub head: Option<heads::Buffers>,
    /// A teacher's last hidden states, (rows, hidden) in f32.
    pub teacher: Address,
    /// What losses leave of each row: [`Scores`].
    pub scores: Address,
    /// Hidden states on their way to the host, (rows, hidden) in f32.
    pub states: Address,
}

impl Activations {
    /// Takes places for a pass.
    pub fn take(plan: &mut Plan, shape: &Shape<'_>) -> Self {
        let c = shape.config;
        let pooled = shape
            .head
            .is_some_and(|head| head.input == HeadInput::Pooled)
            || shape.states;
        let f32_states = 4 * (shape.rows * c.hidden_size) as u64;
        let distilled = shape.masked == Masked::Distilled;
        Self {
            embedding_sums: plan.take(Span::Step, shape.hidden()),
            embedding_statistics: plan.take(Span::Step, shape.statistics()),
            hidden: take_hidden(plan, shape),
            kept: Kept::take(plan, shape),
            gradients: shape.trains().then(|| Gradients::take(plan, shape)),
            masked_lm: (shape.picked > 0).then(|| masked_lm::Buffers::take(plan, shape)),
            head: (shape.head.is_some() || pooled).then(|| heads::Buffers::take(plan, shape)),
            teacher: plan.take(Span::Step, if distilled { f32_states } else { 0 }),
            scores: plan.take(Span::Step, Scores::of(shape).bytes()),
            states: plan.take(Span::Heads, if shape.states { f32_states } else { 0 }),
        }
    }
}

fn take_hidden(plan: &mut Plan, shape: &Shape<'_>) -> Vec<Address> {
    let layers = shape.config.num_hidden_layers;
    let bytes = shape.hidden();
    match shape.purpose {
        Purpose::Inference => {
            let two = [(); 2].map(|()| plan.take(Span::Step, bytes));
            (0..=layers).map(|layer| two[layer % 2]).collect()
        }
        // The first and the last are kept; those between are LayerNorms' outputs.
        Purpose::Training(Recompute::Cheap) => {
            let ends = [(); 2].map(|()| plan.take(Span::Step, bytes));
            let two = [(); 2].map(|()| plan.take(Span::Layers, bytes));
            let place = |layer: usize| match layer {
                0 => ends[0],
                _ if layer == layers => ends[1],
                _ => two[layer % 2],
            };
            (0..=layers).map(place).collect()
        }
        Purpose::Training(Recompute::Nothing | Recompute::Layers) => {
            (0..=layers).map(|_| plan.take(Span::Step, bytes)).collect()
        }
    }
}

impl Shape<'_> {
    /// Bytes that all activations need.
    pub fn bytes(&self) -> u64 {
        self.plan().bytes()
    }

    /// What [`Activations::take`] needs.
    pub fn plan(&self) -> Plan {
        Plan::measure(|plan| Activations::take(plan, self))
    }
}
