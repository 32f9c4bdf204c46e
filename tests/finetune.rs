//! Fine-tuning and measuring on GLUE through the command, as a user runs it.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::{fails, json, real, succeeds, text, tiny};
use serde_json::Value;

/// Rows of SST-2 that a rule decides: the label tells whether the sentence is about a good thing.
fn sentiment(path: &Path, rows: usize) {
    let mut tsv = String::from("sentence\tlabel\n");
    let (good, bad) = (["warm", "bright", "happy"], ["cold", "dark", "sad"]);
    for i in 0..rows {
        let label = (i * 7 / 3) % 2;
        let word = if label == 1 { good } else { bad }[i % 3];
        let day = ["day", "house", "friend", "garden"][i % 4];
        writeln!(tsv, "it was a {word} {day} in the end\t{label}").unwrap();
    }
    std::fs::write(path, tsv).unwrap();
}

struct Data {
    folder: tempfile::TempDir,
}

impl Data {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        sentiment(&folder.path().join("train.tsv"), 240);
        sentiment(&folder.path().join("dev.tsv"), 61);
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Fine-tunes into `out` and gives the JSON.
    fn finetune(&self, out: &str, more: &[&str]) -> Value {
        let (out, data) = (self.path(out), self.folder.path());
        let mut args = vec!["finetune", "sst-2", "--model", text(tiny()), "--json"];
        args.extend(["--data", text(data), "--out", text(&out), "--lr", "1e-3"]);
        args.extend(more);
        json(&succeeds(&args))
    }
}

#[test]
fn a_rule_is_learned_and_measured_again_alike() {
    let data = Data::new();
    let trained = data.finetune("out", &["--epochs", "4"]);
    assert_eq!(trained["task"], "sst-2");
    assert_eq!(
        (&trained["rows"], &trained["steps"]),
        (&240.into(), &32.into())
    );
    assert!(
        trained["dev"]["accuracy"].as_f64().unwrap() > 0.95,
        "{trained}"
    );
    assert!(trained["loss_last"].as_f64().unwrap() < 0.6, "{trained}");
    assert!(trained["real_tokens_per_s"].as_f64().unwrap() > 0.0);

    let out = data.path("out");
    let again = json(&succeeds(&[
        "evaluate",
        "sst-2",
        "--data",
        text(&data.path("dev.tsv")),
        "--model",
        text(&out),
        "--json",
    ]));
    assert_eq!(again["dev"], trained["dev"]);
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"]["1"], "1");
    assert!(out.join("trainer").join("loss.svg").exists());
}

#[test]
fn parts_of_batches_and_layers_computed_again_change_nothing() {
    let data = Data::new();
    let loss = |out, more: &[&str]| {
        let mut all = vec!["--epochs", "1", "--limit", "64"];
        all.extend(more);
        data.finetune(out, &all)["loss_last"].as_f64().unwrap()
    };
    let whole = loss("whole", &[]);
    assert!((loss("parts", &["--micro-batch", "5"]) - whole).abs() < 1e-4);
    assert!((loss("again", &["--recompute"]) - whole).abs() < 1e-6);
    assert!((loss("reference", &["--backend", "reference"]) - whole).abs() < 1e-4);
    assert!((loss("budget", &["--batch-tokens", "100"]) - whole).abs() > 1e-6);
    assert!((loss("lamb", &["--optimizer", "lamb"]) - whole).abs() > 1e-6);
}

#[test]
fn wrong_usage_and_bad_data_are_told_in_a_sentence() {
    let data = Data::new();
    let (folder, out) = (data.folder.path(), data.path("out"));
    let run = |task: &str, more: &[&str], code| {
        let mut args = vec!["finetune", task, "--model", text(tiny())];
        args.extend(["--out", text(&out), "--data", text(folder)]);
        args.extend(more);
        fails(&args, code)
    };
    assert!(run("sst-2", &["--epochs", "0"], 2).contains("--epochs 0: at least 1"));
    assert!(run("sst-2", &["--lr=-1"], 2).contains("--lr -1"));
    assert!(run("sst-2", &["--max-len", "513"], 2).contains("only 512 positions"));
    assert!(run("sst-2", &["--max-len", "4"], 2).contains("at least 5"));
    let message = run("sst-2", &["--backend", "reference", "--dtype", "bf16"], 2);
    assert!(
        message.contains("the reference engine computes in f32"),
        "{message}"
    );
    let message = run("sst-2", &["--matmul", "fast", "--dtype", "bf16"], 2);
    assert!(message.contains("not with --dtype bf16"), "{message}");
    assert!(run("mrpc", &[], 1).contains("no columns #1 String, #2 String, Quality"));
    let missing = data.path("nothing.tsv");
    assert!(run("sst-2", &["--dev", text(&missing)], 1).contains("nothing.tsv"));
    let unlabelled = data.path("test.tsv");
    std::fs::write(&unlabelled, "index\tsentence\n0\tfine\n").unwrap();
    let message = run("sst-2", &["--train", text(&unlabelled)], 1);
    assert!(message.contains("has no label column"), "{message}");
    let message = fails(
        &[
            "evaluate",
            "sst-2",
            "--data",
            text(&data.path("dev.tsv")),
            "--model",
            text(tiny()),
        ],
        1,
    );
    assert!(
        message.contains("holds no sequence classifier"),
        "{message}"
    );
}

#[test]
fn paraphrases_and_similarity_are_learned_from_a_real_model() {
    let Some((data, model)) = real() else { return };
    let out = tempfile::tempdir().unwrap();
    let finetune = |task: &str, folder: &str, more: &[&str]| {
        let folder = data.join("glue").join(folder);
        let mut args = vec!["finetune", task, "--json", "--model", text(&model)];
        args.extend([
            "--data",
            text(&folder),
            "--out",
            text(out.path()),
            "--overwrite",
        ]);
        args.extend(more);
        json(&succeeds(&args))
    };
    // Always saying "paraphrase" gives 0.684 and 0.812.
    let more = ["--limit", "1200", "--epochs", "2", "--lr", "2e-4"];
    let mrpc = finetune("mrpc", "MRPC", &more);
    assert!(mrpc["dev"]["accuracy"].as_f64().unwrap() > 0.70, "{mrpc}");
    assert!(mrpc["dev"]["f1"].as_f64().unwrap() > 0.80, "{mrpc}");
    let more = [
        "--limit", "2000", "--epochs", "2", "--lr", "1e-4", "--batch", "16",
    ];
    let similarity = finetune("sts-b", "STS-B", &more);
    for metric in ["pearson", "spearman"] {
        let value = similarity["dev"][metric].as_f64().unwrap();
        assert!(value > 0.5, "{similarity}");
    }
}
