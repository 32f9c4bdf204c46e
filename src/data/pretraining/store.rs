//! Stores the tokenised corpus: a stream of tokens and one of chunk records of fixed size, each in memory
//! or in a file that is read at any position without loading it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::create_folder;

/// The bit of a stored token that marks the start of a sentence; no vocabulary has 2^31 entries.
const SENTENCE_START: u32 = 1 << 31;

/// A chunk: some whole sentences, or parts of a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of tokens before it in the store.
    pub start: u64,
    /// Number of its tokens.
    pub length: u32,
    /// The document of its first sentence.
    pub document: u32,
}

const TOKEN_BYTES: u64 = 4;
const CHUNK_BYTES: u64 = 16;

/// The tokens of a chunk and the starts of its sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentences {
    pub tokens: Vec<u32>,
    /// Index of each sentence's first token; the first entry is 0.
    pub starts: Vec<usize>,
}

/// A finished store.
#[derive(Debug)]
pub struct Store {
    tokens: Bytes,
    chunks: Bytes,
    count: u64,
}

impl Store {
    /// Returns the number of chunks.
    pub fn chunks(&self) -> u64 {
        self.count
    }

    /// Reads the record of chunk `index`, below [`chunks`](Self::chunks).
    pub fn chunk(&self, index: u64) -> Result<Chunk> {
        let mut bytes = [0; CHUNK_BYTES as usize];
        self.chunks.read(index * CHUNK_BYTES, &mut bytes)?;
        let record = u128::from_le_bytes(bytes);
        Ok(Chunk {
            start: record as u64,
            length: (record >> 64) as u32,
            document: (record >> 96) as u32,
        })
    }

    /// Reads the tokens of a chunk.
    pub fn sentences(&self, chunk: Chunk) -> Result<Sentences> {
        let mut bytes = vec![0; chunk.length as usize * TOKEN_BYTES as usize];
        self.tokens.read(chunk.start * TOKEN_BYTES, &mut bytes)?;
        let mut sentences = Sentences::default();
        for (index, token) in bytes.as_chunks::<4>().0.iter().enumerate() {
            let token = u32::from_le_bytes(*token);
            if token & SENTENCE_START != 0 {
                sentences.starts.push(index);
            }
            sentences.tokens.push(token & !SENTENCE_START);
        }
        Ok(sentences)
    }
}

/// A store that is being written.
pub struct Writer {
    tokens: Sink,
    chunks: Sink,
    token_count: u64,
    chunk_count: u64,
}

impl Writer {
    /// Creates `NAME-tokens.bin` and `NAME-chunks.bin` in `folder`, or a store in memory without one.
    pub fn new(folder: Option<&Path>, name: &str) -> Result<Self> {
        let sink = |kind: &str| match folder {
            Some(folder) => Sink::create(folder, &format!("{name}-{kind}.bin")),
            None => Ok(Sink::Memory(Vec::new())),
        };
        Ok(Self {
            tokens: sink("tokens")?,
            chunks: sink("chunks")?,
            token_count: 0,
            chunk_count: 0,
        })
    }

    /// Returns the number of chunks so far.
    pub fn chunks(&self) -> u64 {
        self.chunk_count
    }

    /// Appends one chunk; `sentences` has at least one token.
    pub fn push(&mut self, document: u32, sentences: &Sentences) -> Result<()> {
        let mut bytes = Vec::with_capacity(sentences.tokens.len() * TOKEN_BYTES as usize);
        let mut starts = sentences.starts.iter().copied().peekable();
        for (index, &token) in sentences.tokens.iter().enumerate() {
            let starts_sentence = starts.next_if_eq(&index).is_some();
            let flag = if starts_sentence { SENTENCE_START } else { 0 };
            bytes.extend((token | flag).to_le_bytes());
        }
        self.tokens.write(&bytes)?;
        let length = sentences.tokens.len() as u32;
        let mut record = Vec::with_capacity(CHUNK_BYTES as usize);
        record.extend(self.token_count.to_le_bytes());
        record.extend(length.to_le_bytes());
        record.extend(document.to_le_bytes());
        self.chunks.write(&record)?;
        self.token_count += u64::from(length);
        self.chunk_count += 1;
        Ok(())
    }

    /// Finishes the store for reading.
    pub fn finish(self) -> Result<Store> {
        Ok(Store {
            tokens: self.tokens.finish()?,
            chunks: self.chunks.finish()?,
            count: self.chunk_count,
        })
    }
}

enum Sink {
    Memory(Vec<u8>),
    File(PathBuf, BufWriter<File>),
}

impl Sink {
    fn create(folder: &Path, name: &str) -> Result<Self> {
        create_folder(folder)?;
        let path = folder.join(name);
        // Creates a new file instead of truncating the old one, which another run may still read.
        if path.exists() {
            fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| Error::io(&path, e))?;
        Ok(Self::File(path, BufWriter::with_capacity(1 << 20, file)))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.extend_from_slice(bytes);
                Ok(())
            }
            Self::File(path, file) => file.write_all(bytes).map_err(|e| Error::io(path, e)),
        }
    }

    fn finish(self) -> Result<Bytes> {
        Ok(match self {
            Self::Memory(memory) => Bytes::Memory(memory),
            Self::File(path, file) => match file.into_inner() {
                Ok(file) => Bytes::File(path, file),
                Err(e) => return Err(Error::io(path, e.into_error())),
            },
        })
    }
}

#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    File(PathBuf, File),
}

impl Bytes {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Self::Memory(memory) => {
                let start = offset as usize;
                let bytes = memory.get(start..start + into.len()).ok_or_else(|| {
                    Error::Failed("a chunk outside the corpus was requested".to_owned())
                })?;
                into.copy_from_slice(bytes);
                Ok(())
            }
            Self::File(path, file) => {
                file.read_exact_at(into, offset).map_err(|e| Error::io(path, e))
            }
        }
    }
}
