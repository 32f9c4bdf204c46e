//! `cloze lessons capstone`: what it leaves in its folder, what its report says, that it continues after a stop, and
//! what it refuses.

use std::path::Path;

use crate::common::{
    Folder, assert_contains, fails, interrupted, json, read_json, stderr, stdout, succeeds, text,
    words,
};
use crate::opinions;

/// A model that trains in a moment.
const SMALL: &str = "{\"num_hidden_layers\":1,\"hidden_size\":16,\"num_attention_heads\":2,\"intermediate_size\":32,\
    \"vocab_size\":1}";

fn place() -> Folder {
    let folder = Folder::new();
    folder.write("small.json", SMALL);
    folder.write("train.tsv", &opinions(0..60, false)).write("dev.tsv", &opinions(60..100, false));
    folder
}

/// Returns the arguments of a capstone in the folder `out` with time enough, which `more` continues.
fn capstone(folder: &Folder, mine: &str, ablations: &[&str], more: &str) -> Vec<String> {
    let (out, small) = (folder.path("out"), folder.path("small.json"));
    let mut args = words(&format!("lessons capstone --out {} {more}", text(&out)));
    args.extend(["--pretrain".to_owned(), format!("--size {} {mine}", text(&small))]);
    let task = format!("sst-2 --data {} --epochs 2", text(folder.path("").as_path()));
    args.extend(["--finetune".to_owned(), task]);
    args.extend(ablations.iter().flat_map(|it| ["--ablation".to_owned(), (*it).to_owned()]));
    args
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_run_is_examined_alike_and_stands_in_the_report() {
    let folder = place();
    let ablations = ["--mask-prob 0.15", "without --size", "--no-nsp"];
    let more = "--minutes 20 --max-steps 30 --json";
    let output = succeeds(capstone(&folder, "--mask-prob 0.4 --seed 3", &ablations, more));
    let log = json(&output);
    assert_eq!(log, read_json(&folder.path("out/capstone.json")));
    let runs = log["runs"].as_array().unwrap();
    let titles: Vec<&str> = runs.iter().map(|run| run["title"].as_str().unwrap()).collect();
    let expected = [
        "yours",
        "the crate's defaults",
        "yours, --mask-prob 0.15",
        "yours without --size",
        "yours, --no-nsp",
    ];
    assert_eq!(titles, expected);
    let masked = &runs[0]["results"]["exam"]["masked"];
    assert!(masked.as_u64().unwrap() > 100);
    for run in runs {
        let (name, results) = (run["name"].as_str().unwrap(), &run["results"]);
        assert_eq!(run["steps"], 30, "{name}");
        assert_eq!(&results["exam"]["masked"], masked, "{name}");
        assert!(results["task"]["accuracy"].is_f64() && results["metric"] == "accuracy");
        let of_run = folder.path("out/runs").join(name);
        let trained = read_json(&of_run.join("config.json"));
        let is_small = !["crate", "ablation-2"].contains(&name);
        assert_eq!(trained["hidden_size"], if is_small { 16 } else { 128 }, "{name}");
        assert!(of_run.join("finetuned/model.safetensors").is_file());
    }
    assert!(runs[4]["results"]["exam"]["nsp_accuracy"].is_null());
    assert!(runs[0]["results"]["exam"]["nsp_accuracy"].is_f64());
    assert!(!folder.path("out/trial").exists());
    assert!(log["machine"][0][1].as_str().unwrap().len() > 1);

    let report = read(&folder.path("out/report.html"));
    for part in [
        "5 of 5 runs, finished; ",
        "<h2>Exam: masked tokens</h2>",
        "<h2>Exam: yours beside the others</h2>",
        "two standard errors are ",
        "<th scope=\"row\">yours, --no-nsp</th><td>not learned</td>",
        "<h2>Fine-tuned: accuracy</h2>",
        "Held-out loss during training",
        "30 steps in ",
        "Cloze's own small corpus",
    ] {
        assert_contains(&report, part);
    }
    assert!(!report.contains("http-equiv=\"refresh\""));

    let again = capstone(
        &folder,
        "--mask-prob 0.4 --seed 3",
        &ablations,
        "--resume --minutes 20 --max-steps 30",
    );
    let shown = stdout(&succeeds(again));
    assert_contains(&shown, "yours, --no-nsp: 30 steps; masked tokens ");
}

#[test]
fn a_stopped_capstone_continues_to_the_model_of_a_run_without_a_stop() {
    let folder = place();
    let with = |minutes: u32, rate: &str, more: &str| {
        let more = format!("--minutes {minutes} --max-steps 80{more}");
        capstone(&folder, &format!("--lr {rate}"), &["--mask-prob 0.3"], &more)
    };
    let args = |more: &str| with(20, "1e-3", more);
    let metrics = folder.path("out/runs/yours/trainer/metrics.jsonl");
    let output = interrupted(args(""), || metrics.is_file());
    assert_contains(&stderr(&output), "stopped: the same command with --resume continues");
    let log = read_json(&folder.path("out/capstone.json"));
    assert!(log["runs"][2]["results"].is_null());
    assert_contains(&read(&folder.path("out/report.html")), " of 3 runs, stopped; ");

    let message = fails(args(""), 2);
    assert_contains(&message, "already holds a capstone: give --resume");
    let message = fails(with(20, "2e-3", " --resume"), 2);
    assert_contains(&message, "can't be continued: the options of the runs was");
    let message = fails(with(21, "1e-3", " --resume"), 2);
    assert_contains(&message, "--minutes was 20 and is 21 now");

    let log = json(&succeeds(args(" --resume --json")));
    assert_eq!(log["runs"][2]["results"]["metric"], "accuracy");
    let steps = read(&metrics);
    let steps: Vec<serde_json::Value> =
        steps.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps = steps.iter().filter(|line| line["loss"].is_f64()).map(|line| &line["step"]);
    assert!(steps.eq((1..=80).collect::<Vec<u64>>().iter()));
    let (out, vocab, small) =
        (folder.path("direct"), folder.path("out/vocab.txt"), folder.path("small.json"));
    let direct = format!(
        "pretrain --out {} --vocab {} --size {} --lr 1e-3 --steps 80",
        text(&out),
        text(&vocab),
        text(&small)
    );
    succeeds(words(&direct));
    let model = |folder: &Path| std::fs::read(folder.join("model.safetensors")).unwrap();
    assert!(model(&out) == model(&folder.path("out/runs/yours")));
}

#[test]
fn bad_choices_are_refused_before_anything_is_trained() {
    let folder = place();
    for (mine, ablations, more, expected) in [
        ("--mask-prob 2", &[][..], "", "--pretrain: --mask-prob 2: a number from 0"),
        ("--steps 5", &[], "", "--steps can't be chosen: the capstone sets it"),
        ("", &["without --lr"], "", "--ablation \"without --lr\": --pretrain has no --lr"),
        ("", &["--lr fast"], "", "--ablation \"--lr fast\": invalid value 'fast'"),
        ("", &[], "--minutes 0", "--minutes 0: a positive number is needed"),
        ("", &[], "--max-steps 0", "--max-steps 0: at least 1 is needed"),
        ("", &[], "--minutes 0.001", "--minutes: each run has "),
    ] {
        let message = fails(capstone(&folder, mine, ablations, more), 2);
        assert_contains(&message, expected);
        assert!(!folder.path("out/runs").exists());
    }
    let missing = folder.path("none.txt");
    let more = format!("--text {}", text(&missing));
    assert_contains(&fails(capstone(&folder, "", &[], &more), 1), "none.txt");
}
