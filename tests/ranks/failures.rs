//! When a rank fails, all end; what was saved is whole and can be continued by any number of ranks.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, assert_contains, json, signal, stderr, text, wait_for};
use crate::{alone, corpus, mpirun, pretraining, recorded, together};

/// Starts a long run on two ranks, and waits until it has trained for some steps.
fn training(corpus: &Path, out: &Path) -> Child {
    let mut command = mpirun(2);
    let long = ["--steps", "100000", "--save-every", "10", "--eval-every", "50000"];
    let args = pretraining(corpus, out, "4");
    let at = args.iter().position(|arg| *arg == "--steps").unwrap();
    let args = [&args[..at], &args[at + 2..], &long].concat();
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for(|| out.join("trainer/state.safetensors").exists());
    child
}

/// Returns the processes that `mpirun` started, in the order of their ranks.
fn ranks_of(child: &Child) -> Vec<String> {
    let found = Command::new("pgrep").args(["-P", &child.id().to_string()]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn send(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

#[test]
fn a_rank_that_dies_ends_all_and_the_checkpoint_is_whole() {
    let (folder, corpus) = corpus();
    let out = folder.path("out");
    let child = training(&corpus, &out);
    let began = Instant::now();
    send("-KILL", &ranks_of(&child)[1]);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && began.elapsed() < Duration::from_secs(30));
    let all = stderr(&output);
    assert!(all.contains("rank 1 (process") || all.contains("on signal 9"), "{all}");
    assert!(
        crate::common::cloze()
            .args(["convert", text(&out), text(&folder.path("whole"))])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_rank_that_hangs_ends_all() {
    let (folder, corpus) = corpus();
    let child = training(&corpus, &folder.path("out"));
    let began = Instant::now();
    let rank = ranks_of(&child)[1].clone();
    send("-STOP", &rank);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && began.elapsed() < Duration::from_secs(30));
    assert_contains(&stderr(&output), "rank 1 (process");
    assert_contains(&stderr(&output), "has not answered for 16 s; all ranks end");
}

#[test]
fn a_stopped_run_goes_on_with_another_number_of_ranks() {
    let (folder, corpus) = corpus();
    let out = folder.path("out");
    for whole in [false, true] {
        let child = training(&corpus, &out);
        let began = Instant::now();
        match whole {
            true => signal(&child, "-TERM"),
            false => send("-TERM", &ranks_of(&child)[1]),
        }
        let output = child.wait_with_output().unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "{}", stderr(&output));
        assert_contains(&stderr(&output), "the same command with --resume continues it");
        let done = recorded(&out, "loss").len();
        let steps = (done + 5).to_string();
        let more = ["--resume", "--steps", &steps];
        let args = pretraining(&corpus, &out, "8");
        let at = args.iter().position(|arg| *arg == "--steps").unwrap();
        let args = [&args[..at], &args[at + 2..], &more].concat();
        let output = alone(args);
        assert_eq!(json(&output)["steps"], done + 5);
        assert_contains(&stderr(&output), "the number of ranks was 2 and is 1 from here on");
        assert_eq!(recorded(&out, "loss").len(), done + 5);
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn ranks_that_disagree_are_refused_with_both_values() {
    let (folder, corpus) = corpus();
    let (a, b) = (folder.path("a"), folder.path("b"));
    let (first, mut second) = (pretraining(&corpus, &a, "4"), pretraining(&corpus, &b, "4"));
    let seed = second.iter().position(|arg| *arg == "5").unwrap();
    second[seed] = "6";
    let mut command = mpirun(1);
    command.args(first).args([":", "-n", "1", env!("CARGO_BIN_EXE_cloze"), "--threads", "1"]);
    let output = command.args(second).output().unwrap();
    let all = stderr(&output);
    assert!(!output.status.success());
    assert_contains(&all, "error: the ranks disagree about the run: rank 0 has ");
    assert_contains(&all, "seed: 5");
    assert_contains(&all, "seed: 6");
    assert!(!a.join("model.safetensors").exists());
}

#[test]
fn ranks_that_disagree_about_a_fine_tuning_are_refused() {
    let folder = Folder::new();
    folder.write("train.tsv", "sentence\tlabel\na warm day\t1\na cold day\t0\n");
    let args = |out: &str, seed: &str| {
        folder.finetune_into(out, "sst-2", &["--seed", seed, "--split", "0"])
    };
    let mut command = mpirun(1);
    command.args(args("a", "1")).args([
        ":",
        "-n",
        "1",
        env!("CARGO_BIN_EXE_cloze"),
        "--threads",
        "1",
    ]);
    let output = command.args(args("b", "2")).output().unwrap();
    assert!(!output.status.success());
    assert_contains(&stderr(&output), "error: the ranks disagree about the run: rank 0 has ");
    assert!(!folder.path("a").join("model.safetensors").exists());
}

#[test]
fn an_error_of_all_ranks_is_printed_once() {
    let (folder, corpus) = corpus();
    let out = folder.path("out");
    together(2, pretraining(&corpus, &out, "4"));
    let output = mpirun(2).args(pretraining(&corpus, &out, "4")).output().unwrap();
    let all = stderr(&output);
    assert_eq!(all.matches("already holds a run").count(), 1, "{all}");
    assert_eq!(output.status.code(), Some(2));
}

/// Ranks on GPUs need no MPI, but the first one's address.
#[test]
fn an_empty_address_counts_as_none() {
    let folder = Folder::new();
    let out = folder.path("out");
    let mut command = crate::common::cloze();
    command.env("RANK", "0").env("WORLD_SIZE", "2").env("MASTER_ADDR", "");
    command.args(["pretrain", "--backend", "cuda", "--out", text(&out)]);
    let message = stderr(&command.output().unwrap());
    assert_contains(&message, "error: the variable MASTER_ADDR is not set");
}
