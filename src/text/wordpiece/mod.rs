//! Tokenizers: BERT's WordPiece, and the byte-level and Unigram ones of other families ([`kind`]).
//!
//! The crate `tokenizers` does the work. For BERT it cleans the text, lower-cases it and strips accents if the
//! vocabulary is uncased, splits at white space and punctuation, and cuts each word greedily into the
//! longest pieces of the vocabulary. None of these steps crosses a blank, so the result for each chunk
//! between two blanks is cached: prose repeats its words, and a cached word needs no pass through the
//! pipeline. Other tokenizers see blanks, so that they get each text as a whole.

mod kind;
mod load;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::AHashMap;
use tokenizers::Tokenizer;
use tokenizers::models::wordpiece::WordPiece as Model;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, decoders};

use self::kind::{Join, Kind, special_ids};
pub use self::load::other_vocabulary;
use self::load::{Settings, check};
use crate::error::{Error, Result};

/// Whether a vocabulary distinguishes upper and lower case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Casing {
    /// Text is lower-cased and stripped of accents first, as for `bert-base-uncased`.
    Uncased,
    /// Text is left unchanged, as for `bert-base-cased`.
    Cased,
}

impl Casing {
    fn of(normalizer: &BertNormalizer) -> Self {
        match normalizer.lowercase {
            true => Self::Uncased,
            false => Self::Cased,
        }
    }
}

/// The ids of the five tokens that every vocabulary has, under BERT's names; RoBERTa calls them `<pad>`,
/// `<unk>`, `<s>`, `</s>` and `<mask>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialIds {
    /// `[PAD]`, which fills sequences up to a common length.
    pub pad: u32,
    /// `[UNK]`, which stands for a word that the vocabulary can't spell.
    pub unk: u32,
    /// `[CLS]`, which begins a sequence.
    pub cls: u32,
    /// `[SEP]`, which ends a segment.
    pub sep: u32,
    /// `[MASK]`, which stands for a token to be predicted.
    pub mask: u32,
}

impl SpecialIds {
    /// Returns whether `id` is one of the five.
    pub fn contains(&self, id: u32) -> bool {
        [self.pad, self.unk, self.cls, self.sep, self.mask].contains(&id)
    }
}

/// The names of the special tokens, in their order in a new vocabulary.
pub const SPECIAL_TOKENS: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// A tokenised text; each list has one entry a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Token ids.
    pub ids: Vec<u32>,
    /// The pieces.
    pub tokens: Vec<String>,
    /// Start and end in the text, in Unicode code points; (0, 0) for added special tokens.
    pub offsets: Vec<(usize, usize)>,
    /// The index of a token's word; none for added special tokens.
    pub words: Vec<Option<u32>>,
}

impl Encoding {
    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn push(&mut self, id: u32, token: &str, offsets: (usize, usize), word: Option<u32>) {
        self.ids.push(id);
        self.tokens.push(token.to_owned());
        self.offsets.push(offsets);
        self.words.push(word);
    }
}

/// A tokenizer with its vocabulary: BERT's WordPiece, or another one that a `tokenizer.json` describes. Cheap
/// to clone, usable from any thread.
#[derive(Clone)]
pub struct WordPiece {
    inner: Arc<Inner>,
}

struct Inner {
    tokenizer: Tokenizer,
    tokens: Vec<String>,
    ids: HashMap<String, u32>,
    continuation: Vec<bool>,
    special: SpecialIds,
    casing: Casing,
    kind: Kind,
    join: Join,
    /// The `tokenizer_config.json` that the tokenizer was read with; for BERT's only the longest sequence.
    settings: Settings,
    /// Distinguishes this vocabulary's cached words from those of others.
    serial: u64,
}

impl std::fmt::Debug for WordPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WordPiece")
            .field("vocab_size", &self.vocab_size())
            .field("casing", &self.casing())
            .finish_non_exhaustive()
    }
}

impl WordPiece {
    /// Builds the tokenizer of a vocabulary; the token at index i has id i.
    pub fn from_vocab(vocab: Vec<String>, casing: Casing) -> Result<Self> {
        let lower = casing == Casing::Uncased;
        let normalizer = BertNormalizer::new(true, true, Some(lower), lower);
        Self::normalised(vocab, normalizer, Settings::new())
    }

    /// Builds the tokenizer of a vocabulary with a normaliser of its own.
    fn normalised(
        vocab: Vec<String>,
        normalizer: BertNormalizer,
        settings: Settings,
    ) -> Result<Self> {
        check(&vocab)
            .map_err(|fault| Error::Failed(format!("the vocabulary: {}", fault.message)))?;
        let casing = Casing::of(&normalizer);
        let model = Model::builder()
            .vocab(vocab.iter().cloned().zip(0..).collect::<AHashMap<_, _>>())
            .build()
            .map_err(library)?;
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_normalizer(Some(normalizer)).map_err(library)?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        tokenizer.with_decoder(Some(decoders::wordpiece::WordPiece::default()));
        let special = SPECIAL_TOKENS.map(|token| AddedToken::from(token, true));
        tokenizer.add_special_tokens(special).map_err(library)?;
        Self::new(tokenizer, vocab, (Kind::WordPiece, casing), settings)
    }

    /// Completes a tokenizer whose vocabulary has been checked.
    fn new(
        mut tokenizer: Tokenizer,
        tokens: Vec<String>,
        (kind, casing): (Kind, Casing),
        settings: Settings,
    ) -> Result<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let ids: HashMap<String, u32> = tokens.iter().cloned().zip(0..).collect();
        let special = special_ids(&ids, &settings).map_err(Error::Failed)?;
        if kind == Kind::WordPiece {
            let template = TemplateProcessing::builder()
                .try_single("[CLS]:0 $A:0 [SEP]:0")
                .and_then(|b| b.try_pair("[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"))
                .map_err(Error::Failed)?
                .special_tokens(vec![("[CLS]", special.cls), ("[SEP]", special.sep)])
                .build()
                .map_err(library)?;
            tokenizer.with_post_processor(Some(template));
        }
        // Files often set a maximum length; here the caller decides, and nothing is cut silently.
        tokenizer.with_truncation(None).map_err(library)?;
        tokenizer.with_padding(None);
        let join = Join::of(&tokenizer, special).ok_or_else(|| {
            let [cls, sep] = [special.cls, special.sep].map(|id| &tokens[id as usize]);
            Error::Failed(format!(
                "the tokenizer's post_processor does not put {cls} before and {sep} after a text"
            ))
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                continuation: (tokens.iter().zip(0..))
                    .map(|(token, id)| !special.contains(id) && kind.continues(token))
                    .collect(),
                serial: SERIAL.fetch_add(1, Ordering::Relaxed),
                tokenizer,
                tokens,
                ids,
                special,
                casing,
                kind,
                join,
                settings,
            }),
        })
    }

    /// Tokenises `text` without adding special tokens. A special token's name in the text, such as
    /// `[MASK]`, becomes that token.
    pub fn encode(&self, text: &str) -> Encoding {
        let mut encoding = Encoding::default();
        if self.inner.kind != Kind::WordPiece {
            for piece in self.pieces(text) {
                let token = &self.inner.tokens[piece.id as usize];
                let offsets = (piece.start as usize, piece.end as usize);
                encoding.push(piece.id, token, offsets, Some(piece.word));
            }
            return encoding;
        }
        let (mut position, mut words) = (0, 0);
        let mut rest = text;
        while let Some((chunk, blanks_before, after)) = next_chunk(rest) {
            position += blanks_before;
            rest = after;
            let mut last_word = None;
            self.with_pieces(chunk, |pieces| {
                for piece in pieces {
                    let offsets = (position + piece.start as usize, position + piece.end as usize);
                    let token = &self.inner.tokens[piece.id as usize];
                    encoding.push(piece.id, token, offsets, Some(words + piece.word));
                    last_word = Some(piece.word);
                }
            });
            words += last_word.map_or(0, |word| word + 1);
            position += chunk.chars().count();
        }
        encoding
    }

    /// Appends only the ids of [`encode`](Self::encode) to `ids`: the fast way for a corpus.
    pub fn encode_ids(&self, text: &str, ids: &mut Vec<u32>) {
        if self.inner.kind != Kind::WordPiece {
            // As in `pieces`.
            if let Ok(encoding) = self.inner.tokenizer.encode_fast(text, false) {
                ids.extend_from_slice(encoding.get_ids());
            }
            return;
        }
        let mut rest = text;
        while let Some((chunk, _, after)) = next_chunk(rest) {
            rest = after;
            self.with_pieces(chunk, |pieces| ids.extend(pieces.iter().map(|p| p.id)));
        }
    }

    /// Like [`encode_ids`](Self::encode_ids) for text that follows a blank, such as a word of a sentence: a
    /// byte-level vocabulary has other pieces for it than for text at the start.
    pub fn encode_ids_after_blank(&self, text: &str, ids: &mut Vec<u32>) {
        match self.inner.kind {
            Kind::ByteLevel => self.encode_ids(&format!(" {text}"), ids),
            Kind::WordPiece | Kind::Unigram => self.encode_ids(text, ids),
        }
    }

    /// Returns the tokens between two texts, at least one: `[SEP]`, or RoBERTa's `</s></s>`.
    pub fn between(&self) -> &[u32] {
        &self.inner.join.between
    }

    /// Returns the segment id of the second of two texts: 1, or 0 for RoBERTa.
    pub fn second_segment(&self) -> u32 {
        self.inner.join.segment
    }

    /// Tokenises `[CLS] text [SEP]`.
    pub fn encode_with_special(&self, text: &str) -> Encoding {
        let mut encoding = Encoding::default();
        self.push_special(&mut encoding, self.inner.special.cls);
        encoding.append(self.encode(text));
        self.push_special(&mut encoding, self.inner.special.sep);
        encoding
    }

    /// Tokenises `[CLS] a [SEP] b [SEP]`; also returns the segment ids, 0 up to the first `[SEP]`, then
    /// [`second_segment`](Self::second_segment). Offsets and word indices count in each text from 0.
    pub fn encode_pair(&self, a: &str, b: &str) -> (Encoding, Vec<u32>) {
        let mut encoding = Encoding::default();
        self.push_special(&mut encoding, self.inner.special.cls);
        encoding.append(self.encode(a));
        self.between().iter().for_each(|&id| self.push_special(&mut encoding, id));
        let mut segments = vec![0; encoding.len()];
        encoding.append(self.encode(b));
        self.push_special(&mut encoding, self.inner.special.sep);
        segments.resize(encoding.len(), self.second_segment());
        (encoding, segments)
    }

    fn push_special(&self, encoding: &mut Encoding, id: u32) {
        encoding.push(id, &self.inner.tokens[id as usize], (0, 0), None);
    }

    /// Returns the text of ids: pieces joined, blanks before punctuation removed. `[CLS]`, `[SEP]`, `[PAD]`
    /// and ids outside the vocabulary are left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        let special = self.inner.special;
        let omitted = [special.cls, special.sep, special.pad];
        let shown = ids.iter().filter(|id| !omitted.contains(id)).copied();
        let shown: Vec<u32> = shown.collect();
        // The decoders only join strings; they never fail.
        let text = self.inner.tokenizer.decode(&shown, false);
        text.unwrap_or_default()
    }

    /// Returns the token of an id.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.inner.tokens.get(id as usize).map(String::as_str)
    }

    /// Returns the id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.ids.get(token).copied()
    }

    /// Returns the number of tokens, including special ones.
    pub fn vocab_size(&self) -> usize {
        self.inner.tokens.len()
    }

    /// Returns the ids of the special tokens.
    pub fn special(&self) -> SpecialIds {
        self.inner.special
    }

    /// Returns whether a token continues a word: whether it starts with `##`, or without the blank that
    /// begins a word in other vocabularies (`Ġ` or `▁`).
    pub fn is_continuation(&self, id: u32) -> bool {
        self.inner.continuation.get(id as usize) == Some(&true)
    }

    /// Returns whether the vocabulary is cased.
    pub fn casing(&self) -> Casing {
        self.inner.casing
    }

    /// Returns the tokens in the order of their ids.
    pub fn tokens(&self) -> &[String] {
        &self.inner.tokens
    }

    /// Returns the words that [`encode`](Self::encode) cuts into pieces, which vocabulary training counts.
    pub(super) fn words(text: &str, casing: Casing) -> Vec<String> {
        use tokenizers::{
            NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
            PreTokenizer,
        };
        let cased = casing == Casing::Cased;
        let mut normalized = NormalizedString::from(text);
        let normalizer = BertNormalizer::new(true, true, Some(!cased), !cased);
        // BERT's normaliser and splitter never fail.
        if normalizer.normalize(&mut normalized).is_err() {
            return Vec::new();
        }
        let mut split = PreTokenizedString::from(normalized);
        if BertPreTokenizer.pre_tokenize(&mut split).is_err() {
            return Vec::new();
        }
        let words = split.get_splits(OffsetReferential::Normalized, OffsetType::None);
        words.iter().map(|word| word.0.to_owned()).collect()
    }

    /// Passes the pieces of one chunk without blanks to `use_pieces`, from the cache if possible.
    fn with_pieces(&self, chunk: &str, use_pieces: impl FnOnce(&[Piece])) {
        thread_local! {
            static CACHE: RefCell<Cache> = RefCell::default();
        }
        if chunk.len() > LONGEST_CACHED {
            return use_pieces(&self.pieces(chunk));
        }
        CACHE.with_borrow_mut(|cache| {
            let serial = Some(self.inner.serial);
            if cache.serial != serial || cache.words.len() >= MOST_CACHED {
                cache.words.clear();
                cache.serial = serial;
            }
            if let Some(pieces) = cache.words.get(chunk) {
                return use_pieces(pieces);
            }
            let pieces = self.pieces(chunk);
            use_pieces(&pieces);
            cache.words.insert(chunk.into(), pieces);
        });
    }

    /// Runs a text, or for BERT one chunk, through the whole pipeline.
    fn pieces(&self, chunk: &str) -> Box<[Piece]> {
        // The pipeline fails only if a vocabulary lacks [UNK], which `new` has refused.
        let Ok(encoding) = self.inner.tokenizer.encode_char_offsets(chunk, false) else {
            return Box::default();
        };
        let (ids, offsets) = (encoding.get_ids(), encoding.get_offsets());
        let words = encoding.get_word_ids();
        (0..ids.len())
            .map(|i| Piece {
                id: ids[i],
                start: offsets[i].0 as u32,
                end: offsets[i].1 as u32,
                word: words[i].unwrap_or(0),
            })
            .collect()
    }
}

impl Encoding {
    fn append(&mut self, mut other: Self) {
        self.ids.append(&mut other.ids);
        self.tokens.append(&mut other.tokens);
        self.offsets.append(&mut other.offsets);
        self.words.append(&mut other.words);
    }
}

/// One token of a chunk; offsets and word index count from the chunk's start.
struct Piece {
    id: u32,
    start: u32,
    end: u32,
    word: u32,
}

/// Longer chunks (addresses, tables, text without blanks) are rarely repeated.
const LONGEST_CACHED: usize = 48;
/// Keeps a thread's cache below about 20 MB. A large English corpus has a few hundred thousand different
/// chunks; after clearing, the frequent ones are soon cached again.
const MOST_CACHED: usize = 100_000;

#[derive(Default)]
struct Cache {
    serial: Option<u64>,
    words: AHashMap<Box<str>, Box<[Piece]>>,
}

/// Returns whether text can be split at this byte without changing the result. Other white space is left
/// to the library: some of it (U+0085, vertical tab) counts as control characters, which are dropped.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns the next chunk without blanks, the number of blanks before it, and the rest of the text.
fn next_chunk(text: &str) -> Option<(&str, usize, &str)> {
    let bytes = text.as_bytes();
    let start = bytes.iter().position(|&b| !is_blank(b))?;
    let length = bytes[start..].iter().position(|&b| is_blank(b));
    let length = length.unwrap_or(bytes.len() - start);
    let (chunk, rest) = text[start..].split_at(length);
    Some((chunk, start, rest))
}

/// Converts an error of the crate `tokenizers`.
fn library(error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("the tokenizer could not be built: {error}"))
}
