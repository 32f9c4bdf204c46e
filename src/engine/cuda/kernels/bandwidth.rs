//! Kernels that only move memory, as a reference for others.

use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::error::Result;

/// Vectors of 16 bytes per block.
const BLOCK: u32 = 512 * 4;

fn grid(vectors: u32) -> ([u32; 3], u32) {
    ([vectors.div_ceil(BLOCK), 1, 1], 512)
}

/// Copies `vectors` vectors of 16 bytes.
pub fn stream_copy(
    device: &mut dyn Device,
    vectors: u32,
    from: Address,
    to: Address,
) -> Result<()> {
    let cost = Cost::of_values(&[(Element::F32, 8 * u64::from(vectors))]);
    launch!(device, Element::F32, "stream_copy", grid(vectors), cost;
        vectors, from, to)
}

/// `a = b + factor · c` for `vectors` vectors of four f32.
pub fn stream_triad(
    device: &mut dyn Device,
    vectors: u32,
    factor: f32,
    [b, c]: [Address; 2],
    a: Address,
) -> Result<()> {
    let cost = Cost::of_values(&[(Element::F32, 12 * u64::from(vectors))]);
    launch!(device, Element::F32, "stream_triad", grid(vectors), cost;
        vectors, factor, b, c, a)
}
