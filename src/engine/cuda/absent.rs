//! Stands in for the engine in builds without the feature `cuda`: no GPU is found, and asking for one
//! is an error.

use std::sync::Arc;

use crate::engine::memory::{Forecast, Work};
use crate::engine::{Backend, BertEngine, Setup};
use crate::error::{Error, Result};
use crate::model::{Config, Layout};
use crate::ranks::Group;

fn refuse<T>() -> Result<T> {
    Err(Error::Usage(
        "this build of Cloze computes on the CPU only: it lacks the feature `cuda`".into(),
    ))
}

pub fn engine(_: Setup, _: &Config, _: &Arc<Layout>, _: Vec<f32>) -> Result<Box<dyn BertEngine>> {
    refuse()
}

pub fn fresh_id() -> Result<Vec<u8>> {
    refuse()
}

pub fn connect(_: usize, _: usize, _: usize, _: &[u8]) -> Result<Arc<dyn Group>> {
    refuse()
}

#[cfg(feature = "cli")]
pub fn free_memory() -> Result<u64> {
    refuse()
}

pub fn measured_peak(_: Setup) -> Result<f64> {
    refuse()
}

pub fn name() -> String {
    "GPU".into()
}

pub fn choose() -> (Backend, Option<String>) {
    (Backend::Cpu, None)
}

/// Returns zeros: nothing will be allocated on a GPU.
pub fn forecast(_: &Config, _: &Layout, _: Work, _: Setup, _: bool) -> Forecast {
    Forecast { state: 0, activations: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_the_cpu_and_a_gpu_is_refused_with_the_feature_s_name() {
        assert_eq!(choose(), (Backend::Cpu, None));
        let message = measured_peak(Backend::Cuda.into()).unwrap_err();
        assert!(message.to_string().contains("feature `cuda`"), "{message}");
    }
}
