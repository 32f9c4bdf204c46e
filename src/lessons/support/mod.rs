//! What the lessons need and do not teach: preparing data, drawing, printing tables. One file for the lessons of one
//! subject.

pub mod attention;
pub mod basics;
pub mod choices;
pub mod finetuning;
pub mod inside;
pub mod masked_lm;
pub mod pretraining;
pub mod spans;
pub mod speed;
pub mod tagging;
pub mod variants;
pub mod yours;
