//! A GPU as a [`Device`](super::device::Device).

mod library;
pub mod nvrtc;
pub mod search;
