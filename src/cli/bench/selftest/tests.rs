//! The self-test on the emulated device, in worker processes.

use std::fs;

use super::*;

/// Holds a worker's section and the number of checks to skip.
pub const VARIABLE: &str = "CLOZE_TEST_SELFTEST_WORKER";
/// The arguments of the test harness that run a worker.
pub const WORKER: [&str; 4] =
    ["--exact", "cli::bench::selftest::tests::worker_process", "--quiet", "--nocapture"];

/// Returns the value of [`VARIABLE`].
pub fn variable(section: Section, skip: usize, wait: bool, args: &Args) -> String {
    let matching = args.matching.as_deref().unwrap_or_default();
    format!("{}|{skip}|{wait}|{matching}", section.name())
}

/// Runs a section for the tests below; does nothing on its own.
#[test]
fn worker_process() {
    let Ok(section) = std::env::var(VARIABLE) else {
        return;
    };
    let words: Vec<&str> = section.split('|').collect();
    let mut sections = Section::ALL.into_iter();
    let section = sections.find(|section| section.name() == words[0]).unwrap();
    let (skip, wait) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let matching = Some(words[3].to_owned());
    let args = Args { skip, wait, matching, ..args().unwrap() };
    worker::serve(section, &args).unwrap();
}

/// The options `--emulate --short`; None without a C++ compiler.
fn args() -> Option<Args> {
    if let Err(error) = crate::engine::cuda::open_emulated() {
        eprintln!("not tested: {error}");
        return None;
    }
    Some(Args {
        gpu_selftest: true,
        emulate: true,
        out: None,
        chart: None,
        json: true,
        minutes: None,
        only: Vec::new(),
        short: true,
        worker: None,
        skip: 0,
        wait: false,
        matching: None,
    })
}

#[test]
fn checks_are_found_by_their_names_and_run_launch_by_launch() {
    let Some(args) = args() else { return };
    let args = Args { matching: Some("norm_forward bf16".into()), ..args };
    let got = checked(&args).unwrap().object();
    assert_eq!(
        (&got["passed"], &got["failed"], &got["not_run"]),
        (&1.into(), &0.into(), &0.into())
    );
    assert_eq!(got["sections"]["kernels"][0]["check"], "norm_forward bf16");
    assert!(got["phases"]["kernels"].as_f64().unwrap() > 0.0);
    let line = launch_by_launch(&args, Section::Kernels, 0, None).unwrap();
    assert!(line.contains(" cases, 0 failed"), "{line}");
    let none = Args { matching: Some("no such check".into()), ..args };
    let error = checked(&none).err().unwrap().to_string();
    assert_eq!(error, "--match no such check: no check has a name with this text");
}

#[test]
fn on_the_emulated_device_everything_passes_and_is_reported() {
    let Some(args) = args() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let report = checked(&Args { out: Some(out.clone()), ..args });
    let got = report.unwrap().object();
    assert_eq!((&got["emulated"], &got["ok"]), (&true.into(), &true.into()));
    assert_eq!((&got["failed"], &got["not_run"]), (&0.into(), &0.into()));
    assert!(got["seconds"].as_f64().unwrap() > 0.0);
    let sections = got["sections"].as_object().unwrap();
    let names: Vec<&str> = sections.keys().map(String::as_str).collect();
    assert_eq!(names, ["machine", "kernels", "products", "steps"]);
    assert_eq!(sections["machine"][0]["capability"], serde_json::json!([9, 0]));
    let kernels = sections["kernels"].as_array().unwrap();
    // In three element types each, attention also in TF32.
    assert!(kernels.len() >= 60 && kernels.len() % 3 == 1);
    for check in kernels {
        assert!(check["cases"].as_u64().unwrap() > 0, "{check}");
        let error = check["error"].as_f64().unwrap();
        assert!(error <= check["bound"].as_f64().unwrap(), "{check}");
    }
    let all: usize = sections.values().map(|s| s.as_array().unwrap().len()).sum();
    assert_eq!(got["passed"], all);
    // The files hold the same.
    let events = fs::read_to_string(out.join("events.jsonl")).unwrap();
    assert_eq!(events.lines().count(), all);
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["sections"], got["sections"]);
    let lines = fs::read_to_string(out.join("report.txt")).unwrap();
    assert_eq!(lines.matches("ok   ").count(), all);
}

#[test]
fn checks_after_the_deadline_are_reported_as_not_run() {
    let Some(args) = args() else { return };
    let report = checked(&Args { minutes: Some(0.0001), only: vec![Section::Products], ..args });
    let report = report.unwrap();
    let got = report.object();
    assert_eq!((&got["ok"], &got["passed"]), (&false.into(), &0.into()));
    assert_eq!((&got["not_run"], report.unsatisfied()), (&12.into(), 12));
    let check = &got["sections"]["products"][0];
    assert_eq!(check["passed"], serde_json::Value::Null);
}
