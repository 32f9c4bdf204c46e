//! Fine-tuning with `--frozen`: only a head on top of a frozen encoder is trained.

use std::path::Path;

use crate::common::{
    Folder, assert_contains, cloze, error_line, fails, json, real_data_and_model, stderr, succeeds,
    tiny,
};
use crate::{finetuned, real_entities};

/// Returns a folder with data for `ner` and `sst-2` that follow a rule.
fn data() -> Folder {
    let folder = Folder::new();
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
        folder.write(name, &columns);
    }
    for name in ["train.tsv", "dev.tsv"] {
        folder.write(name, &sentences);
    }
    folder
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
fn a_token_classifier_is_trained_alone_and_loaded_again() {
    let folder = data();
    let trained = folder.finetuned("ner", &["--frozen", "--lr", "1e-2", "--seeds", "2"]);
    assert!(trained["dev"]["f1"].as_f64().unwrap() > 0.9, "{trained}");
    assert_eq!(folder.evaluated("ner", "eng.testa", &[]), trained["dev"]);
    // A finished run is reported without computing the vectors again.
    let more = ["--frozen", "--lr", "1e-2", "--seeds", "2", "--resume"];
    let args = folder.finetune("ner", &more);
    let again = succeeds(args);
    assert_eq!(json(&again), trained);
    assert!(!stderr(&again).contains("computing the vectors"));
    let line = folder.predicted("ner", "eng.testa", &["--json"]);
    assert_contains(&line, "\"B-PER\"");

    // Five labels from all two layers of 128; the encoder is unchanged.
    let head = tensors(&folder.path("out/head.safetensors"));
    let shapes: Vec<_> =
        head.iter().map(|(name, shape, _)| (name.as_str(), shape.clone())).collect();
    assert_eq!(shapes, [("classifier.bias", vec![5]), ("classifier.weight", vec![5, 256])]);
    let before = tensors(&tiny().join("model.safetensors"));
    for (name, _, values) in tensors(&folder.path("out/model.safetensors")) {
        let old = before.iter().find(|(old, ..)| *old == format!("bert.{name}"));
        assert_eq!(old.unwrap().2, values, "{name}");
    }

    // Fine-tuning the whole model replaces it.
    folder.finetuned("ner", &["--epochs", "1"]);
    assert!(!folder.path("out").join("head.safetensors").exists());
    folder.evaluated("ner", "eng.testa", &[]);
}

#[test]
fn the_kind_of_own_words_is_stored() {
    let folder = data();
    let rows = "words\ttags\nwarm day\tGOOD -\ncold day\t- -\n".repeat(8);
    let rows = rows.replace("\nwords\ttags\n", "\n");
    folder.write("train.tsv", &rows).write("dev.tsv", &rows);
    let more = ["--frozen", "--columns", "words,tags", "--kind", "tokens", "--epochs", "1"];
    let trained = folder.finetuned("custom", &more);
    assert_eq!(folder.evaluated("custom", "dev.tsv", &[]), trained["dev"]);
    let answer = folder.predicted("custom", "dev.tsv", &["--json"]);
    assert_contains(&answer, "\"tags\"");
}

#[test]
fn a_text_classifier_reads_pooled_vectors() {
    let folder = data();
    let more = ["--frozen", "--lr", "1e-2", "--layers", "-1", "--pool", "cls"];
    let trained = folder.finetuned("sst-2", &more);
    assert!(trained["dev"]["accuracy"].as_f64().unwrap() > 0.9, "{trained}");
    assert_eq!(folder.evaluated("sst-2", "dev.tsv", &[]), trained["dev"]);
    let head = tensors(&folder.path("out/head.safetensors"));
    assert_eq!(head[1].1, [2, 128]);
    let message = fails(folder.ask("evaluate", "ner", "eng.testa", &[]), 2);
    assert_contains(&message, "reads every token");
}

#[test]
fn an_lstm_is_trained_and_loaded_again() {
    let folder = data();
    let more = "--frozen --head bilstm --lstm-width 16 --lr 1e-2";
    let more: Vec<&str> = more.split(' ').collect();
    let trained = folder.finetuned("ner", &more);
    assert!(trained["dev"]["f1"].as_f64().unwrap() > 0.9, "{trained}");
    assert_eq!(folder.evaluated("ner", "eng.testa", &[]), trained["dev"]);
    let head = tensors(&folder.path("out/head.safetensors"));
    let of = |wanted: &str| head.iter().find(|(name, ..)| name == wanted).unwrap();
    assert_eq!(of("lstm.weight_ih_l0").1, [64, 256]);
    assert_eq!(of("lstm.weight_hh_l1_reverse").1, [64, 16]);
    assert_eq!(of("classifier.weight").1, [5, 32]);
    let message = fails(folder.finetune("sst-2", &more), 2);
    assert_contains(&message, "an LSTM reads every token");
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let folder = data();
    let refused = |more: &[&str]| fails(folder.finetune("ner", more), 2);
    assert_contains(&refused(&["--frozen", "--layers", "-4..-1"]), "-3 to -1");
    assert_contains(&refused(&["--frozen", "--pool", "mean"]), "every token");
    assert_contains(
        &refused(&["--lr-search", "1e-3,2e-3,0.001"]),
        "--lr-search: 1e-3 is given twice",
    );
    for more in [
        &["--frozen", "--recompute"][..],
        &["--layers", "-1"],
        &["--head", "bilstm"],
        &["--frozen", "--lr-search"],
    ] {
        refused(more);
    }
    // These are refused before the vectors are computed, which may take long.
    for more in [&["--pool", "none"], &["--head", "bilstm"]] {
        let args = folder.finetune("sst-2", &[&["--frozen"], &more[..]].concat());
        let output = cloze().args(args).output().unwrap();
        assert!(error_line(&output, 2).contains("reads whole texts"));
        assert!(!stderr(&output).contains("computing the vectors"));
    }
}

/// The paper's feature-based experiment on a part of CoNLL-2003, with a sentence encoder instead of BERT.
#[test]
fn real_entities_are_found_without_fine_tuning() {
    let Some((data, model)) = real_data_and_model() else {
        return;
    };
    let more = ["--frozen", "--limit", "1000", "--epochs", "10"];
    let trained = finetuned(&model, "ner", real_entities(&data).0.path(), &more);
    assert!(trained["dev"]["f1"].as_f64().unwrap() > 0.6, "{trained}");
}
