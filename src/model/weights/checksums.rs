//! Checksums that show whether the files of a model folder belong together and are undamaged.
//!
//! A save renames its files into place one after another, and people copy single files. So the
//! header of the weights holds checksums of the configuration and the vocabulary that they were
//! saved with, and one of the tensors, so that a flipped bit is found. Files written by transformers have none and are
//! accepted as they are.

use std::collections::HashMap;
use std::path::Path;

use ring::digest::{SHA256, digest};
use safetensors::tensor::SafeTensors;
use serde_json::json;

use crate::error::{Error, Result};
use crate::text::WordPiece;

use super::{CONFIG, Config};

/// The header entry of the configuration's checksum.
pub const CONFIG_ENTRY: &str = "cloze.config";
/// The header entry of the vocabulary's checksum.
pub const VOCABULARY_ENTRY: &str = "cloze.vocabulary";

/// The header entry of the tensors' checksum.
pub const TENSORS_ENTRY: &str = "cloze.tensors";

/// Increment this if the checksums cover something else: other versions are ignored.
const VERSION: &str = "1:";

/// Returns the checksum of every field that affects the weights' meaning: sizes, classes, and how
/// text is tokenised. Dropout and fields that only transformers uses may be edited.
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

/// Returns the checksum of the tokens in order and of the casing.
pub fn of_vocabulary(wordpiece: &WordPiece) -> String {
    checksum(&json!([format!("{:?}", wordpiece.casing()), wordpiece.vocab_text()]))
}

/// Returns the checksum of the file's bytes after its header as it is stored.
pub fn of_tensors(sum: crc32fast::Hasher) -> String {
    format!("{VERSION}{:08x}", sum.finalize())
}

/// Returns an error if the tensors in the bytes of a safetensors file are not those that were saved.
pub fn check_tensors(file: &Path, bytes: &[u8]) -> Result<()> {
    let read = SafeTensors::read_metadata(bytes).map_err(|e| Error::file(file, e.to_string()))?;
    let (header_length, header) = read;
    let entries = header.metadata().as_ref();
    let saved = entries.and_then(|entries| entries.get(TENSORS_ENTRY));
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes[size_of::<u64>() + header_length..]);
    let found = of_tensors(sum);
    match saved.filter(|saved| saved.starts_with(VERSION)) {
        Some(saved) if *saved != found => Err(Error::file(
            file,
            format!(
                "is damaged: the checksum of its tensors is {found}, but it was saved with {saved}; copy or make it again"
            ),
        )),
        _ => Ok(()),
    }
}

fn checksum(what: &serde_json::Value) -> String {
    let bytes = digest(&SHA256, what.to_string().as_bytes());
    let hex = bytes.as_ref().iter().map(|byte| format!("{byte:02x}"));
    VERSION.to_owned() + &hex.collect::<String>()
}

/// The checksums in the header of a safetensors file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checksums {
    /// Of the configuration.
    pub config: Option<String>,
    /// Of the vocabulary.
    pub vocabulary: Option<String>,
}

impl Checksums {
    /// Reads the checksums from the bytes of a file. Shards have none.
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
        Self { config: known(CONFIG_ENTRY), vocabulary: known(VOCABULARY_ENTRY) }
    }

    /// Returns an error if the weights were saved with another configuration.
    pub fn check_config(&self, file: &Path, config: &Config) -> Result<()> {
        check(file, self.config.as_deref(), &of_config(config), CONFIG)
    }

    /// Returns an error if the weights were saved with another vocabulary.
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
