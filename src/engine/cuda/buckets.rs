//! Fills ragged batches up to sizes that many batches share, with sequences that nobody reads: such batches then share
//! recordings, and the algorithms of their products.
//!
//! The sequences that fill a batch get gradients of zero from every head, so they change no sum, only the order in
//! which it is added up.

use crate::data::Packed;

use super::batch::HeadInputs;

/// A label that no class has: its row counts for nothing.
pub const NO_LABEL: u32 = u32::MAX;

/// Steps between two powers of two. Half a step is wasted on average: 2 % of the rows.
const STEPS: usize = 16;
/// Batches of fewer rows are launched in no time.
const LEAST: usize = 64;
/// Lengths of sequences are rounded up to multiples of this.
const LENGTHS: usize = 64;

/// A filled batch and the inputs of its heads.
pub struct Filled {
    pub packed: Packed,
    /// The rows of the longest sequence, rounded up.
    pub longest: usize,
    rows: Vec<u32>,
    labels: Vec<u32>,
    head_labels: Vec<u32>,
}

impl Filled {
    /// Returns the inputs of the heads.
    pub fn inputs<'a>(&'a self, given: HeadInputs<'a>) -> HeadInputs<'a> {
        HeadInputs {
            rows: &self.rows,
            labels: &self.labels,
            head_labels: &self.head_labels,
            ..given
        }
    }
}

/// Returns the distance between the sizes to which a number of rows is rounded up.
fn step(rows: usize) -> usize {
    (rows.next_power_of_two() / 2 / STEPS).max(1)
}

/// Fills a batch; returns None if it needs no filling. No sequence gets longer than `most` rows.
pub fn filled(packed: &Packed, inputs: HeadInputs<'_>, most: usize) -> Option<Filled> {
    let rows = packed.rows();
    let step_of_rows = step(rows.max(LEAST));
    let (given, read) = (packed.sequences(), inputs.rows.len());
    let goal = |n: usize| n.next_multiple_of(step(n.max(LEAST)));
    if rows.is_multiple_of(step_of_rows) && read == goal(read) {
        return None;
    }
    let longest = packed.longest().next_multiple_of(LENGTHS).min(most);
    // Each sequence that is added has a row, because the pooler reads one of each, and each row is read by a head once.
    let sequences = step_of_rows.div_ceil(longest);
    let reads = goal(read) - read;
    let mut all = (rows + sequences.max(reads)).next_multiple_of(step_of_rows);
    // The last power of two before the next steps, which are wider.
    if step(all) != step_of_rows {
        all = all.next_multiple_of(step(all));
    }
    let mut packed = packed.clone();
    let mut left = all - rows;
    let sequences = sequences.max(left.div_ceil(longest));
    for index in 0..sequences {
        // One row stays for each that follows.
        let length = (left - (sequences - 1 - index)).min(longest);
        packed.push(0, &vec![0; length], &vec![0; length]);
        left -= length;
    }
    let mut filled = Filled {
        longest,
        rows: inputs.rows.to_vec(),
        labels: inputs.labels.to_vec(),
        head_labels: inputs.head_labels.to_vec(),
        packed,
    };
    filled.rows.extend(rows as u32..(rows + reads) as u32);
    filled.labels.resize(filled.rows.len(), NO_LABEL);
    if !filled.head_labels.is_empty() {
        let labels = match inputs.of_rows {
            true => filled.packed.rows(),
            false => inputs.head_labels.len() / given * filled.packed.sequences(),
        };
        filled.head_labels.resize(labels, NO_LABEL);
    }
    Some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn packed(lengths: &[usize]) -> Packed {
        let mut packed = Packed::default();
        for (example, &length) in lengths.iter().enumerate() {
            packed.push(example as u64, &vec![7; length], &vec![0; length]);
        }
        packed
    }

    proptest! {
        #[test]
        fn a_filled_batch_begins_with_the_given_one(
            lengths in prop::collection::vec(1usize..=160, 1..40),
            every in 3usize..9,
        ) {
            let batch = packed(&lengths);
            let rows: Vec<u32> = (0..batch.rows() as u32).step_by(every).collect();
            let labels = vec![1; rows.len()];
            let next_labels = vec![1; batch.sequences()];
            let inputs = HeadInputs {
                rows: &rows,
                labels: &labels,
                head_labels: &next_labels,
                of_rows: false,
                left_to_right: false,
            };
            let Some(filled) = filled(&batch, inputs, 160) else {
                return Ok(());
            };
            let all = &filled.packed;
            prop_assert_eq!(&all.ids[..batch.rows()], &batch.ids[..]);
            prop_assert_eq!(&all.cu_seqlens[..=batch.sequences()], &batch.cu_seqlens[..]);
            prop_assert!(all.rows() > batch.rows() && all.longest() <= filled.longest);
            prop_assert!(filled.longest <= 160);
            prop_assert!(all.ranges().all(|range| !range.is_empty()));
            // At most two steps more, or as many as the masked tokens need.
            let wasted = all.rows() - batch.rows();
            prop_assert!(wasted <= 2 * step(all.rows().max(LEAST)) + rows.len() / 8 + 40);
            let inputs = filled.inputs(inputs);
            prop_assert_eq!(&inputs.rows[..rows.len()], &rows[..]);
            prop_assert_eq!(inputs.labels.len(), inputs.rows.len());
            prop_assert_eq!(inputs.head_labels.len(), all.sequences());
            prop_assert!(inputs.rows.iter().all(|&row| (row as usize) < all.rows()));
            let different: HashSet<u32> = inputs.rows.iter().copied().collect();
            prop_assert_eq!(different.len(), inputs.rows.len());
            let fills = inputs.labels.iter().filter(|&&label| label == NO_LABEL).count();
            prop_assert_eq!(fills, inputs.rows.len() - rows.len());
        }
    }

    #[test]
    fn batches_of_many_sizes_share_few() {
        let sizes = |lengths: &[usize]| {
            let batch = packed(lengths);
            let none = HeadInputs::default();
            match filled(&batch, none, 512) {
                Some(filled) => (filled.packed.rows(), filled.packed.sequences(), filled.longest),
                None => (batch.rows(), batch.sequences(), batch.longest()),
            }
        };
        // 32 sequences of 20 to 60 tokens.
        let batches = (0..200u64).map(|seed| {
            let length = |i: u64| 20 + ((seed * 7919 + i * 104_729) % 41) as usize;
            (0..32).map(length).collect::<Vec<_>>()
        });
        let different: HashSet<_> = batches.map(|lengths| sizes(&lengths)).collect();
        assert!(different.len() <= 8, "{different:?}");
        // Batches of full sequences stay as they are.
        assert_eq!(sizes(&[384; 64]), (24_576, 64, 384));
        assert_eq!(sizes(&[128; 8]), (1024, 8, 128));
    }
}
