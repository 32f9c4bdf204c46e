//! Trains a WordPiece vocabulary.
//!
//! Every word starts as its characters; then the most frequent pair of neighbouring pieces becomes one
//! piece, again and again, until the vocabulary is full. (This is the procedure of the crate
//! `tokenizers`, whose own trainer can't be used: it visits its hash tables in random order, so that two
//! runs give two vocabularies, and it counts in 32 bits.)
//!
//! Source: Sennrich et al., "Neural machine translation of rare words with subword units", 2016;
//! the `##` notation is BERT's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rayon::prelude::*;

use super::wordpiece::SPECIAL_TOKENS;
use super::{Casing, WordPiece};
use crate::error::{Error, Result};

/// Rarer pairs are not merged.
const MIN_FREQUENCY: u64 = 2;
/// Characters of the longest word that BERT's tokenizer splits into pieces.
const LONGEST_WORD: usize = 100;
/// How many of the most frequent characters are kept; words with rarer ones become [UNK].
const MOST_CHARACTERS: usize = 1_000;
/// Texts counted together: enough for all threads, few enough for memory.
const BATCH: usize = 4_096;

impl WordPiece {
    /// Trains a vocabulary of at most `size` tokens, including the special tokens, on `texts`. The same
    /// texts in the same order give the same vocabulary on every machine. A small text may not have
    /// enough repeated pairs to fill it.
    pub fn train(
        texts: impl IntoIterator<Item = Result<String>>,
        size: usize,
        casing: Casing,
    ) -> Result<Self> {
        if size <= SPECIAL_TOKENS.len() {
            return Err(Error::Usage(format!(
                "a vocabulary of {size} tokens is too small: the special tokens alone are {}",
                SPECIAL_TOKENS.len()
            )));
        }
        let words = count_words(texts, casing)?;
        if words.is_empty() {
            let message = "no vocabulary can be trained: the text holds no words";
            return Err(Error::Failed(message.to_owned()));
        }
        Self::from_vocab(merge(words, size), casing)
    }
}

/// Counts the occurrences of each word; returns them sorted by word.
fn count_words(
    texts: impl IntoIterator<Item = Result<String>>,
    casing: Casing,
) -> Result<Vec<(String, u64)>> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let mut texts = texts.into_iter();
    loop {
        let batch: Vec<String> = texts.by_ref().take(BATCH).collect::<Result<_>>()?;
        if batch.is_empty() {
            break;
        }
        let parts: Vec<HashMap<String, u64>> =
            batch.par_chunks(BATCH / 64).map(|texts| count_batch(texts, casing)).collect();
        for (word, count) in parts.into_iter().flatten() {
            *counts.entry(word).or_default() += count;
        }
    }
    let mut words: Vec<(String, u64)> = counts.into_iter().collect();
    words.sort_unstable();
    Ok(words)
}

/// Counts the blank-separated parts first, so that each is normalised once.
fn count_batch(texts: &[String], casing: Casing) -> HashMap<String, u64> {
    let mut parts: HashMap<&str, u64> = HashMap::new();
    for text in texts {
        let found = text.split([' ', '\t', '\n', '\r']);
        for part in found.filter(|part| !part.is_empty()) {
            *parts.entry(part).or_default() += 1;
        }
    }
    let mut counts = HashMap::new();
    for (part, count) in parts {
        let words = WordPiece::words(part, casing).into_iter();
        // A longer one becomes [UNK] as a whole, so its pieces would never be used.
        for word in words.filter(|word| word.chars().count() <= LONGEST_WORD) {
            *counts.entry(word).or_default() += count;
        }
    }
    counts
}

/// A piece, as an index into the growing vocabulary.
type Symbol = u32;
type Pair = (Symbol, Symbol);

struct Word {
    symbols: Vec<Symbol>,
    count: u64,
}

/// The state of the merging.
#[derive(Default)]
struct Merges {
    vocab: Vec<String>,
    /// The index of each piece in `vocab`.
    symbols: HashMap<String, Symbol>,
    words: Vec<Word>,
    counts: HashMap<Pair, u64>,
    /// Indices of the words that contain a pair, with repetitions and outdated entries.
    words_with: HashMap<Pair, Vec<u32>>,
    /// Pairs, the most frequent first, of equals the older. Entries may be outdated.
    queue: BinaryHeap<(u64, Reverse<Pair>)>,
}

fn merge(words: Vec<(String, u64)>, size: usize) -> Vec<String> {
    let mut merges = Merges::default();
    for token in SPECIAL_TOKENS {
        merges.symbol(token.to_owned());
    }
    let alphabet = alphabet(&words, size - SPECIAL_TOKENS.len());
    let mut symbols: HashMap<(bool, char), Symbol> = HashMap::new();
    for (first, c) in alphabet {
        let piece = match first {
            true => c.to_string(),
            false => format!("##{c}"),
        };
        symbols.insert((first, c), merges.symbol(piece));
    }
    for (text, count) in words {
        // A word with a character outside the alphabet is [UNK]: there is nothing to learn from it.
        let spelled: Option<Vec<Symbol>> =
            characters(&text).map(|character| symbols.get(&character).copied()).collect();
        if let Some(symbols) = spelled {
            merges.words.push(Word { symbols, count });
        }
    }
    for index in 0..merges.words.len() {
        merges.enter(index, &mut Vec::new());
    }
    let start: Vec<Pair> = merges.counts.keys().copied().collect();
    for pair in start {
        merges.queue.push((merges.counts[&pair], Reverse(pair)));
    }
    while merges.vocab.len() < size && merges.step() {}
    merges.vocab
}

/// Iterates over the characters of a word, each with whether it is the first.
fn characters(word: &str) -> impl Iterator<Item = (bool, char)> + '_ {
    word.chars().enumerate().map(|(i, c)| (i == 0, c))
}

/// Returns the most frequent characters, counted separately at the start of words and inside them,
/// sorted by code point.
fn alphabet(words: &[(String, u64)], room: usize) -> Vec<(bool, char)> {
    let mut counts: HashMap<(bool, char), u64> = HashMap::new();
    for (word, count) in words {
        for character in characters(word) {
            *counts.entry(character).or_default() += count;
        }
    }
    let mut kept: Vec<((bool, char), u64)> = counts.into_iter().collect();
    kept.sort_unstable_by_key(|&(character, count)| (Reverse(count), character));
    kept.truncate(room.min(MOST_CHARACTERS));
    let mut kept: Vec<(bool, char)> = kept.into_iter().map(|(character, _)| character).collect();
    kept.sort_unstable_by_key(|&(first, c)| (!first, c));
    kept
}

impl Merges {
    /// Returns the symbol of a piece, adding the piece if it is new: two merges can spell the same piece.
    fn symbol(&mut self, piece: String) -> Symbol {
        let next = self.vocab.len() as Symbol;
        *self.symbols.entry(piece).or_insert_with_key(|piece| {
            self.vocab.push(piece.clone());
            next
        })
    }

    /// Adds the pairs of word `index` to the counts and appends them to `grown`.
    fn enter(&mut self, index: usize, grown: &mut Vec<Pair>) {
        let word = &self.words[index];
        for pair in word.symbols.windows(2).map(|w| (w[0], w[1])) {
            *self.counts.entry(pair).or_default() += word.count;
            self.words_with.entry(pair).or_default().push(index as u32);
            grown.push(pair);
        }
    }

    /// Removes the pairs of word `index` from the counts.
    fn leave(&mut self, index: usize) {
        let word = &self.words[index];
        for pair in word.symbols.windows(2).map(|w| (w[0], w[1])) {
            if let Some(count) = self.counts.get_mut(&pair) {
                *count -= word.count;
            }
        }
    }

    /// Merges the most frequent pair; returns false if no pair is frequent enough.
    fn step(&mut self) -> bool {
        while let Some((count, Reverse(pair))) = self.queue.pop() {
            let current = self.counts.get(&pair).copied().unwrap_or(0);
            if current < MIN_FREQUENCY {
                continue;
            }
            if current != count {
                // Outdated: the true count was queued when it grew, or is queued now if it shrank.
                if current < count {
                    self.queue.push((current, Reverse(pair)));
                }
                continue;
            }
            self.apply(pair);
            return true;
        }
        false
    }

    fn apply(&mut self, pair: Pair) {
        let tail = &self.vocab[pair.1 as usize];
        let joined =
            format!("{}{}", self.vocab[pair.0 as usize], tail.strip_prefix("##").unwrap_or(tail));
        let symbol = self.symbol(joined);
        let mut indices = self.words_with.remove(&pair).unwrap_or_default();
        indices.sort_unstable();
        indices.dedup();
        let mut grown = Vec::new();
        for index in indices {
            let index = index as usize;
            let mut pairs = self.words[index].symbols.windows(2);
            if !pairs.any(|w| (w[0], w[1]) == pair) {
                continue;
            }
            self.leave(index);
            replace(&mut self.words[index].symbols, pair, symbol);
            self.enter(index, &mut grown);
        }
        grown.sort_unstable();
        grown.dedup();
        for pair in grown {
            self.queue.push((self.counts[&pair], Reverse(pair)));
        }
    }
}

/// Replaces every occurrence of `pair`, from the left and without overlaps, by `symbol`.
fn replace(symbols: &mut Vec<Symbol>, pair: Pair, symbol: Symbol) {
    let mut to = 0;
    let mut from = 0;
    while from < symbols.len() {
        let found = from + 1 < symbols.len() && (symbols[from], symbols[from + 1]) == pair;
        symbols[to] = if found { symbol } else { symbols[from] };
        from += if found { 2 } else { 1 };
        to += 1;
    }
    symbols.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(texts: &[&str], size: usize) -> WordPiece {
        let texts: Vec<Result<String>> = texts.iter().map(|t| Ok(t.to_string())).collect();
        WordPiece::train(texts, size, Casing::Uncased).unwrap()
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first() {
        // l ##o and ##o ##w occur 7 times each: the older pair goes first, then lo ##w has 7.
        let vocab = train(&["low low low low low lower lower", "newest newest"], 20);
        let tokens = vocab.tokens();
        let alphabet = ["l", "n", "##e", "##o", "##r", "##s", "##t", "##w"];
        assert_eq!(tokens[5..13], alphabet);
        assert_eq!(tokens[13..15], ["lo".to_owned(), "low".to_owned()]);
        assert!(tokens.contains(&"lower".to_owned()));
        assert_eq!(vocab.encode("lower low").tokens, ["lower", "low"]);
    }

    #[test]
    fn words_that_are_never_split_give_no_pieces() {
        let (long, longest) = ("xy".repeat(51), "zy".repeat(50));
        let vocab = train(&[&format!("{long} {longest} {long} {longest}")], 40);
        assert_eq!(vocab.encode(&long).tokens, ["[UNK]"]);
        assert!(vocab.tokens().iter().all(|piece| !piece.contains('x')));
        assert_ne!(vocab.encode(&longest).tokens, ["[UNK]"]);
    }

    #[test]
    fn counts_stay_true_while_merging() {
        let texts = "the banana bandana of ana nana in an anagram banana aaaa aaa ababab";
        let words = count_words([Ok(texts.to_owned())], Casing::Cased).unwrap();
        let mut merges = Merges::default();
        let vocab = merge(words.clone(), 5 + alphabet(&words, 1000).len() + 3);
        assert!(vocab.len() > 20);
        for (text, count) in &words {
            let symbols = text.chars().map(|c| c as Symbol).collect();
            merges.words.push(Word { symbols, count: *count });
        }
        for c in 0..128u8 {
            merges.symbol((c as char).to_string());
        }
        for index in 0..merges.words.len() {
            merges.enter(index, &mut Vec::new());
        }
        for (&pair, &count) in &merges.counts {
            merges.queue.push((count, Reverse(pair)));
        }
        while merges.step() {
            let mut fresh: HashMap<Pair, u64> = HashMap::new();
            for word in &merges.words {
                for w in word.symbols.windows(2) {
                    *fresh.entry((w[0], w[1])).or_default() += word.count;
                }
            }
            merges.counts.retain(|_, count| *count > 0);
            assert_eq!(merges.counts, fresh);
        }
    }

    #[test]
    fn training_is_deterministic_and_covers_its_text() {
        let text = include_str!("reader.rs");
        let lines: Vec<&str> = text.lines().collect();
        let (a, b) = (train(&lines, 300), train(&lines, 300));
        assert_eq!(a.tokens(), b.tokens());
        assert_eq!(a.vocab_size(), 300);
        let unknown = a.special().unk;
        assert!(!a.encode(text).ids.contains(&unknown));
    }

    #[test]
    fn a_small_vocabulary_keeps_the_most_frequent_characters() {
        let vocab = train(&["aa aa aa bb bb c"], 7);
        assert_eq!(vocab.tokens()[5..], ["a".to_owned(), "##a".to_owned()]);
        assert_eq!(vocab.encode("bb").tokens, ["[UNK]"]);
    }

    #[test]
    fn training_without_words_or_room_is_an_error() {
        let error = WordPiece::train([], 100, Casing::Cased).unwrap_err();
        assert!(error.to_string().contains("holds no words"));
        let error = WordPiece::train([Ok("a".to_owned())], 5, Casing::Cased).unwrap_err();
        assert!(error.to_string().contains("5 tokens is too small"));
        assert_eq!(error.exit_code(), 2);
    }
}
