//! Where the CPU engine's time goes: the work and the time of each kind of kernel, for `cloze bench train --roofline`.
//!
//! While nothing is recorded, a kernel reads one flag more. A recording adds up the kernels of all engines of the
//! process, and the times of threads that run kernels beside each other.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::data::Packed;

/// A kind of kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// A linear layer.
    ForwardProduct,
    /// The gradient of a linear layer's input.
    InputGradient,
    /// The gradient of a linear layer's weight.
    WeightGradient,
    /// Softmax attention between queries, keys and values.
    Attention,
    /// Its backward pass.
    AttentionGradient,
    /// LayerNorm, with dropout and the skip connection before it.
    Norm,
    /// Its backward pass.
    NormGradient,
    /// GELU, with the bias before it.
    Gelu,
    /// Its backward pass, with the sums that are the bias's gradient.
    GeluGradient,
    /// Other biases and their gradients.
    Bias,
    /// The sums of embeddings with their LayerNorm, and their gradients.
    Embedding,
    /// The softmax and the loss of the masked-LM head.
    Loss,
    /// The norm of the gradients and the optimizer.
    Update,
}

impl Kernel {
    /// All kinds, with their names.
    pub const ALL: [(Self, &str); 13] = [
        (Self::ForwardProduct, "products, forward"),
        (Self::InputGradient, "products, gradients of inputs"),
        (Self::WeightGradient, "products, gradients of weights"),
        (Self::Attention, "attention, forward"),
        (Self::AttentionGradient, "attention, backward"),
        (Self::Norm, "LayerNorm, forward"),
        (Self::NormGradient, "LayerNorm, backward"),
        (Self::Gelu, "GELU, forward"),
        (Self::GeluGradient, "GELU, backward"),
        (Self::Bias, "biases"),
        (Self::Embedding, "embeddings"),
        (Self::Loss, "loss"),
        (Self::Update, "optimizer"),
    ];
}

/// What calls of a kernel compute and move.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Number of calls.
    pub calls: u64,
    /// Floating-point operations. Outside products they are estimates.
    pub flops: f64,
    /// Bytes read and written, if each operand moves once.
    pub bytes: f64,
    /// Their time.
    pub seconds: f64,
}

/// The work of every [`Kernel`], in the order of [`Kernel::ALL`].
pub type Works = [Work; Kernel::ALL.len()];

static RECORDING: AtomicBool = AtomicBool::new(false);
static WORKS: Mutex<Works> =
    Mutex::new([Work { calls: 0, flops: 0.0, bytes: 0.0, seconds: 0.0 }; Kernel::ALL.len()]);

fn works() -> MutexGuard<'static, Works> {
    WORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` and returns what it returns, and what each kernel did meanwhile.
pub fn recorded<R>(work: impl FnOnce() -> R) -> (R, Works) {
    *works() = Works::default();
    RECORDING.store(true, Relaxed);
    let result = work();
    RECORDING.store(false, Relaxed);
    (result, *works())
}

/// Until it is dropped, a kernel runs.
#[must_use]
pub(super) struct Timer(Option<(Kernel, Work, Instant)>);

impl Kernel {
    /// Starts a kernel that makes `flops` operations for each of `values` values, for which it reads or writes
    /// `moved` f32 each.
    pub(super) fn on_values(self, values: usize, flops: usize, moved: usize) -> Timer {
        self.start(|| ((values * flops) as f64, values * moved))
    }

    /// Starts a product of (rows, inner) and (inner, columns).
    pub(super) fn on_matrices(self, rows: usize, inner: usize, columns: usize) -> Timer {
        self.start(|| {
            let flops = 2.0 * rows as f64 * inner as f64 * columns as f64;
            (flops, rows * inner + inner * columns + rows * columns)
        })
    }

    /// Starts `products` products between the tokens of each sequence, over `width` values, and reads or writes
    /// `moved` of those rows for each token.
    pub(super) fn on_sequences(
        self,
        batch: &Packed,
        width: usize,
        products: usize,
        moved: usize,
    ) -> Timer {
        self.start(|| {
            let pairs: usize = batch.ranges().map(|rows| rows.len() * rows.len()).sum();
            (2.0 * products as f64 * pairs as f64 * width as f64, moved * batch.rows() * width)
        })
    }

    /// Starts a kernel with operations and f32 that are moved.
    fn start(self, work: impl FnOnce() -> (f64, usize)) -> Timer {
        Timer(RECORDING.load(Relaxed).then(|| {
            let (flops, moved) = work();
            let bytes = (size_of::<f32>() * moved) as f64;
            (self, Work { calls: 1, flops, bytes, seconds: 0.0 }, Instant::now())
        }))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some((kernel, work, begun)) = self.0.take() {
            let seconds = begun.elapsed().as_secs_f64();
            let total = &mut works()[kernel as usize];
            total.calls += work.calls;
            total.flops += work.flops;
            total.bytes += work.bytes;
            total.seconds += seconds;
        }
    }
}
