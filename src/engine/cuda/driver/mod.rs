//! A GPU as a [`Device`](super::device::Device), without a toolkit: the driver, NVRTC and cuBLASLt
//! are opened where they are installed ([`probe`]), and kernels are compiled at their first launch.
//! [`nccl`] connects the GPUs of several processes.
//!
//! It has run on one H100, with NCCL on one rank; `docs/gpu.md` has the date. Tests use fake libraries (`fake.c` and
//! `fake_nccl.c`, which they compile), which delay work until it is waited for, check calls against the documentation
//! and compute products by definition; [`nvrtc`] is tested with NVIDIA's compiler, which needs no GPU.

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
