//! Matrix products of f32 matrices, in f32 or on the processor's bf16 instructions.
//!
//! [`product`] is all that the engine calls. In f32 it runs on the `gemm-f32` crate ([`sgemm`]); in
//! bf16 [`blocked`] cuts the product into blocks, [`pack`] rounds the operands into tiles and a
//! [`blocked::Kernel`] multiplies those: [`avx512`] or [`amx`]. [`unit`] says which of them this
//! processor has.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod blocked;
#[cfg(target_arch = "x86_64")]
mod check;

#[cfg(target_arch = "x86_64")]
mod pack;
mod rounding;
mod scratch;
mod sgemm;
#[cfg(test)]
mod tests;
mod unit;

use crate::engine::Precision;

pub use self::rounding::round as round_to_bf16;
pub use self::unit::Unit;

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
    // Checked, because a sum that wraps around would pass, and the kernels trust this.
    let reach = match rows.checked_sub(1) {
        Some(above) if columns > 0 => above
            .checked_mul(stride)
            .and_then(|before| before.checked_add(columns)),
        _ => Some(0),
    };
    assert!(
        reach.is_some_and(|reach| len >= reach) && stride >= columns,
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    precision: Precision,
) {
    let work = Product::new(c, old, factor, a, b);
    Unit::detect().multiply(work, threads, precision);
}

/// A product to compute, its sizes checked.
struct Product<'a> {
    c: MatrixMut<'a>,
    update: Update,
    a: Matrix<'a>,
    b: Matrix<'a>,
}

impl<'a> Product<'a> {
    fn new(c: MatrixMut<'a>, old: Old, factor: f32, a: Matrix<'a>, b: Matrix<'a>) -> Self {
        assert_eq!(a.columns, b.rows, "inner sizes of a product");
        assert_eq!(
            (c.rows, c.columns),
            (a.rows, b.columns),
            "sizes of a product"
        );
        let update = Update { old, factor };
        Self { c, update, a, b }
    }
}

/// What becomes of a sum of products.
#[derive(Clone, Copy)]
struct Update {
    old: Old,
    factor: f32,
}
