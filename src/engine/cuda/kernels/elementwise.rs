//! Biases, GELU, tanh, ReLU, sums and number formats, which act on each value separately, and the sums over
//! rows that are the gradients of biases.

use super::sums::{column_grid, finish_sums};
use super::values;
use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::error::{Error, Result};

/// `out = GELU(x + bias)`, the exact GELU `x Φ(x)` (arXiv 1606.08415), for (n, width): `x` (E),
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
    let cost = Cost::of_values(&[(element, 2 * values(n, width))]);
    launch!(device, element, "bias_gelu", (blocks, threads), cost;
        n, width, x, bias, out)
}

/// The gradient of [`bias_gelu`]: turns `d` (E) from that of `out` into that of `x`; adds the sum
/// over the rows to `bias_gradient` (f32). `scratch`: [`partials`](super::partials)`(width)` bytes.
#[expect(clippy::too_many_arguments, reason = "each is another buffer of the pass")]
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
    let cost = Cost::of_values(&[(element, 3 * values(n, width))]);
    launch!(device, element, "gelu_backward", (blocks, threads), cost;
        n, width, x, bias, d, scratch)?;
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
    let cost = Cost::of_values(&[(element, 2 * values(n, width))]);
    launch!(device, element, "add_bias", (blocks, threads), cost;
        n, width, x, bias)
}

/// Adds the sum of `d` (E) over its n rows, `stride` elements apart, to `into` (f32). `scratch`:
/// [`partials`](super::partials)`(width)` bytes.
pub fn bias_gradient(
    device: &mut dyn Device,
    element: Element,
    (n, width, stride): (u32, u32, u32),
    d: Address,
    into: Address,
    scratch: Address,
) -> Result<()> {
    let (blocks, threads, stripes) = column_grid(element, n, width);
    let cost = Cost::of_values(&[(element, values(n, width))]);
    launch!(device, element, "column_sums", (blocks, threads), cost;
        n, width, stride, d, scratch)?;
    finish_sums(device, element, scratch, stripes, width, &[into])
}

/// Returns blocks and threads of a kernel over single values: 256 threads with a vector each.
fn flat_grid(count: u64) -> ([u32; 3], u32) {
    (([count.div_ceil(256 * 4).min(1 << 16) as u32, 1, 1]), 256)
}

/// `x = tanh(x + bias)`, or with `relu` `max(0, x + bias)`, in each of n rows, both (f32).
pub fn activation_bias(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    relu: bool,
    x: Address,
    bias: Address,
) -> Result<()> {
    let grid = flat_grid(u64::from(n) * u64::from(width));
    let relu = u32::from(relu);
    let cost = Cost::of_values(&[(Element::F32, 2 * values(n, width))]);
    launch!(device, element, "activation_bias", grid, cost;
        n, width, relu, x, bias)
}

/// The gradient of [`activation_bias`] whose result is `y`, both (n, width) (f32).
pub fn activation_backward(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    relu: bool,
    y: Address,
    d: Address,
) -> Result<()> {
    let grid = flat_grid(u64::from(n) * u64::from(width));
    let relu = u32::from(relu);
    let cost = Cost::of_values(&[(Element::F32, 3 * values(n, width))]);
    launch!(device, element, "activation_backward", grid, cost;
        n, width, relu, y, d)
}

/// `x += y`, (n, width): `x` (E), `y` of `y_element`, which is E or f32.
#[cfg(any(test, feature = "cli"))]
pub fn add(
    device: &mut dyn Device,
    element: Element,
    (n, width): (u32, u32),
    x: Address,
    (y, y_element): (Address, Element),
) -> Result<()> {
    let name = super::rows::of_either(element, y_element, ["add", "add_f32"])?;
    let grid = flat_grid(u64::from(n) * u64::from(width));
    let cost = Cost::of_values(&[(element, 2 * values(n, width)), (y_element, values(n, width))]);
    launch!(device, element, name, grid, cost;
        n, width, x, y)
}

/// `to = from` for `count` numbers; one side is f32.
pub fn cast(
    device: &mut dyn Device,
    count: u64,
    (from, from_element): (Address, Element),
    (to, to_element): (Address, Element),
) -> Result<()> {
    if from_element == to_element {
        return device.copy(from, to, count * from_element.bytes());
    }
    let (name, element) = match (from_element, to_element) {
        (Element::F32, to) => ("narrow", to),
        (from, Element::F32) => ("widen", from),
        (from, to) => {
            return Err(Error::Failed(format!("no kernel turns {from:?} into {to:?}")));
        }
    };
    // Counts of one batch's activations and of parameters fit into 32 bits; passed in two parts
    // anyway.
    let (low, high) = (count as u32, (count >> 32) as u32);
    let blocks = count.div_ceil(256 * 8).min(1 << 16) as u32;
    let cost = Cost::of_values(&[(from_element, count), (to_element, count)]);
    launch!(device, element, name, ([blocks, 1, 1], 256), cost;
        low, high, from, to)
}
