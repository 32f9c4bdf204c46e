//! Products in f32 with the `gemm-f32` crate.

use gemm_common::Parallelism;

use super::{Output, Product, Threads};

/// Computes `work`.
pub fn product(work: Product<'_>, threads: Threads) {
    let Product { c, update, a, b } = work;
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // The crate expects a column-major result, and cᵀ = bᵀ aᵀ is one.
    //
    // SAFETY: `Matrix` and `MatrixMut` checked that their rows and columns lie within their slices, and
    // `Product` that their sizes fit each other; `c` is borrowed mutably, so it overlaps neither factor.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            c.columns,
            c.rows,
            a.columns,
            c.values.as_mut_ptr(),
            c.stride as isize,
            1,
            update.output == Output::Accumulate,
            b.values.as_ptr(),
            b.row_stride as isize,
            b.column_stride as isize,
            a.values.as_ptr(),
            a.row_stride as isize,
            a.column_stride as isize,
            1.0,
            update.factor,
            false,
            false,
            false,
            parallelism,
        );
    }
}
