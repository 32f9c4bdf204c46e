//! LayerNorm, fused with the operations before it: bias, dropout and skip connection.

use std::ops::Range;

use rayon::prelude::*;

use super::dropout::{Mask, Rows};
use super::elementwise::{Partials, ROWS, STRIPE};
use super::kernel_times::Kernel;
use super::linear::{Linear, parameter_range};
use super::parts;
use crate::engine::simd::{Simd, sum};
use crate::model::Layout;

/// Scale, shift and epsilon.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    pub weight: &'a [f32],
    pub bias: &'a [f32],
    pub epsilon: f32,
}

/// A LayerNorm's scale and shift in the flat buffers.
#[derive(Debug, Clone)]
pub struct NormRanges {
    pub weight: Range<usize>,
    pub bias: Range<usize>,
}

impl NormRanges {
    pub fn find(layout: &Layout, name: &str) -> Self {
        Self {
            weight: parameter_range(layout, &format!("{name}.weight")),
            bias: parameter_range(layout, &format!("{name}.bias")),
        }
    }

    pub fn of<'a>(&self, values: &'a [f32], epsilon: f32) -> Norm<'a> {
        Norm { weight: &values[self.weight.clone()], bias: &values[self.bias.clone()], epsilon }
    }
}

/// A row's statistics for the backward pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    pub mean: f32,
    /// One over the standard deviation.
    pub rstd: f32,
}

impl Norm<'_> {
    /// Normalises one row.
    #[inline(always)]
    pub fn row(&self, x: &[f32], y: &mut [f32]) -> Statistics {
        let n = x.len() as f32;
        let mean = sum([x], |[x]| x) / n;
        let variance = sum([x], |[x]| (x - mean) * (x - mean)) / n;
        let rstd = 1.0 / (variance + self.epsilon).sqrt();
        for (((y, x), w), b) in y.iter_mut().zip(x).zip(self.weight).zip(self.bias) {
            *y = (x - mean) * rstd * w + b;
        }
        Statistics { mean, rstd }
    }

    /// Computes the gradient of one row's input from that of its output.
    #[inline(always)]
    pub fn row_backward(&self, x: &[f32], s: Statistics, dy: &[f32], dx: &mut [f32]) {
        let n = x.len() as f32;
        let normalised = |x: f32| (x - s.mean) * s.rstd;
        // First the gradient of the normalised values.
        for ((dx, dy), w) in dx.iter_mut().zip(dy).zip(self.weight) {
            *dx = dy * w;
        }
        let mean = sum([dx], |[d]| d) / n;
        let slope = sum([dx, x], |[d, x]| d * normalised(x)) / n;
        for (dx, x) in dx.iter_mut().zip(x) {
            *dx = s.rstd * (*dx - mean - normalised(*x) * slope);
        }
    }
}

/// The operations between a linear layer and the LayerNorm after it.
#[derive(Clone, Copy)]
pub struct SkipConnection<'a> {
    /// The linear layer's bias.
    pub bias: &'a [f32],
    pub dropout: Option<Mask>,
    pub rows: &'a Rows,
    pub residual: &'a [f32],
}

/// `x = dropout(x + bias) + residual`, `y = LayerNorm(x)`, all (rows, width).
pub fn forward(
    simd: Simd,
    skip: SkipConnection<'_>,
    norm: Norm<'_>,
    x: &mut [f32],
    statistics: &mut [Statistics],
    y: &mut [f32],
) {
    let _timer = Kernel::Norm.on_values(x.len(), 10, 4);
    let width = skip.bias.len();
    x.par_chunks_mut(ROWS * width)
        .zip(skip.residual.par_chunks(ROWS * width))
        .zip(statistics.par_chunks_mut(ROWS))
        .zip(y.par_chunks_mut(ROWS * width))
        .enumerate()
        .for_each(|(task, (((x, residual), statistics), y))| {
            simd.run(
                #[inline(always)]
                || {
                    let rows = x
                        .chunks_exact_mut(width)
                        .zip(residual.chunks_exact(width))
                        .zip(statistics)
                        .zip(y.chunks_exact_mut(width));
                    for (row, (((x, residual), statistics), y)) in rows.enumerate() {
                        for (x, b) in x.iter_mut().zip(skip.bias) {
                            *x += b;
                        }
                        if let Some(mask) = skip.dropout {
                            mask.apply_to_row(simd, skip.rows, task * ROWS + row, x);
                        }
                        for (x, r) in x.iter_mut().zip(residual) {
                            *x += r;
                        }
                        *statistics = norm.row(x, y);
                    }
                },
            );
        });
}

/// `y = LayerNorm(x)`, both (rows, width), without fused operations.
pub fn forward_alone(
    simd: Simd,
    norm: Norm<'_>,
    x: &[f32],
    statistics: &mut [Statistics],
    y: &mut [f32],
) {
    let _timer = Kernel::Norm.on_values(x.len(), 7, 2);
    let width = norm.weight.len();
    x.par_chunks(ROWS * width)
        .zip(statistics.par_chunks_mut(ROWS))
        .zip(y.par_chunks_mut(ROWS * width))
        .for_each(|((x, statistics), y)| {
            simd.run(
                #[inline(always)]
                || {
                    let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
                    for ((x, y), statistics) in rows.zip(statistics) {
                        *statistics = norm.row(x, y);
                    }
                },
            );
        });
}

/// Computes the gradient of the input from that of the output, `dy`. After [`forward`] it is also
/// that of the residual.
pub fn backward(
    simd: Simd,
    norm: Norm<'_>,
    (x, statistics): (&[f32], &[Statistics]),
    dy: &[f32],
    dx: &mut [f32],
) {
    let _timer = Kernel::NormGradient.on_values(x.len(), 12, 3);
    let width = norm.weight.len();
    x.par_chunks(ROWS * width)
        .zip(statistics.par_chunks(ROWS))
        .zip(dy.par_chunks(ROWS * width))
        .zip(dx.par_chunks_mut(ROWS * width))
        .for_each(|(((x, statistics), dy), dx)| {
            simd.run(
                #[inline(always)]
                || {
                    let rows = x
                        .chunks_exact(width)
                        .zip(statistics)
                        .zip(dy.chunks_exact(width))
                        .zip(dx.chunks_exact_mut(width));
                    for (((x, &s), dy), dx) in rows {
                        norm.row_backward(x, s, dy, dx);
                    }
                },
            );
        });
}

/// The sums over rows that a backward pass through a LayerNorm and the linear layer before it adds
/// to.
pub struct Sums<'a> {
    pub weight: &'a mut [f32],
    pub bias: &'a mut [f32],
    /// Bias of the linear layer.
    pub linear_bias: &'a mut [f32],
    pub partials: &'a mut Partials,
}

impl<'a> Sums<'a> {
    /// Returns the gradients of a LayerNorm and of the linear layer before it in the flat buffer.
    pub fn of(
        gradients: &'a mut [f32],
        norm: &NormRanges,
        linear: &Linear,
        partials: &'a mut Partials,
    ) -> Self {
        let ranges = [&norm.weight, &norm.bias, &linear.bias];
        let [weight, bias, linear_bias] = parts(gradients, ranges);
        Self { weight, bias, linear_bias, partials }
    }
}

/// Like [`backward`]; also computes the gradient of the linear layer's output, that of the residual
/// after dropout, and adds the gradients of scale, shift and the linear layer's bias.
#[expect(clippy::too_many_arguments, reason = "each is another buffer of the pass")]
pub fn backward_through_dropout(
    simd: Simd,
    dropout: Option<(Mask, &Rows)>,
    norm: Norm<'_>,
    (x, statistics): (&[f32], &[Statistics]),
    dy: &[f32],
    d_residual: &mut [f32],
    d_linear: &mut [f32],
    sums: Sums<'_>,
) {
    let _timer = Kernel::NormGradient.on_values(x.len(), 18, 4);
    let width = norm.weight.len();
    let partials = sums.partials.start(statistics.len(), 3 * width);
    x.par_chunks(STRIPE * width)
        .zip(statistics.par_chunks(STRIPE))
        .zip(dy.par_chunks(STRIPE * width))
        .zip(d_residual.par_chunks_mut(STRIPE * width))
        .zip(d_linear.par_chunks_mut(STRIPE * width))
        .zip(partials)
        .enumerate()
        .for_each(|(task, (((((x, statistics), dy), d_residual), d_linear), sums))| {
            simd.run(
                #[inline(always)]
                || {
                    sums.fill(0.0);
                    let (parameters, linear_bias) = sums.split_at_mut(2 * width);
                    let rows = x
                        .chunks_exact(width)
                        .zip(statistics)
                        .zip(dy.chunks_exact(width))
                        .zip(d_residual.chunks_exact_mut(width))
                        .zip(d_linear.chunks_exact_mut(width));
                    for (row, ((((x, &s), dy), d_residual), d_linear)) in rows.enumerate() {
                        norm.row_backward(x, s, dy, d_residual);
                        add_parameter_gradients_of_row(x, s, dy, parameters);
                        d_linear.copy_from_slice(d_residual);
                        if let Some((mask, rows)) = dropout {
                            mask.apply_to_row(simd, rows, task * STRIPE + row, d_linear);
                        }
                        for (sum, d) in linear_bias.iter_mut().zip(&*d_linear) {
                            *sum += d;
                        }
                    }
                },
            );
        });
    sums.partials.add_to(simd, 0, sums.weight);
    sums.partials.add_to(simd, width, sums.bias);
    sums.partials.add_to(simd, 2 * width, sums.linear_bias);
}

/// Adds a row's share of the gradients of scale and shift, adjacent in `sums`.
#[inline(always)]
fn add_parameter_gradients_of_row(x: &[f32], s: Statistics, dy: &[f32], sums: &mut [f32]) {
    let (weight, bias) = sums.split_at_mut(x.len());
    for (((w, b), x), dy) in weight.iter_mut().zip(bias).zip(x).zip(dy) {
        *w += dy * (x - s.mean) * s.rstd;
        *b += dy;
    }
}

/// Adds the gradients of scale and shift.
pub fn add_parameter_gradients(
    simd: Simd,
    (x, statistics): (&[f32], &[Statistics]),
    dy: &[f32],
    d_weight: &mut [f32],
    d_bias: &mut [f32],
    partials: &mut Partials,
) {
    let _timer = Kernel::NormGradient.on_values(x.len(), 5, 2);
    let width = d_weight.len();
    x.par_chunks(STRIPE * width)
        .zip(statistics.par_chunks(STRIPE))
        .zip(dy.par_chunks(STRIPE * width))
        .zip(partials.start(statistics.len(), 2 * width))
        .for_each(|(((x, statistics), dy), sums)| {
            simd.run(
                #[inline(always)]
                || {
                    sums.fill(0.0);
                    let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
                    for ((x, dy), &s) in rows.zip(statistics) {
                        add_parameter_gradients_of_row(x, s, dy, sums);
                    }
                },
            );
        });
    partials.add_to(simd, 0, d_weight);
    partials.add_to(simd, width, d_bias);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 0.73).sin()).collect()
    }

    /// Computes LayerNorm by its definition, in f64.
    fn exact(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        x.iter()
            .zip(weight.iter().zip(bias))
            .map(|(x, (&w, &b))| (x - mean) * scale * f64::from(w) + f64::from(b))
            .collect()
    }

    #[test]
    fn values_and_gradients_are_those_of_the_definition() {
        for width in [2, 15, 17, 31, 33, 127, 768] {
            let rows = 45;
            let (weight, shift) = (values(width, 1.0), values(width, 2.0));
            let (linear, bias) = (values(rows * width, 3.0), values(width, 4.0));
            let (residual, dy) = (values(rows * width, 5.0), values(rows * width, 6.0));
            let norm = Norm { weight: &weight, bias: &shift, epsilon: 1e-5 };
            for (name, simd) in Simd::all() {
                let mut x = linear.clone();
                let mut statistics = vec![Statistics::default(); rows];
                let mut y = vec![f32::NAN; rows * width];
                let skip = SkipConnection {
                    bias: &bias,
                    dropout: None,
                    rows: &Rows::default(),
                    residual: &residual,
                };
                forward(simd, skip, norm, &mut x, &mut statistics, &mut y);
                let saved = (&x[..], &statistics[..]);
                let mut dx = vec![f32::NAN; rows * width];
                backward(simd, norm, saved, &dy, &mut dx);
                let (mut dw, mut db) = (vec![1.0; width], vec![1.0; width]);
                let partials = &mut Partials::default();
                add_parameter_gradients(simd, saved, &dy, &mut dw, &mut db, partials);
                let [d_scale, d_shift, d_bias] = &mut [(); 3].map(|()| vec![1.0; width]);
                let [d_residual, d_linear] = &mut [(); 2].map(|()| vec![f32::NAN; rows * width]);
                let sums = Sums { weight: d_scale, bias: d_shift, linear_bias: d_bias, partials };
                backward_through_dropout(simd, None, norm, saved, &dy, d_residual, d_linear, sums);
                assert!(*d_residual == dx && *d_linear == dx, "{name} {width}");
                assert!(*d_scale == dw && *d_shift == db, "{name} {width}");
                for (column, got) in d_bias.iter().enumerate() {
                    let column = || dx.iter().skip(column).step_by(width);
                    let (sum, size): (f32, f32) = (column().sum(), column().map(|d| d.abs()).sum());
                    assert!((got - 1.0 - sum).abs() < 1e-5 * (1.0 + size), "{name} {width}");
                }
                let mut shift_gradient = vec![1.0; width];
                for row in 0..rows {
                    let at = row * width..(row + 1) * width;
                    for i in at.clone() {
                        assert_eq!(x[i], linear[i] + bias[i % width] + residual[i]);
                        shift_gradient[i % width] += dy[i];
                    }
                    let (x, dy) = (&x[at.clone()], &dy[at.clone()]);
                    let expected = exact(x, &weight, &shift);
                    for (got, expected) in y[at.clone()].iter().zip(&expected) {
                        assert!((f64::from(*got) - expected).abs() < 1e-5, "{name} {width}");
                    }
                    let loss = |x: &[f32]| -> f64 {
                        let y = exact(x, &weight, &shift);
                        y.iter().zip(dy).map(|(y, &d)| y * f64::from(d)).sum()
                    };
                    // A step that f32 represents exactly.
                    let h = 1.0 / 1024.0;
                    for i in (0..width).step_by(width.div_ceil(5)) {
                        let moved = |by: f32| {
                            let mut x = x.to_vec();
                            x[i] += by;
                            (loss(&x), f64::from(x[i]))
                        };
                        let ((up, above), (down, below)) = (moved(h), moved(-h));
                        let slope = (up - down) / (above - below);
                        let got = f64::from(dx[at.start + i]);
                        let error = (got - slope).abs();
                        // LayerNorm of two values is almost a step function: its slope is a
                        // difference of large numbers.
                        assert!(
                            error < if width == 2 { 2e-2 } else { 2e-3 } * slope.abs().max(1.0),
                            "{name} {width}: {got} {slope}"
                        );
                    }
                }
                for (got, expected) in db.iter().zip(&shift_gradient) {
                    assert!((got - expected).abs() < 1e-4, "{name} {width}");
                }
                let normalised = |i: usize| {
                    let s = statistics[i / width];
                    (x[i] - s.mean) * s.rstd
                };
                for (column, got) in dw.iter().enumerate() {
                    let sum: f32 =
                        (column..rows * width).step_by(width).map(|i| dy[i] * normalised(i)).sum();
                    assert!((got - 1.0 - sum).abs() < 1e-4, "{name} {width}");
                }
            }
        }
    }
}
