//! The model run fast on a GPU.

pub mod device;
pub mod emulated;
pub mod kernels;
