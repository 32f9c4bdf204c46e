//! Judging whether one text follows another.

use std::path::Path;

use crate::data::sequences::BatchSize;
use crate::error::Result;
use crate::eval::softmax;
use crate::interrupt;
use crate::model::Part;

use super::loaded::Shared;
use super::{Builder, Open, loading};

/// A model that judges whether one text follows another.
///
/// A pair that is too long for the model is an error.
///
/// ```
/// use cloze::NextSentence;
///
/// let model = NextSentence::load("cloze-small")?;
/// let pairs = [("She opened the door.", "It was dark inside."), ("She opened the door.", "Add the eggs.")];
/// let probabilities = model.probabilities(&pairs)?;
/// assert_eq!(probabilities.len(), 2);
/// # Ok::<(), cloze::Error>(())
/// ```
pub struct NextSentence {
    model: Shared,
}

loading!(NextSentence);

impl Open for NextSentence {
    fn open(folder: &Path, settings: &Builder<Self>) -> Result<Self> {
        let parts = [Part::Encoder, Part::Pooler, Part::NextSentence];
        let model = Shared::read(folder, &parts, settings)?;
        Ok(Self { model })
    }
}

impl NextSentence {
    /// Returns for each pair the probability that the second text follows the first.
    ///
    /// # Errors
    /// If a pair is too long.
    pub fn probabilities(&self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        let probabilities = self.in_f64(pairs)?.into_iter();
        Ok(probabilities.map(|probability| probability as f32).collect())
    }

    /// Returns the same at full precision.
    pub(crate) fn in_f64(&self, pairs: &[(&str, &str)]) -> Result<Vec<f64>> {
        let pairs: Vec<_> = pairs.iter().map(|&(a, b)| (a, Some(b))).collect();
        let sequences = self.model.whole(&pairs)?;
        let mut probabilities = vec![0.0; pairs.len()];
        self.model.run(|engine| {
            for which in sequences.by_length(BatchSize::Tokens(engine.inference_tokens())) {
                interrupt::poll();
                let logits = engine.next_sentence_logits(&sequences.batch(&which))?;
                for (pair, logits) in which.into_iter().zip(logits) {
                    probabilities[pair] = softmax(&logits)[0];
                }
            }
            Ok(probabilities)
        })
    }
}
