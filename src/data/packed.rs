//! The batch type: the tokens of several sequences, end to end, without padding.

use std::ops::Range;

use crate::error::{Error, Result};

/// A batch of token sequences, packed end to end.
///
/// `ids`, `segments` and `positions` have one entry a token ("row"); sequence `i` has the rows
/// `cu_seqlens[i]..cu_seqlens[i + 1]`. A model that needs padding adds it internally and returns rows of
/// real tokens, so everything above the encoder sees `(rows, hidden)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Token ids, one a row.
    pub ids: Vec<u32>,
    /// Segment ids (0 for `[CLS] A [SEP]`, 1 for `B [SEP]`), one a row.
    pub segments: Vec<u32>,
    /// Positions within the sequence, from 0, one a row.
    pub positions: Vec<u32>,
    /// Cumulative lengths: `sequences + 1` entries, the first 0, the last the number of rows.
    pub cu_seqlens: Vec<u32>,
    /// The global index of each sequence in the run. It is the key of the sequence's random numbers, so
    /// that dropout does not depend on batch or rank.
    pub examples: Vec<u64>,
}

impl Default for Packed {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            segments: Vec::new(),
            positions: Vec::new(),
            cu_seqlens: vec![0],
            examples: Vec::new(),
        }
    }
}

impl Packed {
    /// Appends one sequence; `ids` and `segments` are of equal, non-zero length.
    pub fn push(&mut self, example: u64, ids: &[u32], segments: &[u32]) {
        assert_eq!(ids.len(), segments.len(), "one segment id for every token");
        assert!(!ids.is_empty(), "a sequence has at least one token");
        self.ids.extend_from_slice(ids);
        self.segments.extend_from_slice(segments);
        self.positions.extend(0..ids.len() as u32);
        self.cu_seqlens.push(self.ids.len() as u32);
        self.examples.push(example);
    }

    /// Returns the number of tokens.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of sequences.
    pub fn sequences(&self) -> usize {
        self.examples.len()
    }

    /// Returns the rows of sequence `index`.
    pub fn rows_of(&self, index: usize) -> Range<usize> {
        self.cu_seqlens[index] as usize..self.cu_seqlens[index + 1] as usize
    }

    /// Iterates over the rows of each sequence.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.cu_seqlens.windows(2).map(|w| w[0] as usize..w[1] as usize)
    }

    /// Iterates over example and position of every row.
    pub fn examples_and_positions(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.ranges()
            .zip(&self.examples)
            .flat_map(|(range, &example)| (0..range.len() as u32).map(move |p| (example, p)))
    }

    /// Iterates over the row of each sequence that represents all of it: the first, `[CLS]`, or the last if
    /// the model is left-to-right.
    pub fn pooled_rows(&self, left_to_right: bool) -> impl Iterator<Item = u32> + '_ {
        self.ranges().map(move |range| match left_to_right {
            true => range.end as u32 - 1,
            false => range.start as u32,
        })
    }

    /// Returns the length of the longest sequence.
    pub fn longest(&self) -> usize {
        self.ranges().map(|r| r.len()).max().unwrap_or(0)
    }

    /// Copies the sequences `which` into a new batch.
    pub fn slice(&self, which: Range<usize>) -> Self {
        let rows = self.cu_seqlens[which.start] as usize..self.cu_seqlens[which.end] as usize;
        let ends = self.cu_seqlens[which.start..=which.end].iter();
        Self {
            ids: self.ids[rows.clone()].to_vec(),
            segments: self.segments[rows.clone()].to_vec(),
            positions: self.positions[rows.clone()].to_vec(),
            cu_seqlens: ends.map(|&end| end - rows.start as u32).collect(),
            examples: self.examples[which].to_vec(),
        }
    }

    /// Splits the batch into at most `parts` ranges of sequences with about equally many rows.
    pub fn balanced(&self, parts: usize) -> Vec<Range<usize>> {
        let mut cuts = Vec::with_capacity(parts);
        let mut start = 0;
        for part in 1..=parts {
            let target = (self.rows() * part / parts) as u32;
            let end = self.cu_seqlens.partition_point(|&rows| rows < target);
            if end > start {
                cuts.push(start..end);
                start = end;
            }
        }
        cuts
    }

    /// Returns an error that names the sequence if a model with these limits can't embed one. A model with 0
    /// segments ignores them.
    pub fn check(&self, vocab_size: usize, positions: usize, segments: usize) -> Result<()> {
        for (index, range) in self.ranges().enumerate() {
            if range.len() > positions {
                return Err(Error::Failed(format!(
                    "sequence {index} has {} tokens, but the model has only {positions} positions",
                    range.len()
                )));
            }
            let too_large = |values: &[u32], limit: usize| {
                let mut values = values[range.clone()].iter().copied();
                values.find(|&value| value as usize >= limit)
            };
            if let Some(id) = too_large(&self.ids, vocab_size) {
                return Err(Error::Failed(format!(
                    "sequence {index} holds token id {id}, but the model's vocabulary has {vocab_size} entries"
                )));
            }
            if segments > 0
                && let Some(segment) = too_large(&self.segments, segments)
            {
                return Err(Error::Failed(format!(
                    "sequence {index} holds segment id {segment}, but the model knows {segments} segments"
                )));
            }
            if let Some(position) = too_large(&self.positions, positions) {
                return Err(Error::Failed(format!(
                    "sequence {index} holds position {position}, but the model has only {positions} positions"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_lie_end_to_end() {
        let mut packed = Packed::default();
        packed.push(7, &[2, 5, 3], &[0, 0, 0]);
        packed.push(9, &[2, 3], &[0, 1]);
        assert_eq!(packed.cu_seqlens, [0, 3, 5]);
        assert_eq!(packed.positions, [0, 1, 2, 0, 1]);
        assert_eq!(packed.examples, [7, 9]);
        let sizes = (packed.rows(), packed.sequences(), packed.longest());
        assert_eq!(sizes, (5, 2, 3));
        assert_eq!(packed.rows_of(1), 3..5);
    }

    #[test]
    fn concatenated_slices_are_the_batch() {
        let mut packed = Packed::default();
        for (example, length) in [3usize, 1, 4, 1, 5].into_iter().enumerate() {
            let ids: Vec<u32> = (0..length as u32).collect();
            packed.push(example as u64, &ids, &vec![0; length]);
        }
        for parts in 1..8 {
            let cuts = packed.balanced(parts);
            let mut again = Packed::default();
            for cut in cuts {
                let slice = packed.slice(cut);
                for (i, range) in slice.ranges().enumerate() {
                    let (ids, segments) = (&slice.ids[range.clone()], &slice.segments[range]);
                    again.push(slice.examples[i], ids, segments);
                }
            }
            assert_eq!(again, packed, "{parts} parts");
        }
    }

    #[test]
    fn a_sequence_that_the_model_cannot_embed_is_named() {
        let mut packed = Packed::default();
        packed.push(0, &[1, 2, 3], &[0, 0, 1]);
        assert!(packed.check(4, 3, 2).is_ok());
        let text = |r: Result<()>| r.unwrap_err().to_string();
        let long = text(packed.check(4, 2, 2));
        assert!(long.contains("3 tokens, but the model has only 2 positions"));
        assert!(text(packed.check(3, 3, 2)).contains("token id 3"));
        assert!(text(packed.check(4, 3, 1)).contains("segment id 1"));
        packed.positions[1] = 3;
        assert!(text(packed.check(4, 3, 2)).contains("position 3, but the model has only 3"));
    }
}
