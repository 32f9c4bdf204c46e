//! The options that say what computes and how, shared by the commands that run or train a model.

use std::sync::Arc;

use clap::ValueEnum;

use crate::engine::{Backend, Engine, Precision, Setup};
use crate::error::{Error, Result};
use crate::model::{Config, Layout};

/// Options of the commands that run a model.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct EngineArgs {
    /// What computes: the readable dfdx model, or the fused engine
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Number format of the matrix products; parameters, sums and the optimizer are f32
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// How f32 matrix products are computed: fast splits them into three of bf16 where the processor
    /// has matrix units for that
    #[arg(long, value_enum, default_value_t = Matmul::Exact)]
    matmul: Matmul,
}

/// Options of the commands that train one.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct TrainingEngineArgs {
    #[command(flatten)]
    run: EngineArgs,
    /// Compute layers again in the backward pass in place of keeping them: less memory, more work
    #[arg(long)]
    recompute: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    F32,
    Bf16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Matmul {
    Exact,
    Fast,
}

impl EngineArgs {
    /// What was asked for.
    pub fn setup(&self) -> Result<Setup> {
        Ok(Setup {
            backend: self.backend,
            precision: match (self.dtype, self.matmul) {
                (Dtype::Bf16, Matmul::Exact) => Precision::Bf16,
                (Dtype::Bf16, Matmul::Fast) => {
                    let message =
                        "--matmul fast is a way to compute f32 products: not with --dtype bf16";
                    return Err(Error::Usage(message.into()));
                }
                (Dtype::F32, Matmul::Fast) => Precision::Bf16x3,
                (Dtype::F32, Matmul::Exact) => Precision::F32,
            },
            recompute: false,
        })
    }
}

impl TrainingEngineArgs {
    /// What was asked for.
    pub fn setup(&self) -> Result<Setup> {
        Ok(Setup {
            recompute: self.recompute,
            ..self.run.setup()?
        })
    }

    /// An engine as asked for.
    pub fn engine(
        &self,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
    ) -> Result<Box<dyn Engine>> {
        self.setup()?.engine(config, layout, values)
    }

    pub fn dtype(&self) -> &'static str {
        match self.run.dtype {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
        }
    }

    pub fn backend(&self) -> &'static str {
        match self.run.backend {
            Backend::Reference => "reference",
            Backend::Cpu | Backend::Auto => "cpu",
        }
    }
}
