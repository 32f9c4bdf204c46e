//! Rounds to bf16 and packs with vector instructions.
//!
//! A tile is packed for `bfmmla`, which takes two lines of four numbers in a register: the pairs of lines
//! of the first four inner indices follow each other, then those of the next four. Both operands have
//! this layout.

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::Matrix;
use super::super::pack::{DEPTH, LINES, Tile, each_tile};

/// Fours of the inner index in a tile.
pub const FOURS: usize = DEPTH / 4;

/// Returns four numbers of two lines.
#[inline]
#[target_feature(enable = "neon")]
pub fn pair(tile: &Tile, four: usize, pair: usize) -> uint32x4_t {
    let words = &tile.0.as_flattened()[(four * LINES / 2 + pair) * 4..][..4];
    // SAFETY: the slice has the size of the register.
    unsafe { vld1q_u32(words.as_ptr()) }
}

/// Packs the rows of `from`, which are rounded once: `parts` is 1.
#[target_feature(enable = "neon,bf16")]
pub fn pack(from: Matrix<'_>, parts: usize, tiles: &mut [Tile]) {
    assert_eq!(parts, 1, "parts of a number packed by NEON");
    each_tile(from, parts, tiles, |from, _, tile| {
        let whole = from.rows == LINES && from.columns == DEPTH;
        match (whole, from.column_stride == 1) {
            (true, true) => along_lines(from, tile),
            (true, false) => across_lines(from, tile),
            (false, _) => edge(from, tile),
        }
    });
}

/// Packs a whole tile whose inner index is contiguous in memory.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn along_lines(from: Matrix<'_>, tile: &mut Tile) {
    let words = tile.0.as_flattened_mut();
    for line in 0..LINES {
        let values = &from.values[line * from.row_stride..][..DEPTH];
        for four in 0..FOURS {
            let to = &mut words[four * 2 * LINES + 2 * line..][..2];
            // SAFETY: four values of the line are read, and two words, four bf16 numbers, are written.
            unsafe {
                let rounded = round(vld1q_f32(values[4 * four..][..4].as_ptr()));
                vst1_u16(to.as_mut_ptr().cast(), rounded);
            }
        }
    }
}

/// Packs a whole tile whose lines are adjacent in memory.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn across_lines(from: Matrix<'_>, tile: &mut Tile) {
    let words = tile.0.as_flattened_mut();
    for four in 0..FOURS {
        for lines in 0..LINES / 4 {
            // Each register has an inner index of four lines.
            let mut numbers = [vdup_n_u16(0); 4];
            for (inner, numbers) in numbers.iter_mut().enumerate() {
                let first = (4 * four + inner) * from.column_stride + 4 * lines;
                // SAFETY: the slice has the size of the register.
                *numbers = round(unsafe { vld1q_f32(from.values[first..][..4].as_ptr()) });
            }
            let [first, second, third, fourth] = numbers;
            // Pairs of the inner index, line by line; then both pairs of a line side by side.
            let low = zipped(first, second);
            let high = zipped(third, fourth);
            let to = &mut words[four * 2 * LINES + 8 * lines..][..8];
            // SAFETY: the slice has the size of both registers.
            unsafe {
                vst1q_u32(to.as_mut_ptr(), vzip1q_u32(low, high));
                vst1q_u32(to[4..].as_mut_ptr(), vzip2q_u32(low, high));
            }
        }
    }
}

/// Alternates between the numbers of both registers.
#[inline]
#[target_feature(enable = "neon")]
fn zipped(first: uint16x4_t, second: uint16x4_t) -> uint32x4_t {
    let both = vcombine_u16(vzip1_u16(first, second), vzip2_u16(first, second));
    vreinterpretq_u32_u16(both)
}

/// Packs a tile at the matrix's edge: first its values, padded with zeros, to a whole one.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn edge(from: Matrix<'_>, tile: &mut Tile) {
    let mut values = [0.0; LINES * DEPTH];
    for line in 0..from.rows {
        for inner in 0..from.columns {
            values[line * DEPTH + inner] =
                from.values[line * from.row_stride + inner * from.column_stride];
        }
    }
    along_lines(Matrix::new(&values, LINES, DEPTH), tile);
}

/// Rounds to bf16; subnormal numbers become zero when they are multiplied.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn round(values: float32x4_t) -> uint16x4_t {
    let rounded: uint16x4_t;
    // SAFETY: the processor has the instruction; it changes nothing but its result.
    unsafe {
        asm!(
            ".arch_extension bf16",
            "bfcvtn {to:v}.4h, {from:v}.4s",
            to = lateout(vreg) rounded,
            from = in(vreg) values,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    rounded
}
