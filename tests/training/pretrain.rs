//! `cloze pretrain`, and `fill-mask`, `nsp` and `convert` with its model.

use std::fs;
use std::path::Path;
use std::time::Duration;

use safetensors::SafeTensors;

use crate::common::pretraining::{corpus, run};
use crate::common::{
    assert_contains, error_line, fails, interrupted, json, killed, piped, signal, started, stderr,
    succeeds, text, tiny, wait_for, words,
};

#[test]
fn a_model_is_trained_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let trained = json(&succeeds(run(&corpus, &out, "40")));
    assert_eq!(trained["steps"], 40);
    let number = |key: &str| trained[key].as_f64().unwrap();
    assert!(number("loss_last") < number("loss_first") - 1.0, "{trained}");
    assert!(number("tokens_per_s") > 0.0 && number("seconds") > 0.0);
    for key in ["mlm_accuracy", "mlm_loss", "nsp_accuracy"] {
        assert!(trained["eval"][key].is_number(), "{trained}");
    }
    let files = "config.json model.safetensors vocab.txt tokenizer.json trainer/loss.svg";
    for file in files.split(' ') {
        assert!(out.join(file).exists(), "{file}");
    }

    let sentence = "the cat sat in the [MASK] . the [MASK] was warm";
    let filled = json(&succeeds(["fill-mask", "--model", text(&out), sentence, "--json"]));
    let probability = |word: &serde_json::Value| word["probability"].as_f64().unwrap();
    let masks = filled["masks"].as_array().unwrap();
    assert_eq!(masks.len(), 2);
    for mask in masks {
        let mask = mask.as_array().unwrap();
        let p: Vec<f64> = mask.iter().map(probability).collect();
        assert_eq!(p.len(), 5);
        assert!(p.is_sorted_by(|a, b| a >= b) && p.iter().sum::<f64>() <= 1.0);
        assert!(mask[0]["token"].is_string() && mask[0]["id"].is_u64());
    }
    let args = ["fill-mask", "--model", text(&out), "a [MASK]", "--json"];
    let all = json(&succeeds([&args[..], &["--top-k", "999"]].concat()));
    let sum: f64 = all["masks"][0].as_array().unwrap().iter().map(probability).sum();
    assert!((sum - 1.0).abs() < 1e-6);

    let pair = ["the cat sat", "the mat was warm"];
    let args = ["nsp", "--json", "--model", text(&out), pair[0], pair[1]];
    let p = json(&succeeds(args))["is_next"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&p));

    let converted = folder.path().join("converted");
    succeeds(["convert", text(&out), text(&converted)]);
    let again = ["fill-mask", "--model", text(&converted), sentence, "--json"];
    assert_eq!(json(&succeeds(again)), filled);
}

/// A run that is killed after a checkpoint and resumed ends with the very same bytes.
#[test]
fn a_killed_run_resumes_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let (whole, broken) = (folder.path().join("whole"), folder.path().join("broken"));
    succeeds(run(&corpus, &whole, "60"));

    let mut args = run(&corpus, &broken, "60");
    args.extend(["--save-every", "4"]);
    let state = broken.join("trainer/state.safetensors");
    killed(&args, || state.exists());

    args.push("--resume");
    assert_eq!(json(&succeeds(&args))["steps"], 60);
    let read = |folder: &Path, file| fs::read(folder.join(file)).unwrap();
    let [a, b] = [&whole, &broken].map(|folder| read(folder, "model.safetensors"));
    assert!(a == b, "the models differ");
    // The state also holds the speed of each step, which differs.
    let [a, b] = [&whole, &broken].map(|folder| read(folder, "trainer/state.safetensors"));
    assert_eq!(tail(&a, &whole), tail(&b, &broken), "the states differ");
}

/// Returns the parameters and moments at the end of a state file: three times the model's floats.
fn tail<'a>(state: &'a [u8], folder: &Path) -> &'a [u8] {
    let model = fs::read(folder.join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(model[..8].try_into().unwrap()) as usize;
    &state[state.len() - 3 * (model.len() - header)..]
}

#[test]
fn control_c_ends_at_a_step_boundary_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "100000");
    args.extend(["--save-every", "3"]);
    let state = out.join("trainer/state.safetensors");
    let stopped = json(&interrupted(&args, || state.exists()));
    assert_eq!(stopped["stopped"], true);
    let steps = stopped["steps"].as_u64().unwrap();

    // A resumed run continues exactly there.
    let next = (steps + 1).to_string();
    let position = args.iter().position(|a| *a == "100000").unwrap();
    args[position] = &next;
    args.push("--resume");
    let output = succeeds(&args);
    let message = stderr(&output);
    assert_contains(&message, &format!("continuing after step {steps}"));
    assert_eq!(json(&output)["steps"], steps + 1);
    // Only changed options are reported.
    let changed: Vec<&str> = message.lines().filter(|l| l.contains("here on")).collect();
    let end = format!("--steps was 100000 and is {next} from here on");
    assert!(changed.contains(&end.as_str()), "{message}");
    assert!(!message.contains("--lr was"), "{message}");
    let message = stderr(&succeeds([&args[..], &["--dtype", "bf16"]].concat()));
    let other = "--dtype was f32 and is bf16 from here on";
    assert!(message.lines().any(|line| line == other), "{message}");
}

/// `timeout` of GNU sends a signal to its child and then to the child's group.
#[test]
fn two_signals_at_once_are_one_request() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "100000");
    args.extend(["--save-every", "0"]);
    let child = started(&args);
    wait_for(|| {
        let metrics = fs::read_to_string(out.join("trainer/metrics.jsonl"));
        metrics.is_ok_and(|text| text.lines().count() > 2)
    });
    for _ in 0..2 {
        signal(&child, "-TERM");
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    assert_contains(&message, "stopping after this step");
    assert!(out.join("trainer/state.safetensors").exists());
    assert_eq!(json(&output)["stopped"], true);
}

/// Where a text is read twice, a pipe would be empty the second time.
#[cfg(unix)]
#[test]
fn a_pipe_is_refused_where_a_text_is_read_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (out, vocab) = (folder.path().join("out"), tiny().join("vocab.txt"));
    let (out, vocab) = (text(&out), text(&vocab));
    for args in [
        &["prepare", "--text", "/dev/stdin", "--vocab", vocab, "--out", out][..],
        &["pretrain", "--text", "/dev/stdin", "--steps", "1", "--out", out],
        &["finetune", "ner", "--train", "/dev/stdin", "--split", "0", "--out", out],
        &["finetune", "sst-2", "--train", "/dev/stdin", "--out", out],
    ] {
        let message = error_line(&piped(args, "text\n"), 1);
        assert_contains(&message, "is a pipe or a device, which can't be read twice");
    }
}

#[test]
fn a_refused_run_changes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = run(&corpus, &out, "2");
    succeeds(&args);
    let resumed = || succeeds([&args[..], &["--resume"]].concat());
    let vocabulary = fs::read(out.join("vocab.txt")).unwrap();
    let other = folder.path().join("other.txt");
    let pieces = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n";
    fs::write(&other, pieces).unwrap();
    let at = args.iter().position(|a| *a == "--vocab-size").unwrap();
    let mut with_other = args.clone();
    with_other.splice(at..at + 2, ["--vocab", text(&other), "--resume"]);
    let message = fails(&with_other, 2);
    assert_contains(&message, "the vocabulary's size was");
    assert_eq!(fs::read(out.join("vocab.txt")).unwrap(), vocabulary);
    let deviation = ["--initializer-range", "0.5"];
    for (more, expected) in [
        (&["--cased"][..], "--cased: the run in "),
        (&deviation, "--initializer-range 0.5: the run in "),
    ] {
        let message = fails([&args[..], more, &["--resume"]].concat(), 2);
        assert_contains(&message, expected);
    }
    let mut smaller = args.clone();
    smaller.splice(at + 1..at + 2, ["50", "--resume"]);
    assert_contains(&fails(&smaller, 2), "--vocab-size 50: the run in ");
    // A larger one would be the same, because the text has no more pieces.
    resumed();

    // The next run removes the token files of a killed run.
    let left = out.join("trainer/tokens");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("train"), "old").unwrap();
    resumed();
    assert!(!left.exists());

    // A model without a run, and the model that a run starts from, are not replaced.
    fs::remove_file(out.join("trainer/state.safetensors")).unwrap();
    fs::remove_file(out.join("trainer/previous.safetensors")).unwrap();
    let weights = fs::read(out.join("model.safetensors")).unwrap();
    let message = fails(&args, 2);
    assert_contains(&message, "already holds a model");
    for (command, option) in [("pretrain", "--init"), ("distill", "--teacher")] {
        let to = [command, "--steps", "1", "--overwrite", "--out", text(&out)];
        let message = fails([&to[..], &[option, text(&out)]].concat(), 2);
        assert_contains(&message, "the model to start from");
    }
    assert_eq!(fs::read(out.join("model.safetensors")).unwrap(), weights);
    assert_eq!(fs::read(out.join("vocab.txt")).unwrap(), vocabulary);

    // A model that replaces another has no head of a frozen encoder.
    let head = out.join("head.safetensors");
    fs::write(&head, "a head").unwrap();
    succeeds([&args[..], &["--overwrite"]].concat());
    assert!(!head.exists());
}

#[test]
fn impossible_options_are_refused_before_the_text_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let missing = folder.path().join("missing.txt");
    for (more, expected) in [
        ("--size gigantic", "unknown size"),
        ("--seq 9999", "--seq 9999: the model has only 512 positions"),
        ("--phase-share 0.5 --first-seq 128", "--phase-share: there is only one phase"),
        ("--dtype bf16 --matmul fast", "--matmul fast"),
        ("--dtype f16 --backend cpu", "dtype f16 needs a GPU"),
        ("--mask-prob 1.5", "--mask-prob 1.5"),
        ("--lr -1", "--lr -1: a positive number is needed"),
    ] {
        let files = format!("--text {} --out {}", text(&missing), text(&out));
        let message = fails(words(&format!("pretrain {files} {more}")), 2);
        assert!(message.contains(expected), "{more:?}: {message}");
    }
}

#[test]
fn a_folder_with_a_run_is_overwritten_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = run(&corpus, &out, "1");
    succeeds(&args);
    let message = fails(&args, 2);
    assert_contains(&message, "already holds a run");
    assert_contains(&message, "--resume");

    let mut other_seed = args.clone();
    other_seed.extend(["--resume"]);
    let seed = other_seed.iter().position(|a| *a == "--seed").unwrap() + 1;
    other_seed[seed] = "6";
    let message = fails(&other_seed, 2);
    assert_contains(&message, "--seed was 5 and is now 6");

    let fresh = folder.path().join("fresh");
    let mut args = run(&corpus, &fresh, "1");
    args.push("--resume");
    let message = stderr(&succeeds(&args));
    assert_contains(&message, "holds no checkpoint: starting a fresh run");
}

#[test]
fn a_first_phase_longer_than_the_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "5");
    let first = args.iter().position(|a| *a == "--first-seq").unwrap() + 1;
    args[first] = "33";
    let message = fails(&args, 2);
    assert_contains(&message, "--first-seq 33: at most");
}

#[test]
fn micro_batches_and_recomputed_layers_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let losses = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let trained = json(&succeeds([&run(&corpus, &out, "12")[..], more].concat()));
        ["loss_first", "loss_last"].map(|key| trained[key].as_f64().unwrap())
    };
    let whole = losses("whole", &[]);
    let close = |other: [f64; 2]| (0..2).all(|i| (other[i] / whole[i] - 1.0).abs() < 1e-4);
    assert!(close(losses("parts", &["--micro-batch", "3"])));
    assert!(losses("again", &["--recompute"]) == whole);
    let rounded = losses("bf16", &["--dtype", "bf16"]);
    assert!(rounded != whole && (rounded[1] / whole[1] - 1.0).abs() < 2e-2);

    // A state with another order of the parameters could be read without an error, but would be wrong.
    let state = folder.path().join("whole/trainer/state.safetensors");
    let mut bytes = fs::read(&state).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let was = &header.metadata().as_ref().unwrap()["state"];
    let now = was.replace(r#""order":1"#, r#""order":0"#);
    let [was, now] = [was, &now].map(|entry| format!("{:08x}", crc32fast::hash(entry.as_bytes())));
    let mut replace = |old: &[u8], new: &[u8]| {
        let at = bytes.windows(old.len()).position(|w| w == old).unwrap();
        bytes[at..at + old.len()].copy_from_slice(new);
    };
    replace(br#"order\":1"#, br#"order\":0"#);
    replace(was.as_bytes(), now.as_bytes());
    fs::write(&state, bytes).unwrap();
    let out = folder.path().join("whole");
    let message = fails([&run(&corpus, &out, "20")[..], &["--resume"]].concat(), 2);
    assert_contains(&message, "the order of the parameters");

    let lamb = ["--optimizer", "lamb"];
    assert!((losses("lamb", &lamb)[1] / whole[1] - 1.0).abs() > 1e-4);
    let out = folder.path().join("lamb");
    let message = fails([&run(&corpus, &out, "20")[..], &["--resume"]].concat(), 2);
    assert_contains(&message, "--optimizer was lamb and is now adamw");

    let muon = losses("muon", &["--optimizer", "muon", "--schedule", "trapezoid"]);
    assert!((muon[1] / whole[1] - 1.0).abs() > 1e-4);
    assert!(muon[1] < muon[0], "{muon:?}");
}

#[test]
fn a_run_that_diverges_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "5");
    args.extend(["--lr", "1e30"]);
    let message = fails(&args, 1);
    assert_contains(&message, "is not a number");
    assert_contains(&message, "learning rate");
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
    let pretrain = |path: &Path, code: i32| fails(run(path, &out, "1"), code);

    let message = pretrain(&file("empty.txt", b" \n\n"), 1);
    assert_contains(&message, "empty.txt");
    let message = pretrain(&file("binary.txt", b"\x7fELF\0\0\x01\0"), 1);
    assert_contains(&message, "binary.txt");
    let message = pretrain(&file("latin.txt", b"fine\nna\xefve\n"), 1);
    assert_contains(&message, "latin.txt:2");
    assert_contains(&message, "UTF-8");
    let message = pretrain(&folder.path().join("nowhere.txt"), 1);
    assert_contains(&message, "nowhere.txt");
    let message = pretrain(&file("one.txt", b"A single sentence stands here.\n"), 1);
    assert_contains(&message, "document");

    let line = format!("pretrain --text {} --out {}", text(&good), text(&out));
    let with_vocab = |path: &Path| {
        let more = format!("--steps 1 --vocab {}", text(path));
        fails(words(&format!("{line} {more}")), 1)
    };
    let message = with_vocab(&file("no-mask.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n"));
    assert_contains(&message, "no-mask.txt");
    assert_contains(&message, "[MASK]");
    let twice = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n";
    let message = with_vocab(&file("twice.txt", twice));
    assert_contains(&message, "twice.txt:8");

    for (more, expected) in [
        ("--size huge", "unknown size \"huge\""),
        ("--seq 600", "only 512 positions"),
        ("--steps 0", "--steps 0"),
        ("--lr=-1", "--lr -1"),
    ] {
        assert_contains(&fails(words(&format!("{line} {more}")), 2), expected);
    }
}

#[test]
fn a_model_folder_that_is_damaged_or_unfit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    succeeds(run(&corpus, &out, "1"));
    let model = text(&out).to_owned();

    let message = fails(["fill-mask", "--model", &model, "no blank here"], 2);
    assert_contains(&message, "has no [MASK]");
    let long = "cat ".repeat(600) + "[MASK]";
    let message = fails(["fill-mask", "--model", &model, &long], 1);
    assert_contains(&message, "603 tokens");
    assert_contains(&message, "only 512");
    let message = fails(["nsp", "--model", "/nonexistent", "a", "b"], 1);
    assert_contains(&message, "/nonexistent");

    let weights = out.join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    let message = fails(["fill-mask", "--model", &model, "a [MASK]"], 1);
    assert_contains(&message, "model.safetensors");
    assert_contains(&message, "cut short");
    fs::write(&weights, &whole).unwrap();

    let config = out.join("config.json");
    let changed = fs::read_to_string(&config)
        .unwrap()
        .replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    fs::write(&config, changed).unwrap();
    let message = fails(["fill-mask", "--model", &model, "a [MASK]"], 1);
    assert_contains(&message, "encoder.layer.2.");
    assert_contains(&message, "is missing");
}
