//! Biases, GELU, tanh and sums, beside the CPU engine's and the definitions in f64.

use crate::engine::cpu::elementwise::{self as cpu, Partials};
use crate::engine::cuda::device::{Address, Element};
use crate::engine::cuda::kernels;
use crate::engine::simd::Simd;
use crate::error::Result;

use super::Suite;
use super::trial::{Trial, numbers, rounded};

/// Runs a case for every width and number of rows.
fn each(suite: &mut Suite<'_>, case: impl Fn(&mut Trial<'_>, usize, usize) -> Result<()>) {
    for &width in suite.scale.widths() {
        for lengths in suite.scale.lengths() {
            let n = lengths.iter().sum();
            suite.case(&format!("{n} rows of {width}"), |trial| {
                case(trial, n, width)
            });
        }
    }
}

fn size(n: usize, width: usize) -> (u32, u32) {
    (n as u32, width as u32)
}

pub fn add_bias(suite: &mut Suite<'_>) {
    each(suite, |trial, n, width| {
        let element = trial.element;
        let mut x = rounded(element, &numbers(n * width, 1));
        let bias = numbers(width, 2);
        let at = trial.changing(element, &x)?;
        let bias_at = trial.constant(Element::F32, &bias)?;
        kernels::add_bias(trial.device, element, size(n, width), at, bias_at)?;
        let Some([got]) = trial.outputs([(at, element, n * width)])? else {
            return Ok(());
        };
        cpu::add_bias(Simd::detect(), &mut x, &bias);
        trial.same("the sum", &got, &rounded(element, &x));
        Ok(())
    });
}

pub fn bias_gelu(suite: &mut Suite<'_>) {
    each(suite, |trial, n, width| {
        let element = trial.element;
        let mut x = rounded(element, &numbers(n * width, 1));
        // Far out, where the normal distribution is 0.
        x[0] = -40.0;
        let bias = numbers(width, 2);
        let at = trial.constant(element, &x)?;
        let bias_at = trial.constant(Element::F32, &bias)?;
        let out = trial.empty(element, n * width)?;
        kernels::bias_gelu(trial.device, element, size(n, width), at, bias_at, out)?;
        let Some([got]) = trial.outputs([(out, element, n * width)])? else {
            return Ok(());
        };
        let mut expected = vec![0.0; n * width];
        cpu::bias_gelu(Simd::detect(), &x, &bias, &mut expected);
        trial.near("GELU", &got, &expected);
        let exact: Vec<f64> = with_bias(&x, &bias).map(|x| x * normal(x).0).collect();
        trial.near("GELU, beside f64,", &got, &exact);
        Ok(())
    });
}

fn with_bias<'a>(x: &'a [f32], bias: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    let bias = bias.iter().cycle();
    x.iter()
        .zip(bias)
        .map(|(&x, &b)| f64::from(x) + f64::from(b))
}

/// The normal distribution up to x, and its density there.
fn normal(x: f64) -> (f64, f64) {
    let below = 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    (below, (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt())
}

pub fn gelu_backward(suite: &mut Suite<'_>) {
    each(suite, |trial, n, width| {
        let element = trial.element;
        let x = rounded(element, &numbers(n * width, 1));
        let mut d = rounded(element, &numbers(n * width, 3));
        let (bias, mut sums) = (numbers(width, 2), numbers(width, 4));
        let at = trial.constant(element, &x)?;
        let bias_at = trial.constant(Element::F32, &bias)?;
        let d_at = trial.changing(element, &d)?;
        let into = trial.changing(Element::F32, &sums)?;
        let scratch = trial.scratch(kernels::partials(width as u32))?;
        kernels::gelu_backward(
            trial.device,
            element,
            size(n, width),
            at,
            bias_at,
            d_at,
            into,
            scratch,
        )?;
        let places = [(d_at, element, n * width), (into, Element::F32, width)];
        let Some([got, bias_gradient]) = trial.outputs(places)? else {
            return Ok(());
        };
        let exact: Vec<f64> = with_bias(&x, &bias)
            .zip(&d)
            .map(|(x, &d)| f64::from(d) * (normal(x).0 + x * normal(x).1))
            .collect();
        let partials = &mut Partials::default();
        cpu::gelu_backward(Simd::detect(), &x, &bias, &mut d, &mut sums, partials);
        trial.near("the gradient", &got, &d);
        trial.near("the gradient, beside f64,", &got, &exact);
        trial.near("the bias' gradient", &bias_gradient, &sums);
        Ok(())
    });
}

pub fn bias_gradient(suite: &mut Suite<'_>) {
    each(suite, |trial, n, width| {
        let element = trial.element;
        // Columns behind the row's end count for nothing.
        let stride = width + 8 * (n % 2);
        let d = rounded(element, &numbers(n * stride, 1));
        let sums = numbers(width, 2);
        let at = trial.constant(element, &d)?;
        let into = trial.changing(Element::F32, &sums)?;
        let scratch = trial.scratch(kernels::partials(width as u32))?;
        let shape = (n as u32, width as u32, stride as u32);
        kernels::bias_gradient(trial.device, element, shape, at, into, scratch)?;
        let Some([got]) = trial.outputs([(into, Element::F32, width)])? else {
            return Ok(());
        };
        let exact: Vec<f64> = (0..width)
            .map(|column| {
                let rows = d.chunks_exact(stride).map(|row| f64::from(row[column]));
                f64::from(sums[column]) + rows.sum::<f64>()
            })
            .collect();
        trial.within("the sum, beside f64,", &got, &exact, 1e-4);
        Ok(())
    });
}

/// The copy and the triad that other kernels are measured by.
pub fn stream(suite: &mut Suite<'_>) {
    for vectors in [1u32, 7, 2047, 2049, 20_000] {
        suite.aligned_case(&format!("{vectors} vectors"), |trial| {
            let (single, count) = (Element::F32, 4 * vectors as usize);
            let (x, y) = (numbers(count, 1), numbers(count, 2));
            let (b, c) = (trial.constant(single, &x)?, trial.constant(single, &y)?);
            let (copy, triad) = (trial.empty(single, count)?, trial.empty(single, count)?);
            kernels::stream_copy(trial.device, vectors, b, copy)?;
            kernels::stream_triad(trial.device, vectors, 0.5, [b, c], triad)?;
            let places = [(copy, single, count), (triad, single, count)];
            if let Some([copy, triad]) = trial.outputs(places)? {
                trial.same("the copy", &copy, &x);
                // Half of a number is exact: nothing depends on how it is added.
                let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + 0.5 * y).collect();
                trial.same("the triad", &triad, &sums);
            }
            Ok(())
        });
    }
}

pub fn tanh(suite: &mut Suite<'_>) {
    each(suite, |trial, n, width| {
        let (element, single) = (trial.element, Element::F32);
        let (x, d) = (numbers(n * width, 1), numbers(n * width, 2));
        let bias = numbers(width, 3);
        let at = trial.changing(single, &x)?;
        let bias_at = trial.constant(single, &bias)?;
        let d_at = trial.changing(single, &d)?;
        kernels::tanh_bias(trial.device, element, size(n, width), at, bias_at)?;
        kernels::tanh_backward(trial.device, element, size(n, width), at, d_at)?;
        let places = [(at, single, n * width), (d_at, single, n * width)];
        let Some([y, dx]) = trial.outputs(places)? else {
            return Ok(());
        };
        let exact: Vec<f64> = with_bias(&x, &bias).map(f64::tanh).collect();
        trial.within("tanh, beside f64,", &y, &exact, 1e-4);
        let slope = |(y, &d): (&f64, &f32)| f64::from(d) * (1.0 - y * y);
        let exact: Vec<f64> = exact.iter().zip(&d).map(slope).collect();
        trial.within("its gradient, beside f64,", &dx, &exact, 1e-4);
        Ok(())
    });
}

pub fn add(suite: &mut Suite<'_>) {
    each(suite, |trial, n, width| {
        let element = trial.element;
        let x = numbers(n * width, 1);
        for other in [element, Element::F32] {
            let (x, y) = (rounded(element, &x), rounded(other, &numbers(n * width, 2)));
            let at = trial.changing(element, &x)?;
            let y_at: Address = trial.constant(other, &y)?;
            kernels::add(trial.device, element, size(n, width), at, (y_at, other))?;
            if let Some([got]) = trial.outputs([(at, element, n * width)])? {
                let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
                trial.same("the sum", &got, &rounded(element, &sum));
            }
        }
        Ok(())
    });
}
