//! Training with functions from outside: the tiny reference model whose forward pass, loss and gradient of the
//! loss a learner wrote.

use dfdx::prelude::*;

use super::modules::{Modules, correct};
use crate::data::{Packed, PretrainingBatch};
use crate::engine::{LossWeights, PretrainingScores, missing_head};
use crate::error::{Error, Result};
use crate::model::{Bert, Config, Layout, MaskedLmHead, Rows, pick};

/// The width of the size `tiny`.
const H: usize = 128;

/// The reference model in the size `tiny`: width 128, 2 heads of 64 numbers, 512 inner units.
pub type TinyBert = Bert<H, 2, 64, 512, f32, Cpu>;

/// A tensor with a tape, on which its operations are recorded.
pub type Recorded<S> = Tensor<S, f32, Cpu, OwnedTape<f32, Cpu>>;

/// The functions that take the place of the model's own in a step of pre-training.
#[derive(Clone, Copy)]
pub struct OwnParts {
    /// Encodes a batch: returns one row for each token, (rows, H).
    pub encode: fn(&TinyBert, &Packed) -> Recorded<(usize, Const<H>)>,
    /// Returns the masked-LM head's logits, (blanks, V), of the vectors at the blanks; also gets the word table.
    pub masked: MaskedLogits,
    /// Returns the next-sentence head's logits, (sequences, 2). None: a batch must not have pairs.
    pub pairs: Option<PairLogits>,
    /// Returns the loss of a row of logits and its label.
    pub loss: fn(&[f32], usize) -> f64,
    /// Returns that loss's gradient, a number for each logit.
    pub gradient: fn(&[f32], usize) -> Vec<f32>,
}

/// A masked-LM head.
pub type MaskedLogits = fn(
    &MaskedLmHead<H, f32, Cpu>,
    &Rows<H, f32, Cpu>,
    Recorded<(usize, Const<H>)>,
) -> Recorded<(usize, usize)>;

/// A next-sentence head: gets the encoder's rows of a batch.
pub type PairLogits =
    fn(&TinyBert, Recorded<(usize, Const<H>)>, &Packed) -> Recorded<(usize, Const<2>)>;

impl OwnParts {
    /// Checks that a model can train with such parts, which know no dropout and no other size.
    pub(super) fn check(config: &Config) -> Result<()> {
        let tiny = (config.hidden_size, config.num_attention_heads, config.intermediate_size);
        if tiny != (H, 2, 512) {
            let (hidden, heads, intermediate) = tiny;
            return Err(Error::Usage(format!(
                "own parts need the size tiny (128/2/512), not {hidden}/{heads}/{intermediate}"
            )));
        }
        if config.hidden_dropout_prob > 0.0 || config.attention_probs_dropout_prob > 0.0 {
            return Err(Error::Usage(
                "own parts have no dropout: set both probabilities to 0".into(),
            ));
        }
        Ok(())
    }

    /// Returns the scores of a part of a batch and the gradients of all parameters.
    pub(super) fn gradients(
        self,
        model: &dyn Modules,
        layout: &Layout,
        batch: &PretrainingBatch,
        weights: LossWeights,
    ) -> Result<(PretrainingScores, Vec<f32>)> {
        let tiny = model.as_any().downcast_ref::<TinyBert>();
        let bert = tiny.ok_or_else(|| Error::Usage("own parts run only on the CPU".into()))?;
        let mut scores = PretrainingScores::default();
        let rows = (self.encode)(bert, &batch.packed);
        let mut loss: Recorded<Rank0> = Cpu::default().zeros().put_tape(OwnedTape::default());
        if !batch.masked_rows.is_empty() {
            let head = bert.masked_lm.as_ref().ok_or_else(|| missing_head("masked-LM"))?;
            let blanks = pick(rows.with_empty_tape(), &batch.masked_rows);
            let logits = (self.masked)(head, &bert.embeddings.words, blanks);
            let labels = &batch.masked_labels;
            scores.mlm_correct = correct(&logits.as_vec(), logits.shape().1, labels);
            scores.mlm_total = labels.len() as u64;
            let sum;
            (sum, scores.mlm_loss) = self.summed(logits, labels);
            loss = loss + sum * weights.masked;
        }
        if !batch.next_labels.is_empty() {
            let pairs = self.pairs.ok_or_else(|| missing_head("next-sentence"))?;
            let logits = pairs(bert, rows.with_empty_tape(), &batch.packed);
            let (labels, shape) = (&batch.next_labels, (batch.next_labels.len(), 2));
            scores.nsp_correct = correct(&logits.as_vec(), 2, labels);
            scores.nsp_total = labels.len() as u64;
            let sum;
            (sum, scores.nsp_loss) = self.summed(logits.reshape_like(&shape), labels);
            loss = loss + sum * weights.pair;
        }
        // The encoder's tape continues where the heads' gradients end.
        let (_, tape) = rows.split_tape();
        let (loss, heads) = loss.split_tape();
        let loss = loss.put_tape(heads.merge(tape));
        let mut gradients = vec![0.0; layout.total()];
        bert.add_gradients(&mut loss.backward(), layout, &mut gradients);
        Ok((scores, gradients))
    }

    /// Returns the sum of the rows' losses as one operation on the tape, and in f64.
    fn summed(self, logits: Recorded<(usize, usize)>, labels: &[u32]) -> (Recorded<Rank0>, f64) {
        // A gradient's buffer follows the strides of its tensor.
        let (logits, mut tape) = logits.contiguous().split_tape();
        let classes = logits.shape().1;
        let mut total = 0.0;
        let mut slopes = Vec::with_capacity(logits.shape().num_elements());
        for (row, &label) in logits.as_vec().chunks_exact(classes.max(1)).zip(labels) {
            total += (self.loss)(row, label as usize);
            let mut slope = (self.gradient)(row, label as usize);
            // A wrong answer may have another length.
            slope.resize(classes, 0.0);
            slopes.extend(slope);
        }
        let sum: Tensor<Rank0, f32, Cpu> = logits.device().tensor(total as f32);
        let (input, output) = (logits.ghost(), sum.ghost());
        tape.add_backward_op(move |gradients| {
            let above = gradients.get_or_alloc_mut(&output)?[0];
            let below = gradients.get_or_alloc_mut(&input)?;
            for (below, slope) in below.iter_mut().zip(&slopes) {
                *below += above * slope;
            }
            Ok(())
        });
        (sum.put_tape(tape), total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Packing, PretrainingData, PretrainingOptions};
    use crate::engine::{CpuEngine, Engine, PretrainingEngine, Reference};
    use crate::model::{Dropout, PRETRAINING, Size};
    use crate::text::{Casing, Paragraph, WordPiece, embedded};

    fn encode(bert: &TinyBert, batch: &Packed) -> Recorded<(usize, Const<H>)> {
        bert.encode::<OwnedTape<f32, Cpu>>(batch, None, &mut |_, _| {})
    }

    fn loss(logits: &[f32], label: usize) -> f64 {
        let sum: f64 = logits.iter().map(|&z| f64::from(z).exp()).sum();
        sum.ln() - f64::from(logits[label])
    }

    fn gradient(logits: &[f32], label: usize) -> Vec<f32> {
        let sum: f32 = logits.iter().map(|z| z.exp()).sum();
        let one = |at: usize| if at == label { 1.0 } else { 0.0 };
        logits.iter().enumerate().map(|(at, z)| z.exp() / sum - one(at)).collect()
    }

    fn parts() -> OwnParts {
        OwnParts {
            encode,
            masked: |head, words, rows| head.forward(rows, words),
            pairs: Some(|bert, rows, batch| {
                let pooled = bert.pool(rows, batch).expect("a pooler");
                bert.next_sentence.as_ref().expect("a head").forward(pooled)
            }),
            loss,
            gradient,
        }
    }

    fn case() -> (Config, std::sync::Arc<Layout>, PretrainingBatch) {
        let paragraphs: Vec<Paragraph> = embedded::paragraphs().take(60).collect();
        let texts = paragraphs.iter().map(|p| Ok(p.text.clone()));
        let tokenizer = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
        let mut config = Size::Tiny.config(tokenizer.vocab_size());
        (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (0.0, 0.0);
        let layout = Layout::new(&config, &PRETRAINING);
        let options = PretrainingOptions {
            max_len: 31,
            packing: Packing::Pairs,
            ..PretrainingOptions::default()
        };
        let data =
            PretrainingData::build(paragraphs.into_iter().map(Ok), &tokenizer, &options, None);
        (config, layout, data.unwrap().batch(0, 5).unwrap())
    }

    #[test]
    fn the_model_s_own_functions_give_the_engine_s_gradients() {
        let (config, layout, batch) = case();
        let dropout = Dropout { seed: 1, step: 1 };
        let mut engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let mut own = Reference::new(&config, &layout, layout.initialise(1)).unwrap();
        own = own.with_own_parts(parts()).unwrap().with_threads(3).unwrap();
        let theirs = engine.pretraining_gradients(&batch, dropout).unwrap();
        let scores = own.pretraining_gradients(&batch, dropout).unwrap();
        assert!((scores.loss() - theirs.loss()).abs() < 1e-4);
        assert_eq!((scores.mlm_total, scores.nsp_total), (theirs.mlm_total, theirs.nsp_total));
        let gaps = own.gradients().unwrap().into_iter().zip(engine.gradients().unwrap());
        assert!(gaps.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) < 1e-4);
    }

    #[test]
    fn another_forward_function_gives_other_gradients() {
        let (config, layout, batch) = case();
        let dropout = Dropout { seed: 1, step: 1 };
        let mut gradients = Vec::new();
        for encode in
            [encode as fn(&TinyBert, &Packed) -> _, |bert, batch| encode(bert, batch) * 0.5]
        {
            let own = Reference::new(&config, &layout, layout.initialise(1)).unwrap();
            let mut own = own.with_own_parts(OwnParts { encode, ..parts() }).unwrap();
            own.pretraining_gradients(&batch, dropout).unwrap();
            gradients.push(own.gradients().unwrap());
        }
        assert_ne!(gradients[0], gradients[1]);
    }

    #[test]
    fn what_own_parts_do_not_know_is_an_error() {
        let (mut config, layout, batch) = case();
        let own = Reference::new(&config, &layout, layout.initialise(1)).unwrap();
        let mut own = own.with_own_parts(OwnParts { pairs: None, ..parts() }).unwrap();
        let error = own.pretraining_gradients(&batch, Dropout { seed: 1, step: 1 }).unwrap_err();
        assert!(error.to_string().contains("next-sentence"), "{error}");
        config.hidden_dropout_prob = 0.1;
        let own = Reference::new(&config, &layout, layout.initialise(1)).unwrap();
        let error = own.with_own_parts(parts()).err().unwrap().to_string();
        assert!(error.contains("no dropout"), "{error}");
        let config = Size::Mini.config(300);
        let layout = Layout::new(&config, &PRETRAINING);
        let own = Reference::new(&config, &layout, layout.initialise(1)).unwrap();
        let error = own.with_own_parts(parts()).err().unwrap().to_string();
        assert!(error.contains("size tiny"), "{error}");
    }
}
