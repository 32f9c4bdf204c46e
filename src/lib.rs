//! Cloze is BERT in Rust: models that fill blanks, classify, tag, answer and embed, and the training of such
//! models, on CPUs and NVIDIA GPUs. It reads and writes the files of Hugging Face's transformers. Its command is
//! `cloze`, and its notebooks teach how all of it works.
//!
//! # Use a model
//!
//! ```
//! use cloze::FillMask;
//!
//! # fn main() -> cloze::Result<()> {
//! let model = FillMask::load("cloze-small")?;
//! let answers = model.top(&["She opened the [MASK] and went in."], 3)?;
//! let tokens: Vec<&str> = answers[0][0].iter().map(|guess| guess.token.as_str()).collect();
//! assert_eq!(tokens, ["door", "room", "window"]);
//! # Ok(())
//! # }
//! ```
//!
//! `cloze-small` is a small model that comes with Cloze. `load` takes a model folder, or the name of a model on the
//! Hugging Face Hub, such as `google-bert/bert-base-uncased`.
//!
//! | task | type | answer |
//! |---|---|---|
//! | fill blanks | [`FillMask`] | [`Guess`]es for every `[MASK]` |
//! | does B follow A? | [`NextSentence`] | a probability |
//! | classify or score texts and pairs | [`TextClassifier`] | a [`Prediction`] |
//! | find names and the like | [`TokenClassifier`] | [`Entity`]s with their places |
//! | answer questions from a text | [`QuestionAnswerer`] | an [`Answer`] with its place |
//! | choose one of several texts | [`MultipleChoice`] | a [`Choice`] |
//! | compare and search texts | [`Embedder`] | a vector |
//!
//! [`predict`] says what they have in common.
//!
//! # Train a model
//!
//! [`train::Pretraining`] trains a BERT on your own text, [`train::Finetuning`] a model for a [task](tasks):
//!
//! ```no_run
//! use cloze::train::Finetuning;
//! use cloze::{TextClassifier, tasks};
//!
//! # fn main() -> cloze::Result<()> {
//! let task = tasks::your_own("text,label", "mails.csv")?;
//! let mut run = Finetuning::builder(task, "model").train("mails.csv").build()?;
//! run.run(|progress| println!("{progress}"))?;
//! run.save("spam")?;
//! let predictions = TextClassifier::load("spam")?.predict(&["You have won a prize!"])?;
//! println!("{}", predictions[0].label);
//! # Ok(())
//! # }
//! ```
//!
//! # Build profile
//!
//! Without optimisation, Cloze computes tens of times slower. These lines in the `Cargo.toml` of your program (of
//! the workspace, if there is one) optimise the dependencies of debug builds too:
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```
//!
//! The engine is compiled with Cloze, so your own code stays unoptimised and quick to build. Only the reference
//! model, [`model::Bert`], is generic over its size and its device, and is compiled with the code that names them:
//! for it, set `opt-level` in `[profile.dev]` too.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | none | text, data, models, the CPU engine, tasks, training and the types above |
//! | `hub` | models by their name on the Hugging Face Hub, and data sets |
//! | `cuda` | the engine for NVIDIA GPUs; no toolkit is needed to build it |
//! | `charts` | charts, displays in notebooks, lessons, the HTML report and model card of a run |
//! | `onnx` | models written as ONNX files |
//! | `cli` | the `cloze` command; includes `hub`, `charts` and `onnx` |
//!
//! These are on by default. Two are not: `dfdx-cuda` (the reference model on a GPU) and `emulator` (the emulated GPU of
//! `cloze bench --gpu-selftest --emulate`).
//!
//! # Read on
//!
//! The modules follow the data: [`text`] is read and cut into word pieces, [`data`] makes batches of them, [`model`]
//! is the network, [`engine`] runs it, [`features`] are its vectors, [`eval`] measures it, [`train`] trains it for
//! [`tasks`], [`predict`] answers with it. [`model`] has a reading order for the mathematics. The folder `examples`
//! has a program for every use, `docs/` a guide for each, and the lessons (`cargo lab`) build BERT step by step.

#![deny(missing_docs)]
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
pub mod ranks;
pub mod tasks;
pub mod text;
pub mod train;
#[cfg(feature = "charts")]
pub mod view;

pub use dfdx;
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
