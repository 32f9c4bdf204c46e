//! Tokenises text and writes a shard.

use std::io::{self, Write};

use flate2::Crc;
use rayon::prelude::*;

use super::shard::Footer;
use crate::error::Result;
use crate::text::{Paragraph, WordPiece, sentences};

/// Bytes of text that are tokenised together: enough for all threads, few enough for memory.
const BATCH_BYTES: usize = 4 << 20;

/// A shard that is being written. Its index stays in memory until the end.
pub struct ShardWriter<W> {
    out: W,
    continuation: Vec<bool>,
    footer: Footer,
    document: Option<u64>,
    lengths: Vec<u8>,
    words: Vec<u8>,
    counts: Vec<u64>,
    crc: Crc,
    /// The bytes of the current sentence.
    bytes: Vec<u8>,
}

impl<W: Write> ShardWriter<W> {
    /// Begins a shard of text whose checksum is `source`.
    pub fn new(out: W, wordpiece: &WordPiece, source: u32) -> Self {
        let vocab_size = wordpiece.vocab_size() as u32;
        Self {
            out,
            continuation: (0..vocab_size).map(|id| wordpiece.is_continuation(id)).collect(),
            footer: Footer {
                tokens: 0,
                sentences: 0,
                documents: 0,
                lengths: 0,
                vocab_size,
                source,
                checksum: 0,
                index: 0,
            },
            document: None,
            lengths: Vec::new(),
            words: Vec::new(),
            counts: vec![0; vocab_size as usize],
            crc: Crc::new(),
            bytes: Vec::new(),
        }
    }

    /// Appends the next sentence of document `document`; documents come in order.
    pub fn push(&mut self, document: u64, sentence: &[u32]) -> io::Result<()> {
        let begins = self.document != Some(document);
        self.document = Some(document);
        self.footer.documents += u64::from(begins);
        self.footer.sentences += 1;
        let mut number = (sentence.len() as u64) << 1 | u64::from(begins);
        while number >= 0x80 {
            self.lengths.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.lengths.push(number as u8);
        self.bytes.clear();
        let narrow = Footer::token_bytes(self.footer.vocab_size) == 2;
        for &token in sentence {
            match narrow {
                true => self.bytes.extend((token as u16).to_le_bytes()),
                false => self.bytes.extend(token.to_le_bytes()),
            }
            self.counts[token as usize] += 1;
            let bit = self.footer.tokens % 8;
            if bit == 0 {
                self.words.push(0);
            }
            if let Some(byte) = self.words.last_mut() {
                *byte |= u8::from(!self.continuation[token as usize]) << bit;
            }
            self.footer.tokens += 1;
        }
        self.crc.update(&self.bytes);
        self.out.write_all(&self.bytes)
    }

    /// Writes the index and the footer.
    pub fn finish(mut self) -> io::Result<(W, Footer)> {
        let counts = self.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let mut index = Crc::new();
        for list in [&self.lengths, &self.words, &counts] {
            index.update(list);
            self.out.write_all(list)?;
        }
        self.footer.lengths = self.lengths.len() as u64;
        self.footer.checksum = self.crc.sum();
        self.footer.index = index.sum();
        self.out.write_all(&self.footer.encode())?;
        self.out.flush()?;
        Ok((self.out, self.footer))
    }
}

/// Tokenises the sentences of paragraphs on all threads and passes them to `take` in order.
pub fn for_each_sentence(
    paragraphs: impl IntoIterator<Item = Result<Paragraph>>,
    wordpiece: &WordPiece,
    mut take: impl FnMut(u64, &[u32]) -> Result<()>,
) -> Result<()> {
    let mut paragraphs = paragraphs.into_iter();
    loop {
        let mut batch: Vec<Paragraph> = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some(paragraph) = paragraphs.next().transpose()?
        {
            bytes += paragraph.text.len();
            batch.push(paragraph);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let tokenised: Vec<(u64, Vec<u32>, Vec<usize>)> = batch
            .into_par_iter()
            .with_min_len(16)
            .map(|paragraph| {
                let (mut ids, mut ends) = (Vec::new(), Vec::new());
                for sentence in sentences(&paragraph.text) {
                    match ends.is_empty() {
                        true => wordpiece.encode_ids(sentence, &mut ids),
                        false => wordpiece.encode_ids_after_blank(sentence, &mut ids),
                    }
                    ends.push(ids.len());
                }
                (paragraph.document, ids, ends)
            })
            .collect();
        for (document, ids, ends) in tokenised {
            let mut start = 0;
            for end in ends {
                take(document, &ids[start..end])?;
                start = end;
            }
        }
    }
}
