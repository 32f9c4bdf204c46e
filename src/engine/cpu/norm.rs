//! LayerNorm, fused with what stands before it: bias, dropout and residual.

use rayon::prelude::*;

use super::dropout::{Mask, Rows};
use super::elementwise::{COLUMNS, ROWS};
use super::simd::{Simd, sum};

/// Scale, shift and the number added to the variance.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    pub weight: &'a [f32],
    pub bias: &'a [f32],
    pub epsilon: f32,
}

/// What a row's normalisation needs again in the backward pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    mean: f32,
    /// One over the standard deviation.
    rstd: f32,
}

impl Norm<'_> {
    /// Normalises one row.
    #[inline(always)]
    pub fn row(&self, x: &[f32], y: &mut [f32]) -> Statistics {
        let n = x.len() as f32;
        let mean = sum(x.len(), |i| x[i]) / n;
        let variance = sum(x.len(), |i| (x[i] - mean) * (x[i] - mean)) / n;
        let rstd = 1.0 / (variance + self.epsilon).sqrt();
        for (((y, x), w), b) in y.iter_mut().zip(x).zip(self.weight).zip(self.bias) {
            *y = (x - mean) * rstd * w + b;
        }
        Statistics { mean, rstd }
    }

    /// The gradient of one row's input from that of its output.
    #[inline(always)]
    pub fn row_backward(&self, x: &[f32], s: Statistics, dy: &[f32], dx: &mut [f32]) {
        let (n, w) = (x.len(), self.weight);
        let normalised = |i: usize| (x[i] - s.mean) * s.rstd;
        let mean = sum(n, |i| dy[i] * w[i]) / n as f32;
        let slope = sum(n, |i| dy[i] * w[i] * normalised(i)) / n as f32;
        for i in 0..n {
            dx[i] = s.rstd * (dy[i] * w[i] - mean - normalised(i) * slope);
        }
    }
}

/// What stands between a linear layer and the LayerNorm after it.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    pub bias: &'a [f32],
    pub dropout: Option<Mask>,
    pub rows: &'a Rows,
    pub residual: &'a [f32],
}

/// `x = dropout(x + bias) + residual`, `y = LayerNorm(x)`, all (rows, width).
pub fn forward(
    simd: Simd,
    before: Before<'_>,
    norm: Norm<'_>,
    x: &mut [f32],
    statistics: &mut [Statistics],
    y: &mut [f32],
) {
    let width = before.bias.len();
    x.par_chunks_mut(ROWS * width)
        .zip(before.residual.par_chunks(ROWS * width))
        .zip(statistics.par_chunks_mut(ROWS))
        .zip(y.par_chunks_mut(ROWS * width))
        .enumerate()
        .for_each(|(task, (((x, residual), statistics), y))| {
            simd.run(|| {
                let rows = x
                    .chunks_exact_mut(width)
                    .zip(residual.chunks_exact(width))
                    .zip(statistics)
                    .zip(y.chunks_exact_mut(width));
                for (row, (((x, residual), statistics), y)) in rows.enumerate() {
                    for (x, b) in x.iter_mut().zip(before.bias) {
                        *x += b;
                    }
                    if let Some(mask) = before.dropout {
                        mask.apply_to_row(before.rows, task * ROWS + row, x);
                    }
                    for (x, r) in x.iter_mut().zip(residual) {
                        *x += r;
                    }
                    *statistics = norm.row(x, y);
                }
            });
        });
}

/// `y = LayerNorm(x)`, both (rows, width), where nothing is fused.
pub fn forward_alone(
    simd: Simd,
    norm: Norm<'_>,
    x: &[f32],
    statistics: &mut [Statistics],
    y: &mut [f32],
) {
    let width = norm.weight.len();
    x.par_chunks(ROWS * width)
        .zip(statistics.par_chunks_mut(ROWS))
        .zip(y.par_chunks_mut(ROWS * width))
        .for_each(|((x, statistics), y)| {
            simd.run(|| {
                let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
                for ((x, y), statistics) in rows.zip(statistics) {
                    *statistics = norm.row(x, y);
                }
            });
        });
}

/// From the gradient `dy` of the output to that of the input: of the residual, where [`forward`]
/// has one.
pub fn backward(
    simd: Simd,
    norm: Norm<'_>,
    (x, statistics): (&[f32], &[Statistics]),
    dy: &[f32],
    dx: &mut [f32],
) {
    let width = norm.weight.len();
    x.par_chunks(ROWS * width)
        .zip(statistics.par_chunks(ROWS))
        .zip(dy.par_chunks(ROWS * width))
        .zip(dx.par_chunks_mut(ROWS * width))
        .for_each(|(((x, statistics), dy), dx)| {
            simd.run(|| {
                let rows = x
                    .chunks_exact(width)
                    .zip(statistics)
                    .zip(dy.chunks_exact(width))
                    .zip(dx.chunks_exact_mut(width));
                for (((x, &s), dy), dx) in rows {
                    norm.row_backward(x, s, dy, dx);
                }
            });
        });
}

/// [`backward`], and the gradient of the linear layer's output: that of the residual with dropout.
pub fn backward_through_dropout(
    simd: Simd,
    dropout: Option<(Mask, &Rows)>,
    norm: Norm<'_>,
    saved: (&[f32], &[Statistics]),
    dy: &[f32],
    d_residual: &mut [f32],
    d_linear: &mut [f32],
) {
    let width = norm.weight.len();
    backward(simd, norm, saved, dy, d_residual);
    d_linear
        .par_chunks_mut(ROWS * width)
        .zip(d_residual.par_chunks(ROWS * width))
        .enumerate()
        .for_each(|(task, (d_linear, d_residual))| {
            d_linear.copy_from_slice(d_residual);
            let Some((mask, rows)) = dropout else { return };
            simd.run(|| {
                for (row, d) in d_linear.chunks_exact_mut(width).enumerate() {
                    mask.apply_to_row(rows, task * ROWS + row, d);
                }
            });
        });
}

/// Adds the gradients of scale and shift.
pub fn add_parameter_gradients(
    simd: Simd,
    saved: (&[f32], &[Statistics]),
    dy: &[f32],
    d_weight: &mut [f32],
    d_bias: &mut [f32],
) {
    let width = d_weight.len();
    let (x, statistics) = saved;
    d_weight
        .par_chunks_mut(COLUMNS)
        .zip(d_bias.par_chunks_mut(COLUMNS))
        .enumerate()
        .for_each(|(stripe, (d_weight, d_bias))| {
            let columns = stripe * COLUMNS..stripe * COLUMNS + d_weight.len();
            simd.run(|| {
                let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
                for ((x, dy), s) in rows.zip(statistics) {
                    let (x, dy) = (&x[columns.clone()], &dy[columns.clone()]);
                    for i in 0..d_weight.len() {
                        d_weight[i] += dy[i] * (x[i] - s.mean) * s.rstd;
                        d_bias[i] += dy[i];
                    }
                }
            });
        });
}
