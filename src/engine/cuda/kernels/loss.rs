//! Softmax cross-entropy over rows of logits, with or without a teacher's, and the cosine between
//! hidden states. Logits are overwritten with their gradients.

use crate::engine::DistillationWeights;
use crate::engine::cuda::device::{Address, Cost, Device, Element};
use crate::error::Result;

use super::Batch;

/// Bytes per row that [`cross_entropy`] writes: the loss (f32), and 1 (u32) if the label has the
/// largest logit, else 0.
pub const SCORED: u64 = 8;

/// Bytes per row that [`distillation`] writes: those of [`SCORED`], T² times the divergence of the
/// student's from the teacher's distribution (f32), and 4 unused.
pub const DISTILLED: u64 = 16;

/// Threads per row of logits.
const THREADS: u32 = 512;

/// Cross-entropy over (n, classes).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossEntropy {
    pub n: u32,
    pub classes: u32,
    /// Elements between the starts of rows; fast if a multiple of 8.
    pub stride: u32,
    /// (E) Without the bias; overwritten with the gradient of `weight` times the loss, unless
    /// `weight` is 0.
    pub logits: Address,
    /// (f32)
    pub bias: Address,
    /// (u32) A row whose label is no class has no loss and no gradient.
    pub labels: Address,
    pub weight: f32,
    /// [`SCORED`] bytes per row, out.
    pub scored: Address,
}

/// See [`CrossEntropy`].
pub fn cross_entropy(device: &mut dyn Device, element: Element, a: &CrossEntropy) -> Result<()> {
    let passes = if a.weight == 0.0 { 1 } else { 2 };
    let cost = Cost::of_values(&[(element, passes * super::values(a.n, a.classes))]);
    launch!(device, element, "cross_entropy", ([a.n, 1, 1], THREADS), cost;
        a.classes, a.stride, a.logits, a.bias, a.labels, a.weight, a.scored)
}

/// Cross-entropy of the first and the last token of an answer over the tokens of its sequence, which the two columns of
/// logits score (Devlin et al., section 4.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpanLoss {
    pub batch: Batch,
    /// Elements between the starts of rows.
    pub stride: u32,
    /// (f32), (rows, 2); overwritten with the gradient of `weight` times the loss. Their biases don't change it.
    pub logits: Address,
    /// (u32) The positions of both tokens in each sequence; the column of one that is outside has no loss and no
    /// gradient.
    pub labels: Address,
    pub weight: f32,
    /// [`SCORED`] bytes for each label, out.
    pub scored: Address,
}

/// See [`SpanLoss`].
pub fn span_loss(device: &mut dyn Device, a: &SpanLoss) -> Result<()> {
    let cost = Cost::of_values(&[(Element::F32, 2 * super::values(a.batch.rows, a.stride))]);
    launch!(device, Element::F32, "span_loss", ([a.batch.sequences, 2, 1], THREADS), cost;
        a.stride, a.logits, a.batch.cu_seqlens, a.labels, a.weight, a.scored)
}

/// Cross-entropy over (n, classes) against labels and a teacher's logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistillationLoss {
    pub n: u32,
    pub classes: u32,
    /// Elements between the starts of rows of the student's logits.
    pub stride: u32,
    /// (E) Without the bias; overwritten with the gradient of the weighted loss.
    pub logits: Address,
    /// (f32)
    pub bias: Address,
    /// (u32)
    pub labels: Address,
    /// (f32) (n, classes)
    pub teacher: Address,
    /// Multiplied by the loss scale.
    pub weights: DistillationWeights,
    /// [`DISTILLED`] bytes per row, out.
    pub scored: Address,
}

/// See [`DistillationLoss`].
pub fn distillation(device: &mut dyn Device, element: Element, a: &DistillationLoss) -> Result<()> {
    let logits = super::values(a.n, a.classes);
    let cost = Cost::of_values(&[(element, 2 * logits), (Element::F32, logits)]);
    launch!(device, element, "distillation", ([a.n, 1, 1], THREADS), cost;
        a.classes, a.stride, a.logits, a.bias, a.labels, a.teacher, a.weights.temperature,
        a.weights.soft, a.weights.hard, a.scored)
}

/// One minus the cosine between rows of hidden states, (n, width).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cosine {
    pub n: u32,
    pub width: u32,
    /// (E)
    pub own: Address,
    /// (f32)
    pub theirs: Address,
    /// Multiplied by the loss scale.
    pub weight: f32,
    /// (E) `weight` times the gradient is added.
    pub d_own: Address,
    /// (f32) One minus the cosine of each row, out.
    pub scored: Address,
}

/// See [`Cosine`].
pub fn cosine(device: &mut dyn Device, element: Element, a: &Cosine) -> Result<()> {
    let states = super::values(a.n, a.width);
    let cost = Cost::of_values(&[(element, 3 * states), (Element::F32, states)]);
    launch!(device, element, "cosine", ([a.n.div_ceil(8), 1, 1], 256), cost;
        a.n, a.width, a.own, a.theirs, a.weight, a.d_own, a.scored)
}
