//! Token, segment and position embeddings, their sum normalised, and the gradients of the tables.

use super::norm::{Norm, NormBackward, backward};
use super::sums::{column_grid, finish_sums};
use super::{Batch, SiteDropout, dropout_arguments, launch, vector};
use crate::engine::cuda::device::{Address, Device, Element};
use crate::error::Result;

/// The three tables or their gradients, each (entries, width) (f32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    pub words: Address,
    pub positions: Address,
    pub segments: Address,
    /// Entries of `segments`.
    pub segment_entries: u32,
}

/// `sums = words[id] + segments[s] + positions[p]`, `out = dropout(LayerNorm(sums))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingForward<'a> {
    pub batch: &'a Batch,
    pub width: u32,
    pub tables: Tables,
    pub norm: Norm,
    pub dropout: Option<&'a SiteDropout>,
    /// (E) (rows, width), kept for the backward pass.
    pub sums: Address,
    /// (f32) Mean and one over the standard deviation of each row, kept too.
    pub statistics: Address,
    /// (E) (rows, width)
    pub out: Address,
}

/// Rows that a block of the forward pass handles, one by each warp.
const FORWARD_ROWS: u32 = 8;

/// See [`EmbeddingForward`].
pub fn embedding_forward(
    device: &mut dyn Device,
    element: Element,
    a: &EmbeddingForward<'_>,
) -> Result<()> {
    let mut arguments = vec![
        a.batch.rows.into(),
        a.width.into(),
        a.batch.ids.into(),
        a.batch.segments.into(),
        a.batch.positions.into(),
        a.tables.words.into(),
        a.tables.segments.into(),
        a.tables.positions.into(),
        a.norm.gain.into(),
        a.norm.bias.into(),
        a.norm.epsilon.into(),
        a.sums.into(),
        a.statistics.into(),
        a.out.into(),
    ];
    arguments.extend(dropout_arguments(Some(a.batch), a.dropout)?);
    let blocks = a.batch.rows.div_ceil(FORWARD_ROWS);
    let grid = ([blocks, 1, 1], 32 * FORWARD_ROWS);
    launch(device, element, "embedding_forward", grid, &arguments)
}

/// The gradient of [`EmbeddingForward`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingBackward<'a> {
    pub batch: &'a Batch,
    pub width: u32,
    /// (f32)
    pub gain: Address,
    pub dropout: Option<&'a SiteDropout>,
    /// (E)
    pub sums: Address,
    /// (f32)
    pub statistics: Address,
    /// (E) Unchanged, but where `d_sums` is in its place.
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

/// See [`EmbeddingBackward`]. Widths of more than 640 vectors of 16 bytes are refused.
pub fn embedding_backward(
    device: &mut dyn Device,
    element: Element,
    a: &EmbeddingBackward<'_>,
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
        d_linear: Address::NONE,
        gain_gradient: a.gain_gradient,
        bias_gradient: a.bias_gradient,
        linear_bias_gradient: Address::NONE,
        partials: a.partials,
    };
    backward(device, element, &norm, true)?;
    // A warp's columns, and blocks of eight warps that share an entry's rows.
    let parts = width.div_ceil(32 * vector(element));
    let arguments = [
        width.into(),
        batch.word_order.into(),
        batch.word_starts.into(),
        batch.ids.into(),
        a.d_sums.into(),
        a.tables.words.into(),
    ];
    let grid = ([batch.words, parts, 1], 256);
    launch(device, element, "word_gradients", grid, &arguments)?;
    let arguments = [
        width.into(),
        batch.sequences.into(),
        batch.cu_seqlens.into(),
        a.d_sums.into(),
        a.tables.positions.into(),
    ];
    let grid = ([batch.longest, parts, 1], 256);
    launch(device, element, "position_gradients", grid, &arguments)?;
    // Two entries at a time: BERT has no more.
    for first in (0..a.tables.segment_entries).step_by(2) {
        let (blocks, threads, stripes) = column_grid(element, batch.rows, width);
        let arguments = [
            batch.rows.into(),
            width.into(),
            batch.segments.into(),
            first.into(),
            a.d_sums.into(),
            a.partials.into(),
        ];
        launch(
            device,
            element,
            "segment_sums",
            (blocks, threads),
            &arguments,
        )?;
        let entry = |index: u32| {
            if index < a.tables.segment_entries {
                a.tables
                    .segments
                    .offset(4 * u64::from(index) * u64::from(width))
            } else {
                Address::NONE
            }
        };
        let into = [entry(first), entry(first + 1)];
        finish_sums(device, element, a.partials, stripes, width, &into)?;
    }
    Ok(())
}
