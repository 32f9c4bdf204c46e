//! Cloze: BERT in Rust, to be learned by building it and kept as a trainer.
//!
//! The modules follow the data: [`text`] is read and cut into word pieces, [`data`] makes batches
//! of them, [`model`] is the network, [`train`] teaches it, [`eval`] measures it, [`view`] shows it.

pub mod data;
pub mod error;
pub mod lessons;
pub mod random;
pub mod text;
pub mod view;

pub use error::{Error, Result};
