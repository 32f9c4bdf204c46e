//! Filling blanks.

use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use crate::data::sequences::BatchSize;
use crate::error::{Error, Result};
use crate::eval::softmax;
use crate::interrupt;
use crate::model::Part;

use super::loaded::Shared;
use super::{Builder, Open, loading};

/// Tokens in a batch. Fewer than elsewhere: every blank has as many logits as the vocabulary has tokens.
const BATCH_TOKENS: usize = 1024;

/// A model that fills blanks: each `[MASK]` in a text (RoBERTa's is `<mask>`) stands for one token.
///
/// A text that is too long for the model is an error, because its end may hold a blank.
///
/// ```
/// use cloze::FillMask;
///
/// let model = FillMask::load("cloze-small")?;
/// let answers = model.top(&["The baker sells [MASK] and [MASK]."], 3)?;
/// assert_eq!(answers[0].len(), 2); // blanks
/// assert_eq!(answers[0][0].len(), 3); // guesses, the most probable first
/// # Ok::<(), cloze::Error>(())
/// ```
pub struct FillMask {
    model: Shared,
}

/// A token for a blank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guess {
    /// The token as it stands in the vocabulary: in BERT's, `##` at its start means that it continues a word;
    /// in others, `Ġ` or `▁` means that it begins one.
    pub token: String,
    /// Its number in the vocabulary.
    pub id: u32,
    /// Between 0 and 1; those of all tokens of the vocabulary add up to 1.
    pub probability: f32,
}

loading!(FillMask);

impl Open for FillMask {
    fn open(folder: &Path, settings: &Builder<Self>) -> Result<Self> {
        let parts = [Part::Encoder, Part::MaskedLm];
        let model = Shared::read(folder, &parts, settings)?;
        if model.config.is_decoder {
            return Err(Error::file(
                folder,
                "reads from left to right (is_decoder in its config.json): it predicts the next word and sees \
                 nothing behind a blank; take a model that was pre-trained to fill blanks",
            ));
        }
        Ok(Self { model })
    }
}

/// The ids of the most probable tokens for one blank, each with its probability.
type TopIds = Vec<(u32, f64)>;

impl FillMask {
    /// Returns for each text and each of its blanks the `count` most probable tokens, the best first.
    ///
    /// # Errors
    /// If a text has no `[MASK]` or is too long.
    pub fn top(&self, texts: &[&str], count: usize) -> Result<Vec<Vec<Vec<Guess>>>> {
        let guess = |(id, probability): (u32, f64)| Guess {
            token: self.token(id).to_owned(),
            id,
            probability: probability as f32,
        };
        let guesses = |blank: Vec<(u32, f64)>| blank.into_iter().map(guess).collect();
        let answers = self.top_ids(texts, count)?.into_iter();
        Ok(answers.map(|blanks| blanks.into_iter().map(guesses).collect()).collect())
    }

    /// Returns the same as ids with their probabilities.
    pub(crate) fn top_ids(&self, texts: &[&str], count: usize) -> Result<Vec<Vec<TopIds>>> {
        let singles: Vec<_> = texts.iter().map(|&text| (text, None)).collect();
        let sequences = self.model.whole(&singles)?;
        let mask = self.model.wordpiece.special().mask;
        let without = (0..texts.len()).find(|&text| !sequences.ids(text).contains(&mask));
        if let Some(text) = without {
            let (text, mask) = (texts[text], self.token(mask));
            return Err(Error::Usage(format!(
                "{text:?} has no {mask}: write one where a word is missing"
            )));
        }
        let mut answers = vec![Vec::new(); texts.len()];
        self.model.run(|engine| {
            for which in sequences.by_length(BatchSize::Tokens(BATCH_TOKENS)) {
                interrupt::poll();
                let batch = sequences.batch(&which);
                let rows = (0..).zip(&batch.ids).filter(|(_, id)| **id == mask);
                let rows: Vec<u32> = rows.map(|(row, _)| row).collect();
                let logits = engine.masked_lm_logits(&batch, &rows)?;
                let blanks = logits.par_chunks(self.model.config.vocab_size);
                let blanks: Vec<_> = blanks.map(|row| best(&softmax(row), count)).collect();
                let mut blanks = blanks.into_iter();
                for text in which {
                    let own = sequences.ids(text).iter().filter(|id| **id == mask).count();
                    answers[text] = blanks.by_ref().take(own).collect();
                }
            }
            Ok(answers)
        })
    }

    pub(crate) fn token(&self, id: u32) -> &str {
        self.model.wordpiece.token(id).unwrap_or("[UNK]")
    }
}

/// Returns the `count` most probable ids, the best first; of equally probable ones the smaller first.
fn best(probabilities: &[f64], count: usize) -> Vec<(u32, f64)> {
    let mut all: Vec<(u32, f64)> = (0..).zip(probabilities.iter().copied()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(count);
    all
}
