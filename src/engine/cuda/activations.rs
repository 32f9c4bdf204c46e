//! The addresses of all activations of a pass.

use crate::engine::Recompute;
use crate::model::HeadInput;

use super::arena::{Plan, Span};
use super::device::Address;
use super::heads;
use super::kernels::{DISTILLED, SCORED};
use super::layer::{Gradients, Saved};
use super::masked_lm;
use super::shape::{MaskedLmMode, Purpose, Shape};

impl Shape<'_> {
    /// Returns the bytes of all activations.
    pub fn bytes(&self) -> u64 {
        self.plan().bytes()
    }

    /// Measures what [`Activations::take`] takes.
    pub fn plan(&self) -> Plan {
        Plan::measure(|plan| Activations::take(plan, self))
    }
}

/// The addresses of a pass's activations.
#[derive(Debug, Clone)]
pub struct Activations {
    pub embedding_sums: Address,
    pub embedding_statistics: Address,
    /// The embeddings before their projection, if there is one.
    pub embedded: Address,
    /// Hidden states: after the embeddings, then after each layer. Some may share an address.
    pub hidden: Vec<Address>,
    /// Activations that each layer saves; see [`Saved::take`].
    pub saved: Vec<Saved>,
    /// Only in a training pass.
    pub gradients: Option<Gradients>,
    pub masked_lm: Option<masked_lm::Buffers>,
    pub head: Option<heads::Buffers>,
    /// A teacher's last hidden states, (rows, hidden) in f32.
    pub teacher: Address,
    /// Scores of each row: [`Scores`].
    pub scores: Address,
    /// Hidden states for the host, (rows, hidden) in f32.
    pub states: Address,
}

impl Activations {
    /// Takes addresses for a pass.
    pub fn take(plan: &mut Plan, shape: &Shape<'_>) -> Self {
        let c = shape.config;
        let pooled = shape.head.is_some_and(|head| head.input == HeadInput::Pooled) || shape.states;
        let f32_states = 4 * (shape.rows * c.hidden_size) as u64;
        let distilled = shape.masked == MaskedLmMode::Distilled;
        Self {
            embedding_sums: plan.take(Span::Step, shape.embedded()),
            embedding_statistics: plan.take(Span::Step, shape.statistics()),
            embedded: plan
                .take(Span::Step, if c.projects_embeddings() { shape.embedded() } else { 0 }),
            hidden: take_hidden(plan, shape),
            saved: Saved::take(plan, shape),
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
        // The first and the last are stored; those in between are recomputed from LayerNorm inputs.
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

/// Offsets of the losses' scores in [`Activations::scores`], in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Scores {
    /// Bytes of the scores of masked tokens, which start at 0.
    pub masked: u64,
    /// Bytes of those of the linear head's labels.
    pub labels: u64,
    pub cosines: u64,
}

impl Scores {
    pub fn of(shape: &Shape<'_>) -> Self {
        let (masked, cosines) = match shape.masked {
            MaskedLmMode::Distilled => (DISTILLED, 4),
            MaskedLmMode::Scores | MaskedLmMode::Logits => (SCORED, 0),
        };
        Self {
            masked: (masked * shape.picked as u64).next_multiple_of(16),
            labels: (SCORED * shape.labels as u64).next_multiple_of(16),
            cosines: cosines * shape.rows as u64,
        }
    }

    /// Returns the bytes of all scores.
    pub fn bytes(self) -> u64 {
        self.masked + self.labels + self.cosines
    }
}
