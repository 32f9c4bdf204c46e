//! From text to batches: one file a data set or format.

pub mod bad;
pub mod bundled;
#[cfg(feature = "hub")]
pub mod catalogue;
pub mod choices;
pub mod conll;
pub mod examples;
pub mod glue;
pub mod labels;
pub mod packed;
pub mod pretraining;
pub mod records;
pub mod sequences;
pub mod squad;
pub mod table;
pub mod tags;

pub use examples::{Examples, Targets};
pub use packed::Packed;
pub use pretraining::{Packing, PretrainingBatch, PretrainingData, PretrainingOptions};
pub use sequences::Sequences;
