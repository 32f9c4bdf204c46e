//! The options of the engine, for all commands that run or train a model.

use std::sync::{Arc, Once};

use clap::ValueEnum;

use crate::engine::{Backend, BertEngine, Precision, Recompute, Setup};
use crate::error::{Error, Result};
use crate::model::{Config, Layout};
use crate::note;

/// Options of the commands that run a model.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct EngineArgs {
    /// Engine: the readable dfdx model, or the fused engine on the CPU or on an NVIDIA GPU
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Number format of the matrix products; parameters, sums and the optimizer are f32
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// How f32 matrix products are computed: fast splits each into three bf16 products if the processor
    /// has matrix units for them, and uses TF32 on a GPU
    #[arg(long, value_enum, default_value_t = Matmul::Exact)]
    matmul: Matmul,
    /// Give the same bits in every run on the same device; all engines always do
    #[arg(long)]
    deterministic: bool,
}

/// Options of the commands that train one.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct TrainingEngineArgs {
    #[command(flatten)]
    run: EngineArgs,
    /// Recompute activations in the backward pass instead of storing them: less memory, more work
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "layers")]
    recompute: Option<Recompute>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    F32,
    Bf16,
    /// With a scaled loss, on a GPU
    F16,
}

impl Dtype {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Matmul {
    Exact,
    Fast,
}

impl EngineArgs {
    /// Returns the engine's settings. Reports once on stderr what `auto` chose, if there is or could be a GPU.
    pub fn setup(&self) -> Result<Setup> {
        static REPORTED: Once = Once::new();
        if let (_, Some(choice)) = self.backend.resolve() {
            REPORTED.call_once(|| note!("{choice}"));
        }
        let setup = Setup {
            backend: self.backend,
            precision: match (self.dtype, self.matmul) {
                (Dtype::Bf16, Matmul::Exact) => Precision::Bf16,
                (Dtype::F16, Matmul::Exact) => Precision::F16,
                (Dtype::Bf16 | Dtype::F16, Matmul::Fast) => {
                    return Err(Error::Usage(format!(
                        "--matmul fast is a way to compute f32 products: not with --dtype {}",
                        self.dtype.name()
                    )));
                }
                (Dtype::F32, Matmul::Fast) => Precision::Bf16x3,
                (Dtype::F32, Matmul::Exact) => Precision::F32,
            },
            recompute: Recompute::Nothing,
        };
        setup.check()?;
        Ok(setup)
    }
}

impl TrainingEngineArgs {
    /// Returns the engine's settings.
    pub fn setup(&self) -> Result<Setup> {
        let setup = Setup { recompute: self.recompute.unwrap_or_default(), ..self.run.setup()? };
        setup.check()?;
        Ok(setup)
    }

    /// Builds the engine.
    pub fn engine(
        &self,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
    ) -> Result<Box<dyn BertEngine>> {
        self.setup()?.engine(config, layout, values)
    }

    pub fn dtype(&self) -> &'static str {
        self.run.dtype.name()
    }

    pub fn backend(&self) -> &'static str {
        match self.run.backend.resolve().0 {
            Backend::Reference => "reference",
            Backend::Cuda => "cuda",
            Backend::Cpu | Backend::Auto => "cpu",
        }
    }
}
