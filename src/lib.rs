//! Cloze: BERT in Rust, to be learned by building it and kept as a trainer.
//!
//! The modules follow the data: [`text`] is read and cut into word pieces, [`data`] makes batches
//! of them, [`model`] is the network, [`engine`] runs it, [`train`] teaches it, [`tasks`] says what
//! for, [`eval`] measures it, [`view`] shows it; [`cli`] is the `cloze` command.

#![cfg_attr(not(test), warn(clippy::print_stderr))]

mod bytes;
#[cfg(feature = "cli")]
pub mod cli;
pub mod data;
#[cfg(feature = "hub")]
pub mod download;
pub mod engine;
pub mod error;
pub mod eval;
pub mod features;
pub mod files;
#[cfg(feature = "hub")]
pub mod hub;
#[cfg(not(feature = "hub"))]
#[path = "hub/absent.rs"]
pub mod hub;
pub mod interrupt;
#[cfg(feature = "charts")]
pub mod lessons;
pub mod memory;
pub mod model;
#[doc(hidden)]
pub mod notes;
pub mod predict;
#[cfg(feature = "charts")]
pub mod prelude;
pub mod random;
pub mod tasks;
pub mod text;
pub mod train;
#[cfg(feature = "charts")]
pub mod view;

pub use engine::{Backend, Precision};
pub use error::{Error, Result};
#[cfg(feature = "charts")]
pub use indicatif;
pub use predict::{
    Answer, Choice, Embedder, Entity, FillMask, Guess, MultipleChoice, NextSentence, Prediction,
    QuestionAnswerer, TextClassifier, TokenClassifier,
};
pub use serde_json;
#[cfg(feature = "charts")]
pub use view::{display, input, progress};
