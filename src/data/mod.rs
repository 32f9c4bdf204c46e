//! From text to batches: one file a data set or format.

pub mod packed;

pub use packed::Packed;
