//! Compares cross-entropy, distillation and the cosine with the CPU engine's and with their
//! definitions in f64.

use crate::engine::cpu::loss as cpu;
use crate::engine::cuda::device::{Address, Element};
use crate::engine::cuda::kernels::{
    self, Cosine, CrossEntropy, DISTILLED, DistillationLoss, SCORED, SpanLoss,
};
use crate::engine::simd::Simd;
use crate::engine::{DistillationWeights, objective};
use crate::error::Result;

use super::test_case::{TestCase, bound, indices, numbers, rounded};
use super::{Scale, TestCases};

/// Returns rows, classes, and the distance of rows: whole vectors, whole words, or neither.
fn shapes(scale: Scale) -> &'static [(usize, usize, usize)] {
    match scale {
        Scale::Full => &[
            (1, 2, 8),
            (33, 2, 2),
            (127, 9, 16),
            (31, 17, 17),
            (7, 203, 256),
            (127, 1000, 1000),
            (77, 8000, 8000),
            (33, 30522, 30528),
            (2, 30522, 30523),
            (3, 1000, 1002),
            (3, 119_547, 119_552),
        ],
        Scale::Small => &[
            (1, 2, 8),
            (5, 17, 17),
            (33, 30, 32),
            (3, 1000, 1002),
            (2, 1000, 1001),
            (2, 10_001, 10_008),
        ],
        Scale::Short => &[(3, 17, 17), (2, 203, 256)],
    }
}

/// Returns rows of logits with poison in the gaps.
fn logits(case: &TestCase<'_>, (n, classes, stride): (usize, usize, usize)) -> Vec<f32> {
    let mut all = rounded(case.element, &numbers(n * stride, 1));
    for row in all.chunks_exact_mut(stride) {
        row[..classes].iter_mut().for_each(|x| *x *= 4.0);
        row[classes..].fill(f32::NAN);
    }
    all
}

/// Returns a label per row, of which one is predicted correctly.
fn labels(x: &[f32], bias: &[f32], (n, classes, stride): (usize, usize, usize)) -> Vec<u32> {
    let mut labels = indices(n, classes as u32, 5);
    let row = &x[n / 2 * stride..][..classes];
    let sum = |&i: &u32| row[i as usize] + bias[i as usize];
    let best = (0..classes as u32).max_by(|a, b| sum(a).total_cmp(&sum(b)));
    labels[n / 2] = best.unwrap_or(0);
    labels
}

fn without_padding(all: &[f32], classes: usize, stride: usize) -> Vec<f32> {
    let rows = all.chunks_exact(stride);
    rows.flat_map(|row| row[..classes].iter().copied()).collect()
}

/// Returns one word of each row of a kernel's scores.
fn column(bytes: &[u8], words: usize, index: usize) -> Vec<u32> {
    let all = bytes.as_chunks::<4>().0;
    let rows = all.chunks_exact(words);
    rows.map(|row| u32::from_ne_bytes(row[index])).collect()
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}

pub fn cross_entropy(cases: &mut TestCases<'_>) {
    for &shape in shapes(cases.scale) {
        for weight in [0.0, 0.37, 300.0] {
            let (n, classes, stride) = shape;
            let name = format!("{n} rows of {classes} in {stride}, weight {weight}");
            cases.test(&name, |case| entropy_case(case, shape, weight));
        }
    }
    let shape = measured(cases.scale);
    cases.measure("a training step's", |case| entropy_case(case, shape, 0.37));
}

/// Returns the shape of the logits of a training step: 15 % of its tokens, BERT's vocabulary, padded.
fn measured(scale: Scale) -> (usize, usize, usize) {
    match scale {
        Scale::Full => (3686, 30_522, 30_528),
        Scale::Small | Scale::Short => (5, 203, 208),
    }
}

fn entropy_case(case: &mut TestCase<'_>, shape: (usize, usize, usize), weight: f32) -> Result<()> {
    let (element, (n, classes, stride)) = (case.element, shape);
    let x = logits(case, shape);
    let bias = numbers(classes, 2);
    let mut labels = labels(&x, &bias, shape);
    if n > 2 {
        // A row that counts for nothing.
        labels[0] = u32::MAX;
    }
    let a = CrossEntropy {
        n: n as u32,
        classes: classes as u32,
        stride: stride as u32,
        logits: case.changing(element, &x)?,
        bias: case.constant(Element::F32, &bias)?,
        labels: case.words(&labels)?,
        weight,
        scored: case.scratch(SCORED * n as u64)?,
    };
    kernels::cross_entropy(case.device, element, &a)?;
    let scored = case.bytes(a.scored, SCORED * n as u64)?;
    let Some([got]) = case.outputs([(a.logits, element, n * stride)])? else {
        return Ok(());
    };
    let mut d = without_padding(&x, classes, stride);
    let (mut losses, mut right) = (Vec::new(), Vec::new());
    for (row, label) in d.chunks_exact_mut(classes).zip(&labels) {
        if *label == u32::MAX {
            row.fill(0.0);
            losses.push(0.0);
            right.push(0.0);
            continue;
        }
        let label = std::slice::from_ref(label);
        let simd = Simd::detect();
        let scored = cpu::cross_entropy(simd, row, &bias, label, weight, &mut Vec::new());
        losses.push(scored.loss);
        right.push(scored.correct as f32);
    }
    let exact: Vec<f64> = x
        .chunks_exact(stride)
        .zip(&labels)
        .map(|(row, &label)| {
            if label == u32::MAX {
                return 0.0;
            }
            let x = |i: usize| f64::from(row[i]) + f64::from(bias[i]);
            let total: f64 = (0..classes).map(|i| x(i).exp()).sum();
            total.ln() - x(label as usize)
        })
        .collect();
    let got_losses = floats(&column(&scored, 2, 0));
    case.within("losses", &got_losses, &losses, 1e-4);
    case.within("losses against f64", &got_losses, &exact, 1e-4);
    let got_losses: Vec<f32> = column(&scored, 2, 1).iter().map(|&x| x as f32).collect();
    case.same("correct rows", &got_losses, &right);
    if weight == 0.0 {
        case.same("logits", &got, &x);
    } else {
        let padding: Vec<f32> =
            got.chunks_exact(stride).flat_map(|row| row[classes..].to_vec()).collect();
        case.same("the padding", &padding, &vec![f32::NAN; padding.len()]);
        near_by_row(case, &without_padding(&got, classes, stride), &d, classes);
    }
    Ok(())
}

/// Two columns of logits, and the places of an answer in each sequence.
pub fn span_loss(cases: &mut TestCases<'_>) {
    for lengths in cases.scale.lengths() {
        let name = format!("{lengths:?}");
        cases.test(&name, |case| span_case(case, lengths));
    }
    let (_, lengths) = cases.scale.measured();
    cases.measure("a training step's", |case| span_case(case, lengths));
}

fn span_case(case: &mut TestCase<'_>, lengths: &[usize]) -> Result<()> {
    const STRIDE: usize = 8;
    let sample = case.sample(lengths)?;
    let rows = sample.packed.rows();
    case.columns = STRIDE;
    let x: Vec<f32> = numbers(rows * STRIDE, 1).iter().map(|x| 4.0 * x).collect();
    let draws = indices(2 * lengths.len(), 1 << 16, 5);
    let spans: Vec<[u32; 2]> = lengths
        .iter()
        .zip(draws.as_chunks().0)
        .map(|(&length, pair): (_, &[u32; 2])| pair.map(|draw| draw % length as u32))
        .collect();
    let mut labels = spans.as_flattened().to_vec();
    // An end that is outside counts for nothing.
    labels[1] = u32::MAX;
    let bytes = SCORED * labels.len() as u64;
    let a = SpanLoss {
        batch: sample.on_device.batch,
        stride: STRIDE as u32,
        logits: case.changing(Element::F32, &x)?,
        labels: case.words(&labels)?,
        weight: 0.37,
        scored: case.scratch(bytes)?,
    };
    kernels::span_loss(case.device, &a)?;
    let scored = case.bytes(a.scored, bytes)?;
    let Some([got]) = case.outputs([(a.logits, Element::F32, rows * STRIDE)])? else {
        return Ok(());
    };
    let mut d: Vec<f32> = x.chunks_exact(STRIDE).flat_map(|row| row[..2].to_vec()).collect();
    // The objective's weight is that of the mean of both tokens.
    let all = objective::spans(&mut d, &sample.packed.cu_seqlens, &spans, 2.0 * a.weight);
    d[..2 * lengths[0]].chunks_exact_mut(2).for_each(|pair| pair[1] = 0.0);
    let left_out = f64::from(loss_of(&x, STRIDE, lengths[0], spans[0][1]));
    let losses = floats(&column(&scored, 2, 0));
    let sum: f64 = losses.iter().map(|&loss| f64::from(loss)).sum();
    case.within("the summed loss", &[sum as f32], &[2.0 * all.loss - left_out], 1e-5);
    let padding: Vec<f32> = got.chunks_exact(STRIDE).flat_map(|row| row[2..].to_vec()).collect();
    let expected: Vec<f32> = x.chunks_exact(STRIDE).flat_map(|row| row[2..].to_vec()).collect();
    case.same("the padding", &padding, &expected);
    near_by_row(case, &without_padding(&got, 2, STRIDE), &d, 2);
    Ok(())
}

/// Returns the loss of the last token of the first sequence's answer.
fn loss_of(x: &[f32], stride: usize, length: usize, label: u32) -> f32 {
    let column = |row: usize| f64::from(x[row * stride + 1]);
    let total: f64 = (0..length).map(|row| column(row).exp()).sum();
    (total.ln() - column(label as usize)) as f32
}

/// Compares gradients row by row: one label's is far larger than all others together.
fn near_by_row(case: &mut TestCase<'_>, got: &[f32], expected: &[f32], width: usize) {
    case.near("the gradient", got, expected);
    let small = |values: &[f32]| -> Vec<f32> {
        // Without the label's gradient, the only one that is always negative.
        values.iter().map(|&d| d.max(0.0)).collect()
    };
    let (got, expected) = (small(got), small(expected));
    let largest = |row: &[f32]| row.iter().copied().fold(0.0, f32::max);
    let element = case.element;
    for (got, expected) in got.chunks_exact(width).zip(expected.chunks_exact(width)) {
        // Underflow of f16 is not an error of the kernel.
        if element != Element::F16 || largest(expected) > 1e-3 {
            case.within("one row's gradient", got, expected, 2.0 * bound(element));
        }
    }
}

pub fn distillation(cases: &mut TestCases<'_>) {
    for &shape in shapes(cases.scale) {
        for temperature in [1.0, 2.5] {
            let (n, classes, stride) = shape;
            let name = format!("{n} rows of {classes} in {stride}, temperature {temperature}");
            cases.test(&name, |case| distillation_case(case, shape, temperature));
        }
    }
    let shape = measured(cases.scale);
    cases.measure("a training step's", |case| distillation_case(case, shape, 2.5));
}

fn distillation_case(
    case: &mut TestCase<'_>,
    shape: (usize, usize, usize),
    temperature: f32,
) -> Result<()> {
    let (element, (n, classes, stride)) = (case.element, shape);
    let x = logits(case, shape);
    let bias = numbers(classes, 2);
    let teacher: Vec<f32> = numbers(n * classes, 3).iter().map(|x| 3.0 * x).collect();
    let labels = labels(&x, &bias, shape);
    let weights = DistillationWeights { temperature, soft: 0.6, hard: 0.3, cosine: 0.0 };
    let a = DistillationLoss {
        n: n as u32,
        classes: classes as u32,
        stride: stride as u32,
        logits: case.changing(element, &x)?,
        bias: case.constant(Element::F32, &bias)?,
        labels: case.words(&labels)?,
        teacher: case.constant(Element::F32, &teacher)?,
        weights,
        scored: case.scratch(DISTILLED * n as u64)?,
    };
    kernels::distillation(case.device, element, &a)?;
    let scored = case.bytes(a.scored, DISTILLED * n as u64 - 4)?;
    let Some([got]) = case.outputs([(a.logits, element, n * stride)])? else {
        return Ok(());
    };
    let mut d = without_padding(&x, classes, stride);
    let (mut hard, mut soft, mut right) = (Vec::new(), Vec::new(), Vec::new());
    let rows = d.chunks_exact_mut(classes).zip(teacher.chunks_exact(classes));
    for ((row, theirs), label) in rows.zip(&labels) {
        let target = (std::slice::from_ref(label), theirs);
        let simd = Simd::detect();
        let scored = cpu::distillation(simd, row, &bias, target, weights, &mut Vec::new());
        hard.push(scored.hard.loss);
        soft.push(scored.soft);
        right.push(scored.hard.correct as f32);
    }
    let mut padded = scored;
    padded.extend([0; 4]);
    let words = DISTILLED as usize / 4;
    let got_losses = |index: usize| floats(&column(&padded, words, index));
    case.within("losses against labels", &got_losses(0), &hard, 1e-4);
    case.within("losses against the teacher", &got_losses(2), &soft, 1e-3);
    let got_losses: Vec<f32> = column(&padded, words, 1).iter().map(|&x| x as f32).collect();
    case.same("correct rows", &got_losses, &right);
    case.near("the gradient", &without_padding(&got, classes, stride), &d);
    Ok(())
}

pub fn cosine(cases: &mut TestCases<'_>) {
    cases.over_matrices(cosine_case);
}

fn cosine_case(case: &mut TestCase<'_>, n: usize, width: usize) -> Result<()> {
    let element = case.element;
    let own = rounded(element, &numbers(n * width, 1));
    let theirs = numbers(n * width, 2);
    let mut d = rounded(element, &numbers(n * width, 3));
    let weight = 5.0;
    let d_own: Address = case.changing(element, &d)?;
    let a = Cosine {
        n: n as u32,
        width: width as u32,
        own: case.constant(element, &own)?,
        theirs: case.constant(Element::F32, &theirs)?,
        weight,
        d_own,
        scored: case.empty(Element::F32, n)?,
    };
    kernels::cosine(case.device, element, &a)?;
    let places = [(a.scored, Element::F32, n), (d_own, element, n * width)];
    let Some([scored, got]) = case.outputs(places)? else {
        return Ok(());
    };
    let mut each = Vec::new();
    cpu::cosine(Simd::detect(), (&own, &theirs), width, weight, &mut d, &mut each);
    case.within("one minus the cosines", &scored, &each, 1e-4);
    case.near("the gradient", &got, &d);
    Ok(())
}
