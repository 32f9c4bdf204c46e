//! Vectors of texts through the command, as a user runs it.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{cloze, fails, real, text, tiny};
use serde_json::{Value, json};

/// Runs `cloze features` over `lines`.
fn features(model: &Path, lines: &str, more: &[&str]) -> Vec<Value> {
    use std::io::Write as _;
    let mut child = cloze()
        .args(["features", "--model", text(model)])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn vector(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap();
    list.iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn features_come_in_the_order_of_the_lines() {
    let lines = "a long line of several words comes first\nshort\n\nshort\n";
    let pooled = features(tiny(), lines, &[]);
    assert_eq!(pooled.len(), 4);
    for (object, line) in pooled.iter().zip(lines.lines()) {
        assert_eq!(object["text"], line);
        assert_eq!(vector(&object["vector"]).len(), 128);
    }
    assert_eq!(pooled[1], pooled[3]);

    let tokens = features(tiny(), lines, &["--pool", "none", "--layers", "-2..-1"]);
    let names = tokens[1]["tokens"].as_array().unwrap();
    assert_eq!(
        (&names[0], names.last().unwrap()),
        (&"[CLS]".into(), &"[SEP]".into())
    );
    let vectors = tokens[1]["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), names.len());
    assert_eq!(vector(&vectors[0]).len(), 256);
    // The mean over tokens of the last layer is what pooling gives.
    for (i, expected) in vector(&pooled[1]["vector"]).iter().enumerate() {
        let sum: f64 = vectors.iter().map(|v| vector(v)[128 + i]).sum();
        assert!((sum / vectors.len() as f64 - expected).abs() < 1e-5);
    }
    let message = fails(&["features", "--model", text(tiny()), "--layers", "-4"], 2);
    assert!(
        message.contains("layers 0 (embeddings) to 2, or -3 to -1"),
        "{message}"
    );
}

#[test]
fn a_safetensors_file_holds_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.safetensors");
    let lines = "a long line of several words comes first\nshort\n";
    for pool in ["mean", "none"] {
        let more = ["--pool", pool, "--layers", "-2..-1"];
        let told = features(tiny(), lines, &more);
        let mut all = more.to_vec();
        all.extend(["--format", "safetensors", "--out", text(&path)]);
        assert!(features(tiny(), lines, &all).is_empty());
        let bytes = std::fs::read(&path).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensor = file.tensor("vectors").unwrap();
        let (words, _) = tensor.data().as_chunks::<4>();
        let values = words
            .iter()
            .map(|word| f64::from(f32::from_le_bytes(*word)));
        let expected: Vec<f64> = told
            .iter()
            .flat_map(|object| match object.get("vector") {
                Some(one) => vector(one),
                None => object["vectors"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(vector)
                    .collect(),
            })
            .collect();
        assert_eq!(tensor.shape(), [expected.len() / 256, 256]);
        for (value, expected) in values.zip(&expected) {
            assert!((value - expected).abs() < 1e-6);
        }
        if pool == "none" {
            let ends = file.tensor("cu_seqlens").unwrap();
            let (ends, _) = ends.data().as_chunks::<4>();
            let lengths = ends
                .windows(2)
                .map(|pair| i32::from_le_bytes(pair[1]) - i32::from_le_bytes(pair[0]));
            let tokens = told
                .iter()
                .map(|object| object["tokens"].as_array().unwrap().len() as i32);
            assert!(lengths.eq(tokens));
            assert_eq!(file.tensor("ids").unwrap().shape(), [tensor.shape()[0]]);
        }
    }
    let message = fails(
        &[
            "features",
            "--model",
            text(tiny()),
            "--format",
            "safetensors",
        ],
        2,
    );
    assert!(message.contains("--help"), "{message}");
}

/// A sentence-transformers folder may ask for vectors of length 1.
#[test]
fn a_folder_s_wish_for_unit_length_can_be_declined() {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(tiny()).unwrap().flatten() {
        if file.path().is_file() {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
    }
    let module = |name: &str| json!({"type": format!("sentence_transformers.models.{name}")});
    let modules = json!([module("Transformer"), module("Normalize")]);
    std::fs::write(folder.path().join("modules.json"), modules.to_string()).unwrap();
    let of = |model: &Path, more: &[&str]| vector(&features(model, "a day\n", more)[0]["vector"]);
    let length = |vector: &[f64]| vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    let (plain, unit) = (of(tiny(), &[]), of(folder.path(), &[]));
    assert!((length(&unit) - 1.0).abs() < 1e-5 && (length(&plain) - 1.0).abs() > 0.1);
    assert_eq!(of(folder.path(), &["--no-normalize"]), plain);
    let both = ["--normalize", "--no-normalize"];
    let args = [&["features", "--model", text(tiny())], &both[..]].concat();
    assert!(cloze().args(args).output().unwrap().status.code() == Some(2));
}

#[test]
fn lines_of_two_texts_are_read_as_pairs() {
    let told = features(tiny(), "a day\tthe night\n", &["--pair", "--pool", "none"]);
    assert_eq!(
        (&told[0]["text"], &told[0]["pair"]),
        (&"a day".into(), &"the night".into())
    );
    let tokens = told[0]["tokens"].as_array().unwrap();
    assert_eq!(tokens.iter().filter(|token| *token == "[SEP]").count(), 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.jsonl");
    assert!(features(tiny(), "a\tb\n", &["--pair", "--out", text(&path)]).is_empty());
    let line: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(line["pair"], "b");

    let mut child = cloze()
        .args(["features", "--model", text(tiny()), "--pair"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write as _;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"a\tb\nno tab\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message.contains("stdin:2: expected two texts, separated by a tab"),
        "{message}"
    );
}

/// The cosines that the model card of all-MiniLM-L6-v2 publishes.
#[test]
fn sentences_are_as_alike_as_the_model_card_says() {
    let Some((_, model)) = real() else { return };
    let lines = "The weather is lovely today.\nIt's so sunny outside!\nHe drove to the stadium.\n";
    let vectors: Vec<_> = features(&model, lines, &[])
        .iter()
        .map(|object| vector(&object["vector"]))
        .collect();
    let dot = |a: usize, b: usize| -> f64 {
        vectors[a].iter().zip(&vectors[b]).map(|(x, y)| x * y).sum()
    };
    for (a, b, expected) in [(0, 0, 1.0), (0, 1, 0.6660), (0, 2, 0.1046), (1, 2, 0.1411)] {
        let cosine = dot(a, b);
        assert!((cosine - expected).abs() < 1e-4, "{a} {b}: {cosine}");
    }
}

/// Every embedding of the golden file, and the last layer's `[CLS]` of its pair: computed in f64.
#[test]
fn embeddings_and_pairs_are_the_golden_ones() {
    let Some((data, model)) = real() else { return };
    let file = std::fs::File::open(data.join("golden/minilm-l6-v2-forward.json.gz")).unwrap();
    let golden: Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        let first = case["text"].as_str().unwrap();
        let (line, more, expected) = match case.get("text_pair") {
            None => (format!("{first}\n"), &[][..], &case["sentence_embedding"]),
            Some(pair) => {
                let line = format!("{first}\t{}\n", pair.as_str().unwrap());
                (
                    line,
                    &["--pair", "--pool", "none"][..],
                    &case["last_hidden_cls"],
                )
            }
        };
        let told = &features(&model, &line, more)[0];
        // A single token's vector isn't scaled to length 1, as the folder asks for a text's.
        let got = vector(told.get("vector").unwrap_or(&told["vectors"][0]));
        for (got, expected) in got.iter().zip(vector(expected)) {
            assert!((got - expected).abs() < 1e-4, "{line}: {got} {expected}");
        }
        compared += got.len();
    }
    assert_eq!(compared, 7 * 384);
}
