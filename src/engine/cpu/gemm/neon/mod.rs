//! bf16 on ARM64: products with `bfmmla`, which adds the products of two rows with two columns, four
//! numbers each, to 2 × 2 sums.
//!
//! Rust has no stable functions for the bf16 instructions, so they are written as assembly. They treat
//! subnormal numbers as zero.

mod packing;

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use super::blocked::{Block, Kernel, Packed, Step, multiply};
use super::pack::{LINES, Side, Tile};
use super::{Matrix, Output, Update};

/// Proof that the processor has bf16 instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neon(());

impl Neon {
    pub fn detect() -> Option<Self> {
        let has = is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("bf16");
        has.then_some(Self(()))
    }
}

impl Kernel for Neon {
    const ROW_PANELS: usize = 1;
    const COLUMN_PANELS: usize = 3;
    const STEP_DEPTH: usize = 24;
    const OWN_BYTES: usize = 384 << 10;
    const RIGHT_BYTES: usize = 384 << 10;

    type Session = ();

    /// Packs both operands alike: see [`packing`].
    fn pack(self, _: Side, from: Matrix<'_>, parts: usize, tiles: &mut [Tile]) {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { packing::pack(from, parts, tiles) };
    }

    fn start(self) -> Self::Session {}

    unsafe fn multiply(self, work: Packed<'_>) {
        // SAFETY: `self` proves that the processor has the instructions; the caller guarantees the
        // rest.
        unsafe { multiply_with_neon(self, work) };
    }

    #[inline(always)]
    unsafe fn step((): &mut (), step: Step<'_>) {
        // SAFETY: starting a session takes a proof that the processor has the instructions; the
        // caller guarantees the rest.
        unsafe {
            match step.columns.count() {
                1 => columns::<1, 4>(step),
                2 => columns::<2, 4>(step),
                _ => columns::<3, 6>(step),
            }
        }
    }
}

#[target_feature(enable = "neon,bf16")]
unsafe fn multiply_with_neon(kernel: Neon, work: Packed<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe { multiply(kernel, work) };
}

/// Pairs of lines in a panel.
const PAIRS: usize = LINES / 2;
/// Pairs of rows whose sums are in registers at a time.
const ROWS: usize = 4;

/// Multiplies a panel of rows with `C` panels of columns, of which `P` pairs of columns have their sums
/// in registers at a time.
#[target_feature(enable = "neon,bf16")]
unsafe fn columns<const C: usize, const P: usize>(step: Step<'_>) {
    let Step { rows, columns, depth, c, update } = step;
    let a = rows.panel(0, 0, depth.clone());
    // Loops over indices, here and below, instead of iterators and closures: functions of the standard
    // library are compiled without these instructions, so without full optimisation they are not inlined.
    let mut b: [&[Tile]; C] = [&[]; C];
    for (index, b) in b.iter_mut().enumerate() {
        *b = columns.panel(index, 0, depth.clone());
    }
    for top in (0..PAIRS).step_by(ROWS) {
        for left in (0..C * PAIRS).step_by(P) {
            let (row, column) = (2 * top, 2 * left);
            if row >= c.rows || column >= c.columns {
                continue;
            }
            let rows = row..c.rows.min(row + 2 * ROWS);
            let c = c.part(rows, column..c.columns.min(column + 2 * P));
            // SAFETY: guaranteed by the caller.
            unsafe { write(sums::<C, P>(a, top, b, left), c, update) };
        }
    }
}

/// Returns the products of four pairs of rows, from `top` of their panel, with `P` pairs of columns, from
/// `left` of the panels.
#[inline]
#[target_feature(enable = "neon,bf16")]
#[expect(clippy::needless_range_loop, reason = "see `columns`")]
fn sums<const C: usize, const P: usize>(
    a: &[Tile],
    top: usize,
    b: [&[Tile]; C],
    left: usize,
) -> [[float32x4_t; P]; ROWS] {
    let mut sums = [[vdupq_n_f32(0.0); P]; ROWS];
    for (at, a) in a.iter().enumerate() {
        let mut tiles = [&b[0][at]; P];
        for column in 0..P {
            tiles[column] = &b[(left + column) / PAIRS][at];
        }
        for four in 0..packing::FOURS {
            let mut rows = [vdupq_n_u32(0); ROWS];
            for row in 0..ROWS {
                rows[row] = packing::pair(a, four, top + row);
            }
            for column in 0..P {
                let right = packing::pair(tiles[column], four, (left + column) % PAIRS);
                for row in 0..ROWS {
                    sums[row][column] = add_products(sums[row][column], rows[row], right);
                }
            }
        }
    }
    sums
}

/// Adds the products of two rows with two columns of four bf16 numbers to their 2 × 2 sums.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn add_products(mut sums: float32x4_t, rows: uint32x4_t, columns: uint32x4_t) -> float32x4_t {
    // SAFETY: the processor has the instruction; it changes nothing but the register of sums.
    unsafe {
        asm!(
            ".arch_extension bf16",
            "bfmmla {sums:v}.4s, {rows:v}.8h, {columns:v}.8h",
            sums = inout(vreg) sums,
            rows = in(vreg) rows,
            columns = in(vreg) columns,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Writes sums to `c`, which may have fewer rows and columns.
///
/// # Safety
/// See [`Kernel::step`].
#[inline]
#[target_feature(enable = "neon,bf16")]
unsafe fn write<const P: usize>(sums: [[float32x4_t; P]; ROWS], c: Block, update: Update) {
    let factor = vdupq_n_f32(update.factor);
    for row in 0..c.rows {
        for column in (0..c.columns).step_by(4) {
            // Two pairs of columns side by side: each half of a register is a row of a pair.
            let pairs = &sums[row / 2];
            let left = vreinterpretq_f64_f32(pairs[column / 2]);
            let right = vreinterpretq_f64_f32(pairs[column / 2 + 1]);
            let both = if row % 2 == 0 { vzip1q_f64(left, right) } else { vzip2q_f64(left, right) };
            let sum = vreinterpretq_f32_f64(both);
            let at = c.at.wrapping_add(row * c.stride + column);
            if column + 4 <= c.columns {
                // SAFETY: the row and these four columns belong to the block.
                unsafe {
                    let new = match update.output {
                        Output::Overwrite => vmulq_f32(sum, factor),
                        Output::Accumulate => vfmaq_f32(vld1q_f32(at), sum, factor),
                    };
                    vst1q_f32(at, new);
                }
                continue;
            }
            let mut last = [0.0f32; 4];
            // SAFETY: the array has the size of the register.
            unsafe { vst1q_f32(last.as_mut_ptr(), sum) };
            for (lane, sum) in last.into_iter().enumerate().take(c.columns - column) {
                // SAFETY: the row and this column belong to the block.
                let to = unsafe { &mut *at.add(lane) };
                *to = match update.output {
                    Output::Overwrite => sum * update.factor,
                    Output::Accumulate => sum.mul_add(update.factor, *to),
                };
            }
        }
    }
}
