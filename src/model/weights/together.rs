//! Which files of a model folder belong together.
//!
//! The files of a folder take their places one after the other, and people copy single files. So the
//! header of the weights holds checksums of the configuration and of the vocabulary that they were
//! saved with. What transformers writes has none, and is taken as it is.

use std::collections::HashMap;
use std::path::Path;

use ring::digest::{SHA256, digest};
use safetensors::tensor::SafeTensors;
use serde_json::json;

use crate::error::{Error, Result};
use crate::text::WordPiece;

use super::{CONFIG, Config};

/// The entries of the header.
pub const CONFIG_ENTRY: &str = "cloze.config";
pub const VOCABULARY_ENTRY: &str = "cloze.vocabulary";

/// Increment this when the checksums cover something else: those of other versions are ignored.
const VERSION: &str = "1:";

/// Returns the checksum of all that decides what weights mean: sizes, classes, and how texts are
/// read. Dropout, and what only transformers knows, may be edited.
pub fn of_config(config: &Config) -> String {
    let entry = |name: &str| config.other.get(name).cloned().unwrap_or_default();
    checksum(&json!([
        config.architectures,
        config.vocab_size,
        config.hidden_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
        config.max_position_embeddings,
        config.type_vocab_size,
        config.layer_norm_eps,
        config.is_decoder,
        config.labels(),
        config.classes(),
        entry("problem_type"),
        entry("finetuning_options"),
    ]))
}

/// Returns the checksum of the tokens in their order, and of whether text is lowered.
pub fn of_vocabulary(wordpiece: &WordPiece) -> String {
    checksum(&json!([
        format!("{:?}", wordpiece.casing()),
        wordpiece.vocab_text()
    ]))
}

fn checksum(what: &serde_json::Value) -> String {
    let bytes = digest(&SHA256, what.to_string().as_bytes());
    let hex = bytes.as_ref().iter().map(|byte| format!("{byte:02x}"));
    VERSION.to_owned() + &hex.collect::<String>()
}

/// The checksums in the header of a file of tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedWith {
    pub config: Option<String>,
    pub vocabulary: Option<String>,
}

impl SavedWith {
    /// Reads them from the bytes of the file. Shards have none.
    pub fn of(bytes: &[u8]) -> Self {
        let header = SafeTensors::read_metadata(bytes).ok();
        let entries = header.and_then(|(_, header)| header.metadata().clone());
        Self::entries(&entries.unwrap_or_default())
    }

    fn entries(entries: &HashMap<String, String>) -> Self {
        let known = |name: &str| {
            let entry = entries.get(name).filter(|sum| sum.starts_with(VERSION));
            entry.cloned()
        };
        Self {
            config: known(CONFIG_ENTRY),
            vocabulary: known(VOCABULARY_ENTRY),
        }
    }

    /// Refuses weights that were saved with another configuration than the one beside them.
    pub fn check_config(&self, file: &Path, config: &Config) -> Result<()> {
        check(file, self.config.as_deref(), &of_config(config), CONFIG)
    }

    /// Refuses weights that were saved with another vocabulary than the one beside them.
    pub fn check_vocabulary(&self, file: &Path, wordpiece: &WordPiece) -> Result<()> {
        let found = of_vocabulary(wordpiece);
        check(file, self.vocabulary.as_deref(), &found, "vocabulary")
    }
}

fn check(file: &Path, saved: Option<&str>, found: &str, what: &str) -> Result<()> {
    if saved.is_none_or(|saved| saved == found) {
        return Ok(());
    }
    Err(Error::file(
        file,
        format!(
            "was saved with another {what} than the one beside it: a save was interrupted, or a file \
             was replaced; if you changed it on purpose, `cloze convert --accept-changes DIR OUT` \
             writes a folder whose files belong together"
        ),
    ))
}
