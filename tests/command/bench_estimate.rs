//! `cloze bench estimate`: its arithmetic.

use serde_json::Value;

use crate::common::{assert_contains, fails, json, piped, stdout, succeeds};

fn estimate(more: &[&str]) -> Value {
    json(&succeeds([&["bench", "estimate", "--json"], more].concat()))
}

fn close(value: &Value, expected: f64) {
    let got = value.as_f64().unwrap();
    assert!((got / expected - 1.0).abs() < 1e-9, "{got}, {expected}");
}

#[test]
fn the_papers_runs_take_its_chips_and_days() {
    for (size, chips, hours) in [("base", 16, 1536.0), ("large", 64, 6144.0)] {
        let run = estimate(&["--size", size, "--paper", "--price-per-hour", "1.5"]);
        assert_eq!(run["devices"], chips);
        close(&run["tokens"], 42.5984e9);
        close(&run["days"], 4.0);
        close(&run["device_hours"], hours);
        close(&run["price"], 1.5 * hours);
        close(&run["paper"]["device_hours"], hours);
        close(&run["tokens_per_s_device"], 42.5984e9 / hours / 3600.0);
    }
    let table = succeeds(["bench", "estimate", "--paper", "--price-per-hour", "2"]);
    let table = stdout(&table);
    for line in [
        "run            900,000 steps of 256 × 128 tokens, then 100,000 steps of 256 × 512 tokens",
        "tokens         42.598 billion",
        "time           4.00 days",
        "price          3,072",
        "the paper      16 TPU chips for 4 days: 1,536 chip-hours, at 2 an hour 3,072",
    ] {
        assert!(table.lines().any(|known| known == line), "{line}\n{table}");
    }
}

#[test]
fn the_time_of_a_run_is_tokens_by_speed() {
    let own: Vec<&str> = "--steps 1000 --batch 8 --seq 64 --devices 4".split(' ').collect();
    let with = |more: &[&str]| estimate(&[&own, more].concat());
    let run = with(&["--tokens-per-s", "100", "--efficiency", "0.8"]);
    close(&run["tokens"], 512_000.0);
    close(&run["seconds"], 512_000.0 / (100.0 * 4.0 * 0.8));
    close(&run["device_hours"], 1600.0 * 4.0 / 3600.0);
    assert_eq!(run["price"], Value::Null);
    assert_eq!(run["paper"], Value::Null);
    assert_eq!(run["phases"].as_array().unwrap().len(), 1);

    let operations = run["flops"].as_f64().unwrap();
    close(&with(&["--tflops", "2"])["seconds"], operations / 8e12);

    // The measured speed comes through a pipe.
    let args = [&["bench", "estimate", "--json", "--from", "-"], &own[..]].concat();
    let output = piped(args, "{\"size\":\"base\",\"model_tflops\":2.0}\n");
    close(&json(&output)["seconds"], operations / 8e12);
}

#[test]
fn wrong_usage_is_reported() {
    let run = |more: &[&str]| fails([&["bench", "estimate"], more].concat(), 2);
    run(&[]);
    run(&["--days", "4", "--tflops", "1"]);
    assert!(run(&["--days", "0"]).contains("--days 0: a positive number"));
    assert!(run(&["--paper", "--size", "tiny"]).contains("of base and large, not of tiny"));
    assert!(run(&["--days", "1", "--seq", "513"]).contains("only 512 positions"));
    assert!(run(&["--days", "1", "--efficiency", "1.5"]).contains("--efficiency 1.5"));
    assert!(run(&["--days", "1", "--size", "huge"]).contains("unknown size"));
    let message = fails(["bench", "estimate", "--from", "/dev/null"], 1);
    assert_contains(&message, "/dev/null: holds no JSON object with model_tflops");
}
