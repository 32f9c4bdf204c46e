//! Biases, GELU and tanh: everything that works on each value alone, and the sums over rows that are
//! the biases' gradients.

use super::{BACKWARD_BLOCKS, launch, vector};
use crate::engine::cuda::device::{Address, Device, Element};
use crate::error::Result;

/// Threads of a block that works on columns; each owns a vector of them.
const COLUMN_THREADS: u32 = 128;
/// Blocks that such a kernel asks for: eight a multiprocessor of the largest GPUs.
const COLUMN_BLOCKS: u32 = 1056;
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
    let norms = u64::from(BACKWARD_BLOCKS) * 3 * u64::from(width);
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

/// `out = GELU(x + bias)`, the exact form `x Φ(x)` (arXiv 1606.08415), for (n, width): `x` (E),
/// `bias` (f32), `out` (E).
pub fn bias_gelu(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    x: Address,
    bias: Address,
    out: Address,
) -> Result<()> {
    let (blocks, threads, _) = column_grid(element, n, width);
    let arguments = [n.into(), width.into(), x.into(), bias.into(), out.into()];
    launch(device, element, "bias_gelu", (blocks, threads), &arguments)
}

/// The gradient of [`bias_gelu`]: `d` (E) from that of `out` to that of `x`, in place; adds the sum
/// over the rows to `bias_gradient` (f32). `scratch`: [`partials`]`(width)` bytes.
#[expect(
    clippy::too_many_arguments,
    reason = "each is another buffer of the pass"
)]
pub fn gelu_backward(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    x: Address,
    bias: Address,
    d: Address,
    bias_gradient: Address,
    scratch: Address,
) -> Result<()> {
    let (blocks, threads, stripes) = column_grid(element, n, width);
    let arguments = [
        n.into(),
        width.into(),
        x.into(),
        bias.into(),
        d.into(),
        scratch.into(),
    ];
    launch(
        device,
        element,
        "gelu_backward",
        (blocks, threads),
        &arguments,
    )?;
    finish_sums(device, element, scratch, stripes, width, &[bias_gradient])
}

/// `x += bias` in each of n rows; `x` (E), `bias` (f32).
pub fn add_bias(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    x: Address,
    bias: Address,
) -> Result<()> {
    let (blocks, threads, _) = column_grid(element, n, width);
    let arguments = [n.into(), width.into(), x.into(), bias.into()];
    launch(device, element, "add_bias", (blocks, threads), &arguments)
}

/// Adds the sum of `d` (E) over its n rows, `stride` elements one from the other, to `into` (f32).
/// `scratch`: [`partials`]`(width)` bytes.
pub fn bias_gradient(
    device: &mut dyn Device,
    element: Element,
    (n, width, stride): (u32, u32, u32),
    d: Address,
    into: Address,
    scratch: Address,
) -> Result<()> {
    let (blocks, threads, stripes) = column_grid(element, n, width);
    let arguments = [
        n.into(),
        width.into(),
        stride.into(),
        d.into(),
        scratch.into(),
    ];
    launch(
        device,
        element,
        "column_sums",
        (blocks, threads),
        &arguments,
    )?;
    finish_sums(device, element, scratch, stripes, width, &[into])
}

/// Blocks of a kernel that works on single numbers, of 256 threads with a vector each.
fn flat_grid(count: u64) -> ([u32; 3], u32) {
    (([count.div_ceil(256 * 4).min(1 << 16) as u32, 1, 1]), 256)
}

/// `x = tanh(x + bias)` in each of n rows, both (f32).
pub fn tanh_bias(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    x: Address,
    bias: Address,
) -> Result<()> {
    let arguments = [n.into(), width.into(), x.into(), bias.into()];
    let grid = flat_grid(u64::from(n) * u64::from(width));
    launch(device, element, "tanh_bias", grid, &arguments)
}

/// `d *= 1 - y²`, the gradient of [`tanh_bias`], both (n, width) (f32).
pub fn tanh_backward(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    y: Address,
    d: Address,
) -> Result<()> {
    let arguments = [n.into(), width.into(), y.into(), d.into()];
    let grid = flat_grid(u64::from(n) * u64::from(width));
    launch(device, element, "tanh_backward", grid, &arguments)
}

/// `x += y`, (n, width): `x` (E), `y` of `y_element`, which is E or f32.
pub fn add(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    x: Address,
    (y, y_element): (Address, Element),
) -> Result<()> {
    let name = super::rows::of_either(element, y_element, ["add", "add_f32"])?;
    let arguments = [n.into(), width.into(), x.into(), y.into()];
    let grid = flat_grid(u64::from(n) * u64::from(width));
    launch(device, element, name, grid, &arguments)
}
