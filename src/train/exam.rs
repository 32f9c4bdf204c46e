//! An exam for models that were trained in different ways on one text: all of them predict the same masked tokens of
//! the same held-out sequences, so that their scores can be compared.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::data::{PretrainingData, PretrainingOptions};
use crate::engine::{Backend, PretrainingScores, Setup};
use crate::error::{Error, Result};
use crate::files::Scratch;
use crate::model::weights::{Model, wordpiece_of};
use crate::model::{PRETRAINING, Part};
use crate::text::WordPiece;

use super::corpus::{Corpus, Source};
use super::pretraining::usual_seq;

/// The most sequences of an exam, and how many are computed at once.
const SEQUENCES: u64 = 2048;
const BATCH: u64 = 16;

/// The held-out sequences, with 15 % of their tokens masked as in the paper, and the half of them with a random second
/// sentence.
pub struct Exam {
    data: PretrainingData,
    wordpiece: WordPiece,
    /// The token files, which the data reads.
    _tokens: Scratch,
}

/// The scores of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Tokens to predict.
    pub masked: u64,
    /// Share of them that were predicted.
    pub mlm_accuracy: f64,
    /// Mean loss of them, in nats.
    pub mlm_loss: f64,
    /// Share of pairs that were classified correctly; None for a model without next-sentence prediction.
    pub nsp_accuracy: Option<f64>,
    /// Pairs to classify.
    pub pairs: u64,
}

impl Mark {
    /// Returns the standard error of the share of predicted tokens, as if each were a coin of its own.
    pub fn standard_error(&self) -> f64 {
        (self.mlm_accuracy * (1.0 - self.mlm_accuracy) / self.masked.max(1) as f64).sqrt()
    }
}

impl Exam {
    /// Sets the exam: sequences of the documents that every run on this text holds out, or of those of Cloze's own
    /// corpus without a text.
    ///
    /// # Errors
    /// If a file can't be read, or if the text is too short.
    pub fn new(text: &[PathBuf], wordpiece: &WordPiece) -> Result<Self> {
        let tokens = Scratch::new()?;
        let corpus = Corpus::new(Source::Text(text), &[], wordpiece, tokens.path())?;
        let max_len = usual_seq(!text.is_empty());
        let options = PretrainingOptions { max_len, ..PretrainingOptions::default() };
        let (_, data) = corpus.data(wordpiece, &options)?;
        Ok(Self { data, wordpiece: wordpiece.clone(), _tokens: tokens })
    }

    /// Returns the number of text tokens that are held out.
    pub fn tokens(&self) -> u64 {
        self.data.tokens()
    }

    /// Examines the model in `folder`; None for one that reads from left to right, which has not learned to fill
    /// blanks.
    ///
    /// # Errors
    /// If the model can't be read, has another vocabulary, or too few positions.
    pub fn mark(&self, folder: &Path) -> Result<Option<Mark>> {
        let fault = |what: String| Error::file(folder, what);
        let mut model = Model::read(folder, &PRETRAINING, Some(0))?;
        if model.config.is_decoder {
            return Ok(None);
        }
        if model.fresh.contains(&Part::MaskedLm) {
            return Err(fault("the model has no masked-LM head: it can't fill blanks".into()));
        }
        if wordpiece_of(folder, &model)?.tokens() != self.wordpiece.tokens() {
            return Err(fault("the model has another vocabulary than the exam".into()));
        }
        let (positions, seq) = (model.config.positions(), self.data.options().max_len);
        if positions < seq {
            return Err(fault(format!(
                "the exam has sequences of {seq} tokens, and the model only {positions} positions"
            )));
        }
        let pairs = !model.fresh.contains(&Part::NextSentence);
        if !pairs {
            model = Model::read(folder, &[Part::Encoder, Part::MaskedLm], None)?;
        }
        let setup = Setup::from(Backend::Auto);
        let mut engine = setup.engine(&model.config, &model.layout, model.values)?;
        let mut scores = PretrainingScores::default();
        let sequences = self.data.examples_per_epoch().min(SEQUENCES);
        for first in (0..sequences).step_by(BATCH as usize) {
            crate::interrupt::poll();
            let mut batch = self.data.examples(first..sequences.min(first + BATCH))?;
            if !pairs {
                batch.next_labels.clear();
            }
            scores += engine.pretraining_scores(&batch)?;
        }
        Ok(Some(Mark {
            masked: scores.mlm_total,
            mlm_accuracy: scores.mlm_accuracy(),
            mlm_loss: scores.mean_mlm_loss(),
            nsp_accuracy: pairs.then(|| scores.nsp_accuracy()),
            pairs: scores.nsp_total,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Packing;
    use crate::model::{Config, Layout, weights};
    use crate::text::Casing;
    use crate::train::Recipe;
    use crate::train::pretraining::{Start, vocabulary_of};

    fn saved(folder: &Path, wordpiece: &WordPiece, packing: Packing, left_to_right: bool) {
        let mut config = Config::new(1, 8, 2, 12, wordpiece.vocab_size());
        config.is_decoder = left_to_right;
        let start = Start::new_model(config, wordpiece.clone(), packing, Recipe::Hour, 1);
        weights::write(folder, &start.config, &start.layout, &start.values, wordpiece).unwrap();
    }

    #[test]
    fn every_model_gets_the_same_tokens_whatever_it_learned() {
        let wordpiece = vocabulary_of(&[], 300, Casing::Uncased).unwrap();
        let exam = Exam::new(&[], &wordpiece).unwrap();
        let mark = |packing, left_to_right| {
            let folder = tempfile::tempdir().unwrap();
            saved(folder.path(), &wordpiece, packing, left_to_right);
            exam.mark(folder.path()).unwrap()
        };
        let pairs = mark(Packing::Pairs, false).unwrap();
        let alone = mark(Packing::Full, false).unwrap();
        assert!(pairs.masked > 500 && pairs.masked == alone.masked);
        // An untrained model guesses.
        assert!((pairs.mlm_loss - 300f64.ln()).abs() < 0.5, "{pairs:?}");
        assert!(pairs.standard_error() < 0.01);
        assert!(pairs.pairs > 50 && (0.3..0.7).contains(&pairs.nsp_accuracy.unwrap()));
        assert_eq!((alone.pairs, alone.nsp_accuracy), (0, None));
        assert_eq!(mark(Packing::Full, true), None);
    }

    #[test]
    fn a_model_that_cannot_take_the_exam_is_refused_with_the_reason() {
        let wordpiece = vocabulary_of(&[], 300, Casing::Uncased).unwrap();
        let exam = Exam::new(&[], &wordpiece).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let refused = || exam.mark(folder.path()).unwrap_err().to_string();
        let other = vocabulary_of(&[], 250, Casing::Uncased).unwrap();
        saved(folder.path(), &other, Packing::Pairs, false);
        assert!(refused().ends_with("another vocabulary than the exam"), "{}", refused());
        let mut config = Config::new(1, 8, 2, 12, wordpiece.vocab_size());
        let layout = Layout::new(&config, &[Part::Encoder]);
        let values = layout.initialise(1);
        weights::write(folder.path(), &config, &layout, &values, &wordpiece).unwrap();
        assert!(refused().ends_with("it can't fill blanks"), "{}", refused());
        config.max_position_embeddings = 32;
        let layout = Layout::new(&config, &PRETRAINING);
        let values = layout.initialise(1);
        weights::write(folder.path(), &config, &layout, &values, &wordpiece).unwrap();
        assert!(refused().ends_with("and the model only 32 positions"), "{}", refused());
    }
}
