//! What a notebook cell or a lesson starts with: `use cloze::prelude::*;`.

pub use dfdx;
pub use dfdx::prelude::*;

pub use crate::data::Packed;
pub use crate::display::{self, Show};
pub use crate::model::{Bert, Config, Size, gelu};
pub use crate::text::{Casing, WordPiece};
pub use crate::view::{BarChart, HeatMap, LineChart, LiveChart, TokenStrip};
pub use crate::{check, hint, show, solved};
