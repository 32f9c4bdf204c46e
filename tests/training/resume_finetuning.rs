//! Resuming fine-tuning: a stopped run, the stopped one of several runs, and a finished run.

use serde_json::Value;

use crate::common::{
    Folder, assert_contains, fails, interrupted, json, stderr, succeeds, text, words,
};
use crate::{opinions, sentiment};

/// Returns the arguments of a run into `out`, of 4 epochs if `more` names no other number.
fn run(folder: &Folder, out: &str, more: &[&str]) -> Vec<String> {
    let epochs = if more.contains(&"--epochs") { &[][..] } else { &["--epochs", "4"] };
    let usual = ["--batch", "4", "--save-every", "1"];
    folder.finetune_into(out, "sst-2", &[&usual, epochs, more].concat())
}

/// Interrupts a run as soon as `condition` holds and returns what it prints.
fn stopped(args: &[String], condition: impl Fn() -> bool) -> Value {
    json(&interrupted(args, condition))
}

#[test]
fn several_runs_resume_in_the_one_that_was_stopped() {
    let folder = sentiment(24, 24);
    let seeds = ["--seeds", "3"];
    let whole = json(&succeeds(run(&folder, "whole", &seeds)));

    let args = run(&folder, "out", &seeds);
    let trainer = folder.path("out/trainer");
    let [finished, state] = ["finished.json", "state.safetensors"].map(|name| trainer.join(name));
    let part = stopped(&args, || finished.exists() && state.exists());
    assert_eq!(part["stopped"], true);
    // The stopped run cannot be the best: the first one, which is complete, was kept.
    let runs = part["runs"].as_array().map_or(1, Vec::len);
    assert!(runs < 3, "{part}");
    assert_eq!(part["steps"], whole["steps"]);
    if runs == 1 {
        assert!(part["mean"].is_null() && part["deviation"].is_null());
    }

    assert_contains(&fails(args, 2), "already holds a run");
    let with = |more: &[&str]| run(&folder, "out", &[&seeds, more].concat());
    let message = fails(with(&["--resume", "--seed", "7"]), 2);
    assert_contains(&message, "run 1 had seed 1");
    let resumed = json(&succeeds(with(&["--resume"])));
    for run in ["runs", "mean", "deviation"] {
        let without_times = |all: &Value| {
            let mut all = all[run].clone();
            for run in all.as_array_mut().into_iter().flatten() {
                let run = run.as_object_mut().unwrap();
                run.retain(|name, _| {
                    !["train_seconds", "real_tokens_per_s"].contains(&name.as_str())
                });
            }
            all
        };
        assert_eq!(without_times(&resumed), without_times(&whole), "{run}");
    }
    assert_eq!(resumed["dev"], whole["dev"]);
    assert!(!finished.exists() && !state.exists(), "all runs have finished");
    for seed in 1..=3 {
        let lines = trainer.join(format!("runs/lr-1e-3-seed-{seed}/metrics.jsonl"));
        let lines = std::fs::read_to_string(lines).unwrap();
        let steps = lines.lines().filter(|line| line.contains("\"learning_rate\"")).count();
        assert_eq!(whole["steps"], steps, "seed {seed}");
    }
}

#[test]
fn another_run_is_not_taken_for_the_stopped_one() {
    let folder = sentiment(24, 24);
    let state = folder.path("out/trainer/state.safetensors");
    stopped(&run(&folder, "out", &[]), || state.exists());
    let refused = |more: &[&str], expected: &str| {
        let message = fails(run(&folder, "out", &[&["--resume"], more].concat()), 2);
        assert!(message.contains(expected), "{more:?}: {message}");
    };
    refused(&["--warmup", "0.5"], "--warmup was 0.1 and is now 0.5");
    refused(&["--dropout", "0.3"], "the dropout was");
    let epsilon = ["--adam-epsilon", "1e-8"];
    refused(&epsilon, "--adam-epsilon was 1e-6 and is now 1e-8");
    let decay = ["--weight-decay", "0"];
    refused(&decay, "--weight-decay was 0.01 and is now 0");
    refused(&["--dtype", "bf16"], "--dtype was f32 and is now bf16");
    let fast = "--dtype was f32 and is now f32 with fast matrix products";
    refused(&["--matmul", "fast"], fast);
    refused(&["--max-len", "7"], "the number of their tokens was");
    let mut args = run(&folder, "out", &["--resume"]);
    let task = args.iter().position(|arg| arg == "sst-2").unwrap();
    args.splice(task..=task, ["custom", "--columns", "sentence,label"].map(str::to_owned));
    assert_contains(&fails(args, 2), "the task was sst-2 and is now custom");
    let head = "what the head reads was an encoder that is trained";
    refused(&["--frozen"], head);
    succeeds(run(&folder, "whole", &[]));
    let other = folder.path("whole");
    refused(&["--model", text(&other)], "the model to start from");
    folder.write("train.tsv", &opinions(0..24, true));
    refused(&[], "the training data (by checksum) was");
    folder.write("train.tsv", &opinions(0..24, false));

    let again = json(&succeeds(run(&folder, "out", &["--overwrite"])));
    assert_eq!(again["stopped"], false);
    assert!(!state.exists());
}

/// A finished run and finished runs print their results again, to the last digit, and change no file.
#[test]
fn a_finished_run_is_not_trained_again() {
    let folder = sentiment(24, 24);
    let weights = folder.path("out/model.safetensors");
    for seeds in [&[][..], &["--seeds", "2"]] {
        let args = |more: &[&str]| run(&folder, "out", &[seeds, more].concat());
        let whole = json(&succeeds(args(&["--overwrite"])));
        let written = || std::fs::metadata(&weights).unwrap().modified().unwrap();
        let before = written();
        let again = succeeds(args(&["--resume"]));
        assert_contains(&stderr(&again), "is done: nothing is trained");
        assert_eq!((json(&again), written()), (whole, before));
        let refused = |more: &[&str], expected: &str| {
            let message = fails(args(&[&["--resume"], more].concat()), 2);
            assert!(message.contains(expected), "{more:?}: {message}");
            assert_eq!(written(), before);
        };
        refused(&["--warmup", "0.5"], "--warmup was 0.1 and is now 0.5");
        refused(&["--seed", "7"], "--seed was");
        refused(&["--max-len", "7"], "the number of their tokens was");
    }
    // These two runs can be the first two of three, but not a single one.
    let args = |seeds| run(&folder, "out", &["--resume", "--seeds", seeds]);
    assert_contains(&fails(args("1"), 2), "run 2 had seed 2");
    let two = json(&succeeds(args("2")));
    let three = succeeds(args("3"));
    assert_contains(&stderr(&three), "continuing after 2 finished runs");
    let three = json(&three);
    let runs = three["runs"].as_array().unwrap();
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].as_u64()).collect();
    assert_eq!(seeds, [Some(1), Some(2), Some(3)]);
    assert_eq!(runs[..2], two["runs"].as_array().unwrap()[..]);
    assert_eq!(json(&succeeds(args("3"))), three);
    // If the model is missing, it is trained again.
    std::fs::remove_file(&weights).unwrap();
    let again = succeeds(args("2"));
    assert_contains(&stderr(&again), "starting a fresh run");
    assert!(weights.exists());
}

/// A stopped run keeps the scores of its epochs.
#[test]
fn scores_of_epochs_are_reported_after_a_stop() {
    let folder = sentiment(24, 24);
    // Enough epochs that the signal comes before the last one.
    let args = run(&folder, "out", &["--eval-epochs", "--epochs", "40"]);
    let lines = folder.path("out/trainer/metrics.jsonl");
    let measured = || std::fs::read_to_string(&lines).is_ok_and(|text| text.contains("\"dev\""));
    let part = stopped(&args, measured);
    assert!(part["stopped"] == true && part["epochs"][0]["epoch"] == 1);
    let whole = json(&succeeds(args.iter().map(String::as_str).chain(["--resume"])));
    let epochs = whole["epochs"].as_array().unwrap();
    let numbers = epochs.iter().filter_map(|e| e["epoch"].as_u64());
    assert!(numbers.eq(1..=40), "{whole}");
    assert_eq!(epochs[0], part["epochs"][0]);
    assert_eq!(epochs[39]["dev"], whole["dev"]);
}

/// With swapped labels in the development set, a model is best before it has learned anything.
#[test]
fn the_best_epoch_is_kept_also_after_a_stop() {
    let folder = sentiment(24, 24);
    folder.write("dev.tsv", &opinions(0..24, true));
    let more = ["--epochs", "10", "--seeds", "2", "--keep-best"];
    let whole = json(&succeeds(run(&folder, "whole", &more)));
    let epochs = whole["epochs"].as_array().unwrap();
    let accuracy = |scores: &Value| scores["dev"]["accuracy"].as_f64().unwrap();
    let best = epochs.iter().map(accuracy).fold(0.0, f64::max);
    let first = epochs.iter().position(|epoch| accuracy(epoch) == best);
    assert!(accuracy(&epochs[9]) < best, "{whole}");
    assert_eq!(whole["kept_epoch"], first.unwrap() + 1);
    assert_eq!(accuracy(&whole), best);
    let (out, dev) = (folder.path("whole"), folder.path("dev.tsv"));
    let files = format!("--data {} --model {}", text(&dev), text(&out));
    let evaluated = json(&succeeds(words(&format!("evaluate sst-2 --json {files}"))));
    assert_eq!(evaluated["dev"], whole["dev"]);
    assert!(!out.join("trainer/best.safetensors").exists());

    let kept = folder.path("broken/trainer/best.safetensors");
    stopped(&run(&folder, "broken", &more), || kept.exists());
    let resumed = run(&folder, "broken", &[&more[..], &["--resume"]].concat());
    let again = json(&succeeds(&resumed));
    for what in ["dev", "epochs", "kept_epoch", "mean"] {
        assert_eq!(again[what], whole[what], "{what}");
    }
    let other = resumed.iter().filter(|arg| *arg != "--keep-best");
    let message = fails(other, 2);
    assert_contains(&message, "--keep-best was true and is now false");
}

#[test]
fn the_model_to_start_from_is_not_overwritten() {
    let folder = sentiment(24, 24);
    succeeds(run(&folder, "out", &[]));
    let weights = folder.path("out/model.safetensors");
    let before = std::fs::read(&weights).unwrap();
    let out = folder.path("out");
    let message = fails(run(&folder, "out", &["--model", text(&out)]), 2);
    assert_contains(&message, "that is the model to start from");
    assert_eq!(std::fs::read(&weights).unwrap(), before);
}
