//! Models in a program: every type answers what the command answers, alone and in a batch.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cloze::data::sequences::BatchSize;
use cloze::tasks;
use cloze::train::finetune::Settings;
use cloze::train::{Finetuning, Pretraining};
use cloze::{
    Backend, Embedder, FillMask, MultipleChoice, NextSentence, QuestionAnswerer, TextClassifier,
    TokenClassifier,
};
use common::{cloze, json, succeeds, text};
use rayon::prelude::*;
use serde_json::Value;

const TINY: &str = "cloze-tiny";

fn lesson_data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons/data").join(name)
}

/// The folder of a model that was fine-tuned on a set of the lessons for a few steps.
fn tuned(task: &str, data: &str, more: &[&str]) -> tempfile::TempDir {
    let (folder, data) = (tempfile::tempdir().unwrap(), lesson_data(data));
    let out = folder.path().join("model");
    let rate = if more.contains(&"--frozen") { "1e-2" } else { "1e-3" };
    let args = ["finetune", task, "--model", TINY, "--data", text(&data)];
    let rest = ["--out", text(&out), "--epochs", "2", "--lr", rate];
    succeeds([&args[..], &rest, more].concat());
    folder
}

/// Names a model that several tests use.
macro_rules! model {
    ($name:ident, $($arguments:expr),*) => {
        fn $name() -> PathBuf {
            static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
            FOLDER.get_or_init(|| tuned($($arguments),*)).path().join("model")
        }
    };
}
model!(spam, "custom", "spam", &["--columns", "text,label"]);
model!(names, "ner", "names", &[]);
model!(questions, "squad2", "questions", &[]);
model!(endings, "swag", "endings", &[]);

/// The lines that `cloze predict --json` prints.
fn predicted(task: &str, model: &Path, input: &Path) -> Vec<Value> {
    let args = ["predict", task, "--model", text(model), "--input", text(input), "--json"];
    lines(&succeeds(args).stdout)
}

fn lines(stdout: &[u8]) -> Vec<Value> {
    let lines = stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// A number of the command as the library has it.
fn number(value: &Value) -> f32 {
    value.as_f64().unwrap() as f32
}

fn cut(text: &str, start: usize, end: usize) -> String {
    text.chars().skip(start).take(end - start).collect()
}

fn near(a: f32, b: f32) -> bool {
    (a - b).abs() <= 1e-5 * (1.0 + b.abs())
}

#[test]
fn blanks_are_filled_as_by_the_command_in_the_order_of_the_texts() {
    let texts =
        ["The baker sells [MASK] and [MASK].", "[MASK]!", "She opened the [MASK] and went in."];
    let model = FillMask::builder(TINY).backend(Backend::Cpu).load().unwrap();
    let answers = model.top(&texts, 4).unwrap();
    for (text, blanks) in texts.iter().zip(&answers) {
        let alone = &model.top(&[text], 4).unwrap()[0];
        let args = ["fill-mask", "--model", TINY, "--top-k", "4", "--json", text];
        let printed = json(&succeeds(args));
        let printed = printed["masks"].as_array().unwrap();
        assert_eq!((printed.len(), alone.len()), (blanks.len(), blanks.len()));
        for ((printed, alone), batched) in printed.iter().zip(alone).zip(blanks) {
            let printed = printed.as_array().unwrap();
            assert_eq!((printed.len(), alone.len(), batched.len()), (4, 4, 4));
            for ((printed, alone), batched) in printed.iter().zip(alone).zip(batched) {
                assert_eq!(printed["token"], alone.token);
                assert_eq!(printed["id"], alone.id);
                assert_eq!(number(&printed["probability"]), alone.probability);
                assert_eq!(alone.token, batched.token);
                assert!(near(alone.probability, batched.probability));
            }
        }
    }
    assert!(model.top(&[], 4).unwrap().is_empty());
    assert_eq!(model.top(&texts[1..2], 0).unwrap(), [[[]]]);
    let all = &model.top(&texts[1..2], 100_000).unwrap()[0][0];
    let sum: f32 = all.iter().map(|guess| guess.probability).sum();
    assert!(all.len() == 8000 && near(sum, 1.0));

    let fails = |text: &str| model.top(&[texts[0], text], 1).unwrap_err().to_string();
    assert_eq!(fails("no blank"), "\"no blank\" has no [MASK]: write one where a word is missing");
    let long = "[MASK] ".repeat(200);
    assert!(
        fails(&long)
            .contains("has 202 tokens with its special tokens, but the model takes only 128")
    );
}

#[test]
fn a_command_without_a_model_takes_cloze_small() {
    for (command, texts) in [
        ("fill-mask", &["The baker sells [MASK]."][..]),
        ("nsp", &["The baker opened the shop.", "A customer came in."]),
    ] {
        let answer =
            |model: &[&str]| json(&succeeds([&[command, "--json"], model, texts].concat()));
        let unnamed = answer(&[]);
        assert_eq!(unnamed, answer(&["--model", "cloze-small"]), "{command}");
        assert_ne!(unnamed, answer(&["--model", TINY]), "{command}");
    }
}

#[test]
fn pairs_are_judged_as_by_the_command() {
    let pairs = [
        ("The baker opened the shop.", "A customer came in."),
        ("A.", "The owl flew over the barn while the farmer slept in the hay."),
        ("", ""),
    ];
    let model = NextSentence::load(TINY).unwrap();
    let probabilities = model.probabilities(&pairs).unwrap();
    for (&(a, b), &probability) in pairs.iter().zip(&probabilities) {
        let printed = json(&succeeds(["nsp", "--model", TINY, "--json", a, b]));
        let alone = model.probabilities(&[(a, b)]).unwrap();
        assert_eq!(alone, [number(&printed["is_next"])]);
        assert!(near(alone[0], probability));
    }
    assert!(model.probabilities(&[]).unwrap().is_empty());
    let long = "a ".repeat(130);
    assert!(model.probabilities(&[(&long, "b")]).is_err());
}

#[test]
fn vectors_are_those_of_the_command() {
    use std::io::Write as _;
    let texts = ["A cat sat on the mat.", "Rates", "", "The owl flew over the barn at night."];
    let mut command = cloze();
    command.args(["features", "--model", TINY, "--json"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(texts.join("\n").as_bytes()).unwrap();
    let printed = lines(&child.wait_with_output().unwrap().stdout);
    let model = Embedder::load(TINY).unwrap();
    let vectors = model.embed(&texts).unwrap();
    assert_eq!((printed.len(), vectors.len(), model.width()), (4, 4, 128));
    for ((printed, vector), text) in printed.iter().zip(&vectors).zip(texts) {
        let printed: Vec<f32> = printed["vector"].as_array().unwrap().iter().map(number).collect();
        assert_eq!(&printed, vector);
        let alone = &model.embed(&[text]).unwrap()[0];
        assert!(alone.iter().zip(vector).all(|(a, b)| near(*a, *b)), "alone and in a batch");
    }
    assert!(model.embed(&[]).unwrap().is_empty());

    let cut = Embedder::builder(TINY).max_len(5).normalize(true).layers(-2..=-1).load().unwrap();
    let vectors = cut.embed(&["a b c d e f g", "a b c"]).unwrap();
    assert_eq!(vectors[0], vectors[1], "longer texts are cut");
    let length: f32 = vectors[0].iter().map(|x| x * x).sum();
    assert!(vectors[0].len() == 256 && near(length, 1.0));
}

/// The texts and the second texts of a file with a header.
fn columns(path: &Path, first: usize, second: usize) -> Vec<(String, String)> {
    let file = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields[first].to_owned(), fields[second].to_owned())
    };
    file.lines().skip(1).map(row).collect()
}

#[test]
fn texts_are_classified_as_by_the_command() {
    let file = lesson_data("spam/dev.tsv");
    let rows = columns(&file, 0, 1);
    let texts: Vec<&str> = rows.iter().map(|(text, _)| text.as_str()).collect();
    let frozen = tuned("custom", "spam", &["--columns", "text,label", "--frozen"]);
    for folder in [spam(), frozen.path().join("model")] {
        let model = TextClassifier::load(&folder).unwrap();
        assert_eq!(model.labels(), ["ham", "spam"]);
        let predictions = model.predict(&texts).unwrap();
        let printed = predicted("custom", &folder, &file);
        assert_eq!(printed.len(), predictions.len());
        for (printed, prediction) in printed.iter().zip(&predictions) {
            assert_eq!(printed["prediction"], prediction.label);
            assert_eq!(number(&printed["probabilities"][&prediction.label]), prediction.score);
            assert_eq!(number(&printed["probabilities"]["spam"]), prediction.scores[1]);
        }
        assert!(predictions.iter().any(|prediction| prediction.label == "spam"));
        let alone = &model.predict(&texts[3..4]).unwrap()[0];
        assert!(near(alone.score, predictions[3].score));
        assert!(model.predict(&[]).unwrap().is_empty());
    }
    let serialised =
        serde_json::to_value(&TextClassifier::load(spam()).unwrap().predict(&["a"]).unwrap()[0])
            .unwrap();
    assert!(serialised["label"].is_string() && serialised["scores"].is_array());
}

#[test]
fn pairs_of_texts_get_a_class_or_a_number() {
    let file = lesson_data("answerable/dev.tsv");
    let rows = columns(&file, 1, 2);
    let pairs: Vec<(&str, &str)> = rows.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let folder = tuned("qnli", "answerable", &["--max-len", "32"]);
    let folder = folder.path().join("model");
    let predictions = TextClassifier::load(&folder).unwrap().predict_pairs(&pairs).unwrap();
    for (printed, prediction) in predicted("qnli", &folder, &file).iter().zip(&predictions) {
        assert_eq!(printed["prediction"], prediction.label);
        assert_eq!(number(&printed["probabilities"][&prediction.label]), prediction.score);
    }

    let data = tempfile::tempdir().unwrap();
    let rows: String = (0..40).map(|i| format!("word{i}\t{}\n", i % 7)).collect();
    for name in ["train.tsv", "dev.tsv"] {
        std::fs::write(data.path().join(name), format!("text\tscore\n{rows}")).unwrap();
    }
    let out = data.path().join("model");
    let more = ["--columns", "text,score", "--kind", "number", "--epochs", "1"];
    let args =
        ["finetune", "custom", "--model", TINY, "--data", text(data.path()), "--out", text(&out)];
    succeeds([&args[..], &more].concat());
    let model = TextClassifier::load(&out).unwrap();
    assert!(model.labels().is_empty());
    let printed = predicted("custom", &out, &data.path().join("dev.tsv"));
    let predictions = model.predict(&["word0", "word1"]).unwrap();
    for (printed, prediction) in printed.iter().zip(predictions) {
        assert_eq!(prediction.label, "");
        assert!(near(number(&printed["prediction"]), prediction.score));
        assert_eq!(prediction.scores, [prediction.score]);
    }
}

#[test]
fn entities_are_those_of_the_command_with_offsets_in_characters() {
    let file = lesson_data("names/valid.txt");
    let frozen = tuned("ner", "names", &["--frozen"]);
    for folder in [names(), frozen.path().join("model")] {
        let printed = predicted("ner", &folder, &file);
        let words = |line: &Value| -> Vec<String> {
            let words = line["words"].as_array().unwrap().iter();
            words.map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        let texts: Vec<String> = printed.iter().map(|line| words(line).join(" ")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let model = TokenClassifier::load(&folder).unwrap();
        let found = model.entities(&texts).unwrap();
        assert_eq!(found.len(), printed.len());
        assert!(found.concat().len() > 20);
        for ((printed, entities), text) in printed.iter().zip(&found).zip(&texts) {
            let printed = printed["entities"].as_array().unwrap();
            assert_eq!(printed.len(), entities.len(), "{text}");
            for (printed, entity) in printed.iter().zip(entities) {
                assert_eq!(printed["type"], entity.label);
                assert_eq!(printed["text"], entity.text);
                let part = cut(text, entity.start, entity.end);
                assert_eq!(part, entity.text);
                assert!(entity.score > 0.0 && entity.score <= 1.0);
            }
        }
        assert!(model.entities(&[]).unwrap().is_empty());
        assert_eq!(model.entities(&["", " \t"]).unwrap(), [[], []]);
    }
    // What is found is cut out as it stands, behind characters of any width.
    let model = TokenClassifier::load(names()).unwrap();
    for before in ["", "Zoe\u{301} ", "東京 ", "🙂🙂 "] {
        let text = format!("{before}Luca Ferrante, fell ill.");
        let found = &model.entities(&[&text]).unwrap()[0];
        assert!(!found.is_empty(), "{text}");
        for entity in found {
            let part = cut(&text, entity.start, entity.end);
            assert_eq!(part, entity.text, "{text}");
        }
    }
    // A text of several sequences.
    let long = "Luca Ferrante fell ill. ".repeat(60);
    let found = &model.entities(&[&long]).unwrap()[0];
    assert!(found.last().unwrap().end > long.len() - 40, "{:?}", found.last());
}

#[test]
fn questions_are_answered_as_by_the_command_with_offsets_in_characters() {
    let file = lesson_data("questions/dev-v2.0.json");
    let data: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let mut asked = Vec::new();
    for article in data["data"].as_array().unwrap() {
        for paragraph in article["paragraphs"].as_array().unwrap() {
            for question in paragraph["qas"].as_array().unwrap() {
                asked.push((
                    question["question"].as_str().unwrap(),
                    paragraph["context"].as_str().unwrap(),
                ));
            }
        }
    }
    let model = QuestionAnswerer::load(questions()).unwrap();
    let answers = model.answer(&asked).unwrap();
    let printed = predicted("squad2", &questions(), &file);
    assert_eq!(printed.len(), answers.len());
    for ((printed, answer), (_, context)) in printed.iter().zip(&answers).zip(&asked) {
        assert_eq!(printed["prediction"], answer.text);
        if printed["prediction"] == printed["best"] {
            assert!(near(number(&printed["probability"]), answer.score));
        }
        let part = cut(context, answer.start, answer.end);
        assert_eq!(part, answer.text);
    }
    let alone = &model.answer(&asked[2..3]).unwrap()[0];
    assert_eq!((&alone.text, alone.start), (&answers[2].text, answers[2].start));
    assert!(model.answer(&[]).unwrap().is_empty());
    assert_eq!(model.answer(&[("Who?", "")]).unwrap()[0].text, "");
}

#[test]
fn accents_and_chinese_characters_count_as_one() {
    // A model of SQuAD 1.1 answers always.
    let folder = tempfile::tempdir().unwrap();
    for name in ["train-v1.1.json", "dev-v1.1.json"] {
        let question = serde_json::json!({"id": "q", "question": "who", "answers": [{"text": "Zoé", "answer_start": 0}]});
        let file =
            serde_json::json!({"data": [{"paragraphs": [{"context": "Zoé", "qas": [question]}]}]});
        std::fs::write(folder.path().join(name), file.to_string()).unwrap();
    }
    let out = folder.path().join("model");
    succeeds([
        "finetune",
        "squad",
        "--model",
        TINY,
        "--data",
        text(folder.path()),
        "--out",
        text(&out),
        "--epochs",
        "1",
        "--max-len",
        "100",
    ]);
    let model = QuestionAnswerer::load(&out).unwrap();
    let context = "東京 の Zoé e\u{301}tait là, à Genève. ".repeat(20);
    for question in ["Who?", "Où était Zoé?", "何"] {
        let answer = &model.answer(&[(question, &context)]).unwrap()[0];
        let part = cut(&context, answer.start, answer.end);
        assert!(!part.is_empty() && part == answer.text, "{answer:?}");
    }
}

#[test]
fn an_ending_is_chosen_as_by_the_command_from_any_number() {
    let file = lesson_data("endings/val.csv");
    let text_of = std::fs::read_to_string(&file).unwrap();
    // No text of this file has a comma in quotes before its endings.
    let rows: Vec<Vec<&str>> = text_of
        .lines()
        .skip(1)
        .filter(|line| !line.contains('"'))
        .map(|line| line.split(',').collect())
        .collect();
    let endings_of: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row[7..11].iter().map(|ending| format!("{} {ending}", row[5])).collect())
        .collect();
    let borrowed: Vec<Vec<&str>> =
        endings_of.iter().map(|all| all.iter().map(String::as_str).collect()).collect();
    let asked: Vec<(&str, &[&str])> =
        rows.iter().zip(&borrowed).map(|(row, all)| (row[4], all.as_slice())).collect();
    assert!(asked.len() > 10);
    let model = MultipleChoice::load(endings()).unwrap();
    let choices = model.choose(&asked).unwrap();
    let printed = predicted("swag", &endings(), &file);
    let plain = text_of.lines().skip(1).enumerate().filter(|(_, line)| !line.contains('"'));
    for ((place, _), choice) in plain.zip(&choices) {
        assert_eq!(printed[place]["prediction"], choice.index);
        let shares = printed[place]["probabilities"].as_array().unwrap();
        assert!(shares.iter().zip(&choice.scores).all(|(a, b)| near(number(a), *b)));
    }
    let mixed: [(&str, &[&str]); 2] =
        [("The bus stops.", &["He gets on."]), ("It rains.", &["a", "b", "c"])];
    let choices = model.choose(&mixed).unwrap();
    assert_eq!((choices[0].index, choices[0].scores.as_slice()), (0, [1.0].as_slice()));
    assert_eq!(choices[1].scores.len(), 3);
    assert!(model.choose(&[]).unwrap().is_empty());
    let none = model.choose(&[("It rains.", &[])]).unwrap_err().to_string();
    assert_eq!(none, "\"It rains.\" has no text to choose from");
}

#[test]
fn threads_of_a_pool_may_call_one_model() {
    let model = Embedder::builder(TINY).threads(2).load().unwrap();
    let texts: Vec<String> =
        (0..64).map(|i| format!("text number {i} {}", "of many ".repeat(i))).collect();
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected = model.embed(&all).unwrap();
    let one_by_one: Vec<Vec<f32>> =
        all.par_iter().map(|text| model.embed(&[text]).unwrap().remove(0)).collect();
    for (one, expected) in one_by_one.iter().zip(&expected) {
        assert!(one.iter().zip(expected).all(|(a, b)| near(*a, *b)));
    }
}

#[test]
fn errors_name_what_is_wrong_and_no_option_of_the_command() {
    let message = |result: cloze::Result<()>| {
        let message = result.unwrap_err().to_string();
        assert!(!message.contains("--"), "{message}");
        message
    };
    fn drop_value<M>(loaded: cloze::Result<M>) -> cloze::Result<()> {
        loaded.map(|_| ())
    }
    for (result, expected) in [
        (drop_value(FillMask::load("no/such/folder")), "no/such/folder"),
        (drop_value(FillMask::load(spam())), "masked-LM head"),
        (drop_value(TextClassifier::load(TINY)), "no sequence classifier"),
        (drop_value(TextClassifier::load(names())), "no pooler"),
        (drop_value(TokenClassifier::load(spam())), "is of a BertForSequenceClassification"),
        (drop_value(QuestionAnswerer::load(TINY)), "holds no span head"),
        (drop_value(Embedder::builder(TINY).max_len(129).load()), "only 128 positions"),
        (drop_value(Embedder::builder(TINY).threads(0).load()), "0 threads"),
        (drop_value(Embedder::builder(TINY).layers(3..=3).load()), "layers 0 (embeddings) to 2"),
        (
            Embedder::builder(TINY)
                .max_len(2)
                .load()
                .and_then(|model| drop_value(model.embed(&["a"]))),
            "at least 5 are needed",
        ),
        (
            TokenClassifier::builder(names())
                .max_len(2)
                .load()
                .and_then(|model| drop_value(model.entities(&["a"]))),
            "at least 3 are needed",
        ),
        (
            QuestionAnswerer::builder(questions())
                .max_len(50)
                .load()
                .and_then(|model| drop_value(model.answer(&[("a", "b")]))),
            "at least 68 are needed",
        ),
    ] {
        let message = message(result);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn settings_that_a_run_cannot_follow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts.csv");
    std::fs::write(&path, "text,label\na day,0\na night,1\n").unwrap();
    let built = |settings: Settings| {
        let task = tasks::your_own("text,label", &path).unwrap();
        Finetuning::builder(task, TINY).train(&path).settings(settings).build()
    };
    let usual = Settings::default;
    for (settings, expected) in [
        (Settings { keep_best: true, ..usual() }, "keep_best needs a folder"),
        (Settings { patience: Some(1), ..usual() }, "patience needs a folder"),
        (Settings { save_every: 5, ..usual() }, "save_every needs a folder"),
    ] {
        let message = built(settings).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let mut run = built(Settings { batch: BatchSize::Examples(0), ..usual() }).unwrap();
    let message = run.run(|_| ()).unwrap_err().to_string();
    assert!(message.contains("at least one example"), "{message}");
    let message = Pretraining::builder().batch(0).build().map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("batch and evaluate_on must be at least 1"), "{message}");
}

/// Runs a program of `examples`, which `cargo test` builds beside the tests, and returns what it prints.
fn example(name: &str, arguments: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap().join("examples");
    let program = folder.join(name);
    assert!(program.is_file(), "{name} is missing: run `cargo build --examples`");
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{name}: {}", common::stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_example_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    let notes =
        "The baker sells bread.\nThe owl sleeps by day.\n\nThe baker sells rolls.\nIt rains.\n";
    std::fs::write(&file, notes).unwrap();
    let file = text(&file);

    let filled = example("fill_mask", &[TINY, "The [MASK] sells [MASK].", "It [MASK]."]);
    assert_eq!(filled.matches(" %  ").count(), 9, "{filled}");
    assert!(filled.contains("It [MASK].\n  blank 1:"), "{filled}");

    let ranked = example("next_sentence", &[TINY, "It rains.", "The owl sleeps.", "Take a coat."]);
    assert!(ranked.lines().count() == 2 && ranked.contains(" %  Take a coat."), "{ranked}");

    let found = example("embed_and_search", &[TINY, file, "The baker sells bread."]);
    assert!(found.starts_with("1.000  The baker sells bread.\n"), "{found}");
    assert_eq!(found.lines().count(), 3);

    let (train, out) = (lesson_data("spam/train.tsv"), folder.path().join("spam"));
    let dev = lesson_data("spam/dev.tsv");
    let trained = example("finetune_csv", &["text,label", text(&train), text(&dev), text(&out)]);
    assert!(trained.contains("accuracy 0."), "{trained}");
    let classified =
        example("classify", &[text(&out), "You have won a prize! Send us your bank details."]);
    assert!(classified.contains(" %  spam"), "{classified}");

    let tagged = example("tag", &[text(&names()), "Luca Ferrante fell ill."]);
    assert!(tagged.contains("  0..") && tagged.contains("PER"), "{tagged}");

    let answered = example("answer", &[text(&questions()), file, "Who sells bread?", "Why?"]);
    assert_eq!(answered.lines().count(), 4, "{answered}");

    let out = folder.path().join("model");
    let corpus = folder.path().join("corpus.txt");
    std::fs::write(&corpus, notes.repeat(20)).unwrap();
    let trained = example("pretrain", &[text(&corpus), text(&out), "3"]);
    assert!(trained.contains("% of the blanks"), "{trained}");
    assert!(out.join("model.safetensors").is_file());
}
