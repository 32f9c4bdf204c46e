//! What a notebook cell or a lesson starts with: `use cloze::prelude::*;`.

pub use dfdx;
pub use dfdx::prelude::*;

pub use crate::data::Packed;
pub use crate::model::{Bert, Config, Size, gelu};
