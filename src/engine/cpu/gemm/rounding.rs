//! Rounding to bf16 without bf16 instructions, and products on a processor without them: correct,
//! but slower than f32.

use rayon::prelude::*;

use super::scratch::{self, Buffer};
use super::{Matrix, Product, Threads, sgemm};

thread_local! {
    static LEFT: Buffer<f32> = const { Buffer::new(Vec::new()) };
    static RIGHT: Buffer<f32> = const { Buffer::new(Vec::new()) };
}

/// Returns the nearest bf16 number, ties to even, as f32. NaN stays NaN; subnormal numbers become
/// zero of their sign, as in the processors' instructions.
#[inline(always)]
pub fn round(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = match bits & 0x7fff_ffff {
        0..0x0080_0000 => bits & 0x8000_0000,
        0x7f80_0001.. => bits | 0x0040_0000,
        _ => bits + 0x7fff + (bits >> 16 & 1),
    };
    f32::from_bits(rounded & 0xffff_0000)
}

/// Computes `work` with rounded operands.
pub fn product(work: Product<'_>, threads: Threads) {
    let Product { c, update, a, b } = work;
    let (left, right) = (Lines::of(a), Lines::of(b));
    scratch::with(&LEFT, left.len(), |rounded_a| {
        scratch::with(&RIGHT, right.len(), |rounded_b| {
            let work = Product {
                c,
                update,
                a: left.round(rounded_a, threads),
                b: right.round(rounded_b, threads),
            };
            sgemm::product(work, threads);
        });
    });
}

/// A matrix as contiguous lines: its rows or its columns.
struct Lines<'a> {
    rows: Matrix<'a>,
    are_columns: bool,
}

impl<'a> Lines<'a> {
    fn of(matrix: Matrix<'a>) -> Self {
        let are_columns = matrix.column_stride != 1;
        let rows = if are_columns { matrix.t() } else { matrix };
        Self { rows, are_columns }
    }

    fn len(&self) -> usize {
        self.rows.rows * self.rows.columns
    }

    /// Writes the rounded matrix to `into`.
    fn round<'b>(&self, into: &'b mut [f32], threads: Threads) -> Matrix<'b> {
        let Matrix { values, rows, columns, row_stride, .. } = self.rows;
        if self.len() > 0 {
            let line = |(row, into): (usize, &mut [f32])| {
                let values = &values[row * row_stride..][..columns];
                for (to, &from) in into.iter_mut().zip(values) {
                    *to = round(from);
                }
            };
            match threads {
                Threads::One => into.chunks_mut(columns).enumerate().for_each(line),
                Threads::All => into.par_chunks_mut(columns).enumerate().for_each(line),
            }
        }
        let rounded = Matrix::new(into, rows, columns);
        if self.are_columns { rounded.t() } else { rounded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even_and_keeps_nan_and_infinity() {
        for (from, to) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (1.0 + 1.01 / 256.0, 1.0 + 2.0 / 256.0),
            (-1.0 - 1.01 / 256.0, -1.0 - 2.0 / 256.0),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
            (f32::MIN_POSITIVE, f32::MIN_POSITIVE),
            (-f32::MIN_POSITIVE / 2.0, -0.0),
        ] {
            assert_eq!(round(from).to_bits(), to.to_bits(), "{from}");
        }
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001] {
            assert!(round(f32::from_bits(bits)).is_nan());
        }
    }
}
