//! The names that lessons and notebook cells import: `use cloze::prelude::*;`.

pub use dfdx;
pub use dfdx::prelude::*;

pub use crate::data::{Packed, Packing, PretrainingBatch, PretrainingData, PretrainingOptions};
pub use crate::display::{self, Show};
pub use crate::engine::{
    Backend, BertEngine, CpuEngine, Engine, PretrainingEngine, Reference, TaskEngine,
};
pub use crate::lessons::{FollowToken, Picture};
pub use crate::model::{Bert, Config, Layout, PRETRAINING, Size, Taped, gelu, project};
pub use crate::text::{Casing, WordPiece};
pub use crate::train::{Pretrainer, Settings, Stop};
pub use crate::view::{AttentionView, BarChart, HeatMap, LineChart, LiveChart, Slider, TokenStrip};
pub use crate::{check, hint, input, progress, show, solved};
