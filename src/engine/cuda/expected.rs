//! What a training step launches, and how long that is expected to take on a GPU that isn't here: each launch states its
//! bytes and operations ([`super::device::Cost`]), and a GPU's published limits turn them into seconds.

use std::sync::Arc;

use crate::engine::timing::{Pass, pass_seconds};
use crate::error::{Error, Result};
use crate::model::{Config, Layout, Part};

use super::device::{
    Address, Argument, Cost, Device, Element, Graph, Grid, Kernel, Mark, Product, Properties,
};
use super::watched::{Group, Watch, Watched, grouped};
use super::{CudaEngine, Settings};

/// The published limits of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    pub name: &'static str,
    /// Bytes per second of its memory.
    pub bandwidth: f64,
    /// Dense operations per second with 16-bit factors, TF32 and f32.
    pub half: f64,
    pub tf32: f64,
    pub single: f64,
}

/// NVIDIA's data sheets of the A100 80GB SXM, the H100 SXM and the H200 SXM, without sparsity.
pub const GPUS: [Limits; 3] = [
    Limits { name: "a100", bandwidth: 2.039e12, half: 312e12, tf32: 156e12, single: 19.5e12 },
    Limits { name: "h100", bandwidth: 3.35e12, half: 989e12, tf32: 494e12, single: 67e12 },
    Limits { name: "h200", bandwidth: 4.8e12, half: 989e12, tf32: 494e12, single: 67e12 },
];

// The shares below are those of the base model's step at 64×384 in bf16 with dropout on an H100
// (`benches/results/gpu-h100.json`).

/// The share of the bandwidth that kernels reach which only move values: 0.62 (LayerNorm) to 0.85 (AdamW).
const OF_BANDWIDTH: f64 = 0.73;
/// The share of the peak that products reach: 0.54 to 0.77.
const OF_PRODUCTS: f64 = 0.70;
/// The share of the peak that attention reaches forward, where it draws the random numbers; 0.25 without dropout.
const OF_ATTENTION: f64 = 0.13;
/// The same backward, where the scores are computed twice.
const OF_ATTENTION_BACKWARD: f64 = 0.24;
/// The same in f32, in both directions: with exact products, and with TF32.
const OF_EXACT_ATTENTION: f64 = 0.33;
const OF_TF32_ATTENTION: f64 = 0.19;
/// Seconds of a launch that does nothing.
const LAUNCH: f64 = 2e-6;

impl Limits {
    /// Returns the limits of a GPU in [`GPUS`].
    ///
    /// # Errors
    /// If the table has no GPU of this name.
    pub fn named(name: &str) -> Result<Self> {
        let found = GPUS.into_iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names: Vec<&str> = GPUS.iter().map(|gpu| gpu.name).collect();
            Error::Usage(format!("no GPU {name:?} is known: expected {}", names.join(", ")))
        })
    }

    /// Returns the seconds that one operation is expected to take.
    fn seconds(&self, what: &str, cost: Cost, settings: Settings) -> f64 {
        let peak = match (settings.element, settings.tf32) {
            // Three products of TF32 make an exact one.
            (Element::F32, false) if what.starts_with("flash_exact") => self.tf32 / 3.0,
            (Element::F32, false) => self.single,
            (Element::F32, true) => self.tf32,
            (Element::Bf16 | Element::F16, _) => self.half,
        };
        let share = match what {
            what if what.starts_with("product") => OF_PRODUCTS,
            what if what.starts_with("flash_exact") => OF_EXACT_ATTENTION,
            what if what.starts_with("flash_tf32") => OF_TF32_ATTENTION,
            what if what.contains("forward") => OF_ATTENTION,
            _ => OF_ATTENTION_BACKWARD,
        };
        let moved = cost.bytes as f64 / (self.bandwidth * OF_BANDWIDTH);
        LAUNCH + moved.max(cost.flops as f64 / (peak * share))
    }
}

/// Returns what a training step on `batch` sequences of `length` tokens launches, with the seconds that it is expected
/// to take: those that take the longest come first.
pub fn step(
    config: &Config,
    settings: Settings,
    (batch, length): (usize, usize),
    gpu: &Limits,
) -> Result<Vec<Group>> {
    let layout: Arc<Layout> = Layout::new(config, &Part::Span.with_encoder());
    let (device, log) = Watched::new(Box::<Nowhere>::default() as Box<dyn Device>, Watch::List);
    let values = vec![0.0; layout.total()];
    let mut engine = CudaEngine::new(Box::new(device), config, &layout, values, settings)?;
    log.take();
    pass_seconds(&mut engine, Pass::Train, (batch, length), 0, 1)?;
    let mut operations = log.take();
    for operation in &mut operations {
        operation.seconds = gpu.seconds(&operation.what, operation.cost, settings);
    }
    Ok(grouped(operations))
}

/// A device that has no memory and computes nothing.
struct Nowhere {
    properties: Properties,
    next: u64,
}

impl Default for Nowhere {
    fn default() -> Self {
        let properties = Properties {
            name: "no device".into(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: u64::MAX / 2,
            bandwidth: 0.0,
            shared: 227 << 10,
            driver: 0,
        };
        Self { properties, next: 256 }
    }
}

impl Device for Nowhere {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        Ok(self.properties.memory)
    }

    fn allocate(&mut self, bytes: u64) -> Result<Address> {
        let at = self.next;
        self.next += bytes.next_multiple_of(256).max(256);
        Ok(Address(at))
    }

    fn release(&mut self, _: Address) {}

    fn upload(&mut self, _: Address, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn download(&mut self, _: Address, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        Ok(())
    }

    fn copy(&mut self, _: Address, _: Address, _: u64) -> Result<()> {
        Ok(())
    }

    fn fill(&mut self, _: Address, _: u8, _: u64) -> Result<()> {
        Ok(())
    }

    fn launch(&mut self, _: Kernel, _: Grid, _: &[Argument]) -> Result<()> {
        Ok(())
    }

    fn multiply(&mut self, _: &Product) -> Result<()> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }

    fn mark(&mut self) -> Result<Mark> {
        Ok(Mark(0))
    }

    fn seconds(&mut self, _: Mark, _: Mark) -> Result<f64> {
        Ok(0.0)
    }

    fn point(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn event(&self, _: usize) -> Result<u64> {
        Ok(0)
    }

    fn begin_capture(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn end_capture(&mut self) -> Result<Graph> {
        Err(nothing_recorded())
    }

    fn replay(&mut self, _: Graph) -> Result<()> {
        Err(nothing_recorded())
    }

    fn drop_graph(&mut self, _: Graph) {}
}

fn nothing_recorded() -> Error {
    Error::Failed("a device that computes nothing records nothing".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Recompute;
    use crate::model::{Size, flops_per_token};

    fn settings(element: Element) -> Settings {
        Settings { element, tf32: false, recompute: Recompute::Nothing }
    }

    #[test]
    fn the_products_of_a_step_are_those_that_the_model_needs() {
        let config = Size::Base.config(1000);
        let gpu = Limits::named("H200").unwrap();
        let groups = step(&config, settings(Element::Bf16), (4, 128), &gpu).unwrap();
        let flops = |is: fn(&str) -> bool| -> f64 {
            groups.iter().filter(|g| is(&g.what)).map(|g| g.cost.flops as f64).sum()
        };
        let products = flops(|what| what.starts_with("product"));
        // Attention's backward pass computes the scores twice more, and the gradients of probabilities once more:
        // 2 products forward and 7 backward, where the model counts 2 and 4.
        let attention = flops(|what| what.starts_with("flash"));
        let counted = flops_per_token(&config, 128) * 512.0;
        let needed = products + attention * 6.0 / 9.0;
        assert!((needed / counted - 1.0).abs() < 0.01, "{needed:e} and {counted:e}");
        assert_eq!(attention, 12.0 * 9.0 * 2.0 * 4.0 * 128.0 * 128.0 * 768.0);
        let count = |what: &str| groups.iter().find(|g| g.what == what).map(|g| g.count);
        assert_eq!(count("norm_forward"), Some(24));
        assert_eq!(count("adamw"), Some(1));
    }

    #[test]
    fn a_step_is_expected_to_take_as_long_as_its_launches() {
        let gpu = Limits::named("h100").unwrap();
        let cost = Cost { bytes: 3_350_000_000, flops: 0 };
        let seconds = gpu.seconds("norm_forward", cost, settings(Element::Bf16));
        assert!((seconds - 1e-3 / OF_BANDWIDTH - LAUNCH).abs() < 1e-9);
        let cost = Cost { bytes: 1, flops: 989_000_000_000 };
        let seconds = gpu.seconds("product x Wᵀ 1×1×1", cost, settings(Element::Bf16));
        assert!((seconds - 1e-3 / OF_PRODUCTS - LAUNCH).abs() < 1e-9);
        let slower = gpu.seconds("product x Wᵀ 1×1×1", cost, settings(Element::F32));
        assert!(slower > 10.0 * seconds);
        let error = Limits::named("z900").unwrap_err().to_string();
        assert_eq!(error, "no GPU \"z900\" is known: expected a100, h100, h200");
    }
}
