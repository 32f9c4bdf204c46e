//! Sums over rows, in two launches: blocks write partial sums, and [`finish_sums`] adds them in order.

use super::{launch, vector};
use crate::engine::cuda::device::{Address, Device, Element};
use crate::error::Result;

/// Multiprocessors of the largest GPUs.
pub(super) const MULTIPROCESSORS: u32 = 132;
/// Maximum blocks of a LayerNorm's backward pass, which leave partial sums too.
const NORM_BLOCKS: u32 = 4 * MULTIPROCESSORS;
/// Threads of a block that works on columns; each owns a vector of them.
const COLUMN_THREADS: u32 = 128;
/// Blocks that such a kernel asks for: eight a multiprocessor of the largest GPUs.
const COLUMN_BLOCKS: u32 = 8 * MULTIPROCESSORS;
/// Rows that a block takes at least: as many as a thread loads before it works on them.
const STRIPE: u32 = 4;

/// Blocks and threads of a kernel that works on columns, and into how many stripes it cuts the rows.
pub(super) fn column_grid(element: Element, n: u32, width: u32) -> ([u32; 3], u32, u32) {
    let across = width.div_ceil(COLUMN_THREADS * vector(element));
    let stripes = n
        .div_ceil(STRIPE)
        .min(COLUMN_BLOCKS.div_ceil(across.max(1)));
    ([across, stripes, 1], COLUMN_THREADS, stripes)
}

/// Bytes of scratch that any launch here needs for the sums of columns of matrices `width` wide or
/// less.
pub fn partials(width: u32) -> u64 {
    let widest = u64::from(COLUMN_BLOCKS) * u64::from(COLUMN_THREADS * vector(Element::Bf16));
    let columns = 2 * (widest + u64::from(width));
    let norms = u64::from(NORM_BLOCKS) * 3 * u64::from(width);
    4 * columns.max(norms)
}

/// Adds what `stripes` blocks left in `partials`, a row of `width` sums for each of `into` one behind
/// the other, to `into`, block after block.
pub(super) fn finish_sums(
    device: &mut dyn Device,
    element: Element,
    partials: Address,
    stripes: u32,
    width: u32,
    into: &[Address],
) -> Result<()> {
    let at = |which: usize| into.get(which).copied().unwrap_or(Address::NONE);
    let arguments = [
        partials.into(),
        stripes.into(),
        width.into(),
        (into.len() as u32).into(),
        at(0).into(),
        at(1).into(),
        at(2).into(),
    ];
    let grid = ([width.div_ceil(32), into.len() as u32, 1], 1024);
    launch(device, element, "finish_sums", grid, &arguments)
}
