//! The training data of a task head: token sequences with targets, the same for every kind of task.

use super::Sequences;
use crate::error::{Error, Result};

/// Sequences with their targets.
#[derive(Debug, Clone, Default)]
pub struct Examples {
    /// The token sequences.
    pub sequences: Sequences,
    /// Their targets.
    pub targets: Targets,
}

/// The targets of examples, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Targets {
    /// Unknown: a model can predict the examples but not learn from them.
    #[default]
    Unknown,
    /// The class of each sequence, counted from 0.
    Classes(Vec<u32>),
    /// The classes of each example, counted from 0: none, one or several.
    Sets(Vec<Vec<u32>>),
    /// A number for each sequence.
    Values(Vec<f32>),
    /// The index of each example's correct sequence.
    Choices(Vec<u32>),
    /// The class of each row of all sequences, end to end; none for rows without a target.
    Rows(Vec<Option<u32>>),
    /// The first and the last row of each sequence's answer, counted from the sequence's first row; both
    /// are 0, `[CLS]`, if it has none.
    Spans(Vec<[u32; 2]>),
}

impl Examples {
    /// Returns the number of examples.
    pub fn len(&self) -> usize {
        self.sequences.examples()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a CRC-32 of tokens and targets, which depends on their order.
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

    /// Returns the targets of the examples `which`, in that order.
    pub fn targets_of(&self, which: &[usize]) -> Targets {
        fn picked<T: Copy>(all: &[T], which: &[usize]) -> Vec<T> {
            which.iter().map(|&index| all[index]).collect()
        }
        match &self.targets {
            Targets::Unknown => Targets::Unknown,
            Targets::Classes(all) => Targets::Classes(picked(all, which)),
            Targets::Sets(all) => {
                Targets::Sets(which.iter().map(|&index| all[index].clone()).collect())
            }
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

impl Targets {
    /// Returns an error if a head with this number of outputs has none for a target.
    pub fn check(&self, outputs: usize) -> Result<()> {
        let largest = match self {
            Self::Classes(classes) => classes.iter().copied().max(),
            Self::Sets(sets) => sets.iter().flatten().copied().max(),
            Self::Rows(labels) => labels.iter().flatten().copied().max(),
            Self::Values(_) | Self::Choices(_) if outputs != 1 => {
                let message = format!("these targets need a head with 1 output, not {outputs}");
                return Err(Error::Failed(message));
            }
            Self::Spans(_) if outputs != 2 => {
                let message = format!("answers need a head with 2 outputs, not {outputs}");
                return Err(Error::Failed(message));
            }
            _ => None,
        };
        match largest {
            Some(class) if class as usize >= outputs => Err(Error::Failed(format!(
                "a target is class {class}, counted from 0, but the head has {outputs} outputs"
            ))),
            _ => Ok(()),
        }
    }

    /// Encodes each target as a 64-bit word, different targets differently.
    fn words(&self) -> Vec<u64> {
        match self {
            Self::Unknown => Vec::new(),
            Self::Classes(all) | Self::Choices(all) => all.iter().map(|&x| x.into()).collect(),
            Self::Sets(all) => {
                let words = |set: &Vec<u32>| {
                    let classes = set.iter().map(|&class| u64::from(class));
                    [set.len() as u64].into_iter().chain(classes).collect::<Vec<u64>>()
                };
                all.iter().flat_map(words).collect()
            }
            Self::Values(all) => all.iter().map(|x| x.to_bits().into()).collect(),
            Self::Rows(all) => all.iter().map(|x| x.map_or(u64::MAX, u64::from)).collect(),
            Self::Spans(all) => {
                let word = |&[first, last]: &[u32; 2]| u64::from(first) << 32 | u64::from(last);
                all.iter().map(word).collect()
            }
        }
    }

    /// Returns the examples of each class; None if an example has not exactly one.
    pub fn by_class(&self) -> Option<Vec<Vec<usize>>> {
        let Self::Classes(classes) = self else { return None };
        let count = classes.iter().max().map_or(0, |&class| class as usize + 1);
        let mut groups = vec![Vec::new(); count];
        for (example, &class) in classes.iter().enumerate() {
            groups[class as usize].push(example);
        }
        Some(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_without_an_output_for_a_target_is_refused() {
        for (targets, outputs) in [
            (Targets::Classes(vec![0, 2, 1]), 3),
            (Targets::Rows(vec![None, Some(3)]), 4),
            (Targets::Values(vec![0.5]), 1),
            (Targets::Choices(vec![3]), 1),
            (Targets::Spans(vec![[1, 2]]), 2),
        ] {
            assert!(targets.check(outputs).is_ok(), "{targets:?}");
        }
        let message = |targets: Targets, outputs| targets.check(outputs).unwrap_err().to_string();
        let class = "class 1, counted from 0, but the head has 1 outputs";
        assert!(message(Targets::Classes(vec![0, 1]), 1).contains(class));
        assert!(message(Targets::Rows(vec![None, Some(1)]), 1).contains(class));
        assert!(message(Targets::Values(vec![0.5]), 2).contains("1 output, not 2"));
        assert!(message(Targets::Spans(vec![[1, 2]]), 1).contains("2 outputs, not 1"));
    }

    #[test]
    fn targets_of_rows_are_those_of_the_sequences() {
        let mut sequences = Sequences::default();
        for length in [2, 1, 3] {
            sequences.push(&[(&vec![7; length], 0)]);
        }
        let rows = vec![None, Some(1), Some(2), Some(3), None, Some(4)];
        let examples = Examples { sequences, targets: Targets::Rows(rows) };
        let part = examples.targets_of(&[2, 0]);
        let expected = vec![Some(3), None, Some(4), None, Some(1)];
        assert_eq!(part, Targets::Rows(expected));
        assert_eq!(examples.len(), 3);
    }
}
