//! Biases and GELU: everything that works on each value alone, and the sums over rows that are the
//! biases' gradients.

use rayon::prelude::*;

use crate::engine::simd::{Simd, exp};

/// Rows that one task handles.
pub const ROWS: usize = 16;
/// Columns that one task handles where a sum goes over rows.
pub const COLUMNS: usize = 64;

/// The normal distribution function and density at `x`.
///
/// The function is formula 7.1.26 of Abramowitz and Stegun, "Handbook of mathematical functions",
/// whose error is below 1e-7; both need the same exponential.
#[inline(always)]
fn normal(x: f32) -> (f32, f32) {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let e = exp(-z * z);
    let p = 1.061_405_4;
    let p = p * t - 1.453_152;
    let p = p * t + 1.421_413_8;
    let p = p * t - 0.284_496_74;
    let p = p * t + 0.254_829_6;
    let tail = 0.5 * p * t * e;
    let below = if x < 0.0 { tail } else { 1.0 - tail };
    (below, e * 0.398_942_3)
}

/// `x += bias` in every row, then `y = x Φ(x)`: GELU in its exact form (arXiv 1606.08415).
pub fn bias_gelu(simd: Simd, x: &mut [f32], bias: &[f32], y: &mut [f32]) {
    let width = bias.len();
    x.par_chunks_mut(ROWS * width)
        .zip(y.par_chunks_mut(ROWS * width))
        .for_each(|(x, y)| {
            simd.run(|| {
                for (x, y) in x.chunks_exact_mut(width).zip(y.chunks_exact_mut(width)) {
                    for ((x, y), b) in x.iter_mut().zip(y).zip(bias) {
                        *x += b;
                        *y = *x * normal(*x).0;
                    }
                }
            });
        });
}

/// `d *= Φ(x) + x φ(x)`: the gradient of GELU, at the inputs `x` that [`bias_gelu`] left.
pub fn gelu_backward(simd: Simd, x: &[f32], d: &mut [f32]) {
    d.par_chunks_mut(1 << 13)
        .zip(x.par_chunks(1 << 13))
        .for_each(|(d, x)| {
            simd.run(|| {
                for (d, &x) in d.iter_mut().zip(x) {
                    let (below, density) = normal(x);
                    *d *= below + x * density;
                }
            });
        });
}

/// `x += bias` in every row.
pub fn add_bias(simd: Simd, x: &mut [f32], bias: &[f32]) {
    x.par_chunks_mut(ROWS * bias.len()).for_each(|x| {
        simd.run(|| {
            for x in x.chunks_exact_mut(bias.len()) {
                for (x, b) in x.iter_mut().zip(bias) {
                    *x += b;
                }
            }
        });
    });
}

/// `sums[j] += Σ x[row, first + j]` over the rows of a matrix `stride` wide: a bias's gradient.
pub fn add_column_sums(simd: Simd, x: &[f32], stride: usize, first: usize, sums: &mut [f32]) {
    sums.par_chunks_mut(COLUMNS)
        .enumerate()
        .for_each(|(stripe, sums)| {
            let first = first + stripe * COLUMNS;
            simd.run(|| {
                for row in x.chunks_exact(stride) {
                    for (sum, x) in sums.iter_mut().zip(&row[first..]) {
                        *sum += x;
                    }
                }
            });
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_and_its_gradient_are_those_of_the_definition() {
        let exact = |x: f64| 0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
        for width in [1, 15, 17, 31, 33, 127] {
            let (rows, bias) = (19, vec![0.25; width]);
            let inputs: Vec<f32> = (0..rows * width)
                .map(|i| (i as f32 * 0.61).sin() * 7.0)
                .collect();
            for (name, simd) in Simd::all() {
                let (mut x, mut y) = (inputs.clone(), vec![0.0; inputs.len()]);
                bias_gelu(simd, &mut x, &bias, &mut y);
                let mut d = vec![2.0; x.len()];
                gelu_backward(simd, &x, &mut d);
                for (((&input, &x), &y), &d) in inputs.iter().zip(&x).zip(&y).zip(&d) {
                    assert_eq!(x, input + 0.25);
                    let x = f64::from(x);
                    let slope = exact(x) + x * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
                    assert!(
                        (f64::from(y) - x * exact(x)).abs() < 1e-6,
                        "{name} {x}: {y}"
                    );
                    assert!((f64::from(d) - 2.0 * slope).abs() < 2e-6, "{name} {x}: {d}");
                }
            }
        }
    }

    #[test]
    fn column_sums_take_their_columns() {
        let (rows, stride) = (37, 300);
        let x: Vec<f32> = (0..rows * stride).map(|i| (i % 7) as f32).collect();
        for (first, width) in [(0, 300), (0, 1), (100, 100), (235, 65)] {
            for (name, simd) in Simd::all() {
                let mut sums = vec![1.0; width];
                add_column_sums(simd, &x, stride, first, &mut sums);
                for (j, &sum) in sums.iter().enumerate() {
                    let expected: f32 = (0..rows).map(|r| x[r * stride + first + j]).sum();
                    assert_eq!(
                        sum,
                        1.0 + expected,
                        "{name}: column {j} of {first}, {width}"
                    );
                }
            }
        }
    }
}
