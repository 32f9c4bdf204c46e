//! The options for what computes, and how.

use std::sync::Once;

use clap::ValueEnum;

use super::checks::{option_name, refuse};
use crate::engine::{Backend, INFERENCE_ONLY, Precision, Recompute, Setup};
use crate::error::Result;
use crate::note;

/// Options of the commands that run a model.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct EngineArgs {
    /// What computes: the readable dfdx model, or the fused engine on the CPU or on an NVIDIA GPU
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Number format of the matrix products; parameters, sums and the optimizer are f32
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// How f32 matrix products are computed: fast splits each into three of bf16 if the processor has
    /// matrix units for them, and uses TF32 on a GPU
    #[arg(long, value_enum, default_value_t = Matmul::Exact)]
    matmul: Matmul,
    /// Add up the parts of a batch in a fixed order: several ranks then compute the same bits as one that computes
    /// their parts as micro-batches. Without ranks, every run on the same device gives the same bits anyway
    #[arg(long)]
    deterministic: bool,
}

/// Options of the commands that train a model.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct TrainingEngineArgs {
    #[command(flatten)]
    pub(crate) run: EngineArgs,
    /// Compute layers again in the backward pass instead of keeping them: less memory, more work
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "layers")]
    recompute: Option<Recompute>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dtype {
    F32,
    Bf16,
    /// With a scaled loss, on a GPU
    F16,
    /// Weights of 8 bits, for inference on the CPU: with AVX2 faster than f32
    Int8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Matmul {
    Exact,
    Fast,
}

impl EngineArgs {
    /// Returns the options of a command that runs no model.
    pub(crate) fn on_cpu() -> Self {
        Self {
            backend: Backend::Cpu,
            dtype: Dtype::F32,
            matmul: Matmul::Exact,
            deterministic: false,
        }
    }

    /// Returns the chosen setup. Prints once on stderr what `auto` chose if a GPU is or could be used.
    pub(crate) fn setup(&self) -> Result<Setup> {
        static REPORTED: Once = Once::new();
        if let (_, Some(choice)) = self.backend.resolve() {
            REPORTED.call_once(|| note!("{choice}"));
        }
        let precision = match (self.dtype, self.matmul) {
            (Dtype::F32, Matmul::Exact) => Precision::F32,
            (Dtype::F32, Matmul::Fast) => Precision::Bf16x3,
            (Dtype::Bf16, Matmul::Exact) => Precision::Bf16,
            (Dtype::F16, Matmul::Exact) => Precision::F16,
            (Dtype::Int8, Matmul::Exact) => Precision::Int8,
            (dtype, Matmul::Fast) => {
                let dtype = option_name(dtype);
                refuse!("--matmul fast is a way to compute f32 products: not with --dtype {dtype}");
            }
        };
        let deterministic = self.deterministic;
        let setup = Setup { precision, deterministic, ..self.backend.into() };
        setup.check()?;
        Ok(setup)
    }
}

impl TrainingEngineArgs {
    /// Returns the chosen setup.
    pub(crate) fn setup(&self) -> Result<Setup> {
        if self.run.dtype == Dtype::Int8 {
            refuse!("--{INFERENCE_ONLY}");
        }
        let setup = Setup { recompute: self.recompute.unwrap_or_default(), ..self.run.setup()? };
        setup.check()?;
        Ok(setup)
    }

    pub(crate) fn dtype(&self) -> String {
        option_name(self.run.dtype)
    }

    pub(crate) fn backend(&self) -> String {
        option_name(self.run.backend.resolve().0)
    }
}
