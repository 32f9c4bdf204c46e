//! A GPU as a [`Device`](super::device::Device), without a toolkit: the driver, NVRTC and cuBLASLt are
//! opened where they lie ([`probe`]), kernels are compiled when they are first launched.
//!
//! What has run where: [`nvrtc`] and [`search`] with the real compiler, without a GPU. Everything
//! else was run with libraries that stand in for NVIDIA's (`fake.c`, made by the tests): they
//! keep work back until it is waited for, check what they are given and multiply by the book. **No
//! line of this has run on a GPU**: neither a context, nor a copy, launch, product or recording; nor
//! was NVIDIA's own cuBLASLt ever asked for an algorithm.

mod api;
mod cache;
mod context;
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
pub use probe::{Found, Missing, probe};
