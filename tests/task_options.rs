//! Options of tasks: what a fine-tuned model keeps of them, so that it is measured and asked as it was
//! trained, and what is said of wrong ones.

mod common;

use std::process::Output;

use common::{Folder, accept_changes, cloze, fails, json, sentence, stderr, succeeds, text, tiny};
use serde_json::Value;

impl Folder {
    /// Fine-tunes on the folder's files into `out`, for one epoch.
    fn finetune(&self, task: &str, more: &[&str]) -> Output {
        let out = self.path("out");
        let mut args = vec!["finetune", task, "--model", text(tiny()), "--epochs", "1"];
        args.extend(["--data", text(self.0.path()), "--out", text(&out), "--json"]);
        if !more.contains(&"--resume") {
            args.push("--overwrite");
        }
        args.extend(more);
        cloze().args(args).output().unwrap()
    }

    /// The JSON of a fine-tuning that succeeds.
    fn trained(&self, task: &str, more: &[&str]) -> Value {
        let output = self.finetune(task, more);
        assert!(output.status.success(), "{}", stderr(&output));
        json(&output)
    }

    /// Arguments that ask the model in `out` about a file.
    fn asked(&self, command: &str, task: &str, file: &str, more: &[&str]) -> Vec<String> {
        let (out, file) = (self.path("out"), self.path(file));
        let option = ["--data", "--input"][usize::from(command == "predict")];
        let start = [command, task, "--model", text(&out), option, text(&file)];
        let all = start.iter().chain(more);
        all.map(|&word| word.to_owned()).collect()
    }

    fn evaluate(&self, task: &str, file: &str, more: &[&str]) -> Output {
        let args = self.asked("evaluate", task, file, &[more, &["--json"]].concat());
        succeeds(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn predict(&self, task: &str, file: &str, more: &[&str]) -> String {
        let args = self.asked("predict", task, file, more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        String::from_utf8(succeeds(&args).stdout).unwrap()
    }

    /// What asking fails with, as wrong usage.
    fn refused(&self, command: &str, task: &str, file: &str, more: &[&str]) -> String {
        let args = self.asked(command, task, file, more);
        let message = fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 2);
        message.strip_prefix("error: ").unwrap().to_owned()
    }

    /// The model's configuration.
    fn config(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("out/config.json")).unwrap()).unwrap()
    }

    /// Takes the options out of the model's configuration, as if an earlier Cloze had written it.
    fn forget(&self) {
        let mut config = self.config();
        let options = config.as_object_mut().unwrap().remove("finetuning_options");
        assert!(options.is_some());
        self.write("out/config.json", &config.to_string());
        accept_changes(&self.path("out"));
    }
}

/// Pairs of CoLA's and RTE's kind: a first text, a longer second one, a label.
fn pairs(header: &str, labels: [&str; 2]) -> String {
    let rows = (0..24).map(|i| {
        let (label, word) = [(labels[0], "warm"), (labels[1], "cold")][i % 2];
        let rest = "and so it went on and on ".repeat(i % 3);
        format!("it was {word}\tthe day was {word} {rest}\t{label}\n")
    });
    std::iter::once(header.to_owned()).chain(rows).collect()
}

#[test]
fn the_fold_that_was_kept_from_training_is_measured_on() {
    let folder = Folder::new();
    let rows = (0..21).map(|i| format!("o\tWe saw it.\tgood {i}\tbad\tsad\tcold\t{}\n", i % 4));
    folder.write("full_data.tsv", &rows.collect::<String>());
    let trained = folder.trained("codah", &["--fold", "2"]);
    assert_eq!(trained["rows"], 17);
    let again = folder.evaluate("codah", "full_data.tsv", &[]);
    assert!(!stderr(&again).contains("--fold"), "{}", stderr(&again));
    let again = json(&again);
    assert_eq!(
        (&again["rows"], &again["dev"]),
        (&4.into(), &trained["dev"])
    );
    let other = folder.evaluate("codah", "full_data.tsv", &["--fold", "1"]);
    let note = "--fold 1: the model was fine-tuned with --fold 2, so it was trained on the rows";
    assert!(stderr(&other).contains(note), "{}", stderr(&other));
    assert_eq!(json(&other)["rows"], 5);
    folder.forget();
    let before = json(&folder.evaluate("codah", "full_data.tsv", &[]));
    assert_eq!(before["rows"], 5);
}

#[test]
fn the_longest_sequence_is_that_of_training_and_what_is_cut_is_told() {
    let folder = Folder::new();
    let rows = pairs(
        "sentence1\tsentence2\tlabel\n",
        ["entailment", "not_entailment"],
    );
    folder.write("train.tsv", &rows).write("dev.tsv", &rows);
    let trained = folder.finetune("RTE", &["--max-seq-length", "20"]);
    let told = stderr(&trained);
    for file in ["train.tsv", "dev.tsv"] {
        let note = format!("{file}: 8 of 24 texts were cut to 20 tokens\n");
        assert!(told.contains(&note), "{told}");
    }
    let trained = json(&trained);
    assert_eq!(trained["task"], "rte");
    assert_eq!(folder.config()["finetuning_options"]["max_len"], 20);
    let again = folder.evaluate("rte", "dev.tsv", &[]);
    assert!(stderr(&again).contains("8 of 24 texts were cut to 20 tokens"));
    assert_eq!(json(&again)["dev"], trained["dev"]);
    let whole = folder.evaluate("rte", "dev.tsv", &["--max-len", "64", "--limit", "7"]);
    assert!(!stderr(&whole).contains("were cut"), "{}", stderr(&whole));
    assert_eq!(json(&whole)["rows"], 7);

    let message = folder.refused("evaluate", "rte", "dev.tsv", &["--max-len", "3"]);
    assert!(message.starts_with("max_len 3 leaves no room"), "{message}");
    let message = folder.refused("evaluate", "rte", "dev.tsv", &["--limit", "0"]);
    assert!(message.contains("--limit 0"), "{message}");
    folder.write("out/config.json", &{
        let mut config = folder.config();
        config["finetuning_options"]["max_len"] = "many".into();
        config.to_string()
    });
    let args = folder.asked("evaluate", "rte", "dev.tsv", &[]);
    let message = fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    assert!(
        message.contains("config.json: finetuning_options: invalid type"),
        "{message}"
    );
}

#[test]
fn columns_are_those_of_training_and_the_label_s_may_be_left_out_to_predict() {
    let folder = Folder::new();
    let rows = pairs("a\tb\tlabel\n", ["yes", "no"]);
    folder.write("train.tsv", &rows).write("dev.tsv", &rows);
    let trained = folder.trained("custom", &["--columns", "a,b,label"]);
    let again = json(&folder.evaluate("custom", "dev.tsv", &[]));
    assert_eq!(again["dev"], trained["dev"]);
    for columns in ["a,label", "a,b"] {
        let message = folder.refused("evaluate", "custom", "dev.tsv", &["--columns", columns]);
        let expected = format!(
            "--columns {columns}: expected two columns of text and one of labels, as the model was \
             fine-tuned on a,b,label"
        );
        assert_eq!(message, expected);
    }
    folder.write("new.tsv", "b\ta\nthe day was warm\tit was cold\n");
    let answer = folder.predict("custom", "new.tsv", &[]);
    assert_eq!(answer.lines().count(), 2);
    for columns in ["a,b", "a,b,label"] {
        let same = folder.predict("custom", "new.tsv", &["--columns", columns]);
        assert_eq!(same, answer, "{columns}");
    }
    let message = folder.refused("predict", "custom", "new.tsv", &["--columns", "a"]);
    assert!(
        message.contains("expected two columns of text, with or without one of labels"),
        "{message}"
    );
    // Of a model that keeps nothing two columns are a text and a label, as ever.
    folder.forget();
    let message = folder.refused("evaluate", "custom", "dev.tsv", &[]);
    assert!(message.contains("columns are needed"), "{message}");
    folder.predict("custom", "new.tsv", &["--columns", "a"]);
    folder.evaluate("custom", "dev.tsv", &["--columns", "a,label"]);
    let message = folder.refused("evaluate", "custom", "dev.tsv", &["--columns", "a"]);
    assert!(message.contains("expected two or three"), "{message}");

    let tokens = "words\ttags\nwarm day\tGOOD -\ncold day\t- -\n";
    folder.write("train.tsv", tokens).write("dev.tsv", tokens);
    folder.trained("custom", &["--columns", "words,tags", "--kind", "tokens"]);
    folder.write("words.tsv", "words\nit was warm\n");
    for more in [&[][..], &["--columns", "words"]] {
        let answer = folder.predict("custom", "words.tsv", more);
        assert_eq!(answer.lines().count(), 4, "{answer}");
    }
}

#[test]
fn a_folder_is_no_file_and_what_it_lacks_is_named() {
    let folder = Folder::new();
    let rows = pairs(
        "sentence1\tsentence2\tlabel\n",
        ["entailment", "not_entailment"],
    );
    folder.write("train.tsv", &rows);
    let message = sentence(&folder.finetune("rte", &[]), 1);
    assert!(message.ends_with(": holds no dev.tsv, packed (.gz) or not"));
    folder.write("dev.tsv", &rows);
    let message = sentence(&folder.finetune("codah", &[]), 1);
    assert!(message.contains(": holds no full_data.tsv"), "{message}");
    let here = text(folder.0.path()).to_owned();
    let message = sentence(&folder.finetune("rte", &["--dev", &here]), 2);
    assert!(
        message.ends_with(": is a folder; expected a file"),
        "{message}"
    );
    let (file, out) = (folder.path("train.tsv"), folder.path("out"));
    let args = [
        "finetune",
        "rte",
        "--data",
        text(&file),
        "--out",
        text(&out),
    ];
    let message = fails(&args, 2);
    assert!(
        message.contains("train.tsv: is a file; expected the folder of the task's official files"),
        "{message}"
    );
    let message = folder.refused("evaluate", "rte", "", &[]);
    let dev = folder.path("dev.tsv");
    let expected = format!("is a folder; expected a file, such as {}", text(&dev));
    assert!(message.ends_with(&expected), "{message}");
    let message = folder.refused("predict", "rte", "", &[]);
    assert!(message.starts_with("--input ") && message.ends_with("expected a file"));
}

#[test]
fn wrong_values_are_told_with_their_option() {
    let folder = Folder::new();
    let squad = r#"{"data": [{"paragraphs": [{"context": "Oslo", "qas": [
        {"id": "1", "question": "Where?", "answers": [{"text": "Oslo", "answer_start": 0}]}]}]}]}"#;
    folder
        .write("train-v1.1.json", squad)
        .write("dev-v1.1.json", squad);
    for (more, expected) in [
        (["--lr", "-1"], "--lr -1: a positive number is needed"),
        (["--weight-decay", "-1"], "--weight-decay -1: "),
        (["--doc-stride", "0"], "stride 0 never gets through"),
        (
            ["--max-query-len", "500"],
            "question of up to 500 pieces (max_question)",
        ),
        (["--max-len", "9"], "max_len 9 leaves no room"),
    ] {
        let message = sentence(&folder.finetune("squad", &more), 2);
        assert!(message.contains(expected), "{message}");
    }
    let output = folder.finetune("squad", &["--batch", "-1"]);
    let told = stderr(&output);
    assert!(told.contains("invalid value '-1' for '--batch"), "{told}");
}
