//! Biases and GELU, which act on each value separately, and the sums over rows that are the
//! gradients of biases.

use rayon::prelude::*;

use crate::engine::simd::{Simd, exp, polynomial};

use super::floats::Floats;
use super::kernel_times::Kernel;

/// Rows per task.
pub const ROWS: usize = 16;

/// Returns the normal distribution function at `x`, with an error of at most about 2e-7.
///
/// It needs no exponential: the error function is the quotient of two polynomials that Eigen and XLA use.
#[inline(always)]
fn distribution(x: f32) -> f32 {
    let z = (x * std::f32::consts::FRAC_1_SQRT_2).clamp(-4.0, 4.0);
    let square = z * z;
    let numerator = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_5e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    let denominator =
        [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329_2e-3, -1.426_473_9e-2];
    let erf = z * polynomial(square, numerator) / polynomial(square, denominator);
    erf.mul_add(0.5, 0.5)
}

/// Returns the normal distribution function and density at `x`, which share an exponential.
///
/// The function is formula 7.1.26 of Abramowitz and Stegun, "Handbook of mathematical functions",
/// with an error below 1e-7.
#[inline(always)]
fn normal(x: f32) -> (f32, f32) {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / z.mul_add(0.327_591_1, 1.0);
    let e = exp(-z * z);
    let p = polynomial(t, [1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6]);
    let tail = 0.5 * p * t * e;
    let below = if x < 0.0 { tail } else { 1.0 - tail };
    (below, e * 0.398_942_3)
}

/// `y = GELU(x + bias)` in every row, with the exact GELU `x Φ(x)` (arXiv 1606.08415).
pub fn bias_gelu(simd: Simd, x: &[f32], bias: &[f32], y: &mut [f32]) {
    let _timer = Kernel::Gelu.on_values(x.len(), 30, 2);
    let width = bias.len();
    x.par_chunks(ROWS * width).zip(y.par_chunks_mut(ROWS * width)).for_each(|(x, y)| {
        simd.run(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                    for ((x, y), b) in x.iter().zip(y).zip(bias) {
                        let x = x + b;
                        *y = x * distribution(x);
                    }
                }
            },
        );
    });
}

/// `d *= Φ(x + bias) + (x + bias) φ(x + bias)`: the gradient of [`bias_gelu`]. Adds the bias's
/// gradient, the sum of `d` over the rows, to `d_bias`.
pub fn gelu_backward(
    simd: Simd,
    x: &[f32],
    bias: &[f32],
    d: &mut [f32],
    d_bias: &mut [f32],
    partials: &mut Partials,
) {
    let _timer = Kernel::GeluGradient.on_values(x.len(), 40, 3);
    let width = bias.len();
    d.par_chunks_mut(STRIPE * width)
        .zip(x.par_chunks(STRIPE * width))
        .zip(partials.start(x.len() / width, width))
        .for_each(|((d, x), sums)| {
            simd.run(
                #[inline(always)]
                || {
                    sums.fill(0.0);
                    for (d, x) in d.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                        for (((d, x), b), sum) in d.iter_mut().zip(x).zip(bias).zip(&mut *sums) {
                            let x = x + b;
                            let (below, density) = normal(x);
                            *d *= below + x * density;
                            *sum += *d;
                        }
                    }
                },
            );
        });
    partials.add_to(simd, 0, d_bias);
}

/// `x += bias` in every row.
pub fn add_bias(simd: Simd, x: &mut [f32], bias: &[f32]) {
    let _timer = Kernel::Bias.on_values(x.len(), 1, 2);
    x.par_chunks_mut(ROWS * bias.len()).for_each(|x| {
        simd.run(
            #[inline(always)]
            || {
                for x in x.chunks_exact_mut(bias.len()) {
                    for (x, b) in x.iter_mut().zip(bias) {
                        *x += b;
                    }
                }
            },
        );
    });
}

/// Sums over the rows of a matrix: each task sums a stripe of rows, and the stripes are added in
/// order. The matrix is read sequentially, and the sums don't depend on the threads.
#[derive(Default)]
pub struct Partials {
    values: Floats,
    width: usize,
    stripes: usize,
}

/// Rows per stripe.
pub const STRIPE: usize = 32;

impl Partials {
    /// Returns uninitialised sums, one row per stripe of `rows` rows.
    pub fn start(
        &mut self,
        rows: usize,
        width: usize,
    ) -> impl IndexedParallelIterator<Item = &mut [f32]> {
        (self.width, self.stripes) = (width, rows.div_ceil(STRIPE));
        self.values.grow(self.stripes * width);
        self.values[..self.stripes * width].par_chunks_mut(width)
    }

    /// Adds the columns from `first` on to `sums`, stripe by stripe.
    pub fn add_to(&self, simd: Simd, first: usize, sums: &mut [f32]) {
        let values = &self.values[..self.stripes * self.width];
        simd.run(
            #[inline(always)]
            || {
                for stripe in values.chunks_exact(self.width) {
                    for (sum, x) in sums.iter_mut().zip(&stripe[first..]) {
                        *sum += x;
                    }
                }
            },
        );
    }

    /// Sums the columns of `x`, whose rows have `width` values, for [`Partials::add_to`].
    pub fn column_sums(&mut self, simd: Simd, x: &[f32], width: usize) {
        x.par_chunks(STRIPE * width).zip(self.start(x.len() / width, width)).for_each(
            |(x, sums)| {
                simd.run(
                    #[inline(always)]
                    || {
                        sums.fill(0.0);
                        for row in x.chunks_exact(width) {
                            for (sum, x) in sums.iter_mut().zip(row) {
                                *sum += x;
                            }
                        }
                    },
                );
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_and_its_gradient_are_those_of_the_definition() {
        let exact = |x: f64| 0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
        for width in [1, 15, 17, 31, 33, 127] {
            let (rows, bias) = (67, vec![0.25; width]);
            let inputs: Vec<f32> =
                (0..rows * width).map(|i| (i as f32 * 0.61).sin() * 7.0).collect();
            for (name, simd) in Simd::all() {
                let mut y = vec![0.0; inputs.len()];
                bias_gelu(simd, &inputs, &bias, &mut y);
                let (mut d, mut d_bias) = (vec![2.0; y.len()], vec![1.0; width]);
                let mut partials = Partials::default();
                gelu_backward(simd, &inputs, &bias, &mut d, &mut d_bias, &mut partials);
                for ((&input, &y), &d) in inputs.iter().zip(&y).zip(&d) {
                    let x = f64::from(input + 0.25);
                    let slope = exact(x) + x * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
                    assert!((f64::from(y) - x * exact(x)).abs() < 1e-6, "{name} {x}: {y}");
                    assert!((f64::from(d) - 2.0 * slope).abs() < 2e-6, "{name} {x}: {d}");
                }
                for (column, got) in d_bias.iter().enumerate() {
                    let sum: f32 = d.iter().skip(column).step_by(width).sum();
                    assert!((got - 1.0 - sum).abs() < 1e-4, "{name} {width}");
                }
            }
        }
    }

    #[test]
    fn column_sums_add_up_the_requested_columns() {
        let (rows, width) = (77, 300);
        let x: Vec<f32> = (0..rows * width).map(|i| (i % 7) as f32).collect();
        let mut partials = Partials::default();
        for (name, simd) in Simd::all() {
            // Sums of another matrix must not remain.
            partials.column_sums(simd, &vec![3.0; 999], 9);
            partials.column_sums(simd, &x, width);
            for (first, count) in [(0, 300), (0, 1), (100, 100), (235, 65)] {
                let mut sums = vec![1.0; count];
                partials.add_to(simd, first, &mut sums);
                for (j, &sum) in sums.iter().enumerate() {
                    let expected: f32 = (0..rows).map(|r| x[r * width + first + j]).sum();
                    assert_eq!(sum, 1.0 + expected, "{name}: column {j} of {first}");
                }
            }
        }
    }
}
