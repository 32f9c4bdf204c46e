//! `cloze bench --gpu-selftest` as a user runs it.

mod common;

use std::fs;
use std::process::Command;

use common::{cloze, fails, json, stderr, succeeds, text};

/// Whether there is a C++ compiler; says so where there is none.
fn compiler() -> bool {
    let found = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .arg("--version")
        .output()
        .is_ok();
    if !found {
        eprintln!("not tested: there is no C++ compiler");
    }
    found
}

#[test]
fn on_the_emulated_device_everything_passes_and_is_told() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let output = succeeds(&[
        "bench",
        "--gpu-selftest",
        "--emulate",
        "--short",
        "--json",
        "--out",
        text(&out),
    ]);
    let got = json(&output);
    assert_eq!((&got["emulated"], &got["ok"]), (&true.into(), &true.into()));
    assert_eq!((&got["failed"], &got["not_run"]), (&0.into(), &0.into()));
    assert!(got["seconds"].as_f64().unwrap() > 0.0);
    let sections = got["sections"].as_object().unwrap();
    let names: Vec<&str> = sections.keys().map(String::as_str).collect();
    assert_eq!(names, ["machine", "kernels", "products", "steps"]);
    assert_eq!(
        sections["machine"][0]["capability"],
        serde_json::json!([9, 0])
    );
    let kernels = sections["kernels"].as_array().unwrap();
    // In three element types each.
    assert!(kernels.len() >= 60 && kernels.len().is_multiple_of(3));
    for check in kernels {
        assert!(check["cases"].as_u64().unwrap() > 0, "{check}");
        let error = check["error"].as_f64().unwrap();
        assert!(error <= check["bound"].as_f64().unwrap(), "{check}");
    }
    let all: usize = sections.values().map(|s| s.as_array().unwrap().len()).sum();
    assert_eq!(got["passed"], all);
    // What is in the files is what was told.
    let events = fs::read_to_string(out.join("events.jsonl")).unwrap();
    assert_eq!(events.lines().count(), all);
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["sections"], got["sections"]);
    let told = stderr(&output);
    let lines = fs::read_to_string(out.join("report.txt")).unwrap();
    for line in told.lines().filter(|line| line.starts_with("ok ")) {
        assert!(lines.contains(line), "{line}");
    }
}

/// Where the time is over, what is left is told as not run, and that is no success.
#[test]
fn what_the_time_does_not_suffice_for_is_told() {
    if !compiler() {
        return;
    }
    let output = cloze()
        .args(["bench", "--gpu-selftest", "--emulate", "--short", "--json"])
        .args(["--only", "products", "--minutes", "0.0001"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let got = json(&output);
    assert_eq!((&got["ok"], &got["passed"]), (&false.into(), &0.into()));
    assert_eq!(got["not_run"], 12);
    let check = &got["sections"]["products"][0];
    assert_eq!(check["passed"], serde_json::Value::Null);
}

#[test]
fn without_a_gpu_one_sentence_says_what_is_missing() {
    let output = cloze()
        .args(["bench", "--gpu-selftest"])
        // Hides those that there are.
        .env("CUDA_VISIBLE_DEVICES", "-1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let told = stderr(&output);
    assert_eq!(told.trim_end().lines().count(), 1, "{told}");
    assert!(
        told.starts_with("error: ") && !told.contains("panicked"),
        "{told}"
    );
}

#[test]
fn wrong_usage_is_told() {
    fails(&["bench"], 2);
    fails(&["bench", "--emulate"], 2);
    fails(&["bench", "--gpu-selftest", "train"], 2);
    fails(&["bench", "--gpu-selftest", "--only", "everything"], 2);
    fails(
        &["bench", "--gpu-selftest", "--emulate", "--minutes", "-3"],
        2,
    );
}
