//! The BERT of the lessons, in dfdx: embeddings, attention, encoder, heads, and the one declaration
//! of its parameters.
//!
//! This is the *reference* run: the readable model, with shapes in its types, against which faster
//! engines are checked. What a forward pass needs from the outside is a [`crate::data::Packed`]
//! batch; what it gives is one row for each real token.

mod bert;
mod build;
mod config;
mod dropout;
mod flops;
mod heads;
mod inspect;
mod layers;
mod ops;
mod parameters;
mod size;
pub mod weights;

pub use bert::{Bert, pick, real_rows};
pub use build::Builder;
pub use config::Config;
pub use dropout::{ATTENTION_STRIDE, Dropout, check_longest, threshold};
pub use flops::{flops_per_token, head_flops_per_token};
pub use heads::{LinearHead, MaskedLmHead, Rows, cross_entropy};
pub use inspect::{LayerAttention, SequenceAttention};
pub use layers::{Attention, Embeddings, Hidden, Keys, Layer, Pass, Queries, look};
pub use ops::{BertDevice, Real, elementwise, gelu};
pub use parameters::{Init, Layout, Over, PRETRAINING, Parameter, Part, TaskHead, declare};
pub use size::Size;
