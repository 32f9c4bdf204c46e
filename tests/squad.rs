//! SQuAD: the official scores to the last digit, and answers found again from perfect logits.

mod common;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cloze::data::squad::{Misplaced, Squad, WindowOptions, Windows};
use cloze::eval::squad::{
    AnswerOptions, Answers, NoAnswer, Scores, answer, normalise, predictions, score, threshold,
    write,
};
use cloze::text::{Casing, WordPiece};
use common::{cloze, fails, json, succeeds, text};
use serde_json::{Value, json};

/// The folder of real data, or none: then the test that needs it passes without testing.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("CLOZE_TEST_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("CLOZE_TEST_DATA is not set: not tested");
    }
    folder
}

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/squad_scores.json")).unwrap()
}

fn write_file(folder: &Path, name: &str, value: &Value) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, value.to_string()).unwrap();
    path
}

#[test]
fn odd_answers_are_normalised_as_by_python() {
    let fixture = fixture();
    let texts = fixture["texts"].as_array().unwrap();
    assert!(texts.len() > 200);
    for pair in texts {
        let text = pair[0].as_str().unwrap();
        assert_eq!(normalise(text), pair[1].as_str().unwrap(), "{text:?}");
    }
}

#[test]
fn scores_equal_the_official_script_in_every_key_and_digit() {
    let folder = tempfile::tempdir().unwrap();
    for run in fixture()["runs"].as_array().unwrap() {
        let files = ["data", "predictions", "numbers"]
            .map(|key| write_file(folder.path(), &format!("{key}.json"), &run[key]));
        let [data, predictions, numbers] = files.each_ref().map(|path| text(path));
        let mut args = vec!["score", "squad", "--json", "--data", data];
        args.extend(["--predictions", predictions]);
        let plain = succeeds(&args);
        // As text: the order of the keys and every digit.
        assert_eq!(json(&plain).to_string(), run["scores"].to_string());
        let out = folder.path().join("out.json");
        args.extend(["--na-prob", numbers, "--na-prob-thresh", "1.0"]);
        args.extend(["--out-file", text(&out)]);
        let swept = json(&succeeds(&args));
        let expected = &run["scores_with_numbers"];
        assert_eq!(swept.to_string(), expected.to_string());
        let written: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        assert_eq!(&written, expected);
        args.retain(|arg| *arg != "--json");
        let table = String::from_utf8(succeeds(&args).stdout).unwrap();
        let all = format!("{:.2}", expected["f1"].as_f64().unwrap());
        assert!(table.lines().nth(1).unwrap().ends_with(&all), "{table}");
        assert!(table.contains("at best threshold"), "{table}");
    }
}

#[test]
fn published_predictions_score_what_is_published() {
    let Some(data) = data() else { return };
    let run = |version: &str, predictions: &str| {
        let set = data.join(format!("squad/dev-{version}.json.gz"));
        let predictions = data.join(format!("squad/predictions/{predictions}-dev.json"));
        let args = ["--data", text(&set), "--predictions", text(&predictions)];
        json(&succeeds(
            &[&["score", "squad", "--json"], &args[..]].concat(),
        ))
        .to_string()
    };
    assert_eq!(
        run("v1.1", "bert-ensemble-v1.1"),
        "{\"exact\":86.20624408703878,\"f1\":92.19557978351145,\"total\":10570,\
         \"HasAns_exact\":86.20624408703878,\"HasAns_f1\":92.19557978351145,\"HasAns_total\":10570}"
    );
    assert_eq!(
        run("v2.0", "bert-single-v2.0"),
        "{\"exact\":78.74168280973637,\"f1\":81.77528052374723,\"total\":11873,\
         \"HasAns_exact\":74.10593792172739,\"HasAns_f1\":80.18183293833508,\"HasAns_total\":5928,\
         \"NoAns_exact\":83.36417157275021,\"NoAns_f1\":83.36417157275021,\"NoAns_total\":5945}"
    );
}

#[test]
fn what_does_not_fit_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let run = &fixture()["runs"][1];
    let file = |name: &str, value: &Value| write_file(folder.path(), name, value);
    let data = file("data.json", &run["data"]);
    let scored = |predictions: &Path, numbers: Option<&Path>| {
        let mut args = vec!["score", "squad", "--json", "--data", text(&data)];
        args.extend(["--predictions", text(predictions)]);
        if let Some(numbers) = numbers {
            args.extend(["--na-prob", text(numbers)]);
        }
        args.into_iter().map(String::from).collect::<Vec<_>>()
    };
    let fails = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        fails(&args, 1)
    };
    // A question without a prediction scores 0 and stays in the total.
    let mut some = run["predictions"].clone();
    some.as_object_mut().unwrap().shift_remove("q7").unwrap();
    some["other"] = "x".into();
    let output = cloze()
        .args(scored(&file("some.json", &some), None))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("some.json: 1 of 60 questions have no prediction"),
        "{said}"
    );
    assert!(said.contains("\"q7\""), "{said}");
    assert!(said.contains("1 predictions for questions that"), "{said}");
    assert_eq!(json(&output)["total"], 60);
    let error = fails(&scored(&file("none.json", &json!({"x": "y"})), None));
    assert!(
        error.contains("none.json: not one of its question ids is in"),
        "{error}"
    );
    let error = fails(&scored(&file("list.json", &json!([1])), None));
    assert!(
        error.contains("list.json: invalid type: sequence"),
        "{error}"
    );
    let error = fails(&scored(&file("number.json", &json!({"q0": 1})), None));
    assert!(
        error.contains("number.json: q0: invalid type: integer"),
        "{error}"
    );
    let all = file("all.json", &run["predictions"]);
    let mut numbers = run["numbers"].clone();
    numbers.as_object_mut().unwrap().shift_remove("q3").unwrap();
    let error = fails(&scored(&all, Some(&file("na.json", &numbers))));
    assert!(
        error.contains("na.json: question \"q3\" has a prediction, but no"),
        "{error}"
    );
    numbers["q3"] = "high".into();
    let error = fails(&scored(&all, Some(&file("na.json", &numbers))));
    assert!(error.contains("question \"q3\" has \"high\""), "{error}");
    let error = fails(&scored(&folder.path().join("absent.json"), None));
    assert!(error.contains("absent.json"), "{error}");
}

/// Logits that are large at the answer of every question and nowhere else.
fn perfect(windows: &Windows) -> Vec<f32> {
    let mut logits = Vec::new();
    for window in 0..windows.len() {
        let row = logits.len() / 2;
        logits.resize(logits.len() + 2 * windows.tokens(window), 0.0);
        if let Some([start, end]) = windows.target(window) {
            logits[2 * (row + start as usize)] = 10.0;
            logits[2 * (row + end as usize) + 1] = 10.0;
        }
    }
    logits
}

/// Scores of the answers that perfect logits give.
fn found(squad: &Squad, wordpiece: &WordPiece, may_be_empty: bool) -> (Vec<Answers>, Scores) {
    let windows = Windows::cut(squad, wordpiece, WindowOptions::default()).unwrap();
    let options = AnswerOptions {
        may_be_empty,
        ..AnswerOptions::default()
    };
    let answers = answer(squad, &windows, &perfect(&windows), options).unwrap();
    let scores = score(squad, &predictions(&answers, 0.0), None).unwrap();
    (answers, scores)
}

#[test]
fn perfect_logits_find_the_answers_again() {
    let Some(data) = data() else { return };
    let vocab = |kind: &str, casing| {
        let path = data.join(format!("vocab/bert-base-{kind}-vocab.txt"));
        WordPiece::from_vocab_file(&path, casing).unwrap()
    };
    let uncased = vocab("uncased", Casing::Uncased);
    let cased = vocab("cased", Casing::Cased);
    for (file, wordpiece, least) in [
        ("squad/dev-v1.1", &uncased, 99.0),
        ("squad/dev-v1.1", &cased, 99.0),
        ("squad/dev-v2.0", &uncased, 99.0),
        ("squad/dev-v2.0", &cased, 99.0),
        ("xquad/xquad.en", &uncased, 99.0),
        ("xquad/xquad.zh", &cased, 80.0),
        ("xquad/xquad.zh", &uncased, 80.0),
        ("xquad/xquad.ru", &cased, 80.0),
        ("xquad/xquad.ar", &cased, 80.0),
        ("xquad/xquad.ar", &uncased, 80.0),
    ] {
        let path = data.join(format!("{file}.json.gz"));
        let squad = Squad::read(&path, Misplaced::Refuse).unwrap();
        let may_be_empty = file.ends_with("v2.0");
        let (answers, scores) = found(&squad, wordpiece, may_be_empty);
        let kind = wordpiece.casing();
        println!("{file} {kind:?}: {scores:?}");
        if std::env::var_os("SHOW").is_some() {
            let mut shown = 0;
            for (a, (p, q)) in answers.iter().zip(squad.questions()) {
                let gold = &q.answers.as_ref().unwrap();
                if let Some(gold) = gold.first()
                    && normalise(&gold.text) != normalise(a.text(0.0))
                    && shown < 25
                {
                    shown += 1;
                    let place = gold.place(&p.context).unwrap();
                    let around: String = p
                        .context
                        .chars()
                        .skip(place.start.saturating_sub(12))
                        .take(place.len() + 24)
                        .collect();
                    println!(
                        "   gold {:?} got {:?} in {around:?}",
                        gold.text,
                        a.text(0.0)
                    );
                }
            }
        }
        assert!(scores.all.exact > least, "{file} {kind:?}: {scores:?}");
    }
}
