//! The BERT of the lessons, in dfdx: the *reference* model, with shapes in its types, against which
//! faster engines are checked. It takes a [`crate::data::Packed`] batch and returns one row per
//! real token.
//!
//! Read the files in this order: `config.rs` and `size.rs` (hyperparameters), `parameters.rs` (the
//! one declaration of all parameters), then the forward pass: `layers.rs` (embeddings, attention,
//! encoder layer), `heads.rs`, `bert.rs` (the whole model). `family.rs` says how RoBERTa,
//! DistilBERT and ELECTRA differ from it. `ops.rs` and `dropout.rs` hold the two
//! operations that dfdx lacks, `build.rs` fills the modules from a flat buffer, [`weights`] reads
//! and writes model folders, `onnx/` writes ONNX files, `inspect.rs` returns attention probabilities for views, and `flops.rs`
//! counts operations.

mod bert;
mod build;
mod config;
mod dropout;
mod family;
mod flops;
mod heads;
mod inspect;
mod layers;
#[cfg(feature = "onnx")]
pub mod onnx;
mod ops;
mod parameters;
mod size;
pub mod weights;

pub use bert::{Bert, pick, real_rows};
pub use config::Config;
pub use dropout::{ATTENTION_STRIDE, Dropout, check_longest, threshold};
pub use family::{Activation, Family};
pub use flops::{flops_per_token, head_flops_per_token};
pub use heads::{LinearHead, MaskedLmHead, Rows, cross_entropy};
pub use inspect::{LayerAttention, SequenceAttention};
pub use layers::{
    Attention, Embeddings, Hidden, Keys, Layer, Pass, Queries, Taped, attention_probabilities,
    project,
};
pub use ops::{BertDevice, Real, elementwise, gelu};
pub use parameters::{
    HeadInput, Init, Layout, PRETRAINING, Parameter, Part, TaskHead, Tuning, declare,
};
pub use size::Size;
