//! LayerNorm with what stands before it: bias, dropout and residual.

use super::elementwise::finish_sums;
use super::{Batch, Dropping, MULTIPROCESSORS, dropping, launch, vector};
use crate::engine::cuda::device::{Address, Device, Element};
use crate::error::{Error, Result};

/// Scale, shift (f32) and the number added to the variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    pub gain: Address,
    pub bias: Address,
    pub epsilon: f32,
}

/// `x = dropout(x + bias) + residual`, `out = LayerNorm(x)`, all (n, width).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormForward<'a> {
    pub n: u32,
    pub width: u32,
    /// (E) A product before, the sum that was normalised after. Unchanged where there is neither
    /// bias nor residual nor dropout.
    pub x: Address,
    /// (f32) or none.
    pub bias: Address,
    /// The batch whose rows these are.
    pub dropping: Option<(&'a Batch, &'a Dropping)>,
    /// (E) or none.
    pub residual: Address,
    pub norm: Norm,
    /// (f32) Mean and one over the standard deviation of each row, for the backward pass.
    pub statistics: Address,
    /// (E)
    pub out: Address,
}

/// Rows that a block of the forward pass handles, one by each warp.
const FORWARD_ROWS: u32 = 8;

/// See [`NormForward`].
pub fn norm_forward(device: &mut dyn Device, element: Element, a: &NormForward<'_>) -> Result<()> {
    let (batch, drops) = a.dropping.unzip();
    let mut arguments = vec![
        a.n.into(),
        a.width.into(),
        a.x.into(),
        a.bias.into(),
        a.residual.into(),
        a.norm.gain.into(),
        a.norm.bias.into(),
        a.norm.epsilon.into(),
        a.statistics.into(),
        a.out.into(),
    ];
    arguments.extend(dropping(batch, drops)?);
    let grid = ([a.n.div_ceil(FORWARD_ROWS), 1, 1], 32 * FORWARD_ROWS);
    launch(device, element, "norm_forward", grid, &arguments)
}

/// The gradient of [`NormForward`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormBackward<'a> {
    pub n: u32,
    pub width: u32,
    /// (f32)
    pub gain: Address,
    /// (E) What was normalised.
    pub sums: Address,
    /// (f32)
    pub statistics: Address,
    /// The batch whose rows these are.
    pub dropping: Option<(&'a Batch, &'a Dropping)>,
    /// (E) May be where `d_residual` is.
    pub d_out: Address,
    /// (E) Gradient of the sum, out.
    pub d_residual: Address,
    /// (E) The same through dropout, out; or none.
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

/// See [`NormBackward`]. Widths of more than 640 vectors of 16 bytes are refused.
pub fn norm_backward(
    device: &mut dyn Device,
    element: Element,
    a: &NormBackward<'_>,
) -> Result<()> {
    backward(device, element, a, false)
}

/// Rows that a group of threads handles at a time.
const BACKWARD_ROWS: u32 = 2;
/// Threads of a block at most, and of a multiprocessor: what its registers are enough for.
const BACKWARD_THREADS: u32 = 640;
/// [`norm_backward`]; `drop_out` says that dropout stood behind the LayerNorm and not before it.
pub(super) fn backward(
    device: &mut dyn Device,
    element: Element,
    a: &NormBackward<'_>,
    drop_out: bool,
) -> Result<()> {
    if a.n == 0 {
        return Ok(());
    }
    // A thread owns a vector of columns.
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
    let (batch, drops) = a.dropping.unzip();
    let mut arguments = vec![
        a.n.into(),
        a.width.into(),
        lanes.into(),
        a.gain.into(),
        a.sums.into(),
        a.statistics.into(),
        a.d_out.into(),
        a.d_residual.into(),
        a.d_linear.into(),
        a.partials.into(),
        u32::from(drop_out).into(),
    ];
    arguments.extend(dropping(batch, drops)?);
    let grid = ([blocks, 1, 1], threads);
    launch(device, element, "norm_backward", grid, &arguments)?;
    let into = [a.gain_gradient, a.bias_gradient, a.linear_bias_gradient];
    finish_sums(device, element, a.partials, blocks, a.width, &into)
}
