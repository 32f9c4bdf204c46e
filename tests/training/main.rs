//! Pre-training, distillation and fine-tuning through the command: what is learned, what a run leaves in its
//! folder, how it resumes, and what it refuses.

#[path = "../common/mod.rs"]
mod common;

mod capstone;
mod distill;
mod frozen;
mod glue;
mod own_data;
mod pretrain;
mod pretrain_variants;
mod recipes;
mod records;
mod resume_finetuning;
mod saved_runs;
mod store;
mod task_options;
mod tasks;
mod unfit_models;

use std::ops::Range;
use std::path::Path;

use common::{Folder, json, succeeds, text};
use serde_json::Value;

const GOOD: [&str; 4] = ["warm", "bright", "happy", "kind"];
const BAD: [&str; 4] = ["cold", "dark", "sad", "rude"];

/// Returns whether row `i` is about something good, and its sentence.
fn opinion(i: usize) -> (bool, String) {
    let good = i * 7 % 3 == 1;
    let word = if good { GOOD } else { BAD }[i % 4];
    let thing = ["day", "house", "friend", "garden", "road"][i % 5];
    (good, format!("it was a {word} {thing} in the end"))
}

/// Returns these opinions as a file of SST-2. `swapped` labels are wrong.
fn opinions(rows: Range<usize>, swapped: bool) -> String {
    let row = |i| {
        let (good, sentence) = opinion(i);
        format!("{sentence}\t{}\n", u8::from(good != swapped))
    };
    "sentence\tlabel\n".to_owned() + &rows.map(row).collect::<String>()
}

/// Returns a folder of data for `finetune sst-2`.
fn sentiment(train: usize, dev: usize) -> Folder {
    let folder = Folder::new();
    folder
        .write("train.tsv", &opinions(0..train, false))
        .write("dev.tsv", &opinions(train..train + dev, false));
    folder
}

/// Returns a folder with a training file and the first `count` parts, which end with `end`, of a development file:
/// measuring on all of a real one would take longer than training.
fn with_short_dev([train, dev]: [&Path; 2], end: &str, count: usize) -> Folder {
    let folder = Folder::new();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    std::fs::copy(train, folder.path(&name(train))).unwrap();
    let part: String =
        std::fs::read_to_string(dev).unwrap().split_inclusive(end).take(count).collect();
    folder.write(&name(dev), &part);
    folder
}

/// Returns CoNLL-2003's training sentences and the first 700 of its development sentences.
fn real_entities(data: &Path) -> Folder {
    let [train, dev] = ["eng.train", "eng.testa"].map(|name| data.join("conll2003").join(name));
    with_short_dev([&train, &dev], "\n\n", 700)
}

/// Fine-tunes a real model on real data.
fn finetuned(model: &Path, task: &str, data: &Path, more: &[&str]) -> Value {
    let out = tempfile::tempdir().unwrap();
    let mut args = vec!["finetune", task, "--json", "--model", text(model)];
    args.extend(["--data", text(data), "--out", text(out.path())]);
    json(&succeeds(args.iter().chain(more)))
}
