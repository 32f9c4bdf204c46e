//! Model folders that transformers wrote: read, and what they answer compared with what PyTorch
//! answered (tests/fixtures/models/make.py).

mod common;

use std::path::{Path, PathBuf};

use cloze::data::Packed;
use cloze::engine::{Backend, BertEngine};
use cloze::model::Part;
use cloze::model::weights::Model;
use common::{fails, json, sentence, succeeds, text};
use serde_json::Value;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/models");

fn fixture(name: &str) -> PathBuf {
    Path::new(FIXTURES).join(name)
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap();
    list.iter().map(|v| v.as_f64().unwrap()).collect()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// How far the engine's answers may be from PyTorch's.
const TOLERANCE: f64 = 1e-5;

fn close(what: &str, got: &[f32], expected: &Value, tolerance: f64) {
    let expected = numbers(expected);
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs() / expected.abs().max(1.0);
        assert!(
            error < tolerance,
            "{what} [{i}]: {got}, expected {expected}"
        );
    }
}

/// Reads the model in `folder` and compares every output that `expected` has.
fn compare(folder: &Path, expected: &Value, tolerance: f64) {
    let model = Model::read_all(folder).unwrap();
    let layers = model.config.num_hidden_layers;
    let mut batch = Packed::default();
    let (ids, segments) = (&expected["ids"], &expected["segments"]);
    let row = |rows: &Value, i: usize| -> Vec<u32> {
        numbers(&rows[i]).iter().map(|&x| x as u32).collect()
    };
    for i in 0..ids.as_array().unwrap().len() {
        batch.push(i as u64, &row(ids, i), &row(segments, i));
    }
    let mut engine: Box<dyn BertEngine> = Backend::Cpu
        .engine(&model.config, &model.layout, model.values)
        .unwrap();
    let rows: Vec<u32> = (0..batch.rows() as u32).collect();
    let outputs = expected["outputs"].as_object().unwrap();
    assert!(!outputs.is_empty());
    let has = |part| model.layout.parts().contains(&part);
    for (name, expected) in outputs {
        let got: Vec<f32> = match name.as_str() {
            "last_hidden_state" => {
                let states = engine.hidden_states(&batch, layers..layers + 1).unwrap();
                states.layers[0].clone()
            }
            "pooler_output" => {
                let states = engine.hidden_states(&batch, layers..layers + 1).unwrap();
                states.pooled.unwrap()
            }
            "logits" if has(Part::MaskedLm) => engine.masked_lm_logits(&batch, &rows).unwrap(),
            "prediction_logits" => engine.masked_lm_logits(&batch, &rows).unwrap(),
            "logits" if has(Part::NextSentence) => {
                engine.next_sentence_logits(&batch).unwrap().concat()
            }
            "seq_relationship_logits" => engine.next_sentence_logits(&batch).unwrap().concat(),
            "logits" => engine.task_logits(&batch).unwrap(),
            "start_logits" | "end_logits" => {
                let which = usize::from(name == "end_logits");
                let both = engine.task_logits(&batch).unwrap();
                both.chunks_exact(2).map(|pair| pair[which]).collect()
            }
            other => panic!("{other} is no output that is compared"),
        };
        close(
            &format!("{}: {name}", folder.display()),
            &got,
            expected,
            tolerance,
        );
    }
}

fn all() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FIXTURES).unwrap();
    let folders: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(folders.len(), 12);
    folders
}

#[test]
fn every_class_and_every_layout_of_files_answers_as_in_pytorch() {
    for folder in all() {
        compare(&folder, &read(&folder.join("expected.json")), TOLERANCE);
    }
}

#[test]
fn what_is_converted_answers_alike_and_is_half_as_large_in_half_precision() {
    let out = tempfile::tempdir().unwrap();
    for folder in all() {
        let expected = read(&folder.join("expected.json"));
        let name = folder.file_name().unwrap().to_str().unwrap();
        let mut sizes = Vec::new();
        // Rounded weights answer a little differently, and bf16 has 8 bits.
        for (dtype, tolerance) in [("f32", TOLERANCE), ("f16", 2e-2), ("bf16", 2e-1)] {
            let to = out.path().join(format!("{name}-{dtype}"));
            let told = succeeds(&[
                "convert",
                text(&folder),
                text(&to),
                "--dtype",
                dtype,
                "--json",
            ]);
            assert_eq!(json(&told)["left_out"], Value::Array(Vec::new()));
            compare(&to, &expected, tolerance);
            sizes.push(to.join("model.safetensors").metadata().unwrap().len());
            // The class is kept, and so is what the labels are called.
            let (before, after) = (
                read(&folder.join("config.json")),
                read(&to.join("config.json")),
            );
            assert_eq!(before["architectures"], after["architectures"]);
            assert_eq!(before["id2label"], after["id2label"]);
            assert_eq!(
                std::fs::read(folder.join("vocab.txt")).unwrap(),
                std::fs::read(to.join("vocab.txt")).unwrap()
            );
        }
        // The names alone take 5,000 bytes of so small a model.
        assert!(
            sizes[1].abs_diff(sizes[2]) < 100 && sizes[1] < sizes[0] * 2 / 3,
            "{sizes:?}"
        );
    }
}

/// A copy of a fixture that a test may damage.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

#[test]
fn what_cannot_be_read_is_told_in_a_sentence() {
    let folder = copy("BertForMaskedLM");
    let out = folder.path().join("out");
    let run = || fails(&["convert", text(folder.path()), text(&out)], 1);
    let config = folder.path().join("config.json");
    let good = std::fs::read_to_string(&config).unwrap();
    for (from, to, expected) in [
        ("\"bert\"", "\"roberta\"", "model_type is \"roberta\""),
        ("\"gelu\"", "\"relu\"", "hidden_act is \"relu\""),
        (
            "\"add_cross_attention\": false",
            "\"add_cross_attention\": true",
            "only self-attention",
        ),
        (
            "\"use_cache\"",
            "\"position_embedding_type\": \"relative_key\", \"use_cache\"",
            "position_embedding_type is \"relative_key\"",
        ),
    ] {
        std::fs::write(&config, good.replace(from, to)).unwrap();
        let message = run();
        assert!(
            message.contains("config.json") && message.contains(expected),
            "{message}"
        );
    }
    std::fs::write(&config, &good).unwrap();

    let vocab = folder.path().join("vocab.txt");
    let words = std::fs::read_to_string(&vocab).unwrap();
    std::fs::write(&vocab, format!("{words}more\n")).unwrap();
    let expected = "vocab.txt: its vocabulary has 26 entries, but the model's vocab_size is 25";
    assert!(run().contains(expected), "{}", run());

    std::fs::rename(
        folder.path().join("model.safetensors"),
        folder.path().join("pytorch_model.bin"),
    )
    .unwrap();
    assert!(
        run().contains("pytorch_model.bin, a pickle file"),
        "{}",
        run()
    );
    assert!(!out.exists());
}

/// Runs `cloze` with 4 GB of addresses; gives the sentence that it fails with, soon.
#[cfg(target_os = "linux")]
fn fails_in_little_memory(args: &[&str], code: i32) -> String {
    let started = std::time::Instant::now();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 4000000 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_cloze"))
        .args(args)
        .output()
        .unwrap();
    let message = sentence(&output, code);
    assert!(started.elapsed().as_secs() < 20, "{message}");
    message
}

#[test]
#[cfg(target_os = "linux")]
fn a_configuration_that_asks_for_any_memory_is_refused_before_it_gets_it() {
    let folder = copy("BertForMaskedLM");
    let (out, config) = (folder.path().join("out"), folder.path().join("config.json"));
    let good = read(&config);
    for (field, value, expected) in [
        ("num_hidden_layers", 1_u64 << 40, "must be at most 4096"),
        ("vocab_size", 1 << 60, "must be at most 16777216"),
        ("hidden_size", 1 << 40, "must be at most 65536"),
        ("intermediate_size", 1 << 40, "must be at most 1048576"),
        (
            "max_position_embeddings",
            1 << 60,
            "must be at most 1048576",
        ),
        ("type_vocab_size", 1 << 60, "must be at most 65536"),
        (
            "num_hidden_layers",
            1 << 12,
            "encoder.layer.2.attention.self.query.weight of shape [16, 16] is missing",
        ),
        (
            "vocab_size",
            1 << 24,
            "has shape [25, 16], but config.json asks for [16777216, 16]",
        ),
        (
            "hidden_size",
            1 << 16,
            "has shape [25, 16], but config.json asks for [25, 65536]",
        ),
        (
            "intermediate_size",
            1 << 20,
            "has shape [32, 16], but config.json asks for [1048576, 16]",
        ),
    ] {
        let mut changed = good.clone();
        changed[field] = Value::from(value);
        std::fs::write(&config, changed.to_string()).unwrap();
        let message = fails_in_little_memory(&["convert", text(folder.path()), text(&out)], 1);
        assert!(message.contains(expected), "{field}: {message}");
    }
    assert!(!out.exists());

    let args = ["pretrain", "--seq", "16", "--first-seq", "16", "--size"];
    let args = [&args[..], &[text(&config), "--out", text(&out)]].concat();
    for (layers, code, expected) in [
        (1_u64 << 40, 1, "must be at most 4096"),
        (
            1 << 12,
            2,
            "a model of 70396931997698 parameters needs 262249.0 GiB for these alone, but ",
        ),
    ] {
        let mut changed = good.clone();
        changed["num_hidden_layers"] = layers.into();
        changed["hidden_size"] = (1 << 16).into();
        std::fs::write(&config, changed.to_string()).unwrap();
        let message = fails_in_little_memory(&args, code);
        assert!(message.contains(expected), "{message}");
    }
}
