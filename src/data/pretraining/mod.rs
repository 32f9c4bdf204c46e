//! Pre-training examples: tokens to predict (masked ones, or every next one), and pairs whose second part
//! follows the first or comes from another document.
//!
//! A corpus is tokenised once ([`store`]) and split into chunks when a run opens it ([`chunks`]);
//! everything else is drawn when an example is requested. Example j of a run is a pure function of (seed, j):
//! epoch, order ([`order`]), partner ([`pairs`]) and masks ([`masking`]) follow from counters, so a run can
//! be resumed, or shared by any number of ranks, without stored state. If the corpus is stored in files,
//! memory hardly grows with it.
//!
//! Source: Devlin et al., "BERT: pre-training of deep bidirectional transformers for language
//! understanding", 2019, appendix A.

mod chunks;
pub mod masking;
mod order;
mod pairs;
pub mod store;
mod walk;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::chunks::Chunks;
use self::masking::{Masker, Target};
use self::order::Permutation;
use self::pairs::{BLOCK, BlockPlan};
use self::store::TokenStore;
use self::walk::{Documents, HeldOut};
use super::Packed;
use crate::error::{Error, Result};
use crate::random::Site;
use crate::text::{Paragraph, SpecialIds, WordPiece};

/// Uses of random numbers: lengths of chunks, cuts of real pairs, truncation.
const SHORT: Site = Site::Other(1);
const CUT: Site = Site::Other(2);
const TRUNCATION: Site = Site::Other(3);

/// What the text of an example consists of: the formats that Liu et al., arXiv 1907.11692, section 3.2,
/// compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// Two segments for next-sentence prediction, as in BERT (their SEGMENT-PAIR).
    Pairs,
    /// One segment of whole sentences of one document (DOC-SENTENCES). Examples at the end of a document
    /// are shorter.
    Document,
    /// One segment of as many whole sentences as fit, which continues in the next document after a `[SEP]`
    /// (FULL-SENTENCES, RoBERTa's choice).
    Full,
}

/// How examples are made. The defaults are BERT's.
#[derive(Clone, Debug, PartialEq)]
pub struct PretrainingOptions {
    /// Longest example in tokens, including special tokens.
    pub max_len: usize,
    /// The share of tokens to predict.
    pub mask_probability: f64,
    /// Whether whole words are chosen instead of single pieces.
    pub whole_word: bool,
    /// The share of chunks that are randomly shortened.
    pub short_probability: f64,
    /// What the text of an example consists of.
    pub packing: Packing,
    /// Whether the model predicts every token from those before it instead of masked tokens from all
    /// others. Nothing is masked then.
    pub left_to_right: bool,
    /// The key of all random numbers.
    pub seed: u64,
}

impl Default for PretrainingOptions {
    fn default() -> Self {
        Self {
            max_len: 128,
            mask_probability: 0.15,
            whole_word: false,
            short_probability: 0.1,
            packing: Packing::Pairs,
            left_to_right: false,
            seed: 0,
        }
    }
}

impl Packing {
    /// Returns the number of segments of an example, each with a `[SEP]` at its end.
    fn parts(self) -> usize {
        match self {
            Self::Pairs => 2,
            Self::Document | Self::Full => 1,
        }
    }

    /// Returns whether examples are pairs for next-sentence prediction.
    pub fn next_sentence(self) -> bool {
        self == Self::Pairs
    }
}

/// Upper limit of held-out tokens; the last held-out document may exceed it.
const HELD_OUT_TOKENS: u64 = 2_000_000;

impl PretrainingOptions {
    /// Returns the number of text tokens in the longest example.
    fn room(&self) -> usize {
        self.max_len - 1 - self.packing.parts()
    }

    fn check(&self) -> Result<()> {
        let usage = |message: String| Err(Error::Usage(message));
        if self.max_len < 8 {
            return usage(format!(
                "sequences of {} tokens are too short for pre-training; at least 8 are needed",
                self.max_len
            ));
        }
        if !(self.mask_probability > 0.0 && self.mask_probability < 1.0) {
            return usage(format!(
                "the share of masked tokens is {}; expected a number above 0 and below 1",
                self.mask_probability
            ));
        }
        if !(0.0..=1.0).contains(&self.short_probability) {
            return usage(format!(
                "the share of short sequences is {}; expected a number from 0 to 1",
                self.short_probability
            ));
        }
        Ok(())
    }
}

fn check_every(every: u64) -> Result<()> {
    if every < 2 {
        let message = format!("1 in {every} documents cannot be held out; expected 2 or more");
        return Err(Error::Usage(message));
    }
    Ok(())
}

/// A pre-training example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PretrainingExample {
    /// Its index in the run.
    pub index: u64,
    /// The tokens that the model sees.
    pub ids: Vec<u32>,
    /// Segment ids, one a token.
    pub segments: Vec<u32>,
    /// The tokens to predict, by position.
    pub targets: Vec<Target>,
    /// 0 if B follows A, 1 if it is random (as in Hugging Face's models); none without pairs.
    pub next_label: Option<u32>,
    /// The documents of the two segments, counted from 0 in the corpus; with one segment, its first document
    /// twice.
    pub documents: (u32, u32),
}

/// Several examples end to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PretrainingBatch {
    /// The sequences.
    pub packed: Packed,
    /// Rows of `packed` with a token to predict, ascending.
    pub masked_rows: Vec<u32>,
    /// The original token of each masked row.
    pub masked_labels: Vec<u32>,
    /// One label a sequence: 0 if B follows A, 1 if B is random. Empty without next-sentence prediction.
    pub next_labels: Vec<u32>,
}

impl PretrainingBatch {
    /// Copies the sequences `which` into a new batch.
    pub fn slice(&self, which: std::ops::Range<usize>) -> Self {
        let first = self.packed.cu_seqlens[which.start];
        let end = self.packed.cu_seqlens[which.end];
        let rows = &self.masked_rows;
        let masked = rows.partition_point(|&r| r < first)..rows.partition_point(|&r| r < end);
        let masked_rows = rows[masked.clone()].iter().map(|&row| row - first);
        let next_labels = self.next_labels.get(which.clone()).unwrap_or_default();
        Self {
            packed: self.packed.slice(which),
            masked_rows: masked_rows.collect(),
            masked_labels: self.masked_labels[masked].to_vec(),
            next_labels: next_labels.to_vec(),
        }
    }
}

/// A tokenised corpus that generates examples.
#[derive(Debug)]
pub struct PretrainingData {
    chunks: Chunks,
    masker: Masker,
    special: SpecialIds,
    options: PretrainingOptions,
    unigram_entropy: f64,
}

impl PretrainingData {
    /// Tokenises a corpus. With `cache`, the tokens are written to a new file in that folder (2 bytes a
    /// token, 4 for a vocabulary of more than 65,536 entries); without, they stay in memory.
    pub fn build(
        paragraphs: impl IntoIterator<Item = Result<Paragraph>>,
        wordpiece: &WordPiece,
        options: &PretrainingOptions,
        cache: Option<&Path>,
    ) -> Result<Self> {
        options.check()?;
        let file = cache.map(|folder| folder.join("tokens.bin"));
        let store = TokenStore::build(paragraphs, wordpiece, file.as_deref())?;
        Self::of(&Arc::new(store), wordpiece, options)
    }

    /// Tokenises a corpus and holds out some documents, as [`split`](Self::split) does.
    pub fn build_split(
        paragraphs: impl IntoIterator<Item = Result<Paragraph>>,
        wordpiece: &WordPiece,
        options: &PretrainingOptions,
        cache: Option<&Path>,
        every: u64,
    ) -> Result<(Self, Self)> {
        options.check()?;
        check_every(every)?;
        let file = cache.map(|folder| folder.join("tokens.bin"));
        let store = TokenStore::build(paragraphs, wordpiece, file.as_deref())?;
        Self::split(&Arc::new(store), wordpiece, options, every)
    }

    /// Generates examples of all documents of a tokenised corpus; `wordpiece` is its vocabulary.
    pub fn of(
        store: &Arc<TokenStore>,
        wordpiece: &WordPiece,
        options: &PretrainingOptions,
    ) -> Result<Self> {
        options.check()?;
        let chunks = Chunks::new(store.clone(), Documents::All, wordpiece, options)?;
        let counts = store.counts()?;
        Self::new(chunks, &counts, wordpiece, options)
    }

    /// Holds out about every `every`-th document of a tokenised corpus (the second, and so on) up to two
    /// million tokens: more would not measure better, and would be lost for training. Returns the training
    /// data and the held-out data. Of the first four documents two are held out, so that a corpus of four
    /// has enough for pairs on both sides.
    pub fn split(
        store: &Arc<TokenStore>,
        wordpiece: &WordPiece,
        options: &PretrainingOptions,
        every: u64,
    ) -> Result<(Self, Self)> {
        options.check()?;
        check_every(every)?;
        let held_out = HeldOut::new(store, every, HELD_OUT_TOKENS)?;
        let chunks = |documents| Chunks::new(store.clone(), documents, wordpiece, options);
        let train = chunks(Documents::Train(held_out))?;
        let held_out = chunks(Documents::HeldOut(held_out))?;
        if held_out.documents() < options.packing.parts() as u64 {
            return Err(Error::Failed(
                "the text has too few documents to keep some apart for evaluation: at least four \
                 are needed; separate documents by blank lines or give more files"
                    .to_owned(),
            ));
        }
        let held_out_counts = held_out.counts()?;
        let mut counts = store.counts()?;
        for (count, here) in counts.iter_mut().zip(&held_out_counts) {
            *count = count.checked_sub(*here).ok_or_else(|| {
                Error::Failed(
                    "the store is damaged: its index counts other tokens than it has".to_owned(),
                )
            })?;
        }
        Ok((
            Self::new(train, &counts, wordpiece, options)?,
            Self::new(held_out, &held_out_counts, wordpiece, options)?,
        ))
    }

    /// `counts` are the occurrences of each token in the text.
    fn new(
        chunks: Chunks,
        counts: &[u64],
        wordpiece: &WordPiece,
        options: &PretrainingOptions,
    ) -> Result<Self> {
        if chunks.tokens() == 0 {
            return Err(Error::Failed(
                "the text is too short to make a single pre-training example of it".to_owned(),
            ));
        }
        if options.packing.next_sentence() && chunks.documents() < 2 {
            return Err(Error::Failed(
                "next-sentence prediction takes its random pairs from other documents, but the \
                 text has only one: separate documents by blank lines, give several files, or turn \
                 next-sentence prediction off"
                    .to_owned(),
            ));
        }
        let total: u64 = counts.iter().sum();
        let entropy = |count: &u64| match *count as f64 / total as f64 {
            0.0 => 0.0,
            share => -share * share.ln(),
        };
        Ok(Self {
            masker: Masker::new(
                wordpiece,
                options.mask_probability,
                options.whole_word,
                options.seed,
            ),
            special: wordpiece.special(),
            options: options.clone(),
            unigram_entropy: counts.iter().map(entropy).sum(),
            chunks,
        })
    }

    /// Returns the number of examples in which all text is seen once.
    pub fn examples_per_epoch(&self) -> u64 {
        self.chunks.count()
    }

    /// Returns the number of text tokens, without special tokens.
    pub fn tokens(&self) -> u64 {
        self.chunks.tokens()
    }

    /// Returns a CRC-32 of the tokens of the whole corpus, held-out documents included, which depends on
    /// their order.
    pub fn checksum(&self) -> u32 {
        self.chunks.store().checksum()
    }

    /// Returns the number of documents.
    pub fn documents(&self) -> u64 {
        self.chunks.documents()
    }

    /// Returns the entropy of single tokens in nats: the loss of the best model without context.
    pub fn unigram_entropy(&self) -> f64 {
        self.unigram_entropy
    }

    /// Returns the options of the data.
    pub fn options(&self) -> &PretrainingOptions {
        &self.options
    }

    /// Returns batch `k` of a run: the examples from `k * batch_size` on.
    pub fn batch(&self, k: u64, batch_size: usize) -> Result<PretrainingBatch> {
        let start = k * batch_size as u64;
        self.examples(start..start + batch_size as u64)
    }

    /// Returns these examples of a run as a batch.
    pub fn examples(&self, which: Range<u64>) -> Result<PretrainingBatch> {
        let mut batch = PretrainingBatch::default();
        let mut plans = Plans::default();
        for index in which {
            let example = self.example_with(index, &mut plans)?;
            let row = batch.packed.rows() as u32;
            for target in &example.targets {
                batch.masked_rows.push(row + target.position);
                batch.masked_labels.push(target.label);
            }
            batch.next_labels.extend(example.next_label);
            batch.packed.push(index, &example.ids, &example.segments);
        }
        Ok(batch)
    }

    /// Returns example `index` of a run.
    pub fn example(&self, index: u64) -> Result<PretrainingExample> {
        self.example_with(index, &mut Plans::default())
    }

    fn example_with(&self, index: u64, plans: &mut Plans) -> Result<PretrainingExample> {
        let place = index % self.chunks.count();
        // The epoch is a word of the random counter: orders repeat after 2^32 epochs.
        let epoch = (index / self.chunks.count()) as u32;
        let special = self.special;
        let mut ids = vec![special.cls];
        let (next_label, documents, first);
        if self.options.packing.next_sentence() {
            let plan = plans.get(&self.chunks, self.options.seed, epoch, place / BLOCK)?;
            let pair = plan.pair(
                &self.chunks,
                self.options.seed,
                index,
                (place % BLOCK) as usize,
                self.options.room(),
            )?;
            ids.extend(pair.a);
            ids.push(special.sep);
            first = ids.len();
            ids.extend(pair.b);
            ids.push(special.sep);
            next_label = Some(u32::from(pair.documents.0 != pair.documents.1));
            documents = pair.documents;
        } else {
            let order = Permutation::new(self.chunks.count(), self.options.seed, epoch);
            let chunk = self.chunks.chunk(order.at(place))?;
            ids.extend(self.chunks.sentences(chunk)?.tokens);
            ids.push(special.sep);
            first = ids.len();
            next_label = None;
            documents = (chunk.document, chunk.document);
        }
        let mut segments = vec![0; first];
        segments.resize(ids.len(), 1);
        let targets = if self.options.left_to_right {
            next_tokens(&ids)
        } else {
            self.masker.mask(index, &mut ids)
        };
        Ok(PretrainingExample { index, ids, segments, targets, next_label, documents })
    }
}

/// Returns the target of every token but the last: the next token, for a left-to-right model.
fn next_tokens(ids: &[u32]) -> Vec<Target> {
    let next = (0..).zip(&ids[1..]);
    next.map(|(position, &label)| Target { position, label }).collect()
}

/// The plan of the last block: the examples of a batch share it.
#[derive(Default)]
struct Plans {
    last: Option<((u32, u64), BlockPlan)>,
}

impl Plans {
    fn get(&mut self, chunks: &Chunks, seed: u64, epoch: u32, block: u64) -> Result<&BlockPlan> {
        let key = (epoch, block);
        let plan = match self.last.take() {
            Some((last, plan)) if last == key => plan,
            _ => BlockPlan::new(chunks, seed, epoch, block)?,
        };
        Ok(&self.last.insert((key, plan)).1)
    }
}
