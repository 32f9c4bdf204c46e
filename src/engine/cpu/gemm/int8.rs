//! Products with weights of 8 bits, for inference.
//!
//! A weight is rounded once, with a scale for each output. Rows of activations are rounded to 0..=255 when they are
//! multiplied, each with a scale and a zero of its own (dynamic quantisation, as in Jacob et al., "Quantization and
//! training of neural networks for efficient integer-arithmetic-only inference", arXiv 1712.05877, but by channel and by
//! row). The sums of their products are exact in 32 bits.
//!
//! `vpmaddubsw` of AVX2 multiplies 32 numbers of 8 bits, but adds pairs of products in 16 bits. They do not overflow
//! because weights are rounded to -64..=64: a bit less than they could have. `vpdpbusd` of AVX512-VNNI multiplies 64
//! numbers and adds the products in 32 bits. So does `sdot` of ARM64, but both its numbers have a sign: it takes
//! activations less 128, and 128 times the sums of the weights are added.

use std::cell::Cell;

use rayon::prelude::*;

use super::PackedWeight;
use super::scratch::{self, Buffer};
use crate::engine::simd::Simd;

/// Outputs of a panel: two vectors of sums, with AVX-512 one.
const COLUMNS: usize = 16;
/// Rows whose sums are in registers at a time: ten vectors, and five others.
const ROWS: usize = 5;
/// The same with AVX-512, and the panels that are multiplied at a time: 24 vectors, and five others.
const WIDE_ROWS: usize = 6;
const PANELS: usize = 4;
/// Inputs that are multiplied together.
const QUAD: usize = 4;
/// The largest rounded weight: 2 · 64 · 255 fits in 16 bits.
const WEIGHT: f32 = 64.0;
/// Steps between the smallest and the largest rounded activation; one less than there are, as both ends are rounded.
const STEPS: f32 = 254.0;
/// Bytes of the rounded rows that a thread multiplies with one panel after another: half of a second-level cache.
const ROWS_BYTES: usize = 256 << 10;
/// Values in a smaller range count as zero: the inverse of their scale would not be finite.
const NOTHING: f32 = 1e-30;
/// Adding this moves the nearest integer to the lowest bits of the sum.
const NEAREST: f32 = 1.5 * (1 << 23) as f32;

/// Rounded rows of activations.
type Rows<'a> = [&'a [[u8; QUAD]]; ROWS];
/// A quad of inputs of each output of a panel.
type Quads = [[i8; QUAD]; COLUMNS];
/// Sums of products.
type Sums = [[i32; COLUMNS]; ROWS];

thread_local! {
    /// The rounded rows of a block.
    static ROUNDED: Buffer<[u8; QUAD]> = const { Cell::new(Vec::new()) };
    /// How those are read.
    static SCALES: Buffer<Scale> = const { Cell::new(Vec::new()) };
}

/// What undoes the rounding of a row: `x = factor · (rounded - zero)`.
#[derive(Clone, Copy, Default)]
struct Scale {
    factor: f32,
    zero: i32,
}

/// The weight of a linear layer, rounded to 8 bits.
#[derive(Debug)]
pub struct Weight {
    simd: Simd,
    /// Whether the processor has AVX512-VNNI, and may use it.
    wide: bool,
    /// Panel by panel, of each its quads of inputs in their order; padded with zeros to a multiple of [`PANELS`].
    quads: Vec<Quads>,
    /// What a rounded weight is multiplied by, one for each output; padded with zeros.
    factors: Vec<f32>,
    /// The sum of an output's rounded weights; padded with zeros.
    totals: Vec<i32>,
    inputs: usize,
    outputs: usize,
}

impl Weight {
    /// Rounds a weight, (outputs, inputs).
    pub fn new(simd: Simd, values: &[f32], inputs: usize) -> Self {
        let outputs = values.len() / inputs;
        let panels = outputs.div_ceil(COLUMNS).next_multiple_of(PANELS);
        let depth = inputs.div_ceil(QUAD);
        let mut quads = vec![[[0; QUAD]; COLUMNS]; panels * depth];
        let mut factors = vec![0.0; panels * COLUMNS];
        let mut totals = vec![0; panels * COLUMNS];
        let mut rounded = vec![0; inputs];
        for (output, weights) in values.chunks_exact(inputs).enumerate() {
            let largest = weights.iter().fold(0.0, |largest: f32, w| largest.max(w.abs()));
            let inverse = if largest < NOTHING { 0.0 } else { WEIGHT / largest };
            // If a weight is not finite, no output is.
            let sum: f32 = weights.iter().sum();
            factors[output] = if sum.is_finite() { largest / WEIGHT } else { f32::NAN };
            let panel = &mut quads[output / COLUMNS * depth..][..depth];
            // Before they are distributed, in a loop that needs no other instructions.
            for (rounded, weight) in rounded.iter_mut().zip(weights) {
                *rounded = (weight * inverse + NEAREST).to_bits() as i8;
            }
            for (input, &rounded) in rounded.iter().enumerate() {
                panel[input / QUAD][output % COLUMNS][input % QUAD] = rounded;
                totals[output] += i32::from(rounded);
            }
        }
        Self { simd, wide: has_vnni(simd), quads, factors, totals, inputs, outputs }
    }

    /// Returns the number of quads of inputs.
    fn depth(&self) -> usize {
        self.inputs.div_ceil(QUAD)
    }

    fn multiply_block(&self, x: &[f32], y: &mut [f32]) {
        let (rows, depth) = (x.len() / self.inputs, self.depth());
        scratch::with(&ROUNDED, rows * depth, |rounded| {
            scratch::with(&SCALES, rows, |scales| {
                self.simd.run(
                    #[inline(always)]
                    || {
                        let lines =
                            x.chunks_exact(self.inputs).zip(rounded.chunks_exact_mut(depth));
                        for ((line, rounded), scale) in lines.zip(&mut *scales) {
                            *scale = round(line, rounded);
                        }
                        #[cfg(target_arch = "x86_64")]
                        if self.wide {
                            // SAFETY: the processor has the instructions.
                            return unsafe { self.multiply_vnni(rounded, scales, y) };
                        }
                        #[cfg(target_arch = "x86_64")]
                        if let pulp::Arch::V3(_) | pulp::Arch::V4(_) = self.simd.arch() {
                            // SAFETY: both instruction sets include AVX2.
                            return unsafe { self.multiply_avx2(rounded, scales, y) };
                        }
                        #[cfg(target_arch = "aarch64")]
                        if let pulp::Arch::Neon(_) = self.simd.arch()
                            && std::arch::is_aarch64_feature_detected!("dotprod")
                        {
                            // SAFETY: pulp's Neon exists only where the processor has NEON, and `sdot` was found.
                            return unsafe { self.multiply_neon(rounded, scales, y) };
                        }
                        self.multiply_rounded(rounded, scales, y, |rows, panel, _| {
                            sums(rows, panel)
                        });
                    },
                );
            });
        });
    }

    /// The outputs are computed in this function too: in its caller the compiler made their loop scalar.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn multiply_avx2(&self, rounded: &[[u8; QUAD]], scales: &[Scale], y: &mut [f32]) {
        self.multiply_rounded(rounded, scales, y, |rows, panel, _| sums_avx2(rows, panel));
    }

    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "neon,dotprod")]
    fn multiply_neon(&self, rounded: &[[u8; QUAD]], scales: &[Scale], y: &mut [f32]) {
        self.multiply_rounded(rounded, scales, y, |rows, panel, totals| {
            sums_neon(rows, panel, totals)
        });
    }

    /// `sums` returns the products of some rows with the columns of a panel, as [`sums`] does; it also gets the sums of
    /// the columns.
    #[inline(always)]
    fn multiply_rounded(
        &self,
        rounded: &[[u8; QUAD]],
        scales: &[Scale],
        y: &mut [f32],
        sums: impl Fn(Rows<'_>, &[Quads], &[i32]) -> Sums,
    ) {
        let (rows, depth) = (scales.len(), self.depth());
        let panels = self.quads.chunks_exact(depth).take(self.outputs.div_ceil(COLUMNS));
        for (panel, weights) in panels.enumerate() {
            let outputs = panel * COLUMNS..self.outputs.min((panel + 1) * COLUMNS);
            let factors = &self.factors[panel * COLUMNS..][..COLUMNS];
            let totals = &self.totals[panel * COLUMNS..][..COLUMNS];
            for first in (0..rows).step_by(ROWS) {
                let mut lines = [&rounded[..0]; ROWS];
                for (index, line) in lines.iter_mut().enumerate() {
                    // Rows beyond the last one are computed and dropped.
                    let row = (first + index).min(rows - 1);
                    *line = &rounded[row * depth..][..depth];
                }
                let sums = sums(lines, weights, totals);
                for (row, sums) in (first..rows.min(first + ROWS)).zip(&sums) {
                    let Scale { factor, zero } = scales[row];
                    let mut values = [0.0; COLUMNS];
                    // Iterators: with indices the compiler checks each, and the loop stays scalar.
                    let of_outputs = sums.iter().zip(totals).zip(factors);
                    for (value, ((sum, total), of_output)) in values.iter_mut().zip(of_outputs) {
                        *value = (sum - zero * total) as f32 * (factor * of_output);
                    }
                    let y = &mut y[row * self.outputs..][outputs.clone()];
                    y.copy_from_slice(&values[..y.len()]);
                }
            }
        }
    }

    /// Like [`multiply_rounded`](Self::multiply_rounded). The sums of several panels stay in registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn multiply_vnni(&self, rounded: &[[u8; QUAD]], scales: &[Scale], y: &mut [f32]) {
        use std::arch::x86_64::*;

        let (rows, depth) = (scales.len(), self.depth());
        for (group, weights) in self.quads.chunks_exact(PANELS * depth).enumerate() {
            let mut panels = [&weights[..0]; PANELS];
            for (panel, weights) in panels.iter_mut().zip(weights.chunks_exact(depth)) {
                *panel = weights;
            }
            for first in (0..rows).step_by(WIDE_ROWS) {
                let mut lines = [&rounded[..0]; WIDE_ROWS];
                for (index, line) in lines.iter_mut().enumerate() {
                    // Rows beyond the last one are computed and dropped.
                    let row = (first + index).min(rows - 1);
                    *line = &rounded[row * depth..][..depth];
                }
                let mut sums = [[_mm512_setzero_si512(); PANELS]; WIDE_ROWS];
                for at in 0..depth {
                    let mut weights = [_mm512_setzero_si512(); PANELS];
                    for (weights, panel) in weights.iter_mut().zip(panels) {
                        // SAFETY: the weights of a panel's quad have the size of a vector.
                        *weights = unsafe { _mm512_loadu_si512(panel[at].as_ptr().cast()) };
                    }
                    for (sums, line) in sums.iter_mut().zip(lines) {
                        let quad = _mm512_set1_epi32(i32::from_ne_bytes(line[at]));
                        for (sums, weights) in sums.iter_mut().zip(weights) {
                            *sums = _mm512_dpbusd_epi32(*sums, quad, weights);
                        }
                    }
                }
                for panel in 0..PANELS {
                    let left = (group * PANELS + panel) * COLUMNS;
                    if left >= self.outputs {
                        break;
                    }
                    let columns = COLUMNS.min(self.outputs - left);
                    let (totals, factors) =
                        (&self.totals[left..][..COLUMNS], &self.factors[left..][..COLUMNS]);
                    // SAFETY: both have the size of a vector.
                    let (totals, factors) = unsafe {
                        (
                            _mm512_loadu_si512(totals.as_ptr().cast()),
                            _mm512_loadu_ps(factors.as_ptr()),
                        )
                    };
                    let mask = ((1u32 << columns) - 1) as u16;
                    for index in 0..WIDE_ROWS.min(rows - first) {
                        let (row, Scale { factor, zero }) = (first + index, scales[first + index]);
                        let shift = _mm512_mullo_epi32(_mm512_set1_epi32(zero), totals);
                        let sums = _mm512_sub_epi32(sums[index][panel], shift);
                        let factors = _mm512_mul_ps(_mm512_set1_ps(factor), factors);
                        let values = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), factors);
                        let y = &mut y[row * self.outputs + left..][..columns];
                        // SAFETY: as many numbers are written as `y` has.
                        unsafe { _mm512_mask_storeu_ps(y.as_mut_ptr(), mask, values) };
                    }
                }
            }
        }
    }
}

impl PackedWeight for Weight {
    fn multiply(&self, x: &[f32], y: &mut [f32]) {
        let rows = x.len() / self.inputs;
        let fit = ROWS_BYTES / (QUAD * self.depth());
        let share = rows.div_ceil(rayon::current_num_threads());
        let together = if self.wide { WIDE_ROWS } else { ROWS };
        let block = fit.min(share).max(1).next_multiple_of(together);
        let blocks = x.par_chunks(block * self.inputs).zip(y.par_chunks_mut(block * self.outputs));
        blocks.for_each(|(x, y)| self.multiply_block(x, y));
    }
}

fn has_vnni(simd: Simd) -> bool {
    #[cfg(target_arch = "x86_64")]
    let found = is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    let found = false;
    found && simd.is_avx512()
}

/// Rounds a row. If a value is not finite, its scale is NaN.
#[inline(always)]
fn round(values: &[f32], rounded: &mut [[u8; QUAD]]) -> Scale {
    // The least and the largest value, by integers in the order of the numbers: NaN comes before or after all others.
    let ordered = |bits: i32| bits ^ ((bits >> 31) as u32 >> 1) as i32;
    let (low, high) = values.iter().fold((0, 0), |(low, high): (i32, i32), x| {
        let x = ordered(x.to_bits() as i32);
        (low.min(x), high.max(x))
    });
    let number = |ordinal| f32::from_bits(ordered(ordinal) as u32);
    let (low, range) = (number(low), number(high) - number(low));
    if !range.is_finite() || range < NOTHING {
        rounded.fill([0; QUAD]);
        return Scale { factor: if range < NOTHING { 0.0 } else { f32::NAN }, zero: 0 };
    }
    let inverse = STEPS / range;
    let zero = (-low * inverse).round_ties_even();
    let nearest = |x: f32| (x * inverse + (NEAREST + zero)).to_bits() as u8;
    let (quads, rest) = values.as_chunks::<QUAD>();
    for (rounded, &[a, b, c, d]) in rounded.iter_mut().zip(quads) {
        *rounded = [nearest(a), nearest(b), nearest(c), nearest(d)];
    }
    if let Some(last) = rounded.get_mut(quads.len()) {
        *last = [0; QUAD];
        for (rounded, &x) in last.iter_mut().zip(rest) {
            *rounded = nearest(x);
        }
    }
    Scale { factor: range / STEPS, zero: zero as i32 }
}

/// Returns the products of some rows with the columns of a panel; all have the same number of quads.
#[inline(always)]
fn sums(rows: Rows<'_>, panel: &[Quads]) -> Sums {
    let mut sums = [[0; COLUMNS]; ROWS];
    for (at, line) in panel.iter().enumerate() {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                for input in 0..QUAD {
                    let (x, weight) = (rows[row][at][input], line[column][input]);
                    sums[row][column] += i32::from(x) * i32::from(weight);
                }
            }
        }
    }
    sums
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn sums_avx2(rows: Rows<'_>, panel: &[Quads]) -> Sums {
    use std::arch::x86_64::*;

    let depth = panel.len();
    for row in rows {
        assert_eq!(row.len(), depth);
    }
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
    for at in 0..depth {
        let line = panel[at].as_ptr().cast::<__m256i>();
        // SAFETY: a line has the size of two vectors.
        let weights = unsafe { [_mm256_loadu_si256(line), _mm256_loadu_si256(line.add(1))] };
        for row in 0..ROWS {
            let quad = _mm256_set1_epi32(i32::from_ne_bytes(rows[row][at]));
            for half in 0..2 {
                let pairs = _mm256_maddubs_epi16(quad, weights[half]);
                let quads = _mm256_madd_epi16(pairs, ones);
                sums[row][half] = _mm256_add_epi32(sums[row][half], quads);
            }
        }
    }
    // SAFETY: both have the same size, and any bits are values.
    unsafe { std::mem::transmute(sums) }
}

#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sums_neon(rows: Rows<'_>, panel: &[Quads], totals: &[i32]) -> Sums {
    use std::arch::aarch64::*;
    use std::arch::asm;

    const VECTORS: usize = COLUMNS / 4;
    let depth = panel.len();
    for row in rows {
        assert_eq!(row.len(), depth);
    }
    // 128 times the sums of the columns: what the products lack because the activations are less 128.
    let mut start = [vdupq_n_s32(0); VECTORS];
    for (start, totals) in start.iter_mut().zip(totals.as_chunks::<4>().0) {
        // SAFETY: four sums fill a vector.
        *start = vshlq_n_s32::<7>(unsafe { vld1q_s32(totals.as_ptr()) });
    }
    let mut sums = [start; ROWS];
    for at in 0..depth {
        let mut weights = [vdupq_n_s8(0); VECTORS];
        for (part, weights) in weights.iter_mut().enumerate() {
            // SAFETY: a line has the size of four vectors.
            *weights = unsafe { vld1q_s8(panel[at].as_ptr().cast::<i8>().add(16 * part)) };
        }
        for row in 0..ROWS {
            // A byte with its highest bit flipped is 128 less, read as a signed number.
            let quad = vdupq_n_u32(u32::from_ne_bytes(rows[row][at]) ^ 0x8080_8080);
            for part in 0..VECTORS {
                // SAFETY: the instruction, for which Rust has no stable function, only changes the sums.
                unsafe {
                    asm!(
                        "sdot {sums:v}.4s, {weights:v}.16b, {quad:v}.16b",
                        sums = inout(vreg) sums[row][part],
                        weights = in(vreg) weights[part],
                        quad = in(vreg) quad,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
            }
        }
    }
    // SAFETY: both have the same size, and any bits are values.
    unsafe { std::mem::transmute(sums) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 0.7).sin() * (1.0 + (i % 5) as f32)).collect()
    }

    /// Returns the product of rounded factors by its definition, and the sum of the products' magnitudes.
    fn expected(x: &[f32], weight: &[f32]) -> (f64, f64) {
        let (low, high) = x.iter().fold((0.0, 0.0), |(low, high): (f64, f64), &x| {
            (low.min(f64::from(x)), high.max(f64::from(x)))
        });
        let scale = (high - low) / 254.0;
        let zero = (-low / scale).round_ties_even();
        let x = x.iter().map(|&x| scale * ((f64::from(x) / scale + zero).round_ties_even() - zero));
        let largest = weight.iter().fold(0.0, |largest: f64, &w| largest.max(f64::from(w.abs())));
        let weight = weight
            .iter()
            .map(|&w| largest / 64.0 * (f64::from(w) / largest * 64.0).round_ties_even());
        let products = x.zip(weight).map(|(x, w)| x * w);
        products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()))
    }

    #[test]
    fn every_instruction_set_multiplies_the_rounded_factors() {
        for (rows, inputs, outputs) in [
            (1, 1, 1),
            (5, 2, 15),
            (6, 3, 16),
            (7, 33, 17),
            (13, 64, 48),
            (100, 130, 33),
            (20, 9, 130),
        ] {
            let (x, weight) = (values(rows * inputs, 1.0), values(outputs * inputs, 2.0));
            for (name, simd) in Simd::all() {
                let mut y = vec![f32::NAN; rows * outputs];
                Weight::new(simd, &weight, inputs).multiply(&x, &mut y);
                for (at, &y) in y.iter().enumerate() {
                    let (row, output) = (at / outputs * inputs, at % outputs * inputs);
                    let (sum, size) = expected(&x[row..][..inputs], &weight[output..][..inputs]);
                    let error = (f64::from(y) - sum).abs();
                    // A value in the middle between two steps may be rounded to either, and this shifts the sum by
                    // a step of one product.
                    assert!(
                        error <= 2e-3 * size + 0.1,
                        "{name} {rows}×{inputs}×{outputs} at {at}: {y} instead of {sum}"
                    );
                }
            }
        }
    }

    #[test]
    fn all_instruction_sets_and_divisions_give_the_same_bits() {
        let (rows, inputs, outputs) = (1000, 701, 40);
        let (x, weight) = (values(rows * inputs, 3.0), values(outputs * inputs, 4.0));
        let all = Simd::all().into_iter().map(|(_, simd)| {
            let mut y = vec![0.0; rows * outputs];
            Weight::new(simd, &weight, inputs).multiply(&x, &mut y);
            y
        });
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(|y| *y == all[0]));
        let weight = Weight::new(Simd::detect(), &weight, inputs);
        for at in [0, 4, 5, 499, 500, 999] {
            let mut row = vec![0.0; outputs];
            weight.multiply(&x[at * inputs..][..inputs], &mut row);
            assert_eq!(row, all[0][at * outputs..][..outputs], "row {at}");
        }
    }

    #[test]
    fn no_sum_overflows_and_what_is_not_finite_stays_so() {
        for sign in [1.0, -1.0] {
            let inputs = 8192;
            let weight = Weight::new(Simd::detect(), &vec![-3.0; inputs], inputs);
            let mut y = [0.0];
            weight.multiply(&vec![sign * 5.0; inputs], &mut y);
            let expected = -15.0 * sign * inputs as f32;
            assert!((y[0] - expected).abs() < 1e-4 * expected.abs(), "{y:?}");
        }

        let mut weight = values(9 * 8, 1.0);
        weight[8 * 8] = f32::INFINITY;
        let weight = Weight::new(Simd::detect(), &weight, 8);
        let mut x = values(8 * 6, 2.0);
        x[3] = f32::NAN;
        x[8] = -f32::NAN;
        x[16] = f32::NEG_INFINITY;
        x[24..32].fill(0.0);
        x[32..40].fill(1e-40);
        let mut y = vec![1.0; 6 * 9];
        weight.multiply(&x, &mut y);
        for (row, y) in y.chunks(9).enumerate() {
            assert!(!y[8].is_finite());
            match row {
                0..3 => assert!(y.iter().all(|y| !y.is_finite()), "{y:?}"),
                3..5 => assert!(y[..8].iter().all(|&y| y == 0.0), "{y:?}"),
                _ => assert!(y[..8].iter().all(|y| y.is_finite()), "{y:?}"),
            }
        }
    }
}
