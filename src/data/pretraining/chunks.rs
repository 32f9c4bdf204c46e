//! Splits documents into chunks: as many whole sentences as fit into one example.
//!
//! The chunks are not stored. Their borders follow from the lengths of the sentences, so opening a corpus
//! reads only the [index](super::store::shard) of its store and notes the place of every 32nd chunk; any
//! other chunk is found by walking on from there.

use std::sync::Arc;

use super::store::TokenStore;
use super::store::shard::Shard;
use super::walk::{Cursor, Documents, FAR, NEAR, Piece, Rules, Walk};
use super::{Packing, PretrainingOptions};
use crate::error::{Error, Result};
use crate::text::WordPiece;

/// Chunks between two noted places.
const STRIDE: u64 = 32;

/// A chunk: some whole sentences, or parts of a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The document of its first sentence.
    pub document: u32,
    index: u64,
    start: Cursor,
}

/// The tokens of a chunk and the starts of its sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentences {
    pub tokens: Vec<u32>,
    /// Index of each sentence's first token; the first entry is 0.
    pub starts: Vec<usize>,
}

/// The chunks of a corpus.
#[derive(Debug)]
pub struct Chunks {
    store: Arc<TokenStore>,
    rules: Rules,
    /// Where the chunks 0, 32, 64 … begin.
    marks: Vec<Cursor>,
    count: u64,
    tokens: u64,
    documents: u64,
    continuation: Vec<bool>,
}

impl Chunks {
    /// Finds the chunks of the `wanted` documents of a store.
    pub fn new(
        store: Arc<TokenStore>,
        wanted: Documents,
        wordpiece: &WordPiece,
        options: &PretrainingOptions,
    ) -> Result<Self> {
        if store.documents() > u64::from(u32::MAX) {
            let message = "the corpus has more than 4,294,967,295 documents";
            return Err(Error::Failed(message.to_owned()));
        }
        let rules = Rules {
            wanted,
            most: options.room(),
            parts: options.packing.parts(),
            separator: (options.packing == Packing::Full).then_some(wordpiece.special().sep),
            short_probability: options.short_probability,
            seed: options.seed,
        };
        let ids = 0..wordpiece.vocab_size() as u32;
        let continuation = ids.map(|id| wordpiece.is_continuation(id)).collect();
        let mut chunks = Self {
            store,
            rules,
            marks: Vec::new(),
            count: 0,
            tokens: 0,
            documents: 0,
            continuation,
        };
        chunks.mark()?;
        Ok(chunks)
    }

    /// Walks through the corpus, counts, and notes the place of every 32nd chunk.
    fn mark(&mut self) -> Result<()> {
        let mut walk = Walk::new(&self.store, self.rules.wanted, Cursor::default(), FAR);
        let mut last = None;
        loop {
            let start = walk.cursor;
            let Some(extent) = walk.next_chunk(&self.rules, self.count)? else {
                break;
            };
            if self.count.is_multiple_of(STRIDE) {
                self.marks.push(start);
            }
            self.count += 1;
            self.tokens += extent.tokens;
            self.documents += extent.documents - u64::from(last == Some(extent.first));
            last = Some(extent.last);
        }
        self.marks.shrink_to_fit();
        Ok(())
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of their tokens, without separators.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the number of documents that gave at least one chunk.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Returns the store that the chunks are in.
    pub fn store(&self) -> &TokenStore {
        &self.store
    }

    /// Finds chunk `index`, below [`count`](Self::count).
    pub fn chunk(&self, index: u64) -> Result<Chunk> {
        let mark = self.marks.get((index / STRIDE) as usize).copied();
        let outside = || Error::Failed("a chunk outside the corpus was requested".to_owned());
        let mark = mark.ok_or_else(outside)?;
        let mut walk = Walk::new(&self.store, self.rules.wanted, mark, NEAR);
        for before in index - index % STRIDE..index {
            walk.next_chunk(&self.rules, before)?;
        }
        let start = walk.cursor;
        let extent = walk.next_chunk(&self.rules, index)?.ok_or_else(outside)?;
        Ok(Chunk { document: extent.first, index, start })
    }

    /// Reads the tokens of a chunk.
    pub fn sentences(&self, chunk: Chunk) -> Result<Sentences> {
        let mut walk = Walk::new(&self.store, self.rules.wanted, chunk.start, NEAR);
        walk.next_chunk(&self.rules, chunk.index)?;
        self.read(&walk.pieces)
    }

    /// Counts the occurrences of each token in the chunks.
    pub fn counts(&self) -> Result<Vec<u64>> {
        let mut counts = vec![0; self.continuation.len()];
        let mut walk = Walk::new(&self.store, self.rules.wanted, Cursor::default(), FAR);
        let mut index = 0;
        let mut tokens = Vec::new();
        while walk.next_chunk(&self.rules, index)?.is_some() {
            for piece in &walk.pieces {
                tokens.clear();
                self.shard(piece).tokens(piece.token, piece.length, &mut tokens)?;
                tokens.iter().for_each(|&token| counts[token as usize] += 1);
            }
            index += 1;
        }
        Ok(counts)
    }

    fn shard(&self, piece: &Piece) -> &Shard {
        &self.store.shards()[piece.shard]
    }

    fn read(&self, pieces: &[Piece]) -> Result<Sentences> {
        let mut sentences = Sentences::default();
        let follows = |a: &Piece, b: &Piece| {
            a.shard == b.shard && a.token + a.length as u64 == b.token && !b.separated
        };
        for run in pieces.chunk_by(follows) {
            if run[0].separated {
                sentences.tokens.extend(self.rules.separator);
            }
            let mut end = sentences.tokens.len();
            for piece in run {
                sentences.starts.push(end);
                end += piece.length;
            }
            let length = end - sentences.tokens.len();
            self.shard(&run[0]).tokens(run[0].token, length, &mut sentences.tokens)?;
        }
        if self.rules.parts == 2 && sentences.starts.len() == 1 {
            sentences.starts.push(self.middle(&sentences.tokens));
        }
        Ok(sentences)
    }

    /// Returns the word boundary of a lone sentence of at least two tokens that is nearest to its middle.
    fn middle(&self, tokens: &[u32]) -> usize {
        let middle = tokens.len() / 2;
        (1..tokens.len())
            .filter(|&place| !self.continuation[tokens[place] as usize])
            .min_by_key(|&place| place.abs_diff(middle))
            .unwrap_or(middle)
    }
}
