//! Softmax cross-entropy over rows of logits, alone or beside a teacher's, with its gradient in their
//! place; and the cosine between hidden states.

use super::launch;
use crate::engine::DistillationWeights;
use crate::engine::cuda::device::{Address, Device, Element};
use crate::error::Result;

/// Bytes that [`cross_entropy`] leaves a row: the loss (f32), and 1 (u32) where the label was on
/// top, else 0.
pub const SCORED: u64 = 8;

/// Bytes that [`distillation`] leaves a row: those of [`SCORED`], T² times the divergence of the
/// student's from the teacher's distribution (f32), and 4 that mean nothing.
pub const DISTILLED: u64 = 16;

/// Threads that handle a row of logits.
const THREADS: u32 = 512;

/// Cross-entropy over (n, classes).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossEntropy {
    pub n: u32,
    pub classes: u32,
    /// Elements from a row to the next. Fast where it is a multiple of 8.
    pub stride: u32,
    /// (E) Without their bias; the gradient of `weight` times the loss is left in their place,
    /// where `weight` is not 0.
    pub logits: Address,
    /// (f32)
    pub bias: Address,
    /// (u32)
    pub labels: Address,
    pub weight: f32,
    /// [`SCORED`] bytes a row, out.
    pub scored: Address,
}

/// See [`CrossEntropy`].
pub fn cross_entropy(device: &mut dyn Device, element: Element, a: &CrossEntropy) -> Result<()> {
    let arguments = [
        a.classes.into(),
        a.stride.into(),
        a.logits.into(),
        a.bias.into(),
        a.labels.into(),
        a.weight.into(),
        a.scored.into(),
    ];
    launch(
        device,
        element,
        "cross_entropy",
        ([a.n, 1, 1], THREADS),
        &arguments,
    )
}

/// Cross-entropy over (n, classes) beside a teacher's logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistillationLoss {
    pub n: u32,
    pub classes: u32,
    /// Elements from a row of the student's logits to the next.
    pub stride: u32,
    /// (E) Without their bias; the gradient of the weighted loss is left in their place.
    pub logits: Address,
    /// (f32)
    pub bias: Address,
    /// (u32)
    pub labels: Address,
    /// (f32) (n, classes)
    pub teacher: Address,
    /// With the loss scale in them.
    pub weights: DistillationWeights,
    /// [`DISTILLED`] bytes a row, out.
    pub scored: Address,
}

/// See [`DistillationLoss`].
pub fn distillation(device: &mut dyn Device, element: Element, a: &DistillationLoss) -> Result<()> {
    let arguments = [
        a.classes.into(),
        a.stride.into(),
        a.logits.into(),
        a.bias.into(),
        a.labels.into(),
        a.teacher.into(),
        a.weights.temperature.into(),
        a.weights.soft.into(),
        a.weights.hard.into(),
        a.scored.into(),
    ];
    launch(
        device,
        element,
        "distillation",
        ([a.n, 1, 1], THREADS),
        &arguments,
    )
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
    /// With the loss scale in it.
    pub weight: f32,
    /// (E) `weight` times the gradient is added.
    pub d_own: Address,
    /// (f32) One minus the cosine of each row, out.
    pub scored: Address,
}

/// See [`Cosine`].
pub fn cosine(device: &mut dyn Device, element: Element, a: &Cosine) -> Result<()> {
    let arguments = [
        a.n.into(),
        a.width.into(),
        a.own.into(),
        a.theirs.into(),
        a.weight.into(),
        a.d_own.into(),
        a.scored.into(),
    ];
    launch(
        device,
        element,
        "cosine",
        ([a.n.div_ceil(8), 1, 1], 256),
        &arguments,
    )
}
