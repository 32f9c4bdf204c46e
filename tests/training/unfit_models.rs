//! Models that do not fit a command: another head, other labels, weights that are NaN.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::common::{Folder, assert_contains, fails, stderr, stdout, succeeds, text, words};

fn spam() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons/data/spam")
}

/// Returns the arguments that train a spam classifier for one step.
fn one_step(more: &str) -> Vec<String> {
    let line = "finetune custom --columns text,label --limit 8 --epochs 1";
    words(&format!("{line} {more}"))
}

/// Returns a folder with a spam classifier in `spam`.
fn classifier() -> Folder {
    let folder = Folder::new();
    let (data, out) = (spam(), folder.path("spam"));
    succeeds(one_step(&format!("--data {} --out {}", text(&data), text(&out))));
    folder
}

#[test]
fn a_model_with_another_head_is_refused_though_its_shapes_fit() {
    let folder = classifier();
    folder.write("rows", "EU B-ORG\nrejects O\n\n");
    let (model, rows) = (folder.path("spam"), folder.path("rows"));
    let (model, rows) = (text(&model), text(&rows));
    let line = "predict custom --columns 1,2 --kind tokens";
    let message = fails(words(&format!("{line} --input {rows} --model {model}")), 1);
    let expected = "is of a BertForSequenceClassification and holds no token classifier";
    assert_contains(&message, expected);
    let line = format!("evaluate swag --data {rows} --model {model}");
    assert_contains(&fails(words(&line), 1), "holds no multiple-choice head");
}

#[test]
fn a_regression_model_predicts_numbers_without_kind() {
    let folder = Folder::new();
    let rows: String = (0..8).map(|i| format!("row {i}\t{}.5\n", i % 3)).collect();
    folder.write("rows.tsv", &format!("text\tscore\n{rows}"));
    let (rows, out) = (folder.path("rows.tsv"), folder.path("out"));
    let (rows, out) = (text(&rows), text(&out));
    let line = "finetune custom --kind number --columns text,score --epochs 1";
    succeeds(words(&format!("{line} --train {rows} --dev {rows} --out {out}")));
    let line = "predict custom --columns text,score";
    let printed = stdout(&succeeds(words(&format!("{line} --input {rows} --model {out}"))));
    let numbers = printed.lines().filter(|line| {
        let last = line.split('\t').next_back().unwrap_or_default();
        last.parse::<f64>().is_ok()
    });
    assert_eq!(numbers.count(), 8, "{printed}");
}

#[test]
fn weights_that_are_nan_are_named() {
    let folder = classifier();
    let model = folder.path("spam");
    let file = model.join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<(String, Vec<u8>, Vec<usize>)> = tensors
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
    let views = changed.iter().map(|(name, data, shape)| {
        let view = TensorView::new(safetensors::Dtype::F32, shape.clone(), data).unwrap();
        (name.as_str(), view)
    });
    std::fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
    let dev = spam().join("dev.tsv");
    let files = format!("--data {} --model {}", text(&dev), text(&model));
    let message = fails(words(&format!("evaluate custom --columns text,label {files}")), 1);
    assert_contains(&message, "tensor classifier.bias holds NaN (value 1)");
}

#[test]
fn a_learning_rate_that_ruins_the_model_in_the_last_step_is_noticed() {
    let folder = Folder::new();
    let (data, out) = (spam(), folder.path("out"));
    let more = format!("--data {} --lr 1e30 --out {}", text(&data), text(&out));
    assert_contains(&fails(one_step(&more), 1), "is not a finite number");
}

#[test]
fn training_is_not_lost_if_the_model_cannot_be_written() {
    let folder = Folder::new();
    let (data, out) = (spam(), folder.path("out"));
    let in_the_way = out.join("model.safetensors");
    std::fs::create_dir_all(in_the_way.join("x")).unwrap();
    let files = format!("--data {} --out {}", text(&data), text(&out));
    let more = format!("--batch 2 --save-every 3 {files}");
    assert_contains(&fails(one_step(&more), 1), "model.safetensors");
    let state = out.join("trainer/state.safetensors");
    assert!(state.exists());
    std::fs::remove_dir_all(&in_the_way).unwrap();
    let output = succeeds(one_step(&format!("{more} --resume")));
    assert_contains(&stderr(&output), "continuing after step 3");
    assert!(in_the_way.is_file() && !state.exists());
}

#[test]
fn a_regression_model_that_is_fine_tuned_on_words_predicts_words() {
    let folder = Folder::new();
    folder.write("numbers.tsv", "one\t1.5\ntwo\t2\n");
    folder.write("words.tsv", "EU rejects\tB-ORG O\n");
    let tune = |rows: &str, kind: &str, model: &str, out: &str| {
        let (rows, out) = (folder.path(rows), folder.path(out));
        let files = format!("--train {0} --dev {0} --out {1}", text(&rows), text(&out));
        let line = "finetune custom --columns 1,2 --epochs 1 --kind";
        succeeds(words(&format!("{line} {kind} {files}{model}")));
    };
    let (first, second) = (folder.path("first"), folder.path("second"));
    tune("numbers.tsv", "number", "", "first");
    tune("words.tsv", "tokens", &format!(" --model {}", text(&first)), "second");
    let rows = folder.path("words.tsv");
    let files = format!("--input {} --model {}", text(&rows), text(&second));
    let output = succeeds(words(&format!("predict custom --columns 1,2 {files}")));
    assert!(!output.stdout.is_empty());
}

#[test]
fn rows_that_are_read_twice_cannot_come_from_standard_input() {
    let folder = Folder::new();
    let (dev, out) = (spam().join("dev.tsv"), folder.path("out"));
    let more = format!("--train - --dev {} --out {}", text(&dev), text(&out));
    assert_contains(&fails(one_step(&more), 2), "so a file is needed");
}
