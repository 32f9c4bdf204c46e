//! The gradients of the reference model in f64 against finite differences: every parameter tensor of the encoder,
//! the pooler and both pre-training heads, with and without dropout.

use cloze::data::Packed;
use cloze::model::{Bert, Config, Dropout, Layout, PRETRAINING, cross_entropy, pick};
use cloze::random::{Site, Stream};
use dfdx::prelude::*;

type Small = Bert<8, 2, 4, 12, f64, Cpu>;

struct Problem {
    config: Config,
    batch: Packed,
    masked_rows: Vec<u32>,
    masked_labels: Vec<u32>,
    next_labels: Vec<u32>,
}

impl Problem {
    /// Two sequences of different lengths, so that padding and its mask are tested too.
    fn new() -> Self {
        let mut config = Config::new(2, 8, 2, 12, 13);
        config.max_position_embeddings = 7;
        config.hidden_dropout_prob = 0.2;
        config.attention_probs_dropout_prob = 0.3;
        let mut batch = Packed::default();
        batch.push(4, &[1, 5, 9, 2, 7, 2], &[0, 0, 0, 0, 1, 1]);
        batch.push(9, &[1, 12, 2, 3], &[0, 0, 0, 1]);
        Self {
            config,
            batch,
            masked_rows: vec![1, 4, 7],
            masked_labels: vec![6, 3, 11],
            next_labels: vec![0, 1],
        }
    }

    fn loss<T: Tape<f64, Cpu> + Merge<T>>(
        &self,
        bert: &Small,
        dropout: Option<Dropout>,
    ) -> Tensor<Rank0, f64, Cpu, T> {
        let hidden = bert.encode::<T>(&self.batch, dropout, &mut |_, _| {});
        let masked = pick(hidden.retaped::<T>(), &self.masked_rows);
        let head = bert.masked_lm.as_ref().unwrap();
        let words = head.forward(masked, &bert.embeddings.words);
        let pooled = bert.pool(hidden.retaped::<T>(), &self.batch).unwrap();
        let pairs = bert.next_sentence.as_ref().unwrap().forward(pooled);
        let sum =
            cross_entropy(words, &self.masked_labels) + cross_entropy(pairs, &self.next_labels);
        let (sum, heads) = sum.split_tape();
        let (_, encoder) = hidden.split_tape();
        sum.put_tape(heads.merge(encoder))
    }
}

/// Returns values far larger than initial ones, so that every part has curvature.
fn values(layout: &Layout) -> Vec<f64> {
    let stream = Stream::new(1, 0, Site::Other(9), 0);
    (0..layout.total() as u32).map(|i| 1.2 * (stream.uniform(i) - 0.5)).collect()
}

fn check(problem: &Problem, dropout: Option<Dropout>) {
    let layout = Layout::new(&problem.config, &PRETRAINING);
    let values = values(&layout);
    let dev = Cpu::default();
    let build = |values: &[f64]| Small::build(&problem.config, &layout, values, &dev).unwrap();
    let loss = |values: &[f64]| problem.loss::<NoneTape>(&build(values), dropout).array();

    let bert = build(&values);
    let mut tape = problem.loss::<OwnedTape<f64, Cpu>>(&bert, dropout).backward();
    let mut gradients = vec![0.0; layout.total()];
    bert.add_gradients(&mut tape, &layout, &mut gradients);

    let mut flat = 0;
    for (parameter, range) in layout.iter() {
        // Up to nine elements of each tensor, spread over it.
        let stride = (range.len() / 9).max(1);
        for i in range.step_by(stride) {
            let h = 1e-5;
            let at = |value: f64| {
                let mut moved = values.clone();
                moved[i] = value;
                loss(&moved)
            };
            let difference = (at(values[i] + h) - at(values[i] - h)) / (2.0 * h);
            let error = (difference - gradients[i]).abs();
            assert!(
                error < 1e-7 + 1e-6 * difference.abs(),
                "{} [{i}]: gradient {}, finite difference {difference}",
                parameter.name,
                gradients[i]
            );
            flat += usize::from(difference.abs() < 1e-9);
        }
    }
    // Only rows of embeddings that the batch doesn't use have no gradient.
    assert!(flat < 60, "{flat} of the checked gradients are zero");
}

#[test]
fn every_parameter_has_the_gradient_of_its_finite_difference() {
    check(&Problem::new(), None);
}

#[test]
fn every_parameter_has_it_with_dropout() {
    check(&Problem::new(), Some(Dropout { seed: 3, step: 8 }));
}

#[test]
fn every_parameter_has_it_from_left_to_right() {
    let mut problem = Problem::new();
    problem.config.is_decoder = true;
    check(&problem, Some(Dropout { seed: 3, step: 8 }));
}

/// A constant added to all keys moves all scores of a query equally, so the key's bias has no effect.
#[test]
fn the_key_bias_has_no_gradient() {
    let problem = Problem::new();
    let layout = Layout::new(&problem.config, &PRETRAINING);
    let bert = Small::build(&problem.config, &layout, &values(&layout), &Cpu::default()).unwrap();
    let mut tape = problem.loss::<OwnedTape<f64, Cpu>>(&bert, None).backward();
    let mut gradients = vec![0.0; layout.total()];
    bert.add_gradients(&mut tape, &layout, &mut gradients);
    for layer in 0..2 {
        let name = format!("encoder.layer.{layer}.attention.self.key.bias");
        let (_, range) = layout.find(&name).unwrap();
        assert!(gradients[range].iter().all(|g| g.abs() < 1e-12));
    }
}
