//! Distillation: its loss and gradients against PyTorch, and `distill` as a user runs it.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use cloze::data::{Packed, PretrainingBatch};
use cloze::engine::{Backend, BertEngine, Distillation, SoftTargets};
use cloze::model::weights::Model;
use cloze::model::{Dropout, Part};
use common::{fails, json, succeeds, text};
use safetensors::SafeTensors;
use serde_json::Value;

const PARTS: [Part; 2] = [Part::Encoder, Part::MaskedLm];

fn engine(folder: &Path) -> Box<dyn BertEngine> {
    let model = Model::read(folder, &PARTS, None).unwrap();
    let engine = Backend::Cpu.engine(&model.config, &model.layout, model.values);
    engine.unwrap()
}

/// The fixture and the script that made it stand in tests/fixtures/distillation.
#[test]
fn losses_and_every_gradient_are_those_of_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/distillation");
    let told = fs::read_to_string(folder.join("batch.json")).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    let number = |key: &str| told[key].as_f64().unwrap();
    let lists = |key: &str| -> Vec<Vec<i64>> {
        let list = |row: &Value| {
            let row = row.as_array().unwrap().iter();
            row.map(|x| x.as_i64().unwrap()).collect()
        };
        told[key].as_array().unwrap().iter().map(list).collect()
    };
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
    let (mut teacher, mut student) = (
        engine(&folder.join("teacher")),
        engine(&folder.join("student")),
    );
    let mut targets = SoftTargets::default();
    teacher
        .soft_targets(&batch.packed, &batch.masked_rows, &mut targets)
        .unwrap();
    let dropout = Dropout { seed: 0, step: 0 };
    let weights = recipe.weights(&batch);
    let scores = student
        .distillation_gradients_of_part(&batch, &targets, weights, dropout)
        .unwrap();
    let masked = batch.masked_rows.len() as f64;
    for (got, key) in [
        (scores.soft / masked, "soft"),
        (scores.hard.mean_mlm_loss(), "hard"),
        (scores.cosine / scores.rows as f64, "cosine"),
        (scores.loss(&recipe), "loss"),
    ] {
        let expected = number(key);
        assert!(
            (got / expected - 1.0).abs() < 1e-5,
            "{key}: {got}, {expected}"
        );
    }

    let bytes = fs::read(folder.join("gradients.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let ours = student.gradients().unwrap();
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let whole = norm(&mut ours.iter().map(|&x| f64::from(x)));
    let mut seen = 0;
    for (name, tensor) in file.tensors() {
        let plain = name.strip_prefix("bert.").unwrap_or(&name);
        let (_, range) = student.layout().find(plain).unwrap();
        let (values, _) = tensor.data().as_chunks::<4>();
        let theirs = || values.iter().map(|v| f64::from(f32::from_le_bytes(*v)));
        let differences = theirs().zip(&ours[range.clone()]);
        let error = norm(&mut differences.map(|(a, &b)| a - f64::from(b)));
        // A gradient that is zero in exact arithmetic (the keys' biases) is rounding on both sides.
        let bound = 1e-4 * norm(&mut theirs()).max(1e-3 * whole);
        assert!(error <= bound, "{name}: {error:e}");
        seen += range.len();
    }
    assert_eq!(seen, ours.len(), "every gradient is compared");
}

#[test]
fn a_teacher_of_another_width_is_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/distillation");
    let mut student = engine(&folder.join("student"));
    let mut packed = Packed::default();
    packed.push(0, &[1, 2, 3], &[0; 3]);
    let batch = PretrainingBatch {
        packed,
        masked_rows: vec![1],
        masked_labels: vec![4],
        next_labels: Vec::new(),
    };
    let targets = SoftTargets {
        logits: vec![0.0; 50],
        hidden: vec![0.0; 3 * 8],
    };
    let weights = Distillation::default().weights(&batch);
    let dropout = Dropout { seed: 0, step: 0 };
    let refused = student.distillation_gradients_of_part(&batch, &targets, weights, dropout);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("same vocabulary and width"), "{message}");
}

/// A teacher of four layers that has read our own corpus for a while.
fn teacher(folder: &Path) -> PathBuf {
    let out = folder.join("teacher");
    let size = folder.join("size.json");
    let json = r#"{"vocab_size": 1, "hidden_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 2, "intermediate_size": 256, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "initializer_range": 0.08}"#;
    fs::write(&size, json).unwrap();
    let args = ["pretrain", "--out", text(&out), "--size", text(&size)];
    succeeds(&[&args[..], &["--steps", "300", "--no-nsp", "--json"]].concat());
    out
}

#[test]
fn a_student_of_half_the_layers_learns_from_its_teacher() {
    let folder = tempfile::tempdir().unwrap();
    let teacher = teacher(folder.path());
    let run = |out: &str, steps: &str, more: &[&str]| {
        let out = folder.path().join(out);
        let args = ["distill", "--teacher", text(&teacher), "--out", text(&out)];
        let args = [&args[..], &["--steps", steps, "--json"], more].concat();
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    fn plain(args: &[String]) -> Vec<&str> {
        args.iter().map(String::as_str).collect()
    }

    let args = run("student", "60", &[]);
    let output = succeeds(&plain(&args));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("layers 0, 2 of the teacher's 4"), "{told}");
    assert!(told.contains("the teacher, held out: "), "{told}");
    let trained = json(&output);
    let loss = |key: &str| trained[key]["mlm_loss"].as_f64().unwrap();
    assert!(trained["loss_last"].as_f64() < trained["loss_first"].as_f64());
    // Both are below what counts words alone, the student near its teacher after a fifth of the steps.
    let unigram = trained["unigram_entropy"].as_f64().unwrap();
    assert!(loss("teacher") < unigram - 0.2, "{trained}");
    assert!(loss("eval") < loss("teacher") + 0.1, "{trained}");
    let out = folder.path().join("student");
    let config = fs::read_to_string(out.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["num_hidden_layers"], 2);
    assert_eq!(config["architectures"][0], "BertForMaskedLM");
    succeeds(&["fill-mask", "--model", text(&out), "the [MASK] is old"]);

    // Stopped and resumed, it ends with the same bits; with another recipe it does not go on.
    let weights = |out: &str| fs::read(folder.path().join(out).join("model.safetensors")).unwrap();
    let parts = ["--micro-batch", "16", "--lr", "1e-3", "--eval-every", "100"];
    succeeds(&plain(&run("whole", "6", &parts)));
    let broken = run(
        "broken",
        "6",
        &[&parts[..], &["--save-every", "2"]].concat(),
    );
    let mut child = common::cloze().args(&broken).spawn().unwrap();
    let state = folder.path().join("broken/trainer/state.safetensors");
    while !state.exists() {
        assert!(
            child
                .try_wait()
                .unwrap()
                .is_none_or(|status| status.success())
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed = run("broken", "6", &[&parts[..], &["--resume"]].concat());
    succeeds(&plain(&resumed));
    assert!(weights("whole") == weights("broken"));
    let hotter = run(
        "broken",
        "8",
        &[&parts[..], &["--resume", "--temperature", "3"]].concat(),
    );
    let message = fails(&plain(&hotter), 2);
    assert!(
        message.contains("temperature 2") && message.contains("temperature 3"),
        "{message}"
    );

    // Parts of a batch and the whole of it lead to the same model but for rounding.
    let whole = json(&succeeds(&plain(&run("batches", "6", &["--lr", "1e-3"]))));
    let parts = json(&succeeds(&plain(&run(
        "parts",
        "6",
        &["--lr", "1e-3", "--micro-batch", "3"],
    ))));
    let last = |run: &Value| run["loss_last"].as_f64().unwrap();
    assert!((last(&whole) / last(&parts) - 1.0).abs() < 1e-4);

    let usage = |more: &[&str], expected: &str| {
        let message = fails(&plain(&run("refused", "1", more)), 2);
        assert!(message.contains(expected), "{message}");
    };
    usage(&["--layers", "5"], "the teacher has 4");
    usage(&["--layers", "0,4"], "layers from 0 to 3");
    usage(&["--temperature", "0"], "--temperature 0");
    usage(&["--alpha-mlm=-1"], "--alpha-mlm -1");
    usage(
        &["--alpha-ce", "0", "--alpha-mlm", "0", "--alpha-cos", "0"],
        "nothing would be learned",
    );
}

#[test]
fn a_teacher_that_fills_no_blanks_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/heads");
    let out = folder.path().join("out");
    for (teacher, expected) in [
        ("token", "holds no masked-LM head (cls.predictions)"),
        ("causal", "reads from left to right"),
        ("nowhere", "nowhere"),
    ] {
        let teacher = fixtures.join(teacher);
        let args = ["distill", "--teacher", text(&teacher), "--out", text(&out)];
        let message = fails(&args, 1);
        assert!(message.contains(expected), "{message}");
    }
}
