//! Chooses the tokens that the model must predict, and replaces them.
//!
//! As in BERT, 15 % of the tokens are chosen; of these 80 % become `[MASK]`, 10 % a random token and 10 %
//! stay unchanged. The draw depends only on the example's global index, so the same text is masked
//! differently in the next epoch.

use crate::random::{Site, Stream};
use crate::text::{SpecialIds, WordPiece};

/// Masks the examples of a vocabulary.
#[derive(Clone, Debug)]
pub struct Masker {
    special: SpecialIds,
    /// Tokens that may replace a chosen one: no special and no unused ones.
    replacements: Vec<u32>,
    continuation: Vec<bool>,
    probability: f64,
    whole_word: bool,
    seed: u64,
}

/// A token to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its position in the sequence.
    pub position: u32,
    /// The original token.
    pub label: u32,
}

impl Masker {
    /// Creates a masker; `probability` is the share of chosen tokens, above 0 and below 1.
    pub fn new(wordpiece: &WordPiece, probability: f64, whole_word: bool, seed: u64) -> Self {
        let special = wordpiece.special();
        let ids = 0..wordpiece.vocab_size() as u32;
        let usable = |id: &u32| {
            let token = wordpiece.token(*id);
            !special.contains(*id) && !token.is_some_and(|token| token.starts_with("[unused"))
        };
        Self {
            special,
            replacements: ids.clone().filter(usable).collect(),
            continuation: ids.map(|id| wordpiece.is_continuation(id)).collect(),
            probability,
            whole_word,
            seed,
        }
    }

    /// Masks `ids` in place and returns the chosen tokens, sorted by position. At least one token is chosen
    /// unless all are special.
    pub fn mask(&self, example: u64, ids: &mut [u32]) -> Vec<Target> {
        let mut draw = Stream::new(self.seed, 0, Site::Masking, example).draws();
        let mut groups = self.groups(ids);
        let candidates: usize = groups.iter().map(|group| group.1).sum();
        if candidates == 0 {
            return Vec::new();
        }
        // Randomly rounded up or down, so that the share is right on average for any length.
        let wanted = candidates as f64 * self.probability;
        let wanted = (wanted + draw.uniform()).floor().max(1.0) as usize;
        let mut chosen: Vec<u32> = Vec::with_capacity(wanted);
        // A shuffle that stops when enough tokens are chosen and skips words that are too long, as BERT's does.
        for index in 0..groups.len() {
            if chosen.len() >= wanted {
                break;
            }
            let other = index + draw.below((groups.len() - index) as u32) as usize;
            groups.swap(index, other);
            let (start, length) = groups[index];
            if chosen.len() + length <= wanted {
                chosen.extend((start..start + length).map(|position| position as u32));
            }
        }
        if chosen.is_empty() {
            // Every word is too long.
            let (start, _) = groups[0];
            chosen.extend((start..start + wanted).map(|position| position as u32));
        }
        chosen.sort_unstable();
        let targets =
            chosen.into_iter().map(|position| Target { position, label: ids[position as usize] });
        let targets: Vec<Target> = targets.collect();
        for target in &targets {
            let id = &mut ids[target.position as usize];
            match draw.below(10) {
                0..8 => *id = self.special.mask,
                8 => {
                    let index = draw.below(self.replacements.len() as u32);
                    *id = self.replacements[index as usize];
                }
                _ => {}
            }
        }
        targets
    }

    /// Returns what can be chosen, as (start, length): single tokens or whole words, no special tokens.
    fn groups(&self, ids: &[u32]) -> Vec<(usize, usize)> {
        let mut groups: Vec<(usize, usize)> = Vec::with_capacity(ids.len());
        for (position, &id) in ids.iter().enumerate() {
            if self.special.contains(id) {
                continue;
            }
            let continues = self.whole_word && self.continuation[id as usize];
            match groups.last_mut() {
                Some((start, length)) if continues && *start + *length == position => *length += 1,
                _ => groups.push((position, 1)),
            }
        }
        groups
    }
}
