//! Rounds to bf16 and packs with vector instructions, 16 × 32 values at a time.

use std::arch::x86_64::*;

use super::super::Matrix;
use super::super::pack::{DEPTH, Side, Tile, each_tile};
use super::first;

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn pack(side: Side, from: Matrix<'_>, parts: usize, tiles: &mut [Tile]) {
    each_tile(from, parts, tiles, |from, part, tile| match part {
        0 => pack_tile::<false>(side, from, tile),
        _ => pack_tile::<true>(side, from, tile),
    });
}

/// Packs the high or the low part of at most 16 × 32 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_tile<const LOW: bool>(side: Side, from: Matrix<'_>, tile: &mut Tile) {
    let (packed, lies) = if from.column_stride == 1 {
        (along_lines::<LOW>(from), Side::Left)
    } else {
        (across_lines::<LOW>(from), Side::Right)
    };
    let packed = if lies == side { packed } else { transpose(packed) };
    for (to, packed) in tile.0.iter_mut().zip(packed) {
        // SAFETY: the array has the size of the register.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), packed) };
    }
}

/// How many values ahead of packing a line is prefetched.
const AHEAD: usize = 4 * DEPTH;

/// Packs the pairs of each line if the inner index is contiguous in memory.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn along_lines<const LOW: bool>(from: Matrix<'_>) -> [__m512i; 16] {
    let masks = [first(from.columns), first(from.columns.saturating_sub(16))];
    let mut packed = [_mm512_setzero_si512(); 16];
    for (line, packed) in packed.iter_mut().enumerate().take(from.rows) {
        let mut halves = [_mm512_setzero_ps(); 2];
        for (half, values) in halves.iter_mut().enumerate() {
            let at = from.values.as_ptr().wrapping_add(line * from.row_stride + half * 16);
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
            // SAFETY: the line belongs to the matrix, and the mask excludes values beyond its end.
            *values = part::<LOW>(unsafe { _mm512_maskz_loadu_ps(masks[half], at) });
        }
        let [low, high] = halves;
        *packed = bits(_mm512_cvtne2ps_pbh(high, low));
    }
    packed
}

/// Packs the lines' values of each pair if the lines are adjacent in memory.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn across_lines<const LOW: bool>(from: Matrix<'_>) -> [__m512i; 16] {
    // Alternates between the first 16 and the second 16 numbers.
    const INTERLEAVE: [u16; 32] = {
        let mut lanes = [0; 32];
        let mut lane = 0;
        while lane < 32 {
            lanes[lane] = (lane / 2 + lane % 2 * 16) as u16;
            lane += 1;
        }
        lanes
    };
    // SAFETY: the array has the size of the register.
    let interleave = unsafe { _mm512_loadu_si512(INTERLEAVE.as_ptr().cast()) };
    let mask = first(from.rows);
    let mut packed = [_mm512_setzero_si512(); 16];
    for (pair, packed) in packed.iter_mut().enumerate().take(from.columns.div_ceil(2)) {
        let mut lines = [_mm512_setzero_ps(); 2];
        for (which, values) in lines.iter_mut().enumerate() {
            let inner = 2 * pair + which;
            let mask = if inner < from.columns { mask } else { 0 };
            let at = from.values.as_ptr().wrapping_add(inner * from.column_stride);
            // One tile ahead: the processor's prefetcher doesn't follow so many lines at once.
            let next = at.wrapping_add(DEPTH * from.column_stride);
            _mm_prefetch::<_MM_HINT_T0>(next.cast());
            // SAFETY: the mask excludes values outside the matrix.
            *values = part::<LOW>(unsafe { _mm512_maskz_loadu_ps(mask, at) });
        }
        let [even, odd] = lines;
        let both = bits(_mm512_cvtne2ps_pbh(odd, even));
        *packed = _mm512_permutexvar_epi16(interleave, both);
    }
    packed
}

/// Returns the value to round: the value itself, or the rest that rounding removes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn part<const LOW: bool>(x: __m512) -> __m512 {
    if !LOW {
        return x;
    }
    let high = _mm512_cvtpbh_ps(_mm512_cvtneps_pbh(x));
    let rest = _mm512_sub_ps(x, high);
    // The high part holds all of infinity and NaN.
    let finite =
        _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(high), _mm512_set1_ps(f32::INFINITY));
    _mm512_maskz_mov_ps(finite, rest)
}

/// Returns the transpose.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
    // Exchanges elements, then pairs, then quarters of registers that are 1, 2, 4 and 8 rows apart.
    let mut by_two = rows;
    for i in (0..16).step_by(2) {
        by_two[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        by_two[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    let mut by_four = by_two;
    for i in (0..16).step_by(4) {
        for j in 0..2 {
            let (low, high) = (by_two[i + j], by_two[i + 2 + j]);
            by_four[i + 2 * j] = _mm512_unpacklo_epi64(low, high);
            by_four[i + 2 * j + 1] = _mm512_unpackhi_epi64(low, high);
        }
    }
    // Register 4i + j now holds column j of rows 4i..4i+4, then columns 4+j, 8+j and 12+j.
    let mut by_eight = by_four;
    for i in (0..16).step_by(8) {
        for j in 0..4 {
            let (low, high) = (by_four[i + j], by_four[i + 4 + j]);
            by_eight[i + j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low, high);
            by_eight[i + 4 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low, high);
        }
    }
    let mut all = by_eight;
    for j in 0..8 {
        let (low, high) = (by_eight[j], by_eight[8 + j]);
        all[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low, high);
        all[8 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low, high);
    }
    all
}

/// Reinterprets bits as integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn bits(pairs: __m512bh) -> __m512i {
    // SAFETY: both are 64 bytes of any value.
    unsafe { std::mem::transmute(pairs) }
}
