//! Options that a fine-tuned model keeps, so that it is evaluated and used as it was trained, and messages about
//! wrong options.

use std::process::Output;

use serde_json::Value;

use crate::common::{
    Folder, accept_changes, assert_contains, cloze, error_line, fails, json, stderr, succeeds,
    text, words,
};

/// Fine-tunes for one epoch.
fn finetune(folder: &Folder, task: &str, more: &[&str]) -> Output {
    let args = folder.finetune(task, &[more, &["--epochs", "1"]].concat());
    cloze().args(args).output().unwrap()
}

fn finetuned(folder: &Folder, task: &str, more: &[&str]) -> Value {
    folder.finetuned(task, &[more, &["--epochs", "1"]].concat())
}

fn evaluate(folder: &Folder, task: &str, file: &str, more: &[&str]) -> Output {
    succeeds(folder.ask("evaluate", task, file, &[more, &["--json"]].concat()))
}

/// Returns the message with which a command refuses its arguments.
fn refused(folder: &Folder, command: &str, task: &str, file: &str, more: &[&str]) -> String {
    let message = fails(folder.ask(command, task, file, more), 2);
    message.strip_prefix("error: ").unwrap().to_owned()
}

/// Removes the options from the model's configuration, as if an older Cloze had written it.
fn remove_options(folder: &Folder) {
    let mut config = folder.config();
    let options = config.as_object_mut().unwrap().remove("finetuning_options");
    assert!(options.is_some());
    folder.write("out/config.json", &config.to_string());
    accept_changes(&folder.path("out"));
}

/// Returns rows of two texts, of which the second is longer, and a label.
fn pairs(header: &str, labels: [&str; 2]) -> String {
    let rows = (0..24).map(|i| {
        let (label, word) = [(labels[0], "warm"), (labels[1], "cold")][i % 2];
        let rest = "and so it went on and on ".repeat(i % 3);
        format!("it was {word}\tthe day was {word} {rest}\t{label}\n")
    });
    std::iter::once(header.to_owned()).chain(rows).collect()
}

#[test]
fn the_fold_left_out_of_training_is_evaluated() {
    let folder = Folder::new();
    let rows = (0..21).map(|i| format!("o\tWe saw it.\tgood {i}\tbad\tsad\tcold\t{}\n", i % 4));
    folder.write("full_data.tsv", &rows.collect::<String>());
    let trained = finetuned(&folder, "codah", &["--fold", "2"]);
    assert_eq!(trained["rows"], 17);
    let again = evaluate(&folder, "codah", "full_data.tsv", &[]);
    assert!(!stderr(&again).contains("--fold"), "{}", stderr(&again));
    let again = json(&again);
    assert_eq!((&again["rows"], &again["dev"]), (&4.into(), &trained["dev"]));
    let other = evaluate(&folder, "codah", "full_data.tsv", &["--fold", "1"]);
    let note = "--fold 1: the model was fine-tuned with --fold 2, so it was trained on the rows";
    assert!(stderr(&other).contains(note), "{}", stderr(&other));
    assert_eq!(json(&other)["rows"], 5);
    remove_options(&folder);
    let before = json(&evaluate(&folder, "codah", "full_data.tsv", &[]));
    assert_eq!(before["rows"], 5);
}

#[test]
fn the_longest_sequence_is_that_of_training_and_truncation_is_reported() {
    let folder = Folder::new();
    let rows = pairs("sentence1\tsentence2\tlabel\n", ["entailment", "not_entailment"]);
    folder.write("train.tsv", &rows).write("dev.tsv", &rows);
    let trained = finetune(&folder, "RTE", &["--max-seq-length", "20"]);
    let message = stderr(&trained);
    for file in ["train.tsv", "dev.tsv"] {
        let note = format!("{file}: 8 of 24 texts were cut to 20 tokens\n");
        assert_contains(&message, &note);
    }
    let trained = json(&trained);
    assert_eq!(trained["task"], "rte");
    assert_eq!(folder.config()["finetuning_options"]["max_len"], 20);
    let again = evaluate(&folder, "rte", "dev.tsv", &[]);
    assert!(stderr(&again).contains("8 of 24 texts were cut to 20 tokens"));
    assert_eq!(json(&again)["dev"], trained["dev"]);
    let whole = evaluate(&folder, "rte", "dev.tsv", &["--max-len", "64", "--limit", "7"]);
    assert!(!stderr(&whole).contains("were cut"), "{}", stderr(&whole));
    assert_eq!(json(&whole)["rows"], 7);

    let message = refused(&folder, "evaluate", "rte", "dev.tsv", &["--max-len", "3"]);
    assert!(message.starts_with("max_len 3 leaves no room"), "{message}");
    let message = refused(&folder, "evaluate", "rte", "dev.tsv", &["--limit", "0"]);
    assert_contains(&message, "--limit 0");
    folder.write("out/config.json", &{
        let mut config = folder.config();
        config["finetuning_options"]["max_len"] = "many".into();
        config.to_string()
    });
    let args = folder.ask("evaluate", "rte", "dev.tsv", &[]);
    let message = fails(&args, 1);
    assert_contains(&message, "config.json: finetuning_options: invalid type");
}

#[test]
fn an_option_that_a_task_does_not_have_is_refused() {
    let folder = Folder::new();
    let file = folder.path("dev.tsv");
    let train = ["--train", text(&file)];
    for (task, more, expected) in [
        ("sst-2", ["--columns", "sentence,label"], "--columns: is for custom, not for sst-2"),
        ("ner", ["--kind", "tokens"], "--kind: is for custom, not for ner"),
        ("swag", ["--fold", "1"], "--fold: is for codah, not for swag"),
        ("custom", ["--n-best", "3"], "--n-best: is for squad and squad2, not for custom"),
        ("squad", ["--null-threshold", "1"], "--null-threshold: is for squad2, not for squad"),
    ] {
        for command in ["evaluate", "predict"] {
            assert_contains(&refused(&folder, command, task, "dev.tsv", &more), expected);
        }
        assert_contains(&fails(folder.finetune(task, &[&more[..], &train].concat()), 2), expected);
    }
    folder.write("dev.tsv", "words\ttags\na b\tX Y\n");
    let more = ["--columns", "words,tags", "--kind", "tokens", "--long-text", "windows"];
    let more = [&more[..], &train].concat();
    assert_contains(&fails(folder.finetune("custom", &more), 2), "windows of long texts are for");
}

#[test]
fn columns_are_those_of_training_and_prediction_needs_no_labels() {
    let folder = Folder::new();
    let rows = pairs("a\tb\tlabel\n", ["yes", "no"]);
    folder.write("train.tsv", &rows).write("dev.tsv", &rows);
    let trained = finetuned(&folder, "custom", &["--columns", "a,b,label"]);
    let again = json(&evaluate(&folder, "custom", "dev.tsv", &[]));
    assert_eq!(again["dev"], trained["dev"]);
    for columns in ["a,label", "a,b"] {
        let message = refused(&folder, "evaluate", "custom", "dev.tsv", &["--columns", columns]);
        let expected = format!(
            "--columns {columns}: expected two columns of text and one of labels, as the model was \
             fine-tuned on a,b,label"
        );
        assert_eq!(message, expected);
    }
    folder.write("new.tsv", "b\ta\nthe day was warm\tit was cold\n");
    let answer = folder.predicted("custom", "new.tsv", &[]);
    assert_eq!(answer.lines().count(), 2);
    for columns in ["a,b", "a,b,label"] {
        let same = folder.predicted("custom", "new.tsv", &["--columns", columns]);
        assert_eq!(same, answer, "{columns}");
    }
    let message = refused(&folder, "predict", "custom", "new.tsv", &["--columns", "a"]);
    assert_contains(&message, "expected two columns of text, with or without one of labels");
    // Without kept options, two columns are a text and a label.
    remove_options(&folder);
    let message = refused(&folder, "evaluate", "custom", "dev.tsv", &[]);
    assert_contains(&message, "columns are needed");
    folder.predicted("custom", "new.tsv", &["--columns", "a"]);
    evaluate(&folder, "custom", "dev.tsv", &["--columns", "a,label"]);
    let message = refused(&folder, "evaluate", "custom", "dev.tsv", &["--columns", "a"]);
    assert_contains(&message, "expected two or three");

    let tokens = "words\ttags\nwarm day\tGOOD -\ncold day\t- -\n";
    folder.write("train.tsv", tokens).write("dev.tsv", tokens);
    finetuned(&folder, "custom", &["--columns", "words,tags", "--kind", "tokens"]);
    folder.write("words.tsv", "words\nit was warm\n");
    for more in [&[][..], &["--columns", "words"]] {
        let answer = folder.predicted("custom", "words.tsv", more);
        assert_eq!(answer.lines().count(), 4, "{answer}");
    }
}

#[test]
fn missing_files_are_named_and_a_folder_is_no_file() {
    let folder = Folder::new();
    let rows = pairs("sentence1\tsentence2\tlabel\n", ["entailment", "not_entailment"]);
    folder.write("train.tsv", &rows);
    let message = error_line(&finetune(&folder, "rte", &[]), 1);
    assert!(message.ends_with(": holds no dev.tsv, packed (.gz) or not"));
    folder.write("dev.tsv", &rows);
    let message = error_line(&finetune(&folder, "codah", &[]), 1);
    assert_contains(&message, ": holds no full_data.tsv");
    let here = text(folder.0.path()).to_owned();
    let message = error_line(&finetune(&folder, "rte", &["--dev", &here]), 2);
    assert!(message.ends_with(": is a folder; expected a file"), "{message}");
    let (file, out) = (folder.path("train.tsv"), folder.path("out"));
    let line = format!("finetune rte --data {} --out {}", text(&file), text(&out));
    let message = fails(words(&line), 2);
    assert_contains(
        &message,
        "train.tsv: is a file; expected the folder of the task's official files",
    );
    let message = refused(&folder, "evaluate", "rte", "", &[]);
    let dev = folder.path("dev.tsv");
    let expected = format!("is a folder; expected a file, such as {}", text(&dev));
    assert!(message.ends_with(&expected), "{message}");
    let message = refused(&folder, "predict", "rte", "", &[]);
    assert!(message.starts_with("--input ") && message.ends_with("expected a file"));
}

#[test]
fn wrong_values_are_reported_with_their_option() {
    let folder = Folder::new();
    let squad = r#"{"data": [{"paragraphs": [{"context": "Oslo", "qas": [
        {"id": "1", "question": "Where?", "answers": [{"text": "Oslo", "answer_start": 0}]}]}]}]}"#;
    folder.write("train-v1.1.json", squad).write("dev-v1.1.json", squad);
    for (more, expected) in [
        (["--lr", "-1"], "--lr -1: a positive number is needed"),
        (["--weight-decay", "-1"], "--weight-decay -1: "),
        (["--doc-stride", "0"], "stride 0 never gets through"),
        (["--max-query-len", "500"], "question of up to 500 pieces (max_question)"),
        (["--max-len", "9"], "max_len 9 leaves no room"),
    ] {
        let message = error_line(&finetune(&folder, "squad", &more), 2);
        assert_contains(&message, expected);
    }
    let output = finetune(&folder, "squad", &["--batch", "-1"]);
    let message = stderr(&output);
    assert_contains(&message, "invalid value '-1' for '--batch");
}
