//! `cloze distill`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{
    assert_contains, fails, fixture, json, killed, read_json, stderr, succeeds, text, words,
};

/// Trains a teacher of four layers on Cloze's own corpus.
fn teacher(folder: &Path) -> PathBuf {
    let out = folder.join("teacher");
    let size = folder.join("size.json");
    let json = r#"{"vocab_size": 1, "hidden_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 2, "intermediate_size": 256, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "initializer_range": 0.08}"#;
    fs::write(&size, json).unwrap();
    let args = ["pretrain", "--out", text(&out), "--size", text(&size)];
    succeeds([&args[..], &["--steps", "300", "--no-nsp", "--json"]].concat());
    out
}

#[test]
fn a_student_of_half_the_layers_learns_from_its_teacher() {
    let folder = tempfile::tempdir().unwrap();
    let teacher = teacher(folder.path());
    let run = |out: &str, steps: u32, more: &str| {
        let files =
            format!("--teacher {} --out {}", text(&teacher), text(&folder.path().join(out)));
        words(format!("distill --json {files} --steps {steps} {more}").trim_end())
    };

    let output = succeeds(run("student", 60, ""));
    let message = stderr(&output);
    assert_contains(&message, "layers 0, 2 of the teacher's 4");
    assert_contains(&message, "the teacher, held out: ");
    let trained = json(&output);
    let loss = |key: &str| trained[key]["mlm_loss"].as_f64().unwrap();
    assert!(trained["loss_last"].as_f64() < trained["loss_first"].as_f64());
    // Both losses are far below the unigram entropy; the student is near its teacher after a fifth of the steps.
    let unigram = trained["unigram_entropy"].as_f64().unwrap();
    assert!(loss("teacher") < unigram - 0.8, "{trained}");
    assert!(loss("eval") < loss("teacher") + 0.2, "{trained}");
    let out = folder.path().join("student");
    let config = read_json(&out.join("config.json"));
    assert_eq!(config["num_hidden_layers"], 2);
    assert_eq!(config["architectures"][0], "BertForMaskedLM");
    succeeds(["fill-mask", "--model", text(&out), "the [MASK] is old"]);

    // A resumed run ends with the same bits, and is refused with another temperature.
    let weights = |out: &str| fs::read(folder.path().join(out).join("model.safetensors")).unwrap();
    let parts = "--micro-batch 16 --lr 1e-3 --eval-every 100";
    succeeds(run("whole", 6, parts));
    let state = folder.path().join("broken/trainer/state.safetensors");
    killed(run("broken", 6, &format!("{parts} --save-every 2")), || state.exists());
    succeeds(run("broken", 6, &format!("{parts} --resume")));
    assert!(weights("whole") == weights("broken"));
    let hotter = format!("{parts} --resume --temperature 3");
    let message = fails(run("broken", 8, &hotter), 2);
    assert_contains(&message, "temperature 2");
    assert_contains(&message, "temperature 3");

    // Micro-batches lead to the same model but for rounding.
    let loss = |out, more: &str| json(&succeeds(run(out, 6, more)))["loss_last"].as_f64();
    let whole = loss("batches", "--lr 1e-3").unwrap();
    let parts = loss("parts", "--lr 1e-3 --micro-batch 3").unwrap();
    assert!((whole / parts - 1.0).abs() < 1e-4);

    let refused = |more: &str, expected: &str| {
        assert_contains(&fails(run("refused", 1, more), 2), expected);
    };
    refused("--layers 5", "the teacher has 4");
    refused("--layers 0,4", "layers from 0 to 3");
    refused("--temperature 0", "--temperature 0");
    refused("--alpha-mlm=-1", "--alpha-mlm -1");
    let nothing = "--alpha-ce 0 --alpha-mlm 0 --alpha-cos 0";
    refused(nothing, "nothing would be learned");
}

#[test]
fn a_teacher_without_a_masked_lm_head_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (teacher, expected) in [
        ("token", "holds no masked-LM head (cls.predictions)"),
        ("causal", "reads from left to right"),
        ("nowhere", "nowhere"),
    ] {
        let teacher = fixture("heads").join(teacher);
        let args = ["distill", "--teacher", text(&teacher), "--out", text(&out)];
        let message = fails(args, 1);
        assert_contains(&message, expected);
    }
}
