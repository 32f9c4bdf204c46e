//! The model run fast on a GPU.

pub mod device;
pub mod driver;
pub mod emulated;
pub mod kernels;
