//! A GPU as a [`Device`](super::device::Device), without a toolkit: the driver, NVRTC and cuBLASLt
//! are opened where they are installed ([`probe`]), and kernels are compiled at their first launch.
//!
//! What has been tested with real libraries: [`nvrtc`] and [`search`] with NVIDIA's compiler, which
//! needs no GPU; the descriptions of products with NVIDIA's cuBLASLt 13.0, which accepted all of
//! them. Everything else was tested with fake libraries (`fake.c`, compiled by the tests), which
//! delay work until it is waited for, check calls against the documentation and compute products by
//! definition. **Nothing here has run on a GPU**: no context, copy, launch, product or recording;
//! NVIDIA's cuBLASLt was never asked for an algorithm, and its driver never called.

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
