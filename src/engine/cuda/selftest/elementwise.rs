//! Compares biases, GELU, the pooler's activations and sums with the CPU engine's and with their
//! definitions in f64.

use crate::engine::cpu::elementwise::{self as cpu, Partials};
use crate::engine::cuda::device::{Address, Element};
use crate::engine::cuda::kernels;
use crate::engine::simd::Simd;

use super::TestCases;
use super::test_case::{numbers, rounded};

fn size(n: usize, width: usize) -> (u32, u32) {
    (n as u32, width as u32)
}

pub fn add_bias(cases: &mut TestCases<'_>) {
    cases.over_matrices(|case, n, width| {
        let element = case.element;
        let mut x = rounded(element, &numbers(n * width, 1));
        let bias = numbers(width, 2);
        let at = case.changing(element, &x)?;
        let bias_at = case.constant(Element::F32, &bias)?;
        kernels::add_bias(case.device, element, size(n, width), at, bias_at)?;
        let Some([got]) = case.outputs([(at, element, n * width)])? else {
            return Ok(());
        };
        cpu::add_bias(Simd::detect(), &mut x, &bias);
        case.same("the sum", &got, &rounded(element, &x));
        Ok(())
    });
}

pub fn bias_gelu(cases: &mut TestCases<'_>) {
    cases.over_matrices(|case, n, width| {
        let element = case.element;
        let mut x = rounded(element, &numbers(n * width, 1));
        // Far out, where the normal distribution is 0.
        x[0] = -40.0;
        let bias = numbers(width, 2);
        let at = case.constant(element, &x)?;
        let bias_at = case.constant(Element::F32, &bias)?;
        let out = case.empty(element, n * width)?;
        kernels::bias_gelu(case.device, element, size(n, width), at, bias_at, out)?;
        let Some([got]) = case.outputs([(out, element, n * width)])? else {
            return Ok(());
        };
        let mut expected = vec![0.0; n * width];
        cpu::bias_gelu(Simd::detect(), &x, &bias, &mut expected);
        case.near("GELU", &got, &expected);
        let exact: Vec<f64> = with_bias(&x, &bias).map(|x| x * normal(x).0).collect();
        case.near("GELU against f64", &got, &exact);
        Ok(())
    });
}

fn with_bias<'a>(x: &'a [f32], bias: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    let bias = bias.iter().cycle();
    x.iter().zip(bias).map(|(&x, &b)| f64::from(x) + f64::from(b))
}

/// Returns the normal distribution function and density at x.
fn normal(x: f64) -> (f64, f64) {
    let below = 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    (below, (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt())
}

pub fn gelu_backward(cases: &mut TestCases<'_>) {
    cases.over_matrices(|case, n, width| {
        let element = case.element;
        let x = rounded(element, &numbers(n * width, 1));
        let mut d = rounded(element, &numbers(n * width, 3));
        let (bias, mut sums) = (numbers(width, 2), numbers(width, 4));
        let at = case.constant(element, &x)?;
        let bias_at = case.constant(Element::F32, &bias)?;
        let d_at = case.changing(element, &d)?;
        let into = case.changing(Element::F32, &sums)?;
        let scratch = case.scratch(kernels::partials(width as u32))?;
        kernels::gelu_backward(
            case.device,
            element,
            size(n, width),
            at,
            bias_at,
            d_at,
            into,
            scratch,
        )?;
        let places = [(d_at, element, n * width), (into, Element::F32, width)];
        let Some([got, bias_gradient]) = case.outputs(places)? else {
            return Ok(());
        };
        let exact: Vec<f64> = with_bias(&x, &bias)
            .zip(&d)
            .map(|(x, &d)| f64::from(d) * (normal(x).0 + x * normal(x).1))
            .collect();
        let partials = &mut Partials::default();
        cpu::gelu_backward(Simd::detect(), &x, &bias, &mut d, &mut sums, partials);
        case.near("the gradient", &got, &d);
        case.near("the gradient against f64", &got, &exact);
        case.near("the bias's gradient", &bias_gradient, &sums);
        Ok(())
    });
}

pub fn bias_gradient(cases: &mut TestCases<'_>) {
    cases.over_matrices(|case, n, width| {
        let element = case.element;
        // Columns after the row's end don't count.
        let stride = width + 8 * (n % 2);
        let d = rounded(element, &numbers(n * stride, 1));
        let sums = numbers(width, 2);
        let at = case.constant(element, &d)?;
        let into = case.changing(Element::F32, &sums)?;
        let scratch = case.scratch(kernels::partials(width as u32))?;
        let shape = (n as u32, width as u32, stride as u32);
        kernels::bias_gradient(case.device, element, shape, at, into, scratch)?;
        let Some([got]) = case.outputs([(into, Element::F32, width)])? else {
            return Ok(());
        };
        let exact: Vec<f64> = (0..width)
            .map(|column| {
                let rows = d.chunks_exact(stride).map(|row| f64::from(row[column]));
                f64::from(sums[column]) + rows.sum::<f64>()
            })
            .collect();
        case.within("the sum against f64", &got, &exact, 1e-4);
        Ok(())
    });
}

/// Tests the copy and the triad, the references for other kernels' speed.
pub fn stream(cases: &mut TestCases<'_>) {
    for vectors in [1u32, 7, 2047, 2049, 20_000] {
        cases.test_aligned(&format!("{vectors} vectors"), |case| {
            let (single, count) = (Element::F32, 4 * vectors as usize);
            let (x, y) = (numbers(count, 1), numbers(count, 2));
            let (b, c) = (case.constant(single, &x)?, case.constant(single, &y)?);
            let (copy, triad) = (case.empty(single, count)?, case.empty(single, count)?);
            kernels::stream_copy(case.device, vectors, b, copy)?;
            kernels::stream_triad(case.device, vectors, 0.5, [b, c], triad)?;
            let places = [(copy, single, count), (triad, single, count)];
            if let Some([copy, triad]) = case.outputs(places)? {
                case.same("the copy", &copy, &x);
                // Half of a number is exact, so the order of operations doesn't matter.
                let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + 0.5 * y).collect();
                case.same("the triad", &triad, &sums);
            }
            Ok(())
        });
    }
}

pub fn tanh(cases: &mut TestCases<'_>) {
    activation(cases, false);
}

pub fn relu(cases: &mut TestCases<'_>) {
    activation(cases, true);
}

fn activation(cases: &mut TestCases<'_>, relu: bool) {
    cases.over_matrices(|case, n, width| {
        let (element, single) = (case.element, Element::F32);
        let (x, d) = (numbers(n * width, 1), numbers(n * width, 2));
        let bias = numbers(width, 3);
        let at = case.changing(single, &x)?;
        let bias_at = case.constant(single, &bias)?;
        let d_at = case.changing(single, &d)?;
        let size = size(n, width);
        kernels::activation_bias(case.device, element, size, relu, at, bias_at)?;
        kernels::activation_backward(case.device, element, size, relu, at, d_at)?;
        let places = [(at, single, n * width), (d_at, single, n * width)];
        let Some([y, dx]) = case.outputs(places)? else {
            return Ok(());
        };
        let value = |x: f64| if relu { x.max(0.0) } else { x.tanh() };
        let exact: Vec<f64> = with_bias(&x, &bias).map(value).collect();
        case.within("the activation against f64", &y, &exact, 1e-4);
        let slope = |(y, &d): (&f64, &f32)| match relu {
            false => f64::from(d) * (1.0 - y * y),
            true if *y > 0.0 => f64::from(d),
            true => 0.0,
        };
        let exact: Vec<f64> = exact.iter().zip(&d).map(slope).collect();
        case.within("its gradient against f64", &dx, &exact, 1e-4);
        Ok(())
    });
}

pub fn add(cases: &mut TestCases<'_>) {
    cases.over_matrices(|case, n, width| {
        let element = case.element;
        let x = numbers(n * width, 1);
        for other in [element, Element::F32] {
            let (x, y) = (rounded(element, &x), rounded(other, &numbers(n * width, 2)));
            let at = case.changing(element, &x)?;
            let y_at: Address = case.constant(other, &y)?;
            kernels::add(case.device, element, size(n, width), at, (y_at, other))?;
            if let Some([got]) = case.outputs([(at, element, n * width)])? {
                let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
                case.same("the sum", &got, &rounded(element, &sum));
            }
        }
        Ok(())
    });
}
