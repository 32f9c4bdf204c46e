//! The tokenizer in a model's folder.

use std::path::Path;

use crate::error::{Error, Result};
use crate::model::Config;
use crate::note;
use crate::text::WordPiece;

use super::Model;

/// A model may have this many more word embeddings than the vocabulary has entries, as padding for the
/// hardware. With more, the two may not belong together.
const PADDING: usize = 128;

/// Reads the tokenizer in the folder of `model`.
///
/// # Errors
/// If the model was not saved with it, or lacks some of its tokens.
pub fn wordpiece_of(folder: &Path, model: &Model) -> Result<WordPiece> {
    let wordpiece = any_wordpiece_of(folder, &model.config)?;
    model.check_vocabulary(&wordpiece)?;
    Ok(wordpiece)
}

/// Reads the tokenizer in `folder`, which the model need not have been saved with.
///
/// # Errors
/// If it has more tokens than `config`.
pub fn any_wordpiece_of(folder: &Path, config: &Config) -> Result<WordPiece> {
    let wordpiece = WordPiece::from_file(folder, None)?;
    let (has, knows) = (wordpiece.vocab_size(), config.vocab_size);
    if has > knows {
        let message =
            format!("its vocabulary has {has} entries, but the model's vocab_size is {knows}");
        return Err(Error::file(WordPiece::file_in(folder), message));
    }
    if has + PADDING <= knows {
        note!(
            "{} has {has} entries, but the model's vocab_size is {knows}: do they belong together?",
            WordPiece::file_in(folder).display()
        );
    }
    Ok(wordpiece)
}
