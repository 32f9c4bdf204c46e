//! The order of the chunks in an epoch: a keyed permutation that needs no memory.
//!
//! A Feistel network permutes the numbers of an even count of bits, whatever its round function; results
//! outside [0, n) go through it again until they fall inside ("cycle walking"). So entry `i` of epoch
//! `e` is computed directly, and resuming needs no stored state.
//!
//! Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.

use crate::random::{Site, Stream};

/// Enough for the order to seem random; it need not be secure.
const ROUNDS: u32 = 6;

/// A permutation of [0, n) for a seed and an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    n: u64,
    seed: u64,
    epoch: u32,
    /// Bits of each half of a number.
    half_bits: u32,
}

impl Permutation {
    /// Creates the permutation of [0, `n`), `n` not 0, for epoch `epoch`.
    pub fn new(n: u64, seed: u64, epoch: u32) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, seed, epoch, half_bits: bits.div_ceil(2).max(1) }
    }

    /// Returns the entry at `index`, which is below `n`.
    pub fn at(&self, index: u64) -> u64 {
        let mut value = self.encrypt(index);
        // Fewer than 4 n numbers are permuted, so this takes fewer than 4 rounds on average. It ends because
        // every cycle that starts in [0, n) returns to it.
        while value >= self.n {
            value = self.encrypt(value);
        }
        value
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let stream = Stream::new(self.seed, self.epoch, Site::Order, right);
            let mixed = u64::from(stream.block(round)[0]) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_occurs_once() {
        for n in [1, 2, 3, 5, 64, 65, 1000, 4097] {
            let order = Permutation::new(n, 7, 3);
            let mut seen = vec![false; n as usize];
            (0..n).for_each(|i| seen[order.at(i) as usize] = true);
            assert!(seen.iter().all(|&s| s), "{n}");
        }
    }

    #[test]
    fn epochs_and_seeds_have_different_orders() {
        let order = |seed, epoch| {
            let permutation = Permutation::new(500, seed, epoch);
            (0..500).map(|i| permutation.at(i)).collect::<Vec<_>>()
        };
        let first = order(1, 0);
        for other in [order(1, 1), order(2, 0)] {
            let same = first.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 10, "{same} of 500 in the same place");
        }
    }

    /// Neighbours in the text must not stay neighbours: the distances between consecutive entries vary over
    /// the whole range (for a random order their mean is n / 3).
    #[test]
    fn neighbours_are_separated() {
        let n = 10_000;
        let order = Permutation::new(n, 11, 0);
        let total: u64 = (1..n).map(|i| order.at(i).abs_diff(order.at(i - 1))).sum();
        let mean = total as f64 / (n - 1) as f64 / n as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.01, "{mean}");
    }
}
