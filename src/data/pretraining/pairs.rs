//! Next-sentence pairs: which chunks keep their second part, and which second parts the others get.
//!
//! An epoch visits the chunks in a random order, in blocks of 64. A fair coin decides for each chunk
//! whether its pair is real. The others of the block exchange their second parts, so that every piece of
//! text is still used exactly once in an epoch: sorted by document and shifted by the size of the largest
//! document's group, each gets the second part of another document. If one document has more than half
//! of them, the rest take second parts of chunks drawn from the whole corpus.
//!
//! All chunks that exchange are cut at about the same fraction of their length, so that random pairs are
//! about as long as real ones; otherwise the length would give them away, and a third of the text would
//! be lost to truncation.

use super::chunks::{Chunk, Chunks, Sentences};
use super::order::Permutation;
use super::{CUT, TRUNCATION};
use crate::error::Result;
use crate::random::{Site, Stream};

/// Number of chunks that exchange second parts with each other.
pub const BLOCK: u64 = 64;
/// How many chunks are tried for a second part from another document. After that the first or last chunk
/// of the corpus is used, one of which always belongs to another document.
const TRIES: u32 = 16;

/// The pairs of one block of an epoch.
#[derive(Debug)]
pub struct BlockPlan {
    first: Vec<Chunk>,
    /// The chunk that gives the second part, if it is another one.
    second: Vec<Option<Chunk>>,
    /// The position at which exchanging chunks are cut, as a fraction of their length.
    fraction: f64,
}

/// The two parts of an example, before special tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub a: Vec<u32>,
    pub b: Vec<u32>,
    /// The documents of the parts; different if and only if the pair is random.
    pub documents: (u32, u32),
}

impl BlockPlan {
    /// Plans block `block` of an epoch over all chunks of `chunks`, which has at least two documents.
    pub fn new(chunks: &Chunks, seed: u64, epoch: u32, block: u64) -> Result<Self> {
        let order = Permutation::new(chunks.count(), seed, epoch);
        let places = block * BLOCK..((block + 1) * BLOCK).min(chunks.count());
        let first =
            places.map(|place| chunks.chunk(order.at(place))).collect::<Result<Vec<Chunk>>>()?;
        let stream = Stream::new(seed, epoch, Site::Pairing, block);
        let [low, high, fraction, _] = stream.block(0);
        let coins = u64::from(high) << 32 | u64::from(low);
        let mut exchanging: Vec<usize> = (0..first.len()).filter(|i| coins >> i & 1 == 1).collect();
        exchanging.sort_by_key(|&i| first[i].document);
        let groups = exchanging.chunk_by(|&i, &j| first[i].document == first[j].document);
        let shift = groups.map(<[usize]>::len).max().unwrap_or(0);
        let mut second = vec![None; first.len()];
        for (index, &i) in exchanging.iter().enumerate() {
            let j = exchanging[(index + shift) % exchanging.len()];
            second[i] = Some(if first[i].document == first[j].document {
                elsewhere(chunks, &stream, i as u32, first[i].document)?
            } else {
                first[j]
            });
        }
        Ok(Self { first, second, fraction: f64::from(fraction) / 4_294_967_296.0 })
    }

    /// Returns pair `index` of the block, of at most `room` tokens; `example` is its global index.
    pub fn pair(
        &self,
        chunks: &Chunks,
        seed: u64,
        example: u64,
        index: usize,
        room: usize,
    ) -> Result<Pair> {
        let first = self.first[index];
        let whole = chunks.sentences(first)?;
        let Some(second) = self.second[index] else {
            let cut = cut(&whole, Stream::new(seed, 0, CUT, example).uniform(0));
            let (a, b) = whole.tokens.split_at(cut);
            return Ok(Pair {
                a: a.to_vec(),
                b: b.to_vec(),
                documents: (first.document, first.document),
            });
        };
        let other = chunks.sentences(second)?;
        let mut a = part(&whole, 0, cut(&whole, self.fraction));
        let mut b = part(&other, cut(&other, self.fraction), other.tokens.len());
        let stream = Stream::new(seed, 0, TRUNCATION, example);
        truncate(&mut a, &mut b, room, stream);
        Ok(Pair { a: a.tokens, b: b.tokens, documents: (first.document, second.document) })
    }
}

/// Draws a chunk of another document than `document`, for entry `place` of the block.
fn elsewhere(chunks: &Chunks, stream: &Stream, place: u32, document: u32) -> Result<Chunk> {
    for attempt in 0..TRIES {
        // The first four elements of the stream have been used for the coins and the fraction.
        let index = 4 + place * TRIES + attempt;
        let position = (stream.uniform(index) * chunks.count() as f64) as u64;
        let chunk = chunks.chunk(position.min(chunks.count() - 1))?;
        if chunk.document != document {
            return Ok(chunk);
        }
    }
    let chunk = chunks.chunk(0)?;
    if chunk.document != document {
        return Ok(chunk);
    }
    chunks.chunk(chunks.count() - 1)
}

/// Returns the start of a sentence, except the first, that is nearest to `fraction` of the length.
fn cut(chunk: &Sentences, fraction: f64) -> usize {
    let wanted = fraction * chunk.tokens.len() as f64;
    let distance = |start: &usize| (*start as f64 - wanted).abs();
    let inner = chunk.starts.iter().skip(1).copied();
    inner.min_by(|x, y| distance(x).total_cmp(&distance(y))).unwrap_or(chunk.tokens.len())
}

/// Returns tokens `from..to` of a chunk; both are the start of a sentence or an end of the chunk.
fn part(chunk: &Sentences, from: usize, to: usize) -> Sentences {
    let starts = chunk.starts.iter();
    let inside = starts.filter(|start| (from..to).contains(start));
    Sentences {
        tokens: chunk.tokens[from..to].to_vec(),
        starts: inside.map(|start| start - from).collect(),
    }
}

/// Shortens the longer part until both fit, randomly at its front or its back as in BERT. Whole sentences
/// are removed if there are several: a sentence that breaks off would reveal that the pair is random.
fn truncate(a: &mut Sentences, b: &mut Sentences, room: usize, stream: Stream) {
    let mut draws = stream.draws();
    while a.tokens.len() + b.tokens.len() > room {
        let over = a.tokens.len() + b.tokens.len() - room;
        let longer = match a.tokens.len() > b.tokens.len() {
            true => &mut *a,
            false => &mut *b,
        };
        let length = longer.tokens.len();
        let front = draws.below(2) == 0;
        let (from, to) = match (front, longer.starts.as_slice()) {
            (true, [_, second, ..]) => (*second, length),
            (false, [_, .., last]) => (0, *last),
            // One sentence: the longer part has more than `over` tokens, for it has over half of `room`.
            (true, _) => (over.min(length - 1), length),
            (false, _) => (0, length - over.min(length - 1)),
        };
        let mut kept = part(longer, from, to);
        if kept.starts.first() != Some(&0) {
            kept.starts.insert(0, 0);
        }
        *longer = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_cut_at_the_sentence_nearest_to_the_fraction() {
        let chunk = Sentences { tokens: vec![0; 100], starts: vec![0, 10, 40, 90] };
        for (fraction, start) in [(0.0, 10), (0.2, 10), (0.3, 40), (0.64, 40), (0.7, 90), (1.0, 90)]
        {
            assert_eq!(cut(&chunk, fraction), start, "{fraction}");
        }
        let one = Sentences { tokens: vec![0; 7], starts: vec![0] };
        assert_eq!(cut(&one, 0.5), 7);
    }

    #[test]
    fn sentences_too_long_for_the_room_fill_it_and_keep_a_token_each() {
        for (seed, (first, second, room)) in (0..).zip([(12, 12, 8), (12, 3, 10)].repeat(4)) {
            let sentence = |length| Sentences { tokens: vec![0; length], starts: vec![0] };
            let (mut a, mut b) = (sentence(first), sentence(second));
            truncate(&mut a, &mut b, room, Stream::new(seed, 0, TRUNCATION, 0));
            let lengths = (a.tokens.len(), b.tokens.len());
            assert_eq!(lengths.0 + lengths.1, room, "{lengths:?}");
            assert!(lengths.0 > 0 && lengths.1 > 0, "{lengths:?}");
        }
    }
}
