//! Tasks and malformed files. No model is needed: files are only read.

use super::*;
use crate::engine::CpuEngine;
use crate::eval::Scores;
use crate::model::Layout;
use crate::text::Casing;
use crate::text::WordPiece;
use crate::train::task::describe;

/// A folder with one file.
struct File {
    folder: tempfile::TempDir,
    name: &'static str,
}

/// What reading a file gives: its rows, the report on malformed ones, remarks.
type Read = (usize, String, Vec<String>);

impl File {
    fn new(name: &'static str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        Self { folder, name }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join(self.name)
    }

    fn read(&self, task: &dyn Task, role: Role, skip_bad: bool) -> Result<Read> {
        let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"];
        let wordpiece = WordPiece::from_vocab(vocab.map(String::from).into(), Casing::Uncased)?;
        let mut bad = BadRows::skipped_if(skip_bad);
        let mut notes = Vec::new();
        let reading = Reading {
            wordpiece: &wordpiece,
            max_len: 128,
            limit: None,
            split: None,
            bad: &mut bad,
            notes: &mut notes,
        };
        let rows = task.read(&self.path(), role, reading)?.rows();
        Ok((rows, bad.report().unwrap_or_default(), notes))
    }

    /// Reads the file for training; its labels are the task's.
    fn train(&self, name: &str, options: &Options) -> Result<Read> {
        let path = self.path();
        let task = open(name, options, Labels::Training(&path))?;
        self.read(task.as_ref(), Role::Train, options.skip_bad)
    }

    fn train_fails(&self, name: &str, options: &Options) -> String {
        self.train(name, options).unwrap_err().to_string()
    }

    /// Reads the file for a model with these labels.
    fn read_for(&self, name: &str, options: &Options, labels: &[&str], role: Role) -> Result<Read> {
        let mut config = Config::new(2, 128, 2, 512, 1000);
        if !labels.is_empty() {
            config.set_labels(labels);
        }
        let task = open(name, options, Labels::Model(&config))?;
        self.read(task.as_ref(), role, options.skip_bad)
    }
}

fn own(columns: &str, kind: Kind) -> Options {
    Options {
        columns: Some(Columns::parse(columns).unwrap()),
        kind: Some(kind),
        fold: 1,
        ..Options::default()
    }
}

fn skipping(options: Options) -> Options {
    Options { skip_bad: true, ..options }
}

const SWAG: &str = "sent1,sent2,ending0,ending1,ending2,ending3,label\n";
const SQUAD: &str = r#"{"data": [{"paragraphs": [{"context": "a b", "qas": [
    {"id": "1", "question": "b?", "answers": []}]}]}]}"#;

#[test]
fn labels_in_a_file_for_prediction_are_not_read() {
    let classes = ["ham", "spam"];
    let tags = ["O", "B-PER", "I-PER"];
    let class = || own("text,label", Kind::Class);
    for (name, options, labels, file, rows) in [
        (
            "wnli",
            class(),
            &[][..],
            File::new("test.tsv", "sentence1\tsentence2\tlabel\na\tb\t-1\n"),
            1,
        ),
        ("sts-b", class(), &[], File::new("test.tsv", "sentence1\tsentence2\tscore\na\tb\t?\n"), 1),
        ("swag", class(), &[], File::new("test.csv", &format!("{SWAG}a,b,a,b,a,b,-1\n")), 1),
        ("codah", class(), &[], File::new("test.tsv", "o\ta\tb\ta\tb\ta\t?\n"), 1),
        ("custom", class(), &classes, File::new("a.tsv", "text\tlabel\na\tegg\nb\t\nb\n"), 3),
        (
            "custom",
            class(),
            &classes,
            File::new("a.jsonl", "{\"text\":\"a\",\"label\":[\"ham\",{}]}\n"),
            1,
        ),
        (
            "custom",
            own("text,label", Kind::Number),
            &[],
            File::new("a.csv", "text,label\na,high\n"),
            1,
        ),
        (
            "custom",
            own("text,label", Kind::Tokens),
            &tags,
            File::new("a.tsv", "text\tlabel\na b\to B-PRE\na b\tO\n"),
            2,
        ),
        ("ner", class(), &tags, File::new("a.txt", "a o\nb B-PRE\n"), 1),
    ] {
        let (read, report, notes) = file.read_for(name, &options, labels, Role::Test).unwrap();
        assert_eq!((read, report.as_str()), (rows, ""), "{name}");
        assert!(
            notes[0].ends_with(
                "has labels, which are not used here; `cloze evaluate` measures by them"
            )
        );
        assert!(file.read_for(name, &options, labels, Role::Dev).is_err(), "{name}");
    }
    // Texts are no columns, also if all have as many words.
    for (text, expected) in [
        (
            "It was cold .\nWe went home .\n",
            "a.txt: no line ends with a tag; expected a word a line",
        ),
        (
            "It was cold .\nWe went .\n",
            "a.txt:2: the line has 3 columns, but those before it have 4",
        ),
    ] {
        let file = File::new("a.txt", text);
        let error = file.read_for("ner", &class(), &tags, Role::Test).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let file = File::new("dev-v2.0.json", SQUAD);
    assert_eq!(file.read_for("squad", &class(), &[], Role::Test).unwrap().0, 1);
    let error = file.read_for("squad", &class(), &[], Role::Dev).unwrap_err();
    assert!(error.to_string().contains("this is a file for squad2"));
}

#[test]
fn an_answer_that_is_not_at_its_place_is_refused_or_skipped() {
    let question = |id, start| {
        format!(
            r#"{{"id": "{id}", "question": "b?", "answers": [{{"text": "b", "answer_start": {start}}}]}}"#
        )
    };
    let questions = format!("{}, {}", question(1, 2), question(2, 0));
    let text =
        format!(r#"{{"data": [{{"paragraphs": [{{"context": "a b", "qas": [{questions}]}}]}}]}}"#);
    let file = File::new("train-v1.1.json", &text);
    let options = own("text,label", Kind::Class);
    let message = file.train_fails("squad", &options);
    assert!(message.contains("\"2\""), "{message}");
    let (rows, _, notes) = file.train("squad", &skipping(options)).unwrap();
    assert_eq!(rows, 1);
    assert!(notes[0].ends_with("answers that are not at their place, skipped: 1"), "{notes:?}");
}

#[test]
fn a_model_with_its_classes_in_another_order_has_the_same_loss() {
    let file = File::new("dev.tsv", "x\t1\t\ta b\nx\t0\t*\tb b\nx\t1\t\ta\n");
    let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"];
    let wordpiece = WordPiece::from_vocab(vocab.map(String::from).into(), Casing::Uncased).unwrap();
    let scores = |labels: [&str; 2]| {
        let mut config = Config::new(1, 8, 2, 16, 7);
        config.set_labels(&labels);
        let task = open("cola", &Options::default(), Labels::Model(&config)).unwrap();
        let layout = Layout::new(&config, &task.part().with_encoder());
        let mut values = layout.initialise(3);
        let (_, head) = layout.find("classifier.weight").unwrap();
        values[head.clone()].iter_mut().for_each(|weight| *weight *= 100.0);
        if labels[0] == "acceptable" {
            values[head].rotate_left(8);
        }
        let mut engine = CpuEngine::new(&config, &layout, values).unwrap();
        let reading = Reading {
            wordpiece: &wordpiece,
            max_len: 16,
            limit: None,
            split: None,
            bad: &mut BadRows::skipped_if(false),
            notes: &mut Vec::new(),
        };
        let data = task.read(&file.path(), Role::Dev, reading).unwrap();
        measure(&mut engine, data.as_ref()).unwrap()
    };
    let [usual, other] =
        [["unacceptable", "acceptable"], ["acceptable", "unacceptable"]].map(scores);
    assert_eq!(usual["accuracy"], other["accuracy"]);
    let loss = |scores: &Scores| scores["loss"].as_f64().unwrap();
    assert!((loss(&usual) - loss(&other)).abs() < 1e-5, "{usual:?} {other:?}");
    assert!((loss(&usual) - std::f64::consts::LN_2).abs() > 1e-2, "{usual:?}");
}

#[test]
fn a_new_task_removes_what_an_earlier_one_stored() {
    let mut config = Config::new(2, 128, 2, 512, 1000);
    let file = Path::new("unread");
    let mut described = |name: &str| {
        let task = open(name, &Options::default(), Labels::Training(file)).unwrap();
        describe(task.as_ref(), 64, &mut config);
        config.other.insert("null_score_threshold".into(), (-3.5).into());
        config.clone()
    };
    assert_eq!(described("mnli").classes(), 3);
    described("squad2");
    let mut config = config;
    let task = open("squad", &Options::default(), Labels::Training(file)).unwrap();
    describe(task.as_ref(), 64, &mut config);
    assert_eq!((config.classes(), config.labels()), (2, None));
    assert!(!config.other.contains_key("null_score_threshold"));
    assert_eq!(config.other["finetuning_task"], "squad");
}

#[test]
fn tasks_are_measured_by_their_official_metrics() {
    let metrics = |name: &str, options: &Options, labels: Labels<'_>| {
        let task = open(name, options, labels).unwrap();
        assert_eq!(task.metric(), task.metrics()[0], "{name}");
        task.metrics().join(" ")
    };
    // The labels of these tasks stand in no file.
    let file = Path::new("unread");
    for (name, expected) in [
        ("cola", "mcc accuracy loss"),
        ("ax", "mcc accuracy loss"),
        ("mrpc", "accuracy f1 loss"),
        ("qqp", "accuracy f1 loss"),
        ("sts-b", "pearson spearman loss"),
        ("sst-2", "accuracy loss"),
        ("mnli", "accuracy loss"),
        ("qnli", "accuracy loss"),
        ("rte", "accuracy loss"),
        ("wnli", "accuracy loss"),
        ("squad", "f1 exact"),
        ("squad2", "f1 exact"),
        ("swag", "accuracy loss"),
        ("codah", "accuracy loss"),
    ] {
        let own = own("text,label", Kind::Class);
        assert_eq!(metrics(name, &own, Labels::Training(file)), expected, "{name}");
    }
    let mut config = Config::new(2, 128, 2, 512, 1000);
    for (name, kind, labels, expected) in [
        ("ner", Kind::Class, &["O", "B-PER"][..], "f1 precision recall accuracy loss"),
        ("custom", Kind::Tokens, &["O", "B-PER"], "f1 precision recall accuracy loss"),
        ("custom", Kind::Tokens, &["DET", "NOUN"], "accuracy macro_f1 loss"),
        ("custom", Kind::Class, &["ham", "spam"], "accuracy f1 macro_f1 mcc loss"),
        ("custom", Kind::Number, &[], "pearson spearman loss"),
    ] {
        if !labels.is_empty() {
            config.set_labels(labels);
        }
        let own = own("text,label", kind);
        assert_eq!(metrics(name, &own, Labels::Model(&config)), expected, "{name} {kind:?}");
    }
}

#[test]
fn an_unknown_label_is_named_beside_the_first_known_ones() {
    let names: Vec<String> = (0..500).map(|i| format!("label{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let file = File::new("a.tsv", "text\tlabel\na\tlabel7\nb\tegg\n");
    for kind in [Kind::Class, Kind::Tokens] {
        let options = own("text,label", kind);
        let error = file.read_for("custom", &options, &names, Role::Dev).unwrap_err();
        let expected = "a.tsv:3: unknown label \"egg\"; known are label0, label1, label2, label3, \
                        label4, label5, label6, label7, label8, label9, … (500 in all)";
        assert!(error.to_string().ends_with(expected), "{error}");
        let (rows, report, _) =
            file.read_for("custom", &skipping(options), &names, Role::Dev).unwrap();
        assert_eq!(rows, 1);
        assert!(report.starts_with("one bad row left out: "), "{report}");
    }
}

#[test]
fn a_bad_tag_is_named_with_its_line() {
    let options = own("words,tags", Kind::Tokens);
    let file = File::new("train.txt", "a B-PER\n\na O\nb o\n\nb I-LOC\n");
    let message = file.train_fails("ner", &options);
    assert!(message.contains("train.txt:4: the tag \"o\" is no entity's"), "{message}");
    let (rows, report, _) = file.train("ner", &skipping(options.clone())).unwrap();
    assert_eq!(rows, 2);
    assert!(report.contains("one bad row left out: ") && report.contains("train.txt:4: "));
    let file = File::new("train.txt", "a B-ORG\nb\n");
    let message = file.train_fails("ner", &options);
    assert!(message.contains("train.txt:2: the line has 1 columns"), "{message}");

    let labels = ["O", "B-PER", "I-PER"];
    let file = File::new("dev.txt", "a O\nb B-PRE\n\na I-PER\n");
    let error = file.read_for("ner", &options, &labels, Role::Dev).unwrap_err();
    let expected = "dev.txt:2: the tag \"B-PRE\" is of an unknown type; known are PER";
    assert!(error.to_string().ends_with(expected), "{error}");
    let read = file.read_for("ner", &skipping(options), &labels, Role::Dev).unwrap();
    assert_eq!(read.0, 1);
}

#[test]
fn your_own_tags_of_entities_keep_to_their_scheme() {
    let options = own("words,tags", Kind::Tokens);
    let file = File::new("a.tsv", "words\ttags\na b\tB-X O\nb\tI-Y\na b\tO o\n");
    let message = file.train_fails("custom", &options);
    assert!(message.contains("a.tsv:4: the tag \"o\" is no entity's"), "{message}");
    let (rows, report, _) = file.train("custom", &skipping(options.clone())).unwrap();
    assert_eq!(rows, 2);
    assert!(report.contains("a.tsv:4: the tag \"o\" is no entity's"), "{report}");
    let error = file.read_for("custom", &options, &["O", "B-X", "I-X"], Role::Dev).unwrap_err();
    assert!(error.to_string().contains("a.tsv:3: the tag \"I-Y\" is of an unknown type"));
    // Labels that follow no scheme are taken as they are.
    let file = File::new("a.tsv", "words\ttags\na b\tB-X NOUN\nb\to\n");
    assert_eq!(file.train("custom", &options).unwrap().0, 2);
    let file = File::new(
        "a.jsonl",
        "{\"words\":[\"a\"],\"tags\":[\"x\"]}\n{\"words\":[\"a\"],\"tags\":[\"\"]}\n",
    );
    let message = file.train_fails("custom", &options);
    assert!(message.contains("a.jsonl:2: the label is empty"), "{message}");
}

#[test]
fn nothing_is_trained_or_measured_on_no_rows() {
    let codah = "o\ta\tb\ta\tb\ta\t0\n";
    let options = own("text,label", Kind::Class);
    let file = File::new("full_data.tsv", codah);
    let message = file.train_fails("codah", &options);
    assert!(
        message.contains("has too few questions (1): with fold 1 none is left to train on"),
        "{message}"
    );
    let last = Options { fold: 5, ..options.clone() };
    let error = file.read_for("codah", &last, &[], Role::Dev).unwrap_err();
    assert!(error.to_string().contains("with fold 5 none is left to measure on"));
    assert_eq!(File::new("full_data.tsv", &codah.repeat(2)).train("codah", &options).unwrap().0, 1);
    for (name, kind, file) in [
        ("rte", Kind::Class, File::new("a.tsv", "sentence1\tsentence2\tlabel\na\tb\t?\n")),
        ("swag", Kind::Class, File::new("a.csv", &format!("{SWAG}a,b,a,b,a,b,9\n"))),
        ("codah", Kind::Class, File::new("a.tsv", "a\n")),
        ("ner", Kind::Class, File::new("a.txt", "a o\n")),
        ("custom", Kind::Class, File::new("a.tsv", "text\tlabel\na\t \n")),
        ("custom", Kind::Number, File::new("a.tsv", "text\tlabel\na\thigh\n")),
        ("custom", Kind::Tokens, File::new("a.tsv", "text\tlabel\na\tx y\n")),
    ] {
        let message = file.train_fails(name, &skipping(own("text,label", kind)));
        assert!(
            message.contains("that could be used (one bad row left out: "),
            "{name}: {message}"
        );
    }
}

#[test]
fn white_space_around_a_label_is_not_part_of_it() {
    let file = File::new("a.csv", "text, label\na, spam\nb,spam\na,ham \n");
    let options = own("text,label", Kind::Class);
    assert_eq!(file.train("custom", &options).unwrap().0, 3);
    let path = file.path();
    let task = open("custom", &options, Labels::Training(&path)).unwrap();
    assert_eq!(task.part(), crate::model::Part::SequenceClassifier(2));
}

#[test]
fn a_header_that_is_read_as_a_row_gets_a_remark() {
    let rows = "a\tham\nb\tspam\n".repeat(5);
    let numbered = own("1,2", Kind::Class);
    let file = File::new("a.tsv", &format!("message\tkind\n{rows}"));
    let notes = file.train("custom", &numbered).unwrap().2;
    assert!(
        notes[0].ends_with("a.tsv:1: the label kind occurs nowhere else: is this a header? Then give the columns by name"),
        "{notes:?}"
    );
    assert!(file.train("custom", &own("message,kind", Kind::Class)).unwrap().2.is_empty());
    // Not if another row has the label, or if there are few rows.
    assert!(
        File::new("a.tsv", &format!("a\tspam\n{rows}"))
            .train("custom", &numbered)
            .unwrap()
            .2
            .is_empty()
    );
    assert!(
        File::new("a.tsv", "x\ty\na\tham\nb\tham\n")
            .train("custom", &numbered)
            .unwrap()
            .2
            .is_empty()
    );
}

#[test]
fn a_model_that_was_not_fine_tuned_is_found_before_columns_are_asked_for() {
    let mut config = Config::new(2, 128, 2, 512, 1000);
    let message = |config: &Config| {
        open("custom", &Options::default(), Labels::Model(config)).err().unwrap().to_string()
    };
    assert!(message(&config).contains("it was not fine-tuned"), "{}", message(&config));
    config.set_labels(&["ham", "spam"]);
    assert!(message(&config).contains("columns are needed"), "{}", message(&config));
}

#[test]
fn a_task_s_name_may_be_typed_in_several_ways() {
    for (typed, name) in [
        ("MRPC", "mrpc"),
        ("sst2", "sst-2"),
        ("STS-B", "sts-b"),
        ("stsB", "sts-b"),
        ("SQuAD2", "squad2"),
    ] {
        assert_eq!(named(typed), Some(name), "{typed}");
    }
    assert_eq!((named("squad3"), named("")), (None, None));
}
