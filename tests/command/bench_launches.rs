//! `cloze bench launches`.

use serde_json::{Value, json};

use crate::common::{Folder, assert_contains, fails, json, stdout, succeeds, text};

fn launches(more: &[&str]) -> Vec<String> {
    let args = ["bench", "launches", "--size", "tiny", "--batch", "2", "--seq", "16"];
    args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
}

#[test]
fn a_step_is_listed_beside_what_was_measured() {
    let got = json(&succeeds(launches(&["--json"])));
    assert_eq!(
        (&got["gpu"], &got["size"], &got["measured_seconds"]),
        (&"h200".into(), &"tiny".into(), &Value::Null)
    );
    let all = got["launches"].as_array().unwrap();
    let norm = all.iter().find(|launch| launch["what"] == "norm_forward").unwrap();
    // Two layers with two norms each: 32 rows of 128 numbers are read twice and written twice.
    assert_eq!(
        (&norm["count"], &norm["bytes"]),
        (&4.into(), &(4 * (4 * 2 * 32 * 128 + 2 * 4 * 32)).into())
    );
    let seconds: f64 = all.iter().map(|launch| launch["seconds"].as_f64().unwrap()).sum();
    assert!((seconds / got["seconds"].as_f64().unwrap() - 1.0).abs() < 1e-9);

    let folder = Folder::new();
    let step = json!({
        "size": "tiny", "batch": 2, "seq": 16, "seconds": 0.25,
        "launches": [{"what": "norm_forward", "seconds": 0.125}],
    });
    folder.write("report.json", &json!({"sections": {"speed": [step]}}).to_string());
    let report = folder.path("report.json");
    let measured = ["--measured", text(&report)];
    let got = json(&succeeds(launches(&[&measured[..], &["--json"]].concat())));
    assert_eq!(got["measured_seconds"], 0.25);
    let lines = stdout(&succeeds(launches(&measured)));
    assert_contains(&lines, "; measured 125.00 ms (");
    assert_contains(&lines, "tiny 2×16 on one h200: ");
    let other = [&measured[..], &["--dtype", "f16"]].concat();
    let error = fails(launches(&other), 2);
    assert_contains(&error, "report.json: it measured no step of tiny 2×16 in f16");
}

#[test]
fn an_unknown_gpu_is_refused() {
    let error = fails(launches(&["--gpu", "h900"]), 2);
    assert_contains(&error, "no GPU \"h900\" is known: expected a100, h100, h200");
}
