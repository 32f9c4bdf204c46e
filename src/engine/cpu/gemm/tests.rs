//! Compares every unit with the definition of a product, in f64, of the rounded operands.

use super::rounding::round;
use super::*;

/// Returns every unit of this machine, and the emulated one.
fn units() -> Vec<Unit> {
    // Miri would take an hour for these of the crate gemm.
    let units = if cfg!(miri) { vec![] } else { vec![Unit::F32] };
    #[cfg(target_arch = "x86_64")]
    let units = units
        .into_iter()
        .chain([Unit::Emulated(amx::emulated::Emulated)])
        .chain(avx512::Avx512::detect().map(Unit::Avx512Bf16))
        .chain(amx::Amx::detect().map(Unit::Amx))
        .collect();
    #[cfg(target_arch = "aarch64")]
    let units = units.into_iter().chain(neon::Neon::detect().map(Unit::NeonBf16)).collect();
    units
}

fn values(n: usize, seed: f32) -> Vec<f32> {
    (0..n).map(|i| ((i as f32 + seed) * 0.7).sin()).collect()
}

/// Returns sizes around the edges of vectors, tiles and blocks, and sizes of several blocks.
fn sizes() -> Vec<(usize, usize, usize)> {
    if cfg!(miri) {
        return vec![(1, 1, 1), (17, 2, 33), (2, 33, 15), (17, 18, 33)];
    }
    let edges = [1, 2, 15, 17, 31, 33, 127];
    edges
        .into_iter()
        .flat_map(move |m| edges.into_iter().map(move |n| (m, n)))
        .zip(edges.into_iter().cycle().skip(3).step_by(2))
        .map(|((m, n), k)| (m, n, k))
        .chain([(48, 96, 64), (64, 32, 128), (300, 70, 1), (5, 7, 4400), (70, 130, 170)])
        .collect()
}

/// A row-major matrix with a gap after each row, optionally read as its transpose.
struct Operand {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
    stride: usize,
    transposed: bool,
}

impl Operand {
    fn new(rows: usize, columns: usize, gap: usize, transposed: bool, seed: f32) -> Self {
        let (down, across) = if transposed { (columns, rows) } else { (rows, columns) };
        let stride = across + gap;
        let mut values = values(down * stride - gap, seed);
        // The gaps must not be read.
        for row in values.chunks_mut(stride) {
            row.iter_mut().skip(across).for_each(|x| *x = f32::NAN);
        }
        Self { values, rows, columns, stride, transposed }
    }

    fn view(&self) -> Matrix<'_> {
        if self.transposed {
            Matrix::strided(&self.values, self.columns, self.rows, self.stride).t()
        } else {
            Matrix::strided(&self.values, self.rows, self.columns, self.stride)
        }
    }

    fn at(&self, row: usize, column: usize) -> f32 {
        self.values
            [if self.transposed { column * self.stride + row } else { row * self.stride + column }]
    }
}

/// Computes one product with every layout and output, and compares it with the sum of the products
/// of the factors, each changed by `factors`; `tolerance` is relative to the sum of absolute
/// products.
fn compare(
    unit: Unit,
    precision: Precision,
    (m, n, k): (usize, usize, usize),
    factors: impl Fn(f32) -> f32,
    tolerance: f64,
) {
    for (a_transposed, b_transposed) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let a = Operand::new(m, k, 3, a_transposed, 1.0);
        let b = Operand::new(k, n, 2, b_transposed, 2.0);
        let sums: Vec<(f64, f64)> = (0..m * n)
            .map(|i| {
                let (row, column) = (i / n, i % n);
                (0..k).fold((0.0, 0.0), |(sum, absolute), l| {
                    let a = f64::from(factors(a.at(row, l)));
                    let product = a * f64::from(factors(b.at(l, column)));
                    (sum + product, absolute + product.abs())
                })
            })
            .collect();
        let gap = 5;
        let before = values(m * (n + gap), 3.0);
        let cases = [
            (Output::Overwrite, 1.0, Threads::All),
            (Output::Overwrite, -0.5, Threads::One),
            (Output::Accumulate, 1.0, Threads::One),
            (Output::Accumulate, 0.5, Threads::All),
        ];
        // Miri is slow: the first and the last.
        for (output, factor, threads) in cases.into_iter().step_by(if cfg!(miri) { 3 } else { 1 }) {
            let mut c = before.clone();
            let to = MatrixMut::strided(&mut c, m, n, n + gap);
            let work = Product::new(to, output, factor, a.view(), b.view());
            unit.multiply(work, threads, precision);
            for (i, (&got, &was)) in c.iter().zip(&before).enumerate() {
                let (row, column) = (i / (n + gap), i % (n + gap));
                if column >= n {
                    assert_eq!(got, was, "{unit} wrote between the rows");
                    continue;
                }
                let (sum, absolute) = sums[row * n + column];
                let was = if output == Output::Accumulate { f64::from(was) } else { 0.0 };
                let expected = was + f64::from(factor) * sum;
                let error = (f64::from(got) - expected).abs();
                assert!(
                    error <= tolerance * (absolute + was.abs()),
                    "{unit} {precision:?} {m}×{n}×{k} {output:?} {factor} at {row},{column}: \
                     {got} for {expected}"
                );
            }
        }
    }
}

#[test]
fn f32_products_are_those_of_the_definition() {
    // Miri follows the crate gemm slowly.
    let sizes = if cfg!(miri) { vec![(3, 2, 5)] } else { sizes() };
    for size in sizes {
        compare(Unit::F32, Precision::F32, size, |x| x, 2e-6);
    }
}

#[test]
fn bf16_products_are_those_of_the_rounded_factors_on_every_unit() {
    for unit in units() {
        for size in sizes() {
            compare(unit, Precision::Bf16, size, round, 4e-6);
        }
    }
}

#[test]
fn three_bf16_products_come_close_to_f32_on_every_unit() {
    // Miri would take hours for the larger ones.
    let sizes = if cfg!(miri) { vec![(17, 2, 33)] } else { sizes() };
    for unit in units() {
        for &size in &sizes {
            // A single product can come near the bound; sums of many stay far below it.
            let tolerance = if size.2 < 15 { 3.1e-5 } else { 1e-5 };
            compare(unit, Precision::Bf16x3, size, |x| x, tolerance);
        }
    }
}

/// Runs the statements with AMX's instructions. If the processor lacks them, each is emulated at
/// the exception that it raises: slow, hence few sizes.
#[test]
#[cfg_attr(miri, ignore = "Miri has no signals")]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn the_amx_instructions_compute_the_product_of_the_rounded_factors() {
    let Some(unit) = amx::Amx::trapped().map(Unit::Amx) else {
        return;
    };
    assert!(check::computes_exactly(&unit));
    for size in [(1, 1, 1), (16, 15, 31), (17, 64, 33), (64, 17, 70), (65, 97, 600)] {
        compare(unit, Precision::Bf16, size, round, 2e-6);
    }
    compare(unit, Precision::Bf16x3, (33, 47, 65), |x| x, 1e-5);
}

#[test]
fn a_packed_weight_gives_the_same_bits_on_every_number_of_threads() {
    let sizes = if cfg!(miri) { vec![(17, 18, 33)] } else { sizes() };
    for (unit, precision) in
        units().into_iter().flat_map(|unit| [(unit, Precision::Bf16), (unit, Precision::Bf16x3)])
    {
        for &(m, n, k) in &sizes {
            let (x, weight) = (values(m * k, 1.0), values(n * k, 2.0));
            let weight = Matrix::new(&weight, n, k);
            let mut expected = vec![f32::NAN; m * n];
            let to = MatrixMut::new(&mut expected, m, n);
            let work = Product::new(to, Output::Overwrite, 1.0, Matrix::new(&x, m, k), weight.t());
            unit.multiply(work, Threads::One, precision);
            let Some(packed) = unit.pack(weight, precision) else {
                assert_eq!(unit.of(precision), Unit::F32);
                continue;
            };
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut y = vec![f32::NAN; m * n];
                pool.install(|| packed.multiply(&x, &mut y));
                assert!(y == expected, "{unit} {precision:?} {m}×{n}×{k} {threads}");
            }
        }
    }
}

#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn every_unit_passes_the_start_up_check() {
    for unit in units() {
        assert!(check::computes_exactly(&unit), "{unit}");
    }
}

/// The end of the second session would release the registers of the first.
#[test]
#[cfg_attr(miri, ignore = "Miri has no signals")]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn a_thread_has_one_session_of_the_tile_registers_at_a_time() {
    let Some(amx) = amx::Amx::trapped() else {
        return;
    };
    let first = blocked::Kernel::start(amx);
    assert!(std::panic::catch_unwind(|| blocked::Kernel::start(amx)).is_err());
    drop(first);
    drop(blocked::Kernel::start(amx));
}

#[test]
fn infinity_and_nan_stay_where_they_belong() {
    let (m, n, k) = (19, 35, 41);
    let (row, column, inner) = (17, 33, 40);
    for unit in units() {
        for bad in [f32::NAN, f32::INFINITY] {
            let (mut a, b) = (vec![1.0; m * k], vec![2.0; k * n]);
            a[row * k + inner] = bad;
            let multiply = |a: &[f32], b: &[f32]| {
                let mut c = vec![f32::NAN; m * n];
                let (a, b) = (Matrix::new(a, m, k), Matrix::new(b, k, n));
                let work = Product::new(MatrixMut::new(&mut c, m, n), Output::Overwrite, 1.0, a, b);
                unit.multiply(work, Threads::One, Precision::Bf16);
                c
            };
            for (i, c) in multiply(&a, &b).into_iter().enumerate() {
                match (i / n == row, bad.is_nan()) {
                    (false, _) => assert_eq!(c, 2.0 * k as f32, "{unit}"),
                    (true, false) => assert_eq!(c, bad, "{unit}"),
                    (true, true) => assert!(c.is_nan(), "{unit}"),
                }
            }
            // Infinity times zero is NaN.
            let mut b = b;
            b[inner * n + column] = 0.0;
            assert!(multiply(&a, &b)[row * n + column].is_nan(), "{unit}");
        }
    }
}

#[test]
fn a_product_with_an_empty_inner_size_is_zero() {
    for unit in units() {
        for (output, expected) in [(Output::Overwrite, 0.0), (Output::Accumulate, 3.0)] {
            let mut c = [3.0; 7];
            let to = MatrixMut::strided(&mut c, 2, 2, 3);
            let (a, b) = (Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 2));
            let work = Product::new(to, output, 1.0, a, b);
            unit.multiply(work, Threads::One, Precision::Bf16);
            let e = expected;
            assert_eq!(c, [e, e, 3.0, e, e, 3.0, 3.0], "{unit}");
        }
    }
}

/// A thread that waits for its product's tasks may run another product's meanwhile.
#[test]
fn products_within_parallel_tasks_are_independent() {
    use rayon::prelude::*;
    let ((m, n, k), count) = if cfg!(miri) { ((18, 17, 5), 3) } else { ((130, 100, 120), 12) };
    for unit in units() {
        let multiply = |seed: usize, threads| {
            let a = Operand::new(m, k, 0, false, seed as f32);
            let b = Operand::new(k, n, 0, true, -(seed as f32));
            let mut c = vec![0.0; m * n];
            let to = MatrixMut::new(&mut c, m, n);
            let work = Product::new(to, Output::Overwrite, 1.0, a.view(), b.view());
            unit.multiply(work, threads, Precision::Bf16);
            c
        };
        let alone: Vec<_> = (0..count).map(|i| multiply(i, Threads::One)).collect();
        let together = (0..count).into_par_iter().map(|i| multiply(i, Threads::All));
        let together: Vec<_> = together.collect();
        assert!(alone == together, "{unit}");
    }
}

/// NEON packs two lines of four numbers side by side, in both orders of the operand in memory.
#[test]
#[cfg(target_arch = "aarch64")]
fn neon_packs_the_rounded_numbers_in_fours() {
    use super::blocked::Kernel;
    use super::pack::{DEPTH, LINES, Panels, Side, Tile};
    let Some(neon) = neon::Neon::detect() else {
        return;
    };
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0];
    for (lines, inner) in [(1, 1), (16, 32), (15, 33), (17, 31), (40, 70), (32, 64)] {
        for transposed in [false, true] {
            let mut from = Operand::new(lines, inner, 1, transposed, 5.0);
            for (i, x) in from.values.iter_mut().enumerate() {
                *x = if i % 13 == 5 { special[i / 13 % special.len()] } else { *x };
            }
            // Values that packing must overwrite at the edges.
            let mut tiles = vec![Tile([[7; 16]; 16]); Panels::tiles(lines, inner, 1)];
            neon.pack(Side::Left, from.view(), 1, &mut tiles);
            let depth = inner.div_ceil(DEPTH);
            for (at, tile) in tiles.iter().enumerate() {
                for (word, &pair) in tile.0.as_flattened().iter().enumerate() {
                    let (four, in_four) = (word / (2 * LINES), word % (2 * LINES));
                    let line = at / depth * LINES + in_four / 2;
                    for (half, bits) in [pair & 0xffff, pair >> 16].into_iter().enumerate() {
                        let index = at % depth * DEPTH + 4 * four + 2 * (word % 2) + half;
                        let inside = line < lines && index < inner;
                        let expected = if inside { round(from.at(line, index)) } else { 0.0 };
                        let got = f32::from_bits(bits << 16);
                        let same = got.to_bits() == expected.to_bits()
                            || got.is_nan() && expected.is_nan();
                        assert!(same, "{lines}×{inner} {transposed}: {got} for {expected}");
                    }
                }
            }
        }
    }
}

/// Vector instructions pack the same bits as the reference.
#[test]
#[cfg(target_arch = "x86_64")]
fn packing_by_vectors_equals_the_reference() {
    use super::blocked::Kernel;
    use super::pack::{Panels, Side, Tile, reference};
    let Some(avx512) = avx512::Avx512::detect() else {
        return;
    };
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, f32::MAX, -0.0, 1e-38];
    for (lines, inner) in [(1, 1), (16, 32), (15, 33), (17, 31), (40, 70)] {
        for (transposed, parts, side) in [false, true].into_iter().flat_map(|t| {
            [1, 2].into_iter().flat_map(move |p| [Side::Left, Side::Right].map(|s| (t, p, s)))
        }) {
            let mut from = Operand::new(lines, inner, 1, transposed, 5.0);
            for (i, x) in from.values.iter_mut().enumerate() {
                *x = if i % 13 == 5 { special[i / 13 % special.len()] } else { *x };
            }
            let count = Panels::tiles(lines, inner, parts);
            // Values that packing must overwrite at the edges.
            let mut tiles = [(); 2].map(|()| vec![Tile([[7; 16]; 16]); count]);
            avx512.pack(side, from.view(), parts, &mut tiles[0]);
            reference(side, from.view(), parts, &mut tiles[1]);
            for (got, expected) in tiles[0].iter().zip(&tiles[1]) {
                assert_eq!(got.0, expected.0, "{lines}×{inner} {transposed} {side:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "values for a matrix")]
fn a_matrix_beyond_its_slice_is_refused() {
    Matrix::strided(&[0.0; 11], 3, 4, 4);
}

/// Twice this stride wraps to 0 in 64 bits.
#[test]
#[should_panic(expected = "values for a matrix")]
fn a_matrix_whose_size_wraps_around_is_refused() {
    Matrix::strided(&[0.0; 4], 3, 1, usize::MAX / 2 + 1);
}
