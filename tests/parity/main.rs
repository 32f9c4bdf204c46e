//! The numbers: the engines and models against one another, finite differences, PyTorch and transformers.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod cpu_engine;
mod distillation;
mod families;
mod finite_differences;
mod heads;
mod minilm;
mod model_files;

use std::path::Path;

use cloze::engine::Engine;
use safetensors::SafeTensors;

/// Compares every gradient by the norm of the difference, relative to its own norm.
fn compare_gradients(what: &str, folder: &Path, engine: &dyn Engine) {
    let bytes = std::fs::read(folder.join("gradients.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let ours = engine.gradients().unwrap();
    let whole = ours.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let mut seen = 0;
    for (name, tensor) in file.tensors() {
        let plain = engine.config().model_type.name_to_bert(&name);
        let (_, range) =
            engine.layout().find(&plain).unwrap_or_else(|| panic!("{name} is not ours"));
        let (values, _) = tensor.data().as_chunks::<4>();
        let theirs: Vec<f32> = values.iter().map(|v| f32::from_le_bytes(*v)).collect();
        let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        let size = norm(&mut theirs.iter().map(|&x| f64::from(x)));
        let differences = theirs.iter().zip(&ours[range.clone()]);
        let error = norm(&mut differences.map(|(a, b)| f64::from(a - b)));
        // A gradient that is zero in exact arithmetic (of the keys' biases) is only rounding errors in both.
        let bound = 1e-4 * size.max(1e-3 * whole);
        assert!(error <= bound, "{what}: {name}: {error:e} of {size:e}");
        seen += range.len();
    }
    assert_eq!(seen, ours.len(), "{what}: every gradient is compared");
}
