//! Compares LayerNorm and the operations before it with the CPU engine's and with the definition in
//! f64.

use crate::engine::cpu::elementwise::Partials;
use crate::engine::cpu::norm::{self as cpu, SkipConnection, Statistics, Sums};
use crate::engine::cuda::device::{Address, Element};
use crate::engine::cuda::kernels::{self, NormBackward, NormForward, norm_backward, norm_forward};
use crate::engine::simd::Simd;
use crate::error::Result;
use crate::random::Site;

use super::TestCases;
use super::test_case::{TestCase, numbers, rounded};

pub const EPSILON: f32 = 1e-12;
const SITE: Site = Site::FeedForwardDropout(2);

/// Returns statistics in the device's layout.
pub fn flat(statistics: &[Statistics]) -> Vec<f32> {
    statistics.iter().flat_map(|s| [s.mean, s.rstd]).collect()
}

/// Returns scales around 1 and shifts around 0.
pub fn scale_and_shift(width: usize) -> [Vec<f32>; 2] {
    let gain = numbers(width, 3).iter().map(|x| 1.0 + 0.3 * x).collect();
    [gain, numbers(width, 4)]
}

pub fn forward(cases: &mut TestCases<'_>) {
    for (width, lengths) in cases.scale.batches() {
        let name = format!("{width} wide, {lengths:?}, alone");
        cases.test(&name, |case| forward_case(case, width, lengths, None));
    }
    cases.over_batches(&[0.0, 0.1], |case, width, lengths, p| {
        forward_case(case, width, lengths, Some(p))
    });
}

/// Tests with bias, residual and dropout, or with none of them.
fn forward_case(
    case: &mut TestCase<'_>,
    width: usize,
    lengths: &[usize],
    p: Option<f64>,
) -> Result<()> {
    let element = case.element;
    case.columns = width;
    let sample = case.sample(lengths)?;
    let (n, simd) = (sample.packed.rows(), Simd::detect());
    let mut x = rounded(element, &numbers(n * width, 1));
    let residual = rounded(element, &numbers(n * width, 2));
    let [gain, shift] = scale_and_shift(width);
    let bias = numbers(width, 5);
    let (dropout, mask) = sample.dropout(SITE, p.unwrap_or(0.0));
    let at = case.changing(element, &x)?;
    let [bias_at, residual_at] = match p {
        Some(_) => [case.constant(Element::F32, &bias)?, case.constant(element, &residual)?],
        None => [Address::NONE; 2],
    };
    let a = NormForward {
        n: n as u32,
        width: width as u32,
        x: at,
        bias: bias_at,
        dropout: dropout.map(|d| (sample.on_device.batch, d)),
        residual: residual_at,
        norm: kernels::Norm {
            gain: case.constant(Element::F32, &gain)?,
            bias: case.constant(Element::F32, &shift)?,
            epsilon: EPSILON,
        },
        statistics: case.empty(Element::F32, 2 * n)?,
        out: case.empty(element, n * width)?,
    };
    norm_forward(case.device, element, &a)?;
    let got = case.outputs([
        (a.x, element, n * width),
        (a.statistics, Element::F32, 2 * n),
        (a.out, element, n * width),
    ])?;
    let Some([sums, statistics, out]) = got else {
        return Ok(());
    };
    let norm = cpu::Norm { weight: &gain, bias: &shift, epsilon: EPSILON };
    let (mut expected, mut y) = (vec![Statistics::default(); n], vec![0.0; n * width]);
    if p.is_some() {
        let skip =
            SkipConnection { bias: &bias, dropout: mask, rows: &sample.rows, residual: &residual };
        cpu::forward(simd, skip, norm, &mut x, &mut expected, &mut y);
        case.near("the sum", &sums, &x);
    } else {
        cpu::forward_alone(simd, norm, &x, &mut expected, &mut y);
        case.same("the input", &sums, &x);
    }
    case.near("statistics", &statistics, &flat(&expected));
    case.near("the output", &out, &y);
    let exact: Vec<f64> = x.chunks_exact(width).flat_map(|x| exact(x, &gain, &shift)).collect();
    case.near("the output against f64", &out, &exact);
    Ok(())
}

/// Computes LayerNorm by definition.
fn exact(x: &[f32], gain: &[f32], shift: &[f32]) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + f64::from(EPSILON)).sqrt();
    let one = |((&x, &g), &s): ((&f32, &f32), &f32)| {
        (f64::from(x) - mean) * scale * f64::from(g) + f64::from(s)
    };
    x.iter().zip(gain).zip(shift).map(one).collect()
}

pub fn backward(cases: &mut TestCases<'_>) {
    cases.over_batches(&[0.0, 0.1], backward_case);
}

fn backward_case(case: &mut TestCase<'_>, width: usize, lengths: &[usize], p: f64) -> Result<()> {
    let element = case.element;
    let sample = case.sample(lengths)?;
    let (n, simd) = (sample.packed.rows(), Simd::detect());
    let x = rounded(element, &numbers(n * width, 1));
    let d_out = rounded(element, &numbers(n * width, 2));
    let [gain, shift] = scale_and_shift(width);
    let norm = cpu::Norm { weight: &gain, bias: &shift, epsilon: EPSILON };
    let (mut statistics, mut y) = (vec![Statistics::default(); n], vec![0.0; n * width]);
    cpu::forward_alone(simd, norm, &x, &mut statistics, &mut y);
    let (dropout, mask) = sample.dropout(SITE, p);
    let mut sums = [5, 6, 7].map(|key| numbers(width, key));
    let d_at = case.changing(element, &d_out)?;
    // Without dropout, the gradient of the sum overwrites that of the output.
    let in_place = p == 0.0;
    let a = NormBackward {
        n: n as u32,
        width: width as u32,
        gain: case.constant(Element::F32, &gain)?,
        sums: case.constant(element, &x)?,
        statistics: case.constant(Element::F32, &flat(&statistics))?,
        dropout: dropout.map(|d| (sample.on_device.batch, d)),
        d_out: d_at,
        d_residual: match in_place {
            true => d_at,
            false => case.empty(element, n * width)?,
        },
        d_linear: case.empty(element, n * width)?,
        gain_gradient: case.changing(Element::F32, &sums[0])?,
        bias_gradient: case.changing(Element::F32, &sums[1])?,
        linear_bias_gradient: case.changing(Element::F32, &sums[2])?,
        partials: case.scratch(kernels::partials(width as u32))?,
    };
    norm_backward(case.device, element, &a)?;
    let got = case.outputs([
        (a.d_residual, element, n * width),
        (a.d_linear, element, n * width),
        (a.gain_gradient, Element::F32, width),
        (a.bias_gradient, Element::F32, width),
        (a.linear_bias_gradient, Element::F32, width),
    ])?;
    let Some([d_residual, d_linear, d_gain, d_shift, d_bias]) = got else {
        return Ok(());
    };
    let mut expected = [vec![0.0; n * width], vec![0.0; n * width]];
    let [for_residual, for_linear] = &mut expected;
    let [weight, bias, linear_bias] = &mut sums;
    cpu::backward_through_dropout(
        simd,
        mask.map(|mask| (mask, &sample.rows)),
        norm,
        (&x, &statistics),
        &d_out,
        for_residual,
        for_linear,
        Sums { weight, bias, linear_bias, partials: &mut Partials::default() },
    );
    case.near("the residual's gradient", &d_residual, &expected[0]);
    case.near("the product's gradient", &d_linear, &expected[1]);
    case.near("the scale's gradient", &d_gain, &sums[0]);
    case.near("the shift's gradient", &d_shift, &sums[1]);
    case.near("the bias's gradient", &d_bias, &sums[2]);
    Ok(())
}
