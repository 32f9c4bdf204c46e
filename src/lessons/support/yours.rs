//! The learner's own BERT: the text and the model with which it is pre-trained, the functions that train it,
//! and the folder where it is kept for later lessons.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::{PretrainingData, PretrainingOptions, bundled};
use crate::engine::{Engine, TinyBert};
use crate::error::{Error, Result};
use crate::files::{create_folder, data_folder};
use crate::lessons::exercise::was_given;
use crate::model::weights::{self, Model};
use crate::model::{Config, Layout, PRETRAINING, Size};
use crate::note;
use crate::text::{Casing, WordPiece};
use crate::train::pretraining::paragraphs;
use dfdx::nn::modules::Linear;
use dfdx::prelude::Cpu;

/// The folder of the learner's model.
const YOURS: &str = "your-bert";

/// The pieces of the vocabulary.
const VOCABULARY: usize = 1_000;

/// What a small BERT is pre-trained on.
pub struct Material {
    /// The tokenizer, trained on the text.
    pub tokenizer: WordPiece,
    /// Pairs of sentences of up to 40 tokens, of which 40 % are masked.
    pub data: PretrainingData,
    /// The same of every tenth document.
    pub held_out: PretrainingData,
    /// The size `tiny`, without dropout.
    pub config: Config,
    /// The layout of its parameters, with both heads.
    pub layout: Arc<Layout>,
}

impl Material {
    /// Reads a text file or a folder of them, or the stories that come with Cloze. An empty line ends a
    /// document.
    ///
    /// # Errors
    /// If the text can't be read or is too short to hold documents out.
    pub fn new(text: Option<&Path>) -> Result<Self> {
        let files: Vec<PathBuf> = text.map(Path::to_owned).into_iter().collect();
        let texts = paragraphs(&files)?.map(|paragraph| paragraph.map(|it| it.text));
        let tokenizer = WordPiece::train(texts, VOCABULARY, Casing::Uncased)?;
        let options = PretrainingOptions {
            max_len: 40,
            mask_probability: 0.4,
            seed: 7,
            ..PretrainingOptions::default()
        };
        let (data, held_out) =
            PretrainingData::build_split(paragraphs(&files)?, &tokenizer, &options, None, 10)?;
        let mut config = Size::Tiny.config(tokenizer.vocab_size());
        // Without dropout two programs can compute the very same numbers.
        (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (0.0, 0.0);
        // 0.02 is made for width 768; a narrow model starts to learn sooner with larger weights.
        config.initializer_range = 0.05;
        let layout = Layout::new(&config, &PRETRAINING);
        Ok(Self { tokenizer, data, held_out, config, layout })
    }
}

/// Returns the pooler's linear layer and the next-sentence classifier of a model, as lesson 09 takes them.
///
/// # Panics
/// If the model was built without them.
pub fn pair_head(bert: &TinyBert) -> (Linear<128, 128, f32, Cpu>, Linear<128, 2, f32, Cpu>) {
    match (&bert.pooler, &bert.next_sentence) {
        (Some(pooler), Some(classifier)) => (pooler.clone(), classifier.clone()),
        _ => panic!("a model for pre-training has a pooler and a next-sentence head"),
    }
}

/// The exercise with whose answer the model is pre-trained.
const LOOP: &str = "11.3";

/// Returns a folder of the user's data, which may not exist yet.
fn folder(name: &str) -> Result<PathBuf> {
    let folder = data_folder().map(|folder| folder.join(name));
    folder.ok_or_else(|| Error::Failed("there is no data folder: set CLOZE_DATA to one".into()))
}

/// Saves the learner's model with its vocabulary, in Hugging Face's layout. Returns the folder, `your-bert` in the
/// user's data. A lesson that runs as a program with its own solution saves to `lesson-bert`, so that it never
/// replaces the learner's model.
///
/// # Errors
/// If it can't be written.
pub fn save(model: &dyn Engine, tokenizer: &WordPiece) -> Result<PathBuf> {
    let folder = folder(if was_given(LOOP) { "lesson-bert" } else { YOURS })?;
    create_folder(&folder)?;
    weights::write(&folder, model.config(), model.layout(), &model.parameters()?, tokenizer)?;
    Ok(folder)
}

/// Returns the folder of the model to fine-tune, and its name: the learner's own if it is there and complete,
/// otherwise `cloze-tiny`.
///
/// # Errors
/// If the cache can't be written.
pub fn start() -> Result<(PathBuf, &'static str)> {
    if let Ok(folder) = folder(YOURS)
        && folder.exists()
    {
        match Model::read_all(&folder) {
            Ok(_) => return Ok((folder, "your own BERT, from lesson 11")),
            Err(error) => {
                note!("your own BERT can't be read, so cloze-tiny takes its place: {error}")
            }
        }
    }
    Ok((bundled::folder(bundled::TINY)?, "cloze-tiny"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_one_s_own_becomes_material() {
        let dir = tempfile::tempdir().unwrap();
        let book = dir.path().join("book.txt");
        let chapter =
            "The mill stood by the river. Anna went to the mill. It was late in the year.\n\n";
        std::fs::write(&book, chapter.repeat(40)).unwrap();
        let own = Material::new(Some(&book)).unwrap();
        assert!(own.tokenizer.vocab_size() < 300);
        assert!(own.held_out.documents() >= 1);
        assert_eq!(own.data.batch(0, 3).unwrap().packed.sequences(), 3);
        let error = Material::new(Some(&dir.path().join("none.txt"))).err().unwrap();
        assert!(error.to_string().contains("none.txt"), "{error}");
    }
}
