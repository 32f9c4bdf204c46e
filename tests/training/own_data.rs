//! Your own data as people have it, and answers as people need them: delimiters, plain lines, entities as spans,
//! questions as JSON lines; JSON, CSV, logits and a threshold.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::common::{Folder, assert_contains, fails, piped, stderr, stdout, text, words};
use crate::opinion;

fn lines(printed: &str) -> Vec<Value> {
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn near(value: &Value, expected: f64) -> bool {
    (value.as_f64().unwrap() - expected).abs() < 1e-6
}

/// Fine-tunes on one file that is measured on too.
fn train(folder: &Folder, task: &str, file: &str, more: &[&str]) -> Value {
    let file = folder.path(file);
    let all = ["--train", text(&file), "--dev", text(&file), "--batch", "16"];
    folder.finetuned(task, &[&all, more].concat())
}

#[test]
fn texts_are_read_with_any_delimiter_and_answered_in_every_format() {
    let folder = Folder::new();
    let mut csv = String::from("id;text;label\n");
    for i in 0..160 {
        let (good, sentence) = opinion(i);
        let label = if good { "fine" } else { "bad, alas" };
        writeln!(csv, "{i};\"{sentence}; truly\";{label}").unwrap();
    }
    folder.write("own.csv", &csv);
    let columns = ["--columns", "text,label", "--epochs", "4"];
    let trained = train(&folder, "custom", "own.csv", &columns);
    assert!(trained["dev"]["accuracy"].as_f64().unwrap() > 0.95, "{trained}");
    assert_eq!(folder.config()["finetuning_options"].get("delimiter"), None);

    // The same texts in three layouts of standard input.
    let out = folder.path("out");
    let line = format!("predict custom --input - --format jsonl --logits --model {}", text(&out));
    let ask = |input: &str, how: &str| {
        let output = piped(words(&line), input);
        assert_contains(&stderr(&output), &format!("standard input: read as {how}\n"));
        lines(&stdout(&output))
    };
    let answers =
        ask("it was a warm day, truly\n\nit was a cold road\n", "plain lines, each of them a text");
    let header = "rows under a header, separated by";
    assert_eq!(
        ask("text\nit was a warm day, truly\nit was a cold road\n", &format!("{header} tabs")),
        answers
    );
    assert_eq!(
        ask(
            "{\"text\":\"it was a warm day, truly\"}\n{\"text\":\"it was a cold road\"}\n",
            "JSON lines"
        ),
        answers
    );
    assert_eq!(
        ask(
            "n|text\n1|it was a warm day, truly\n2|it was a cold road\n",
            &format!("{header} vertical bars")
        ),
        answers
    );
    let keys: Vec<&String> = answers[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["index", "text", "prediction", "score", "probabilities", "logits"]);
    assert_eq!(
        (&answers[1]["index"], &answers[1]["text"]),
        (&"1".into(), &"it was a cold road".into())
    );
    assert_eq!(answers[1]["prediction"], "bad, alas");
    let number = |of: &str, class: &str| answers[1][of][class].as_f64().unwrap();
    let difference = number("logits", "bad, alas") - number("logits", "fine");
    let odds = number("probabilities", "bad, alas") / number("probabilities", "fine");
    assert!((difference - odds.ln()).abs() < 1e-4, "{}", answers[1]);
    assert_eq!(answers[1]["score"], answers[1]["probabilities"]["bad, alas"]);

    folder.write("new.tsv", "text,label\nit was a warm day,\n\"it was a cold, cold road\",\n");
    let json = lines(&folder.predicted("custom", "new.tsv", &["--json"]));
    assert!(json[0].get("logits").is_none() && json[0].get("score").is_some());
    let csv = folder.predicted("custom", "new.tsv", &["--format", "csv"]);
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "text,prediction,score,\"p(bad, alas)\",p(fine)");
    let score = &json[0]["score"];
    assert!(rows[1].starts_with(&format!("it was a warm day,fine,{score},")), "{csv}");
    assert!(rows[2].starts_with("\"it was a cold, cold road\",\"bad, alas\","), "{csv}");

    let sure = folder.predicted("custom", "new.tsv", &["--threshold", "0"]);
    assert_eq!(sure, "index\tprediction\n0\tfine\n1\tbad, alas\n");
    let unsure =
        crate::common::succeeds(folder.ask("predict", "custom", "new.tsv", &["--threshold", "1"]));
    assert_eq!(stdout(&unsure), "index\tprediction\n0\t\n1\t\n");
    let note = "2 of 2 rows have no prediction: their best probability is below 1\n";
    assert_contains(&stderr(&unsure), note);
    for (more, expected) in [
        (&["--threshold", "80"][..], "--threshold 80: expected a probability"),
        (&["--logits"], "--logits: a submission has no place"),
        (&["--delimiter", "ab"], "delimiter \"ab\": expected one character"),
    ] {
        let message = fails(folder.ask("predict", "custom", "new.tsv", more), 2);
        assert_contains(&message, expected);
    }
    // A delimiter that is given holds for every file of the model.
    let columns = ["--columns", "text,label", "--delimiter", ";", "--epochs", "1"];
    train(&folder, "custom", "own.csv", &columns);
    assert_eq!(folder.config()["finetuning_options"]["delimiter"], ";");
    let message = fails(folder.ask("predict", "custom", "new.tsv", &[]), 1);
    assert_contains(&message, "new.tsv:1: there is no column text; there are text,label");
    folder.predicted("custom", "new.tsv", &["--delimiter", ","]);
}

#[test]
fn plain_lines_are_answered_by_a_model_of_one_text() {
    let folder = crate::sentiment(32, 8);
    folder.finetuned("sst-2", &["--epochs", "1"]);
    let line = format!("predict sst-2 --input - --model {}", text(&folder.path("out")));
    let ask = |input: &str, how: &str| {
        let output = piped(words(&line), input);
        assert_contains(&stderr(&output), &format!("standard input: read as {how}\n"));
        stdout(&output)
    };
    let plain = ask("It was warm, and kind.\nIt was cold.\n", "plain lines, each of them a text");
    assert_eq!(plain.lines().count(), 3);
    let official = "sentence\nIt was warm, and kind.\nIt was cold.\n";
    assert_eq!(ask(official, "a file of sst-2"), plain);
    let json = "{\"sentence\": \"It was warm, and kind.\"}\n{\"sentence\": \"It was cold.\"}\n";
    assert_eq!(ask(json, "JSON lines"), plain);
}

#[test]
fn entities_in_raw_text_are_learned_and_found_with_their_characters() {
    let folder = Folder::new();
    let mut jsonl = String::new();
    for i in 0..120 {
        let name = ["Alice", "Zoë Robert", "Hannah"][i % 3];
        let place = ["York", "Rome"][i % 2];
        let line = format!("🙂 {name} went on to {place}.");
        let start = line.chars().count() - 1 - place.len();
        let name_end = 2 + name.chars().count();
        let entities = match i % 2 {
            0 => json!([[2, name_end, "PER"], [start, start + place.len(), "LOC"]]),
            _ => json!([
                {"start": start, "end": start + place.len(), "label": "LOC"},
                {"start": 2, "end": name_end, "label": "PER"},
            ]),
        };
        writeln!(jsonl, "{}", json!({"text": line, "entities": entities})).unwrap();
    }
    folder.write("own.jsonl", &jsonl);
    let kind = ["--kind", "tokens", "--columns", "text,entities", "--epochs", "4"];
    let trained = train(&folder, "custom", "own.jsonl", &kind);
    assert!(trained["dev"]["f1"].as_f64().unwrap() > 0.9, "{trained}");
    assert_eq!(folder.evaluated("custom", "own.jsonl", &[]), trained["dev"]);

    let line = format!("predict custom --input - --json --model {}", text(&folder.path("out")));
    let sentence = "🙂 Zoë Robert went on to Rome.";
    let plain = lines(&stdout(&piped(words(&line), sentence)));
    let row = json!({"text": sentence}).to_string();
    assert_eq!(lines(&stdout(&piped(words(&line), &row))), plain);
    let found = plain[0]["entities"].as_array().unwrap();
    let shown: Vec<Value> =
        found.iter().map(|e| json!([e["label"], e["start"], e["end"], e["text"]])).collect();
    assert_eq!(shown, [json!(["PER", 2, 12, "Zoë Robert"]), json!(["LOC", 24, 28, "Rome"])]);
    let scores = plain[0]["scores"].as_array().unwrap();
    assert!(near(&found[1]["score"], scores[6].as_f64().unwrap()), "{}", plain[0]);
    assert_eq!(plain[0]["text"], sentence);
    let tags = ["O", "B-PER", "I-PER", "O", "O", "O", "B-LOC", "O"];
    assert_eq!(plain[0]["tags"], json!(tags));
    assert_eq!(plain[0]["probabilities"][1]["B-PER"], scores[1]);

    folder.write(
        "bad.jsonl",
        "{\"text\": \"Rome-bound\", \"entities\": [[0, 4, \"LOC\"]]}\n\
         {\"text\": \"In Rome\", \"entities\": [[3, 8, \"LOC\"]]}\n",
    );
    let message = fails(folder.ask("evaluate", "custom", "bad.jsonl", &[]), 1);
    assert_contains(&message, "bad.jsonl:2: the entity [3, 8, \"LOC\"] is no part of the text");
    let skipped = folder.ask("evaluate", "custom", "bad.jsonl", &["--skip-bad"]);
    let note = "bad.jsonl: 1 of 1 entities begin or end inside a word";
    assert_contains(&stderr(&crate::common::succeeds(skipped)), note);
}

#[test]
fn questions_are_read_as_json_lines_too() {
    let folder = Folder::new();
    let mut jsonl = String::new();
    for i in 0..160 {
        let name = ["Ann", "Bob", "Eve", "Zoë"][i * 7 % 4];
        let context = format!("the man called {name} lived in the old town");
        let answers = match i % 4 {
            0 => json!({"text": [], "answer_start": []}),
            1 => json!({"text": [name], "answer_start": [15]}),
            2 => json!([{"text": name, "answer_start": 15}]),
            _ => json!([name]),
        };
        let question = if i % 4 == 0 { "how old was the town?" } else { "who lived there?" };
        let line = json!({"question": question, "context": context, "answers": answers});
        writeln!(jsonl, "{line}").unwrap();
    }
    folder.write("train.jsonl", &jsonl).write("dev.jsonl", &jsonl);
    let trained = folder.finetuned("squad2", &["--epochs", "6", "--batch", "16"]);
    assert!(trained["dev"]["exact"].as_f64().unwrap() > 90.0, "{trained}");
    assert_eq!(trained["dev"]["NoAns_total"], 40);
    assert_eq!(folder.evaluated("squad2", "dev.jsonl", &[]), trained["dev"]);
    let lines = lines(&folder.predicted("squad2", "dev.jsonl", &["--json", "--logits"]));
    let answered = lines.iter().find(|line| line["prediction"] == "Zoë").unwrap();
    assert_eq!((&answered["start"], &answered["end"]), (&15.into(), &18.into()));
    assert_eq!(answered["question"], "who lived there?");
    assert_contains(answered["context"].as_str().unwrap(), "called Zoë");
    let first = &answered["n_best"][0];
    assert_eq!((&first["text"], &first["score"]), (&"Zoë".into(), &answered["score"]));
    assert!(answered["logits"][0]["start"].is_f64());
    let silent = lines.iter().find(|line| line["prediction"] == "").unwrap();
    assert_eq!((&silent["start"], &silent["end"]), (&Value::Null, &Value::Null));
    let csv = folder.predicted("squad2", "dev.jsonl", &["--format", "csv"]);
    assert!(csv.starts_with("id,question,context,prediction,score,start,end,best,"), "{csv}");
    assert_eq!(csv.lines().count(), 161);
    let more = ["--logits", "--format", "csv"];
    let message = fails(folder.ask("predict", "squad2", "dev.jsonl", &more), 2);
    assert_contains(&message, "--logits: CSV has no columns for those of answers");
    let message =
        fails(folder.ask("predict", "squad2", "dev.jsonl", &["--null-threshold", "nan"]), 2);
    assert_contains(&message, "--null-threshold NaN: a number is needed");
    let message = fails(folder.ask("predict", "squad2", "dev.jsonl", &["--threshold", "0.5"]), 2);
    assert_contains(&message, "--threshold: is for tasks that choose a class");
}
