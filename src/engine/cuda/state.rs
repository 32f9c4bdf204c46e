//! The engine's state between steps: parameters, gradients and the optimizer's means in the
//! device's memory. Every parameter starts at an aligned offset.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::optimizer::Moments;
use crate::error::Result;
use crate::model::{Layout, Parameter};

use super::device::{Address, Device, Element};
use crate::bytes::{Number, bytes_of, bytes_of_mut};
use crate::engine::state::check_count;

/// Parameters start at multiples of this many elements: 128 bytes or more.
pub const ALIGNMENT: usize = 64;
/// Tables whose rows become columns of logits are padded with zeros to a multiple of this many
/// rows: rows of logits are then aligned, and products have sizes that suit matrix units.
const VOCABULARY_ROWS: usize = 64;
const HEAD_ROWS: usize = 8;

/// Returns the classes of a vocabulary including padding.
pub fn padded_vocabulary(vocabulary: usize) -> usize {
    vocabulary.next_multiple_of(VOCABULARY_ROWS)
}

/// Returns the outputs of a small head including padding.
pub fn padded_outputs(outputs: usize) -> usize {
    outputs.next_multiple_of(HEAD_ROWS)
}

/// The offsets of a layout's parameters in the device's flat buffers. Gaps hold zeros.
#[derive(Debug, Clone)]
pub struct Offsets {
    layout: Arc<Layout>,
    starts: Vec<usize>,
    total: usize,
}

/// Queries, keys and values are multiplied as one, so they must be adjacent.
fn continues(parameter: &Parameter) -> bool {
    let joined = [".attention.self.key.", ".attention.self.value."];
    joined.iter().any(|name| parameter.name.contains(name))
}

/// Returns the elements of a parameter including padding rows.
fn padded_len(parameter: &Parameter) -> usize {
    let [rows, columns] = parameter.shape[..] else {
        return parameter.len();
    };
    match parameter.name.as_str() {
        "embeddings.word_embeddings.weight" => padded_vocabulary(rows) * columns,
        "cls.seq_relationship.weight" | "classifier.weight" | "qa_outputs.weight" => {
            padded_outputs(rows) * columns
        }
        _ => parameter.len(),
    }
}

/// Returns the offset of each parameter, and the elements of a flat buffer.
fn starts(layout: &Layout) -> (Vec<usize>, usize) {
    let mut end = 0usize;
    let place = |parameter: &Parameter| {
        let start = if continues(parameter) { end } else { end.next_multiple_of(ALIGNMENT) };
        end = start + padded_len(parameter);
        start
    };
    let starts = layout.parameters().iter().map(place).collect();
    (starts, end.next_multiple_of(ALIGNMENT))
}

impl Offsets {
    pub fn new(layout: &Arc<Layout>) -> Self {
        let (starts, total) = starts(layout);
        Self { layout: layout.clone(), starts, total }
    }

    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the elements of a flat buffer.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Iterates over parameters and their ranges in the device's buffers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Parameter, Range<usize>)> + '_ {
        let parameters = self.layout.parameters().iter();
        let place = |(parameter, &start): (&'_ Parameter, &usize)| start..start + parameter.len();
        parameters.zip(&self.starts).map(move |pair| (pair.0, place(pair)))
    }

    /// Returns the range of a parameter. The layout must declare it: both come from one
    /// declaration.
    pub fn find(&self, name: &str) -> Range<usize> {
        let found = self.iter().find(|(parameter, _)| parameter.name == name);
        found.unwrap_or_else(|| panic!("the declaration has no {name}")).1
    }

    /// Moves values from the layout's order to their offsets.
    pub fn spread(&self, values: &[f32]) -> Vec<f32> {
        let mut spread = vec![0.0; self.total];
        for ((_, to), (_, from)) in self.iter().zip(self.layout.iter()) {
            spread[to].copy_from_slice(&values[from]);
        }
        spread
    }

    /// Moves values from their offsets to the layout's order.
    pub fn gather(&self, spread: &[f32]) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.layout.total());
        for (_, from) in self.iter() {
            values.extend_from_slice(&spread[from]);
        }
        values
    }
}

/// Downloads `count` values from the device.
pub fn download<T: Number>(device: &mut dyn Device, from: Address, count: usize) -> Result<Vec<T>> {
    let mut values = vec![T::default(); count];
    if count > 0 {
        device.download(from, bytes_of_mut(&mut values))?;
    }
    Ok(values)
}

/// The flat buffers, all in f32 except the working copy.
#[derive(Debug)]
pub struct State {
    pub offsets: Offsets,
    pub values: Address,
    pub gradients: Address,
    pub first: Address,
    pub second: Address,
    /// The working copy that matrix products read: the parameters in the engine's element type; in
    /// f32 the parameters themselves.
    pub weights: Address,
    pub element: Element,
}

impl State {
    /// Returns the bytes of a layout's state.
    pub fn bytes(layout: &Layout, element: Element) -> u64 {
        let working = match element {
            Element::F32 => 0,
            Element::Bf16 | Element::F16 => element.bytes(),
        };
        starts(layout).1 as u64 * (16 + working)
    }

    /// Creates a state with these parameters; returns an error if their number differs from the
    /// layout's. Doesn't fill the working copy.
    pub fn new(
        device: &mut dyn Device,
        layout: &Arc<Layout>,
        values: &[f32],
        element: Element,
    ) -> Result<Self> {
        let offsets = Offsets::new(layout);
        let flat = 4 * offsets.total() as u64;
        let at = device.allocate(Self::bytes(layout, element))?;
        let buffer = |index: u64| at.offset(index * flat);
        let state = Self {
            values: buffer(0),
            gradients: buffer(1),
            first: buffer(2),
            second: buffer(3),
            weights: match element {
                Element::F32 => buffer(0),
                Element::Bf16 | Element::F16 => buffer(4),
            },
            element,
            offsets,
        };
        device.fill(state.gradients, 0, 3 * flat)?;
        state.set_values(device, values)?;
        Ok(state)
    }

    /// Releases the memory.
    pub fn release(&self, device: &mut dyn Device) {
        device.release(self.values);
    }

    fn upload(&self, device: &mut dyn Device, to: Address, values: &[f32]) -> Result<()> {
        check_count(values, self.offsets.layout().total())?;
        device.upload(to, bytes_of(&self.offsets.spread(values)))
    }

    fn download(&self, device: &mut dyn Device, from: Address) -> Result<Vec<f32>> {
        let spread = download(device, from, self.offsets.total())?;
        Ok(self.offsets.gather(&spread))
    }

    /// Replaces the parameters, given in the layout's order. Doesn't update the working copy.
    pub fn set_values(&self, device: &mut dyn Device, values: &[f32]) -> Result<()> {
        self.upload(device, self.values, values)
    }

    /// Returns the parameters in the layout's order.
    pub fn values(&self, device: &mut dyn Device) -> Result<Vec<f32>> {
        self.download(device, self.values)
    }

    /// Returns the gradients in the layout's order, without removing the loss scale.
    pub fn gradients(&self, device: &mut dyn Device) -> Result<Vec<f32>> {
        self.download(device, self.gradients)
    }

    pub fn clear_gradients(&self, device: &mut dyn Device) -> Result<()> {
        device.fill(self.gradients, 0, 4 * self.offsets.total() as u64)
    }

    pub fn moments(&self, device: &mut dyn Device) -> Result<Moments> {
        Ok(Moments {
            first: self.download(device, self.first)?,
            second: self.download(device, self.second)?,
        })
    }

    pub fn set_moments(&self, device: &mut dyn Device, moments: &Moments) -> Result<()> {
        self.upload(device, self.first, &moments.first)?;
        self.upload(device, self.second, &moments.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, PRETRAINING, Part};

    #[test]
    fn every_parameter_has_an_aligned_range_of_its_own() {
        let configs = [Config::new(2, 48, 2, 100, 203), Config::new(1, 30, 3, 7, 65)];
        for config in configs {
            let parts = [&PRETRAINING[..], &[Part::TokenClassifier(9)]].concat();
            let layout = Layout::new(&config, &parts);
            let offsets = Offsets::new(&layout);
            let mut end = 0;
            for (parameter, range) in offsets.iter() {
                assert!(range.start >= end, "{}", parameter.name);
                assert!(
                    range.start % ALIGNMENT == 0 || (continues(parameter) && range.start == end),
                    "{}",
                    parameter.name
                );
                end = range.start + padded_len(parameter);
            }
            assert!(end <= offsets.total());
            let words = offsets.find("embeddings.word_embeddings.weight");
            let positions = offsets.find("embeddings.position_embeddings.weight");
            let padded = config.vocab_size.next_multiple_of(64) * config.hidden_size;
            assert!(positions.start - words.start >= padded);
        }
    }

    #[test]
    fn values_come_back_in_the_layouts_order() {
        let layout = Layout::new(&Config::new(2, 30, 3, 7, 65), &PRETRAINING);
        let offsets = Offsets::new(&layout);
        let values: Vec<f32> = (0..layout.total()).map(|i| 1.0 + i as f32).collect();
        let spread = offsets.spread(&values);
        assert_eq!(offsets.gather(&spread), values);
        let zeros = spread.iter().filter(|&&value| value == 0.0).count();
        assert_eq!(zeros, offsets.total() - layout.total());
    }
}
