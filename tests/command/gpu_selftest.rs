//! `cloze bench --gpu-selftest` on the emulated device and without a GPU.

use std::fs;
use std::process::Command;

use crate::common::{cloze, fails, json, read_json, stderr, succeeds, text, words};

/// Returns whether there is a C++ compiler, and prints if there is none.
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
fn on_the_emulated_device_everything_passes_and_is_reported() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let line = "bench --gpu-selftest --emulate --short --json --out";
    let output = succeeds(words(&format!("{line} {}", text(&out))));
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
    // Each has three element types.
    assert!(kernels.len() >= 60 && kernels.len().is_multiple_of(3));
    for check in kernels {
        assert!(check["cases"].as_u64().unwrap() > 0, "{check}");
        let error = check["error"].as_f64().unwrap();
        assert!(error <= check["bound"].as_f64().unwrap(), "{check}");
    }
    let all: usize = sections.values().map(|s| s.as_array().unwrap().len()).sum();
    assert_eq!(got["passed"], all);
    // The files hold what was printed.
    let events = fs::read_to_string(out.join("events.jsonl")).unwrap();
    assert_eq!(events.lines().count(), all);
    let report = read_json(&out.join("report.json"));
    assert_eq!(report["sections"], got["sections"]);
    let message = stderr(&output);
    let lines = fs::read_to_string(out.join("report.txt")).unwrap();
    for line in message.lines().filter(|line| line.starts_with("ok ")) {
        assert!(lines.contains(line), "{line}");
    }
}

/// Checks that did not run count as failure.
#[test]
fn checks_beyond_the_time_limit_are_reported_as_not_run() {
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
fn without_a_gpu_one_sentence_names_what_is_missing() {
    let output = cloze()
        .args(["bench", "--gpu-selftest"])
        // Hides any GPU of this machine.
        .env("CUDA_VISIBLE_DEVICES", "-1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let message = stderr(&output);
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(
        message.starts_with("error: ") && !message.contains("panicked"),
        "{message}"
    );
}

#[test]
fn wrong_usage_is_refused() {
    for more in [
        "",
        " --emulate",
        " --gpu-selftest train",
        " --gpu-selftest --only everything",
        " --gpu-selftest --emulate --minutes -3",
    ] {
        fails(words(&format!("bench{more}")), 2);
    }
}
