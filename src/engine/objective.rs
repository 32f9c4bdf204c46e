//! The losses of the tasks: each function scores the logits of a head and overwrites them with the
//! gradient of the loss, on the host. The CUDA engine has its own cross-entropy against [`Labels`].

/// The scores of a batch of predictions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scored {
    /// Cross-entropy in nats, or squared error, summed.
    pub loss: f64,
    /// Rows whose largest logit is that of the label.
    pub correct: u64,
}

/// What cross-entropy compares with.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// The class of each row of logits.
    Classes(&'a [u32]),
    /// The class of each row of logits, or none.
    Rows(&'a [Option<u32>]),
    /// The first and the last token of each sequence's answer.
    Spans(&'a [[u32; 2]]),
}

impl Labels<'_> {
    /// Scores (rows, `outputs`) logits and overwrites them with `weight` times the gradient.
    pub fn score(
        self,
        logits: &mut [f32],
        cu_seqlens: &[u32],
        outputs: usize,
        weight: f32,
    ) -> Scored {
        match self {
            Self::Classes(labels) => cross_entropy(logits, outputs, labels, weight),
            Self::Rows(labels) => {
                labelled_cross_entropy(logits, outputs, labels.iter().copied(), weight)
            }
            Self::Spans(all) => spans(logits, cu_seqlens, all, weight),
        }
    }
}

/// Scores rows of `classes` logits by cross-entropy and overwrites them with `weight` times its
/// gradient.
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

/// Scores one value per row by squared error and overwrites it with `weight` times its gradient.
pub fn squared_error(values: &mut [f32], targets: &[f32], weight: f32) -> Scored {
    let mut scored = Scored::default();
    for (x, &target) in values.iter_mut().zip(targets) {
        let difference = *x - target;
        scored.loss += f64::from(difference).powi(2);
        *x = 2.0 * weight * difference;
    }
    scored
}

/// Scores the first and the last token of each answer by cross-entropy over its sequence's tokens,
/// averages both, and overwrites the logits, (rows, 2), with `weight` times its gradient. Sequence
/// `i` owns the rows from `cu_seqlens[i]`; `spans` holds one pair of positions per sequence,
/// counted from the sequence's first token (Devlin et al., section 4.2; the mean is
/// google-research/bert's, run_squad.py). `correct` counts positions.
pub fn spans(logits: &mut [f32], cu_seqlens: &[u32], spans: &[[u32; 2]], weight: f32) -> Scored {
    let mut scored = Scored::default();
    let mut column = Vec::new();
    for (ends, span) in cu_seqlens.windows(2).zip(spans) {
        let rows = &mut logits[2 * ends[0] as usize..2 * ends[1] as usize];
        for which in 0..2 {
            column.clear();
            column.extend(rows.chunks_exact(2).map(|pair| pair[which]));
            let classes = column.len();
            let label = &span[which..=which];
            let one = cross_entropy(&mut column, classes, label, 0.5 * weight);
            scored.loss += 0.5 * one.loss;
            scored.correct += one.correct;
            for (pair, x) in rows.chunks_exact_mut(2).zip(&column) {
                pair[which] = *x;
            }
        }
    }
    scored
}

/// Like [`cross_entropy`], but rows without a label are skipped; their gradient is zero.
pub fn labelled_cross_entropy(
    logits: &mut [f32],
    classes: usize,
    labels: impl IntoIterator<Item = Option<u32>>,
    weight: f32,
) -> Scored {
    let mut scored = Scored::default();
    for (row, label) in logits.chunks_exact_mut(classes).zip(labels) {
        match label {
            None => row.fill(0.0),
            Some(label) => {
                let one = cross_entropy(row, classes, &[label], weight);
                scored.loss += one.loss;
                scored.correct += one.correct;
            }
        }
    }
    scored
}

/// Scores rows of `classes` logits by cross-entropy against labels of which a share `smoothing` is spread over
/// all classes, each class with its weight (empty: 1), as PyTorch's `CrossEntropyLoss` defines it. Overwrites
/// the logits with `weight` times the gradient of the summed loss, which is returned; rows without a label
/// have none.
pub fn smoothed_cross_entropy(
    logits: &mut [f32],
    classes: usize,
    labels: impl IntoIterator<Item = Option<u32>>,
    class_weights: &[f32],
    smoothing: f64,
    weight: f32,
) -> f64 {
    let of_class = |class: usize| class_weights.get(class).map_or(1.0, |&w| f64::from(w));
    let mut loss = 0.0;
    for (row, label) in logits.chunks_exact_mut(classes).zip(labels) {
        let Some(label) = label else {
            row.fill(0.0);
            continue;
        };
        let target = |class: usize| {
            let own = if class == label as usize { 1.0 - smoothing } else { 0.0 };
            (own + smoothing / classes as f64) * of_class(class)
        };
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = row.iter().map(|&x| f64::from(x - top).exp()).sum();
        let mass: f64 = (0..classes).map(target).sum();
        for (class, x) in row.iter_mut().enumerate() {
            let log_probability = f64::from(*x - top) - total.ln();
            loss -= target(class) * log_probability;
            *x = ((log_probability.exp() * mass - target(class)) * f64::from(weight)) as f32;
        }
    }
    loss
}

/// Scores rows of `classes` logits, each against the set of its classes, by the cross-entropy of every class's
/// sigmoid; `class_weights` (empty: 1) apply where a row has the class. Overwrites the logits with `weight`
/// times the gradient of the summed loss, which is returned.
pub fn binary_cross_entropy(
    logits: &mut [f32],
    classes: usize,
    sets: &[Vec<u32>],
    class_weights: &[f32],
    weight: f32,
) -> f64 {
    let mut loss = 0.0;
    for (row, set) in logits.chunks_exact_mut(classes).zip(sets) {
        for (class, x) in row.iter_mut().enumerate() {
            let z = f64::from(*x);
            // ln(1 + e^z), and the probability of the class.
            let (softplus, sigmoid) =
                (z.max(0.0) + (-z.abs()).exp().ln_1p(), 1.0 / (1.0 + (-z).exp()));
            let slope = match set.contains(&(class as u32)) {
                true => {
                    let own = class_weights.get(class).map_or(1.0, |&w| f64::from(w));
                    loss += own * (softplus - z);
                    own * (sigmoid - 1.0)
                }
                false => {
                    loss += softplus;
                    sigmoid
                }
            };
            *x = (slope * f64::from(weight)) as f32;
        }
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the gradient with finite differences of the loss.
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
        check(&values, |x| squared_error(x, &[1.0, 0.0, 2.0, -1.0, 3.0, 0.5], 1.0).loss);
    }

    #[test]
    fn gradients_of_spans_and_of_rows_without_labels_are_the_slopes_too() {
        let values = [0.5, -1.25, 2.0, 0.0, 3.5, -0.75, 1.0, 0.25];
        check(&values, |x| spans(x, &[0, 3, 4], &[[0, 2], [0, 0]], 1.0).loss);
        let labels = || [Some(1), None, Some(0), None];
        check(&values, |x| labelled_cross_entropy(x, 2, labels(), 1.0).loss);
        let mut logits = values;
        let scored = spans(&mut logits, &[0, 3, 4], &[[1, 0], [0, 0]], 1.0);
        // The only row of a sequence is always correct, with loss 0.
        assert_eq!((scored.correct, logits[6], logits[7]), (2, 0.0, 0.0));
    }

    #[test]
    fn gradients_of_weighted_and_smoothed_losses_are_the_slopes_too() {
        let values = [0.5, -1.25, 2.0, 0.0, 3.5, -0.75];
        let weights = [0.5, 2.0, 1.5];
        let labels = || [Some(1), None];
        check(&values, |x| smoothed_cross_entropy(x, 3, labels(), &weights, 0.2, 1.0));
        check(&values, |x| binary_cross_entropy(x, 3, &[vec![0, 2], vec![]], &weights, 1.0));
        let (mut plain, mut smoothed) = (values, values);
        let expected = cross_entropy(&mut plain, 3, &[1, 2], 0.5).loss;
        let got = smoothed_cross_entropy(&mut smoothed, 3, [Some(1), Some(2)], &[], 0.0, 0.5);
        assert!((got - expected).abs() < 1e-9);
        assert!(plain.iter().zip(smoothed).all(|(a, b)| (a - b).abs() < 1e-6));
        assert!(binary_cross_entropy(&mut [-900.0, 900.0], 2, &[vec![1]], &[], 1.0) < 1e-9);
    }

    #[test]
    fn a_row_is_right_when_its_label_is_on_top() {
        let mut logits = [0.0, 3.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 9.0];
        assert_eq!(cross_entropy(&mut logits, 3, &[1, 1, 2], 1.0).correct, 2);
    }
}
