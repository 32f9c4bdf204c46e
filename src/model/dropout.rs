//! Dropout whose masks are pure functions of (seed, step, site, example, element).
//!
//! A mask is never stored as state. It doesn't depend on padding, on how a batch is packed or
//! split, or on the device: an engine that fuses dropout into its kernels draws the same numbers.

use dfdx::prelude::*;
use rayon::prelude::*;

use crate::data::Packed;
use crate::error::{Error, Result};
use crate::random::{Site, Stream};

use super::ops::{BertDevice, Real};
use super::{Config, Family, HeadInput, Part, TaskHead};

/// The random source of a training step's dropout. The probabilities come from the model's
/// configuration; without a `Dropout` the model runs in inference mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropout {
    /// The run's seed.
    pub seed: u64,
    /// The optimizer step: every step has its own masks.
    pub step: u32,
}

/// The probabilities of the family's model classes in transformers.
impl Config {
    /// Returns the probability of dropout at a site of the hidden states.
    pub fn dropout_at(&self, site: Site) -> f64 {
        match (self.model_type, site) {
            // DistilBERT adds the attention block's output without dropout.
            (Family::DistilBert, Site::AttentionOutputDropout(_)) => 0.0,
            _ => self.hidden_dropout_prob,
        }
    }

    /// Returns the probability of dropout of the input of a task's head.
    pub fn head_dropout(&self, head: TaskHead) -> f64 {
        match (self.model_type, head.input, head.part) {
            (Family::DistilBert, HeadInput::Pooled, _) => {
                self.number("seq_classif_dropout").unwrap_or(0.2)
            }
            (Family::DistilBert, HeadInput::Rows, _) if head.dropout => self.hidden_dropout_prob,
            (Family::DistilBert, HeadInput::Rows, _) => self.number("qa_dropout").unwrap_or(0.1),
            (Family::Electra, _, Part::MultipleChoice) => {
                self.number("summary_last_dropout").unwrap_or(0.1)
            }
            _ if head.dropout => self.classifier_dropout(),
            _ => 0.0,
        }
    }

    /// Returns the probability of dropout of the input of the pooler that a head reads: the classifiers of
    /// sequences of RoBERTa and ELECTRA drop some.
    pub fn pooler_dropout(&self, head: TaskHead) -> f64 {
        match (self.model_type, head.part) {
            (
                Family::Roberta | Family::XlmRoberta | Family::Electra,
                Part::SequenceClassifier(_),
            ) => self.classifier_dropout(),
            (Family::Electra, Part::MultipleChoice) => {
                self.number("summary_first_dropout").unwrap_or(0.0)
            }
            _ => 0.0,
        }
    }

    fn classifier_dropout(&self) -> f64 {
        self.number("classifier_dropout").unwrap_or(self.hidden_dropout_prob)
    }
}

/// The attention probability (head, query, key) of an example uses random element `(head * STRIDE +
/// query) * STRIDE + key`, independent of the batch's padded length.
pub const ATTENTION_STRIDE: u32 = 1 << 12;

/// Returns an error if sequences are so long that the dropout of different queries would use the
/// same random numbers.
pub fn check_longest(longest: usize) -> Result<()> {
    if longest <= ATTENTION_STRIDE as usize {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "attention takes sequences of up to {ATTENTION_STRIDE} tokens, not {longest}"
    )))
}

impl Dropout {
    /// Returns an error if the batch has sequences too long for attention dropout.
    pub fn check(self, config: &Config, batch: &Packed) -> Result<()> {
        if config.attention_probs_dropout_prob > 0.0 {
            check_longest(batch.longest())?;
        }
        Ok(())
    }

    /// Fills a row of scaling factors for activations of `example`: element `offset + i` of the
    /// stream decides `row[i]`, which is 1 / (1 - p) if kept and 0 if dropped.
    fn fill<E: Real>(self, site: Site, example: u64, offset: u32, p: f64, row: &mut [E]) {
        let stream = Stream::new(self.seed, self.step, site, example);
        let threshold = threshold(p);
        // Both number types can represent it.
        let kept = E::from_f64(1.0 / (1.0 - p)).expect("a finite number");
        let mut i = 0;
        while i < row.len() {
            let element = offset + i as u32;
            let draws = stream.block(element / 4);
            for &draw in &draws[element as usize % 4..] {
                if i < row.len() {
                    row[i] = if draw < threshold { E::default() } else { kept };
                    i += 1;
                }
            }
        }
    }

    /// Applies dropout to (sequences, length, width): random element `position * width + i` of each
    /// example.
    pub fn hidden<const H: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
        self,
        x: Tensor<(usize, usize, Const<H>), E, D, T>,
        batch: &Packed,
        site: Site,
        p: f64,
    ) -> Tensor<(usize, usize, Const<H>), E, D, T> {
        if p == 0.0 {
            return x;
        }
        let length = x.shape().1;
        let positions =
            |&example: &u64| (0..length as u32).map(move |position| (example, position));
        let places: Vec<_> = batch.examples.iter().flat_map(positions).collect();
        self.by_row::<H, _, _, _, _>(x, &places, site, p)
    }

    /// Applies dropout to (rows, width); `places` holds the example and position of each row.
    pub fn rows<const H: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
        self,
        x: Tensor<(usize, Const<H>), E, D, T>,
        places: &[(u64, u32)],
        site: Site,
        p: f64,
    ) -> Tensor<(usize, Const<H>), E, D, T> {
        if p == 0.0 {
            return x;
        }
        self.by_row::<H, _, _, _, _>(x, places, site, p)
    }

    fn by_row<const H: usize, S: Shape, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
        self,
        x: Tensor<S, E, D, T>,
        places: &[(u64, u32)],
        site: Site,
        p: f64,
    ) -> Tensor<S, E, D, T> {
        let mut mask = vec![E::default(); places.len() * H];
        mask.par_chunks_mut(H).zip(places).for_each(|(mask, &(example, position))| {
            self.fill(site, example, position * H as u32, p, mask);
        });
        D::scaled(x, mask)
    }

    /// Applies dropout to attention probabilities (sequences, heads, queries, keys).
    pub fn attention<const A: usize, E: Real, D: BertDevice<E>, T: Tape<E, D>>(
        self,
        x: Tensor<(usize, Const<A>, usize, usize), E, D, T>,
        batch: &Packed,
        site: Site,
        p: f64,
    ) -> Tensor<(usize, Const<A>, usize, usize), E, D, T> {
        if p == 0.0 {
            return x;
        }
        let length = x.shape().3;
        let mut mask = vec![E::default(); batch.sequences() * A * length * length];
        mask.par_chunks_mut(length).enumerate().for_each(|(row, mask)| {
            let (sequence, head, query) = (row / (A * length), row / length % A, row % length);
            let offset = (head as u32 * ATTENTION_STRIDE + query as u32) * ATTENTION_STRIDE;
            self.fill(site, batch.examples[sequence], offset, p, mask);
        });
        D::scaled(x, mask)
    }
}

/// Returns the threshold below which a random 32-bit number drops an element: p as a fraction of
/// 2^32.
pub fn threshold(p: f64) -> u32 {
    (p * 4_294_967_296.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const DROPOUT: Dropout = Dropout { seed: 5, step: 3 };

    fn batch(examples: &[u64], lengths: &[usize]) -> Packed {
        let mut packed = Packed::default();
        for (&example, &length) in examples.iter().zip(lengths) {
            packed.push(example, &vec![1; length], &vec![0; length]);
        }
        packed
    }

    fn ones(sequences: usize, length: usize) -> Tensor<(usize, usize, Const<6>), f32, Cpu> {
        Cpu::default().ones_like(&(sequences, length, Const::<6>))
    }

    #[test]
    fn masks_do_not_depend_on_padding_or_neighbours() {
        let alone = DROPOUT.hidden(ones(1, 3), &batch(&[8], &[3]), Site::EmbeddingDropout, 0.4);
        let among =
            DROPOUT.hidden(ones(2, 5), &batch(&[4, 8], &[5, 3]), Site::EmbeddingDropout, 0.4);
        assert_eq!(alone.as_vec()[..18], among.as_vec()[30..48]);
        assert_ne!(among.as_vec()[..18], among.as_vec()[30..48]);
    }

    #[test]
    fn the_share_and_the_mean_are_right() {
        let packed = batch(&(0..100).collect::<Vec<_>>(), &[50; 100]);
        let y = DROPOUT.hidden(ones(100, 50), &packed, Site::HeadDropout, 0.1).as_vec();
        let n = y.len() as f64;
        let dropped = y.iter().filter(|&&v| v == 0.0).count() as f64;
        // Standard error of the share: sqrt(0.09 / 30000) = 0.0017.
        assert!((dropped / n - 0.1).abs() < 0.007, "{}", dropped / n);
        assert!((y.iter().sum::<f32>() as f64 / n - 1.0).abs() < 0.01);
    }

    #[test]
    fn attention_masks_keep_their_place_when_the_batch_gets_longer() {
        let dev = Cpu::default();
        let run = |length: usize| {
            let x: Tensor<(usize, Const<2>, usize, usize), f64, _> =
                dev.ones_like(&(1, Const::<2>, length, length));
            let packed = batch(&[1], &[length]);
            DROPOUT.attention(x, &packed, Site::AttentionDropout(1), 0.5).as_vec()
        };
        let (short, long) = (run(3), run(5));
        for head in 0..2 {
            for query in 0..3 {
                for key in 0..3 {
                    let (a, b) = ((head * 3 + query) * 3 + key, (head * 5 + query) * 5 + key);
                    assert_eq!(short[a], long[b]);
                }
            }
        }
    }
}
