//! SQuAD: the official scores to the last digit, and the answers that perfect logits give.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::common::{assert_contains, cloze, fails, json, real_data, stdout, succeeds, text};
use cloze::data::squad::{Misplaced, Squad, WindowOptions, Windows};
use cloze::eval::squad::{
    AnswerOptions, Answers, Scores, answer, files, normalise, predictions, score, threshold,
};
use cloze::text::{Casing, WordPiece};
use serde_json::{Value, json};

fn scores() -> Value {
    serde_json::from_str(include_str!("../fixtures/squad_scores.json")).unwrap()
}

fn write_file(folder: &Path, name: &str, value: &Value) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, value.to_string()).unwrap();
    path
}

/// Returns what a run printed, without the line end.
fn printed(output: &std::process::Output) -> String {
    stdout(output).trim_end().to_owned()
}

/// Writes the official files.
fn save(folder: &Path, answers: &[Answers], threshold: f64) {
    for (name, text) in files(answers, threshold) {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn odd_answers_are_normalised_as_in_python() {
    let fixture = scores();
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
    for run in scores()["runs"].as_array().unwrap() {
        let files = ["data", "predictions", "numbers"]
            .map(|key| write_file(folder.path(), &format!("{key}.json"), &run[key]));
        let [data, predictions, numbers] = files.each_ref().map(|path| text(path));
        let mut args = vec!["score", "squad", "--json", "--data", data];
        args.extend(["--predictions", predictions]);
        // Compared as text: the order of the keys and every digit.
        assert_eq!(printed(&succeeds(&args)), run["scores"].to_string());
        let out = folder.path().join("out.json");
        args.extend(["--na-prob", numbers, "--na-prob-thresh", "1.0"]);
        let message = fails([&args[..], &["--out-file", numbers]].concat(), 2);
        assert_contains(&message, "numbers.json: is a file of --na-prob");
        args.extend(["--out-file", text(&out)]);
        let expected = &run["scores_with_numbers"];
        assert_eq!(printed(&succeeds(&args)), expected.to_string());
        let written: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        assert_eq!(&written, expected);
        args.retain(|arg| *arg != "--json");
        let table = printed(&succeeds(&args));
        let all = format!("{:.2}", expected["f1"].as_f64().unwrap());
        assert!(table.lines().nth(1).unwrap().ends_with(&all), "{table}");
        assert_contains(&table, "at best threshold");
    }
}

#[test]
fn published_predictions_score_what_is_published() {
    let Some(data) = real_data() else { return };
    let run = |version: &str, predictions: &str| {
        let set = data.join(format!("squad/dev-{version}.json.gz"));
        let predictions = data.join(format!("squad/predictions/{predictions}-dev.json"));
        let args = ["--data", text(&set), "--predictions", text(&predictions)];
        printed(&succeeds([&["score", "squad", "--json"], &args[..]].concat()))
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

/// Scored by hand with evaluate-v1.1.py and evaluate-v2.0.py: the second takes an answer of articles and punctuation
/// for no answer.
#[test]
fn an_answer_that_normalises_to_nothing_counts_as_in_the_script_of_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let file = |impossible: bool| {
        let answer = |text: &str| json!({"text": text, "answer_start": 0});
        let questions = json!([
            {"id": "a", "question": "?", "answers": [answer("."), answer("x y")]},
            {"id": "b", "question": "?", "answers": [answer("x")]},
            {"id": "c", "question": "?", "answers": if impossible { json!([]) } else { json!([answer("x")]) },
             "is_impossible": impossible},
        ]);
        let data = json!({"version": "?", "data": [{"title": "t", "paragraphs": [{"context": ". x y", "qas": questions}]}]});
        write_file(folder.path(), &format!("{impossible}.json"), &data)
    };
    let predicted = json!({"a": "the", "b": "x", "c": "x"});
    let predictions = write_file(folder.path(), "predictions.json", &predicted);
    let scores = |impossible| {
        let data = file(impossible);
        let args = ["score", "squad", "--json", "--data", text(&data)];
        let of = ["--predictions", text(&predictions)];
        json(&succeeds([&args[..], &of].concat()))
    };
    let (older, newer) = (scores(false), scores(true));
    assert_eq!((&older["exact"], older["f1"].as_f64()), (&json!(100.0), Some(200.0 / 3.0)));
    assert_eq!(
        (newer["exact"].as_f64(), newer["f1"].as_f64()),
        (Some(100.0 / 3.0), Some(100.0 / 3.0))
    );
}

#[test]
fn a_prediction_is_empty_only_above_the_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let answers = json!([{"text": "x", "answer_start": 0}]);
    let questions = json!([{"id": "a", "question": "?", "answers": answers}]);
    let data =
        json!({"data": [{"title": "t", "paragraphs": [{"context": "x", "qas": questions}]}]});
    let file = |name: &str, value: Value| write_file(folder.path(), name, &value);
    let [data, predictions, numbers] = [
        file("data.json", data),
        file("predictions.json", json!({"a": "x"})),
        file("na.json", json!({"a": 0.5})),
    ];
    for (threshold, exact) in [("0.49", 0.0), ("0.5", 100.0), ("0.51", 100.0)] {
        let args = ["score", "squad", "--json", "--data", text(&data), "--predictions"];
        let more = [text(&predictions), "--na-prob", text(&numbers), "--na-prob-thresh", threshold];
        let scores = json(&succeeds([&args[..], &more].concat()));
        assert_eq!(scores["exact"].as_f64(), Some(exact), "{threshold}");
    }
}

#[test]
fn files_that_do_not_match_are_reported_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let run = &scores()["runs"][1];
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
    // A question without a prediction scores 0 and counts in the total.
    let mut some = run["predictions"].clone();
    some.as_object_mut().unwrap().shift_remove("q7").unwrap();
    some["other"] = "x".into();
    let output = cloze().args(scored(&file("some.json", &some), None)).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_contains(&message, "some.json: 1 of 60 questions have no prediction");
    assert_contains(&message, "\"q7\"");
    assert_contains(&message, "1 predictions for questions that");
    assert_eq!(json(&output)["total"], 60);
    let error = fails(&scored(&file("none.json", &json!({"x": "y"})), None));
    assert_contains(&error, "none.json: not one of its question ids is in");
    let error = fails(&scored(&file("list.json", &json!([1])), None));
    assert_contains(&error, "list.json: invalid type: sequence");
    let error = fails(&scored(&file("number.json", &json!({"q0": 1})), None));
    assert_contains(&error, "number.json: q0: invalid type: integer");
    let all = file("all.json", &run["predictions"]);
    let mut numbers = run["numbers"].clone();
    numbers.as_object_mut().unwrap().shift_remove("q3").unwrap();
    let error = fails(&scored(&all, Some(&file("na.json", &numbers))));
    assert_contains(&error, "na.json: question \"q3\" has a prediction, but no no-answer score");
    numbers["q3"] = "high".into();
    let error = fails(&scored(&all, Some(&file("na.json", &numbers))));
    assert_contains(&error, "question \"q3\" has \"high\"");
    let error = fails(&scored(&folder.path().join("absent.json"), None));
    assert_contains(&error, "absent.json");
}

/// Returns logits that are large only at the answers.
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

/// Scores the answers of up to `max_answer` pieces that perfect logits give.
fn found(squad: &Squad, windows: &Windows, may_be_empty: bool, max_answer: usize) -> Scores {
    let options = AnswerOptions { may_be_empty, max_answer, ..AnswerOptions::default() };
    let answers = answer(squad, windows, &perfect(windows), options).unwrap();
    score(squad, &predictions(&answers, 0.0), None).unwrap()
}

/// Two kinds of answers are lost: those of more than 30 pieces (many if the vocabulary has no words of the language)
/// and those inside a piece, such as "8" in "18" (mostly because their positions were guessed when this copy of the
/// data was rebuilt).
#[test]
fn perfect_logits_find_the_answers_again() {
    let Some(data) = real_data() else { return };
    let vocab = |kind: &str, casing| {
        let path = data.join(format!("vocab/bert-base-{kind}-vocab.txt"));
        WordPiece::from_vocab_file(&path, casing).unwrap()
    };
    let uncased = vocab("uncased", Casing::Uncased);
    let cased = vocab("cased", Casing::Cased);
    for (file, wordpiece, least) in [
        ("squad/dev-v1.1", &uncased, 99.7),
        ("squad/dev-v1.1", &cased, 99.6),
        ("squad/dev-v2.0", &uncased, 99.8),
        ("squad/dev-v2.0", &cased, 99.8),
        ("xquad/xquad.en", &uncased, 99.9),
        ("xquad/xquad.zh", &cased, 98.8),
        ("xquad/xquad.zh", &uncased, 98.8),
        ("xquad/xquad.ru", &cased, 83.6),
        ("xquad/xquad.ru", &uncased, 80.0),
        ("xquad/xquad.ar", &cased, 89.8),
        ("xquad/xquad.ar", &uncased, 89.4),
    ] {
        let path = data.join(format!("{file}.json.gz"));
        let squad = Squad::read(&path, Misplaced::Refuse).unwrap();
        let windows = Windows::cut(&squad, wordpiece, WindowOptions::default()).unwrap();
        let may_be_empty = file.ends_with("v2.0");
        let usual = found(&squad, &windows, may_be_empty, 30);
        let longer = found(&squad, &windows, may_be_empty, 384);
        println!(
            "{file} {:?}: {} windows, exact {:.2}, of any length {:.2}",
            wordpiece.casing(),
            windows.len(),
            usual.all.exact,
            longer.all.exact
        );
        assert!(usual.all.exact > least, "{usual:?}");
        assert!(longer.all.exact > 99.7, "{longer:?}");
    }
}

#[test]
fn the_whole_training_set_is_cut_into_windows() {
    let Some(data) = real_data() else { return };
    let vocab = data.join("vocab/bert-base-uncased-vocab.txt");
    let wordpiece = WordPiece::from_vocab_file(&vocab, Casing::Uncased).unwrap();
    let start = Instant::now();
    let path = data.join("squad/train-v1.1.json.gz");
    let squad = Squad::read(&path, Misplaced::Refuse).unwrap();
    let read = start.elapsed();
    let windows = Windows::cut(&squad, &wordpiece, WindowOptions::default()).unwrap();
    let cut = start.elapsed();
    let (sequences, targets) = windows.training();
    println!(
        "read in {read:.1?}, cut in {:.1?}, sequences in {:.1?}: {} windows, {} tokens, {} dropped",
        cut - read,
        start.elapsed() - cut,
        windows.len(),
        sequences.tokens(),
        windows.dropped()
    );
    assert_eq!((squad.questions().count(), squad.misplaced), (87_599, 0));
    assert_eq!((sequences.len(), targets.len()), (windows.len(), windows.len()));
    assert_eq!(windows.dropped(), 0);
    // The log of run_squad.py on this set says "Num split examples = 88641".
    assert_eq!(windows.len(), 88_641);
    let answered = targets.iter().filter(|target| **target != [0, 0]).count();
    assert!(answered >= 87_599, "{answered}");
}

/// The scorer reads the files, which are like those of run_squad.py, and its sweep finds the same threshold.
#[test]
fn the_files_of_a_run_score_as_its_answers_do() {
    let folder = tempfile::tempdir().unwrap();
    let context = "the normans came from normandy";
    let words: Vec<&str> = context.split(' ').collect();
    let mut questions = Vec::new();
    for i in 0..20 {
        let word = words[i % 5];
        let gold = json!([{"text": word, "answer_start": context.find(word).unwrap()}]);
        let gold = if i % 4 == 0 { json!([]) } else { gold };
        questions.push(json!({"id": format!("q{i}"), "question": "from", "answers": gold}));
    }
    let data = json!({"version": "v2.0", "data": [{"title": "t", "paragraphs":
        [{"context": context, "qas": questions}]}]});
    let path = write_file(folder.path(), "dev.json", &data);
    let squad = Squad::read(&path, Misplaced::Refuse).unwrap();
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let vocab = special.iter().chain(&words).map(|&word| word.into());
    let wordpiece = WordPiece::from_vocab(vocab.collect(), Casing::Uncased).unwrap();
    let windows = Windows::cut(&squad, &wordpiece, WindowOptions::default()).unwrap();
    let mut logits = perfect(&windows);
    // Answers are right, but the scores of "no answer" are too high by 2.75 or more.
    for (window, logits) in logits.chunks_exact_mut(2 * windows.tokens(0)).enumerate() {
        let has_answer = window % 4 != 0;
        logits[0] = if has_answer { 17.75 } else { 23.5 };
        logits[0] += (window % 3) as f32 / 3.0;
        logits[1] = 5.0;
        if window == 13 {
            logits[0] += 30.0;
        }
    }
    let options = AnswerOptions { may_be_empty: true, ..AnswerOptions::default() };
    let answers: Vec<Answers> = answer(&squad, &windows, &logits, options).unwrap();
    let tau = threshold(&squad, &answers).unwrap();
    // All questions but 13 are right; with a threshold of 0 none with an answer would be.
    assert_eq!(tau.score, 95.0);
    let tau = tau.threshold.unwrap();
    assert!((3.0..8.0).contains(&tau), "{tau}");
    save(folder.path(), &answers, tau);
    let file = |name: &str| folder.path().join(name);
    let args = |extra: &[&str]| {
        let predictions = file("predictions.json");
        let args = ["--data", text(&path), "--predictions", text(&predictions)];
        json(&succeeds([&["score", "squad", "--json"], &args[..], extra].concat()))
    };
    assert_eq!((args(&[])["exact"].as_f64(), args(&[])["f1"].as_f64()), (Some(95.0), Some(95.0)));
    assert_eq!(args(&[])["NoAns_exact"], 100.0);
    // With answers to all questions the sweep finds the threshold.
    save(folder.path(), &answers, f64::INFINITY);
    let odds = file("null_odds.json");
    let swept = args(&["--na-prob", text(&odds), "--na-prob-thresh", &tau.to_string()]);
    assert_eq!(swept["best_f1_thresh"].as_f64(), Some(tau));
    assert_eq!((&swept["best_f1"], &swept["f1"]), (&json!(95.0), &json!(95.0)));
    let raw = std::fs::read_to_string(&odds).unwrap();
    assert!(raw.starts_with("{\n    \"q0\": ") && raw.ends_with("\n}\n"), "{raw}");
    let n_best = std::fs::read(file("nbest_predictions.json")).unwrap();
    let n_best: Value = serde_json::from_slice(&n_best).unwrap();
    let first = n_best["q1"].as_array().unwrap();
    let keys: Vec<&String> = first[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["text", "probability", "start_logit", "end_logit"]);
    assert_eq!((&first[0]["text"], &first[1]["text"]), (&json!(""), &json!("normans")));
    let sum: f64 = first.iter().map(|r| r["probability"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-12);
}
