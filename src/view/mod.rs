//! Charts, pictures of tensors, and displays in a notebook.

pub mod attention;
mod axis;
pub mod bars;
pub mod chart;
pub mod display;
pub mod flow;
pub mod heat;
pub mod input;
pub mod live;
pub mod page;
pub(crate) mod picture;
mod png;
pub mod progress;
pub mod roofline;
pub mod scatter;
pub mod show;
mod smooth;
pub mod steps;
pub mod style;
pub mod tensor;
mod text_plot;
pub mod tokens;

pub use attention::AttentionView;
pub use bars::BarChart;
pub use chart::LineChart;
pub use display::Show;
pub use flow::Flow;
pub use heat::HeatMap;
pub use live::LiveChart;
pub use roofline::RooflineChart;
pub use scatter::Scatter;
pub use steps::{Step, StepMap};
pub use tokens::TokenStrip;
