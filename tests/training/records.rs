//! The records of a run beside the model: metrics, TensorBoard events, the report page, the model card.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{assert_contains, killed, succeeds, text, words};
use crate::sentiment;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn metrics(folder: &Path) -> Vec<Value> {
    let text = read(&folder.join("metrics.jsonl"));
    assert!(text.ends_with('\n'), "whole lines");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the steps of the lines that have `name`.
fn steps(lines: &[Value], name: &str) -> Vec<u64> {
    let with = lines.iter().filter(|line| line.get(name).is_some());
    with.map(|line| line["step"].as_u64().unwrap()).collect()
}

fn event_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| text(path).contains("events.out.tfevents.")).collect()
}

/// Returns the messages of an event file in TensorFlow's record format.
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
fn a_resumed_pretraining_run_has_every_step_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let run = |steps: u32, more: &str| {
        let line = format!("pretrain --out {} --steps {steps} --batch 2 --seed 3", text(out));
        succeeds(words(&format!(
            "{line} --first-seq 16 --save-every 4 --eval-every 5 --lr 1e-3{more}"
        )));
    };
    let state = out.join("trainer").join("state.safetensors");
    run(4, "");
    let checkpoint = std::fs::read(&state).unwrap();
    let trainer = out.join("trainer");
    let first = metrics(&trainer);
    assert_eq!(steps(&first, "loss"), [1, 2, 3, 4]);
    assert_eq!(steps(&first, "eval"), [0, 4]);
    // The records of a killed run: they reach beyond the checkpoint of step 4, which is put back below.
    run(6, " --resume");
    assert_eq!(steps(&metrics(&trainer), "loss"), [1, 2, 3, 4, 5, 6]);
    std::fs::write(&state, checkpoint).unwrap();
    run(8, " --resume");

    let lines = metrics(&trainer);
    assert_eq!(steps(&lines, "loss"), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(steps(&lines, "eval"), [0, 4, 5, 8]);
    // What was recorded before the checkpoint stays.
    assert_eq!(lines[..first.len()], first);
    let names = "mlm_loss nsp_loss learning_rate gradient_norm tokens_per_s time";
    for name in names.split(' ') {
        assert!(lines[1][name].as_f64().unwrap() > 0.0, "{name}");
    }
    let files = event_files(&trainer);
    assert_eq!(files.len(), 1);
    let events = messages(&files[0]);
    assert!(holds(&events[0], "brain.Event:2"));
    let with = |part| events.iter().filter(|event| holds(event, part)).count();
    assert_eq!((with("train/mlm_loss"), with("eval/mlm_accuracy")), (8, 4));

    let page = read(&trainer.join("report.html"));
    for part in [
        "step 8 of 8, resumed after 4; finished",
        // 0.8 of the first run's 4 steps: a phase that has ended stays ended.
        "16, for 3 steps",
        "Masked-LM loss",
        "Gradient norm",
        "Learning rate",
        "Speed",
    ] {
        assert_contains(&page, part);
    }
    assert!(page.contains("unigram entropy") && page.contains("--save-every 4"));
    let card = read(&out.join("README.md"));
    assert!(card.starts_with("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n"));
    for part in ["held-out documents", "perplexity", "--resume", "Cloze's own small corpus"] {
        assert_contains(&card, part);
    }
}

#[test]
fn fine_tuning_records_its_scores_and_each_of_several_runs() {
    let folder = sentiment(64, 64);
    let out = folder.path("out");
    let trainer = out.join("trainer");

    let several = folder.finetuned("sst-2", &["--epochs", "1", "--seeds", "2"]);
    for seed in [1, 2] {
        let own = trainer.join("runs").join(format!("lr-1e-3-seed-{seed}"));
        let lines = metrics(&own);
        assert_eq!(steps(&lines, "loss"), [1, 2]);
        let scores = &several["runs"][seed - 1]["dev"];
        let recorded = &lines.last().unwrap()["dev"]["accuracy"];
        assert_eq!(*recorded, scores["accuracy"]);
        assert_eq!(event_files(&own).len(), 1);
    }
    assert!(!trainer.join("metrics.jsonl").exists());
    let page = read(&trainer.join("report.html"));
    assert_contains(&page, "run 2 (lr-1e-3-seed-2), step 2 of 2; finished");
    assert!(page.contains("\nlr-1e-3-seed-1\n"));
    let card = read(&out.join("README.md"));
    assert_contains(&card, "accuracy, mean of 2 seeds");

    let trained = folder.finetuned("sst-2", &["--epochs", "2", "--eval-epochs"]);
    // The runs of an earlier command are gone.
    assert!(!trainer.join("runs").exists());
    let lines = metrics(&trainer);
    assert_eq!(steps(&lines, "loss").len(), 4);
    assert_eq!(steps(&lines, "dev"), [2, 4]);
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
        assert_contains(&card, part);
    }
    let page = read(&trainer.join("report.html"));
    assert!(page.contains("Scores") && page.contains("dev accuracy, step 4"));

    std::fs::write(out.join("README.md"), "mine").unwrap();
    folder.finetuned("sst-2", &["--epochs", "1", "--limit", "8"]);
    assert_eq!(read(&out.join("README.md")), "mine");
    assert!(read(&out.join("MODEL_CARD.md")).contains("pipeline_tag"));
}

/// The report page shows how far the killed run was.
#[cfg(unix)]
#[test]
fn a_killed_run_leaves_whole_lines() {
    let folder = tempfile::tempdir().unwrap();
    let trainer = folder.path().join("trainer");
    let line = format!("pretrain --batch 2 --out {}", text(folder.path()));
    killed(words(&line), || {
        let text = std::fs::read_to_string(trainer.join("metrics.jsonl"));
        text.is_ok_and(|text| text.lines().count() >= 5)
    });
    let lines = metrics(&trainer);
    assert!(steps(&lines, "loss").into_iter().eq(1..lines.len() as u64));
    let page = read(&trainer.join("report.html"));
    assert!(page.contains("http-equiv=\"refresh\"") && page.contains("of 12,000"));
}
