//! Model folders that transformers wrote give PyTorch's outputs (tests/fixtures/models/make.py), also after
//! `cloze convert`.

use std::path::{Path, PathBuf};

use cloze::data::Packed;
use cloze::engine::{Backend, BertEngine};
use cloze::model::Part;
use cloze::model::weights::Model;
use serde_json::{Value, json};

use crate::common::{close, fixture, json, numbers, read_json, succeeds, text};

/// How far the engine's outputs may be from PyTorch's.
const TOLERANCE: f64 = 1e-5;

/// Compares every output in `expected` with that of the model in `folder`.
fn compare(folder: &Path, expected: &Value, tolerance: f64) {
    let mut batch = Packed::default();
    let (ids, segments) = (&expected["ids"], &expected["segments"]);
    let row = |rows: &Value, i: usize| -> Vec<u32> {
        numbers(&rows[i]).iter().map(|&x| x as u32).collect()
    };
    for i in 0..ids.as_array().unwrap().len() {
        batch.push(i as u64, &row(ids, i), &row(segments, i));
    }
    let rows: Vec<u32> = (0..batch.rows() as u32).collect();
    compare_outputs(folder, &batch, &rows, &expected["outputs"], tolerance);
}

/// Compares outputs, by their names in transformers, with those of the model in `folder`; `rows` are those of
/// which the masked-LM head's logits are known.
pub fn compare_outputs(
    folder: &Path,
    batch: &Packed,
    rows: &[u32],
    outputs: &Value,
    tolerance: f64,
) {
    let model = Model::read_all(folder).unwrap();
    let layers = model.config.num_hidden_layers;
    let mut engine: Box<dyn BertEngine> =
        Backend::Cpu.engine(&model.config, &model.layout, model.values).unwrap();
    let outputs = outputs.as_object().unwrap();
    assert!(!outputs.is_empty());
    let has = |part| model.layout.parts().contains(&part);
    for (name, expected) in outputs {
        let got: Vec<f32> = match name.as_str() {
            "last_hidden_state" => {
                let states = engine.hidden_states(batch, layers..layers + 1).unwrap();
                states.layers[0].clone()
            }
            "pooler_output" => {
                let states = engine.hidden_states(batch, layers..layers + 1).unwrap();
                states.pooled.unwrap()
            }
            // Only ONNX files compute it.
            "logits" if has(Part::Discriminator) => continue,
            "logits" if has(Part::MaskedLm) => engine.masked_lm_logits(batch, rows).unwrap(),
            "prediction_logits" => engine.masked_lm_logits(batch, rows).unwrap(),
            "logits" if has(Part::NextSentence) => {
                engine.next_sentence_logits(batch).unwrap().concat()
            }
            "seq_relationship_logits" => engine.next_sentence_logits(batch).unwrap().concat(),
            "logits" => engine.task_logits(batch).unwrap(),
            "start_logits" | "end_logits" => {
                let which = usize::from(name == "end_logits");
                let both = engine.task_logits(batch).unwrap();
                both.chunks_exact(2).map(|pair| pair[which]).collect()
            }
            other => panic!("{other} is no output that is compared"),
        };
        let what = format!("{}: {name}", folder.display());
        close(&what, &got, &numbers(expected), tolerance);
    }
}

fn all() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture("models")).unwrap();
    let folders: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), 12);
    folders
}

#[test]
fn every_class_and_file_layout_gives_the_outputs_of_pytorch() {
    for folder in all() {
        compare(&folder, &read_json(&folder.join("expected.json")), TOLERANCE);
    }
}

#[test]
fn converted_models_give_the_same_outputs_and_are_half_as_large_in_half_precision() {
    let out = tempfile::tempdir().unwrap();
    for folder in all() {
        let expected = read_json(&folder.join("expected.json"));
        let name = folder.file_name().unwrap().to_str().unwrap();
        let mut sizes = Vec::new();
        // Rounding the weights changes the outputs; bf16 has a precision of 8 bits.
        for (dtype, tolerance) in [("f32", TOLERANCE), ("f16", 2e-2), ("bf16", 2e-1)] {
            let to = out.path().join(format!("{name}-{dtype}"));
            let args = ["convert", text(&folder), text(&to), "--dtype", dtype, "--json"];
            assert_eq!(json(&succeeds(args))["left_out"], json!([]));
            compare(&to, &expected, tolerance);
            sizes.push(to.join("model.safetensors").metadata().unwrap().len());
            // The class and the names of the labels are kept.
            let [before, after] =
                [&folder, &to].map(|folder| read_json(&folder.join("config.json")));
            assert_eq!(before["architectures"], after["architectures"]);
            assert_eq!(before["id2label"], after["id2label"]);
            let [before, after] =
                [&folder, &to].map(|folder| std::fs::read(folder.join("vocab.txt")));
            assert_eq!(before.unwrap(), after.unwrap());
        }
        // The names of the tensors take 5,000 bytes, much in so small a model.
        assert!(sizes[1].abs_diff(sizes[2]) < 100 && sizes[1] < sizes[0] * 2 / 3, "{sizes:?}");
    }
}
