//! Cross-entropy, distillation and the cosine, beside the CPU engine's and the definition in f64.

use crate::engine::DistillationWeights;
use crate::engine::cpu::loss as cpu;
use crate::engine::cuda::device::{Address, Element};
use crate::engine::cuda::kernels::{
    self, Cosine, CrossEntropy, DISTILLED, DistillationLoss, SCORED,
};
use crate::engine::simd::Simd;
use crate::error::Result;

use super::trial::{Trial, bound, indices, numbers, rounded};
use super::{Scale, Suite};

/// Rows, classes, and numbers from a row to the next: of whole vectors, of whole words, of neither.
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

/// Rows of logits with room behind each, poison there.
fn logits(trial: &Trial<'_>, (n, classes, stride): (usize, usize, usize)) -> Vec<f32> {
    let mut all = rounded(trial.element, &numbers(n * stride, 1));
    for row in all.chunks_exact_mut(stride) {
        row[..classes].iter_mut().for_each(|x| *x *= 4.0);
        row[classes..].fill(f32::NAN);
    }
    all
}

/// One for each row, of which one is right.
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
    rows.flat_map(|row| row[..classes].iter().copied())
        .collect()
}

/// What a kernel scored: words of a row, at one index of each row.
fn column(bytes: &[u8], words: usize, index: usize) -> Vec<u32> {
    let all = bytes.as_chunks::<4>().0;
    let rows = all.chunks_exact(words);
    rows.map(|row| u32::from_ne_bytes(row[index])).collect()
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}

pub fn cross_entropy(suite: &mut Suite<'_>) {
    for &shape in shapes(suite.scale) {
        for weight in [0.0, 0.37, 300.0] {
            let (n, classes, stride) = shape;
            let name = format!("{n} rows of {classes} in {stride}, weight {weight}");
            suite.case(&name, |trial| entropy_case(trial, shape, weight));
        }
    }
}

fn entropy_case(trial: &mut Trial<'_>, shape: (usize, usize, usize), weight: f32) -> Result<()> {
    let (element, (n, classes, stride)) = (trial.element, shape);
    let x = logits(trial, shape);
    let bias = numbers(classes, 2);
    let labels = labels(&x, &bias, shape);
    let a = CrossEntropy {
        n: n as u32,
        classes: classes as u32,
        stride: stride as u32,
        logits: trial.changing(element, &x)?,
        bias: trial.constant(Element::F32, &bias)?,
        labels: trial.words(&labels)?,
        weight,
        scored: trial.scratch(SCORED * n as u64)?,
    };
    kernels::cross_entropy(trial.device, element, &a)?;
    let scored = trial.bytes(a.scored, SCORED * n as u64)?;
    let Some([got]) = trial.outputs([(a.logits, element, n * stride)])? else {
        return Ok(());
    };
    let mut d = without_padding(&x, classes, stride);
    let (mut losses, mut right) = (Vec::new(), Vec::new());
    for (row, label) in d.chunks_exact_mut(classes).zip(&labels) {
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
            let x = |i: usize| f64::from(row[i]) + f64::from(bias[i]);
            let total: f64 = (0..classes).map(|i| x(i).exp()).sum();
            total.ln() - x(label as usize)
        })
        .collect();
    let told = floats(&column(&scored, 2, 0));
    trial.within("losses", &told, &losses, 1e-4);
    trial.within("losses, beside f64,", &told, &exact, 1e-4);
    let told: Vec<f32> = column(&scored, 2, 1).iter().map(|&x| x as f32).collect();
    trial.same("what is right", &told, &right);
    if weight == 0.0 {
        trial.same("logits", &got, &x);
    } else {
        let padding: Vec<f32> = got
            .chunks_exact(stride)
            .flat_map(|row| row[classes..].to_vec())
            .collect();
        trial.same("what lies behind", &padding, &vec![f32::NAN; padding.len()]);
        near_by_row(trial, &without_padding(&got, classes, stride), &d, classes);
    }
    Ok(())
}

/// Compares gradients row by row: one label's is far larger than all others together.
fn near_by_row(trial: &mut Trial<'_>, got: &[f32], expected: &[f32], width: usize) {
    trial.near("the gradient", got, expected);
    let small = |values: &[f32]| -> Vec<f32> {
        // Without the label's, which is the only one that can be below zero for certain.
        values.iter().map(|&d| d.max(0.0)).collect()
    };
    let (got, expected) = (small(got), small(expected));
    let largest = |row: &[f32]| row.iter().copied().fold(0.0, f32::max);
    let element = trial.element;
    for (got, expected) in got.chunks_exact(width).zip(expected.chunks_exact(width)) {
        // What f16 can hold only in part is no error of the kernel's.
        if element != Element::F16 || largest(expected) > 1e-3 {
            trial.within("one row's gradient", got, expected, 2.0 * bound(element));
        }
    }
}

pub fn distillation(suite: &mut Suite<'_>) {
    for &shape in shapes(suite.scale) {
        for temperature in [1.0, 2.5] {
            let (n, classes, stride) = shape;
            let name = format!("{n} rows of {classes} in {stride}, temperature {temperature}");
            suite.case(&name, |trial| distillation_case(trial, shape, temperature));
        }
    }
}

fn distillation_case(
    trial: &mut Trial<'_>,
    shape: (usize, usize, usize),
    temperature: f32,
) -> Result<()> {
    let (element, (n, classes, stride)) = (trial.element, shape);
    let x = logits(trial, shape);
    let bias = numbers(classes, 2);
    let teacher: Vec<f32> = numbers(n * classes, 3).iter().map(|x| 3.0 * x).collect();
    let labels = labels(&x, &bias, shape);
    let weights = DistillationWeights {
        temperature,
        soft: 0.6,
        hard: 0.3,
        cosine: 0.0,
    };
    let a = DistillationLoss {
        n: n as u32,
        classes: classes as u32,
        stride: stride as u32,
        logits: trial.changing(element, &x)?,
        bias: trial.constant(Element::F32, &bias)?,
        labels: trial.words(&labels)?,
        teacher: trial.constant(Element::F32, &teacher)?,
        weights,
        scored: trial.scratch(DISTILLED * n as u64)?,
    };
    kernels::distillation(trial.device, element, &a)?;
    let scored = trial.bytes(a.scored, DISTILLED * n as u64 - 4)?;
    let Some([got]) = trial.outputs([(a.logits, element, n * stride)])? else {
        return Ok(());
    };
    let mut d = without_padding(&x, classes, stride);
    let (mut hard, mut soft, mut right) = (Vec::new(), Vec::new(), Vec::new());
    let rows = d
        .chunks_exact_mut(classes)
        .zip(teacher.chunks_exact(classes));
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
    let told = |index: usize| floats(&column(&padded, words, index));
    trial.within("losses beside labels", &told(0), &hard, 1e-4);
    trial.within("losses beside the teacher", &told(2), &soft, 1e-3);
    let told: Vec<f32> = column(&padded, words, 1)
        .iter()
        .map(|&x| x as f32)
        .collect();
    trial.same("what is right", &told, &right);
    trial.near("the gradient", &without_padding(&got, classes, stride), &d);
    Ok(())
}

pub fn cosine(suite: &mut Suite<'_>) {
    for &width in suite.scale.widths() {
        for lengths in suite.scale.lengths() {
            let n = lengths.iter().sum();
            suite.case(&format!("{n} rows of {width}"), |trial| {
                cosine_case(trial, n, width)
            });
        }
    }
}

fn cosine_case(trial: &mut Trial<'_>, n: usize, width: usize) -> Result<()> {
    let element = trial.element;
    let own = rounded(element, &numbers(n * width, 1));
    let theirs = numbers(n * width, 2);
    let mut d = rounded(element, &numbers(n * width, 3));
    let weight = 5.0;
    let d_own: Address = trial.changing(element, &d)?;
    let a = Cosine {
        n: n as u32,
        width: width as u32,
        own: trial.constant(element, &own)?,
        theirs: trial.constant(Element::F32, &theirs)?,
        weight,
        d_own,
        scored: trial.empty(Element::F32, n)?,
    };
    kernels::cosine(trial.device, element, &a)?;
    let places = [(a.scored, Element::F32, n), (d_own, element, n * width)];
    let Some([scored, got]) = trial.outputs(places)? else {
        return Ok(());
    };
    let mut each = Vec::new();
    cpu::cosine(
        Simd::detect(),
        (&own, &theirs),
        width,
        weight,
        &mut d,
        &mut each,
    );
    trial.within("one minus the cosines", &scored, &each, 1e-4);
    trial.near("the gradient", &got, &d);
    Ok(())
}
