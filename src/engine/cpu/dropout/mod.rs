//! Dropout without stored masks: forward and backward draw the same random numbers.
//!
//! The numbers are those of [`crate::model::Dropout`], so that this engine drops the same values as
//! the reference.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::data::Packed;
use crate::engine::simd::{LANES, Simd};
use crate::model::{Dropout, threshold};
use crate::random::{Site, Stream};

/// The example and position of each row of a batch.
#[derive(Debug, Default)]
pub struct Rows {
    examples: Vec<u64>,
    positions: Vec<u32>,
}

impl Rows {
    /// Sets the rows to those of a batch, reusing the memory.
    pub fn set(&mut self, batch: &Packed) {
        self.positions.clone_from(&batch.positions);
        self.examples.clear();
        for (range, &example) in batch.ranges().zip(&batch.examples) {
            self.examples.extend(range.map(|_| example));
        }
    }

    /// Sets the rows to some of those of `all`.
    pub fn pick(&mut self, all: &Self, indices: &[u32]) {
        self.examples.clear();
        self.examples.extend(indices.iter().map(|&row| all.examples[row as usize]));
        self.positions.clear();
        self.positions.extend(indices.iter().map(|&row| all.positions[row as usize]));
    }
}

/// The dropout of one site in one step.
#[derive(Debug, Clone, Copy)]
pub struct Mask {
    dropout: Dropout,
    site: Site,
    threshold: u32,
    /// Factor of a kept value: 1 / (1 - p).
    scale: f32,
}

impl Mask {
    /// Returns None if nothing is dropped.
    pub fn new(dropout: Option<Dropout>, site: Site, p: f64) -> Option<Self> {
        let dropout = dropout?;
        (p > 0.0).then(|| Self {
            dropout,
            site,
            threshold: threshold(p),
            scale: (1.0 / (1.0 - p)) as f32,
        })
    }

    /// Drops values of row `row` of the batch, which is `values.len()` wide.
    #[inline(always)]
    pub fn apply_to_row(&self, simd: Simd, rows: &Rows, row: usize, values: &mut [f32]) {
        let offset = rows.positions[row] * values.len() as u32;
        self.apply(simd, rows.examples[row], offset, values);
    }

    /// Drops values: element `offset + i` of the example's stream decides whether `values[i]` is
    /// kept.
    #[inline(always)]
    pub fn apply(&self, simd: Simd, example: u64, offset: u32, values: &mut [f32]) {
        let stream = self.stream(example);
        let mut done = 0;
        while done < values.len() {
            let element = offset as usize + done;
            let bits = self.kept_bits(simd, &stream, (element / 64) as u32) >> (element % 64);
            let n = (64 - element % 64).min(values.len() - done);
            let (whole, rest) = values[done..done + n].as_chunks_mut::<LANES>();
            let parts = whole.len();
            for (part, values) in whole.iter_mut().enumerate() {
                for (value, factor) in values.iter_mut().zip(&self.factors(bits, part)) {
                    *value *= factor;
                }
            }
            if !rest.is_empty() {
                for (value, factor) in rest.iter_mut().zip(&self.factors(bits, parts)) {
                    *value *= factor;
                }
            }
            done += n;
        }
    }

    /// Returns the example's random stream.
    #[inline(always)]
    pub fn stream(&self, example: u64) -> Stream {
        Stream::new(self.dropout.seed, self.dropout.step, self.site, example)
    }

    /// Returns whether elements `64 · group` to `64 · group + 63` are kept: bit i for the i-th.
    #[inline(always)]
    pub fn kept_bits(&self, simd: Simd, stream: &Stream, group: u32) -> u64 {
        match simd.arch() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: pulp's V4 exists only where the processor has AVX-512F and BMI2.
            pulp::Arch::V4(_) => unsafe { x86::kept_512(stream, group, self.threshold) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: pulp's V3 exists only where the processor has AVX2 and BMI2.
            pulp::Arch::V3(_) => unsafe { x86::kept_256(stream, group, self.threshold) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: pulp's Neon exists only where the processor has NEON.
            pulp::Arch::Neon(_) => unsafe { neon::kept(stream, group, self.threshold) },
            _ => {
                let draws = stream.group(group).into_iter().enumerate();
                draws.fold(0, |bits, (i, draw)| bits | u64::from(draw >= self.threshold) << i)
            }
        }
    }

    /// Returns the factors of 16 values, the `part`-th sixteen of `bits`.
    #[inline(always)]
    pub fn factors(&self, bits: u64, part: usize) -> [f32; LANES] {
        let bits = (bits >> (LANES * part)) as u32;
        let mut factors = [0.0; LANES];
        for (lane, factor) in factors.iter_mut().enumerate() {
            if bits & (1 << lane) != 0 {
                *factor = self.scale;
            }
        }
        factors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_keeps_the_same_values() {
        let dropout = Dropout { seed: 0x1234_5678_9ABC_DEF0, step: 77 };
        // Miri takes more than an hour for all of them.
        let (ps, lengths): (&[f64], &[usize]) = match cfg!(miri) {
            true => (&[0.5], &[1, 17, 33]),
            false => (&[0.1, 0.5, 0.9], &[1, 15, 17, 31, 33, 127, 300]),
        };
        for &p in ps {
            let mask = Mask::new(Some(dropout), Site::AttentionDropout(3), p).unwrap();
            for (name, simd) in Simd::all() {
                for (example, offset) in [(0, 0), (5, 1), (1 << 33, 63), (9, 4096), (2, 12345)] {
                    for &n in lengths {
                        let mut values = vec![2.0; n];
                        simd.run(
                            #[inline(always)]
                            || mask.apply(simd, example, offset, &mut values),
                        );
                        let stream = mask.stream(example);
                        for (i, &value) in values.iter().enumerate() {
                            let kept = stream.bits(offset + i as u32) >= threshold(p);
                            let expected = if kept { 2.0 * mask.scale } else { 0.0 };
                            assert_eq!(value, expected, "{name} {p} {offset} {i} of {n}");
                        }
                    }
                }
            }
        }
    }
}
