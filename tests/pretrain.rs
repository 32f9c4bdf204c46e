//! `pretrain`, `fill-mask`, `nsp` and `convert` as a user runs them.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{cloze, fails, json, succeeds, text};

/// Eight documents of regular sentences.
fn corpus(folder: &Path) -> PathBuf {
    let animals = ["cat", "dog", "owl", "fox", "hen", "cow", "pig", "rat"];
    let places = ["mat", "log", "oak", "den", "nest", "barn", "sty", "hole"];
    let mut corpus = String::new();
    for (animal, place) in animals.iter().zip(places) {
        for day in ["Monday", "Tuesday", "Friday", "Sunday"] {
            corpus += &format!("On {day} the {animal} sat in the {place}.\n");
            corpus += &format!("The {place} was warm, and the {animal} was glad of the {place}.\n");
        }
        corpus.push('\n');
    }
    let path = folder.join("animals.txt");
    fs::write(&path, corpus).unwrap();
    path
}

/// Arguments of a small, quick run.
fn run<'a>(corpus: &'a Path, out: &'a Path, steps: &'a str) -> Vec<&'a str> {
    vec![
        "pretrain",
        "--text",
        text(corpus),
        "--out",
        text(out),
        "--steps",
        steps,
        "--seq",
        "32",
        "--first-seq",
        "24",
        "--batch",
        "8",
        "--vocab-size",
        "200",
        "--seed",
        "5",
        "--json",
    ]
}

#[test]
fn a_model_is_trained_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let trained = json(&succeeds(&run(&corpus, &out, "40")));
    assert_eq!(trained["steps"], 40);
    let number = |key: &str| trained[key].as_f64().unwrap();
    assert!(
        number("loss_last") < number("loss_first") - 1.0,
        "{trained}"
    );
    assert!(number("tokens_per_s") > 0.0 && number("seconds") > 0.0);
    for key in ["mlm_accuracy", "mlm_loss", "nsp_accuracy"] {
        assert!(trained["eval"][key].is_number(), "{trained}");
    }
    for file in [
        "config.json",
        "model.safetensors",
        "vocab.txt",
        "tokenizer.json",
        "trainer/loss.svg",
    ] {
        assert!(out.join(file).exists(), "{file}");
    }

    let sentence = "the cat sat in the [MASK] . the [MASK] was warm";
    let filled = json(&succeeds(&[
        "fill-mask",
        "--model",
        text(&out),
        sentence,
        "--json",
    ]));
    let masks = filled["masks"].as_array().unwrap();
    assert_eq!(masks.len(), 2);
    for mask in masks {
        let mask = mask.as_array().unwrap();
        let p: Vec<f64> = mask
            .iter()
            .map(|m| m["probability"].as_f64().unwrap())
            .collect();
        assert_eq!(p.len(), 5);
        assert!(p.is_sorted_by(|a, b| a >= b) && p.iter().sum::<f64>() <= 1.0);
        assert!(mask[0]["token"].is_string() && mask[0]["id"].is_u64());
    }
    let all = [
        "fill-mask",
        "--model",
        text(&out),
        "a [MASK]",
        "--top-k",
        "999",
        "--json",
    ];
    let all = json(&succeeds(&all));
    let sum: f64 = all["masks"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["probability"].as_f64().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-6);

    let pair = [
        "nsp",
        "--model",
        text(&out),
        "the cat sat",
        "the mat was warm",
        "--json",
    ];
    let p = json(&succeeds(&pair))["is_next"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&p));

    let converted = folder.path().join("converted");
    succeeds(&["convert", text(&out), text(&converted)]);
    let again = ["fill-mask", "--model", text(&converted), sentence, "--json"];
    assert_eq!(json(&succeeds(&again)), filled);
}

/// A run that is killed after a checkpoint and resumed ends with the very same bytes.
#[test]
fn a_killed_run_resumes_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let (whole, broken) = (folder.path().join("whole"), folder.path().join("broken"));
    succeeds(&run(&corpus, &whole, "60"));

    let mut args = run(&corpus, &broken, "60");
    args.extend(["--save-every", "4"]);
    let mut child = cloze()
        .args(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let state = broken.join("trainer/state.safetensors");
    wait_for(|| state.exists());
    child.kill().unwrap();
    child.wait().unwrap();

    args.push("--resume");
    assert_eq!(json(&succeeds(&args))["steps"], 60);
    for file in ["model.safetensors", "trainer/state.safetensors"] {
        let (a, b) = (
            fs::read(whole.join(file)).unwrap(),
            fs::read(broken.join(file)).unwrap(),
        );
        // The state holds the speed of each step, which differs; the parameters must not.
        if file == "model.safetensors" {
            assert!(a == b, "{file} differs");
        } else {
            assert_eq!(tail(&a, &whole), tail(&b, &broken), "{file} differs");
        }
    }
}

/// Parameters and moments at the end of a state file: three times the model's floats.
fn tail<'a>(state: &'a [u8], folder: &Path) -> &'a [u8] {
    let model = fs::read(folder.join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(model[..8].try_into().unwrap()) as usize;
    &state[state.len() - 3 * (model.len() - header)..]
}

fn wait_for(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(240),
            "waited for too long"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn control_c_ends_at_a_step_boundary_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "100000");
    args.extend(["--save-every", "3"]);
    let child = cloze()
        .args(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(|| out.join("trainer/state.safetensors").exists());
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let stopped = json(&output);
    assert_eq!(stopped["stopped"], true);
    let steps = stopped["steps"].as_u64().unwrap();

    // Going on to the next step takes up exactly there.
    let next = (steps + 1).to_string();
    let position = args.iter().position(|a| *a == "100000").unwrap();
    args[position] = &next;
    args.push("--resume");
    let output = succeeds(&args);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains(&format!("continuing after step {steps}")),
        "{told}"
    );
    assert_eq!(json(&output)["steps"], steps + 1);
}

#[test]
fn a_folder_with_a_run_is_not_overwritten_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = run(&corpus, &out, "1");
    succeeds(&args);
    let told = fails(&args, 2);
    assert!(
        told.contains("already holds a run") && told.contains("--resume"),
        "{told}"
    );

    let mut other_seed = args.clone();
    other_seed.extend(["--resume"]);
    let seed = other_seed.iter().position(|a| *a == "--seed").unwrap() + 1;
    other_seed[seed] = "6";
    let told = fails(&other_seed, 2);
    assert!(told.contains("--seed was 5 and is 6 now"), "{told}");

    let fresh = folder.path().join("fresh");
    let mut args = run(&corpus, &fresh, "1");
    args.push("--resume");
    let told = String::from_utf8_lossy(&succeeds(&args).stderr).into_owned();
    assert!(
        told.contains("holds no checkpoint: starting a fresh run"),
        "{told}"
    );
}

#[test]
fn a_first_phase_longer_than_the_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "5");
    let first = args.iter().position(|a| *a == "--first-seq").unwrap() + 1;
    args[first] = "33";
    let told = fails(&args, 2);
    assert!(told.contains("--first-seq 33: at most"), "{told}");
}

#[test]
fn parts_of_batches_and_layers_computed_again_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let losses = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let trained = json(&succeeds(&[&run(&corpus, &out, "12")[..], more].concat()));
        ["loss_first", "loss_last"].map(|key| trained[key].as_f64().unwrap())
    };
    let whole = losses("whole", &[]);
    let close = |other: [f64; 2]| (0..2).all(|i| (other[i] / whole[i] - 1.0).abs() < 1e-4);
    assert!(close(losses("parts", &["--micro-batch", "3"])));
    assert!(losses("again", &["--recompute"]) == whole);
    let rounded = losses("bf16", &["--dtype", "bf16"]);
    assert!(rounded != whole && (rounded[1] / whole[1] - 1.0).abs() < 2e-2);

    // A state whose parameters lie in another order would be read without complaint and be wrong.
    let state = folder.path().join("whole/trainer/state.safetensors");
    let mut bytes = fs::read(&state).unwrap();
    let order = br#"order\":1"#;
    let at = bytes.windows(order.len()).position(|w| w == order).unwrap();
    bytes[at + order.len() - 1] = b'0';
    fs::write(&state, bytes).unwrap();
    let out = folder.path().join("whole");
    let message = fails(&[&run(&corpus, &out, "20")[..], &["--resume"]].concat(), 2);
    assert!(message.contains("the order of the parameters"), "{message}");

    let lamb = ["--optimizer", "lamb"];
    assert!((losses("lamb", &lamb)[1] / whole[1] - 1.0).abs() > 1e-4);
    let out = folder.path().join("lamb");
    let message = fails(&[&run(&corpus, &out, "20")[..], &["--resume"]].concat(), 2);
    assert!(
        message.contains("--optimizer was lamb and is adamw now"),
        "{message}"
    );
}

#[test]
fn a_run_that_diverges_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "5");
    args.extend(["--lr", "1e30"]);
    let told = fails(&args, 1);
    assert!(
        told.contains("is not a number") && told.contains("learning rate"),
        "{told}"
    );
    assert!(!out.join("trainer/state.safetensors").exists());
}

#[test]
fn bad_input_gets_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let out = folder.path().join("out");
    let good = corpus(folder.path());
    let pretrain = |path: &Path, code: i32| fails(&run(path, &out, "1"), code);

    let told = pretrain(&file("empty.txt", b" \n\n"), 1);
    assert!(told.contains("empty.txt"), "{told}");
    let told = pretrain(&file("binary.txt", b"\x7fELF\0\0\x01\0"), 1);
    assert!(told.contains("binary.txt"), "{told}");
    let told = pretrain(&file("latin.txt", b"fine\nna\xefve\n"), 1);
    assert!(
        told.contains("latin.txt:2") && told.contains("UTF-8"),
        "{told}"
    );
    let told = pretrain(&folder.path().join("nowhere.txt"), 1);
    assert!(told.contains("nowhere.txt"), "{told}");
    let told = pretrain(&file("one.txt", b"A single sentence stands here.\n"), 1);
    assert!(told.contains("document"), "{told}");

    let with_vocab = |path: &Path| {
        let args = [
            "pretrain",
            "--text",
            text(&good),
            "--out",
            text(&out),
            "--steps",
            "1",
            "--vocab",
            text(path),
        ];
        fails(&args, 1)
    };
    let told = with_vocab(&file("no-mask.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n"));
    assert!(
        told.contains("no-mask.txt") && told.contains("[MASK]"),
        "{told}"
    );
    let told = with_vocab(&file(
        "twice.txt",
        b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n",
    ));
    assert!(told.contains("twice.txt:8"), "{told}");

    let usage = |extra: &[&str]| {
        let mut args = vec!["pretrain", "--text", text(&good), "--out", text(&out)];
        args.extend(extra);
        fails(&args, 2)
    };
    assert!(usage(&["--size", "huge"]).contains("unknown size \"huge\""));
    assert!(usage(&["--seq", "600"]).contains("only 512 positions"));
    assert!(usage(&["--steps", "0"]).contains("--steps 0"));
    assert!(usage(&["--lr=-1"]).contains("--lr -1"));
}

#[test]
fn a_model_folder_that_is_damaged_or_unfit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    succeeds(&run(&corpus, &out, "1"));
    let model = text(&out).to_owned();

    let told = fails(&["fill-mask", "--model", &model, "no blank here"], 2);
    assert!(told.contains("has no [MASK]"), "{told}");
    let long = "cat ".repeat(600) + "[MASK]";
    let told = fails(&["fill-mask", "--model", &model, &long], 1);
    assert!(
        told.contains("603 tokens") && told.contains("512 positions"),
        "{told}"
    );
    let told = fails(&["nsp", "--model", "/nonexistent", "a", "b"], 1);
    assert!(told.contains("/nonexistent"), "{told}");

    let weights = out.join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    let told = fails(&["fill-mask", "--model", &model, "a [MASK]"], 1);
    assert!(
        told.contains("model.safetensors") && told.contains("cut short"),
        "{told}"
    );
    fs::write(&weights, &whole).unwrap();

    let config = out.join("config.json");
    let changed = fs::read_to_string(&config)
        .unwrap()
        .replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    fs::write(&config, changed).unwrap();
    let told = fails(&["fill-mask", "--model", &model, "a [MASK]"], 1);
    assert!(
        told.contains("encoder.layer.2.") && told.contains("is missing"),
        "{told}"
    );
}

fn told(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn config(folder: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
}

#[test]
fn without_pairs_there_is_no_next_sentence_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = [&run(&corpus, &out, "12")[..], &["--no-nsp"]].concat();
    let output = succeeds(&args);
    assert!(
        !told(&output).contains("next sentence"),
        "{}",
        told(&output)
    );
    let trained = json(&output);
    let measured = &trained["eval"];
    assert!(measured["nsp_accuracy"].is_null() && measured["nsp_loss"].is_null());
    let number = |key: &str| measured[key].as_f64().unwrap();
    assert!((number("perplexity").ln() - number("mlm_loss")).abs() < 1e-9);
    assert!(number("mlm_loss") < trained["uniform_loss"].as_f64().unwrap());
    assert_eq!(config(&out)["architectures"][0], "BertForMaskedLM");
    let message = fails(&["nsp", "--model", text(&out), "a", "b"], 1);
    assert!(message.contains("pooler"), "{message}");
    succeeds(&["fill-mask", "--model", text(&out), "the [MASK] sat"]);

    // Sentences of single documents are other examples, and more of them.
    let examples = |output: &std::process::Output| -> u64 {
        let told = told(output);
        let words: Vec<&str> = told.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "examples").unwrap();
        words[at - 1].parse().unwrap()
    };
    let other = folder.path().join("documents");
    let documents = ["--no-nsp", "--sentences", "document"];
    let documents = succeeds(&[&run(&corpus, &other, "12")[..], &documents].concat());
    assert!(examples(&documents) > examples(&output));
    assert!(json(&documents)["eval"] != *measured);

    let resumed = [&run(&corpus, &out, "20")[..], &["--resume"]].concat();
    let message = fails(&resumed, 2);
    assert!(message.contains("full sentences"), "{message}");
    let message = fails(
        &[&run(&corpus, &other, "1")[..], &["--sentences", "full"]].concat(),
        2,
    );
    assert!(message.contains("--no-nsp"), "{message}");
}

/// Every next token is predicted, nothing is masked, and what is made of the model reads from left
/// to right too.
#[test]
fn a_left_to_right_model_predicts_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = [&run(&corpus, &out, "60")[..], &["--left-to-right"]].concat();
    let trained = json(&succeeds(&args));
    let loss = trained["eval"]["mlm_loss"].as_f64().unwrap();
    assert!(
        loss < trained["unigram_entropy"].as_f64().unwrap(),
        "{trained}"
    );
    assert!(trained["eval"]["nsp_accuracy"].is_null());
    let written = config(&out);
    assert_eq!(written["architectures"][0], "BertLMHeadModel");
    assert_eq!(written["is_decoder"], true);

    let told = fails(&["fill-mask", "--model", text(&out), "the [MASK] sat"], 1);
    assert!(told.contains("from left to right"), "{told}");
    let other = folder.path().join("other");
    let usage = |args: &[&str], expected: &str| {
        let told = fails(args, 2);
        assert!(told.contains(expected), "{told}");
    };
    let masked = [
        &run(&corpus, &other, "1")[..],
        &["--left-to-right", "--whole-word"],
    ]
    .concat();
    usage(&masked, "nothing is masked");
    usage(
        &[&run(&corpus, &out, "70")[..], &["--no-nsp", "--resume"]].concat(),
        "--left-to-right was true",
    );
    let init = [
        "pretrain",
        "--text",
        text(&corpus),
        "--out",
        text(&other),
        "--init",
    ];
    let init = [&init[..], &[text(&out), "--steps", "1", "--seq", "32"]].concat();
    usage(&init, "goes on with --left-to-right only");
    succeeds(&[&init[..], &["--left-to-right"]].concat());

    // A class that the last words alone tell: the first token, which has seen nothing, could not.
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
    let args = [
        "finetune",
        "custom",
        "--columns",
        "text,label",
        "--data",
        text(&data),
        "--model",
        text(&out),
        "--out",
        text(&tuned),
        "--epochs",
        "30",
        "--batch",
        "8",
        "--lr",
        "1e-3",
        "--json",
    ];
    let tuned_run = json(&succeeds(&args));
    assert_eq!(tuned_run["dev"]["accuracy"], 1.0, "{tuned_run}");
    assert_eq!(config(&tuned)["is_decoder"], true);
}

#[test]
fn the_first_phase_ends_where_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let measured = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let args = [&run(&corpus, &out, "10")[..], &["--eval-every", "1"], more].concat();
        let told = told(&succeeds(&args));
        let lines = told.lines().filter(|line| line.contains("held out: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (usual, long) = (
        measured("usual", &[]),
        measured("long", &["--phase-share", "0.9"]),
    );
    assert_eq!((usual.len(), long.len()), (11, 11));
    assert!(usual[3].contains("perplexity"), "{}", usual[3]);
    // A phase's data are measured from its first step on: the usual one ends with step 8.
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
    assert!(message.contains("only one phase"), "{message}");
}

#[test]
fn pretraining_goes_on_from_a_models_weights() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let trained = json(&succeeds(
        &[&run(&corpus, &first, "60")[..], &["--no-nsp"]].concat(),
    ));
    let further = |out: &Path, steps: &'static str| {
        let mut args: Vec<String> = run(&corpus, out, steps)
            .into_iter()
            .map(Into::into)
            .collect();
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
    // The first model had no pairs: what tells them apart starts anew, and that is said.
    let args = further(&second, "20");
    let output = succeeds(&args);
    let told = told(&output);
    for head in ["pooler", "next-sentence head"] {
        assert!(told.contains(&format!("the {head}")), "{told}");
    }
    assert!(!told.contains("the masked-LM head"), "{told}");
    let second_run = json(&output);
    let loss = |run: &serde_json::Value| run["eval"]["mlm_loss"].as_f64().unwrap();
    let uniform = trained["uniform_loss"].as_f64().unwrap();
    assert!(loss(&trained) < uniform - 1.0, "{trained}");
    assert!(loss(&second_run) < uniform - 1.0, "{second_run}");
    let vocabulary = |folder: &Path| fs::read(folder.join("vocab.txt")).unwrap();
    assert!(vocabulary(&first) == vocabulary(&second));
    let width = |folder: &Path| config(folder)["hidden_size"].clone();
    assert_eq!(width(&first), width(&second));

    // What agrees may be said; what does not is refused.
    let vocab = first.join("vocab.txt");
    let third = folder.path().join("third");
    let again = with(
        &further(&third, "1"),
        &["--size", "tiny", "--vocab", text(&vocab), "--no-nsp"],
    );
    succeeds(&again);
    let fourth = further(&folder.path().join("fourth"), "1");
    let message = fails(&with(&fourth, &["--size", "mini"]));
    assert!(message.contains("--size mini has 4 layers"), "{message}");
    let other = folder.path().join("other.txt");
    let tokens = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n";
    fs::write(&other, tokens).unwrap();
    let message = fails(&with(&fourth, &["--vocab", text(&other)]));
    assert!(
        message.contains("other.txt is not the vocabulary"),
        "{message}"
    );
    for flag in [&["--vocab-size", "300"][..], &["--cased"]] {
        let output = cloze().args(with(&fourth, flag)).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}

/// Shards are read in the order of their names, whatever the order in which they were written and
/// whether they are packed: they are the same run as one file with all their documents.
#[test]
fn shards_are_the_same_run_as_one_file() {
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

    // A run of another order is another run, though it has as many tokens.
    let out = folder.path().join("listed");
    let mut args = run(&whole, &out, "5");
    args.splice(2..3, [text(&b), text(&a)]);
    args.push("--resume");
    let message = fails(&args, 2);
    assert!(message.contains("the text"), "{message}");
}
