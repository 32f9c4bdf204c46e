//! What tasks minimise, over logits of a head: each function scores them and puts the gradient of
//! the loss in their place. Heads are small, so this runs on the host whatever the engine.

/// What a batch of predictions scored.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scored {
    /// Cross-entropy in nats, or squared error, summed.
    pub loss: f64,
    /// Rows whose largest logit is at the label.
    pub correct: u64,
}

/// Cross-entropy of rows of `classes` logits, and `weight` times its gradient in their place.
pub fn cross_entropy(logits: &mut [f32], classes: usize, labels: &[u32], weight: f32) -> Scored {
    let mut scored = Scored::default();
    for (row, &label) in logits.chunks_exact_mut(classes).zip(labels) {
        let label = label as usize;
        scored.correct += u64::from(row.iter().all(|&x| x <= row[label]));
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = row.iter().map(|&x| f64::from(x - top).exp()).sum();
        scored.loss += total.ln() - f64::from(row[label] - top);
        for x in row.iter_mut() {
            *x = (f64::from(*x - top).exp() / total) as f32 * weight;
        }
        row[label] -= weight;
    }
    scored
}

/// Squared error of one number a row, and `weight` times its gradient in their place.
pub fn squared_error(values: &mut [f32], targets: &[f32], weight: f32) -> Scored {
    let mut scored = Scored::default();
    for (x, &target) in values.iter_mut().zip(targets) {
        let difference = *x - target;
        scored.loss += f64::from(difference).powi(2);
        *x = 2.0 * weight * difference;
    }
    scored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss at `x + e` for each element against the gradient.
    fn check(values: &[f32], loss: impl Fn(&mut [f32]) -> f64) {
        let mut gradient = values.to_vec();
        loss(&mut gradient);
        for i in 0..values.len() {
            let at = |step: f32| {
                let mut x = values.to_vec();
                x[i] += step;
                loss(&mut x)
            };
            let h = 1.0 / 256.0;
            let slope = (at(h) - at(-h)) / (2.0 * f64::from(h));
            let got = f64::from(gradient[i]);
            assert!((got - slope).abs() < 1e-4, "{i}: {got}, {slope}");
        }
    }

    #[test]
    fn gradients_are_the_slopes_of_the_loss() {
        let values = [0.5, -1.25, 2.0, 0.0, 3.5, -0.75];
        check(&values, |x| cross_entropy(x, 3, &[1, 2], 1.0).loss);
        check(&values, |x| 0.5 * cross_entropy(x, 2, &[1, 0, 1], 0.5).loss);
        check(&values, |x| {
            squared_error(x, &[1.0, 0.0, 2.0, -1.0, 3.0, 0.5], 1.0).loss
        });
    }

    #[test]
    fn a_row_is_right_when_its_label_is_on_top() {
        let mut logits = [0.0, 3.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 9.0];
        assert_eq!(cross_entropy(&mut logits, 3, &[1, 1, 2], 1.0).correct, 2);
    }
}
