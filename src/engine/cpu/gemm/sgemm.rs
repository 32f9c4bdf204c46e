//! Products in f32, on the `gemm-f32` crate.

use gemm_common::Parallelism;

use super::{Old, Product, Threads};

/// Computes `work`.
pub fn product(work: Product<'_>, threads: Threads) {
    let Product { c, update, a, b } = work;
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
            update.old == Old::Add,
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
