//! Splits documents into chunks: as many whole sentences as fit into one example.

use flate2::Crc;

use super::store::{Sentences, Store, Writer};
use super::{Packing, PretrainingOptions, SHORT};
use crate::error::{Error, Result};
use crate::random::Stream;
use crate::text::WordPiece;

/// Collects sentences in the order of the text and writes chunks.
pub struct ChunkBuilder {
    writer: Writer,
    /// Longest chunk in tokens: the sequence length without `[CLS]` and `[SEP]`.
    most: usize,
    /// Parts that a chunk must have at least: two for next-sentence prediction.
    parts: usize,
    /// Separates two documents in a chunk, if chunks don't end with their document.
    separator: Option<u32>,
    short_probability: f64,
    seed: u64,
    continuation: Vec<bool>,
    open: Sentences,
    /// The document of the last sentence.
    document: u32,
    /// The documents of the open chunk's first and last sentences, and the number of its documents.
    first: u32,
    last: u32,
    through: u64,
    /// Longest length of the open chunk: sometimes less than `most`.
    target: usize,
    counts: Vec<u64>,
    checksum: Crc,
    documents: u64,
    last_written: Option<u32>,
}

/// The result of a builder.
pub struct Chunks {
    pub store: Store,
    /// Occurrences of each token of the vocabulary in the store.
    pub counts: Vec<u64>,
    /// CRC-32 of the tokens in the order of the text.
    pub checksum: u32,
    /// Number of documents that gave at least one chunk.
    pub documents: u64,
}

impl ChunkBuilder {
    pub fn new(writer: Writer, wordpiece: &WordPiece, options: &PretrainingOptions) -> Self {
        let ids = 0..wordpiece.vocab_size() as u32;
        let mut builder = Self {
            writer,
            most: options.room(),
            parts: options.packing.parts(),
            separator: (options.packing == Packing::Full).then_some(wordpiece.special().sep),
            short_probability: options.short_probability,
            seed: options.seed,
            continuation: ids.map(|id| wordpiece.is_continuation(id)).collect(),
            open: Sentences::default(),
            document: 0,
            first: 0,
            last: 0,
            through: 0,
            target: 0,
            counts: vec![0; wordpiece.vocab_size()],
            checksum: Crc::new(),
            documents: 0,
            last_written: None,
        };
        builder.target = builder.draw_target();
        builder
    }

    /// Draws the length of the next chunk: usually the longest, sometimes a shorter one, so that the model
    /// sees short texts too (BERT's `short_seq_prob`).
    fn draw_target(&self) -> usize {
        let stream = Stream::new(self.seed, 0, SHORT, self.writer.chunks());
        if stream.uniform(0) < self.short_probability {
            self.parts + stream.below(1, (self.most - self.parts + 1) as u32) as usize
        } else {
            self.most
        }
    }

    /// Adds the next sentence of document `document`; documents come in order.
    pub fn push(&mut self, document: u64, mut sentence: &[u32]) -> Result<()> {
        let document = u32::try_from(document).map_err(|_| {
            Error::Failed("the corpus has more than 4,294,967,295 documents".to_owned())
        })?;
        if document != self.document {
            if self.separator.is_none() {
                self.close()?;
            }
            self.document = document;
        }
        while !sentence.is_empty() {
            let between = usize::from(self.between().is_some());
            if self.open.tokens.len() + between + sentence.len() <= self.target {
                self.append(sentence);
                return Ok(());
            }
            if self.open.tokens.is_empty() {
                // Longer than a chunk: its head fills this one.
                let (head, tail) = sentence.split_at(self.word_boundary(sentence, self.target));
                self.append(head);
                sentence = tail;
            }
            self.close()?;
        }
        Ok(())
    }

    /// Returns the separator before the next sentence, if one is needed.
    fn between(&self) -> Option<u32> {
        let another = !self.open.tokens.is_empty() && self.last != self.document;
        self.separator.filter(|_| another)
    }

    fn append(&mut self, part: &[u32]) {
        self.open.tokens.extend(self.between());
        if self.open.tokens.is_empty() {
            (self.first, self.through) = (self.document, 1);
        } else if self.last != self.document {
            self.through += 1;
        }
        self.last = self.document;
        self.open.starts.push(self.open.tokens.len());
        self.open.tokens.extend_from_slice(part);
    }

    /// Returns the last index up to `limit`, but not 0, at which a new word starts.
    fn word_boundary(&self, tokens: &[u32], limit: usize) -> usize {
        (1..=limit).rev().find(|&place| !self.continuation[tokens[place] as usize]).unwrap_or(limit)
    }

    /// Writes the open chunk.
    fn close(&mut self) -> Result<()> {
        let mut chunk = std::mem::take(&mut self.open);
        if self.parts == 2 && chunk.starts.len() == 1 {
            self.split_in_two(&mut chunk);
        }
        // A document's last word alone can't be split into two parts: it is skipped.
        if chunk.starts.len() < self.parts {
            return Ok(());
        }
        for &token in &chunk.tokens {
            // A separator is no text.
            if self.separator != Some(token) {
                self.counts[token as usize] += 1;
                self.checksum.update(&token.to_le_bytes());
            }
        }
        self.writer.push(self.first, &chunk)?;
        self.documents += self.through - u64::from(self.last_written == Some(self.first));
        self.last_written = Some(self.last);
        self.target = self.draw_target();
        Ok(())
    }

    /// Splits a lone sentence at the word boundary nearest to its middle.
    fn split_in_two(&self, chunk: &mut Sentences) {
        let middle = chunk.tokens.len() / 2;
        let boundary = (1..chunk.tokens.len())
            .filter(|&place| !self.continuation[chunk.tokens[place] as usize])
            .min_by_key(|&place| place.abs_diff(middle));
        if let Some(place) = boundary.or((middle > 0).then_some(middle)) {
            chunk.starts.push(place);
        }
    }

    /// Ends the corpus.
    pub fn finish(mut self) -> Result<Chunks> {
        self.close()?;
        let store = self.writer.finish()?;
        Ok(Chunks {
            store,
            counts: self.counts,
            checksum: self.checksum.sum(),
            documents: self.documents,
        })
    }
}
