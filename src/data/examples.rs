//! What a head is trained on: token sequences with what is to be told of them, for every kind of
//! task the same.

use super::Sequences;

/// Sequences with their targets.
#[derive(Debug, Clone, Default)]
pub struct Examples {
    pub sequences: Sequences,
    pub targets: Targets,
}

/// What is to be told of examples, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Targets {
    /// Not known: the examples can be answered, but not learned from.
    #[default]
    Unknown,
    /// The class of each sequence, counted from 0.
    Classes(Vec<u32>),
    /// A number for each sequence.
    Values(Vec<f32>),
    /// Which of an example's sequences is right, counted from 0.
    Choices(Vec<u32>),
    /// The class of each row of all sequences, end to end; none where nothing is to be told.
    Rows(Vec<Option<u32>>),
    /// The first and the last row of each sequence's answer, counted from the sequence's first;
    /// both 0, `[CLS]`, where it has none.
    Spans(Vec<[u32; 2]>),
}

impl Examples {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.sequences.examples()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// CRC-32 of tokens and targets in their order: other data, or the same in another order, have
    /// another.
    pub fn checksum(&self) -> u32 {
        let mut crc = flate2::Crc::new();
        for sequence in 0..self.sequences.len() {
            let ids = self.sequences.ids(sequence);
            crc.update(&(ids.len() as u64).to_le_bytes());
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            crc.update(&bytes);
        }
        for word in self.targets.words() {
            crc.update(&word.to_le_bytes());
        }
        crc.sum()
    }

    /// The targets of the examples named by `which`, in that order.
    pub fn targets_of(&self, which: &[usize]) -> Targets {
        match &self.targets {
            Targets::Unknown => Targets::Unknown,
            Targets::Classes(all) => Targets::Classes(picked(all, which)),
            Targets::Values(all) => Targets::Values(picked(all, which)),
            Targets::Choices(all) => Targets::Choices(picked(all, which)),
            Targets::Spans(all) => Targets::Spans(picked(all, which)),
            Targets::Rows(all) => {
                let rows = |&example: &usize| &all[self.sequences.rows_of(example)];
                Targets::Rows(which.iter().flat_map(rows).copied().collect())
            }
        }
    }
}

fn picked<T: Copy>(all: &[T], which: &[usize]) -> Vec<T> {
    which.iter().map(|&index| all[index]).collect()
}

impl Targets {
    /// As 64-bit words, no two targets alike.
    fn words(&self) -> Vec<u64> {
        match self {
            Self::Unknown => Vec::new(),
            Self::Classes(all) | Self::Choices(all) => all.iter().map(|&x| x.into()).collect(),
            Self::Values(all) => all.iter().map(|x| x.to_bits().into()).collect(),
            Self::Rows(all) => all.iter().map(|x| x.map_or(u64::MAX, u64::from)).collect(),
            Self::Spans(all) => {
                let word = |&[first, last]: &[u32; 2]| u64::from(first) << 32 | u64::from(last);
                all.iter().map(word).collect()
            }
        }
    }

    /// How many predictions the loss is a mean over.
    pub fn terms(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Classes(all) | Self::Choices(all) => all.len(),
            Self::Values(all) => all.len(),
            Self::Rows(all) => all.iter().flatten().count(),
            Self::Spans(all) => all.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_rows_are_those_of_the_sequences() {
        let mut sequences = Sequences::default();
        for length in [2, 1, 3] {
            sequences.push(&[(&vec![7; length], 0)]);
        }
        let rows = vec![None, Some(1), Some(2), Some(3), None, Some(4)];
        let examples = Examples {
            sequences,
            targets: Targets::Rows(rows),
        };
        let part = examples.targets_of(&[2, 0]);
        let expected = vec![Some(3), None, Some(4), None, Some(1)];
        assert_eq!(part, Targets::Rows(expected));
        assert_eq!((part.terms(), examples.len()), (3, 3));
    }
}
