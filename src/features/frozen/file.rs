//! The file of a head on a frozen encoder: `head.safetensors`, whose header describes the vectors that the head
//! reads.

use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::{Staged, remove_if_there};
use crate::model::weights::{
    Checksums, Entries, NumberFormat, TensorData, check_tensors, stage_tensors,
};
use crate::model::{Layout, Part};

use super::{Frozen, Plan};

const FILE: &str = "head.safetensors";
/// The key of the plan in the header.
const PLAN: &str = "plan";

/// Returns whether a model folder has such a head.
pub fn holds(folder: &Path) -> bool {
    folder.join(FILE).is_file()
}

/// Removes the head of an earlier model.
pub fn remove(folder: &Path) -> Result<()> {
    remove_if_there(&folder.join(FILE))
}

impl Plan {
    /// Writes a head's values, laid out by `layout`, next to their place in a model folder. `entries` are those of
    /// the encoder's header.
    pub fn stage(
        &self,
        folder: &Path,
        layout: &Layout,
        values: &[f32],
        mut entries: Entries,
    ) -> Result<Staged> {
        // Names and numbers cannot fail to serialise.
        let plan = serde_json::to_string(self).expect("plain data");
        entries.push((PLAN, plan));
        let tensors = layout.iter().map(|(parameter, range)| {
            let (shape, values) = (parameter.shape.clone(), &values[range]);
            let numbers = TensorData::new(NumberFormat::F32, shape, values);
            (parameter.name.clone(), numbers)
        });
        stage_tensors(&folder.join(FILE), tensors.collect(), &entries)
    }
}

impl Frozen {
    /// Reads the head in a model folder, `part` of its task, and puts it on the model's encoder.
    ///
    /// # Errors
    /// If the file is damaged or belongs to another task.
    pub fn open(folder: &Path, encoder: Box<dyn Engine>, part: Part) -> Result<Self> {
        let path = folder.join(FILE);
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
        let damaged = |e: &dyn std::fmt::Display| Error::file(&path, format!("is not a head: {e}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| damaged(&e))?;
        let plan = header.metadata().as_ref().and_then(|m| m.get(PLAN));
        let plan =
            plan.ok_or_else(|| damaged(&"its header does not describe what the head reads"))?;
        let plan: Plan = serde_json::from_str(plan).map_err(|e| damaged(&e))?;
        if *plan.vectors.layers.end() > encoder.config().num_hidden_layers {
            return Err(damaged(&"it reads more layers than the model has"));
        }
        if plan.vectors.layers.is_empty() {
            return Err(damaged(&"it reads no layer"));
        }
        check_tensors(&path, &bytes)?;
        Checksums::of(&bytes).check_config(&path, encoder.config())?;
        let file = SafeTensors::deserialize(&bytes).map_err(|e| damaged(&e))?;
        let layout = plan.layout(encoder.config(), part)?;
        let mut values = vec![0.0; layout.total()];
        for (parameter, range) in layout.iter() {
            let tensor = file.tensor(&parameter.name).map_err(|e| damaged(&e))?;
            if tensor.shape() != parameter.shape || tensor.dtype() != Dtype::F32 {
                return Err(Error::file(
                    &path,
                    format!(
                        "tensor {} is {:?} of {:?}, but the task needs F32 of {:?}",
                        parameter.name,
                        tensor.dtype(),
                        tensor.shape(),
                        parameter.shape
                    ),
                ));
            }
            let (words, _) = tensor.data().as_chunks::<4>();
            let values = &mut values[range];
            for (value, word) in values.iter_mut().zip(words) {
                *value = f32::from_le_bytes(*word);
            }
            if values.iter().any(|value| !value.is_finite()) {
                return Err(damaged(&format!("tensor {} holds no numbers", parameter.name)));
            }
        }
        Self::new(encoder, plan, part, |_| values)
    }
}
