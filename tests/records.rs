//! What a run leaves in its folder beside the model: numbers, events, the page, the card.

mod common;

use std::path::{Path, PathBuf};

use common::{cloze, json, succeeds, text, tiny};
use serde_json::Value;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn metrics(folder: &Path) -> Vec<Value> {
    let text = read(&folder.join("metrics.jsonl"));
    assert!(text.ends_with('\n'), "whole lines");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The steps of the lines that have `name`.
fn steps(lines: &[Value], name: &str) -> Vec<u64> {
    let with = lines.iter().filter(|line| line.get(name).is_some());
    with.map(|line| line["step"].as_u64().unwrap()).collect()
}

fn event_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| text(path).contains("events.out.tfevents."))
        .collect()
}

/// The length and the bytes of every message of an event file: TensorFlow's record format.
fn messages(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        all.push(bytes[at + 12..at + 12 + length].to_vec());
        at += length + 16;
    }
    assert_eq!(at, bytes.len(), "whole records");
    all
}

fn holds(message: &[u8], part: &str) -> bool {
    message.windows(part.len()).any(|w| w == part.as_bytes())
}

#[test]
fn a_pretraining_run_that_is_stopped_and_resumed_is_recorded_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let args = |steps: &'static str| {
        let all = [
            "pretrain",
            "--steps",
            steps,
            "--batch",
            "2",
            "--save-every",
            "4",
        ];
        all.into_iter().chain(["--eval-every", "5", "--seed", "3"])
    };
    // A run of 6 steps stands for one that was killed: its records reach behind the checkpoint of
    // step 4, which is put back.
    let run = |steps, more: &[&str]| {
        let mut all: Vec<&str> = args(steps).collect();
        all.extend(["--out", text(out)]);
        all.extend(more);
        succeeds(&all)
    };
    let state = out.join("trainer").join("state.safetensors");
    run("4", &["--lr", "1e-3"]);
    let checkpoint = std::fs::read(&state).unwrap();
    let trainer = out.join("trainer");
    let first = metrics(&trainer);
    assert_eq!(steps(&first, "loss"), [1, 2, 3, 4]);
    assert_eq!(steps(&first, "eval"), [0, 4]);
    run("6", &["--lr", "1e-3", "--resume"]);
    assert_eq!(steps(&metrics(&trainer), "loss"), [1, 2, 3, 4, 5, 6]);
    std::fs::write(&state, checkpoint).unwrap();
    run("8", &["--lr", "1e-3", "--resume"]);

    let lines = metrics(&trainer);
    assert_eq!(steps(&lines, "loss"), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(steps(&lines, "eval"), [0, 4, 5, 8]);
    assert_eq!(
        lines[..first.len()],
        first,
        "what lies before the checkpoint stays"
    );
    for name in [
        "mlm_loss",
        "nsp_loss",
        "learning_rate",
        "gradient_norm",
        "tokens_per_s",
        "time",
    ] {
        assert!(lines[1][name].as_f64().unwrap() > 0.0, "{name}");
    }
    let files = event_files(&trainer);
    assert_eq!(files.len(), 1);
    let told = messages(&files[0]);
    assert!(holds(&told[0], "brain.Event:2"));
    let with = |part| told.iter().filter(|message| holds(message, part)).count();
    assert_eq!((with("train/mlm_loss"), with("eval/mlm_accuracy")), (8, 4));

    let page = read(&trainer.join("report.html"));
    for part in [
        "step 8 of 8, resumed after 4; finished",
        "Masked-LM loss",
        "Gradient norm",
        "Learning rate",
        "Speed",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("unigram entropy") && page.contains("--save-every 4"));
    let card = read(&out.join("README.md"));
    assert!(card.starts_with("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n"));
    for part in [
        "held-out documents",
        "perplexity",
        "--resume",
        "Cloze's own small corpus",
    ] {
        assert!(card.contains(part), "{part}");
    }
}

fn sentiment(folder: &Path) {
    let mut tsv = String::from("sentence\tlabel\n");
    for i in 0..64 {
        let word = ["cold", "warm"][i % 2];
        tsv += &format!("it was a {word} day\t{}\n", i % 2);
    }
    for name in ["train.tsv", "dev.tsv"] {
        std::fs::write(folder.join(name), &tsv).unwrap();
    }
}

fn finetune(folder: &Path, more: &[&str]) -> Value {
    let out = folder.join("out");
    let mut args = vec!["finetune", "sst-2", "--model", text(tiny()), "--json"];
    args.extend(["--data", text(folder), "--out", text(&out)]);
    args.extend(more);
    json(&succeeds(&args))
}

#[test]
fn fine_tuning_is_recorded_with_its_scores_and_several_runs_apart() {
    let folder = tempfile::tempdir().unwrap();
    sentiment(folder.path());
    let out = folder.path().join("out");
    let trainer = out.join("trainer");

    let several = finetune(folder.path(), &["--epochs", "1", "--seeds", "2"]);
    for seed in [1, 2] {
        let own = trainer.join("runs").join(format!("lr-5e-5-seed-{seed}"));
        let lines = metrics(&own);
        assert_eq!(steps(&lines, "loss"), [1, 2]);
        let told = &several["runs"][seed - 1]["dev"]["accuracy"];
        assert_eq!(lines.last().unwrap()["dev"]["accuracy"], *told);
        assert_eq!(event_files(&own).len(), 1);
    }
    assert!(!trainer.join("metrics.jsonl").exists());
    let page = read(&trainer.join("report.html"));
    assert!(
        page.contains("run 2 (lr-5e-5-seed-2), step 2 of 2; finished"),
        "{page}"
    );
    assert!(page.contains("\nlr-5e-5-seed-1\n"));
    let card = read(&out.join("README.md"));
    assert!(card.contains("accuracy, mean of 2 seeds"), "{card}");

    let more = ["--epochs", "2", "--eval-epochs", "--overwrite"];
    let trained = finetune(folder.path(), &more);
    assert!(
        !trainer.join("runs").exists(),
        "an earlier command's runs are gone"
    );
    let lines = metrics(&trainer);
    assert_eq!(
        (steps(&lines, "loss").len(), steps(&lines, "dev")),
        (4, vec![2, 4])
    );
    let accuracy = trained["dev"]["accuracy"].as_f64().unwrap();
    assert_eq!(lines.last().unwrap()["dev"]["accuracy"], accuracy);
    let card = read(&out.join("README.md"));
    for part in [
        "pipeline_tag: text-classification\n",
        "datasets:\n- nyu-mll/glue\n",
        "metrics:\n- accuracy\n",
        "      config: sst2\n      split: validation\n",
        &format!("      value: {accuracy}\n"),
        "64 rows",
        "--eval-epochs",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    let page = read(&trainer.join("report.html"));
    assert!(page.contains("Scores") && page.contains("dev accuracy, step 4"));

    std::fs::write(out.join("README.md"), "mine").unwrap();
    let more = ["--epochs", "1", "--limit", "8", "--overwrite"];
    finetune(folder.path(), &more);
    assert_eq!(read(&out.join("README.md")), "mine");
    assert!(read(&out.join("MODEL_CARD.md")).contains("pipeline_tag"));
}

/// Killed in the midst of it: whole lines, and the page still says how far it was.
#[cfg(unix)]
#[test]
fn a_killed_run_leaves_whole_lines() {
    let folder = tempfile::tempdir().unwrap();
    let metrics_file = folder.path().join("trainer").join("metrics.jsonl");
    let mut child = cloze()
        .args(["pretrain", "--out", text(folder.path()), "--batch", "2"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = std::time::Instant::now();
    let lines = || {
        std::fs::read_to_string(&metrics_file)
            .unwrap_or_default()
            .lines()
            .count()
    };
    while lines() < 5 {
        assert!(started.elapsed().as_secs() < 120 && child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = metrics(&folder.path().join("trainer"));
    assert_eq!(
        steps(&lines, "loss"),
        (1..lines.len() as u64).collect::<Vec<_>>()
    );
    let page = read(&folder.path().join("trainer").join("report.html"));
    assert!(page.contains("http-equiv=\"refresh\"") && page.contains("of 12,000"));
}
