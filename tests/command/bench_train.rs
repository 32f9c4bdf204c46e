//! `cloze bench train` and `cloze bench infer`.

use crate::common::{assert_contains, fails, json, succeeds, text};

const SMALL: [&str; 10] =
    ["bench", "train", "--size", "tiny", "--batch", "2", "--seq", "32", "--steps", "1"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn the_measurement_has_every_key_of_its_contract() {
    for dtype in ["f32", "bf16"] {
        let got = json(&succeeds(with(&["--dtype", dtype, "--json"])));
        assert_eq!((&got["size"], &got["dtype"]), (&"tiny".into(), &dtype.into()));
        assert_eq!((&got["batch"], &got["seq"]), (&2.into(), &32.into()));
        assert_eq!(got["backend"], "cpu");
        let number = |key: &str| got[key].as_f64().unwrap();
        assert!(number("tokens_per_s") > 0.0 && number("peak_bytes") > 1e6, "{got}");
        assert!((0.0..1.5).contains(&number("mfu")), "{got}");
        // Six for every weight of two layers, and those of attention over 32 positions.
        let flops = 6.0 * 2.0 * 12.0 * 128.0 * 128.0 + 12.0 * 2.0 * 128.0 * 32.0;
        let model = number("tokens_per_s") * flops / 1e12;
        assert!((number("model_tflops") / model - 1.0).abs() < 1e-6, "{got}");
    }
    let reference = json(&succeeds(with(&["--backend", "reference", "--json"])));
    assert_eq!(reference["backend"], "reference");
}

#[test]
fn a_forward_pass_has_a_third_of_a_steps_operations() {
    let mut args = with(&["--json"]);
    args[1] = "infer";
    let got = json(&succeeds(&args));
    let number = |key: &str| got[key].as_f64().unwrap();
    let flops = 6.0 * 2.0 * 12.0 * 128.0 * 128.0 + 12.0 * 2.0 * 128.0 * 32.0;
    let model = number("tokens_per_s") * flops / 3.0 / 1e12;
    assert!((number("model_tflops") / model - 1.0).abs() < 1e-6, "{got}");
    args.extend(["--dtype", "int8"]);
    let int8 = json(&succeeds(&args));
    assert!(int8["dtype"] == "int8" && int8["mfu"].as_f64().unwrap() > 0.0, "{int8}");
    args.push("--find-batch");
    args.retain(|arg| !["--batch", "2"].contains(arg));
    assert!(fails(&args, 2).contains("bench train"));
}

#[test]
fn each_batch_size_has_a_line_and_a_bar() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("speed.svg");
    let mut args = with(&["--json", "--chart", text(&chart)]);
    args[5] = "1,3";
    let output = succeeds(&args);
    let lines: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let batches: Vec<_> = lines.iter().map(|line| line["batch"].as_u64()).collect();
    assert_eq!(batches, [Some(1), Some(3)]);
    let chart = std::fs::read_to_string(&chart).unwrap();
    assert!(chart.contains("batch 1") && chart.contains("batch 3"));
}

#[test]
fn the_reference_has_no_search_for_the_largest_batch() {
    let asked = ["bench", "train", "--size", "tiny", "--find-batch"];
    let message = fails([&asked[..], &["--backend", "reference"]].concat(), 2);
    assert_contains(&message, "give a --batch");
}

#[cfg(unix)]
#[test]
fn another_program_gets_the_same_work_and_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let peer = folder.path().join("peer.sh");
    let seen = folder.path().join("seen");
    let script = format!(
        "echo \"$@\" >> {}\necho starting\necho '{{\"tokens_per_s\": 0.5, \"peak_GiB\": 2}}'\n",
        text(&seen)
    );
    std::fs::write(&peer, script).unwrap();
    let command = format!("sh {}", text(&peer));
    let chart = folder.path().join("speed.svg");
    let more = ["--peer", &command, "--rounds", "2", "--json"];
    let more = [&more[..], &["--chart", text(&chart)]].concat();
    let got = json(&succeeds(with(&more)));
    let chart = std::fs::read_to_string(&chart).unwrap();
    assert_contains(&chart, "\npeer\n");
    let fill = |index: usize| {
        let colour = cloze::view::style::series(index);
        format!("fill=\"#{:02X}{:02X}{:02X}\"", colour.0, colour.1, colour.2)
    };
    assert!((0..2).all(|index| chart.matches(&fill(index)).count() == 1));
    assert_eq!(got["peer_tokens_per_s"], 0.5);
    assert_eq!(got["peer_peak_bytes"], 2u64 << 30);
    let ratio = got["ratio"].as_f64().unwrap() / got["tokens_per_s"].as_f64().unwrap();
    assert!((ratio - 2.0).abs() < 1e-9, "{got}");
    let seen = std::fs::read_to_string(&seen).unwrap();
    assert_eq!(seen.lines().count(), 2);
    assert!(seen.contains("--size tiny --dtype f32 --batch 2 --seq 32 --threads"));

    std::fs::write(&peer, "echo 'no module named torch' >&2\nexit 3\n").unwrap();
    let message = fails(with(&["--peer", &command]), 1);
    assert_contains(&message, "failed: no module named torch");
    std::fs::write(&peer, "echo done\n").unwrap();
    let message = fails(with(&["--peer", &command]), 1);
    assert_contains(&message, "no JSON object with tokens_per_s");
}

#[test]
fn impossible_sizes_are_refused() {
    let fails = |args: &[&str]| fails([&["bench", "train", "--size", "tiny"], args].concat(), 2);
    assert!(fails(&["--seq", "513"]).contains("--seq 513: the model has only 512 positions"));
    assert!(fails(&["--batch", "0"]).contains("--batch 0: at least 1"));
    let message = fails(&["--batch", "100000000", "--seq", "512"]);
    assert_contains(&message, "are free");
    assert_contains(&message, "--batch");
}

#[test]
fn the_kernels_of_a_step_do_its_work_within_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("roofline.svg");
    let args = with(&["--steps", "3", "--json", "--roofline", text(&chart)]);
    let got = json(&succeeds(args[..8].iter().chain(&args[10..])));
    let step = &got["roofline"];
    let kernels = step["kernels"].as_array().unwrap();
    let of = |name: &str, key: &str| {
        let found = kernels.iter().find(|kernel| kernel["kernel"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {got}"))[key].as_f64().unwrap()
    };
    let (rows, width, layers) = (64.0, 128.0, 2.0);
    // The weights of the layers, and those of the head for start and end.
    let weights = layers * 12.0 * width * width + 2.0 * width;
    for name in ["forward", "gradients of inputs", "gradients of weights"] {
        assert_eq!(of(&format!("products, {name}"), "flops"), 2.0 * rows * weights, "{name}");
        assert_eq!(of(&format!("products, {name}"), "calls"), 4.0 * layers + 1.0);
    }
    let pairs = 2.0 * 32.0 * 32.0;
    assert_eq!(of("attention, forward", "flops"), layers * 2.0 * 2.0 * pairs * width);
    assert_eq!(of("attention, backward", "flops"), layers * 5.0 * 2.0 * pairs * width);
    assert_eq!(of("GELU, forward", "bytes"), layers * rows * 4.0 * width * 2.0 * 4.0);
    assert_eq!(of("optimizer", "calls"), 1.0);
    let timed: f64 = kernels.iter().map(|kernel| kernel["seconds"].as_f64().unwrap()).sum();
    let (whole, between) = (step["step_seconds"].as_f64(), step["between_seconds"].as_f64());
    assert!(timed > 0.0 && between.unwrap() > 0.0, "{got}");
    assert!((timed + between.unwrap() - whole.unwrap()).abs() < 1e-9, "{got}");
    let chart = std::fs::read_to_string(&chart).unwrap();
    assert!(["products", "attention", "others"].iter().all(|name| chart.contains(name)));

    let table = succeeds(with(&["--roofline", text(&folder.path().join("again.svg"))]));
    let table = String::from_utf8(table.stdout).unwrap();
    assert_contains(&table, "products, gradients of weights");
    assert_contains(&table, "between the kernels");
}

#[test]
fn kernels_are_timed_in_training_steps_of_one_batch_on_the_cpu() {
    let refused = |args: Vec<&str>| fails([&args[..], &["--roofline", "r.svg"]].concat(), 2);
    assert_contains(&refused(with(&["--backend", "reference"])), "--backend cpu");
    let mut args = with(&[]);
    args[5] = "1,3";
    assert_contains(&refused(args), "give --batch one number");
    let mut args = with(&[]);
    args[1] = "infer";
    assert_contains(&refused(args), "bench train");
    assert_contains(&fails(with(&["--roofline", "r.pdf"]), 1), ".svg");
}
