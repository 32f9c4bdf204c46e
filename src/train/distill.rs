//! Distillation: pre-trains a small model, the student, on the predictions of a trained model, its teacher.
//! See [`crate::engine::distillation`] for the loss.

use crate::data::PretrainingBatch;
use crate::engine::{
    Distillation, DistillationScores, PretrainingEngine, PretrainingScores, SoftTargets,
};
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, Layout, Parameter};

use super::identity::{Distilled, checksum};
use super::step::{Counts, micro_batches};

/// A trained model whose predictions on every batch are the student's targets.
pub struct Teacher {
    engine: Box<dyn PretrainingEngine>,
    recipe: Distillation,
    checksum: u32,
    /// Its predictions, in buffers that every step reuses.
    targets: SoftTargets,
}

impl Teacher {
    /// Creates a teacher from a model with a masked-LM head, the student's width and its vocabulary.
    pub fn new(engine: Box<dyn PretrainingEngine>, recipe: Distillation) -> Result<Self> {
        Ok(Self {
            checksum: checksum(&engine.snapshot()?.parameters),
            engine,
            recipe,
            targets: SoftTargets::default(),
        })
    }

    /// Returns the model's configuration and layout.
    pub fn model(&self) -> (&Config, &Layout) {
        (self.engine.config(), self.engine.layout())
    }

    /// Returns the model.
    pub fn engine(&mut self) -> &mut dyn PretrainingEngine {
        self.engine.as_mut()
    }

    /// Returns the settings that may not change when the run is resumed.
    pub fn identity(&self) -> Distilled {
        Distilled { recipe: self.recipe, teacher: self.checksum }
    }

    /// Adds the student's gradients of this rank's share of a batch, in parts of `size` sequences (0 for the whole
    /// share). `counts` are those of the whole batch. Returns its loss and the student's scores.
    pub(super) fn gradients(
        &mut self,
        student: &mut dyn PretrainingEngine,
        share: &PretrainingBatch,
        counts: &Counts,
        size: usize,
        dropout: Dropout,
    ) -> Result<(f64, PretrainingScores)> {
        let weights = self.recipe.weights_of_counts(counts.masked, counts.rows);
        let mut scores = DistillationScores::default();
        for (part, is_last) in micro_batches(share, size) {
            if is_last {
                student.last_part();
            }
            let targets = &mut self.targets;
            self.engine.soft_targets(&part.packed, &part.masked_rows, targets)?;
            scores += student.distillation_gradients_of_part(&part, targets, weights, dropout)?;
        }
        student.start_sums()?;
        let scores = scores.of_all(&student.ranks().clone())?;
        Ok((scores.loss(&self.recipe), scores.hard))
    }
}

/// Returns a student's initial parameters: its layer `i` is the teacher's layer `layers[i]`, everything else
/// is copied (Sanh et al., section 3, take one layer out of two).
///
/// # Errors
/// If the teacher lacks a parameter of the student.
pub fn student_of(
    teacher: (&Layout, &[f32]),
    student: &Layout,
    layers: &[usize],
) -> Result<Vec<f32>> {
    let (layout, theirs) = teacher;
    let mut values = vec![0.0; student.total()];
    for (parameter, range) in student.iter() {
        let name = name_at_teacher(parameter, layers);
        match layout.find(&name) {
            Some((found, from)) if found.shape == parameter.shape => {
                values[range].copy_from_slice(&theirs[from]);
            }
            _ => {
                return Err(Error::Failed(format!(
                    "the teacher has no {name} of shape {:?} for the student",
                    parameter.shape
                )));
            }
        }
    }
    Ok(values)
}

/// Returns the teacher's name for a parameter of the student.
fn name_at_teacher(parameter: &Parameter, layers: &[usize]) -> String {
    const LAYER: &str = "encoder.layer.";
    let of_layer = parameter.name.strip_prefix(LAYER);
    let split = of_layer.and_then(|rest| rest.split_once('.'));
    match split.and_then(|(index, rest)| Some((layers.get(index.parse::<usize>().ok()?)?, rest))) {
        Some((layer, rest)) => format!("{LAYER}{layer}.{rest}"),
        None => parameter.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, Part};

    #[test]
    fn a_students_layers_are_the_chosen_ones_of_the_teacher() {
        let parts = [Part::Encoder, Part::MaskedLm];
        let layout = |layers| Layout::new(&Config::new(layers, 8, 2, 12, 20), &parts);
        let (teacher, student) = (layout(4), layout(2));
        let theirs: Vec<f32> = (0..teacher.total()).map(|i| i as f32).collect();
        let values = student_of((&teacher, &theirs), &student, &[0, 3]).unwrap();
        let same = |name: &str, at_teacher: &str| {
            let (_, mine) = student.find(name).unwrap();
            let (_, from) = teacher.find(at_teacher).unwrap();
            values[mine] == theirs[from]
        };
        for (mine, from) in [(0, 0), (1, 3)] {
            for rest in ["attention.self.value.weight", "output.LayerNorm.bias"] {
                let name = |layer| format!("encoder.layer.{layer}.{rest}");
                assert!(same(&name(mine), &name(from)), "{rest}");
            }
        }
        for name in ["embeddings.word_embeddings.weight", "cls.predictions.bias"] {
            assert!(same(name, name), "{name}");
        }
        let message = student_of((&teacher, &theirs), &student, &[0, 4]).unwrap_err();
        assert!(message.to_string().contains("encoder.layer.4."), "{message}");
    }
}
