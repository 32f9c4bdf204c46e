//! What a lesson's cell needs, by one `use cloze::prelude::*;`.

pub use dfdx;
pub use dfdx::prelude::*;

pub use crate::display::{self, Show};
