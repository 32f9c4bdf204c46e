//! A GPU as a [`Device`](super::device::Device), without a toolkit: the driver, NVRTC and cuBLASLt
//! are opened where they are installed ([`probe`]), and kernels are compiled at their first launch.
//! [`nccl`] connects the GPUs of several processes.
//!
//! What has been tested with real libraries: [`nvrtc`] and [`search`] with NVIDIA's compiler, which
//! needs no GPU; the descriptions of products with NVIDIA's cuBLASLt 13.0, which accepted all of
//! them; [`nccl`] with NVIDIA's NCCL 2.32, which gave its version and an identity. Everything else
//! was tested with fake libraries (`fake.c` and `fake_nccl.c`, compiled by the tests), which delay
//! work until it is waited for, check calls against the documentation and compute products by
//! definition. **Nothing here has run on a GPU**: no context, copy, launch, product or recording;
//! NVIDIA's cuBLASLt was never asked for an algorithm, its NCCL never connected ranks, and its
//! driver was never called.

mod api;
pub mod cache;
mod choices;
mod context;
mod cublaslt;
#[cfg(test)]
pub mod fake;
mod gpu;
mod library;
mod lt;
mod modules;
pub mod nccl;
pub mod nvrtc;
mod points;
mod probe;
pub mod search;
mod staging;

pub use gpu::Gpu;
pub use probe::{Missing, probe, take_gpu};
