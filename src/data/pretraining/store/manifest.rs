//! The `manifest.json` of a store: what it was made of, and its shards.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::shard::{Bytes, Shard};
use crate::error::{Error, Result};
use crate::files::{Staged, stage_bytes};
use crate::text::WordPiece;
use crate::text::reader::{open, read_json, read_to_string};

/// The version of the format, and of the rules that split text into sentences and word pieces. Increase
/// it when a shard of the same text would be another one.
const VERSION: u32 = 1;
const FORMAT: &str = "cloze token store";

/// What a store was made of, and its shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u32,
    pub vocabulary: Vocabulary,
    /// The text in a shard, in bytes, at most and apart from its last document.
    pub shard_bytes: u64,
    /// The number of shards of the finished store.
    pub pieces: usize,
    pub sources: Vec<Source>,
    /// In the order of the text; None until the store is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<Vec<Entry>>,
}

/// The vocabulary, a copy of which lies in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vocabulary {
    pub tokens: usize,
    /// CRC-32 of its `tokenizer.json`.
    pub checksum: String,
}

/// A file of the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub path: PathBuf,
    pub bytes: u64,
}

/// A finished shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub file: String,
    pub bytes: u64,
    pub documents: u64,
    pub sentences: u64,
    pub tokens: u64,
    /// CRC-32 of the part of the text that the shard was made of.
    pub source_checksum: String,
    /// CRC-32 of the tokens.
    pub checksum: String,
    /// CRC-32 of the index.
    pub index_checksum: String,
}

/// The part of a manifest that every version has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Returns the name of the file of shard `index`.
pub fn shard_name(index: usize) -> String {
    format!("shard-{index:05}.bin")
}

/// Returns a checksum as the manifest shows it.
pub fn hexadecimal(checksum: u32) -> String {
    format!("{checksum:08x}")
}

impl Entry {
    /// Describes a shard.
    pub fn of(index: usize, shard: &Shard) -> Self {
        let footer = shard.footer();
        Self {
            file: shard_name(index),
            bytes: footer.bytes(),
            documents: footer.documents,
            sentences: footer.sentences,
            tokens: footer.tokens,
            source_checksum: hexadecimal(footer.source),
            checksum: hexadecimal(footer.checksum),
            index_checksum: hexadecimal(footer.index),
        }
    }
}

impl Manifest {
    /// Returns the manifest of an unfinished store of `pieces` shards.
    pub fn new(
        wordpiece: &WordPiece,
        shard_bytes: u64,
        pieces: usize,
        sources: Vec<Source>,
    ) -> Result<Self> {
        Ok(Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            vocabulary: Vocabulary {
                tokens: wordpiece.vocab_size(),
                checksum: hexadecimal(crc32fast::hash(wordpiece.json()?.as_bytes())),
            },
            shard_bytes,
            pieces,
            sources,
            shards: None,
        })
    }

    /// Returns the path of the manifest of the store in `folder`.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("manifest.json")
    }

    /// Reads the manifest of the store in `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = Self::path(folder);
        if !path.is_file() {
            let message =
                "this is no store: it has no manifest.json; `cloze prepare` writes stores";
            return Err(Error::file(folder, message));
        }
        let expected = "the manifest of a store";
        let head: Head = read_json(open(&path)?, &path, expected)?;
        if head.format != FORMAT || head.version != VERSION {
            let (format, version) = (head.format, head.version);
            let message = format!(
                "the store is a `{format}` of version {version}; this program reads a `{FORMAT}` of \
                 version {VERSION}"
            );
            return Err(Error::file(path, message));
        }
        read_json(open(&path)?, &path, expected)
    }

    /// Stages the manifest for the store in `folder`.
    pub fn stage(&self, folder: &Path) -> Result<Staged> {
        // A struct of texts, numbers and lists; a path that is no UTF-8 text fails.
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::Failed(format!("the manifest: {e}")))?;
        stage_bytes(&Self::path(folder), format!("{text}\n").as_bytes())
    }

    /// Reads the store's vocabulary.
    pub fn wordpiece(&self, folder: &Path) -> Result<WordPiece> {
        let path = folder.join("tokenizer.json");
        let found = hexadecimal(crc32fast::hash(read_to_string(&path)?.as_bytes()));
        let expected = &self.vocabulary.checksum;
        if found != *expected {
            let message = format!(
                "this is not the vocabulary that the store was made with: its checksum is {found}; \
                 expected {expected}"
            );
            return Err(Error::file(path, message));
        }
        WordPiece::from_file(&path, None)
    }

    /// Opens the shards of a finished store and compares them with the manifest.
    pub fn open_shards(&self, folder: &Path) -> Result<Vec<Shard>> {
        let Some(entries) = &self.shards else {
            let there = (0..self.pieces).filter(|&i| folder.join(shard_name(i)).is_file()).count();
            let pieces = self.pieces;
            let message = format!(
                "the store is not finished: {there} of {pieces} shards are written; give the same \
                 `cloze prepare` again to continue"
            );
            return Err(Error::file(folder, message));
        };
        let open = |(index, entry): (usize, &Entry)| {
            let path = folder.join(&entry.file);
            let shard = Shard::open(Bytes::open(path.clone())?)?;
            let found = Entry::of(index, &shard);
            if found != *entry {
                let (documents, tokens) = (found.documents, found.tokens);
                let message = format!(
                    "this is not the shard of the manifest: it has {tokens} tokens in {documents} \
                     documents and the checksum {}; expected {} in {} and {}",
                    found.checksum, entry.tokens, entry.documents, entry.checksum
                );
                return Err(Error::file(path, message));
            }
            Ok(shard)
        };
        entries.iter().enumerate().map(open).collect()
    }
}
