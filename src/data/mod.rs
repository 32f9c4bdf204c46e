//! From text to batches: one file for each data set or format.

pub mod bad;
pub mod bundled;
#[cfg(feature = "hub")]
pub mod catalogue;
pub mod choices;
pub mod conll;
pub mod csv;
pub mod examples;
pub mod glue;
pub mod labels;
pub mod packed;
pub mod pretraining;
pub mod sequences;
pub mod spans;
pub mod split;
pub mod squad;
pub mod table;
pub mod tags;

pub use examples::{Examples, Targets};
pub use packed::Packed;
pub use pretraining::store::TokenStore;
pub use pretraining::{Packing, PretrainingBatch, PretrainingData, PretrainingOptions};
pub use sequences::Sequences;

/// Writes a file into a folder that is deleted when it is dropped.
#[cfg(test)]
fn test_file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    (folder, path)
}
