//! Softmax cross-entropy over rows of logits, and its gradient in their place.

use rayon::prelude::*;

use crate::engine::objective::Scored;

use crate::engine::simd::{Simd, exp, max, sum};

/// Rows that one task handles: their scores are added in order, whatever the threads.
const ROWS: usize = 4;

/// Adds `bias` to the logits (rows, classes), scores them, and puts `weight` times the gradient of
/// the loss in their place. `parts` is scratch.
pub fn cross_entropy(
    simd: Simd,
    logits: &mut [f32],
    bias: &[f32],
    labels: &[u32],
    weight: f32,
    parts: &mut Vec<Scored>,
) -> Scored {
    let classes = bias.len();
    parts.resize(labels.len().div_ceil(ROWS), Scored::default());
    logits
        .par_chunks_mut(ROWS * classes)
        .zip(labels.par_chunks(ROWS))
        .zip(&mut *parts)
        .for_each(|((logits, labels), part)| {
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
                        let total = sum(classes, |i| row[i]);
                        scored.loss += f64::from(top) + f64::from(total).ln() - f64::from(logit);
                        for x in row.iter_mut() {
                            *x *= weight / total;
                        }
                        row[label as usize] -= weight;
                    }
                    scored
                },
            );
        });
    parts.iter().fold(Scored::default(), |a, b| Scored {
        loss: a.loss + b.loss,
        correct: a.correct + b.correct,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_gradient_are_those_of_the_definition() {
        for classes in [2, 17, 31, 1000] {
            let rows = 9;
            let logits: Vec<f32> = (0..rows * classes)
                .map(|i| 5.0 * (i as f32 * 0.77).sin())
                .collect();
            let bias: Vec<f32> = (0..classes).map(|i| (i as f32).cos()).collect();
            let labels: Vec<u32> = (0..rows).map(|r| (r * 5 % classes) as u32).collect();
            let mut expected = 0.0;
            let mut gradients = Vec::new();
            for (row, &label) in logits.chunks(classes).zip(&labels) {
                let exps: Vec<f64> = row
                    .iter()
                    .zip(&bias)
                    .map(|(x, b)| f64::from(x + b).exp())
                    .collect();
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
                    assert!(
                        (f64::from(got) - exact).abs() < 1e-6,
                        "{name}: {got}, {exact}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_row_is_right_when_its_label_is_on_top() {
        let mut logits = vec![
            0.0, 3.0, 1.0, /* */ 2.0, 0.0, 0.0, /* */ 0.0, 0.0, 9.0,
        ];
        let scored = cross_entropy(
            Simd::detect(),
            &mut logits,
            &[0.0; 3],
            &[1, 1, 2],
            1.0,
            &mut Vec::new(),
        );
        assert_eq!(scored.correct, 2);
    }
}
