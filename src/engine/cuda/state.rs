//! What the engine owns between steps: parameters, gradients and the optimizer's means in the
//! device's memory, where every parameter starts at an aligned place.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::optimizer::Moments;
use crate::error::Result;
use crate::model::{Layout, Parameter};

use super::device::{Address, Device, Element};
use crate::bytes::{Number, bytes_of, bytes_of_mut};
use crate::engine::state::check_count;

/// Parameters start at a multiple of so many elements: 128 bytes or more.
const ALIGNMENT: usize = 64;
/// The rows of a table whose rows become columns of logits are a multiple of so many, the added
/// ones zero: rows of logits are then aligned, and products have sizes that suit matrix units.
const VOCABULARY_ROWS: usize = 64;
const HEAD_ROWS: usize = 8;

/// Classes of a vocabulary with those that are there for alignment alone.
pub fn padded_vocabulary(vocabulary: usize) -> usize {
    vocabulary.next_multiple_of(VOCABULARY_ROWS)
}

/// Outputs of a small head with those that are there for alignment alone.
pub fn padded_outputs(outputs: usize) -> usize {
    outputs.next_multiple_of(HEAD_ROWS)
}

/// Where the parameters of a layout start in the device's flat buffers. What lies between them is
/// zero and stays so.
#[derive(Debug, Clone)]
pub struct Places {
    layout: Arc<Layout>,
    starts: Vec<usize>,
    total: usize,
}

/// Queries, keys and values are multiplied as one: they must lie together.
fn continues(parameter: &Parameter) -> bool {
    let joined = [".attention.self.key.", ".attention.self.value."];
    joined.iter().any(|name| parameter.name.contains(name))
}

/// Elements that a parameter takes, with the rows that only fill up.
fn room(parameter: &Parameter) -> usize {
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

/// Where each parameter starts, and the elements of a flat buffer.
fn starts(layout: &Layout) -> (Vec<usize>, usize) {
    let mut end = 0usize;
    let place = |parameter: &Parameter| {
        let start = if continues(parameter) {
            end
        } else {
            end.next_multiple_of(ALIGNMENT)
        };
        end = start + room(parameter);
        start
    };
    let starts = layout.parameters().iter().map(place).collect();
    (starts, end.next_multiple_of(ALIGNMENT))
}

impl Places {
    pub fn new(layout: &Arc<Layout>) -> Self {
        let (starts, total) = starts(layout);
        Self {
            layout: layout.clone(),
            starts,
            total,
        }
    }

    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Elements of a flat buffer.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Parameters with their places in the device's buffers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Parameter, Range<usize>)> + '_ {
        let parameters = self.layout.parameters().iter();
        let place = |(parameter, &start): (&'_ Parameter, &usize)| start..start + parameter.len();
        parameters
            .zip(&self.starts)
            .map(move |pair| (pair.0, place(pair)))
    }

    /// The place of a parameter that the layout must have: it was made from the same declaration.
    pub fn find(&self, name: &str) -> Range<usize> {
        let found = self.iter().find(|(parameter, _)| parameter.name == name);
        found
            .unwrap_or_else(|| panic!("the declaration has no {name}"))
            .1
    }

    /// Values in the layout's order, put in their places.
    pub fn spread(&self, values: &[f32]) -> Vec<f32> {
        let mut spread = vec![0.0; self.total];
        for ((_, to), (_, from)) in self.iter().zip(self.layout.iter()) {
            spread[to].copy_from_slice(&values[from]);
        }
        spread
    }

    /// Values at their places in the layout's order.
    pub fn gather(&self, spread: &[f32]) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.layout.total());
        for (_, from) in self.iter() {
            values.extend_from_slice(&spread[from]);
        }
        values
    }
}

/// `count` numbers from the device.
pub fn download<T: Number>(device: &mut dyn Device, from: Address, count: usize) -> Result<Vec<T>> {
    let mut values = vec![T::default(); count];
    if count > 0 {
        device.download(from, bytes_of_mut(&mut values))?;
    }
    Ok(values)
}

/// The flat buffers. All are f32 but the working copy.
#[derive(Debug)]
pub struct State {
    pub places: Places,
    pub values: Address,
    pub gradients: Address,
    pub first: Address,
    pub second: Address,
    /// What matrix products read: the parameters in the engine's element type; the parameters
    /// themselves where that is f32.
    pub weights: Address,
    pub element: Element,
}

impl State {
    /// Bytes of the state of a layout.
    pub fn bytes(layout: &Layout, element: Element) -> u64 {
        let working = match element {
            Element::F32 => 0,
            Element::Bf16 | Element::F16 => element.bytes(),
        };
        starts(layout).1 as u64 * (16 + working)
    }

    /// A fresh state with these parameters; fails where their number is not the layout's. The
    /// working copy is not made yet.
    pub fn new(
        device: &mut dyn Device,
        layout: &Arc<Layout>,
        values: &[f32],
        element: Element,
    ) -> Result<Self> {
        let places = Places::new(layout);
        let flat = 4 * places.total() as u64;
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
            places,
        };
        device.fill(state.gradients, 0, 3 * flat)?;
        state.set_values(device, values)?;
        Ok(state)
    }

    /// Gives the memory back.
    pub fn release(&self, device: &mut dyn Device) {
        device.release(self.values);
    }

    fn upload(&self, device: &mut dyn Device, to: Address, values: &[f32]) -> Result<()> {
        check_count(values, self.places.layout().total())?;
        device.upload(to, bytes_of(&self.places.spread(values)))
    }

    fn download(&self, device: &mut dyn Device, from: Address) -> Result<Vec<f32>> {
        let spread = download(device, from, self.places.total())?;
        Ok(self.places.gather(&spread))
    }

    /// Takes parameters in the layout's order. The working copy is not made anew.
    pub fn set_values(&self, device: &mut dyn Device, values: &[f32]) -> Result<()> {
        self.upload(device, self.values, values)
    }

    /// Parameters in the layout's order.
    pub fn values(&self, device: &mut dyn Device) -> Result<Vec<f32>> {
        self.download(device, self.values)
    }

    /// Gradients in the layout's order, as they lie on the device.
    pub fn gradients(&self, device: &mut dyn Device) -> Result<Vec<f32>> {
        self.download(device, self.gradients)
    }

    pub fn clear_gradients(&self, device: &mut dyn Device) -> Result<()> {
        device.fill(self.gradients, 0, 4 * self.places.total() as u64)
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
    fn every_parameter_has_an_aligned_place_of_its_own() {
        let configs = [
            Config::new(2, 48, 2, 100, 203),
            Config::new(1, 30, 3, 7, 65),
        ];
        for config in configs {
            let parts = [&PRETRAINING[..], &[Part::TokenClassifier(9)]].concat();
            let layout = Layout::new(&config, &parts);
            let places = Places::new(&layout);
            let mut end = 0;
            for (parameter, range) in places.iter() {
                assert!(range.start >= end, "{}", parameter.name);
                assert!(
                    range.start % ALIGNMENT == 0 || (continues(parameter) && range.start == end),
                    "{}",
                    parameter.name
                );
                end = range.start + room(parameter);
            }
            assert!(end <= places.total());
            let words = places.find("embeddings.word_embeddings.weight");
            let positions = places.find("embeddings.position_embeddings.weight");
            let padded = config.vocab_size.next_multiple_of(64) * config.hidden_size;
            assert!(positions.start - words.start >= padded);
        }
    }

    #[test]
    fn values_come_back_in_the_layouts_order() {
        let layout = Layout::new(&Config::new(2, 30, 3, 7, 65), &PRETRAINING);
        let places = Places::new(&layout);
        let values: Vec<f32> = (0..layout.total()).map(|i| 1.0 + i as f32).collect();
        let spread = places.spread(&values);
        assert_eq!(places.gather(&spread), values);
        let zeros = spread.iter().filter(|&&value| value == 0.0).count();
        assert_eq!(zeros, places.total() - layout.total());
    }
}
