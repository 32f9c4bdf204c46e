//! Tests picking, adding back and dropping rows, and conversions, all exact.

use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::{self, DropoutRows};
use crate::engine::simd::Simd;
use crate::error::Result;
use crate::random::Site;

use super::TestCases;
use super::test_case::{DROPOUT, TestCase, numbers, rounded};
use crate::engine::cpu::dropout::Mask;

const SITE: Site = Site::HeadDropout;

/// Returns about half of `n` rows from last to first, each once.
fn chosen(n: usize) -> Vec<u32> {
    (0..n as u32).rev().step_by(2).collect()
}

pub fn pick(cases: &mut TestCases<'_>) {
    cases.over_matrices(|case, n, width| {
        let element = case.element;
        let x = rounded(element, &numbers(n * width, 1));
        let rows = chosen(n);
        let from = case.constant(element, &x)?;
        let rows_at = case.words(&rows)?;
        let count = rows.len() * width;
        for other in [element, Element::F32] {
            let to = case.empty(other, count)?;
            let size = (rows.len() as u32, width as u32);
            kernels::pick(case.device, element, size, from, rows_at, (to, other))?;
            if let Some([got]) = case.outputs([(to, other, count)])? {
                let row = |&row: &u32| &x[row as usize * width..][..width];
                let expected: Vec<f32> = rows.iter().flat_map(row).copied().collect();
                case.same("rows", &got, &expected);
            }
        }
        Ok(())
    });
}

pub fn add_picked(cases: &mut TestCases<'_>) {
    cases.over_matrices(|case, n, width| {
        let element = case.element;
        let rows = chosen(n);
        let rows_at = case.words(&rows)?;
        for other in [element, Element::F32] {
            let mut x = rounded(element, &numbers(n * width, 1));
            let y = rounded(other, &numbers(rows.len() * width, 2));
            let from = case.constant(other, &y)?;
            let to = case.changing(element, &x)?;
            let size = (rows.len() as u32, width as u32);
            kernels::add_picked(case.device, element, size, (from, other), rows_at, to)?;
            if let Some([got]) = case.outputs([(to, element, n * width)])? {
                for (&row, y) in rows.iter().zip(y.chunks_exact(width)) {
                    let x = &mut x[row as usize * width..][..width];
                    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
                }
                case.same("rows", &got, &rounded(element, &x));
            }
        }
        Ok(())
    });
}

pub fn drop_rows(cases: &mut TestCases<'_>) {
    cases.over_batches(&[0.1, 0.5], |case, width, lengths, p| {
        let (element, simd) = (case.element, Simd::detect());
        let sample = case.sample(lengths)?;
        let (Some(dropout), Some(mask)) = sample.dropout(SITE, p) else {
            return Ok(());
        };
        let batch = sample.on_device.batch;
        let mut x = rounded(element, &numbers(sample.packed.rows() * width, 1));
        let at = case.changing(element, &x)?;
        let drops = DropoutRows::Rows(batch);
        let width_ = width as u32;
        kernels::drop_rows(case.device, element, drops, width_, at, dropout)?;
        if let Some([got]) = case.outputs([(at, element, x.len())])? {
            for (row, x) in x.chunks_exact_mut(width).enumerate() {
                mask.apply_to_row(simd, &sample.rows, row, x);
            }
            same(case, "rows", &got, &x);
        }
        let count = lengths.len() * width;
        let mut x = rounded(element, &numbers(count, 2));
        let at = case.changing(element, &x)?;
        let drops = DropoutRows::Sequences(batch);
        kernels::drop_rows(case.device, element, drops, width_, at, dropout)?;
        if let Some([got]) = case.outputs([(at, element, count)])? {
            let mask = Mask::new(Some(DROPOUT), SITE, p);
            let examples = &sample.packed.examples;
            for (&example, x) in examples.iter().zip(x.chunks_exact_mut(width)) {
                mask.iter().for_each(|mask| mask.apply(simd, example, 0, x));
            }
            same(case, "rows of sequences", &got, &x);
        }
        Ok(())
    });
}

/// Compares bits, except for the sign of dropped values, which the CPU engine keeps.
fn same(case: &mut TestCase<'_>, what: &str, got: &[f32], expected: &[f32]) {
    let unsigned = |values: &[f32]| -> Vec<f32> { values.iter().map(|x| x + 0.0).collect() };
    let expected = rounded(case.element, expected);
    case.same(what, &unsigned(got), &unsigned(&expected));
}

pub fn cast(cases: &mut TestCases<'_>) {
    // Rounding to even in both directions, subnormal numbers, the largest numbers, and overflow.
    let special = [
        0.0,
        -0.0,
        1.003_906_3,
        1.011_718_8,
        1.000_488_3,
        1.001_464_8,
        1e-7,
        -3e-8,
        1e-40,
        65504.0,
        65519.0,
        65520.0,
        -1e30,
        3.4e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for count in [1usize, 7, 31, 255, 2048, 100_003] {
        cases.test(&format!("{count} numbers"), |case| cast_case(case, count, &special));
    }
    let (width, lengths) = cases.scale.measured();
    let count = width * lengths.iter().sum::<usize>();
    cases.measure(&format!("{count} numbers"), |case| cast_case(case, count, &special));
}

fn cast_case(case: &mut TestCase<'_>, count: usize, special: &[f32]) -> Result<()> {
    let element = case.element;
    let mut x = numbers(count, 1);
    let fit = special.len().min(count);
    x[..fit].copy_from_slice(&special[..fit]);
    let single = Element::F32;
    let from = case.constant(single, &x)?;
    let narrow = case.empty(element, count)?;
    let wide = case.empty(single, count)?;
    let number = count as u64;
    kernels::cast(case.device, number, (from, single), (narrow, element))?;
    kernels::cast(case.device, number, (narrow, element), (wide, single))?;
    let places = [(narrow, element, count), (wide, single, count)];
    if let Some([narrow, wide]) = case.outputs(places)? {
        case.same("narrowed", &narrow, &rounded(element, &x));
        case.same("widened again", &wide, &rounded(element, &x));
    }
    Ok(())
}
