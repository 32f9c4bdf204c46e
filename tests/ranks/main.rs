//! Several processes that `mpirun` starts train, measure and predict as one process does, and end together.
//!
//! `cargo test --features mpi --test ranks` needs `mpirun`. CLOZE_TEST_RANKS is the number of processes, 2 if unset.

#[path = "../common/mod.rs"]
mod common;

mod alike;
mod failures;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use common::{Folder, stderr, text};
use serde_json::Value;

/// Returns how many processes the tests start.
fn count() -> usize {
    let given = std::env::var("CLOZE_TEST_RANKS").ok();
    given.map_or(2, |number| number.parse().expect("CLOZE_TEST_RANKS is a number"))
}

/// Returns `mpirun`, ready for the arguments of `cloze`. It may start more processes than there are cores, and as root
/// in a container, and waits for checkpoints before it kills.
fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "4");
    command.args(["-n", &ranks.to_string(), "--oversubscribe", "--bind-to", "none"]);
    command.args([env!("CARGO_BIN_EXE_cloze"), "--threads", "1"]);
    command
}

/// Runs `cloze` as ranks and expects success.
fn together<A: AsRef<OsStr>>(ranks: usize, args: impl IntoIterator<Item = A>) -> Output {
    let output = mpirun(ranks).args(args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Runs `cloze` as one process with one thread and expects success.
fn alone<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    let output = common::cloze().args(["--threads", "1"]).args(args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Returns these numbers of every step of the run in `out`.
fn recorded(out: &Path, name: &str) -> Vec<f64> {
    let lines = std::fs::read_to_string(out.join("trainer/metrics.jsonl")).unwrap();
    let numbers = lines.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line.get(name)?.as_f64()
    });
    numbers.collect()
}

/// Returns the arguments of a quick pre-training run with this batch.
fn pretraining<'a>(corpus: &'a Path, out: &'a Path, batch: &'a str) -> Vec<&'a str> {
    let mut args = vec!["pretrain", "--text", text(corpus), "--out", text(out), "--json"];
    args.extend(["--steps", "50", "--seq", "32", "--first-seq", "24", "--vocab-size", "200"]);
    args.extend(["--seed", "5", "--batch", batch, "--dropout", "0.1"]);
    args
}

/// Returns a folder with a corpus, and its path.
fn corpus() -> (Folder, std::path::PathBuf) {
    let folder = Folder::new();
    let corpus = common::pretraining::corpus(folder.0.path());
    (folder, corpus)
}
