//! LayerNorm, fused with the operations before it: bias, dropout and skip connection.

use super::sums::{MULTIPROCESSORS, finish_sums};
use super::{Batch, SiteDropout, dropout_arguments, values, vector};
use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::error::{Error, Result};

/// Scale, shift (f32) and epsilon.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Norm {
    pub gain: Address,
    pub bias: Address,
    pub epsilon: f32,
}

/// `x = dropout(x + bias) + residual`, `out = LayerNorm(x)`, all (n, width).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NormForward {
    pub n: u32,
    pub width: u32,
    /// (E) A product; overwritten with the sum that is normalised, unless there is neither bias nor
    /// residual nor dropout.
    pub x: Address,
    /// (f32) or none.
    pub bias: Address,
    /// With the batch of the rows.
    pub dropout: Option<(Batch, SiteDropout)>,
    /// (E) or none.
    pub residual: Address,
    pub norm: Norm,
    /// (f32) Mean and reciprocal standard deviation of each row, for the backward pass.
    pub statistics: Address,
    /// (E)
    pub out: Address,
}

/// Rows per block of the forward pass, one per warp.
const FORWARD_ROWS: u32 = 8;

/// See [`NormForward`].
pub fn norm_forward(device: &mut dyn Device, element: Element, a: &NormForward) -> Result<()> {
    let grid = ([a.n.div_ceil(FORWARD_ROWS), 1, 1], 32 * FORWARD_ROWS);
    let given = |at: Address| u64::from(at != Address::NONE);
    let changes = given(a.bias) | given(a.residual) | u64::from(a.dropout.is_some());
    let matrices = 2 + given(a.residual) + changes;
    let cost = Cost::of_values(&[
        (element, matrices * values(a.n, a.width)),
        (Element::F32, 2 * u64::from(a.n)),
    ]);
    launch!(device, element, "norm_forward", grid, cost;
        a.n, a.width, a.x, a.bias, a.residual, a.norm.gain, a.norm.bias, a.norm.epsilon,
        a.statistics, a.out; dropout_arguments(a.dropout))
}

/// The gradient of [`NormForward`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NormBackward {
    pub n: u32,
    pub width: u32,
    /// (f32)
    pub gain: Address,
    /// (E) The normalised sum.
    pub sums: Address,
    /// (f32)
    pub statistics: Address,
    /// With the batch of the rows.
    pub dropout: Option<(Batch, SiteDropout)>,
    /// (E) May equal `d_residual`.
    pub d_out: Address,
    /// (E) Gradient of the sum, out.
    pub d_residual: Address,
    /// (E) The same after dropout, out; or none.
    pub d_linear: Address,
    /// (f32) Added to.
    pub gain_gradient: Address,
    /// (f32) Added to.
    pub bias_gradient: Address,
    /// (f32) Added to, or none.
    pub linear_bias_gradient: Address,
    /// Scratch of [`partials`](super::partials)`(width)` bytes.
    pub partials: Address,
}

/// See [`NormBackward`]. Returns an error for widths over 640 vectors of 16 bytes.
pub fn norm_backward(device: &mut dyn Device, element: Element, a: &NormBackward) -> Result<()> {
    backward(device, element, a, false)
}

/// Rows that a group of threads handles at a time.
const BACKWARD_ROWS: u32 = 2;
/// Maximum threads per block and per multiprocessor, limited by registers.
const BACKWARD_THREADS: u32 = 640;
/// [`norm_backward`]; with `drop_out`, dropout came after the LayerNorm, not before it.
pub(super) fn backward(
    device: &mut dyn Device,
    element: Element,
    a: &NormBackward,
    drop_out: bool,
) -> Result<()> {
    if a.n == 0 {
        return Ok(());
    }
    // A thread handles a vector of columns.
    let lanes = a.width.div_ceil(vector(element)).next_multiple_of(32);
    if lanes > BACKWARD_THREADS {
        return Err(Error::Failed(format!(
            "a LayerNorm {} wide is more than the CUDA engine can train: at most {}",
            a.width,
            BACKWARD_THREADS * vector(element)
        )));
    }
    let groups = (256 / lanes).max(1);
    let threads = groups * lanes;
    let together = MULTIPROCESSORS * (BACKWARD_THREADS / threads);
    let blocks = a.n.div_ceil(groups * BACKWARD_ROWS).min(together);
    let grid = ([blocks, 1, 1], threads);
    let matrices = 3 + u64::from(a.d_linear != Address::NONE);
    let cost = Cost::of_values(&[
        (element, matrices * values(a.n, a.width)),
        (Element::F32, 2 * u64::from(a.n)),
    ]);
    launch!(device, element, "norm_backward", grid, cost;
        a.n, a.width, lanes, a.gain, a.sums, a.statistics, a.d_out, a.d_residual, a.d_linear,
        a.partials, u32::from(drop_out); dropout_arguments(a.dropout))?;
    let into = [a.gain_gradient, a.bias_gradient, a.linear_bias_gradient];
    finish_sums(device, element, a.partials, blocks, a.width, &into)
}
