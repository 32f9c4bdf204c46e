//! The types that rustc and rust-analyzer print: read once, and told in two ways. Here as people
//! read them (`(2, 3) f32 cpu`), and in `explain` as sentences compare them (`2×3`).

mod reader;
mod short;
mod tensor;

pub use reader::{Form, Type, read};
pub use short::{UNKNOWN, parts, short, short_tensors};
pub use tensor::{Size, Tape, Tensor, sizes};
