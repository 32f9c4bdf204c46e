//! Ranks compute what one process computes.

use std::fs;

use serde_json::json;

use crate::common::{Folder, assert_contains, json, stderr, stdout, text};
use crate::{alone, corpus, count, pretraining, recorded, together};

#[test]
fn in_a_fixed_order_the_bits_are_those_of_one_process() {
    let (folder, corpus) = corpus();
    let (ranks, whole) = (count(), (4 * count()).to_string());
    for more in [&[][..], &["--no-nsp"], &["--dtype", "bf16"]] {
        let (a, b) = (folder.path("a"), folder.path("b"));
        let usual = ["--deterministic", "--overwrite", "--save-every", "20"];
        let one = [&pretraining(&corpus, &a, &whole)[..], &usual, &["--micro-batch", "4"], more];
        let one = json(&alone(one.concat()));
        let several = [&pretraining(&corpus, &b, "4")[..], &usual, more].concat();
        let several = json(&together(ranks, several));
        assert_eq!(recorded(&a, "loss"), recorded(&b, "loss"), "{more:?}");
        assert_eq!(recorded(&a, "loss").len(), 50);
        let weights = |out: &std::path::Path| fs::read(out.join("model.safetensors")).unwrap();
        assert!(weights(&a) == weights(&b), "{more:?}");
        let accuracy = |run: &serde_json::Value| run["eval"]["mlm_accuracy"].clone();
        assert_eq!(accuracy(&one), accuracy(&several));
    }
}

#[test]
fn in_any_order_the_losses_are_those_of_one_process() {
    let (folder, corpus) = corpus();
    let (a, b) = (folder.path("a"), folder.path("b"));
    alone(pretraining(&corpus, &a, &(4 * count()).to_string()));
    let several = together(count(), pretraining(&corpus, &b, "4"));
    let expected = format!("{0} ranks, {0} on this host; this one has 1 of its threads", count());
    assert_contains(&stderr(&several), &expected);
    close(&recorded(&a, "loss"), &recorded(&b, "loss"));
}

fn close(one: &[f64], several: &[f64]) {
    assert_eq!(one.len(), several.len());
    for (step, (a, b)) in one.iter().zip(several).enumerate() {
        assert!((a - b).abs() < 1e-6 * a.abs(), "step {}: {a} and {b}", step + 1);
    }
}

/// Fine-tunes a model for a task in one process and as ranks, and compares losses, scores and answers.
fn tuned_alike(folder: &Folder, task: &str, train: &str, dev: &str, more: &[&str]) {
    let whole = (4 * count()).to_string();
    let run = |out: &str, batch: &str| {
        let (data, dev) = (folder.path(train), folder.path(dev));
        let files = ["--train", text(&data), "--dev", text(&dev), "--batch", batch, "--lr", "1e-4"];
        let mut args = folder.finetune_into(out, task, &[&files[..], more].concat());
        // The files are given.
        args.drain(2..4);
        args.extend(["--keep-best", "--epochs", "3"].map(str::to_owned));
        args
    };
    let one = json(&alone(run("one", &whole)));
    let several = json(&together(count(), run("several", "4")));
    let losses = |out: &str| recorded(&folder.path(out), "loss");
    close(&losses("one"), &losses("several"));
    assert_eq!(one["steps"], several["steps"]);

    let ask = |command: &str, more: &[&str]| -> Vec<String> {
        let (model, data) = (folder.path("several"), folder.path(dev));
        let input = ["--data", "--input"][usize::from(command == "predict")];
        let args = [command, task, "--model", text(&model), input, text(&data)];
        args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
    };
    for args in [ask("evaluate", &["--json"]), ask("predict", &["--json"])] {
        assert_eq!(stdout(&alone(&args)), stdout(&together(count(), &args)), "{task}");
    }
}

#[test]
fn a_classifier_is_tuned_alike() {
    let folder = Folder::new();
    let rows = |rows: std::ops::Range<usize>| {
        let row = |i: usize| {
            let word = ["warm", "cold"][i % 2];
            format!("it was a {word} day in the {} house\t{}\n", ["old", "new"][i / 2 % 2], i % 2)
        };
        "sentence\tlabel\n".to_owned() + &rows.map(row).collect::<String>()
    };
    // The last batch has one row: the other ranks have no share of it.
    folder.write("train.tsv", &rows(0..49)).write("dev.tsv", &rows(61..80));
    tuned_alike(&folder, "sst-2", "train.tsv", "dev.tsv", &[]);
    tuned_alike(&folder, "sst-2", "train.tsv", "dev.tsv", &["--freeze", "1", "--overwrite"]);
}

#[test]
fn words_are_labelled_alike() {
    let folder = Folder::new();
    let sentences = |rows: std::ops::Range<usize>| {
        let mut columns = String::from("-DOCSTART- -X- O O\n\n");
        for i in rows {
            let name = ["Alice", "Robert", "Hannah"][i % 3];
            columns += &format!("{name} NNP I-NP I-PER\n");
            columns += "went VBD I-VP O\n";
            if i % 4 == 0 {
                columns += "home NN I-NP O\n";
            }
            columns += "\n";
        }
        columns
    };
    folder.write("train.txt", &sentences(0..45)).write("dev.txt", &sentences(45..60));
    tuned_alike(&folder, "ner", "train.txt", "dev.txt", &[]);
}

#[test]
fn spans_are_found_alike() {
    let folder = Folder::new();
    let questions = |rows: std::ops::Range<usize>| {
        let paragraph = |i: usize| {
            let (name, place) = (["Alice", "Robert"][i % 2], ["York", "Rome", "Bath"][i % 3]);
            let context = format!("On day {i} {name} went to {place} by train.");
            let start = context.find(place).unwrap();
            let answers = json!([{"text": place, "answer_start": start}]);
            let question = format!("Where did {name} go?");
            let questions =
                json!([{"id": i.to_string(), "question": question, "answers": answers}]);
            json!({"context": context, "qas": questions})
        };
        let paragraphs: Vec<_> = rows.map(paragraph).collect();
        json!({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}).to_string()
    };
    folder.write("train.json", &questions(0..42)).write("dev.json", &questions(42..53));
    tuned_alike(&folder, "squad", "train.json", "dev.json", &[]);
}

#[test]
fn vectors_are_those_of_one_process() {
    let folder = Folder::new();
    let lines: String = (0..900).map(|i| format!("line {i} {}\n", "word ".repeat(i % 9))).collect();
    folder.write("lines.txt", &lines);
    for pool in ["mean", "none"] {
        let (a, b) = (folder.path("a.jsonl"), folder.path("b.jsonl"));
        let args = |out: &std::path::Path| {
            let args = ["features", "--pool", pool, "--out", text(out)];
            args.map(str::to_owned)
        };
        let c = folder.path("c.jsonl");
        let runs =
            [(crate::common::cloze(), &a), (crate::mpirun(count()), &b), (crate::mpirun(1), &c)];
        for (mut program, out) in runs {
            let input = fs::File::open(folder.path("lines.txt")).unwrap();
            program.args(args(out));
            if *out == c {
                // Another rank, whose batches would be larger.
                program.args([":", "-n", "1", env!("CARGO_BIN_EXE_cloze"), "--threads", "3"]);
                program.args(args(out));
            }
            let output = program.stdin(input).output().unwrap();
            assert!(output.status.success(), "{}", crate::common::stderr(&output));
        }
        for several in [b, c] {
            assert_eq!(fs::read_to_string(&a).unwrap(), fs::read_to_string(several).unwrap());
        }
    }
}

#[test]
fn a_store_is_prepared_and_read_alike() {
    let (folder, corpus) = corpus();
    let vocabulary = crate::common::tiny().join("vocab.txt");
    let text_of: String = (0..40).map(|_| fs::read_to_string(&corpus).unwrap()).collect();
    folder.write("a.txt", &text_of).write("b.txt", &text_of.replace("cat", "dog"));
    let (a, b) = (folder.path("a.txt"), folder.path("b.txt"));
    let prepare = |out: &std::path::Path| -> Vec<String> {
        let files = ["prepare", "--text", text(&a), text(&b), "--vocab", text(&vocabulary)];
        let files = [&files[..], &["--out", text(out), "--json"]].concat();
        files.into_iter().map(str::to_owned).collect()
    };
    let (one, several) = (folder.path("one"), folder.path("several"));
    let prepared = json(&alone(prepare(&one)));
    let shared = json(&together(count(), prepare(&several)));
    for key in ["documents", "tokens", "shards", "bytes"] {
        assert_eq!(prepared[key], shared[key], "{key}");
    }
    let mut files: Vec<_> =
        fs::read_dir(&one).unwrap().map(|file| file.unwrap().file_name()).collect();
    // The lock names the process.
    files.retain(|name| name != "lock");
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        assert!(
            fs::read(one.join(&file)).unwrap() == fs::read(several.join(&file)).unwrap(),
            "{file:?}"
        );
    }

    let train = |out: &std::path::Path, batch: &str| -> Vec<String> {
        let args = ["pretrain", "--store", text(&several), "--out", text(out), "--batch", batch];
        let more = ["--steps", "10", "--seq", "32", "--first-seq", "32", "--json"];
        args.iter().chain(&more).map(|&arg| arg.to_owned()).collect()
    };
    let whole = (4 * count()).to_string();
    alone(train(&folder.path("x"), &whole));
    together(count(), train(&folder.path("y"), "4"));
    close(&recorded(&folder.path("x"), "loss"), &recorded(&folder.path("y"), "loss"));
}
