//! Matrix products of f32, on the `gemm-f32` crate.

use gemm_common::Parallelism;

/// A matrix to read: rows and columns of a slice, with any strides.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major matrix without gaps.
    pub fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// A row-major matrix whose rows lie `stride` apart.
    pub fn strided(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(values.len(), rows, columns, stride);
        Self {
            values,
            rows,
            columns,
            row_stride: stride,
            column_stride: 1,
        }
    }

    /// The transposed matrix.
    pub fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// A row-major matrix to write.
pub struct MatrixMut<'a> {
    values: &'a mut [f32],
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// A matrix without gaps.
    pub fn new(values: &'a mut [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// A matrix whose rows lie `stride` apart.
    pub fn strided(values: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(values.len(), rows, columns, stride);
        Self {
            values,
            rows,
            columns,
            stride,
        }
    }
}

/// Panics where a row-major matrix would reach beyond its `len` values or its rows would overlap.
fn check(len: usize, rows: usize, columns: usize, stride: usize) {
    let reach = match rows.checked_sub(1) {
        Some(above) if columns > 0 => above * stride + columns,
        _ => 0,
    };
    assert!(
        len >= reach && stride >= columns,
        "{len} values for a matrix of {rows}×{columns} with stride {stride}"
    );
}

/// Which threads compute a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The calling one.
    One,
    /// Those of the rayon pool, where the product is large enough.
    All,
}

/// What happens to the values that were there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Old {
    Overwrite,
    Add,
}

/// `c = factor · a b`, or `c += factor · a b`.
pub fn product(
    c: MatrixMut<'_>,
    old: Old,
    factor: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    threads: Threads,
) {
    assert_eq!(a.columns, b.rows, "inner sizes of a product");
    assert_eq!(
        (c.rows, c.columns),
        (a.rows, b.columns),
        "sizes of a product"
    );
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // The crate likes a column-major result: cᵀ = bᵀ aᵀ is one.
    // SAFETY: the constructors have checked that each matrix lies within its slice; `c` is borrowed
    // mutably, so that nothing else reads or writes it, and its rows don't overlap
    // (stride >= columns).
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            c.columns,
            c.rows,
            a.columns,
            c.values.as_mut_ptr(),
            c.stride as isize,
            1,
            old == Old::Add,
            b.values.as_ptr(),
            b.row_stride as isize,
            b.column_stride as isize,
            a.values.as_ptr(),
            a.row_stride as isize,
            a.column_stride as isize,
            1.0,
            factor,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 0.7).sin()).collect()
    }

    /// Sizes around the edges of tiles, all transpositions, rows with gaps.
    #[test]
    fn products_are_those_of_the_definition() {
        let sizes = [1, 2, 15, 17, 31, 33, 127];
        for (m, n, k) in sizes
            .into_iter()
            .flat_map(|m| sizes.into_iter().map(move |n| (m, n)))
            .zip(sizes.into_iter().cycle())
            .map(|((m, n), k)| (m, n, k))
            .chain([(40, 40, 64), (300, 70, 1)])
        {
            let (ga, gb, gc) = (3, 2, 5);
            let at = [false, true].map(|t| if t { (k, m) } else { (m, k) });
            let bt = [false, true].map(|t| if t { (n, k) } else { (k, n) });
            for (ta, tb) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let a = values(at[ta].0 * (at[ta].1 + ga), 1.0);
                let b = values(bt[tb].0 * (bt[tb].1 + gb), 2.0);
                let view = |x, (rows, columns): (usize, usize), gap, t| {
                    let m = Matrix::strided(x, rows, columns, columns + gap);
                    if t == 1 { m.t() } else { m }
                };
                let (va, vb) = (view(&a, at[ta], ga, ta), view(&b, bt[tb], gb, tb));
                for old in [Old::Overwrite, Old::Add] {
                    let before = values(m * (n + gc), 3.0);
                    let mut c = before.clone();
                    let cm = MatrixMut::strided(&mut c, m, n, n + gc);
                    product(cm, old, 0.5, va, vb, Threads::All);
                    for (i, (&got, &was)) in c.iter().zip(&before).enumerate() {
                        let (row, column) = (i / (n + gc), i % (n + gc));
                        let expected = if column >= n {
                            f64::from(was)
                        } else {
                            let sum: f64 = (0..k)
                                .map(|l| {
                                    let a = a[row * va.row_stride + l * va.column_stride];
                                    let b = b[l * vb.row_stride + column * vb.column_stride];
                                    f64::from(a) * f64::from(b)
                                })
                                .sum();
                            0.5 * sum + if old == Old::Add { f64::from(was) } else { 0.0 }
                        };
                        assert!(
                            (f64::from(got) - expected).abs() < 1e-5 * (k as f64).sqrt(),
                            "{m}×{n}×{k} at {row},{column}: {got} for {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "values for a matrix")]
    fn a_matrix_beyond_its_slice_is_refused() {
        Matrix::strided(&[0.0; 11], 3, 4, 4);
    }
}
