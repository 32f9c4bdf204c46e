//! A GPU as a [`Device`](super::device::Device), without a toolkit: the driver, NVRTC and cuBLASLt are
//! opened where they lie ([`probe`]), kernels are compiled when they are first launched.
//!
//! What has run where: [`nvrtc`] and [`search`] with NVIDIA's compiler, which needs no GPU; the
//! descriptions of products with NVIDIA's cuBLASLt 13.0, which took all of them. Everything else ran
//! with libraries that stand in for NVIDIA's (`fake.c`, compiled by the tests): they keep work back
//! until it is waited for, hold calls to the documentation and multiply by the book. **No line of this
//! has run on a GPU**: no context, copy, launch, product or recording; nor has NVIDIA's cuBLASLt been
//! asked for an algorithm, or its driver for anything.

mod api;
mod cache;
mod context;
mod cublaslt;
#[cfg(test)]
mod fake;
mod gpu;
mod library;
mod lt;
mod modules;
pub mod nvrtc;
mod probe;
pub mod search;
mod staging;

pub use gpu::Gpu;
pub use probe::{Missing, probe};
