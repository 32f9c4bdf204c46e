//! A shard: the tokens of some whole documents in one file, or in memory, read at any position without
//! loading it.
//!
//! Layout, all numbers little-endian:
//!
//! - the tokens, 2 bytes each if the vocabulary has at most 65,536 entries, else 4;
//! - the index: for each sentence twice its number of tokens, plus 1 if it begins a document, in
//!   LEB128; then a bit a token, 1 if it begins a word; then the occurrences of each entry of the vocabulary,
//!   8 bytes each;
//! - the [`Footer`].
//!
//! The index is about a tenth of the tokens' size. It is enough to cut the text into sequences of any
//! length, so that no run reads all tokens.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use flate2::Crc;

use crate::error::{Error, Result};

/// The last bytes of a shard before its footer's checksum; the last digit is the version.
const MAGIC: &[u8; 8] = b"CLOZETK1";
const FOOTER_BYTES: u64 = 60;
/// Largest vocabulary whose ids fit into 2 bytes.
const NARROW: u32 = 1 << 16;
/// How many bytes are read at once for a checksum.
const BLOCK: u64 = 1 << 20;

/// What a shard holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    pub tokens: u64,
    pub sentences: u64,
    pub documents: u64,
    /// Bytes of the sentences' lengths.
    pub lengths: u64,
    pub vocab_size: u32,
    /// CRC-32 of the text that the tokens were made of.
    pub source: u32,
    /// CRC-32 of the tokens.
    pub checksum: u32,
    /// CRC-32 of the index.
    pub index: u32,
}

impl Footer {
    /// Returns the bytes of a token of a vocabulary.
    pub fn token_bytes(vocab_size: u32) -> u64 {
        if vocab_size <= NARROW { 2 } else { 4 }
    }

    /// Returns the footer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES as usize);
        for number in [self.tokens, self.sentences, self.documents, self.lengths] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [self.vocab_size, self.source, self.checksum, self.index] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(MAGIC);
        bytes.extend(crc(&bytes).to_le_bytes());
        bytes
    }

    /// Returns the footer with these bytes; None if it is damaged or of another version.
    fn decode(bytes: &[u8; FOOTER_BYTES as usize]) -> Option<Self> {
        let (content, sum) = bytes.split_at(FOOTER_BYTES as usize - 4);
        if sum != crc(content).to_le_bytes() || !content.ends_with(MAGIC) {
            return None;
        }
        let (long, rest) = content.split_at(32);
        let mut long = long.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut short = rest.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number));
        Some(Self {
            tokens: long.next()?,
            sentences: long.next()?,
            documents: long.next()?,
            lengths: long.next()?,
            vocab_size: short.next()?,
            source: short.next()?,
            checksum: short.next()?,
            index: short.next()?,
        })
    }

    /// Returns the bytes of the tokens.
    pub fn tokens_bytes(&self) -> u64 {
        self.tokens.saturating_mul(Self::token_bytes(self.vocab_size))
    }

    fn words_bytes(&self) -> u64 {
        self.tokens.div_ceil(8)
    }

    fn index_bytes(&self) -> u64 {
        let counts = 8 * u64::from(self.vocab_size);
        self.lengths.saturating_add(self.words_bytes()).saturating_add(counts)
    }

    /// Returns the size of the shard in bytes.
    pub fn bytes(&self) -> u64 {
        self.tokens_bytes().saturating_add(self.index_bytes()).saturating_add(FOOTER_BYTES)
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// A list of bytes in a shard's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The sentences' lengths.
    Lengths,
    /// The bits of the words' starts.
    Words,
}

/// An open shard.
#[derive(Debug)]
pub struct Shard {
    bytes: Bytes,
    footer: Footer,
}

impl Shard {
    /// Opens a shard and checks its footer and its size.
    pub fn open(bytes: Bytes) -> Result<Self> {
        let size = bytes.size()?;
        let mut end = [0; FOOTER_BYTES as usize];
        let Some(start) = size.checked_sub(FOOTER_BYTES) else {
            return Err(bytes.fault(format!("the shard is cut off: it has only {size} bytes")));
        };
        bytes.read(start, &mut end)?;
        let footer = Footer::decode(&end).ok_or_else(|| {
            bytes.fault(
                "the shard is cut off, damaged, or of another version: its end is not a footer",
            )
        })?;
        if footer.bytes() != size {
            let expected = footer.bytes();
            let message = format!("the shard has {size} bytes; expected {expected}");
            return Err(bytes.fault(message));
        }
        let shard = Self { bytes, footer };
        // A length takes at least a byte.
        match footer.documents <= footer.sentences && footer.sentences <= footer.lengths {
            true => Ok(shard),
            false => Err(shard.damaged()),
        }
    }

    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Appends `count` tokens from position `from` on to `into`.
    pub fn tokens(&self, from: u64, count: usize, into: &mut Vec<u32>) -> Result<()> {
        let width = Footer::token_bytes(self.footer.vocab_size);
        let mut bytes = vec![0; count * width as usize];
        self.bytes.read(from * width, &mut bytes)?;
        let before = into.len();
        match width {
            2 => into.extend(bytes.as_chunks().0.iter().map(|b| u32::from(u16::from_le_bytes(*b)))),
            _ => into.extend(bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b))),
        }
        match into[before..].iter().all(|&id| id < self.footer.vocab_size) {
            true => Ok(()),
            false => Err(self.damaged()),
        }
    }

    /// Returns the size of a list in bytes.
    pub fn size(&self, list: List) -> u64 {
        match list {
            List::Lengths => self.footer.lengths,
            List::Words => self.footer.words_bytes(),
        }
    }

    /// Reads bytes of a list from `offset` on.
    pub fn list(&self, list: List, offset: u64, into: &mut [u8]) -> Result<()> {
        let start = self.footer.tokens_bytes();
        let start = match list {
            List::Lengths => start,
            List::Words => start + self.footer.lengths,
        };
        self.bytes.read(start + offset, into)
    }

    /// Adds the occurrences of each entry of the vocabulary to `counts`.
    pub fn count(&self, counts: &mut [u64]) -> Result<()> {
        let end = self.footer.bytes() - FOOTER_BYTES;
        let mut bytes = vec![0; 8 * self.footer.vocab_size as usize];
        self.bytes.read(end - bytes.len() as u64, &mut bytes)?;
        let here = bytes.as_chunks().0.iter().map(|count| u64::from_le_bytes(*count));
        if here.clone().try_fold(0, u64::checked_add) != Some(self.footer.tokens) {
            return Err(self.damaged());
        }
        counts.iter_mut().zip(here).for_each(|(count, here)| *count += here);
        Ok(())
    }

    /// Returns an error unless the index has its checksum.
    pub fn check_index(&self) -> Result<()> {
        let start = self.footer.tokens_bytes();
        self.check("index", start..start + self.footer.index_bytes(), self.footer.index)
    }

    /// Returns an error unless the tokens have their checksum.
    pub fn check_tokens(&self) -> Result<()> {
        self.check("tokens", 0..self.footer.tokens_bytes(), self.footer.checksum)
    }

    fn check(&self, what: &str, range: std::ops::Range<u64>, expected: u32) -> Result<()> {
        let mut crc = Crc::new();
        let mut block = Vec::new();
        let mut at = range.start;
        while at < range.end {
            block.resize((range.end - at).min(BLOCK) as usize, 0);
            self.bytes.read(at, &mut block)?;
            crc.update(&block);
            at += block.len() as u64;
        }
        if crc.sum() != expected {
            let sum = crc.sum();
            let message = format!(
                "the shard is damaged: its {what} have the checksum {sum:08x}; expected {expected:08x}"
            );
            return Err(self.bytes.fault(message));
        }
        Ok(())
    }

    /// Returns the error of a shard whose content contradicts itself.
    pub fn damaged(&self) -> Error {
        self.bytes.fault("the shard is damaged: its content contradicts itself")
    }
}

/// Bytes in memory or in a file.
#[derive(Debug)]
pub enum Bytes {
    Memory(Vec<u8>),
    File(PathBuf, File),
}

impl Bytes {
    /// Opens a file.
    pub fn open(path: PathBuf) -> Result<Self> {
        match File::open(&path) {
            Ok(file) => Ok(Self::File(path, file)),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    fn size(&self) -> Result<u64> {
        match self {
            Self::Memory(memory) => Ok(memory.len() as u64),
            Self::File(path, file) => {
                file.metadata().map(|data| data.len()).map_err(|e| Error::io(path, e))
            }
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Self::Memory(memory) => {
                let start = offset as usize;
                let bytes = memory.get(start..start + into.len()).ok_or_else(|| {
                    Error::Failed("tokens outside the corpus were requested".to_owned())
                })?;
                into.copy_from_slice(bytes);
                Ok(())
            }
            Self::File(path, file) => {
                file.read_exact_at(into, offset).map_err(|e| Error::io(path, e))
            }
        }
    }

    fn fault(&self, message: impl Into<String>) -> Error {
        match self {
            Self::Memory(_) => Error::Failed(message.into()),
            Self::File(path, _) => Error::file(path, message),
        }
    }
}
