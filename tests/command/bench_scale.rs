//! `cloze bench scale`: what it prints, and its arithmetic with given times.

use serde_json::Value;

use crate::common::{fails, json, stdout, succeeds};

fn close(value: &Value, expected: f64) {
    let got = value.as_f64().unwrap();
    assert!((got / expected - 1.0).abs() < 1e-9, "{got}, {expected}");
}

/// By hand: base has 440.425712 MB of gradients in f32. Two GPUs send half of them twice, at 100 GB/s.
#[test]
fn a_given_step_grows_by_what_is_sent_after_it() {
    let args = "bench scale --json --model base --seq 128 --batch 16 --step-ms 40 --gpus 2,16 --host-gpus 2 --inside 100GB/s --link 200Gb/s --links 2 --latency 0 --no-overlap";
    let run = json(&succeeds(args.split(' ')));
    close(&run["gradient_bytes"], 440_425_712.0);
    assert_eq!(run["measured_step"], true);
    let [two, sixteen] = run["points"].as_array().unwrap().as_slice() else { panic!("{run}") };
    close(&two["exposed_ms"], 4.40425712);
    close(&two["step_ms"], 44.40425712);
    close(&two["tokens_per_s"], 2.0 * 16.0 * 128.0 / 44.40425712e-3);
    close(&two["efficiency"], 40.0 / 44.40425712);
    // Eight hosts send 7/8 twice, at 50 GB/s.
    close(&sixteen["exposed_ms"], 4.40425712 + 440.425712 * 1.75 / 50.0);
    let overlapping = args.replace(" --no-overlap", "");
    let hidden = json(&succeeds(overlapping.split(' ')));
    let exposed = |run: &Value| run["points"][0]["exposed_ms"].as_f64().unwrap();
    // Left are the last layer that is finished and the embeddings: 7,087,872 and 23,837,184 numbers.
    close(&hidden["points"][0]["exposed_ms"], (7_087_872.0 + 23_837_184.0) * 4.0 / 100e9 * 1e3);
    assert!(exposed(&hidden) < exposed(&run));
}

#[test]
fn without_a_measured_step_the_output_says_that_it_is_an_estimate() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("scale.svg");
    let args = ["bench", "scale", "--gpus", "8..32", "--chart", chart.to_str().unwrap()];
    let table = stdout(&succeeds(args));
    for title in ["base, 32 × 128", "base, 32 × 512", "large, 32 × 128", "large, 32 × 512"] {
        let title = format!("{title} tokens a GPU (computed, not measured)");
        assert!(table.contains(&title), "{title}\n{table}");
    }
    assert_eq!(table.matches(" ms, an estimate: ").count(), 4, "{table}");
    assert_eq!(table.matches("between hosts     50 GB/s").count(), 1, "{table}");
    assert!(std::fs::read_to_string(chart).unwrap().contains("large, 32 × 512 tokens a GPU"));
}

#[test]
fn wrong_usage_is_reported() {
    let run = |more: &str| fails(format!("bench scale {more}").split(' '), 2);
    run("--link 400");
    run("--gpus 8..4");
    assert!(run("--gpus 12").contains("--gpus 12: a multiple of the 8 GPUs of a host is needed"));
    assert!(run("--step-ms 40").contains("one --model and one --seq"));
    assert!(run("--model tiny").contains("give --step-ms or --tflops"));
    assert!(run("--seq 513").contains("only 512 positions"));
    assert!(run("--latency=-1").contains("--latency"));
}
