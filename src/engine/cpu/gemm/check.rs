//! A test product of a unit.

use super::{Matrix, MatrixMut, Output, Precision, Product, Threads, Unit};

/// Returns whether a product of small integers, whose bf16 values and sums are exact, is correct.
///
/// Not trusted unseen: the authors' machines lack some units. The sizes make steps of one and of
/// two panels on either side, whole and partial ones.
pub fn computes_exactly(unit: &Unit) -> bool {
    const SIZES: (usize, usize, usize) = (37, 67, 77);
    let (m, n, k) = SIZES;
    let integers = |len: usize, step: usize| -> Vec<f32> {
        (0..len).map(|i| (i * step % 251) as f32 - 125.0).collect()
    };
    let (a, b, before) = (integers(m * k, 7), integers(k * n, 11), integers(m * n, 13));
    [Output::Overwrite, Output::Accumulate].into_iter().all(|output| {
        let mut c = before.clone();
        let work = Product::new(
            MatrixMut::new(&mut c, m, n),
            output,
            1.0,
            Matrix::new(&a, m, k),
            Matrix::new(&b, k, n),
        );
        unit.multiply(work, Threads::One, Precision::Bf16);
        (0..m * n).all(|i| {
            let (row, column) = (i / n, i % n);
            let sum: f32 = (0..k).map(|l| a[row * k + l] * b[l * n + column]).sum();
            c[i] == if output == Output::Accumulate { before[i] + sum } else { sum }
        })
    })
}
