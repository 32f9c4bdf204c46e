//! The tokenised text of a pre-training run: from files of text, which are tokenised once for all phases, or
//! from a store that was prepared.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::{PretrainingData, PretrainingOptions, TokenStore};
use crate::error::{Error, Result};
use crate::text::{Paragraph, Paragraphs, WordPiece, embedded};

/// One document in this many is held out for evaluation.
const HELD_OUT: u64 = 10;

/// Reads the text of these files and folders; Cloze's own small corpus if there are none.
pub fn paragraphs(text: &[PathBuf]) -> Result<Box<dyn Iterator<Item = Result<Paragraph>>>> {
    Ok(match text {
        [] => Box::new(embedded::paragraphs().map(Ok)),
        files => Box::new(Paragraphs::new(files)?),
    })
}

/// Where the text to train on is.
pub(super) enum Source<'s> {
    /// In these files and folders.
    Text(&'s [PathBuf]),
    /// In this store of this vocabulary.
    Store(&'s Arc<TokenStore>, &'s WordPiece),
}

/// The tokenised text of a run.
pub(super) struct Corpus {
    text: Arc<TokenStore>,
    /// The text to measure on; None for some documents of the text itself.
    held_out: Option<Arc<TokenStore>>,
}

impl Corpus {
    /// Tokenises the text that is not in a store yet, into files in `folder`.
    ///
    /// # Errors
    /// If a file can't be read, or if the store has another vocabulary.
    pub(super) fn new(
        source: Source<'_>,
        held_out: &[PathBuf],
        wordpiece: &WordPiece,
        folder: &Path,
    ) -> Result<Self> {
        let build = |paragraphs, name| {
            TokenStore::build(paragraphs, wordpiece, Some(&folder.join(name))).map(Arc::new)
        };
        let text = match source {
            Source::Text(files) => build(paragraphs(files)?, "text.bin")?,
            Source::Store(_, theirs) if theirs.tokens() != wordpiece.tokens() => {
                let message = "the store was prepared with another vocabulary than the model's";
                return Err(Error::Usage(message.to_owned()));
            }
            Source::Store(store, _) => store.clone(),
        };
        let held_out = match held_out {
            [] => None,
            files => Some(build(paragraphs(files)?, "held-out.bin")?),
        };
        Ok(Self { text, held_out })
    }

    /// Returns the data to train on and the held-out data.
    pub(super) fn data(
        &self,
        wordpiece: &WordPiece,
        options: &PretrainingOptions,
    ) -> Result<(PretrainingData, PretrainingData)> {
        let Some(held_out) = &self.held_out else {
            return PretrainingData::split(&self.text, wordpiece, options, HELD_OUT);
        };
        let held_out = PretrainingData::of(held_out, wordpiece, options);
        let held_out = held_out.map_err(|error| match error {
            Error::Failed(why) => Error::Failed(format!("the held-out text: {why}")),
            other => other,
        })?;
        Ok((PretrainingData::of(&self.text, wordpiece, options)?, held_out))
    }
}
