//! A walk through the sentences of a store, chunk by chunk, that reads only the lists of the shards' indices:
//! the lengths of the sentences, and the starts of words in sentences that are too long for a chunk.

use super::SHORT;
use super::store::TokenStore;
use super::store::shard::{List, Shard};
use crate::error::Result;
use crate::random::Stream;

/// Bytes of a list that are read at once: by a walk through the whole corpus, and by one to a chunk.
pub const FAR: usize = 1 << 16;
pub const NEAR: usize = 1 << 8;

/// The documents that chunks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Documents {
    /// All of them.
    All,
    /// Those that are not held out.
    Train(HeldOut),
    /// Those that are held out.
    HeldOut(HeldOut),
}

/// About every `every`-th document up to document `last`: the second, and so on, and the fourth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldOut {
    every: u64,
    last: u64,
}

impl HeldOut {
    /// Holds documents out until they have `most` tokens; the last may exceed that.
    pub fn new(store: &TokenStore, every: u64, most: u64) -> Result<Self> {
        let mut held_out = Self { every, last: u64::MAX };
        let mut walk = Walk::new(store, Documents::HeldOut(held_out), Cursor::default(), FAR);
        let (mut tokens, mut last) = (0, 0);
        while walk.next_sentence()? {
            let document = walk.document();
            if document != last && tokens >= most {
                break;
            }
            (tokens, last) = (tokens + u64::from(walk.cursor.rest), document);
            walk.skip();
        }
        held_out.last = last;
        Ok(held_out)
    }

    fn contains(&self, document: u64) -> bool {
        document <= self.last && (document % self.every == 1 || document == 3)
    }
}

impl Documents {
    fn contains(&self, document: u64) -> bool {
        match self {
            Self::All => true,
            Self::Train(held_out) => !held_out.contains(document),
            Self::HeldOut(held_out) => held_out.contains(document),
        }
    }

    /// Returns whether no document after this one is wanted.
    fn end_before(&self, document: u64) -> bool {
        matches!(self, Self::HeldOut(held_out) if document > held_out.last)
    }
}

/// How sentences are put into chunks.
#[derive(Debug)]
pub struct Rules {
    pub wanted: Documents,
    /// Longest chunk in tokens: the sequence length without `[CLS]` and `[SEP]`.
    pub most: usize,
    /// Parts that a chunk must have at least: two for next-sentence prediction.
    pub parts: usize,
    /// Separates two documents in a chunk, if chunks don't end with their document.
    pub separator: Option<u32>,
    pub short_probability: f64,
    pub seed: u64,
}

impl Rules {
    /// Draws the length of a chunk: usually the longest, sometimes a shorter one, so that the model sees short
    /// texts too (BERT's `short_seq_prob`).
    fn target(&self, index: u64) -> usize {
        if self.short_probability == 0.0 {
            return self.most;
        }
        let stream = Stream::new(self.seed, 0, SHORT, index);
        if stream.uniform(0) < self.short_probability {
            self.parts + stream.below(1, (self.most - self.parts + 1) as u32) as usize
        } else {
            self.most
        }
    }
}

/// A place in a store, between two sentences or inside one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Position of the next sentence's length, in bytes.
    at: u64,
    /// Position of the next token in the shard.
    token: u64,
    shard: u32,
    /// Tokens left of the current sentence.
    rest: u32,
    /// Documents that have begun.
    begun: u32,
}

/// A sentence, or a part of one, in a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub shard: usize,
    pub token: u64,
    pub length: usize,
    /// Whether a separator stands before it.
    pub separated: bool,
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The documents of its first and last sentences, and the number of its documents.
    pub first: u32,
    pub last: u32,
    pub documents: u64,
    pub tokens: u64,
}

/// A walk through the wanted sentences of a store.
pub struct Walk<'s> {
    store: &'s TokenStore,
    wanted: Documents,
    pub cursor: Cursor,
    /// Those of the last chunk.
    pub pieces: Vec<Piece>,
    lengths: Window,
    words: Window,
}

impl<'s> Walk<'s> {
    pub fn new(store: &'s TokenStore, wanted: Documents, cursor: Cursor, ahead: usize) -> Self {
        let window = |list| Window { list, shard: 0, start: 0, bytes: Vec::new(), ahead };
        Self {
            store,
            wanted,
            cursor,
            pieces: Vec::new(),
            lengths: window(List::Lengths),
            words: window(List::Words),
        }
    }

    /// Returns the document of the current sentence.
    fn document(&self) -> u64 {
        u64::from(self.cursor.begun).saturating_sub(1)
    }

    /// Leaves out the rest of the current sentence.
    fn skip(&mut self) {
        self.cursor.token += u64::from(self.cursor.rest);
        self.cursor.rest = 0;
    }

    /// Goes on to the next wanted sentence, from the end of one. Returns false at the end of the store.
    fn next_sentence(&mut self) -> Result<bool> {
        let cursor = &mut self.cursor;
        while let Some(shard) = self.store.shards().get(cursor.shard as usize) {
            if cursor.at == shard.size(List::Lengths) {
                if cursor.token != shard.footer().tokens {
                    return Err(shard.damaged());
                }
                *cursor = Cursor { at: 0, token: 0, shard: cursor.shard + 1, ..*cursor };
                continue;
            }
            let (number, bytes) = self.lengths.number(shard, cursor.shard, cursor.at)?;
            let left = shard.footer().tokens - cursor.token;
            let length = u32::try_from(number >> 1).ok().filter(|&n| u64::from(n) <= left);
            let begun = cursor.begun.wrapping_add(number as u32 & 1);
            let (Some(length), Some(document)) = (length, begun.checked_sub(1)) else {
                return Err(shard.damaged());
            };
            if self.wanted.end_before(document.into()) {
                // The cursor stays, because another call must find the same end.
                return Ok(false);
            }
            (cursor.at, cursor.begun) = (cursor.at + bytes, begun);
            if self.wanted.contains(document.into()) {
                cursor.rest = length;
                return Ok(true);
            }
            cursor.token += u64::from(length);
        }
        Ok(false)
    }

    /// Goes on to the end of the chunk that begins here, and collects its pieces. `index` is its number: it
    /// decides the length. Returns None at the end of the store.
    pub fn next_chunk(&mut self, rules: &Rules, index: u64) -> Result<Option<Extent>> {
        let target = rules.target(index);
        loop {
            let Some(extent) = self.fill(rules, target)? else {
                return Ok(None);
            };
            // A document's last word alone can't be split into two parts: it is skipped.
            if extent.tokens >= rules.parts as u64 {
                return Ok(Some(extent));
            }
        }
    }

    fn fill(&mut self, rules: &Rules, target: usize) -> Result<Option<Extent>> {
        self.pieces.clear();
        let mut open: Option<Extent> = None;
        // With separators.
        let mut length = 0;
        loop {
            if self.cursor.rest == 0 {
                match self.next_sentence()? {
                    // It may be empty.
                    true if self.cursor.rest == 0 => continue,
                    true => {}
                    false => return Ok(open),
                }
            }
            let document = self.document() as u32;
            let another = open.is_some_and(|extent| extent.last != document);
            if another && rules.separator.is_none() {
                return Ok(open);
            }
            let rest = self.cursor.rest as usize;
            let between = usize::from(another);
            let fits = length + between + rest <= target;
            let taken = match fits {
                true => rest,
                // Longer than a chunk: its head fills this one.
                false if open.is_none() => self.word_boundary(target)?,
                false => return Ok(open),
            };
            self.take(taken, another);
            length += between + taken;
            let mut extent =
                open.unwrap_or(Extent { first: document, last: document, documents: 1, tokens: 0 });
            extent.documents += u64::from(another);
            extent.last = document;
            extent.tokens += taken as u64;
            open = Some(extent);
            if !fits {
                return Ok(open);
            }
        }
    }

    fn take(&mut self, length: usize, separated: bool) {
        let cursor = &mut self.cursor;
        let shard = cursor.shard as usize;
        self.pieces.push(Piece { shard, token: cursor.token, length, separated });
        cursor.token += length as u64;
        cursor.rest -= length as u32;
    }

    /// Returns the last position up to `limit`, but not 0, at which a word starts in the rest of the current
    /// sentence, which is longer than `limit`.
    fn word_boundary(&mut self, limit: usize) -> Result<usize> {
        let Cursor { token, shard: index, .. } = self.cursor;
        let shard = &self.store.shards()[index as usize];
        let first = token / 8;
        let bytes = (token + limit as u64) / 8 + 1 - first;
        let bytes = self.words.get(shard, index, first, bytes as usize)?;
        let starts = |place: &usize| {
            let bit = token - 8 * first + *place as u64;
            bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1
        };
        Ok((1..=limit).rev().find(starts).unwrap_or(limit))
    }
}

/// Some bytes of a list, read ahead.
struct Window {
    list: List,
    shard: u32,
    start: u64,
    bytes: Vec<u8>,
    ahead: usize,
}

impl Window {
    /// Returns the bytes of the list of shard `index` from `offset` on, at least `needed`.
    fn get(&mut self, shard: &Shard, index: u32, offset: u64, needed: usize) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        let inside = (self.start..end).contains(&offset) && offset + needed as u64 <= end;
        if index != self.shard || !inside {
            let left = shard.size(self.list).saturating_sub(offset);
            if left < needed as u64 {
                return Err(shard.damaged());
            }
            self.bytes.resize(left.min(needed.max(self.ahead) as u64) as usize, 0);
            shard.list(self.list, offset, &mut self.bytes)?;
            (self.shard, self.start) = (index, offset);
        }
        Ok(&self.bytes[(offset - self.start) as usize..])
    }

    /// Reads the number in LEB128 at `offset`, and returns how many bytes it has.
    fn number(&mut self, shard: &Shard, index: u32, offset: u64) -> Result<(u64, u64)> {
        let (mut number, mut bytes) = (0, 0);
        loop {
            let byte = self.get(shard, index, offset + bytes, 1)?[0];
            if bytes > 8 {
                return Err(shard.damaged());
            }
            number |= u64::from(byte & 0x7f) << (7 * bytes);
            bytes += 1;
            if byte < 0x80 {
                return Ok((number, bytes));
            }
        }
    }
}
