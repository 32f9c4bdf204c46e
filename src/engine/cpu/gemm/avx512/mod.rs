//! bf16 on AVX-512: products with `vdpbf16ps`.
//!
//! The instructions treat subnormal numbers as zero.

mod packing;

use std::arch::x86_64::*;

use super::blocked::{Block, Kernel, Packed, Step, multiply};
use super::pack::{LINES, Side, Tile};
use super::{Matrix, Output, Update};

/// Proof that the processor has AVX512-BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(());

impl Avx512 {
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16");
        has.then_some(Self(()))
    }
}

impl Kernel for Avx512 {
    const ROW_PANELS: usize = 1;
    const COLUMN_PANELS: usize = 3;
    const STEP_DEPTH: usize = 24;
    const OWN_BYTES: usize = 384 << 10;
    const RIGHT_BYTES: usize = 384 << 10;

    type Session = ();

    fn pack(self, side: Side, from: Matrix<'_>, parts: usize, tiles: &mut [Tile]) {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { packing::pack(side, from, parts, tiles) };
    }

    fn start(self) -> Self::Session {}

    unsafe fn multiply(self, work: Packed<'_>) {
        // SAFETY: `self` proves that the processor has the instructions; the caller guarantees the
        // rest.
        unsafe { multiply_with_avx512(self, work) };
    }

    #[inline(always)]
    unsafe fn step((): &mut (), step: Step<'_>) {
        // SAFETY: starting a session takes a proof that the processor has the instructions; the
        // caller guarantees the rest.
        unsafe {
            match step.columns.count() {
                1 => columns::<1>(step),
                2 => columns::<2>(step),
                _ => columns::<3>(step),
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn multiply_with_avx512(kernel: Avx512, work: Packed<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe { multiply(kernel, work) };
}

/// Rows whose sums are in registers at a time: 8 × 3 vectors of sums, 3 of the right operand.
const ROWS: usize = 8;

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn columns<const C: usize>(step: Step<'_>) {
    let Step { rows, columns, depth, c, update } = step;
    let a = rows.panel(0, 0, depth.clone());
    // Loops over indices, here and below, instead of iterators and closures: functions of the standard
    // library are compiled without these instructions, so without full optimisation they are not inlined, and
    // a debug build multiplied eight times slower.
    let mut b: [&[Tile]; C] = [&[]; C];
    for (index, b) in b.iter_mut().enumerate() {
        *b = columns.panel(index, 0, depth.clone());
    }
    for first in (0..c.rows).step_by(ROWS) {
        let c = c.part(first..c.rows.min(first + ROWS), 0..c.columns);
        fetch(c);
        // SAFETY: guaranteed by the caller.
        unsafe { write(sums(a, first, b), c, update) };
    }
}

/// Prefetches a part of C, which is needed after some thousand cycles of multiplying.
#[inline(always)]
pub fn fetch(c: Block) {
    for row in 0..c.rows {
        for column in (0..c.columns).step_by(LINES) {
            let at = c.at.wrapping_add(row * c.stride + column);
            // SAFETY: every x86-64 processor has the instruction, which may take any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
    }
}

/// Returns the products of eight rows of a panel with `C` panels of columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[expect(clippy::needless_range_loop, reason = "see `columns`")]
fn sums<const C: usize>(a: &[Tile], first: usize, b: [&[Tile]; C]) -> [[__m512; C]; ROWS] {
    let mut sums = [[_mm512_setzero_ps(); C]; ROWS];
    for (at, a) in a.iter().enumerate() {
        let mut tiles = [&b[0][at]; C];
        for column in 0..C {
            tiles[column] = &b[column][at];
        }
        for pair in 0..16 {
            let mut b = [bf16(_mm512_setzero_si512()); C];
            for column in 0..C {
                b[column] = bf16(load(&tiles[column].0[pair]));
            }
            for row in 0..ROWS {
                let a = bf16(_mm512_set1_epi32(a.0[first + row][pair] as i32));
                for column in 0..C {
                    sums[row][column] = _mm512_dpbf16_ps(sums[row][column], a, b[column]);
                }
            }
        }
    }
    sums
}

/// Stores sums in `c`, which may have fewer rows and columns.
///
/// # Safety
/// See [`Kernel::step`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[expect(clippy::needless_range_loop, reason = "see `columns`")]
unsafe fn write<const C: usize>(sums: [[__m512; C]; ROWS], c: Block, update: Update) {
    let factor = _mm512_set1_ps(update.factor);
    for row in 0..ROWS.min(c.rows) {
        for column in 0..C {
            let mask = first(c.columns.saturating_sub(column * LINES));
            let sum = sums[row][column];
            // SAFETY: the row belongs to the block, and the mask excludes columns beyond the block.
            unsafe {
                let at = c.at.add(row * c.stride + column * LINES);
                let new = match update.output {
                    Output::Overwrite => _mm512_mul_ps(sum, factor),
                    Output::Accumulate => {
                        _mm512_fmadd_ps(sum, factor, _mm512_maskz_loadu_ps(mask, at))
                    }
                };
                _mm512_mask_storeu_ps(at, mask, new);
            }
        }
    }
}

/// Returns the mask of the first `n` of 16 lanes; all if `n` is larger.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    if n >= 16 { !0 } else { (1 << n) - 1 }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(pairs: &[u32; 16]) -> __m512i {
    // SAFETY: the array has the size of the register.
    unsafe { _mm512_loadu_si512(pairs.as_ptr().cast()) }
}

/// Reinterprets bits as pairs of bf16 numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn bf16(bits: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes of any value.
    unsafe { std::mem::transmute(bits) }
}
