//! The CUDA engine's kernels: their sources, which devices compile, and a typed launch of each.
//!
//! A source is compiled once per [`Element`], with `ELEMENT` defined as its [`code`]; its type `T`
//! is then the format of activations. In the documentation of launches, "(E)" means values of that
//! type and "(f32)" always single precision. All arithmetic is f32, and every sum is taken in an
//! order that depends only on sizes.

/// Launches a kernel: `launch!(device, element, name, grid, cost; arguments)`, optionally followed by
/// `; more` arguments.
macro_rules! launch {
    ($device:expr, $element:expr, $name:expr, $grid:expr, $cost:expr; $($argument:expr),+ $(; $more:expr)?) => {{
        let arguments = [&[$(super::Argument::from($argument)),+][..], $(&$more[..])?].concat();
        super::launch($device, $element, $name, $grid, $cost, &arguments)
    }};
}

mod attention;
#[cfg(any(test, feature = "cli"))]
mod bandwidth;
mod elementwise;
mod embedding;
mod flash;
mod loss;
mod norm;
mod optimizer;
mod rows;
mod sums;
#[cfg(test)]
mod tests;

pub use attention::{
    AttentionBackward, AttentionForward, Heads, attention_backward, attention_forward,
    attention_kept, attention_scratch,
};
#[cfg(any(test, feature = "cli"))]
pub use bandwidth::{stream_copy, stream_triad};
#[cfg(any(test, feature = "cli"))]
pub use elementwise::add;
pub use elementwise::{
    activation_backward, activation_bias, add_bias, bias_gelu, bias_gradient, cast, gelu_backward,
};
pub use embedding::{
    EmbeddingBackward, EmbeddingForward, Tables, embedding_backward, embedding_forward,
};
pub use loss::{
    Cosine, CrossEntropy, DISTILLED, DistillationLoss, SCORED, SpanLoss, cosine, cross_entropy,
    distillation, span_loss,
};
pub use norm::{Norm, NormBackward, NormForward, norm_backward, norm_forward};
pub use optimizer::{Chunks, Parameters, Step, adamw, lamb, squares_partials, sum_of_squares};
pub use rows::{DropoutRows, add_picked, drop_rows, pick};
pub use sums::partials;

use super::device::{Address, Argument, Cost, Device, Element, Grid, Kernel};
use crate::error::{Error, Result};

/// A text that is compiled separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub name: &'static str,
    /// Preceded by the headers that it includes.
    pub text: &'static str,
}

macro_rules! source {
    ($($name:literal),+) => {
        Source {
            name: [$($name),+][[$($name),+].len() - 1],
            // Error messages then name the file of a line.
            text: concat!($("#line 1 \"", $name, "\"\n", include_str!($name), "\n"),+),
        }
    };
}

/// A source of attention on tensor cores.
macro_rules! flash {
    ($($name:literal),+) => {
        source!("common.cuh", "attention.cuh", "tensor.cuh", "flash.cuh", "scores.cuh", $($name),+)
    };
}

/// All sources.
pub const SOURCES: &[Source] = &[
    source!("common.cuh", "normalise.cuh", "embedding.cu"),
    source!("common.cuh", "normalise.cuh", "norm.cu"),
    source!("common.cuh", "elementwise.cu"),
    source!("common.cuh", "rows.cu"),
    source!("common.cuh", "loss.cu"),
    source!("common.cuh", "optimizer.cu"),
    source!("common.cuh", "attention.cuh", "attention.cu"),
    flash!("flash_forward.cu"),
    flash!("flash_backward.cu"),
    flash!("flash32.cuh", "flash32_forward.cu"),
    flash!("flash32.cuh", "flash32_backward.cu"),
    source!("common.cuh", "bandwidth.cu"),
];

/// The declaration before a kernel's name.
const KERNEL: &str = "extern \"C\" __global__ void";

impl Source {
    /// Returns whether the source has kernels for an element: flash attention, whose factors are
    /// those of tensor cores, has separate sources for f32.
    pub fn is_for(&self, element: Element) -> bool {
        match self.name.split_once('_') {
            Some(("flash", _)) => element != Element::F32,
            Some(("flash32", _)) => element == Element::F32,
            _ => true,
        }
    }

    /// Returns the source of a kernel.
    pub fn of(kernel: &str) -> Option<&'static Source> {
        let has = |source: &&Source| source.kernels().any(|name| name == kernel);
        SOURCES.iter().find(has)
    }

    /// Returns the names of the kernels in the source.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.text.split(KERNEL).skip(1).filter_map(|rest| {
            // Launch bounds may precede the name.
            let rest = match rest.trim_start().strip_prefix("__launch_bounds__(") {
                Some(bounds) => bounds.split_once(')')?.1,
                None => rest,
            };
            Some(rest.split_once('(')?.0.trim())
        })
    }
}

/// Returns the value of `ELEMENT`.
pub fn code(element: Element) -> u32 {
    match element {
        Element::F32 => 0,
        Element::Bf16 => 1,
        Element::F16 => 2,
    }
}

/// A batch on the device: [`crate::data::Packed`], and indices that kernels need besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    pub rows: u32,
    pub sequences: u32,
    /// Rows of the longest sequence.
    pub longest: u32,
    /// Sum of the squares of the sequences' lengths: the pairs of a query and a key.
    pub pairs: u64,
    /// u32 per row, like the next two.
    pub ids: Address,
    pub segments: Address,
    pub positions: Address,
    /// u32, sequences + 1.
    pub cu_seqlens: Address,
    /// u32 per row.
    pub sequence_of_row: Address,
    /// u64 per sequence, as two u32, low and high.
    pub examples: Address,
    /// Rows sorted by id, u32 per row.
    pub word_order: Address,
    /// Start of each distinct id's rows in `word_order`: u32, words + 1. Surplus starts equal the
    /// end.
    pub word_starts: Address,
    /// Distinct ids, or more.
    pub words: u32,
}

/// Dropout at one site, as in [`crate::model::Dropout`]; kernels draw the random numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SiteDropout {
    /// u32 × 3 on the device: low and high half of the seed, and the step. A replayed graph reads
    /// the current values.
    pub state: Address,
    /// [`crate::random::Site::number`].
    pub site: u32,
    /// Draws below this are dropped.
    pub threshold: u32,
    /// Factor of kept values.
    pub scale: f32,
}

/// Returns the kernel parameters `DROPOUT`; without dropout, kernels read none of the addresses.
fn dropout_arguments(dropout: Option<(Batch, SiteDropout)>) -> [Argument; 7] {
    let none = Argument::Address(Address::NONE);
    match dropout {
        None => [none, none, none, none, 0.into(), 0.into(), 1.0.into()],
        Some((batch, dropout)) => [
            dropout.state.into(),
            batch.sequence_of_row.into(),
            batch.positions.into(),
            batch.examples.into(),
            dropout.site.into(),
            dropout.threshold.into(),
            dropout.scale.into(),
        ],
    }
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

/// Returns the number of values of a matrix.
fn values(n: u32, width: u32) -> u64 {
    u64::from(n) * u64::from(width)
}

/// Returns the elements that a thread loads at once: 16 bytes.
fn vector(element: Element) -> u32 {
    16 / element.bytes() as u32
}

/// Launches a kernel on `blocks` of `threads`; without blocks, does nothing.
fn launch(
    device: &mut dyn Device,
    element: Element,
    name: &'static str,
    (blocks, threads): ([u32; 3], u32),
    cost: Cost,
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
    let grid = Grid { blocks, threads, shared: 0 };
    device.announce(cost);
    device.launch(Kernel { name, element }, grid, arguments)
}
