//! Heads on encoders that stand still, through the command, as a user runs it.

mod common;

use std::path::{Path, PathBuf};

use common::{cloze, fails, json, real, sentence, stderr, succeeds, text, tiny};
use serde_json::Value;

struct Folder(tempfile::TempDir);

impl Folder {
    /// A task of words and one of sentences that a rule decides.
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let mut columns = String::new();
        let mut sentences = String::from("sentence\tlabel\n");
        for i in 0..120 {
            let name = ["Alice", "Robert", "Hannah"][i % 3];
            let place = ["York", "Rome"][i % 2];
            columns += &format!("{name} NNP I-NP I-PER\nwent VB I-VP O\nto TO O O\n");
            columns += &format!("{place} NNP I-NP I-LOC\n. . O O\n\n");
            let (word, label) = [("cold", 0), ("warm", 1), ("dark", 0), ("bright", 1)][i % 4];
            sentences += &format!("it was a {word} day\t{label}\n");
        }
        for name in ["eng.train", "eng.testa"] {
            std::fs::write(folder.path(name), &columns).unwrap();
        }
        for name in ["train.tsv", "dev.tsv"] {
            std::fs::write(folder.path(name), &sentences).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn arguments(&self, task: &str, more: &[&str]) -> Vec<String> {
        let out = self.path("out");
        let mut args = vec!["finetune", task, "--model", text(tiny()), "--json"];
        args.extend(["--data", text(self.0.path()), "--out", text(&out)]);
        if !more.contains(&"--resume") {
            args.push("--overwrite");
        }
        args.extend(more);
        args.into_iter().map(str::to_owned).collect()
    }

    fn finetune(&self, task: &str, more: &[&str]) -> Value {
        let args = self.arguments(task, more);
        json(&succeeds(
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
        ))
    }

    fn fails(&self, task: &str, more: &[&str]) -> String {
        let args = self.arguments(task, more);
        fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 2)
    }

    fn again(&self, command: &str, task: &str, file: &str) -> Vec<u8> {
        let (out, file) = (self.path("out"), self.path(file));
        let data = ["--data", "--input"][usize::from(command == "predict")];
        let args = [
            command,
            task,
            "--json",
            "--model",
            text(&out),
            data,
            text(&file),
        ];
        succeeds(&args).stdout
    }

    fn tensors(&self, name: &str) -> Vec<(String, Vec<usize>, Vec<u8>)> {
        tensors(&self.path("out").join(name))
    }
}

fn tensors(path: &Path) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| (name, view.shape().to_vec(), view.data().to_vec()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_head_over_words_is_trained_alone_and_found_again() {
    let folder = Folder::new();
    let trained = folder.finetune("ner", &["--frozen", "--lr", "1e-2", "--seeds", "2"]);
    assert!(trained["dev"]["f1"].as_f64().unwrap() > 0.9, "{trained}");
    let evaluated: Value =
        serde_json::from_slice(&folder.again("evaluate", "ner", "eng.testa")).unwrap();
    assert_eq!(evaluated["dev"], trained["dev"]);
    // Done, it needs no vectors to be told again.
    let more = ["--frozen", "--lr", "1e-2", "--seeds", "2", "--resume"];
    let args = folder.arguments("ner", &more);
    let told = cloze().args(args).output().unwrap();
    assert_eq!(json(&told), trained);
    assert!(!stderr(&told).contains("computing the vectors"));
    let line = folder.again("predict", "ner", "eng.testa");
    assert!(String::from_utf8(line).unwrap().contains("\"B-PER\""));

    // Two layers of 128, all there are, for five labels; the encoder is what it was.
    let head = folder.tensors("head.safetensors");
    let shapes: Vec<_> = head
        .iter()
        .map(|(name, shape, _)| (name.as_str(), shape.clone()))
        .collect();
    assert_eq!(
        shapes,
        [
            ("classifier.bias", vec![5]),
            ("classifier.weight", vec![5, 256])
        ]
    );
    let before = tensors(&tiny().join("model.safetensors"));
    for (name, _, values) in folder.tensors("model.safetensors") {
        let old = before
            .iter()
            .find(|(old, ..)| *old == format!("bert.{name}"));
        assert_eq!(old.unwrap().2, values, "{name}");
    }

    // A model that was trained as a whole takes its place.
    folder.finetune("ner", &["--epochs", "1"]);
    assert!(!folder.path("out").join("head.safetensors").exists());
    folder.again("evaluate", "ner", "eng.testa");
}

#[test]
fn a_head_over_texts_reads_pooled_vectors() {
    let folder = Folder::new();
    let more = [
        "--frozen", "--lr", "1e-2", "--layers", "-1", "--pool", "cls",
    ];
    let trained = folder.finetune("sst-2", &more);
    assert!(
        trained["dev"]["accuracy"].as_f64().unwrap() > 0.9,
        "{trained}"
    );
    let evaluated: Value =
        serde_json::from_slice(&folder.again("evaluate", "sst-2", "dev.tsv")).unwrap();
    assert_eq!(evaluated["dev"], trained["dev"]);
    let shape = &folder.tensors("head.safetensors")[1].1;
    assert_eq!(*shape, [2, 128]);
    let out = folder.path("out");
    let data = folder.path("eng.testa");
    let args = [
        "evaluate",
        "ner",
        "--data",
        text(&data),
        "--model",
        text(&out),
    ];
    assert!(fails(&args, 2).contains("reads every token"));
}

#[test]
fn an_lstm_between_is_trained_and_found_again() {
    let folder = Folder::new();
    let more = [
        "--frozen",
        "--head",
        "bilstm",
        "--lstm-width",
        "16",
        "--lr",
        "1e-2",
    ];
    let trained = folder.finetune("ner", &more);
    assert!(trained["dev"]["f1"].as_f64().unwrap() > 0.9, "{trained}");
    let evaluated: Value =
        serde_json::from_slice(&folder.again("evaluate", "ner", "eng.testa")).unwrap();
    assert_eq!(evaluated["dev"], trained["dev"]);
    let head = folder.tensors("head.safetensors");
    let of = |wanted: &str| head.iter().find(|(name, ..)| name == wanted).unwrap();
    assert_eq!(of("lstm.weight_ih_l0").1, [64, 256]);
    assert_eq!(of("lstm.weight_hh_l1_reverse").1, [64, 16]);
    assert_eq!(of("classifier.weight").1, [5, 32]);
    assert!(
        folder
            .fails("sst-2", &more)
            .contains("an LSTM reads every token")
    );
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let folder = Folder::new();
    assert!(
        folder
            .fails("ner", &["--frozen", "--layers", "-4..-1"])
            .contains("-3 to -1")
    );
    assert!(
        folder
            .fails("ner", &["--frozen", "--pool", "mean"])
            .contains("every token")
    );
    for more in [
        &["--frozen", "--recompute"][..],
        &["--layers", "-1"],
        &["--head", "bilstm"],
        &["--frozen", "--lr-search"],
    ] {
        folder.fails("ner", more);
    }
    // Before the vectors are computed, which may take long.
    for more in [&["--pool", "none"], &["--head", "bilstm"]] {
        let args = folder.arguments("sst-2", &[&["--frozen"], &more[..]].concat());
        let output = cloze().args(args).output().unwrap();
        assert!(sentence(&output, 2).contains("reads whole texts"));
        assert!(!stderr(&output).contains("computing the vectors"));
    }
}

/// The feature-based experiment of the paper on a part of CoNLL-2003, with a sentence encoder in
/// BERT's place.
#[test]
fn real_entities_are_found_without_fine_tuning() {
    let Some((data, model)) = real() else { return };
    let out = tempfile::tempdir().unwrap();
    let folder = data.join("conll2003");
    let mut args = vec![
        "finetune",
        "ner",
        "--json",
        "--model",
        text(&model),
        "--frozen",
    ];
    args.extend(["--data", text(&folder), "--out", text(out.path())]);
    args.extend(["--limit", "1000", "--epochs", "10"]);
    let trained = json(&succeeds(&args));
    assert!(trained["dev"]["f1"].as_f64().unwrap() > 0.6, "{trained}");
}
