//! Models that don't fit what is asked of them: other heads, spoilt weights; and an output that
//! nobody reads.

mod common;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{cloze, fails, stderr, succeeds, text};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

fn spam() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons/data/spam")
}

/// A command that makes a classifier of spam from one step, without its `--out`.
const ONE_STEP: &str = "finetune custom --columns text,label --limit 8 --epochs 1";

/// The arguments of `ONE_STEP` with more after them.
fn one_step<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ONE_STEP.split(' ').chain(more.iter().copied()).collect()
}

/// A classifier of spam after one step, in `folder`.
fn classifier(folder: &Path) -> PathBuf {
    let (out, data) = (folder.join("spam"), spam());
    succeeds(&one_step(&["--data", text(&data), "--out", text(&out)]));
    out
}

#[test]
fn a_model_of_another_kind_is_refused_though_its_shapes_fit() {
    let folder = tempfile::tempdir().unwrap();
    let model = classifier(folder.path());
    let rows = folder.path().join("rows");
    std::fs::write(&rows, "EU B-ORG\nrejects O\n\n").unwrap();
    let custom = ["--columns", "1,2", "--kind", "tokens"];
    let asked = [
        "predict",
        "custom",
        "--input",
        text(&rows),
        "--model",
        text(&model),
    ];
    let message = fails(&[&asked[..], &custom].concat(), 1);
    let told = "is of a BertForSequenceClassification and holds no token classifier";
    assert!(message.contains(told), "{message}");
    let asked = [
        "evaluate",
        "swag",
        "--data",
        text(&rows),
        "--model",
        text(&model),
    ];
    let message = fails(&asked, 1);
    assert!(
        message.contains("holds no multiple-choice head"),
        "{message}"
    );
}

#[test]
fn a_model_of_numbers_is_asked_for_numbers_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let rows: String = (0..8).map(|i| format!("row {i}\t{}.5\n", i % 3)).collect();
    std::fs::write(path("rows.tsv"), format!("text\tscore\n{rows}")).unwrap();
    let (rows, out) = (path("rows.tsv"), path("out"));
    let columns = ["--columns", "text,score"];
    let train = [
        "--train",
        text(&rows),
        "--dev",
        text(&rows),
        "--kind",
        "number",
    ];
    let args = [
        &["finetune", "custom", "--epochs", "1", "--out", text(&out)],
        &train[..],
    ]
    .concat();
    succeeds(&[&args[..], &columns].concat());
    let args = [
        "predict",
        "custom",
        "--input",
        text(&rows),
        "--model",
        text(&out),
    ];
    let printed = String::from_utf8(succeeds(&[&args[..], &columns].concat()).stdout).unwrap();
    let numbers = printed.lines().filter(|line| {
        let last = line.split('\t').next_back().unwrap_or_default();
        last.parse::<f64>().is_ok()
    });
    assert_eq!(numbers.count(), 8, "{printed}");
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = classifier(folder.path());
    let file = model.join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let spoilt: Vec<(String, Vec<u8>, Vec<usize>)> = tensors
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let mut data = view.data().to_vec();
            if name == "classifier.bias" {
                data[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
            }
            (name, data, view.shape().to_vec())
        })
        .collect();
    let views = spoilt.iter().map(|(name, data, shape)| {
        let view = TensorView::new(safetensors::Dtype::F32, shape.clone(), data).unwrap();
        (name.as_str(), view)
    });
    std::fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
    let dev = spam().join("dev.tsv");
    let asked = [
        "evaluate",
        "custom",
        "--data",
        text(&dev),
        "--model",
        text(&model),
    ];
    let message = fails(&[&asked[..], &["--columns", "text,label"]].concat(), 1);
    assert!(
        message.contains("tensor classifier.bias holds NaN (value 1)"),
        "{message}"
    );
}

#[test]
fn a_rate_that_spoils_the_model_in_its_last_step_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("out"), spam());
    let more = ["--data", text(&data), "--lr", "1e30", "--out", text(&out)];
    let message = fails(&one_step(&more), 1);
    assert!(message.contains("is not a finite number"), "{message}");
}

#[test]
fn a_model_that_cannot_be_written_costs_no_training() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("out"), spam());
    let in_the_way = out.join("model.safetensors").join("x");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let more = [
        "--data",
        text(&data),
        "--batch",
        "2",
        "--save-every",
        "3",
        "--out",
        text(&out),
    ];
    let message = fails(&one_step(&more), 1);
    assert!(message.contains("model.safetensors"), "{message}");
    assert!(out.join("trainer/state.safetensors").exists());
    std::fs::remove_dir_all(out.join("model.safetensors")).unwrap();
    let output = succeeds(&one_step(&[&more[..], &["--resume"]].concat()));
    assert!(stderr(&output).contains("continuing after step 3"));
    assert!(out.join("model.safetensors").is_file());
    assert!(!out.join("trainer/state.safetensors").exists());
}

#[test]
fn a_model_of_numbers_that_goes_on_with_words_is_one_of_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("numbers.tsv"), "one\t1.5\ntwo\t2\n").unwrap();
    std::fs::write(path("words.tsv"), "EU rejects\tB-ORG O\n").unwrap();
    let (numbers, words) = (path("numbers.tsv"), path("words.tsv"));
    let (first, second) = (path("first"), path("second"));
    let tune = |rows: &Path, kind: &str, model: &[&str], out: &Path| {
        let rows = [
            "--train",
            text(rows),
            "--dev",
            text(rows),
            "--columns",
            "1,2",
        ];
        let how = ["--kind", kind, "--epochs", "1", "--out", text(out)];
        succeeds(&[&["finetune", "custom"], &rows[..], &how, model].concat());
    };
    tune(&numbers, "number", &[], &first);
    tune(&words, "tokens", &["--model", text(&first)], &second);
    let ask = [
        "predict",
        "custom",
        "--input",
        text(&words),
        "--model",
        text(&second),
    ];
    let output = succeeds(&[&ask[..], &["--columns", "1,2"]].concat());
    assert!(!output.stdout.is_empty());
}

#[test]
fn rows_that_are_read_twice_come_from_a_file() {
    let (folder, dev) = (tempfile::tempdir().unwrap(), spam().join("dev.tsv"));
    let out = folder.path().join("out");
    let more = ["--train", "-", "--dev", text(&dev), "--out", text(&out)];
    let message = fails(&one_step(&more), 2);
    assert!(message.contains("so a file is needed"), "{message}");
}

#[test]
#[cfg(target_os = "linux")]
fn an_output_that_is_closed_or_full_is_no_panic() {
    for command in [
        &["data", "list"][..],
        &["lessons", "list"],
        &["bench", "estimate", "--paper"],
    ] {
        let mut child = cloze()
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && told.is_empty(),
            "{command:?}: {told}"
        );

        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = cloze().args(command).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {told}");
        assert!(told.starts_with("error: stdout: "), "{command:?}: {told}");
    }
}
