//! AdamW and LAMB over the flat buffers: [`crate::engine::optimizer`] on the device, which decides
//! itself how to clip and whether to update, so that a recorded graph can be replayed.

use std::ops::Range;

use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::engine::optimizer::Update;
use crate::error::Result;
use crate::model::Parameter;

/// Blocks of a sum of squares.
const SQUARES_BLOCKS: u32 = 1056;

/// Maximum parameters per block of an update.
const CHUNK: usize = 1 << 14;

/// 32-bit words of a chunk on the device.
const CHUNK_WORDS: u32 = 5;

/// Returns the bytes of scratch of [`sum_of_squares`].
pub fn squares_partials() -> u64 {
    8 * u64::from(SQUARES_BLOCKS)
}

/// Computes the sum of squares of `count` numbers `x` (f32), as f64 into `into`. `partials`:
/// [`squares_partials`] bytes.
pub fn sum_of_squares(
    device: &mut dyn Device,
    element: Element,
    count: u64,
    x: Address,
    partials: Address,
    into: Address,
) -> Result<()> {
    let blocks = count.div_ceil(256 * 16).clamp(1, u64::from(SQUARES_BLOCKS)) as u32;
    let (low, high) = (count as u32, (count >> 32) as u32);
    let cost = Cost::of_values(&[(Element::F32, count)]);
    launch!(device, element, "squares", ([blocks, 1, 1], 256), cost;
        low, high, x, partials)?;
    launch!(device, element, "finish_squares", ([1, 1, 1], 256), Cost::default();
        blocks, partials, into)
}

/// The flat buffers divided into chunks of one parameter each, for kernels with one chunk per
/// block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunks {
    /// For each chunk: start, length, 1 if weight decay applies, the parameter's number, and the bits of
    /// its factor of the learning rate. Then, for each parameter, the number of its first chunk; last the number of chunks.
    words: Vec<u32>,
    count: u32,
    parameters: u32,
    /// Values of all parameters.
    values: u64,
}

impl Chunks {
    /// Divides parameters with these ranges in the flat buffers.
    pub fn of<'a>(parameters: impl Iterator<Item = (&'a Parameter, Range<usize>)>) -> Self {
        let (mut words, mut firsts) = (Vec::new(), Vec::new());
        let mut values = 0;
        for (number, (parameter, range)) in parameters.enumerate() {
            firsts.push(words.len() as u32 / CHUNK_WORDS);
            values += range.len() as u64;
            for start in range.clone().step_by(CHUNK) {
                let length = CHUNK.min(range.end - start);
                let decay = u32::from(parameter.decay);
                let rate = parameter.rate.to_bits();
                words.extend([start as u32, length as u32, decay, number as u32, rate]);
            }
        }
        let (count, parameters) = (words.len() as u32 / CHUNK_WORDS, firsts.len() as u32);
        words.extend(firsts);
        words.push(count);
        Self { words, count, parameters, values }
    }

    /// Returns the cost of reading or writing f32 values `each` times per parameter, and writing the copy.
    fn cost(&self, each: u64, copy: Option<Element>) -> Cost {
        let single = (Element::F32, each * self.values);
        let copy = copy.map(|element| (element, self.values));
        Cost::of_values(&[Some(single), copy].into_iter().flatten().collect::<Vec<_>>())
    }

    /// Returns the words that [`Parameters::chunks_at`] needs on the device.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Returns the bytes of scratch of [`lamb`].
    pub fn partials(&self) -> u64 {
        16 * u64::from(self.count) + 4 * u64::from(self.parameters)
    }
}

/// The factors of an update on the device, computed in f64: 1 - 0.999^t loses digits in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step([f32; Self::WORDS], f64);

impl Step {
    const WORDS: usize = 10;

    /// Bytes on the device.
    pub const BYTES: usize = 4 * Self::WORDS + 8;

    /// `loss_scale` is the factor of the gradients, 1 for none.
    pub fn new(update: &Update, loss_scale: f64) -> Self {
        let (o, rate) = (&update.optimizer, update.learning_rate);
        let power = update.step as i32;
        let first = 1.0 / (1.0 - o.beta1.powi(power));
        let second = 1.0 / (1.0 - o.beta2.powi(power)).sqrt();
        let words = [
            rate,
            1.0 - rate * o.weight_decay,
            o.weight_decay,
            o.beta1,
            o.beta2,
            o.epsilon,
            first,
            second,
            1.0 / loss_scale,
            0.0,
        ];
        Self(words.map(|word| word as f32), update.max_norm)
    }

    /// Returns the bytes that [`Parameters::step`] needs on the device.
    pub fn bytes(&self) -> Vec<u8> {
        let words = self.0.iter().flat_map(|word| word.to_le_bytes());
        words.chain(self.1.to_le_bytes()).collect()
    }
}

/// The buffers of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters<'a> {
    pub chunks: &'a Chunks,
    /// [`Chunks::words`] on the device.
    pub chunks_at: Address,
    /// [`Step::bytes`] on the device.
    pub step: Address,
    /// (f64) [`sum_of_squares`] of the gradients, times the loss scale squared. If it is not
    /// finite, the gradients are zeroed and nothing else happens.
    pub squares: Address,
    /// (f32)
    pub values: Address,
    /// (f32) Zeroed.
    pub gradients: Address,
    /// (f32) The running means of the gradients and of their squares.
    pub first: Address,
    pub second: Address,
    /// (E) Receives a copy of the values, or none.
    pub copy: Address,
}

impl Parameters<'_> {
    fn copy_element(&self, element: Element) -> Option<Element> {
        (self.copy != Address::NONE).then_some(element)
    }
}

/// AdamW: clips the gradients by their global norm, updates, zeroes the gradients.
pub fn adamw(device: &mut dyn Device, element: Element, a: &Parameters<'_>) -> Result<()> {
    let grid = ([a.chunks.count, 1, 1], 256);
    // Values, gradients and both means, read and written.
    let cost = a.chunks.cost(8, a.copy_element(element));
    launch!(device, element, "adamw", grid, cost;
        a.chunks_at, a.step, a.squares, a.values, a.gradients, a.first, a.second, a.copy)
}

/// LAMB in place of [`adamw`]. `partials`: [`Chunks::partials`] bytes.
pub fn lamb(
    device: &mut dyn Device,
    element: Element,
    a: &Parameters<'_>,
    partials: Address,
) -> Result<()> {
    let ratios = partials.offset(16 * u64::from(a.chunks.count));
    let firsts = a.chunks_at.offset(4 * u64::from(CHUNK_WORDS * a.chunks.count));
    let grid = ([a.chunks.count, 1, 1], 256);
    launch!(device, element, "lamb_moments", grid, a.chunks.cost(7, None);
        a.chunks_at, a.step, a.squares, a.values, a.gradients, a.first, a.second, partials)?;
    let blocks = [a.chunks.parameters, 1, 1];
    launch!(device, element, "lamb_ratios", (blocks, 32), Cost::default();
        a.chunks_at, firsts, partials, ratios)?;
    let cost = a.chunks.cost(4, a.copy_element(element));
    launch!(device, element, "lamb_update", grid, cost;
        a.chunks_at, a.step, a.squares, a.values, a.first, a.second, ratios, a.copy)
}
