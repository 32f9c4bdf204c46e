//! Softmax cross-entropy over rows of logits, with or without a teacher's, and the cosine between
//! hidden states. Logits are overwritten with their gradients.

use rayon::prelude::*;

use crate::engine::DistillationWeights;
use crate::engine::distillation::EPSILON;
use crate::engine::objective::Scored;

use super::kernel_times::Kernel;
use crate::engine::simd::{Simd, exp, max, sum};

/// Rows per task. The tasks' scores are added in order, so that sums don't depend on the threads.
const ROWS: usize = 4;

/// Adds `bias` to the logits (rows, classes), scores them, and overwrites them with `weight` times
/// the gradient of the loss. `parts` is scratch.
pub fn cross_entropy(
    simd: Simd,
    logits: &mut [f32],
    bias: &[f32],
    labels: &[u32],
    weight: f32,
    parts: &mut Vec<Scored>,
) -> Scored {
    let _timer = Kernel::Loss.on_values(logits.len(), 20, 2);
    let classes = bias.len();
    parts.resize(labels.len().div_ceil(ROWS), Scored::default());
    logits.par_chunks_mut(ROWS * classes).zip(labels.par_chunks(ROWS)).zip(&mut *parts).for_each(
        |((logits, labels), part)| {
            *part = simd.run(
                #[inline(always)]
                || {
                    let mut scored = Scored::default();
                    for (row, &label) in logits.chunks_exact_mut(classes).zip(labels) {
                        for (x, b) in row.iter_mut().zip(bias) {
                            *x += b;
                        }
                        let top = max(row);
                        let logit = row[label as usize];
                        scored.correct += u64::from(logit == top);
                        for x in row.iter_mut() {
                            *x = exp(*x - top);
                        }
                        let total = sum([row], |[x]| x);
                        scored.loss += f64::from(top) + f64::from(total).ln() - f64::from(logit);
                        for x in row.iter_mut() {
                            *x *= weight / total;
                        }
                        row[label as usize] -= weight;
                    }
                    scored
                },
            );
        },
    );
    parts.iter().fold(Scored::default(), |a, b| Scored {
        loss: a.loss + b.loss,
        correct: a.correct + b.correct,
    })
}

/// Scores of masked tokens against labels and a teacher.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Distilled {
    /// Against the labels.
    pub hard: Scored,
    /// T² times the divergence of the student's from the teacher's distribution, summed.
    pub soft: f64,
}

/// Adds `bias` to the logits (rows, classes), scores them against `labels` and the teacher's
/// logits, and overwrites them with the gradient of the weighted loss. `parts` is scratch.
pub fn distillation(
    simd: Simd,
    logits: &mut [f32],
    bias: &[f32],
    (labels, teacher): (&[u32], &[f32]),
    weights: DistillationWeights,
    parts: &mut Vec<Distilled>,
) -> Distilled {
    let _timer = Kernel::Loss.on_values(logits.len(), 40, 3);
    let classes = bias.len();
    let temperature = weights.temperature;
    let t = 1.0 / temperature;
    parts.resize(labels.len().div_ceil(ROWS), Distilled::default());
    logits
        .par_chunks_mut(ROWS * classes)
        .zip(teacher.par_chunks(ROWS * classes))
        .zip(labels.par_chunks(ROWS))
        .zip(&mut *parts)
        .for_each(|(((logits, teacher), labels), part)| {
            *part = simd.run(
                #[inline(always)]
                || {
                    let mut scored = Distilled::default();
                    let rows = logits.chunks_exact_mut(classes).zip(teacher.chunks_exact(classes));
                    for ((row, theirs), &label) in rows.zip(labels) {
                        for (x, b) in row.iter_mut().zip(bias) {
                            *x += b;
                        }
                        let (top, their_top) = (max(row), max(theirs));
                        let logit = row[label as usize];
                        scored.hard.correct += u64::from(logit == top);
                        let total = sum([row], |[x]| exp(x - top));
                        let soft_total = sum([row], |[x]| exp((x - top) * t));
                        let their_total = sum([theirs], |[x]| exp((x - their_top) * t));
                        scored.hard.loss +=
                            f64::from(top) + f64::from(total).ln() - f64::from(logit);
                        // Σ p (ln p - ln q) with p the teacher's and q the student's probabilities.
                        let weighted = sum([row, theirs], |[own, theirs]| {
                            let theirs = (theirs - their_top) * t;
                            exp(theirs) * (theirs - (own - top) * t)
                        });
                        let divergence = f64::from(weighted) / f64::from(their_total)
                            + f64::from(soft_total).ln()
                            - f64::from(their_total).ln();
                        scored.soft += f64::from(temperature).powi(2) * divergence;
                        // T² comes from the loss, 1 / T from dividing the logits by T.
                        let soft = weights.soft * temperature;
                        let (a, b, c) =
                            (weights.hard / total, soft / soft_total, soft / their_total);
                        for (x, theirs) in row.iter_mut().zip(theirs) {
                            let own = *x - top;
                            *x =
                                a * exp(own) + b * exp(own * t) - c * exp((theirs - their_top) * t);
                        }
                        row[label as usize] -= weights.hard;
                    }
                    scored
                },
            );
        });
    parts.iter().fold(Distilled::default(), |a, b| Distilled {
        hard: Scored { loss: a.hard.loss + b.hard.loss, correct: a.hard.correct + b.hard.correct },
        soft: a.soft + b.soft,
    })
}

/// Returns one minus the cosine, summed over rows of `width` values of `own` and `theirs`; adds
/// `weight` times its gradient to `d_own`. `parts` is scratch.
pub fn cosine(
    simd: Simd,
    (own, theirs): (&[f32], &[f32]),
    width: usize,
    weight: f32,
    d_own: &mut [f32],
    parts: &mut Vec<f64>,
) -> f64 {
    parts.resize(own.len() / width, 0.0);
    d_own
        .par_chunks_mut(width)
        .zip(own.par_chunks(width))
        .zip(theirs.par_chunks(width))
        .zip(&mut *parts)
        .with_min_len(16)
        .for_each(|(((d, own), theirs), part)| {
            *part = simd.run(
                #[inline(always)]
                || {
                    let own_square = sum([own], |[x]| x * x) + EPSILON;
                    let their_square = sum([theirs], |[x]| x * x) + EPSILON;
                    let norms = own_square.sqrt() * their_square.sqrt();
                    let cosine = sum([own, theirs], |[x, y]| x * y) / norms;
                    let (towards, away) = (weight / norms, weight * cosine / own_square);
                    for (d, (own, theirs)) in d.iter_mut().zip(own.iter().zip(theirs)) {
                        *d += away * own - towards * theirs;
                    }
                    1.0 - f64::from(cosine)
                },
            );
        });
    parts.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_gradient_are_those_of_the_definition() {
        for classes in [2, 17, 31, 1000] {
            let rows = 9;
            let logits: Vec<f32> =
                (0..rows * classes).map(|i| 5.0 * (i as f32 * 0.77).sin()).collect();
            let bias: Vec<f32> = (0..classes).map(|i| (i as f32).cos()).collect();
            let labels: Vec<u32> = (0..rows).map(|r| (r * 5 % classes) as u32).collect();
            let mut expected = 0.0;
            let mut gradients = Vec::new();
            for (row, &label) in logits.chunks(classes).zip(&labels) {
                let exps: Vec<f64> =
                    row.iter().zip(&bias).map(|(x, b)| f64::from(x + b).exp()).collect();
                let total: f64 = exps.iter().sum();
                expected -= (exps[label as usize] / total).ln();
                gradients.extend(
                    exps.iter()
                        .enumerate()
                        .map(|(i, e)| 0.5 * (e / total - f64::from(u8::from(i == label as usize)))),
                );
            }
            for (name, simd) in Simd::all() {
                let mut d = logits.clone();
                let scored = cross_entropy(simd, &mut d, &bias, &labels, 0.5, &mut Vec::new());
                assert!((scored.loss - expected).abs() < 1e-5 * expected, "{name}");
                for (&got, &exact) in d.iter().zip(&gradients) {
                    assert!((f64::from(got) - exact).abs() < 1e-6, "{name}: {got}, {exact}");
                }
            }
        }
    }

    #[test]
    fn a_row_is_right_when_its_label_is_on_top() {
        let mut logits = vec![0.0, 3.0, 1.0, /* */ 2.0, 0.0, 0.0, /* */ 0.0, 0.0, 9.0];
        let scored =
            cross_entropy(Simd::detect(), &mut logits, &[0.0; 3], &[1, 1, 2], 1.0, &mut Vec::new());
        assert_eq!(scored.correct, 2);
    }

    /// Compares losses and gradients with their definitions in f64, by finite differences.
    #[test]
    fn distillation_is_that_of_the_definition() {
        let weights = DistillationWeights { temperature: 2.0, soft: 0.7, hard: 0.3, cosine: 0.0 };
        for classes in [2, 17, 40] {
            let rows = 6;
            let wave = |scale: f64, step: f64| -> Vec<f64> {
                let wave = (0..rows * classes).map(|i| scale * (i as f64 * step).sin());
                wave.map(|x| f64::from(x as f32)).collect()
            };
            let (own, theirs) = (wave(3.0, 0.77), wave(4.0, 0.31));
            let labels: Vec<u32> = (0..rows).map(|r| (r * 5 % classes) as u32).collect();
            let softmax = |row: &[f64], t: f64| -> Vec<f64> {
                let total: f64 = row.iter().map(|x| (x / t).exp()).sum();
                row.iter().map(|x| (x / t).exp() / total).collect()
            };
            let losses = |own: &[f64]| {
                let (mut hard, mut soft) = (0.0, 0.0);
                for (row, &label) in labels.iter().enumerate() {
                    let at = row * classes..(row + 1) * classes;
                    hard -= softmax(&own[at.clone()], 1.0)[label as usize].ln();
                    let (p, q) = (softmax(&theirs[at.clone()], 2.0), softmax(&own[at], 2.0));
                    let terms = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln());
                    soft += 4.0 * terms.sum::<f64>();
                }
                (hard, soft)
            };
            let (hard, soft) = losses(&own);
            let single = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<f32>>();
            for (name, simd) in Simd::all() {
                let mut d = single(&own);
                let bias = vec![0.0; classes];
                let targets = (&labels[..], &single(&theirs)[..]);
                let got = distillation(simd, &mut d, &bias, targets, weights, &mut Vec::new());
                assert!((got.hard.loss - hard).abs() < 1e-5 * hard, "{name}");
                assert!((got.soft - soft).abs() < 1e-5 * soft, "{name}");
                for (i, &got) in d.iter().enumerate() {
                    let at = |step: f64| {
                        let mut moved = own.clone();
                        moved[i] += step;
                        let (hard, soft) = losses(&moved);
                        0.3 * hard + 0.7 * soft
                    };
                    let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
                    assert!((f64::from(got) - slope).abs() < 2e-6, "{name}: {got}, {slope}");
                }
            }
        }
    }

    #[test]
    fn the_cosine_has_the_slope_of_its_differences() {
        let width = 19;
        let wave = |step: f64| -> Vec<f32> {
            let wave = (0..3 * width).map(|i| (i as f64 * step).sin() as f32);
            wave.collect()
        };
        let (own, theirs) = (wave(0.7), wave(0.4));
        let loss = |own: &[f64]| -> f64 {
            let rows = own.chunks(width).zip(theirs.chunks(width));
            rows.map(|(a, b)| {
                let b: Vec<f64> = b.iter().map(|&b| f64::from(b)).collect();
                let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                1.0 - dot(a, &b) / (dot(a, a) * dot(&b, &b)).sqrt()
            })
            .sum()
        };
        let exact: Vec<f64> = own.iter().map(|&x| f64::from(x)).collect();
        for (name, simd) in Simd::all() {
            let mut d = vec![1.0; own.len()];
            let rows = (&own[..], &theirs[..]);
            let got = cosine(simd, rows, width, 0.5, &mut d, &mut Vec::new());
            assert!((got - loss(&exact)).abs() < 1e-5, "{name}");
            for (i, &got) in d.iter().enumerate() {
                let at = |step: f64| {
                    let mut moved = exact.clone();
                    moved[i] += step;
                    loss(&moved)
                };
                let slope = 1.0 + 0.5 * (at(1e-5) - at(-1e-5)) / 2e-5;
                assert!((f64::from(got) - slope).abs() < 1e-6, "{name}: {got}, {slope}");
            }
        }
    }
}
