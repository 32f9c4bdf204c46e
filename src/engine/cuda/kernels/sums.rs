//! Sums over rows in two launches: blocks write partial sums, and [`finish_sums`] adds them in
//! order.

use super::vector;
use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::error::Result;

/// Multiprocessors of the largest GPUs.
pub(super) const MULTIPROCESSORS: u32 = 132;
/// Maximum blocks of a LayerNorm's backward pass, which also write partial sums.
const NORM_BLOCKS: u32 = 4 * MULTIPROCESSORS;
/// Threads per block of a kernel over columns; each handles a vector of columns.
const COLUMN_THREADS: u32 = 128;
/// Blocks of such a kernel: eight per multiprocessor of the largest GPUs.
const COLUMN_BLOCKS: u32 = 8 * MULTIPROCESSORS;
/// Minimum rows per block: as many as a thread loads ahead.
const STRIPE: u32 = 4;

/// Returns blocks and threads of a kernel over columns, and the number of stripes of rows.
pub(super) fn column_grid(element: Element, n: u32, width: u32) -> ([u32; 3], u32, u32) {
    let across = width.div_ceil(COLUMN_THREADS * vector(element));
    let stripes = n.div_ceil(STRIPE).min(COLUMN_BLOCKS.div_ceil(across.max(1)));
    ([across, stripes, 1], COLUMN_THREADS, stripes)
}

/// Returns the bytes of scratch for the partial sums of any launch over matrices up to `width`
/// wide.
pub fn partials(width: u32) -> u64 {
    let widest = u64::from(COLUMN_BLOCKS) * u64::from(COLUMN_THREADS * vector(Element::Bf16));
    let columns = 2 * (widest + u64::from(width));
    let norms = u64::from(NORM_BLOCKS) * 3 * u64::from(width);
    4 * columns.max(norms)
}

/// Adds the partial sums of `stripes` blocks, one row of `width` sums for each of `into` per block,
/// to `into`, block by block.
pub(super) fn finish_sums(
    device: &mut dyn Device,
    element: Element,
    partials: Address,
    stripes: u32,
    width: u32,
    into: &[Address],
) -> Result<()> {
    let at = |which: usize| into.get(which).copied().unwrap_or(Address::NONE);
    let grid = ([width.div_ceil(32), into.len() as u32, 1], 1024);
    let sums = (u64::from(stripes) + 2) * into.len() as u64 * u64::from(width);
    let cost = Cost::of_values(&[(Element::F32, sums)]);
    launch!(device, element, "finish_sums", grid, cost;
        partials, stripes, width, into.len() as u32, at(0), at(1), at(2))
}
