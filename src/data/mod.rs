//! From text to batches: one file a data set or format.

pub mod catalogue;
pub mod glue;
pub mod packed;
pub mod pretraining;
pub mod sequences;

pub use packed::Packed;
pub use pretraining::{PretrainingBatch, PretrainingData, PretrainingOptions};
pub use sequences::Sequences;
