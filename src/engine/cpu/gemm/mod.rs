//! Products of f32 matrices, in f32 or with the processor's bf16 instructions.
//!
//! The engine calls only [`product`]. In f32 it uses the `gemm-f32` crate ([`sgemm`]). In bf16,
//! [`blocked`] divides the product into blocks, [`pack`] rounds the operands into tiles and a
//! [`blocked::Kernel`] multiplies those: [`avx512`], [`amx`] or `neon`. [`unit`] detects which of them this
//! processor has. Inference with weights of 8 bits has products of its own ([`int8`]).

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod blocked;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod check;
mod int8;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod pack;
mod rounding;
mod scratch;
mod sgemm;
#[cfg(test)]
mod tests;
mod unit;

use std::sync::Arc;

use crate::engine::Precision;
use crate::engine::simd::Simd;

pub use self::rounding::round as round_to_bf16;
pub use self::unit::Unit;

/// A read-only matrix: rows and columns of a slice, with any strides.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Returns a row-major matrix without gaps.
    pub fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// Returns a row-major matrix whose rows start `stride` values apart.
    pub fn strided(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(values.len(), rows, columns, stride);
        Self { values, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// Returns the transposed matrix.
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

/// A writable row-major matrix.
pub struct MatrixMut<'a> {
    values: &'a mut [f32],
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Returns a matrix without gaps.
    pub fn new(values: &'a mut [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// Returns a matrix whose rows start `stride` values apart.
    pub fn strided(values: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(values.len(), rows, columns, stride);
        Self { values, rows, columns, stride }
    }
}

/// Panics if a row-major matrix exceeds its `len` values or its rows overlap.
fn check(len: usize, rows: usize, columns: usize, stride: usize) {
    // Checked arithmetic: the kernels rely on this, and a wrapped sum would pass.
    let reach = match rows.checked_sub(1) {
        Some(above) if columns > 0 => {
            above.checked_mul(stride).and_then(|before| before.checked_add(columns))
        }
        _ => Some(0),
    };
    assert!(
        reach.is_some_and(|reach| len >= reach) && stride >= columns,
        "{len} values for a matrix of {rows}×{columns} with stride {stride}"
    );
}

/// The threads that compute a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    One,
    /// All of the rayon pool, if the product is large enough.
    All,
}

/// Whether a product overwrites its output or is added to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Overwrite,
    Accumulate,
}

/// `c = factor · a b`, or `c += factor · a b`.
pub fn product(
    c: MatrixMut<'_>,
    output: Output,
    factor: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    threads: Threads,
    precision: Precision,
) {
    let work = Product::new(c, output, factor, a, b);
    Unit::detect().multiply(work, threads, precision);
}

/// A weight, (outputs, inputs), that was rounded and packed once for many products.
pub trait PackedWeight: Send + Sync {
    /// `y = x Wᵀ`: (rows, inputs) to (rows, outputs).
    fn multiply(&self, x: &[f32], y: &mut [f32]);
}

/// Returns whether this machine packs weights for products in this precision: to 8 bits, or for its bf16 unit.
pub fn packs_weights(precision: Precision) -> bool {
    precision == Precision::Int8 || Unit::detect().of(precision) != Unit::F32
}

/// Packs a weight, (outputs, inputs), if this machine does in this precision.
pub fn pack_weight(
    simd: Simd,
    precision: Precision,
    values: &[f32],
    inputs: usize,
) -> Option<Arc<dyn PackedWeight>> {
    if precision == Precision::Int8 {
        return Some(Arc::new(int8::Weight::new(simd, values, inputs)));
    }
    Unit::detect().pack(Matrix::new(values, values.len() / inputs, inputs), precision)
}

/// A product with checked sizes.
struct Product<'a> {
    c: MatrixMut<'a>,
    update: Update,
    a: Matrix<'a>,
    b: Matrix<'a>,
}

impl<'a> Product<'a> {
    fn new(c: MatrixMut<'a>, output: Output, factor: f32, a: Matrix<'a>, b: Matrix<'a>) -> Self {
        assert_eq!(a.columns, b.rows, "inner sizes of a product");
        assert_eq!((c.rows, c.columns), (a.rows, b.columns), "sizes of a product");
        let update = Update { output, factor };
        Self { c, update, a, b }
    }
}

/// How a sum of products is written to the output.
#[derive(Clone, Copy)]
struct Update {
    output: Output,
    factor: f32,
}
