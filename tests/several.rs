//! What a stopped fine-tuning may be continued with: the same run alone, and of several the one that
//! it was stopped in.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{cloze, fails, json, stderr, succeeds, text, tiny};
use serde_json::Value;

/// Sentences, right where they hold the word "good"; `swapped` turns the labels around.
fn rows(swapped: bool) -> String {
    let label = |good: bool| if good != swapped { "1" } else { "0" };
    let rows = (0..24).map(|i| {
        let word = if i % 2 == 0 { "good" } else { "bad" };
        format!("the number {i} was {word}\t{}\n", label(i % 2 == 0))
    });
    std::iter::once("sentence\tlabel\n".to_owned())
        .chain(rows)
        .collect()
}

/// A command on `folder`'s files that writes into its folder `out`.
fn arguments(folder: &Path, out: &str, more: &[&str]) -> Vec<String> {
    let (out, data) = (folder.join(out), folder.join("data"));
    let start = [
        "finetune",
        "sst-2",
        "--data",
        text(&data),
        "--out",
        text(&out),
    ];
    let usual = [
        "--lr",
        "1e-3",
        "--epochs",
        "4",
        "--batch",
        "4",
        "--json",
        "--save-every",
        "1",
    ];
    let all = start.iter().chain(&usual).chain(more);
    all.map(|&word| word.to_owned()).collect()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("train.tsv"), rows(false)).unwrap();
    std::fs::write(data.join("dev.tsv"), rows(false)).unwrap();
    folder
}

/// Runs the command until `until` is there, then stops it; what it prints.
fn stopped(arguments: &[String], until: impl Fn() -> bool) -> Value {
    let child = cloze()
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !until() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "nothing saved"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    json(&output)
}

#[test]
fn several_runs_go_on_in_the_one_that_was_stopped() {
    let folder = folder();
    let model = ["--model", text(tiny()), "--seeds", "3"];
    let whole = json(&succeeds(&words(&arguments(
        folder.path(),
        "whole",
        &model,
    ))));

    let args = arguments(folder.path(), "out", &model);
    let trainer = folder.path().join("out/trainer");
    let (finished, state) = (
        trainer.join("finished.json"),
        trainer.join("state.safetensors"),
    );
    let part = stopped(&args, || finished.exists() && state.exists());
    assert_eq!(part["stopped"], true);
    // The stopped run is no candidate, however good it is: what was kept is the first, whole one.
    let runs = part["runs"].as_array().map_or(1, Vec::len);
    assert!(runs < 3, "{part}");
    assert_eq!(part["steps"], whole["steps"]);
    if runs == 1 {
        assert_eq!(
            (&part["mean"], &part["deviation"]),
            (&Value::Null, &Value::Null)
        );
    }

    let message = fails(&words(&args), 2);
    assert!(message.contains("already holds a run"), "{message}");
    let with = |more: &[&str]| arguments(folder.path(), "out", &[&model[..], more].concat());
    let message = fails(&words(&with(&["--resume", "--seed", "7"])), 2);
    assert!(message.contains("run 1 had seed 1"), "{message}");
    let resumed = json(&succeeds(&words(&with(&["--resume"]))));
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
    assert!(!finished.exists() && !state.exists(), "all is done");
    for seed in 1..=3 {
        let lines = trainer.join(format!("runs/lr-1e-3-seed-{seed}/metrics.jsonl"));
        let lines = std::fs::read_to_string(lines).unwrap();
        let steps = lines
            .lines()
            .filter(|line| line.contains("\"loss\""))
            .count();
        assert_eq!(
            steps as u64,
            whole["steps"].as_u64().unwrap(),
            "seed {seed}"
        );
    }
}

#[test]
fn another_run_is_not_taken_for_the_stopped_one() {
    let folder = folder();
    let model = ["--model", text(tiny())];
    let args = arguments(folder.path(), "out", &model);
    let state = folder.path().join("out/trainer/state.safetensors");
    stopped(&args, || state.exists());
    let refused_of = |model: &Path, more: &[&str], why: &str| {
        let more = [&["--model", text(model), "--resume"], more].concat();
        let message = fails(&words(&arguments(folder.path(), "out", &more)), 2);
        assert!(message.contains(why), "{more:?}: {message}");
    };
    let refused = |more: &[&str], why: &str| refused_of(tiny(), more, why);
    refused(&["--warmup", "0.5"], "--warmup was 0.1 and is 0.5 now");
    refused(&["--dropout", "0.3"], "the dropout was");
    refused(
        &["--adam-epsilon", "1e-8"],
        "--adam-epsilon was 1e-6 and is 1e-8 now",
    );
    refused(
        &["--weight-decay", "0"],
        "--weight-decay was 0.01 and is 0 now",
    );
    refused(&["--dtype", "bf16"], "--dtype was f32 and is bf16 now");
    refused(
        &["--matmul", "fast"],
        "--dtype was f32 and is f32 with --matmul fast now",
    );
    refused(&["--max-len", "7"], "the number of their tokens was");
    refused(
        &["--frozen"],
        "what the head reads was an encoder that is trained",
    );
    let other = folder.path().join("whole");
    succeeds(&words(&arguments(folder.path(), "whole", &model)));
    refused_of(&other, &[], "the model that it starts from");
    std::fs::write(folder.path().join("data/train.tsv"), rows(true)).unwrap();
    refused(&[], "the training data (by checksum) was");
    std::fs::write(folder.path().join("data/train.tsv"), rows(false)).unwrap();

    let anew = arguments(
        folder.path(),
        "out",
        &[&model[..], &["--overwrite"]].concat(),
    );
    let anew = json(&succeeds(&words(&anew)));
    assert_eq!(anew["stopped"], false);
    assert!(!state.exists());
}

/// One run and several: what is done is told again, to the last digit, and nothing is touched.
#[test]
fn a_run_that_is_done_is_not_trained_again() {
    let folder = folder();
    let model = ["--model", text(tiny())];
    let weights = folder.path().join("out/model.safetensors");
    for own in [&[][..], &["--seeds", "2"]] {
        let args =
            |more: &[&str]| arguments(folder.path(), "out", &[&model[..], own, more].concat());
        let whole = json(&succeeds(&words(&args(&["--overwrite"]))));
        let written = || std::fs::metadata(&weights).unwrap().modified().unwrap();
        let before = written();
        let again = succeeds(&words(&args(&["--resume"])));
        assert!(stderr(&again).contains("is done: nothing is trained"));
        assert_eq!((json(&again), written()), (whole, before));
        let refused = |more: &[&str], why: &str| {
            let message = fails(&words(&args(&[&["--resume"], more].concat())), 2);
            assert!(message.contains(why), "{more:?}: {message}");
            assert_eq!(written(), before);
        };
        refused(&["--warmup", "0.5"], "--warmup was 0.1 and is 0.5 now");
        refused(&["--seed", "7"], "--seed was");
        refused(&["--max-len", "7"], "the number of their tokens was");
    }
    // The two runs aren't one, but the first two of three.
    let args = |seeds| {
        let more = ["--model", text(tiny()), "--resume", "--seeds", seeds];
        arguments(folder.path(), "out", &more)
    };
    let message = fails(&words(&args("1")), 2);
    assert!(message.contains("run 2 had seed 2"), "{message}");
    let two = json(&succeeds(&words(&args("2"))));
    let three = succeeds(&words(&args("3")));
    let told = stderr(&three);
    assert!(told.contains("continuing after 2 finished runs"), "{told}");
    let three = json(&three);
    let runs = three["runs"].as_array().unwrap();
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].as_u64()).collect();
    assert_eq!(seeds, [Some(1), Some(2), Some(3)]);
    assert_eq!(runs[..2], two["runs"].as_array().unwrap()[..]);
    assert_eq!(json(&succeeds(&words(&args("3")))), three);
    // A model that is gone is trained anew.
    std::fs::remove_file(&weights).unwrap();
    let anew = succeeds(&words(&args("2")));
    assert!(stderr(&anew).contains("starting a fresh run") && weights.exists());
}

/// The scores after each epoch are kept with a run that is stopped.
#[test]
fn epochs_that_were_measured_are_told_after_a_stop() {
    let folder = folder();
    let more = ["--model", text(tiny()), "--eval-epochs"];
    let mut args = arguments(folder.path(), "out", &more);
    let epochs = args.iter().position(|arg| arg == "--epochs").unwrap();
    // Enough that the signal comes before the last one.
    args[epochs + 1] = "40".to_owned();
    let lines = folder.path().join("out/trainer/metrics.jsonl");
    let measured = || std::fs::read_to_string(&lines).is_ok_and(|text| text.contains("\"dev\""));
    let part = stopped(&args, measured);
    assert!(part["stopped"] == true && part["epochs"][0]["epoch"] == 1);
    let whole = json(&succeeds(&[&words(&args)[..], &["--resume"]].concat()));
    let epochs = whole["epochs"].as_array().unwrap();
    let numbers = epochs.iter().filter_map(|e| e["epoch"].as_u64());
    assert!(numbers.eq(1..=40), "{whole}");
    assert_eq!(epochs[0], part["epochs"][0]);
    assert_eq!(epochs[39]["dev"], whole["dev"]);
}

/// Measured on turned labels a model is best before it has learned anything.
#[test]
fn the_best_epoch_is_kept_also_after_a_stop() {
    let folder = folder();
    std::fs::write(folder.path().join("data/dev.tsv"), rows(true)).unwrap();
    let more = ["--model", text(tiny()), "--keep-best", "--seeds", "2"];
    let args = |out: &str| {
        let mut args = arguments(folder.path(), out, &more);
        let epochs = args.iter().position(|arg| arg == "--epochs").unwrap();
        args[epochs + 1] = "20".to_owned();
        args
    };
    let whole = json(&succeeds(&words(&args("whole"))));
    let epochs = whole["epochs"].as_array().unwrap();
    let accuracy = |scores: &Value| scores["dev"]["accuracy"].as_f64().unwrap();
    let best = epochs.iter().map(accuracy).fold(0.0, f64::max);
    let first = epochs
        .iter()
        .position(|epoch| accuracy(epoch) == best)
        .unwrap();
    assert!(accuracy(&epochs[19]) < best, "{whole}");
    assert_eq!(whole["kept_epoch"], first + 1);
    assert_eq!(accuracy(&whole), best);
    let (out, dev) = (
        folder.path().join("whole"),
        folder.path().join("data/dev.tsv"),
    );
    let evaluate = [
        "evaluate",
        "sst-2",
        "--data",
        text(&dev),
        "--model",
        text(&out),
        "--json",
    ];
    assert_eq!(json(&succeeds(&evaluate))["dev"], whole["dev"]);
    assert!(!out.join("trainer/best.safetensors").exists());

    let broken = args("broken");
    let kept = folder.path().join("broken/trainer/best.safetensors");
    stopped(&broken, || kept.exists());
    let again = json(&succeeds(&[&words(&broken)[..], &["--resume"]].concat()));
    for what in ["dev", "epochs", "kept_epoch", "mean"] {
        assert_eq!(again[what], whole[what], "{what}");
    }
    let other = words(&broken)
        .into_iter()
        .filter(|word| *word != "--keep-best");
    let other: Vec<&str> = other.chain(["--resume"]).collect();
    let message = fails(&other, 2);
    assert!(
        message.contains("--keep-best was true and is false now"),
        "{message}"
    );
}

#[test]
fn the_model_to_start_from_is_not_overwritten() {
    let folder = folder();
    let out = folder.path().join("out");
    let model = ["--model", text(tiny())];
    succeeds(&words(&arguments(folder.path(), "out", &model)));
    let before = std::fs::read(out.join("model.safetensors")).unwrap();
    let args = arguments(folder.path(), "out", &["--model", text(&out)]);
    let message = fails(&words(&args), 2);
    assert!(
        message.contains("that is the model to start from"),
        "{message}"
    );
    assert_eq!(
        std::fs::read(out.join("model.safetensors")).unwrap(),
        before
    );
}
