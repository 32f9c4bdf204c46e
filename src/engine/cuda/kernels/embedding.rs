//! Token, segment and position embeddings, the LayerNorm of their sum, and the gradients of the
//! tables.

use super::norm::{Norm, NormBackward, backward};
use super::sums::{column_grid, finish_sums};
use super::{Batch, SiteDropout, dropout_arguments, values, vector};
use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::error::Result;

/// The three tables or their gradients, each (entries, width) (f32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    pub words: Address,
    pub positions: Address,
    /// [`Address::NONE`] if the model has no segments.
    pub segments: Address,
    /// Entries of `segments`.
    pub segment_entries: u32,
}

/// `sums = words[id] + segments[s] + positions[p]`, `out = dropout(LayerNorm(sums))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingForward {
    pub batch: Batch,
    pub width: u32,
    pub tables: Tables,
    pub norm: Norm,
    pub dropout: Option<SiteDropout>,
    /// (E) (rows, width), for the backward pass.
    pub sums: Address,
    /// (f32) Mean and reciprocal standard deviation of each row, for the backward pass.
    pub statistics: Address,
    /// (E) (rows, width)
    pub out: Address,
}

/// Rows per block of the forward pass, one per warp.
const FORWARD_ROWS: u32 = 8;

/// See [`EmbeddingForward`].
pub fn embedding_forward(
    device: &mut dyn Device,
    element: Element,
    a: &EmbeddingForward,
) -> Result<()> {
    let blocks = a.batch.rows.div_ceil(FORWARD_ROWS);
    let grid = ([blocks, 1, 1], 32 * FORWARD_ROWS);
    let sums = values(a.batch.rows, a.width);
    let read = sums + values(a.batch.longest, a.width);
    let cost = Cost::of_values(&[(element, 2 * sums), (Element::F32, read)]);
    launch!(device, element, "embedding_forward", grid, cost;
        a.batch.rows, a.width, a.batch.ids, a.batch.segments, a.batch.positions, a.tables.words,
        a.tables.segments, a.tables.positions, a.norm.gain, a.norm.bias, a.norm.epsilon, a.sums,
        a.statistics, a.out; dropout_arguments(a.dropout.map(|dropout| (a.batch, dropout))))
}

/// The gradient of [`EmbeddingForward`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingBackward {
    pub batch: Batch,
    pub width: u32,
    /// (f32)
    pub gain: Address,
    pub dropout: Option<SiteDropout>,
    /// (E)
    pub sums: Address,
    /// (f32)
    pub statistics: Address,
    /// (E) Unchanged unless it equals `d_sums`.
    pub d_out: Address,
    /// (E) Out.
    pub d_sums: Address,
    /// (f32) Added to.
    pub gain_gradient: Address,
    /// (f32) Added to.
    pub bias_gradient: Address,
    /// (f32) Added to.
    pub tables: Tables,
    /// Scratch of [`partials`](super::partials)`(width)` bytes.
    pub partials: Address,
}

/// See [`EmbeddingBackward`]. Returns an error for widths over 640 vectors of 16 bytes.
pub fn embedding_backward(
    device: &mut dyn Device,
    element: Element,
    a: &EmbeddingBackward,
) -> Result<()> {
    let (batch, width) = (a.batch, a.width);
    let norm = NormBackward {
        n: batch.rows,
        width,
        gain: a.gain,
        sums: a.sums,
        statistics: a.statistics,
        dropout: a.dropout.map(|dropout| (batch, dropout)),
        d_out: a.d_out,
        d_residual: a.d_sums,
        gain_gradient: a.gain_gradient,
        bias_gradient: a.bias_gradient,
        partials: a.partials,
        ..NormBackward::default()
    };
    backward(device, element, &norm, true)?;
    // Columns per warp; blocks of eight warps share an entry's rows.
    let parts = width.div_ceil(32 * vector(element));
    let sums = values(batch.rows, width);
    let cost = |entries: u32| {
        Cost::of_values(&[(element, sums), (Element::F32, 2 * values(entries, width))])
    };
    let grid = ([batch.words, parts, 1], 256);
    launch!(device, element, "word_gradients", grid, cost(batch.words);
        width, batch.word_order, batch.word_starts, batch.ids, a.d_sums, a.tables.words)?;
    let grid = ([batch.longest, parts, 1], 256);
    launch!(device, element, "position_gradients", grid, cost(batch.longest);
        width, batch.sequences, batch.cu_seqlens, a.d_sums, a.tables.positions)?;
    // Two entries at a time, which is all that BERT has.
    for first in (0..a.tables.segment_entries).step_by(2) {
        let (blocks, threads, stripes) = column_grid(element, batch.rows, width);
        launch!(device, element, "segment_sums", (blocks, threads), cost(0);
            batch.rows, width, batch.segments, first, a.d_sums, a.partials)?;
        let entry = |index: u32| {
            if index < a.tables.segment_entries {
                a.tables.segments.offset(4 * u64::from(index) * u64::from(width))
            } else {
                Address::NONE
            }
        };
        let into = [entry(first), entry(first + 1)];
        finish_sums(device, element, a.partials, stripes, width, &into)?;
    }
    Ok(())
}
