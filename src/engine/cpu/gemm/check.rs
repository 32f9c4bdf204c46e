//! A first product of a unit whose results are known.

use super::{Matrix, MatrixMut, Old, Precision, Product, Threads, Unit};

/// Whether a product of small integers, of which bf16 and all sums are exact, comes out right.
///
/// The instructions of a unit that the authors' machines lack are not trusted unseen. The sizes make
/// steps of one and of two panels on either side, whole ones and ones with an edge.
pub fn computes_exactly(unit: &Unit) -> bool {
    const SIZES: (usize, usize, usize) = (37, 67, 77);
    let (m, n, k) = SIZES;
    let integers = |len: usize, step: usize| -> Vec<f32> {
        (0..len).map(|i| (i * step % 251) as f32 - 125.0).collect()
    };
    let (a, b, before) = (integers(m * k, 7), integers(k * n, 11), integers(m * n, 13));
    [Old::Overwrite, Old::Add].into_iter().all(|old| {
        let mut c = before.clone();
        let work = Product::new(
            MatrixMut::new(&mut c, m, n),
            old,
            1.0,
            Matrix::new(&a, m, k),
            Matrix::new(&b, k, n),
        );
        unit.multiply(work, Threads::One, Precision::Bf16);
        (0..m * n).all(|i| {
            let (row, column) = (i / n, i % n);
            let sum: f32 = (0..k).map(|l| a[row * k + l] * b[l * n + column]).sum();
            c[i] == if old == Old::Add {
                before[i] + sum
            } else {
                sum
            }
        })
    })
}
