//! Uploads a batch: every array of indices that a step needs, the rows sorted by token, and the key
//! of the step's random numbers, in one upload.

use crate::data::Packed;
use crate::error::Result;
use crate::model::Dropout;

use super::arena::Arena;
use super::device::{Address, Device};
use super::kernels::Batch;
use crate::bytes::bytes_of;

/// Arrays start at multiples of this many 4-byte words.
const ALIGNMENT: usize = 4;

/// The heads' inputs besides the batch itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadInputs<'a> {
    /// Rows that the masked-LM head reads.
    pub rows: &'a [u32],
    /// The token at each of them.
    pub labels: &'a [u32],
    /// Labels of the linear head: some per sequence, or one per row.
    pub head_labels: &'a [u32],
    /// Whether these are labels of rows.
    pub of_rows: bool,
    /// Whether sequences are pooled by their last token.
    pub left_to_right: bool,
}

/// A batch in the device's memory, with the arrays of [`HeadInputs`].
#[derive(Debug, Clone, Copy)]
pub struct DeviceBatch {
    pub batch: Batch,
    pub rows: Address,
    pub labels: Address,
    pub head_labels: Address,
    /// The row of each sequence that the pooler reads.
    pub pooled: Address,
    /// Key of dropout's random numbers: low and high half of the seed, and the step.
    pub state: Address,
}

/// The upload's memory on both sides, reused between steps.
#[derive(Debug, Default)]
pub struct Staging {
    words: Vec<u32>,
    /// Number of occurrences of each token; later the position of its next row.
    counts: Vec<u32>,
    device: Arena,
}

impl Staging {
    /// Uploads a batch. Also returns whether its address may have changed.
    pub fn send(
        &mut self,
        device: &mut dyn Device,
        packed: &Packed,
        inputs: HeadInputs<'_>,
        dropout: Option<Dropout>,
        vocabulary: usize,
    ) -> Result<(DeviceBatch, bool)> {
        let offsets = self.write(packed, inputs, dropout, vocabulary);
        let bytes = bytes_of(&self.words);
        let moved = self.device.reserve(device, bytes.len() as u64)?;
        device.upload(self.device.at(), bytes)?;
        Ok((offsets.on_device(packed, self.device.at()), moved))
    }

    /// Releases the device's memory.
    pub fn release(&mut self, device: &mut dyn Device) {
        self.device.release(device);
    }

    /// Writes all arrays to `words`.
    fn write(
        &mut self,
        packed: &Packed,
        inputs: HeadInputs<'_>,
        dropout: Option<Dropout>,
        vocabulary: usize,
    ) -> ArrayOffsets {
        self.words.clear();
        let rows = packed.rows();
        let (seed, step) = dropout.map_or((0, 0), |dropout| (dropout.seed, dropout.step));
        // Batches with the same number of rows, sequences and labels have the same offsets, so they
        // can share recordings.
        let state = self.push([seed as u32, (seed >> 32) as u32, step]);
        let ids = self.push(packed.ids.iter().copied());
        let segments = self.push(packed.segments.iter().copied());
        let positions = self.push(packed.positions.iter().copied());
        let cu_seqlens = self.push(packed.cu_seqlens.iter().copied());
        let owners = packed.ranges().enumerate();
        let sequence_of_row =
            self.push(owners.flat_map(|(sequence, rows)| rows.map(move |_| sequence as u32)));
        let examples = packed.examples.iter();
        let examples = self.push(examples.flat_map(|&e| [e as u32, (e >> 32) as u32]));
        let pooled = self.push(packed.pooled_rows(inputs.left_to_right));
        let picked = self.push(inputs.rows.iter().copied());
        let labels = self.push(inputs.labels.iter().copied());
        let head_labels = self.push(inputs.head_labels.iter().copied());
        let words = rows.min(vocabulary);
        let word_order = self.reserve(rows);
        let word_starts = self.reserve(words + 1);
        self.sort(&packed.ids, vocabulary, [word_order, word_starts], words);
        ArrayOffsets {
            state,
            ids,
            segments,
            positions,
            cu_seqlens,
            sequence_of_row,
            examples,
            pooled,
            picked,
            labels,
            head_labels,
            word_order,
            word_starts,
            words: words as u32,
        }
    }

    /// Appends an array; returns its offset.
    fn push(&mut self, array: impl IntoIterator<Item = u32>) -> usize {
        let start = self.words.len();
        self.words.extend(array);
        self.pad();
        start
    }

    fn reserve(&mut self, len: usize) -> usize {
        let start = self.words.len();
        self.words.resize(start + len, 0);
        self.pad();
        start
    }

    fn pad(&mut self) {
        let end = self.words.len().next_multiple_of(ALIGNMENT);
        self.words.resize(end, 0);
    }

    /// Sorts rows by token, and equal tokens by row, with a counting sort; writes the order, and
    /// the start of each distinct token's rows in it. There are always `words` starts and an end,
    /// so that the number doesn't change between batches: surplus starts equal the end.
    fn sort(&mut self, ids: &[u32], vocabulary: usize, at: [usize; 2], words: usize) {
        let [order, starts] = at;
        self.counts.clear();
        self.counts.resize(vocabulary, 0);
        for &id in ids {
            self.counts[id as usize] += 1;
        }
        let (mut row, mut different) = (0, 0);
        for count in &mut self.counts {
            if *count > 0 {
                self.words[starts + different] = row;
                different += 1;
            }
            row += std::mem::replace(count, row);
        }
        self.words[starts + different..=starts + words].fill(row);
        for (row, &id) in ids.iter().enumerate() {
            let place = &mut self.counts[id as usize];
            self.words[order + *place as usize] = row as u32;
            *place += 1;
        }
    }
}

/// Offsets of the arrays in the upload, in 4-byte words.
struct ArrayOffsets {
    state: usize,
    ids: usize,
    segments: usize,
    positions: usize,
    cu_seqlens: usize,
    sequence_of_row: usize,
    examples: usize,
    pooled: usize,
    picked: usize,
    labels: usize,
    head_labels: usize,
    word_order: usize,
    word_starts: usize,
    words: u32,
}

impl ArrayOffsets {
    fn on_device(&self, packed: &Packed, base: Address) -> DeviceBatch {
        let at = |place: usize| base.offset(4 * place as u64);
        DeviceBatch {
            batch: Batch {
                rows: packed.rows() as u32,
                sequences: packed.sequences() as u32,
                longest: packed.longest() as u32,
                pairs: packed.ranges().map(|range| (range.len() as u64).pow(2)).sum(),
                ids: at(self.ids),
                segments: at(self.segments),
                positions: at(self.positions),
                cu_seqlens: at(self.cu_seqlens),
                sequence_of_row: at(self.sequence_of_row),
                examples: at(self.examples),
                word_order: at(self.word_order),
                word_starts: at(self.word_starts),
                words: self.words,
            },
            rows: at(self.picked),
            labels: at(self.labels),
            head_labels: at(self.head_labels),
            pooled: at(self.pooled),
            state: at(self.state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Packed {
        let mut packed = Packed::default();
        packed.push(7 | 3 << 32, &[5, 2, 5, 9, 2], &[0, 0, 0, 1, 1]);
        packed.push(8, &[9], &[0]);
        packed.push(9, &[0, 5, 2], &[0, 0, 1]);
        packed
    }

    #[test]
    fn rows_are_in_the_order_of_their_words() {
        let packed = batch();
        for vocabulary in [10, 1000] {
            let mut staging = Staging::default();
            for _ in 0..2 {
                let offsets = staging.write(&packed, HeadInputs::default(), None, vocabulary);
                let order = &staging.words[offsets.word_order..][..9];
                assert_eq!(order, [6, 1, 4, 8, 0, 2, 7, 3, 5]);
                assert_eq!(offsets.words, 9);
                let starts = &staging.words[offsets.word_starts..][..10];
                assert_eq!(starts, [0, 1, 4, 7, 9, 9, 9, 9, 9, 9]);
            }
        }
        // A vocabulary smaller than the number of rows: one start per token.
        let mut packed = Packed::default();
        packed.push(0, &[1, 0, 1, 1], &[0; 4]);
        let mut staging = Staging::default();
        let offsets = staging.write(&packed, HeadInputs::default(), None, 2);
        assert_eq!(&staging.words[offsets.word_starts..][..3], [0, 1, 4]);
        assert_eq!(&staging.words[offsets.word_order..][..4], [1, 0, 2, 3]);
    }

    #[test]
    fn arrays_lie_apart_and_hold_the_batch() {
        let packed = batch();
        let inputs = HeadInputs {
            rows: &[1, 3],
            labels: &[40, 41],
            head_labels: &[1, 0, 1],
            of_rows: false,
            left_to_right: true,
        };
        let dropout = Dropout { seed: 2 | 9 << 32, step: 77 };
        let mut staging = Staging::default();
        let offsets = staging.write(&packed, inputs, Some(dropout), 10);
        let on_device = offsets.on_device(&packed, Address(1 << 12));
        let array = |at: Address, len: usize| {
            assert_eq!(at.0 % 16, 0);
            &staging.words[(at.0 as usize - (1 << 12)) / 4..][..len]
        };
        assert_eq!(array(on_device.state, 3), [2, 9, 77]);
        assert_eq!(array(on_device.batch.ids, 9), packed.ids);
        assert_eq!(array(on_device.batch.segments, 9), packed.segments);
        assert_eq!(array(on_device.batch.positions, 9), packed.positions);
        assert_eq!(array(on_device.batch.cu_seqlens, 4), packed.cu_seqlens);
        let owners = array(on_device.batch.sequence_of_row, 9);
        assert_eq!(owners, [0, 0, 0, 0, 0, 1, 2, 2, 2]);
        assert_eq!(array(on_device.batch.examples, 6), [7, 3, 8, 0, 9, 0]);
        assert_eq!(array(on_device.pooled, 3), [4, 5, 8]);
        assert_eq!(array(on_device.rows, 2), [1, 3]);
        assert_eq!(array(on_device.labels, 2), [40, 41]);
        assert_eq!(array(on_device.head_labels, 3), [1, 0, 1]);
        let batch = on_device.batch;
        assert_eq!((batch.rows, batch.sequences, batch.longest), (9, 3, 5));
    }
}
