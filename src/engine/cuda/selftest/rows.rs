//! Rows picked and given back, dropped, and numbers turned from one type into another: exact.

use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::{self, DropoutRows};
use crate::engine::simd::Simd;
use crate::random::Site;

use super::Suite;
use super::trial::{DROPOUT, Trial, numbers, rounded};
use crate::engine::cpu::dropout::Mask;

const SITE: Site = Site::HeadDropout;

/// About half of `n` rows, from the back to the front, each once.
fn chosen(n: usize) -> Vec<u32> {
    (0..n as u32).rev().step_by(2).collect()
}

pub fn pick(suite: &mut Suite<'_>) {
    for &width in suite.scale.widths() {
        for lengths in suite.scale.lengths() {
            let n: usize = lengths.iter().sum();
            suite.case(&format!("from {n} rows of {width}"), |trial| {
                let element = trial.element;
                let x = rounded(element, &numbers(n * width, 1));
                let rows = chosen(n);
                let from = trial.constant(element, &x)?;
                let rows_at = trial.words(&rows)?;
                let count = rows.len() * width;
                for other in [element, Element::F32] {
                    let to = trial.empty(other, count)?;
                    let size = (rows.len() as u32, width as u32);
                    kernels::pick(trial.device, element, size, from, rows_at, (to, other))?;
                    if let Some([got]) = trial.outputs([(to, other, count)])? {
                        let row = |&row: &u32| &x[row as usize * width..][..width];
                        let expected: Vec<f32> = rows.iter().flat_map(row).copied().collect();
                        trial.same("rows", &got, &expected);
                    }
                }
                Ok(())
            });
        }
    }
}

pub fn add_picked(suite: &mut Suite<'_>) {
    for &width in suite.scale.widths() {
        for lengths in suite.scale.lengths() {
            let n: usize = lengths.iter().sum();
            suite.case(&format!("to {n} rows of {width}"), |trial| {
                let element = trial.element;
                let rows = chosen(n);
                let rows_at = trial.words(&rows)?;
                for other in [element, Element::F32] {
                    let mut x = rounded(element, &numbers(n * width, 1));
                    let y = rounded(other, &numbers(rows.len() * width, 2));
                    let from = trial.constant(other, &y)?;
                    let to = trial.changing(element, &x)?;
                    let size = (rows.len() as u32, width as u32);
                    kernels::add_picked(trial.device, element, size, (from, other), rows_at, to)?;
                    if let Some([got]) = trial.outputs([(to, element, n * width)])? {
                        for (&row, y) in rows.iter().zip(y.chunks_exact(width)) {
                            let x = &mut x[row as usize * width..][..width];
                            x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
                        }
                        trial.same("rows", &got, &rounded(element, &x));
                    }
                }
                Ok(())
            });
        }
    }
}

pub fn drop_rows(suite: &mut Suite<'_>) {
    for &width in suite.scale.widths() {
        for &lengths in suite.scale.lengths() {
            for p in [0.1, 0.5] {
                let name = format!("{width} wide, {lengths:?}, dropout {p}");
                suite.case(&name, |trial| {
                    let (element, simd) = (trial.element, Simd::detect());
                    let sample = trial.sample(lengths)?;
                    let (Some(dropout), Some(mask)) = sample.dropout(SITE, p) else {
                        return Ok(());
                    };
                    let batch = &sample.on_device.batch;
                    let mut x = rounded(element, &numbers(sample.packed.rows() * width, 1));
                    let at = trial.changing(element, &x)?;
                    let drops = DropoutRows::Rows(batch);
                    let width_ = width as u32;
                    kernels::drop_rows(trial.device, element, drops, width_, at, &dropout)?;
                    if let Some([got]) = trial.outputs([(at, element, x.len())])? {
                        for (row, x) in x.chunks_exact_mut(width).enumerate() {
                            mask.apply_to_row(simd, &sample.rows, row, x);
                        }
                        same(trial, "rows", &got, &x);
                    }
                    let count = lengths.len() * width;
                    let mut x = rounded(element, &numbers(count, 2));
                    let at = trial.changing(element, &x)?;
                    let drops = DropoutRows::Sequences(batch);
                    kernels::drop_rows(trial.device, element, drops, width_, at, &dropout)?;
                    if let Some([got]) = trial.outputs([(at, element, count)])? {
                        let mask = Mask::new(Some(DROPOUT), SITE, p);
                        let examples = &sample.packed.examples;
                        for (&example, x) in examples.iter().zip(x.chunks_exact_mut(width)) {
                            mask.iter().for_each(|mask| mask.apply(simd, example, 0, x));
                        }
                        same(trial, "rows of sequences", &got, &x);
                    }
                    Ok(())
                });
            }
        }
    }
}

/// Compares to the bit, but for the sign of what was dropped, which the CPU engine keeps.
fn same(trial: &mut Trial<'_>, what: &str, got: &[f32], expected: &[f32]) {
    let unsigned = |values: &[f32]| -> Vec<f32> { values.iter().map(|x| x + 0.0).collect() };
    let expected = rounded(trial.element, expected);
    trial.same(what, &unsigned(got), &unsigned(&expected));
}

pub fn cast(suite: &mut Suite<'_>) {
    // Rounding to even both ways, numbers below the normal ones, the largest, and beyond.
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
        suite.case(&format!("{count} numbers"), |trial| {
            let element = trial.element;
            let mut x = numbers(count, 1);
            let fit = special.len().min(count);
            x[..fit].copy_from_slice(&special[..fit]);
            let single = Element::F32;
            let from = trial.constant(single, &x)?;
            let narrow = trial.empty(element, count)?;
            let wide = trial.empty(single, count)?;
            let number = count as u64;
            kernels::cast(trial.device, number, (from, single), (narrow, element))?;
            kernels::cast(trial.device, number, (narrow, element), (wide, single))?;
            let places = [(narrow, element, count), (wide, single, count)];
            if let Some([narrow, wide]) = trial.outputs(places)? {
                trial.same("narrowed", &narrow, &rounded(element, &x));
                trial.same("widened again", &wide, &rounded(element, &x));
            }
            Ok(())
        });
    }
}
