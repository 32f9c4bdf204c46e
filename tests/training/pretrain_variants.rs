//! Variants of pre-training: without pairs, from left to right, in phases, from a model's weights, on several files.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::pretraining::{corpus, run};
use crate::common::{
    assert_contains, cloze, fails, json, read_json, stderr, succeeds, text, words,
};

fn config(folder: &Path) -> Value {
    read_json(&folder.join("config.json"))
}

#[test]
fn without_pairs_there_is_no_next_sentence_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = [&run(&corpus, &out, "12")[..], &["--no-nsp"]].concat();
    let output = succeeds(&args);
    assert!(!stderr(&output).contains("next sentence"), "{}", stderr(&output));
    let trained = json(&output);
    let measured = &trained["eval"];
    assert!(measured["nsp_accuracy"].is_null() && measured["nsp_loss"].is_null());
    let number = |key: &str| measured[key].as_f64().unwrap();
    assert!((number("perplexity").ln() - number("mlm_loss")).abs() < 1e-9);
    assert!(number("mlm_loss") < trained["uniform_loss"].as_f64().unwrap());
    assert_eq!(config(&out)["architectures"][0], "BertForMaskedLM");
    let message = fails(["nsp", "--model", text(&out), "a", "b"], 1);
    assert_contains(&message, "pooler");
    succeeds(["fill-mask", "--model", text(&out), "the [MASK] sat"]);

    // Examples of sentences from single documents differ, and are more.
    let examples = |output: &std::process::Output| -> u64 {
        let message = stderr(output);
        let words: Vec<&str> = message.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "examples").unwrap();
        words[at - 1].parse().unwrap()
    };
    let other = folder.path().join("documents");
    let documents = ["--no-nsp", "--sentences", "document"];
    let documents = succeeds([&run(&corpus, &other, "12")[..], &documents].concat());
    assert!(examples(&documents) > examples(&output));
    assert!(json(&documents)["eval"] != *measured);

    let resumed = [&run(&corpus, &out, "20")[..], &["--resume"]].concat();
    let message = fails(&resumed, 2);
    assert_contains(&message, "full sentences");
    let message = fails([&run(&corpus, &other, "1")[..], &["--sentences", "full"]].concat(), 2);
    assert_contains(&message, "--no-nsp");
}

/// Then all of the text is trained on. Too little held-out text is reported.
#[test]
fn held_out_text_may_be_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let other = folder.path().join("other.txt");
    let document = "On Monday the cat sat in the barn.\nThe barn was warm.\n\n".repeat(6);
    fs::write(&other, document).unwrap();
    let args = [&run(&corpus, &out, "4")[..], &["--held-out", text(&other)]].concat();
    let trained = json(&succeeds(&args));
    assert!(trained["eval"]["mlm_loss"].as_f64().is_some_and(f64::is_finite));
    let card = fs::read_to_string(out.join("README.md")).unwrap();
    assert_contains(&card, "tokens in 8 documents");
    assert_contains(&card, "tokens in 6 documents (");
    assert_contains(&card, "other.txt)");

    // A run that held out some of its text trained on less text.
    let split = folder.path().join("split");
    succeeds(run(&corpus, &split, "4"));
    let more = ["--held-out", text(&other), "--resume"];
    let message = fails([&run(&corpus, &split, "6")[..], &more].concat(), 2);
    assert_contains(&message, "the number of tokens in the text");

    fs::write(&other, "One document alone.\nWith two sentences.\n").unwrap();
    let again = [&args[..], &["--overwrite"]].concat();
    let message = fails(&again, 1);
    assert_contains(&message, "the held-out text: next-sentence prediction");
    fs::remove_file(&other).unwrap();
    let message = fails(&again, 1);
    assert_contains(&message, "other.txt");
}

/// It predicts every next token, nothing is masked, and a model that is fine-tuned from it reads from left to right
/// too.
#[test]
fn a_left_to_right_model_predicts_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = [&run(&corpus, &out, "60")[..], &["--left-to-right"]].concat();
    let trained = json(&succeeds(&args));
    let loss = trained["eval"]["mlm_loss"].as_f64().unwrap();
    assert!(loss < trained["unigram_entropy"].as_f64().unwrap(), "{trained}");
    assert!(trained["eval"]["nsp_accuracy"].is_null());
    let written = config(&out);
    assert_eq!(written["architectures"][0], "BertLMHeadModel");
    assert_eq!(written["is_decoder"], true);

    let message = fails(["fill-mask", "--model", text(&out), "the [MASK] sat"], 1);
    assert_contains(&message, "from left to right");
    let other = folder.path().join("other");
    let usage = |args: &[&str], expected: &str| {
        let message = fails(args, 2);
        assert_contains(&message, expected);
    };
    let masked = [&run(&corpus, &other, "1")[..], &["--left-to-right", "--whole-word"]].concat();
    usage(&masked, "nothing is masked");
    usage(
        &[&run(&corpus, &out, "70")[..], &["--no-nsp", "--resume"]].concat(),
        "--left-to-right was true",
    );
    let init = ["pretrain", "--text", text(&corpus), "--out", text(&other), "--init"];
    let init = [&init[..], &[text(&out), "--steps", "1", "--seq", "32"]].concat();
    usage(&init, "reads from left to right: add --left-to-right");
    succeeds([&init[..], &["--left-to-right"]].concat());

    // Only the last word decides the class, which the first token cannot see.
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let mut rows = String::from("text\tlabel\n");
    for (animal, label) in [("cat", "a"), ("dog", "b"), ("owl", "a"), ("fox", "b")] {
        for day in ["Monday", "Tuesday", "Friday", "Sunday"] {
            rows += &format!("On {day} there sat the {animal}\t{label}\n");
        }
    }
    for name in ["train.tsv", "dev.tsv"] {
        fs::write(data.join(name), &rows).unwrap();
    }
    let tuned = folder.path().join("tuned");
    let line = "finetune custom --columns text,label --epochs 30 --batch 8 --lr 1e-3 --json";
    let files = format!("--data {} --model {} --out", text(&data), text(&out));
    let tuned_run = json(&succeeds(words(&format!("{line} {files} {}", text(&tuned)))));
    assert_eq!(tuned_run["dev"]["accuracy"], 1.0, "{tuned_run}");
    assert_eq!(config(&tuned)["is_decoder"], true);
}

#[test]
fn the_first_phase_ends_as_configured() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let measured = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let args = [&run(&corpus, &out, "10")[..], &["--eval-every", "1"], more].concat();
        let message = stderr(&succeeds(&args));
        let lines = message.lines().filter(|line| line.contains("held out: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (usual, long) = (measured("usual", &[]), measured("long", &["--phase-share", "0.9"]));
    assert_eq!((usual.len(), long.len()), (11, 11));
    assert!(usual[3].contains("perplexity"), "{}", usual[3]);
    // The evaluations differ from the first step of the second phase on: usually step 9.
    assert_eq!(usual[..9], long[..9]);
    assert_ne!(usual[9], long[9]);
    let same = measured("same", &["--phase-share", "0.8"]);
    assert_eq!(usual, same);

    let out = folder.path().join("other");
    for share in ["0", "1", "1.5", "NaN"] {
        let args = [&run(&corpus, &out, "10")[..], &["--phase-share", share]].concat();
        assert!(fails(&args, 2).contains("above 0 and below 1"));
    }
    let mut args = run(&corpus, &out, "10");
    let first = args.iter().position(|a| *a == "--first-seq").unwrap();
    args[first + 1] = "32";
    args.extend(["--phase-share", "0.5"]);
    let message = fails(&args, 2);
    assert_contains(&message, "only one phase");
}

/// The recipe decides what no option sets; a run that is resumed with another one reports what differs.
#[test]
fn a_recipe_sets_what_no_option_does() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let trained = |more: &str| {
        let mut args = run(&corpus, &out, "10");
        args.extend(more.split_whitespace());
        stderr(&succeeds(&args))
    };
    let changes = |message: &str| -> Vec<String> {
        let lines = message.lines().filter_map(|line| line.strip_suffix(" from here on"));
        lines.map(str::to_owned).collect()
    };
    let of = |key: &str| config(&out)[key].as_f64().unwrap();
    trained("");
    assert_eq!(of("hidden_dropout_prob"), 0.0);
    assert_eq!(changes(&trained("--resume --recipe hour")), [""; 0]);
    let expected = [
        "--lr was 0.002 and is 0.0001",
        "the last step of the warm-up was 1 and is 0",
        "--adam-beta2 was 0.98 and is 0.999",
        "--dropout was 0 and is 0.1",
    ];
    assert_eq!(changes(&trained("--resume --recipe paper --mask-prob 0.3")), expected);
    // What is masked, and the update rule, are part of the run. Batches of 32 have Muon.
    let mut other = run(&corpus, &out, "10");
    other.extend(["--resume", "--recipe", "paper"]);
    assert_contains(&fails(&other, 2), "--mask-prob was 0.3 and is now 0.15");
    let large = |more: &[&'static str]| -> Vec<&str> {
        let mut args = run(&corpus, &out, "2");
        let batch = args.iter().position(|arg| *arg == "--batch").unwrap();
        args[batch + 1] = "32";
        args.extend(more);
        args
    };
    succeeds(large(&["--overwrite"]));
    let message = fails(large(&["--resume", "--optimizer", "adamw"]), 2);
    assert_contains(&message, "--optimizer was muon and is now adamw");
    trained("--overwrite --recipe paper --lr 2e-4");
    assert_eq!((of("hidden_dropout_prob"), of("initializer_range")), (0.1, 0.02));
    assert_eq!(changes(&trained("--resume --recipe paper")), ["--lr was 0.0002 and is 0.0001"]);
    let more = folder.path().join("more");
    let init = ["pretrain", "--init", text(&out), "--out", text(&more), "--recipe", "paper"];
    assert_contains(
        &stderr(&cloze().args(init).output().unwrap()),
        "cannot be used with '--recipe",
    );
}

#[test]
fn pretraining_starts_from_a_models_weights() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let trained = json(&succeeds([&run(&corpus, &first, "60")[..], &["--no-nsp"]].concat()));
    let further = |out: &Path, steps: &'static str| {
        let mut args: Vec<String> = run(&corpus, out, steps).into_iter().map(Into::into).collect();
        let size = args.iter().position(|a| a == "--vocab-size").unwrap();
        args.drain(size..size + 2);
        args.extend(["--init".into(), text(&first).into()]);
        args
    };
    let with = |args: &[String], more: &[&str]| -> Vec<String> {
        let more = more.iter().map(|&a| a.to_owned());
        args.iter().cloned().chain(more).collect()
    };
    let succeeds = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        succeeds(&args)
    };
    let fails = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        fails(&args, 2)
    };
    // The first model was trained without pairs, so their head starts from random weights, and a message says so.
    let args = further(&second, "20");
    let output = succeeds(&args);
    let message = stderr(&output);
    for head in ["pooler", "next-sentence head"] {
        assert_contains(&message, &format!("the {head}"));
    }
    assert!(!message.contains("the masked-LM head"), "{message}");
    let second_run = json(&output);
    let loss = |run: &Value| run["eval"]["mlm_loss"].as_f64().unwrap();
    let uniform = trained["uniform_loss"].as_f64().unwrap();
    assert!(loss(&trained) < uniform - 1.0, "{trained}");
    assert!(loss(&second_run) < uniform - 1.0, "{second_run}");
    let vocabulary = |folder: &Path| fs::read(folder.join("vocab.txt")).unwrap();
    assert!(vocabulary(&first) == vocabulary(&second));
    let width = |folder: &Path| config(folder)["hidden_size"].clone();
    assert_eq!(width(&first), width(&second));

    // Options that agree with the model are accepted, others are refused.
    let vocab = first.join("vocab.txt");
    let third = folder.path().join("third");
    let again =
        with(&further(&third, "1"), &["--size", "tiny", "--vocab", text(&vocab), "--no-nsp"]);
    succeeds(&again);
    let fourth = further(&folder.path().join("fourth"), "1");
    let message = fails(&with(&fourth, &["--size", "mini"]));
    assert_contains(&message, "--size mini has 4 layers");
    let other = folder.path().join("other.txt");
    let tokens = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n";
    fs::write(&other, tokens).unwrap();
    let message = fails(&with(&fourth, &["--vocab", text(&other)]));
    assert_contains(&message, "is not the vocabulary of the model");
    for flag in [&["--vocab-size", "300"][..], &["--cased"]] {
        let output = cloze().args(with(&fourth, flag)).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}

/// Shards, compressed or not, are read in the order of their names: the run is the same as with one file of all
/// documents.
#[test]
fn shards_give_the_same_run_as_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let whole = corpus(folder.path());
    let all = fs::read_to_string(&whole).unwrap();
    let documents: Vec<&str> = all.split("\n\n").collect();
    let shards = folder.path().join("shards");
    fs::create_dir_all(shards.join("b")).unwrap();
    let packed = fs::File::create(shards.join("b/2.txt.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, documents[5..].join("\n\n").as_bytes()).unwrap();
    packed.finish().unwrap();
    fs::write(shards.join("b/1.txt"), documents[3..5].join("\n\n")).unwrap();
    fs::write(shards.join("a.txt"), documents[..3].join("\n\n")).unwrap();
    let weights = |name: &str, texts: &[&Path]| {
        let out = folder.path().join(name);
        let mut args = run(&whole, &out, "3");
        args.splice(2..3, texts.iter().map(|path| text(path)));
        succeeds(&args);
        fs::read(out.join("model.safetensors")).unwrap()
    };
    let expected = weights("one", &[&whole]);
    assert!(weights("folder", &[&shards]) == expected);
    let (a, b) = (shards.join("a.txt"), shards.join("b"));
    assert!(weights("listed", &[&a, &b]) == expected);
    // The order of the arguments is the order of the documents.
    assert!(weights("turned", &[&b, &a]) != expected);

    // The same documents in another order make another run.
    let out = folder.path().join("listed");
    let mut args = run(&whole, &out, "5");
    args.splice(2..3, [text(&b), text(&a)]);
    args.push("--resume");
    let message = fails(&args, 2);
    assert_contains(&message, "the text");
}
