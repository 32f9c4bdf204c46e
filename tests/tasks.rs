//! Every kind of task through the command: trained on rows that a rule decides, measured, predicted,
//! stopped and continued, and what bad data gets.

mod common;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{
    Folder, accept_changes, cloze, fails, json, real, sentence, stderr, succeeds, text, tiny,
};
use serde_json::Value;

impl Folder {
    /// The arguments of a fine-tuning run on this folder's files.
    fn arguments(&self, task: &str, more: &[&str]) -> Vec<String> {
        let out = self.path("out");
        let start = [
            "finetune",
            task,
            "--model",
            text(tiny()),
            "--data",
            text(self.0.path()),
        ];
        let rest = ["--out", text(&out), "--lr", "1e-3", "--json"];
        start
            .iter()
            .chain(&rest)
            .chain(more)
            .map(|&s| s.to_owned())
            .collect()
    }

    /// The same in place of what an earlier run left.
    fn anew(&self, task: &str, more: &[&str]) -> Vec<String> {
        let mut args = self.arguments(task, more);
        if !more.contains(&"--resume") {
            args.push("--overwrite".to_owned());
        }
        args
    }

    fn finetune(&self, task: &str, more: &[&str]) -> Value {
        let args = self.anew(task, more);
        json(&succeeds(
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
        ))
    }

    fn finetune_fails(&self, task: &str, more: &[&str], code: i32) -> String {
        let args = self.anew(task, more);
        fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), code)
    }

    /// What `cloze predict` prints for a file of the folder.
    fn predict(&self, task: &str, input: &str, more: &[&str]) -> String {
        let (out, input) = (self.path("out"), self.path(input));
        let mut args = vec![
            "predict",
            task,
            "--model",
            text(&out),
            "--input",
            text(&input),
        ];
        args.extend(more);
        String::from_utf8(succeeds(&args).stdout).unwrap()
    }

    fn evaluate(&self, task: &str, data: &str, more: &[&str]) -> Value {
        let (out, data) = (self.path("out"), self.path(data));
        let mut args = vec![
            "evaluate",
            task,
            "--model",
            text(&out),
            "--data",
            text(&data),
            "--json",
        ];
        args.extend(more);
        json(&succeeds(&args))["dev"].clone()
    }
}

/// What a run prints that reads `input` on standard input.
fn answered(args: &[&str], input: &str) -> String {
    let mut child = cloze()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let written = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && written.is_ok(), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

const GOOD: [&str; 4] = ["warm", "bright", "happy", "kind"];
const BAD: [&str; 4] = ["cold", "dark", "sad", "rude"];

/// Whether row `i` is about something good, and its sentence.
fn opinion(i: usize) -> (bool, String) {
    let good = i * 7 % 3 == 1;
    let word = if good { GOOD } else { BAD }[i % 4];
    let thing = ["day", "house", "friend", "garden", "road"][i % 5];
    (good, format!("it was a {word} {thing} in the end"))
}

#[test]
fn the_right_ending_is_chosen() {
    let folder = Folder::new();
    let endings = |i: usize| -> (usize, Vec<String>) {
        let right = i * 5 % 7 % 4;
        let ending = |j: usize| {
            let word = if j == right { GOOD } else { BAD }[(i + j) % 4];
            format!("was {word}.")
        };
        (right, (0..4).map(ending).collect())
    };
    let swag = |rows: std::ops::Range<usize>| {
        let mut csv = String::from(
            ",video-id,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n",
        );
        for i in rows {
            let (right, endings) = endings(i);
            let name = ["house", "road", "garden"][i % 3];
            writeln!(
                csv,
                "{i},v,\"We saw it, then left.\",The {name},gold,{},{right}",
                endings.join(",")
            )
            .unwrap();
        }
        csv
    };
    folder
        .write("train.csv", &swag(0..160))
        .write("val.csv", &swag(160..200));
    let trained = folder.finetune("swag", &["--epochs", "6", "--batch", "16"]);
    assert!(number(&trained["dev"]["accuracy"]) > 0.9, "{trained}");
    assert_eq!(folder.evaluate("swag", "val.csv", &[]), trained["dev"]);
    let config = std::fs::read_to_string(folder.path("out/config.json")).unwrap();
    assert!(config.contains("BertForMultipleChoice"));
    let lines = folder.predict("swag", "val.csv", &[]);
    let right = lines.lines().skip(1).enumerate().filter(|(i, line)| {
        let (right, _) = endings(160 + i);
        line.ends_with(&format!("\t{right}"))
    });
    let share = right.count() as f64 / 40.0;
    assert_eq!(share, number(&trained["dev"]["accuracy"]));

    let mut tsv = String::new();
    for i in 0..100 {
        let (right, endings) = endings(i);
        writeln!(
            tsv,
            "o\tWe saw it. The house\t{}\t{right}",
            endings.join("\t")
        )
        .unwrap();
    }
    folder.write("full_data.tsv", &tsv);
    let trained = folder.finetune("codah", &["--epochs", "1", "--fold", "5"]);
    assert_eq!(trained["rows"], 80);
    assert!(
        folder
            .finetune_fails("codah", &["--fold", "6"], 2)
            .contains("fold 6")
    );
}

/// Sentences in which one of a few names stands, two words long in every third.
fn tagged(rows: std::ops::Range<usize>) -> String {
    let mut columns = String::from("-DOCSTART- -X- O O\n\n");
    for i in rows {
        let name = ["Alice", "Robert", "Hannah"][i % 3];
        let place = ["York", "Rome"][i % 2];
        columns += &format!("{name} NNP I-NP I-PER\n");
        if i % 3 == 0 {
            columns += "Smith NNP I-NP I-PER\n";
        }
        for word in ["went", "on", "to"] {
            columns += &format!("{word} VB I-VP O\n");
        }
        columns += &format!("{place} NNP I-NP I-LOC\n. . O O\n\n");
    }
    columns
}

#[test]
fn entities_are_found_and_written_in_columns() {
    let folder = Folder::new();
    folder
        .write("eng.train", &tagged(0..120))
        .write("eng.testa", &tagged(120..150));
    folder.write("eng.testb", &tagged(7..20));
    let trained = folder.finetune("ner", &["--epochs", "4", "--batch", "8"]);
    assert!(number(&trained["dev"]["f1"]) > 0.9, "{trained}");
    assert!(
        number(&trained["test"]["types"]["LOC"]["f1"]) > 0.9,
        "{trained}"
    );
    // Long sentences go on in a second sequence: every word is still answered.
    let short = folder.evaluate("ner", "eng.testa", &["--max-len", "8"]);
    assert!(number(&short["accuracy"]) > 0.5, "{short}");
    let config: Value =
        serde_json::from_slice(&std::fs::read(folder.path("out/config.json")).unwrap()).unwrap();
    assert_eq!(config["id2label"]["3"], "B-PER");
    let columns = folder.predict("ner", "eng.testa", &[]);
    let first: Vec<&str> = columns.lines().next().unwrap().split(' ').collect();
    assert_eq!(first, ["Alice", "B-PER", "B-PER"]);
    let line = folder.predict("ner", "eng.testa", &["--json"]);
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(line["entities"][0]["text"], "Alice Smith");
    folder.write("words.txt", "Hannah\nwent\nto\nRome\n");
    let columns = folder.predict("ner", "words.txt", &[]);
    assert_eq!(columns.lines().count(), 5);
}

#[test]
fn your_own_data_is_learned_in_every_format() {
    let folder = Folder::new();
    let (mut csv, mut jsonl, mut tsv) = (
        String::from("label,text\n"),
        String::new(),
        String::from("a\tb\tscore\n"),
    );
    for i in 0..200 {
        let (good, sentence) = opinion(i);
        let label = if good { "fine" } else { "bad, alas" };
        writeln!(csv, "\"{label}\",\"{sentence}, \"\"truly\"\"\"").unwrap();
        let words: Vec<&str> = sentence.split(' ').collect();
        let tags: Vec<&str> = words
            .iter()
            .map(|w| if GOOD.contains(w) { "GOOD" } else { "-" })
            .collect();
        writeln!(
            jsonl,
            "{}",
            serde_json::json!({"words": words, "tags": tags})
        )
        .unwrap();
        let score = if good { 1.5 } else { -0.5 };
        writeln!(tsv, "{sentence}\tyes\t{score}").unwrap();
    }
    folder
        .write("own.csv", &csv)
        .write("own.jsonl", &jsonl)
        .write("own.tsv", &tsv);
    let file = |name: &str| text(&folder.path(name)).to_owned();
    let train = |name: &str, more: &[&str]| {
        let file = file(name);
        let mut all = vec![
            "--train",
            file.as_str(),
            "--dev",
            file.as_str(),
            "--epochs",
            "4",
            "--batch",
            "16",
        ];
        all.extend(more);
        folder.finetune("custom", &all)
    };
    let classes = train("own.csv", &["--columns", "text,label"]);
    assert!(number(&classes["dev"]["accuracy"]) > 0.95, "{classes}");
    let lines = folder.predict("custom", "own.csv", &["--columns", "text,label", "--json"]);
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let shares = &line["probabilities"];
    assert!((number(&shares["fine"]) + number(&shares["bad, alas"]) - 1.0).abs() < 1e-6);
    folder.write("new.csv", "text\nit was a warm day in the end\n");
    let answer = folder.predict("custom", "new.csv", &["--columns", "text,label"]);
    assert_eq!(answer, "index\tprediction\n0\tfine\n");
    // Answers keep the places of their rows where others are left out.
    folder.write(
        "new.csv",
        "text,more\n\"it was a warm day\n\"it was a dark road, again\",\nit was a kind friend\n",
    );
    let answer = folder.predict(
        "custom",
        "new.csv",
        &["--columns", "text,label", "--skip-bad"],
    );
    assert_eq!(answer, "index\tprediction\n1\tbad, alas\n2\tfine\n");
    // Standard input has no name that would tell its format.
    let out = file("out");
    for input in [
        "text,label\n\"it was a warm day in the end, truly\",what\n",
        "{\"text\": \"it was a warm day in the end, truly\"}\n",
        "text\tlabel\nit was a warm day in the end, truly\twhat\n",
    ] {
        let args = ["predict", "custom", "--columns", "text,label"];
        let answer = answered(
            &[&args[..], &["--model", &out, "--input", "-"]].concat(),
            input,
        );
        assert_eq!(answer, "index\tprediction\n0\tfine\n", "{input}");
    }

    let numbers = train("own.tsv", &["--columns", "a,b,score", "--kind", "number"]);
    assert!(number(&numbers["dev"]["pearson"]) > 0.9, "{numbers}");
    let tokens = train(
        "own.jsonl",
        &["--columns", "words,tags", "--kind", "tokens"],
    );
    assert!(number(&tokens["dev"]["accuracy"]) > 0.95, "{tokens}");

    let message = folder.finetune_fails(
        "custom",
        &["--train", &file("own.csv"), "--dev", &file("own.csv")],
        2,
    );
    assert!(message.contains("columns are needed"), "{message}");
    let mut many = String::from("text,label\n");
    (0..30).for_each(|i| writeln!(many, "a,{}", f64::from(i) / 3.0).unwrap());
    folder.write("many.csv", &many);
    let many = file("many.csv");
    let message = folder.finetune_fails(
        "custom",
        &["--train", &many, "--dev", &many, "--columns", "text,label"],
        2,
    );
    assert!(message.contains("30 different numbers"), "{message}");
    folder.write("one.tsv", "text\tlabel\na day\tfine\na night\n");
    let one = file("one.tsv");
    let columns = ["--columns", "text,label"];
    let message = folder.finetune_fails(
        "custom",
        &[&["--train", &one, "--dev", &one], &columns[..]].concat(),
        1,
    );
    assert!(message.contains("one.tsv:3: the row has 1"), "{message}");
    let message = folder.finetune_fails(
        "custom",
        &[
            &["--skip-bad", "--train", &one, "--dev", &one],
            &columns[..],
        ]
        .concat(),
        1,
    );
    assert!(
        message.contains("only the label fine") && message.contains("one.tsv:3: the row has 1"),
        "{message}"
    );
    let out = file("nothing");
    let start = ["finetune", "custom", "--out", &out, "--train", &one];
    let message = fails(&[&start[..], &columns].concat(), 2);
    assert!(message.contains("--dev FILE is needed"), "{message}");
}

fn sentiment(folder: &Folder) {
    let rows = |rows: std::ops::Range<usize>| {
        let mut tsv = String::from("sentence\tlabel\n");
        for i in rows {
            let (good, sentence) = opinion(i);
            writeln!(tsv, "{sentence}\t{}", u8::from(good)).unwrap();
        }
        tsv
    };
    folder
        .write("train.tsv", &rows(0..120))
        .write("dev.tsv", &rows(120..150));
}

#[test]
fn seeds_and_learning_rates_are_compared_and_the_best_model_kept() {
    let folder = Folder::new();
    sentiment(&folder);
    let args = folder.arguments("sst-2", &["--seeds", "3", "--epochs", "1", "--batch", "8"]);
    let trained = json(&succeeds(
        &args.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    let runs = trained["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &trained["seeds"]), (3, &3.into()));
    let scores: Vec<f64> = runs
        .iter()
        .map(|run| number(&run["dev"]["accuracy"]))
        .collect();
    let best = scores.iter().copied().fold(0.0, f64::max);
    assert_eq!(number(&trained["dev"]["accuracy"]), best);
    let mean = scores.iter().sum::<f64>() / 3.0;
    assert!((number(&trained["mean"]["accuracy"]) - mean).abs() < 1e-12);
    let squares: f64 = scores.iter().map(|x| (x - mean).powi(2)).sum();
    assert!((number(&trained["deviation"]["accuracy"]) - (squares / 2.0).sqrt()).abs() < 1e-12);
    assert_eq!(
        number(&folder.evaluate("sst-2", "dev.tsv", &[])["accuracy"]),
        best
    );

    let out = folder.path("search");
    let data = folder.0.path();
    let searched = json(&succeeds(&[
        "finetune",
        "sst-2",
        "--model",
        text(tiny()),
        "--data",
        text(data),
        "--out",
        text(&out),
        "--lr-search",
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--json",
    ]));
    let rates: Vec<f64> = searched["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| number(&r["lr"]))
        .collect();
    assert_eq!(rates[..4], [5e-5, 4e-5, 3e-5, 2e-5]);
    assert_eq!((rates.len(), &searched["seeds"]), (5, &2.into()));
}

#[test]
fn a_stopped_run_goes_on_as_if_it_had_not_been() {
    let folder = Folder::new();
    sentiment(&folder);
    let more = ["--epochs", "8", "--batch", "4", "--save-every", "1"];
    let whole = folder.finetune("sst-2", &more);
    let state = folder.path("out/trainer/state.safetensors");
    assert!(!state.exists(), "a run that is done needs no state");

    let mut child = cloze()
        .args(folder.anew("sst-2", &more))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !state.exists() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "no checkpoint"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    assert!(child.wait().unwrap().success());
    assert!(state.exists());
    let args = folder.arguments("sst-2", &more);
    let message = fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    assert!(message.contains("already holds a run"), "{message}");
    assert!(state.exists());
    let message = folder.finetune_fails("sst-2", &["--resume", "--batch", "4", "--epochs", "7"], 2);
    assert!(message.contains("--epochs was 8 and is 7 now"), "{message}");
    let mut resumed = vec!["--resume"];
    resumed.extend(more);
    let resumed = folder.finetune("sst-2", &resumed);
    assert_eq!(resumed["steps"], whole["steps"]);
    assert_eq!(resumed["loss_last"], whole["loss_last"]);
    assert_eq!(resumed["dev"], whole["dev"]);
}

#[test]
fn submissions_have_official_names_and_layouts() {
    let folder = Folder::new();
    let header = "index\tsentence1\tsentence2";
    let mut train = format!("{header}\tgold_label\n");
    for i in 0..24 {
        let label = ["neutral", "entailment", "contradiction"][i % 3];
        writeln!(train, "{i}\tA {i}.\tB.\t{label}").unwrap();
    }
    folder
        .write("train.tsv", &train)
        .write("dev_matched.tsv", &train)
        .write("dev_mismatched.tsv", &train);
    let trained = folder.finetune("mnli", &["--epochs", "1"]);
    assert!(trained["dev_mismatched"]["accuracy"].is_f64(), "{trained}");
    folder.write(
        "diagnostic.tsv",
        &format!("{header}\n7\tA.\tB.\n9\tB.\tA.\n"),
    );
    let submission = folder.path("submission");
    folder.predict("ax", "diagnostic.tsv", &["--out", text(&submission)]);
    let answers = std::fs::read_to_string(submission.join("AX.tsv")).unwrap();
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!((lines[0], lines.len()), ("index\tprediction", 3));
    assert!(
        lines[2].starts_with("9\t")
            && ["neutral", "entailment", "contradiction"].contains(&&lines[2][2..])
    );
    for (input, file) in [
        ("test_matched.tsv", "MNLI-m.tsv"),
        ("test_mismatched.tsv", "MNLI-mm.tsv"),
    ] {
        folder.write(input, &format!("{header}\n0\tA.\tB.\n"));
        folder.predict("mnli", input, &["--out", text(&submission)]);
        assert!(submission.join(file).exists(), "{file}");
    }
    // A model of others, whose classes stand in another order, is asked by its names.
    let path = folder.path("out/config.json");
    let named = std::fs::read_to_string(&path).unwrap();
    let before = folder.evaluate("mnli", "dev_matched.tsv", &[]);
    let turned = named
        .replace("\"0\": \"contradiction\"", "\"0\": \"ENTAILMENT\"")
        .replace("\"1\": \"entailment\"", "\"1\": \"Contradiction\"");
    assert_ne!(turned, named);
    std::fs::write(&path, turned).unwrap();
    accept_changes(&folder.path("out"));
    let after = folder.predict("ax", "diagnostic.tsv", &[]);
    let swapped = |name: &str| match name {
        "contradiction" => "entailment",
        "entailment" => "contradiction",
        other => panic!("{other}"),
    };
    for (then, now) in lines.iter().zip(after.lines()).skip(1) {
        let (then, now) = (&then[2..], &now[2..]);
        assert_eq!(
            now,
            if then == "neutral" {
                then
            } else {
                swapped(then)
            }
        );
    }
    assert!(before["accuracy"].is_f64());
    let out = folder.path("out");
    let message = fails(
        &["evaluate", "rte", "--model", text(&out), "--data", "x"],
        1,
    );
    assert!(
        message.contains("classes are ENTAILMENT, Contradiction, neutral, but those of rte are"),
        "{message}"
    );
    assert!(
        folder
            .finetune_fails("ax", &[], 2)
            .contains("nothing to train on")
    );
}

#[test]
fn bad_rows_and_bad_steps_stop_the_run_or_are_left_out() {
    let folder = Folder::new();
    sentiment(&folder);
    let bad =
        std::fs::read_to_string(folder.path("train.tsv")).unwrap() + "only text\nfine\tmaybe\n";
    folder.write("train.tsv", &bad);
    let message = folder.finetune_fails("sst-2", &[], 1);
    assert!(
        message.contains("train.tsv:122: the row has 1 columns"),
        "{message}"
    );
    let args = folder.arguments("sst-2", &["--skip-bad", "--epochs", "1"]);
    let output = succeeds(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("2 bad rows left out, the first: "), "{told}");
    assert_eq!(json(&output)["rows"], 120);

    let run = |more: &[&str]| {
        let mut args = vec![
            "finetune",
            "sst-2",
            "--model",
            text(tiny()),
            "--lr",
            "1e30",
            "--skip-bad",
        ];
        let (data, out) = (folder.0.path(), folder.path("diverged"));
        args.extend(["--data", text(data), "--out", text(&out), "--batch", "2"]);
        args.extend(more);
        fails(&args, 1)
    };
    let message = run(&[]);
    assert!(
        message.contains("is not a number: the run has diverged"),
        "{message}"
    );
    assert!(run(&["--bad-steps", "skip"]).contains("many times in a row"));
}

/// A comma or a tab in a text would make its rest the label.
#[test]
fn a_row_with_more_columns_than_the_header_is_refused_or_left_out() {
    let folder = Folder::new();
    let (mut csv, mut tsv) = ("text,label\n".to_owned(), "text\tlabel\n".to_owned());
    for i in 0..8 {
        let (good, text) = opinion(i);
        writeln!(csv, "\"{text}, I think\",{good}").unwrap();
        writeln!(tsv, "{text}\t{good}").unwrap();
    }
    folder.write("good.csv", &csv);
    folder.write("bad.csv", &format!("{csv}Hello, world,true\n"));
    folder.write("bad.tsv", &format!("{tsv}Hello\tworld\ttrue\n"));
    let path = |name: &str| text(&folder.path(name)).to_owned();
    let good = path("good.csv");
    let custom = ["custom", "--columns", "text,label"];
    let dev = ["--dev", &good, "--epochs", "1"];
    let train = |file: &str, more: &[&str]| {
        let args = [&custom[1..], &dev, &["--train", file], more].concat();
        folder.anew("custom", &args)
    };
    let run = |args: &[String]| cloze().args(args).output().unwrap();
    assert!(run(&train(&good, &[])).status.success());
    let model = path("out");
    for (file, advice) in [
        ("bad.csv", "a text with commas needs quotes"),
        ("bad.tsv", "a text must not hold tabs"),
    ] {
        let told = format!("{file}:10: the row has 3 columns, but the header has 2: {advice}");
        let input = path(file);
        let ask = |command: &str, option: &str| -> Vec<String> {
            let args = [
                &[command],
                &custom[..],
                &["--model", &model, option, &input],
            ];
            args.concat().into_iter().map(str::to_owned).collect()
        };
        for mut args in [
            train(&input, &[]),
            ask("evaluate", "--data"),
            ask("predict", "--input"),
        ] {
            let message = sentence(&run(&args), 1);
            assert!(message.ends_with(&told), "{args:?}: {message}");
            args.push("--skip-bad".into());
            let output = run(&args);
            let notes = stderr(&output);
            assert!(output.status.success(), "{args:?}: {notes}");
            assert!(notes.contains("one bad row left out: "), "{notes}");
            assert!(notes.contains(&told), "{notes}");
        }
    }
}

/// CODAH and CoNLL-2003 as they are, a small part of each: everything is read, and something learned.
#[test]
fn real_choices_and_entities_are_learned() {
    let Some((data, model)) = real() else { return };
    let out = tempfile::tempdir().unwrap();
    let finetune = |task: &str, folder: &Path, more: &[&str]| {
        let mut args = vec!["finetune", task, "--json", "--model", text(&model)];
        args.extend([
            "--data",
            text(folder),
            "--out",
            text(out.path()),
            "--overwrite",
        ]);
        args.extend(more);
        json(&succeeds(&args))
    };
    let ner = finetune(
        "ner",
        &data.join("conll2003"),
        &["--limit", "1500", "--epochs", "1", "--lr", "5e-4"],
    );
    assert_eq!(ner["rows"], 1500);
    assert!(number(&ner["dev"]["f1"]) > 0.6, "{ner}");
    // Chance is 0.25.
    let more = [
        "--limit", "600", "--epochs", "2", "--lr", "2e-4", "--batch", "16",
    ];
    let codah = finetune("codah", &data.join("codah"), &more);
    assert!(number(&codah["dev"]["accuracy"]) > 0.3, "{codah}");
}

/// Paragraphs that name something, in a place that varies; every fourth names nothing where questions
/// may have no answer.
fn asked(rows: std::ops::Range<usize>, may_be_empty: bool) -> String {
    let names = ["garden", "house", "road", "friend", "day"];
    let paragraphs: Vec<Value> = rows
        .map(|i| {
            let empty = may_be_empty && i % 4 == 0;
            let before = ["it was warm . ", "", "we went on . we sat . "][i % 3];
            let name = names[i * 7 % 5];
            let verb = if empty { "near the" } else { "called" };
            let context = format!("{before}the end was {verb} {name} and so we went on");
            let start = context.find(name).unwrap();
            let answers = if empty {
                serde_json::json!([])
            } else {
                serde_json::json!([{"text": name, "answer_start": start}])
            };
            let asked = serde_json::json!({
                "id": format!("q{i}"), "question": "what was it called ?", "answers": answers, "is_impossible": empty,
            });
            serde_json::json!({"context": context, "qas": [asked]})
        })
        .collect();
    serde_json::json!({"version": "2", "data": [{"title": "T", "paragraphs": paragraphs}]})
        .to_string()
}

#[test]
fn answers_are_found_in_paragraphs_and_predictions_score_the_same() {
    let folder = Folder::new();
    folder
        .write("train-v1.1.json", &asked(0..240, false))
        .write("dev-v1.1.json", &asked(240..300, false));
    let trained = folder.finetune("squad", &["--epochs", "6", "--batch", "16"]);
    assert!(number(&trained["dev"]["exact"]) > 90.0, "{trained}");
    assert_eq!(
        folder.evaluate("squad", "dev-v1.1.json", &[]),
        trained["dev"]
    );
    let out = folder.path("answers");
    folder.predict("squad", "dev-v1.1.json", &["--out", text(&out)]);
    let (data, predictions) = (folder.path("dev-v1.1.json"), out.join("predictions.json"));
    let scored = json(&succeeds(&[
        "score",
        "squad",
        "--data",
        text(&data),
        "--predictions",
        text(&predictions),
        "--json",
    ]));
    assert_eq!(scored["f1"], trained["dev"]["f1"]);
    assert!(out.join("nbest_predictions.json").exists() && !out.join("null_odds.json").exists());

    folder
        .write("train-v2.0.json", &asked(0..240, true))
        .write("dev-v2.0.json", &asked(240..300, true));
    let message = folder.finetune_fails(
        "squad",
        &["--train", text(&folder.path("train-v2.0.json"))],
        1,
    );
    assert!(
        message.contains("question \"q0\" has no answer: this is a file for squad2"),
        "{message}"
    );
    let trained = folder.finetune("squad2", &["--epochs", "6", "--batch", "16"]);
    assert!(number(&trained["dev"]["exact"]) > 90.0, "{trained}");
    assert!(number(&trained["dev"]["NoAns_exact"]) > 80.0, "{trained}");
    // The threshold is chosen once and kept with the model.
    let config: Value =
        serde_json::from_slice(&std::fs::read(folder.path("out/config.json")).unwrap()).unwrap();
    assert_eq!(
        config["null_score_threshold"],
        trained["dev"]["null_score_threshold"]
    );
    assert_eq!(
        folder.evaluate("squad2", "dev-v2.0.json", &[]),
        trained["dev"]
    );
    let silent = folder.evaluate("squad2", "dev-v2.0.json", &["--null-threshold=-1e9"]);
    assert_eq!(
        (&silent["NoAns_exact"], &silent["HasAns_exact"]),
        (&100.0.into(), &0.0.into())
    );
    // A model of SQuAD 2.0 answers as one of 1.1 too, from standard input as well.
    let (out, file) = (folder.path("out"), folder.path("dev-v2.0.json"));
    let asked = std::fs::read_to_string(file).unwrap();
    let args = ["predict", "squad", "--model", text(&out), "--input", "-"];
    let answers: Value = serde_json::from_str(&answered(&args, &asked)).unwrap();
    assert!(answers.as_object().unwrap().values().all(|text| text != ""));
    assert_eq!(answers.as_object().unwrap().len(), 60);
    let line = folder.predict("squad2", "dev-v2.0.json", &["--json"]);
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert!(
        line["null_odds"].is_f64() && line["probability"].is_f64(),
        "{line}"
    );
}
