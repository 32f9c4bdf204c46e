//! From text to batches: one file a data set or format.

pub mod packed;
pub mod pretraining;

pub use packed::Packed;
pub use pretraining::{PretrainingBatch, PretrainingData, PretrainingOptions};
