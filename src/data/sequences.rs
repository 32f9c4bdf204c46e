//! Token sequences of texts and pairs of texts, and their batches: by count or token budget, shuffled or
//! sorted by length.

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::random::{Draws, Site, Stream};
use crate::text::WordPiece;

use super::Packed;

/// Sequences with their segment ids, end to end. An example is one sequence, or several: the model chooses one
/// of them, or they are windows of one text.
#[derive(Debug, Clone)]
pub struct Sequences {
    ids: Vec<u32>,
    segments: Vec<u32>,
    /// The end of each sequence in `ids`.
    ends: Vec<usize>,
    grouping: Grouping,
    /// Number of sequences that were truncated.
    cut: usize,
}

/// Which sequences belong to an example.
#[derive(Debug, Clone)]
enum Grouping {
    /// So many to each.
    Choices(usize),
    /// The windows of one text, up to this sequence.
    Windows(Vec<usize>),
}

impl Default for Sequences {
    fn default() -> Self {
        let grouping = Grouping::Choices(1);
        Self { ids: Vec::new(), segments: Vec::new(), ends: Vec::new(), grouping, cut: 0 }
    }
}

/// The limit of a batch's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchSize {
    /// This many examples.
    Examples(usize),
    /// As many examples as have at most this many tokens together; a longer one is a batch of its own.
    Tokens(usize),
}

impl BatchSize {
    /// Returns this limit `n` times.
    pub fn times(self, n: usize) -> Self {
        match self {
            Self::Examples(count) => Self::Examples(count * n),
            Self::Tokens(count) => Self::Tokens(count * n),
        }
    }
}

impl Sequences {
    /// Tokenises `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` in the way of the vocabulary, truncated to `max_len` tokens: the longer of
    /// the two loses its last piece until both fit (google-research/bert, run_classifier.py,
    /// `_truncate_seq_pair`). Fails if `max_len` leaves no room for text.
    pub fn tokenise<'t>(
        wordpiece: &WordPiece,
        texts: &[(&'t str, Option<&'t str>)],
        max_len: usize,
    ) -> Result<Self> {
        let (special, between) = (wordpiece.special(), wordpiece.between());
        check_room(max_len, 4 + between.len())?;
        let encoded: Vec<(Vec<u32>, usize, bool)> = texts
            .par_iter()
            .map(|(a, b)| {
                let (mut first, mut second) = (Vec::new(), Vec::new());
                wordpiece.encode_ids(a, &mut first);
                if let Some(b) = b {
                    wordpiece.encode_ids(b, &mut second);
                }
                let room = max_len - 2 - if b.is_some() { between.len() } else { 0 };
                let was_cut = cut(&mut first, &mut second, room);
                let mut ids = Vec::with_capacity(first.len() + second.len() + 2 + between.len());
                ids.push(special.cls);
                ids.extend(first);
                if b.is_some() {
                    ids.extend_from_slice(between);
                }
                let mut end_of_first = ids.len();
                ids.extend(second);
                ids.push(special.sep);
                if b.is_none() {
                    end_of_first = ids.len();
                }
                (ids, end_of_first, was_cut)
            })
            .collect();
        let mut all = Self::default();
        for (ids, end_of_first, was_cut) in encoded {
            all.cut += usize::from(was_cut);
            let (first, second) = ids.split_at(end_of_first);
            all.push(&[(first, 0), (second, wordpiece.second_segment())]);
        }
        Ok(all)
    }

    /// Tokenises texts into windows of at most `max_len` tokens, `[CLS] … [SEP]`, each of which begins three
    /// quarters of a window after the one before it. Fails if `max_len` leaves no room for text.
    pub fn in_windows(wordpiece: &WordPiece, texts: &[&str], max_len: usize) -> Result<Self> {
        check_room(max_len, 4)?;
        let room = max_len - 2;
        let special = wordpiece.special();
        let encoded: Vec<Vec<u32>> = texts
            .par_iter()
            .map(|text| {
                let mut ids = Vec::new();
                wordpiece.encode_ids(text, &mut ids);
                ids
            })
            .collect();
        let mut all = Self::default();
        let mut ends = Vec::new();
        let step = (room * 3 / 4).max(1);
        for ids in encoded {
            let mut start = 0;
            loop {
                let end = ids.len().min(start + room);
                all.push(&[(&[special.cls], 0), (&ids[start..end], 0), (&[special.sep], 0)]);
                if end == ids.len() {
                    break;
                }
                start += step;
            }
            ends.push(all.len());
        }
        all.grouping = Grouping::Windows(ends);
        Ok(all)
    }

    /// Returns whether an example is a text in windows, over which its logits are averaged.
    pub fn has_windows(&self) -> bool {
        matches!(self.grouping, Grouping::Windows(_))
    }

    /// Returns the number of windows of each of these examples, if they have windows.
    pub fn windows_of(&self, which: &[usize]) -> Option<Vec<usize>> {
        let counts = which.iter().map(|&example| self.of_example(example).len());
        self.has_windows().then(|| counts.collect())
    }

    /// Returns how many texts were truncated.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Returns a note on the texts of a file that were truncated to `max_len` tokens, if any.
    pub fn cut_note(&self, path: &Path, max_len: usize) -> Option<String> {
        (self.cut > 0).then(|| {
            format!(
                "{}: {} of {} texts were cut to {max_len} tokens",
                path.display(),
                self.cut,
                self.len()
            )
        })
    }

    /// Appends a sequence of several parts, each with the segment id of its tokens.
    pub fn push(&mut self, parts: &[(&[u32], u32)]) {
        for &(ids, segment) in parts {
            self.ids.extend_from_slice(ids);
            self.segments.extend(std::iter::repeat_n(segment, ids.len()));
        }
        self.ends.push(self.ids.len());
    }

    /// Makes every `choices` sequences an example.
    pub fn with_choices(mut self, choices: usize) -> Self {
        assert!(
            choices > 0 && self.len().is_multiple_of(choices),
            "every example has as many sequences"
        );
        self.grouping = Grouping::Choices(choices);
        self
    }

    /// Returns the number of examples.
    pub fn examples(&self) -> usize {
        match &self.grouping {
            Grouping::Choices(choices) => self.len() / choices,
            Grouping::Windows(ends) => ends.len(),
        }
    }

    /// Returns the sequences of example `index`.
    pub fn of_example(&self, index: usize) -> Range<usize> {
        match &self.grouping {
            Grouping::Choices(choices) => index * choices..(index + 1) * choices,
            Grouping::Windows(ends) => {
                index.checked_sub(1).map_or(0, |before| ends[before])..ends[index]
            }
        }
    }

    /// Returns the rows of example `index` among those of all sequences.
    pub fn rows_of(&self, index: usize) -> Range<usize> {
        let sequences = self.of_example(index);
        self.range(sequences.start).start..self.range(sequences.end - 1).end
    }

    /// Returns the number of tokens of example `index` in all its sequences.
    pub fn tokens_of(&self, index: usize) -> usize {
        self.rows_of(index).len()
    }

    /// Returns the number of sequences.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[index]
    }

    /// Returns the number of tokens of sequence `index`.
    pub fn length(&self, index: usize) -> usize {
        self.range(index).len()
    }

    /// Returns the token ids of sequence `index`.
    pub fn ids(&self, index: usize) -> &[u32] {
        &self.ids[self.range(index)]
    }

    /// Makes a batch of the examples `which`; the index of a sequence is the key of its random numbers.
    pub fn batch(&self, which: &[usize]) -> Packed {
        let mut packed = Packed::default();
        for index in which.iter().flat_map(|&example| self.of_example(example)) {
            let segments = &self.segments[self.range(index)];
            packed.push(index as u64, self.ids(index), segments);
        }
        packed
    }

    /// Returns the batches of an epoch: all examples in an order that depends on (seed, epoch).
    pub fn epoch(&self, seed: u64, epoch: u32, size: BatchSize) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.examples()).collect();
        order_draws(seed, epoch).shuffle(&mut order);
        self.split(&order, size)
    }

    /// Returns the batches of an epoch in which all `groups` of examples have the same share: as many examples as
    /// there are, drawn from one group after the other, each group's in a shuffled order that begins again when
    /// it ends.
    pub fn balanced_epoch(
        &self,
        groups: &[Vec<usize>],
        seed: u64,
        epoch: u32,
        size: BatchSize,
    ) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> =
            groups.iter().filter(|group| !group.is_empty()).cloned().collect();
        let mut draws = order_draws(seed, epoch);
        for group in &mut groups {
            draws.shuffle(group);
        }
        let drawn = (0..self.examples()).map(|index| {
            let group = &groups[index % groups.len()];
            group[index / groups.len() % group.len()]
        });
        let mut order: Vec<usize> = drawn.collect();
        draws.shuffle(&mut order);
        self.split(&order, size)
    }

    /// Returns batches of similar lengths, longest first, so that no later batch needs more memory.
    pub fn by_length(&self, size: BatchSize) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.examples()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(self.tokens_of(index)));
        self.split(&order, size)
    }

    fn split(&self, order: &[usize], size: BatchSize) -> Vec<Vec<usize>> {
        match size {
            BatchSize::Examples(count) => order.chunks(count).map(<[usize]>::to_vec).collect(),
            BatchSize::Tokens(budget) => {
                let mut batches: Vec<Vec<usize>> = Vec::new();
                let mut tokens = 0;
                for &index in order {
                    let length = self.tokens_of(index);
                    match batches.last_mut() {
                        Some(batch) if tokens + length <= budget => batch.push(index),
                        _ => {
                            batches.push(vec![index]);
                            tokens = 0;
                        }
                    }
                    tokens += length;
                }
                batches
            }
        }
    }
}

/// Returns the random numbers of an epoch's order.
fn order_draws(seed: u64, epoch: u32) -> Draws {
    Stream::new(seed, epoch, Site::Order, 0).draws()
}

/// Returns an error if a sequence of `max_len` tokens is shorter than the `least` that leave room for text.
fn check_room(max_len: usize, least: usize) -> Result<()> {
    if max_len >= least {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "max_len {max_len} leaves no room for text beside the special tokens: at least {least} are needed"
    )))
}

/// Truncates two texts to `room` tokens together, one piece of the longer at a time; returns whether
/// anything was cut.
fn cut(a: &mut Vec<u32>, b: &mut Vec<u32>, room: usize) -> bool {
    let fits = a.len() + b.len() <= room;
    while a.len() + b.len() > room {
        if a.len() > b.len() {
            a.pop();
        } else {
            b.pop();
        }
    }
    !fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Casing;

    fn wordpiece() -> WordPiece {
        let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"];
        WordPiece::from_vocab(vocab.map(String::from).into(), Casing::Uncased).unwrap()
    }

    fn lengths(lengths: &[usize]) -> Sequences {
        let mut sequences = Sequences::default();
        for &length in lengths {
            sequences.push(&[(&vec![5; length], 0)]);
        }
        sequences
    }

    #[test]
    fn the_longer_text_of_a_pair_is_truncated() {
        let texts = [("a a a a a a", Some("b b")), ("c", None), ("a", Some("b b b b b b"))];
        let sequences = Sequences::tokenise(&wordpiece(), &texts, 8).unwrap();
        assert_eq!(sequences.ids(0), [2, 5, 5, 5, 3, 6, 6, 3]);
        assert_eq!(sequences.ids(1), [2, 7, 3]);
        assert_eq!(sequences.ids(2), [2, 5, 3, 6, 6, 6, 6, 3]);
        let batch = sequences.batch(&[2, 1]);
        assert_eq!(batch.segments, [0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!(batch.examples, [2, 1]);
        assert!(Sequences::tokenise(&wordpiece(), &texts, 4).is_err());
        let note = sequences.cut_note(Path::new("a.tsv"), 8).unwrap();
        assert_eq!(note, "a.tsv: 2 of 3 texts were cut to 8 tokens");
        let whole = Sequences::tokenise(&wordpiece(), &texts, 11).unwrap();
        assert_eq!(whole.cut_note(Path::new("a.tsv"), 11), None);
    }

    #[test]
    fn every_epoch_has_each_sequence_once_in_its_own_order() {
        let sequences = lengths(&[3; 50]);
        let size = BatchSize::Examples(8);
        let epoch = |seed, epoch| sequences.epoch(seed, epoch, size);
        let first = epoch(1, 0);
        assert!(first.iter().map(Vec::len).eq([8, 8, 8, 8, 8, 8, 2]));
        let mut all = first.concat();
        assert!(!all.is_sorted());
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..50));
        assert_eq!(first, epoch(1, 0));
        assert!(first != epoch(1, 1) && first != epoch(2, 0));
    }

    #[test]
    fn a_balanced_epoch_has_every_group_equally_often() {
        let sequences = lengths(&[3; 12]);
        let groups = [vec![], (0..10).collect(), vec![10, 11]];
        let epoch = sequences.balanced_epoch(&groups, 1, 0, BatchSize::Examples(5));
        let mut all = epoch.concat();
        assert_eq!((epoch.len(), all.iter().filter(|&&index| index >= 10).count()), (3, 6));
        assert_ne!(epoch, sequences.balanced_epoch(&groups, 1, 1, BatchSize::Examples(5)));
        all.sort_unstable();
        assert_eq!(all[6..], [10, 10, 10, 11, 11, 11]);
    }

    #[test]
    fn a_long_text_is_read_in_windows_that_overlap() {
        let texts = ["a a a a a b", "c", ""];
        let sequences = Sequences::in_windows(&wordpiece(), &texts, 6).unwrap();
        assert_eq!((sequences.examples(), sequences.len()), (3, 4));
        assert_eq!(sequences.ids(0), [2, 5, 5, 5, 5, 3]);
        assert_eq!(sequences.ids(1), [2, 5, 5, 6, 3], "it begins at the fourth of six pieces");
        assert_eq!((sequences.ids(2), sequences.ids(3)), (&[2, 7, 3][..], &[2, 3][..]));
        assert_eq!(sequences.windows_of(&[1, 0]), Some(vec![1, 2]));
        assert_eq!(sequences.batch(&[0]).examples, [0, 1]);
        assert_eq!(lengths(&[1]).windows_of(&[0]), None);
    }

    #[test]
    fn a_token_budget_is_kept_unless_one_sequence_exceeds_it() {
        let sequences = lengths(&[5, 9, 2, 30, 4, 7, 1]);
        for batches in [
            sequences.epoch(3, 0, BatchSize::Tokens(12)),
            sequences.by_length(BatchSize::Tokens(12)),
        ] {
            assert_eq!(batches.concat().len(), 7);
            for batch in &batches {
                let tokens: usize = batch.iter().map(|&i| sequences.length(i)).sum();
                assert!(tokens <= 12 || batch.len() == 1, "{batches:?}");
            }
        }
        let choices = lengths(&[5, 9, 2, 30]).with_choices(2);
        assert_eq!((choices.examples(), choices.tokens_of(1)), (2, 32));
        assert_eq!(choices.batch(&[1]).examples, [2, 3]);
        assert_eq!(choices.by_length(BatchSize::Tokens(40)), [[1], [0]]);
        let sorted = sequences.by_length(BatchSize::Examples(2));
        assert_eq!(sorted, [vec![3, 1], vec![5, 0], vec![4, 2], vec![6]]);
    }
}
