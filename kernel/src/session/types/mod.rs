//! Reads the types that rustc and rust-analyzer print, and writes them in short: `(2, 3) f32 cpu`.
//! `explain` uses them for sentences that compare shapes (`2×3`).

mod reader;
mod short;
mod tensor;

pub use reader::{Form, Type, is_name, read, read_first};
pub use short::{parts, short, short_tensors};
pub use tensor::{Size, Tape, Tensor, sizes};

/// A type that is not known.
pub const UNKNOWN: &str = "_";
