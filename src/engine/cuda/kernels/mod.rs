//! The CUDA engine's kernels: their sources, which devices compile, and typed launches of each.
//!
//! A source is compiled once for every [`Element`], with `ELEMENT` defined as its [`code`]; the type
//! `T` in it is then what activations are stored as. "(E)" in the documentation of a launch means
//! numbers of that type, "(f32)" single precision whatever the element. All arithmetic is in f32, and
//! every sum is taken in an order that depends on sizes alone.

mod attention;
mod bandwidth;
mod elementwise;
mod embedding;
mod loss;
mod norm;
mod optimizer;
mod rows;
#[cfg(test)]
mod tests;

pub use attention::{
    AttentionBackward, Heads, attention_backward, attention_forward, attention_scratch,
};
pub use bandwidth::{stream_copy, stream_triad};
pub use elementwise::{
    add, add_bias, bias_gelu, bias_gradient, gelu_backward, partials, tanh_backward, tanh_bias,
};
pub use embedding::{
    EmbeddingBackward, EmbeddingForward, Tables, embedding_backward, embedding_forward,
};
pub use loss::{
    Cosine, CrossEntropy, DISTILLED, Distil, SCORED, cosine, cross_entropy, distillation,
};
pub use norm::{Norm, NormBackward, NormForward, norm_backward, norm_forward};
pub use optimizer::{Chunks, Parameters, Step, adamw, lamb, squares_partials, sum_of_squares};
pub use rows::{Drops, add_picked, cast, drop_rows, pick};

use super::device::{Address, Argument, Device, Element, Grid, Kernel};
use crate::error::{Error, Result};

/// Multiprocessors of the largest GPUs.
const MULTIPROCESSORS: u32 = 132;
/// Upper limit of blocks in a backward pass, which leave one partial sum each.
const BACKWARD_BLOCKS: u32 = 4 * MULTIPROCESSORS;

/// A text that is compiled on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub name: &'static str,
    /// With what it shares with the others in front.
    pub text: &'static str,
}

macro_rules! source {
    ($($name:literal),+) => {
        Source {
            name: [$($name),+][[$($name),+].len() - 1],
            // Messages name the file that a line is in.
            text: concat!($("#line 1 \"", $name, "\"\n", include_str!($name), "\n"),+),
        }
    };
}

/// All sources.
pub const SOURCES: &[Source] = &[
    source!("common.cuh", "normalise.cuh", "embedding.cu"),
    source!("common.cuh", "normalise.cuh", "norm.cu"),
    source!("common.cuh", "gelu.cu"),
    source!("common.cuh", "rows.cu"),
    source!("common.cuh", "loss.cu"),
    source!("common.cuh", "optimizer.cu"),
    source!("common.cuh", "attention.cu"),
    source!("common.cuh", "tensor.cuh", "flash.cuh", "flash_forward.cu"),
    source!("common.cuh", "tensor.cuh", "flash.cuh", "flash_backward.cu"),
    source!("common.cuh", "bandwidth.cu"),
];

/// What stands in front of a kernel's name.
const KERNEL: &str = "extern \"C\" __global__ void";

impl Source {
    /// Whether it has kernels for an element: flash attention's products take factors of 16 bits, as
    /// tensor cores do, and in f32 its sources are empty.
    pub fn is_for(&self, element: Element) -> bool {
        element != Element::F32 || !self.name.starts_with("flash_")
    }

    /// The source that has the kernel.
    pub fn of(kernel: &str) -> Option<&'static Source> {
        let has = |source: &&Source| source.kernels().any(|name| name == kernel);
        SOURCES.iter().find(has)
    }

    /// The names of the kernels in it.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.text.split(KERNEL).skip(1).filter_map(|rest| {
            // Bounds on the threads may stand before the name.
            let rest = match rest.trim_start().strip_prefix("__launch_bounds__(") {
                Some(bounds) => bounds.split_once(')')?.1,
                None => rest,
            };
            Some(rest.split_once('(')?.0.trim())
        })
    }
}

/// What `ELEMENT` is defined as.
pub fn code(element: Element) -> u32 {
    match element {
        Element::F32 => 0,
        Element::Bf16 => 1,
        Element::F16 => 2,
    }
}

/// A batch on the device: [`crate::data::Packed`], and what kernels need beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub rows: u32,
    pub sequences: u32,
    /// Rows of the longest sequence.
    pub longest: u32,
    /// u32 a row, like the next two.
    pub ids: Address,
    pub segments: Address,
    pub positions: Address,
    /// u32, sequences + 1.
    pub cu_seqlens: Address,
    /// u32 a row.
    pub sequence_of_row: Address,
    /// u64 a sequence, as two u32, low and high.
    pub examples: Address,
    /// Rows sorted by id, u32 a row.
    pub word_order: Address,
    /// Where each different id's rows start in `word_order`: u32, words + 1. Those of ids that don't
    /// exist start where the next do.
    pub word_starts: Address,
    /// Different ids, or more.
    pub words: u32,
}

/// Dropout at one site: what [`crate::model::Dropout`] says, drawn by the kernel itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropping {
    /// u32 × 3 on the device: the seed's low and high half, the step. A recorded graph reads what
    /// stands there when it is replayed.
    pub state: Address,
    /// [`crate::random::Site::number`].
    pub site: u32,
    /// Draws under this are dropped.
    pub threshold: u32,
    /// What kept values are multiplied by.
    pub kept: f32,
}

/// The parameters `DROPPING` of a kernel; none of the places is read without dropout.
fn dropping(batch: Option<&Batch>, dropping: Option<&Dropping>) -> Result<[Argument; 7]> {
    let none = Argument::Address(Address::NONE);
    Ok(match (dropping, batch) {
        (None, _) => [none, none, none, none, 0.into(), 0.into(), 1.0.into()],
        (Some(d), Some(b)) => [
            d.state.into(),
            b.sequence_of_row.into(),
            b.positions.into(),
            b.examples.into(),
            d.site.into(),
            d.threshold.into(),
            d.kept.into(),
        ],
        (Some(_), None) => {
            return Err(Error::Failed(
                "dropout needs the batch whose rows it drops".into(),
            ));
        }
    })
}

impl From<Address> for Argument {
    fn from(at: Address) -> Self {
        Self::Address(at)
    }
}

impl From<u32> for Argument {
    fn from(number: u32) -> Self {
        Self::U32(number)
    }
}

impl From<f32> for Argument {
    fn from(number: f32) -> Self {
        Self::F32(number)
    }
}

/// Elements that a thread loads at once: 16 bytes.
fn vector(element: Element) -> u32 {
    16 / element.bytes() as u32
}

/// Launches a kernel on `blocks` of `threads`. Nothing happens where there is no block.
fn launch(
    device: &mut dyn Device,
    element: Element,
    name: &'static str,
    (blocks, threads): ([u32; 3], u32),
    arguments: &[Argument],
) -> Result<()> {
    if blocks.contains(&0) {
        return Ok(());
    }
    // Limits of every GPU since compute capability 3.0.
    if blocks[0] > i32::MAX as u32 || blocks[1].max(blocks[2]) > 65_535 || threads > 1024 {
        return Err(Error::Failed(format!(
            "the kernel {name} cannot run on {blocks:?} blocks of {threads} threads: the batch is too large"
        )));
    }
    let grid = Grid {
        blocks,
        threads,
        shared: 0,
    };
    device.launch(Kernel { name, element }, grid, arguments)
}
