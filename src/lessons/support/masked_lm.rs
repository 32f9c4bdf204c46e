//! Helpers of lessons 07 and 08: pictures of masked text, the small model's data, a head to compare with, and
//! the filling of blanks.

use std::sync::Arc;

use dfdx::prelude::*;

use super::attention::batch_of;
use crate::data::pretraining::masking::Target;
use crate::data::{Packing, PretrainingBatch, PretrainingData, PretrainingOptions};
use crate::engine::{CpuEngine, PretrainingEngine, TinyBert};
use crate::error::{Error, Result};
use crate::model::{Config, Layout, MaskedLmHead, Rows, pick};
use crate::text::{Paragraph, SpecialIds, WordPiece};
use crate::view::{LineChart, LiveChart, TokenStrip};

/// The model's width.
const H: usize = 128;

/// Draws a sequence as the model sees it, with the original tokens of the targets below it.
pub fn masked_strip(tokenizer: &WordPiece, seen: &[u32], targets: &[Target]) -> TokenStrip {
    let token = |id: u32| tokenizer.token(id).unwrap_or("?").to_owned();
    let masked: Vec<String> = seen.iter().map(|&id| token(id)).collect();
    let mut answers = vec![String::new(); seen.len()];
    let mut colors = vec![0; seen.len()];
    for target in targets {
        let at = target.position as usize;
        if at < seen.len() {
            answers[at] = token(target.label);
            colors[at] = 1;
        }
    }
    TokenStrip::new("What the model sees, and what it must predict", &masked)
        .row("answer", &answers)
        .colored(&colors)
}

/// Counts of what masking did to the chosen tokens of many sequences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    /// Tokens that could have been chosen: all but the special ones.
    pub tokens: usize,
    /// Chosen tokens.
    pub chosen: usize,
    /// Chosen tokens that became `[MASK]`.
    pub mask: usize,
    /// Chosen tokens that became another token.
    pub other: usize,
    /// Chosen tokens that stayed as they were.
    pub same: usize,
}

impl Shares {
    /// Adds a sequence: its original ids, the ids after masking, and the targets as (position, original
    /// id).
    pub fn add(
        &mut self,
        original: &[u32],
        seen: &[u32],
        targets: &[(usize, u32)],
        special: SpecialIds,
    ) {
        self.tokens += original.iter().filter(|id| !special.contains(**id)).count();
        self.chosen += targets.len();
        for &(position, label) in targets {
            match seen.get(position) {
                Some(&id) if id == special.mask => self.mask += 1,
                Some(&id) if id == label => self.same += 1,
                _ => self.other += 1,
            }
        }
    }

    /// Returns how many percent of the chosen tokens `part` are; 0 if none was chosen.
    pub fn percent(&self, part: usize) -> f64 {
        100.0 * part as f64 / self.chosen.max(1) as f64
    }
}

/// Builds the lesson's training data and held-out data: sequences of up to 32 tokens of one document,
/// 40 % of the tokens to predict, every tenth document held out.
pub fn data(
    paragraphs: &[Paragraph],
    tokenizer: &WordPiece,
) -> Result<(PretrainingData, PretrainingData)> {
    let options = PretrainingOptions {
        max_len: 32,
        mask_probability: 0.4,
        packing: Packing::Document,
        ..PretrainingOptions::default()
    };
    let paragraphs = paragraphs.iter().cloned().map(Ok);
    PretrainingData::build_split(paragraphs, tokenizer, &options, None, 10)
}

/// Starts a chart of a masked-LM loss over the steps, with two losses to compare with: that of equal
/// probabilities, ln V, and that of a model without context.
pub fn loss_chart(title: &str, data: &PretrainingData, vocabulary: u32) -> LiveChart {
    LiveChart::new(
        LineChart::new(title)
            .axes("step", "cross-entropy (nats)")
            .reference("ln(V)", f64::from(vocabulary).ln())
            .reference("unigram", data.unigram_entropy()),
    )
}

/// A masked-LM head whose numbers are all different from 0, with an input and the logits that are right.
pub struct HeadCase {
    /// The head.
    pub head: MaskedLmHead<H, f32, Cpu>,
    /// The word table, (V, H).
    pub words: Rows<H, f32, Cpu>,
    /// The encoder's vectors at the blanks, (blanks, H).
    pub rows: Rows<H, f32, Cpu>,
    /// The engine's logits, (blanks, V).
    pub logits: Tensor<(usize, usize), f32, Cpu>,
}

impl HeadCase {
    /// Builds a model of the size `tiny` and runs it over a batch. A fresh model's biases are 0, so a
    /// missing one would not show: all parameters are moved a little. Returns an error if the layout has no
    /// masked-LM head.
    pub fn new(config: &Config, layout: &Arc<Layout>, batch: &PretrainingBatch) -> Result<Self> {
        let moved = (0..layout.total()).map(|i| 0.05 * ((i % 7) as f32 - 3.0));
        let values: Vec<f32> =
            moved.zip(layout.initialise(2)).map(|(by, value)| value + by).collect();
        let dev = Cpu::default();
        let bert = TinyBert::build(config, layout, &values, &dev)?;
        let rows = bert.encode::<NoneTape>(&batch.packed, None, &mut |_, _| {});
        let mut engine = CpuEngine::new(config, layout, values)?;
        let logits = engine.masked_lm_logits(&batch.packed, &batch.masked_rows)?;
        Ok(Self {
            head: bert.masked_lm.ok_or_else(no_head)?,
            words: bert.embeddings.words,
            rows: pick(rows, &batch.masked_rows),
            logits: dev.tensor_from_vec(logits, (batch.masked_rows.len(), config.vocab_size)),
        })
    }
}

fn no_head() -> Error {
    Error::Failed("the layout declares no masked-LM head".into())
}

/// Returns the model's logits for the first `[MASK]` of a text, one for each token of the vocabulary.
/// Returns an error if the text has no `[MASK]` or is too long for the model.
pub fn blank_logits(
    model: &mut dyn PretrainingEngine,
    tokenizer: &WordPiece,
    text: &str,
) -> Result<Vec<f32>> {
    let batch = batch_of(tokenizer, &[text], usize::MAX);
    let mask = tokenizer.special().mask;
    let Some(row) = batch.ids.iter().position(|&id| id == mask) else {
        return Err(Error::Usage(format!("{text:?} has no [MASK]")));
    };
    model.masked_lm_logits(&batch, &[row as u32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, Size};
    use crate::text::{Casing, embedded};

    fn tokenizer(paragraphs: &[Paragraph]) -> WordPiece {
        let texts = paragraphs.iter().map(|p| Ok(p.text.clone()));
        WordPiece::train(texts, 300, Casing::Uncased).unwrap()
    }

    /// A tokenizer, a tiny model without dropout, and a batch.
    fn case() -> (WordPiece, Config, Arc<Layout>, PretrainingBatch) {
        let paragraphs: Vec<Paragraph> = embedded::paragraphs().take(60).collect();
        let tokenizer = tokenizer(&paragraphs);
        let mut config = Size::Tiny.config(tokenizer.vocab_size());
        (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (0.0, 0.0);
        let layout = Layout::new(&config, &[Part::Encoder, Part::MaskedLm]);
        let batch = data(&paragraphs, &tokenizer).unwrap().0.batch(0, 4).unwrap();
        (tokenizer, config, layout, batch)
    }

    #[test]
    fn shares_count_what_became_of_the_chosen_tokens() {
        let special = SpecialIds { pad: 0, unk: 1, cls: 2, sep: 3, mask: 4 };
        let mut shares = Shares::default();
        shares.add(&[9, 9, 9, 9], &[4, 9, 8, 9], &[(0, 9), (1, 9), (2, 9)], special);
        assert_eq!(shares, Shares { tokens: 4, chosen: 3, mask: 1, other: 1, same: 1 });
        assert!((shares.percent(shares.mask) - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(Shares::default().percent(0), 0.0);
    }

    #[test]
    fn the_strip_marks_the_targets() {
        let tokenizer = case().0;
        let mask = tokenizer.special().mask;
        let targets = [Target { position: 1, label: tokenizer.special().sep }];
        let html = masked_strip(&tokenizer, &[mask, mask], &targets).html();
        assert!(html.contains("[MASK]") && html.contains("[SEP]"), "{html}");
    }

    #[test]
    fn the_case_of_the_head_has_the_logits_of_the_head() {
        let (_, config, layout, batch) = case();
        let case = HeadCase::new(&config, &layout, &batch).unwrap();
        let logits = case.head.forward(case.rows, &case.words);
        let apart = (logits - case.logits).abs().as_vec();
        assert!(apart.into_iter().all(|gap| gap < 1e-3));
    }

    #[test]
    fn a_text_without_a_blank_is_an_error() {
        let (tokenizer, config, layout, _) = case();
        let mut engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let logits = blank_logits(&mut engine, &tokenizer, "a [MASK]").unwrap();
        assert_eq!(logits.len(), config.vocab_size);
        let error = blank_logits(&mut engine, &tokenizer, "a").unwrap_err();
        assert!(error.to_string().contains("no [MASK]"));
    }
}
