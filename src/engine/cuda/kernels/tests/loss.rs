use super::*;
use crate::engine::DistillationWeights;
use crate::engine::cpu::loss as cpu;
use crate::engine::cuda::kernels::{
    Cosine, CrossEntropy, DISTILLED, Distil, SCORED, cosine, cross_entropy, distillation,
};
use crate::engine::objective::Scored;
use crate::engine::simd::Simd;

/// Rows, classes, elements from a row to the next: of whole vectors, of whole words, of neither.
const SIZES: [(usize, usize, usize); 8] = [
    (1, 2, 2),
    (9, 2, 8),
    (5, 17, 17),
    (33, 30, 32),
    (3, 1000, 1002),
    (2, 1000, 1001),
    (4, 10_001, 10_008),
    (2, 30_522, 30_522),
];

/// Logits with `stride` from row to row, poison between them, and those alone.
fn strided(rows: usize, classes: usize, stride: usize, element: Element) -> (Vec<f32>, Vec<f32>) {
    let alone = wave(rows * classes, 0.77)
        .iter()
        .map(|x| 4.0 * x)
        .collect::<Vec<_>>();
    let alone = rounded(&alone, element);
    let mut all = vec![f32::NAN; rows * stride];
    for (to, from) in all.chunks_mut(stride).zip(alone.chunks(classes)) {
        to[..classes].copy_from_slice(from);
    }
    (all, alone)
}

fn without_gaps(values: &[f32], classes: usize, stride: usize) -> Vec<f32> {
    let gaps = values.chunks(stride).flat_map(|row| &row[classes..]);
    assert!(gaps.into_iter().all(|x| x.is_nan()), "written between rows");
    let rows = values.chunks(stride).flat_map(|row| &row[..classes]);
    rows.copied().collect()
}

#[test]
fn cross_entropy_is_the_cpu_engines() {
    let simd = Simd::detect();
    for mut bench in Bench::all() {
        let element = bench.element;
        for (rows, classes, stride) in SIZES {
            let (all, alone) = strided(rows, classes, stride, element);
            let bias = wave(classes, 0.9);
            let mut labels: Vec<u32> = (0..rows).map(|r| (r * 7919 % classes) as u32).collect();
            // One row is right.
            let best = |row: &[f32]| {
                let sums = row.iter().zip(&bias).map(|(x, b)| x + b);
                let sums: Vec<f32> = sums.collect();
                (0..classes)
                    .max_by(|&a, &b| sums[a].total_cmp(&sums[b]))
                    .expect("a class")
            };
            labels[rows / 2] = best(&alone[rows / 2 * classes..][..classes]) as u32;
            // With a weight as large as a loss scale makes it, and without any.
            for weight in [0.5, 300.0, 0.0] {
                let what = format!(
                    "{element:?} {rows} × {classes} of {stride} {weight} {}",
                    bench.shift
                );
                let mut expected = alone.clone();
                let mut parts = Vec::new();
                let scores =
                    cpu::cross_entropy(simd, &mut expected, &bias, &labels, weight, &mut parts);
                let at = CrossEntropy {
                    n: rows as u32,
                    classes: classes as u32,
                    stride: stride as u32,
                    logits: bench.activations(&all),
                    bias: bench.single(&bias),
                    labels: bench.numbers(&labels),
                    weight,
                    scored: bench.scratch(SCORED * rows as u64),
                };
                cross_entropy(&mut bench.device, element, &at).unwrap();
                let words = bench.taken_numbers(at.scored, 2 * rows);
                let got = words.as_chunks::<2>().0.iter();
                let got = got.fold(Scored::default(), |sum, row| Scored {
                    loss: sum.loss + f64::from(f32::from_bits(row[0])),
                    correct: sum.correct + u64::from(row[1]),
                });
                assert_eq!(got.correct, scores.correct, "{what}");
                assert!(got.correct > 0);
                assert!(
                    (got.loss - scores.loss).abs() < 1e-5 * scores.loss.max(1.0),
                    "{what}"
                );
                let gradient = bench.taken(at.logits, rows * stride);
                let gradient = without_gaps(&gradient, classes, stride);
                if weight == 0.0 {
                    assert_eq!(gradient, alone, "{what}");
                    continue;
                }
                // Relative to the weight: what is large is rounded.
                let scaled = |x: &[f32]| x.iter().map(|x| x / weight).collect::<Vec<_>>();
                let (gradient, expected) = (scaled(&gradient), scaled(&expected));
                let tolerance = match element {
                    Element::F32 => 2e-6,
                    Element::Bf16 => 4e-3,
                    Element::F16 => 5e-4,
                };
                assert_close(&gradient, &expected, tolerance, &what);
            }
        }
    }
}

#[test]
fn distillation_is_the_cpu_engines() {
    let simd = Simd::detect();
    let weights = DistillationWeights {
        temperature: 2.0,
        soft: 0.7,
        hard: 0.3,
        cosine: 0.0,
    };
    for mut bench in Bench::all() {
        let element = bench.element;
        for (rows, classes, stride) in SIZES {
            let what = format!("{element:?} {rows} × {classes} of {stride} {}", bench.shift);
            let (all, alone) = strided(rows, classes, stride, element);
            let (bias, teacher) = (wave(classes, 0.9), wave(rows * classes, 0.31));
            let labels: Vec<u32> = (0..rows).map(|r| (r * 7919 % classes) as u32).collect();
            let mut expected = alone.clone();
            let beside = (&labels[..], &teacher[..]);
            let mut parts = Vec::new();
            let scores = cpu::distillation(simd, &mut expected, &bias, beside, weights, &mut parts);
            let at = Distil {
                n: rows as u32,
                classes: classes as u32,
                stride: stride as u32,
                logits: bench.activations(&all),
                bias: bench.single(&bias),
                labels: bench.numbers(&labels),
                teacher: bench.single(&teacher),
                weights,
                scored: bench.scratch(DISTILLED * rows as u64),
            };
            distillation(&mut bench.device, element, &at).unwrap();
            let words = bench.taken_numbers(at.scored, 4 * rows);
            let (mut loss, mut soft, mut correct) = (0.0, 0.0, 0);
            for row in words.as_chunks::<4>().0 {
                loss += f64::from(f32::from_bits(row[0]));
                correct += u64::from(row[1]);
                soft += f64::from(f32::from_bits(row[2]));
            }
            assert_eq!(correct, scores.hard.correct, "{what}");
            let close = |a: f64, b: f64| (a - b).abs() < 1e-5 * b.max(1.0);
            assert!(close(loss, scores.hard.loss), "{what}: {loss}");
            assert!(close(soft, scores.soft), "{what}: {soft}");
            let gradient = bench.taken(at.logits, rows * stride);
            let gradient = without_gaps(&gradient, classes, stride);
            let tolerance = match element {
                Element::F32 => 2e-6,
                Element::Bf16 => 6e-3,
                Element::F16 => 8e-4,
            };
            assert_close(&gradient, &expected, tolerance, &what);
        }
    }
}

#[test]
fn the_cosine_is_the_cpu_engines() {
    let simd = Simd::detect();
    for mut bench in Bench::all() {
        let (element, e) = (bench.element, tolerance(bench.element));
        for (n, width) in [(1, 7), (31, 33), (9, 128), (5, 768), (3, 1030)] {
            let what = format!("{element:?} {n} × {width} {}", bench.shift);
            let own = rounded(&wave(n * width, 0.7), element);
            let theirs = wave(n * width, 0.69);
            let d = rounded(&wave(n * width, 0.31), element);
            let at = Cosine {
                n: n as u32,
                width: width as u32,
                own: bench.activations(&own),
                theirs: bench.single(&theirs),
                weight: 3.0,
                d_own: bench.activations(&d),
                scored: bench.out(n, Element::F32),
            };
            cosine(&mut bench.device, element, &at).unwrap();
            let mut expected = d.clone();
            let mut parts = Vec::new();
            cpu::cosine(simd, (&own, &theirs), width, 3.0, &mut expected, &mut parts);
            let parts: Vec<f32> = parts.iter().map(|&part| part as f32).collect();
            assert_close(&bench.taken_single(at.scored, n), &parts, 1e-5, &what);
            assert_close(&bench.taken(at.d_own, n * width), &expected, e, &what);
        }
    }
}
