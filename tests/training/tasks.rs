//! Every kind of task through the command: trained on rows that follow a rule, evaluated, predicted, stopped and
//! resumed; and what happens with bad data.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::common::{
    Folder, accept_changes, assert_contains, cloze, error_line, fails, interrupted, json, piped,
    real_data_and_model, stderr, stdout, succeeds, text, words,
};
use crate::{BAD, GOOD, finetuned, opinion, real_entities, sentiment};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
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
    folder.write("train.csv", &swag(0..160)).write("val.csv", &swag(160..200));
    let trained = folder.finetuned("swag", &["--epochs", "6", "--batch", "16"]);
    assert!(number(&trained["dev"]["accuracy"]) > 0.9, "{trained}");
    assert_eq!(folder.evaluated("swag", "val.csv", &[]), trained["dev"]);
    assert_eq!(folder.config()["architectures"][0], "BertForMultipleChoice");
    let lines = folder.predicted("swag", "val.csv", &[]);
    let right = lines.lines().skip(1).enumerate().filter(|(i, line)| {
        let (right, _) = endings(160 + i);
        line.ends_with(&format!("\t{right}"))
    });
    let share = right.count() as f64 / 40.0;
    assert_eq!(share, number(&trained["dev"]["accuracy"]));

    let mut tsv = String::new();
    for i in 0..100 {
        let (right, endings) = endings(i);
        writeln!(tsv, "o\tWe saw it. The house\t{}\t{right}", endings.join("\t")).unwrap();
    }
    folder.write("full_data.tsv", &tsv);
    let trained = folder.finetuned("codah", &["--epochs", "1", "--fold", "5"]);
    assert_eq!(trained["rows"], 80);
    let message = fails(folder.finetune("codah", &["--fold", "6"]), 2);
    assert_contains(&message, "fold 6");
    let message = fails(folder.finetune("codah", &["--split", "0.1"]), 2);
    assert_contains(&message, "--split: codah is divided by --fold");
}

/// Returns sentences that begin with a name: every third one has a family name too.
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
    folder.write("eng.train", &tagged(0..120)).write("eng.testa", &tagged(120..150));
    folder.write("eng.testb", &tagged(7..20));
    let trained = folder.finetuned("ner", &["--epochs", "4", "--batch", "8"]);
    assert!(number(&trained["dev"]["f1"]) > 0.9, "{trained}");
    assert!(number(&trained["test"]["types"]["LOC"]["f1"]) > 0.9, "{trained}");
    // A long sentence continues in a second sequence: every word gets a tag.
    let short = folder.evaluated("ner", "eng.testa", &["--max-len", "8"]);
    assert!(number(&short["accuracy"]) > 0.5, "{short}");
    assert_eq!(folder.config()["id2label"]["3"], "B-PER");
    let columns = folder.predicted("ner", "eng.testa", &[]);
    let first: Vec<&str> = columns.lines().next().unwrap().split(' ').collect();
    assert_eq!(first, ["Alice", "B-PER", "B-PER"]);
    let line = folder.predicted("ner", "eng.testa", &["--json"]);
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(line["entities"][0]["text"], "Alice Smith");
    folder.write("words.txt", "Hannah\nwent\nto\nRome\n");
    let columns = folder.predicted("ner", "words.txt", &[]);
    assert_eq!(columns.lines().count(), 5);
}

#[test]
fn your_own_data_is_learned_in_every_format() {
    let folder = Folder::new();
    let (mut csv, mut jsonl, mut tsv) =
        (String::from("label,text\n"), String::new(), String::from("a\tb\tscore\n"));
    for i in 0..200 {
        let (good, sentence) = opinion(i);
        let label = if good { "fine" } else { "bad, alas" };
        writeln!(csv, "\"{label}\",\"{sentence}, \"\"truly\"\"\"").unwrap();
        let words: Vec<&str> = sentence.split(' ').collect();
        let tags: Vec<&str> =
            words.iter().map(|w| if GOOD.contains(w) { "GOOD" } else { "-" }).collect();
        writeln!(jsonl, "{}", json!({"words": words, "tags": tags})).unwrap();
        let score = if good { 1.5 } else { -0.5 };
        writeln!(tsv, "{sentence}\tyes\t{score}").unwrap();
    }
    folder.write("own.csv", &csv).write("own.jsonl", &jsonl).write("own.tsv", &tsv);
    let file = |name: &str| text(&folder.path(name)).to_owned();
    let train = |name: &str, more: &[&str]| {
        let file = file(name);
        let all = ["--train", &file, "--dev", &file, "--epochs", "4", "--batch", "16"];
        folder.finetuned("custom", &[&all, more].concat())
    };
    let classes = train("own.csv", &["--columns", "text,label"]);
    assert!(number(&classes["dev"]["accuracy"]) > 0.95, "{classes}");
    let lines = folder.predicted("custom", "own.csv", &["--columns", "text,label", "--json"]);
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let shares = &line["probabilities"];
    assert!((number(&shares["fine"]) + number(&shares["bad, alas"]) - 1.0).abs() < 1e-6);
    folder.write("new.csv", "text\nit was a warm day in the end\n");
    let answer = folder.predicted("custom", "new.csv", &["--columns", "text,label"]);
    assert_eq!(answer, "index\tprediction\n0\tfine\n");
    // Rows that are skipped keep their numbers.
    folder.write(
        "new.csv",
        "text,more\n\"it was a warm day\n\"it was a dark road, again\",\nit was a kind friend\n",
    );
    let more = ["--columns", "text,label", "--skip-bad"];
    let answer = folder.predicted("custom", "new.csv", &more);
    assert_eq!(answer, "index\tprediction\n1\tbad, alas\n2\tfine\n");
    // Standard input has no file name from which the format is known.
    let line = "predict custom --columns text,label --input - --model";
    let args = words(&format!("{line} {}", file("out")));
    for input in [
        "text,label\n\"it was a warm day in the end, truly\",what\n",
        "{\"text\": \"it was a warm day in the end, truly\"}\n",
        "text\tlabel\nit was a warm day in the end, truly\twhat\n",
    ] {
        let answer = stdout(&piped(&args, input));
        assert_eq!(answer, "index\tprediction\n0\tfine\n", "{input}");
    }

    let numbers = train("own.tsv", &["--columns", "a,b,score", "--kind", "number"]);
    assert!(number(&numbers["dev"]["pearson"]) > 0.9, "{numbers}");
    let more = ["--columns", "words,tags", "--kind", "tokens"];
    let tokens = train("own.jsonl", &more);
    assert!(number(&tokens["dev"]["accuracy"]) > 0.95, "{tokens}");

    let columns = ["--columns", "text,label"];
    let refused = |name: &str, more: &[&str], code| {
        let file = file(name);
        let all = [&["--train", &file, "--dev", &file], more].concat();
        fails(folder.finetune("custom", &all), code)
    };
    assert_contains(&refused("own.csv", &[], 2), "columns are needed");
    let mut many = String::from("text,label\n");
    (0..30).for_each(|i| writeln!(many, "a,{}", f64::from(i) / 3.0).unwrap());
    folder.write("many.csv", &many);
    assert_contains(&refused("many.csv", &columns, 2), "30 different numbers");
    folder.write("one.tsv", "text\tlabel\na day\tfine\na night\n");
    let message = refused("one.tsv", &columns, 1);
    assert_contains(&message, "one.tsv:3: the row has 1");
    let message = refused("one.tsv", &[&columns[..], &["--skip-bad"]].concat(), 1);
    assert_contains(&message, "only the label fine");
    assert_contains(&message, "one.tsv:3: the row has 1");
}

#[test]
fn seeds_and_learning_rates_are_compared_and_the_best_model_kept() {
    let folder = sentiment(120, 30);
    let more = ["--seeds", "3", "--epochs", "1", "--batch", "8"];
    let trained = folder.finetuned("sst-2", &more);
    let runs = trained["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &trained["seeds"]), (3, &3.into()));
    let scores: Vec<f64> = runs.iter().map(|run| number(&run["dev"]["accuracy"])).collect();
    let best = scores.iter().copied().fold(0.0, f64::max);
    assert_eq!(number(&trained["dev"]["accuracy"]), best);
    let mean = scores.iter().sum::<f64>() / 3.0;
    assert!((number(&trained["mean"]["accuracy"]) - mean).abs() < 1e-12);
    let squares: f64 = scores.iter().map(|x| (x - mean).powi(2)).sum();
    assert!((number(&trained["deviation"]["accuracy"]) - (squares / 2.0).sqrt()).abs() < 1e-12);
    assert_eq!(number(&folder.evaluated("sst-2", "dev.tsv", &[])["accuracy"]), best);

    let more = ["--lr-search", "--seeds", "2", "--epochs", "1"];
    let searched = folder.finetuned("sst-2", &more);
    let rates: Vec<f64> =
        searched["runs"].as_array().unwrap().iter().map(|r| number(&r["lr"])).collect();
    assert_eq!(rates[..4], [2e-3, 1e-3, 5e-4, 2.5e-4], "those that suit a width of 128");
    assert_eq!((rates.len(), &searched["seeds"]), (5, &2.into()));
    let more = ["--lr-search", "1e-3,3e-3", "--epochs", "1"];
    let searched = folder.finetuned("sst-2", &more);
    let rates: Vec<f64> =
        searched["runs"].as_array().unwrap().iter().map(|r| number(&r["lr"])).collect();
    assert_eq!(rates, [1e-3, 3e-3]);
}

#[test]
fn a_resumed_run_ends_as_if_it_had_not_been_stopped() {
    let folder = sentiment(60, 30);
    let more = ["--epochs", "4", "--batch", "4", "--save-every", "1"];
    let whole = folder.finetuned("sst-2", &more);
    let state = folder.path("out/trainer/state.safetensors");
    assert!(!state.exists(), "a run that is done needs no state");

    interrupted(folder.finetune("sst-2", &more), || state.exists());
    assert!(state.exists());
    let mut args = folder.finetune("sst-2", &more);
    args.retain(|arg| arg != "--overwrite");
    assert_contains(&fails(args, 2), "already holds a run");
    assert!(state.exists());
    let other = ["--resume", "--batch", "4", "--epochs", "3"];
    let message = fails(folder.finetune("sst-2", &other), 2);
    assert_contains(&message, "--epochs was 4 and is now 3");
    let resumed = folder.finetuned("sst-2", &[&more[..], &["--resume"]].concat());
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
    let trained = folder.finetuned("mnli", &["--epochs", "1"]);
    assert!(trained["dev_mismatched"]["accuracy"].is_f64(), "{trained}");
    folder.write("diagnostic.tsv", &format!("{header}\n7\tA.\tB.\n9\tB.\tA.\n"));
    let submission = folder.path("submission");
    folder.predicted("ax", "diagnostic.tsv", &["--out", text(&submission)]);
    let answers = std::fs::read_to_string(submission.join("AX.tsv")).unwrap();
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!((lines[0], lines.len()), ("index\tprediction", 3));
    assert!(
        lines[2].starts_with("9\t")
            && ["neutral", "entailment", "contradiction"].contains(&&lines[2][2..])
    );
    for (input, file) in
        [("test_matched.tsv", "MNLI-m.tsv"), ("test_mismatched.tsv", "MNLI-mm.tsv")]
    {
        folder.write(input, &format!("{header}\n0\tA.\tB.\n"));
        folder.predicted("mnli", input, &["--out", text(&submission)]);
        assert!(submission.join(file).exists(), "{file}");
    }
    // A model from elsewhere may have the classes in another order: their names count.
    let path = folder.path("out/config.json");
    let named = std::fs::read_to_string(&path).unwrap();
    let before = folder.evaluated("mnli", "dev_matched.tsv", &[]);
    let turned = named
        .replace("\"0\": \"contradiction\"", "\"0\": \"ENTAILMENT\"")
        .replace("\"1\": \"entailment\"", "\"1\": \"Contradiction\"");
    assert_ne!(turned, named);
    std::fs::write(&path, turned).unwrap();
    accept_changes(&folder.path("out"));
    let after = folder.predicted("ax", "diagnostic.tsv", &[]);
    let swapped = |name: &str| match name {
        "contradiction" => "entailment",
        "entailment" => "contradiction",
        other => panic!("{other}"),
    };
    for (then, now) in lines.iter().zip(after.lines()).skip(1) {
        let (then, now) = (&then[2..], &now[2..]);
        assert_eq!(now, if then == "neutral" { then } else { swapped(then) });
    }
    assert!(before["accuracy"].is_f64());
    let out = folder.path("out");
    let message = fails(["evaluate", "rte", "--model", text(&out), "--data", "x"], 1);
    assert_contains(
        &message,
        "classes are ENTAILMENT, Contradiction, neutral, but those of rte are",
    );
    let message = fails(folder.finetune("ax", &[]), 2);
    assert_contains(&message, "nothing to train on");
}

#[test]
fn bad_rows_and_bad_steps_stop_the_run_or_are_left_out() {
    let folder = sentiment(120, 30);
    let bad =
        std::fs::read_to_string(folder.path("train.tsv")).unwrap() + "only text\nfine\tmaybe\n";
    folder.write("train.tsv", &bad);
    let message = fails(folder.finetune("sst-2", &[]), 1);
    assert_contains(&message, "train.tsv:122: the row has 1 columns");
    let output = succeeds(folder.finetune("sst-2", &["--skip-bad", "--epochs", "1"]));
    assert_contains(&stderr(&output), "2 bad rows left out, the first: ");
    assert_eq!(json(&output)["rows"], 120);

    let run = |more: &[&str]| {
        let all = [&["--lr", "1e30", "--skip-bad", "--batch", "2"], more].concat();
        fails(folder.finetune("sst-2", &all), 1)
    };
    let message = run(&[]);
    assert_contains(&message, "is not a number: the run has diverged");
    assert!(run(&["--bad-steps", "skip"]).contains("many times in a row"));
}

/// With a comma or a tab in a text, the rest of the text would be taken for the label.
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
        folder.finetune("custom", &args)
    };
    let run = |args: &[String]| cloze().args(args).output().unwrap();
    assert!(run(&train(&good, &[])).status.success());
    let model = path("out");
    for (file, advice) in
        [("bad.csv", "a text with commas needs quotes"), ("bad.tsv", "a text must not hold tabs")]
    {
        let expected = format!("{file}:10: the row has 3 columns, but the header has 2: {advice}");
        let input = path(file);
        let ask = |command: &str, option: &str| -> Vec<String> {
            let args = [&[command], &custom[..], &["--model", &model, option, &input]];
            args.concat().into_iter().map(str::to_owned).collect()
        };
        for mut args in [train(&input, &[]), ask("evaluate", "--data"), ask("predict", "--input")] {
            let message = error_line(&run(&args), 1);
            assert!(message.ends_with(&expected), "{args:?}: {message}");
            args.push("--skip-bad".into());
            let output = run(&args);
            let notes = stderr(&output);
            assert!(output.status.success(), "{args:?}: {notes}");
            assert_contains(&notes, "one bad row left out: ");
            assert_contains(&notes, &expected);
        }
    }
}

/// A small part of CODAH and CoNLL-2003: all of the files is read, and something is learned.
#[test]
fn real_choices_and_entities_are_learned() {
    let Some((data, model)) = real_data_and_model() else {
        return;
    };
    let more = ["--limit", "1000", "--epochs", "1", "--lr", "1e-3"];
    let ner = finetuned(&model, "ner", real_entities(&data).0.path(), &more);
    assert_eq!(ner["rows"], 1000);
    assert!(number(&ner["dev"]["f1"]) > 0.6, "{ner}");
    // Chance is 0.25.
    let more = ["--limit", "300", "--epochs", "1", "--lr", "3e-4", "--batch", "8"];
    let codah = finetuned(&model, "codah", &data.join("codah"), &more);
    assert!(number(&codah["dev"]["accuracy"]) > 0.35, "{codah}");
}

/// Returns paragraphs that name something at varying positions. If `may_be_empty`, every fourth one names nothing.
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
                json!([])
            } else {
                json!([{"text": name, "answer_start": start}])
            };
            let asked = json!({
                "id": format!("q{i}"), "question": "what was it called ?", "answers": answers, "is_impossible": empty,
            });
            json!({"context": context, "qas": [asked]})
        })
        .collect();
    json!({"version": "2", "data": [{"title": "T", "paragraphs": paragraphs}]}).to_string()
}

#[test]
fn answers_are_found_in_paragraphs_and_predictions_score_the_same() {
    let folder = Folder::new();
    folder
        .write("train-v1.1.json", &asked(0..240, false))
        .write("dev-v1.1.json", &asked(240..300, false));
    let trained = folder.finetuned("squad", &["--epochs", "6", "--batch", "16"]);
    assert!(number(&trained["dev"]["exact"]) > 90.0, "{trained}");
    assert_eq!(folder.evaluated("squad", "dev-v1.1.json", &[]), trained["dev"]);
    let out = folder.path("answers");
    folder.predicted("squad", "dev-v1.1.json", &["--out", text(&out)]);
    let (data, predictions) = (folder.path("dev-v1.1.json"), out.join("predictions.json"));
    let files = format!("--data {} --predictions {}", text(&data), text(&predictions));
    let scored = json(&succeeds(words(&format!("score squad --json {files}"))));
    assert_eq!(scored["f1"], trained["dev"]["f1"]);
    assert!(out.join("nbest_predictions.json").exists() && !out.join("null_odds.json").exists());

    folder
        .write("train-v2.0.json", &asked(0..240, true))
        .write("dev-v2.0.json", &asked(240..300, true));
    let newer = folder.path("train-v2.0.json");
    let message = fails(folder.finetune("squad", &["--train", text(&newer)]), 1);
    assert_contains(&message, "has no answer: this is a file for squad2");
    let trained = folder.finetuned("squad2", &["--epochs", "6", "--batch", "16"]);
    assert!(number(&trained["dev"]["exact"]) > 90.0, "{trained}");
    assert!(number(&trained["dev"]["NoAns_exact"]) > 80.0, "{trained}");
    // The threshold is saved with the model.
    assert_eq!(folder.config()["null_score_threshold"], trained["dev"]["null_score_threshold"]);
    assert_eq!(folder.evaluated("squad2", "dev-v2.0.json", &[]), trained["dev"]);
    let silent = folder.evaluated("squad2", "dev-v2.0.json", &["--null-threshold=-1e9"]);
    assert_eq!((&silent["NoAns_exact"], &silent["HasAns_exact"]), (&100.0.into(), &0.0.into()));
    // A model of SQuAD 2.0 answers all questions of SQuAD 1.1, here from standard input.
    let out = folder.path("out");
    let asked = asked(240..300, true);
    let args = ["predict", "squad", "--model", text(&out), "--input", "-"];
    let answers = json(&piped(args, &asked));
    assert!(answers.as_object().unwrap().values().all(|text| text != ""));
    assert_eq!(answers.as_object().unwrap().len(), 60);
    let line = folder.predicted("squad2", "dev-v2.0.json", &["--json"]);
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert!(line["null_odds"].is_f64() && line["probability"].is_f64(), "{line}");
}
