//! `pretrain`, `fill-mask`, `nsp` and `convert` as a user runs them.

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::pretraining::{corpus, run};
use common::{cloze, fails, json, signal, started, stderr, succeeds, text, wait_for};

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

#[test]
fn control_c_ends_at_a_step_boundary_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let mut args = run(&corpus, &out, "100000");
    args.extend(["--save-every", "3"]);
    let child = started(&args);
    wait_for(|| out.join("trainer/state.safetensors").exists());
    signal(&child, "-INT");
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
    // What is not as it was is told, and nothing else.
    let changed: Vec<&str> = told.lines().filter(|l| l.contains("here on")).collect();
    let end = format!("--steps was 100000 and is {next} from here on");
    assert!(changed.contains(&end.as_str()), "{told}");
    assert!(!told.contains("--lr was"), "{told}");
    let told = stderr(&succeeds(&[&args[..], &["--dtype", "bf16"]].concat()));
    let other = "--dtype was f32 and is bf16 from here on";
    assert!(told.lines().any(|line| line == other), "{told}");
}

/// GNU timeout signals its child and then the child's group.
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
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("stopping after this step"), "{told}");
    assert!(out.join("trainer/state.safetensors").exists());
    assert_eq!(json(&output)["stopped"], true);
}

#[test]
fn a_refused_run_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path()), folder.path().join("model"));
    let args = run(&corpus, &out, "2");
    succeeds(&args);
    let resumed = || succeeds(&[&args[..], &["--resume"]].concat());
    let vocabulary = fs::read(out.join("vocab.txt")).unwrap();
    let other = folder.path().join("other.txt");
    let pieces = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n";
    fs::write(&other, pieces).unwrap();
    let at = args.iter().position(|a| *a == "--vocab-size").unwrap();
    let mut with_other = args.clone();
    with_other.splice(at..at + 2, ["--vocab", text(&other), "--resume"]);
    let told = fails(&with_other, 2);
    assert!(told.contains("the vocabulary's size was"), "{told}");
    assert_eq!(fs::read(out.join("vocab.txt")).unwrap(), vocabulary);
    resumed();

    // What a killed run left of its token files goes with the next one.
    let left = out.join("trainer/tokens");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("train"), "old").unwrap();
    resumed();
    assert!(!left.exists());

    // A model without a run, and the model that a run starts from.
    fs::remove_file(out.join("trainer/state.safetensors")).unwrap();
    let weights = fs::read(out.join("model.safetensors")).unwrap();
    let told = fails(&args, 2);
    assert!(told.contains("already holds a model"), "{told}");
    for (command, option) in [("pretrain", "--init"), ("distill", "--teacher")] {
        let to = [command, "--steps", "1", "--overwrite", "--out", text(&out)];
        let told = fails(&[&to[..], &[option, text(&out)]].concat(), 2);
        assert!(told.contains("the model to start from"), "{told}");
    }
    assert_eq!(fs::read(out.join("model.safetensors")).unwrap(), weights);
    assert_eq!(fs::read(out.join("vocab.txt")).unwrap(), vocabulary);
}

#[test]
fn what_cannot_be_run_is_refused_before_the_text_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let missing = folder.path().join("missing.txt");
    for (more, said) in [
        (&["--size", "gigantic"][..], "unknown size"),
        (
            &["--seq", "9999"],
            "--seq 9999: the model has only 512 positions",
        ),
        (
            &["--phase-share", "0.5", "--first-seq", "128"],
            "--phase-share: there is only one phase",
        ),
        (&["--dtype", "bf16", "--matmul", "fast"], "--matmul fast"),
        (
            &["--dtype", "f16", "--backend", "cpu"],
            "dtype f16 needs a GPU",
        ),
        (&["--mask-prob", "1.5"], "--mask-prob 1.5"),
        (&["--lr", "-1"], "--lr -1: a positive number is needed"),
    ] {
        let args = ["pretrain", "--text", text(&missing), "--out", text(&out)];
        let told = fails(&[&args[..], more].concat(), 2);
        assert!(told.contains(said), "{more:?}: {told}");
    }
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
        told.contains("603 tokens") && told.contains("only 512"),
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
