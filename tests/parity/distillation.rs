//! Distillation's losses and gradients are those of PyTorch (tests/fixtures/distillation has the script).

use std::path::Path;

use cloze::data::{Packed, PretrainingBatch};
use cloze::engine::{Backend, BertEngine, Distillation, SoftTargets};
use cloze::model::weights::Model;
use cloze::model::{Dropout, Part};

use crate::common::{assert_contains, fixture, read_json};
use crate::compare_gradients;

const NO_DROPOUT: Dropout = Dropout { seed: 0, step: 0 };

fn engine(folder: &Path) -> Box<dyn BertEngine> {
    let model = Model::read(folder, &[Part::Encoder, Part::MaskedLm], None).unwrap();
    let engine = Backend::Cpu.engine(&model.config, &model.layout, model.values);
    engine.unwrap()
}

#[test]
fn losses_and_every_gradient_are_those_of_pytorch() {
    let folder = fixture("distillation");
    let file = read_json(&folder.join("batch.json"));
    let number = |key: &str| file[key].as_f64().unwrap();
    let lists = |key: &str| -> Vec<Vec<i64>> { serde_json::from_value(file[key].clone()).unwrap() };
    let mut batch = PretrainingBatch::default();
    for (index, ids) in lists("ids").iter().enumerate() {
        let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
        batch.packed.push(index as u64, &ids, &vec![0; ids.len()]);
    }
    for (row, label) in (0..).zip(lists("labels").concat()) {
        if let Ok(label) = u32::try_from(label) {
            batch.masked_rows.push(row);
            batch.masked_labels.push(label);
        }
    }
    let recipe = Distillation {
        temperature: number("temperature"),
        ce: number("ce"),
        mlm: number("mlm"),
        cos: number("cos"),
    };
    let (mut teacher, mut student) =
        (engine(&folder.join("teacher")), engine(&folder.join("student")));
    let mut targets = SoftTargets::default();
    teacher.soft_targets(&batch.packed, &batch.masked_rows, &mut targets).unwrap();
    let weights = recipe.weights(&batch);
    let scores =
        student.distillation_gradients_of_part(&batch, &targets, weights, NO_DROPOUT).unwrap();
    let masked = batch.masked_rows.len() as f64;
    for (got, key) in [
        (scores.soft / masked, "soft"),
        (scores.hard.mean_mlm_loss(), "hard"),
        (scores.cosine / scores.rows as f64, "cosine"),
        (scores.loss(&recipe), "loss"),
    ] {
        let expected = number(key);
        assert!((got / expected - 1.0).abs() < 1e-5, "{key}: {got}, {expected}");
    }

    compare_gradients("distillation", &folder, student.as_ref());
}

#[test]
fn a_teacher_of_another_width_is_refused() {
    let mut student = engine(&fixture("distillation/student"));
    let mut packed = Packed::default();
    packed.push(0, &[1, 2, 3], &[0; 3]);
    let batch = PretrainingBatch {
        packed,
        masked_rows: vec![1],
        masked_labels: vec![4],
        next_labels: Vec::new(),
    };
    let targets = SoftTargets { logits: vec![0.0; 50], hidden: vec![0.0; 3 * 8] };
    let weights = Distillation::default().weights(&batch);
    let refused = student.distillation_gradients_of_part(&batch, &targets, weights, NO_DROPOUT);
    let message = refused.unwrap_err().to_string();
    assert_contains(&message, "same vocabulary and width");
}
