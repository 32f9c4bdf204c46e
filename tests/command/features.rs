//! `cloze features`: vectors of texts.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{
    assert_contains, copy_of, error_line, fails, numbers, piped, read_json, real_data_and_model,
    real_minilm, stderr, stdout, text, tiny, words,
};

/// Runs `cloze features` on `lines`.
fn features(model: &Path, lines: &str, more: &[&str]) -> Vec<Value> {
    let args = [&["features", "--model", text(model)], more].concat();
    let output = piped(args, lines);
    assert!(output.status.success(), "{}", stderr(&output));
    let objects = stdout(&output);
    objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn vectors_come_in_the_order_of_the_lines() {
    let lines = "a long line of several words comes first\nshort\n\nshort\n";
    let pooled = features(tiny(), lines, &[]);
    assert_eq!(pooled.len(), 4);
    for (object, line) in pooled.iter().zip(lines.lines()) {
        assert_eq!(object["text"], line);
        assert_eq!(numbers(&object["vector"]).len(), 128);
    }
    assert_eq!(pooled[1], pooled[3]);

    let tokens = features(tiny(), lines, &["--pool", "none", "--layers", "-2..-1"]);
    let names = tokens[1]["tokens"].as_array().unwrap();
    assert_eq!((&names[0], names.last().unwrap()), (&"[CLS]".into(), &"[SEP]".into()));
    let vectors = tokens[1]["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), names.len());
    assert_eq!(numbers(&vectors[0]).len(), 256);
    // Pooling gives the mean of the tokens' vectors in the last layer.
    for (i, expected) in numbers(&pooled[1]["vector"]).iter().enumerate() {
        let sum: f64 = vectors.iter().map(|v| numbers(v)[128 + i]).sum();
        assert!((sum / vectors.len() as f64 - expected).abs() < 1e-5);
    }
    let message = fails(["features", "--model", text(tiny()), "--layers", "-4"], 2);
    assert_contains(&message, "layers 0 (embeddings) to 2, or -3 to -1");
}

#[test]
fn texts_that_were_cut_are_counted() {
    let args = ["features", "--model", text(tiny()), "--max-len", "6"];
    let lines = "a day\nseveral words that are more than six tokens\na day\n";
    let message = stderr(&piped(args, lines));
    assert_contains(&message, "stdin: 1 of 3 texts were cut to 6 tokens");
}

#[test]
fn a_safetensors_file_holds_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.safetensors");
    let lines = "a long line of several words comes first\nshort\n";
    for pool in ["mean", "none"] {
        let more = ["--pool", pool, "--layers", "-2..-1"];
        let objects = features(tiny(), lines, &more);
        let mut all = more.to_vec();
        all.extend(["--format", "safetensors", "--out", text(&path)]);
        assert!(features(tiny(), lines, &all).is_empty());
        let bytes = std::fs::read(&path).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensor = file.tensor("vectors").unwrap();
        let (words, _) = tensor.data().as_chunks::<4>();
        let values = words.iter().map(|word| f64::from(f32::from_le_bytes(*word)));
        let expected: Vec<f64> = objects
            .iter()
            .flat_map(|object| match object.get("vector") {
                Some(one) => numbers(one),
                None => object["vectors"].as_array().unwrap().iter().flat_map(numbers).collect(),
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
            let tokens =
                objects.iter().map(|object| object["tokens"].as_array().unwrap().len() as i32);
            assert!(lengths.eq(tokens));
            assert_eq!(file.tensor("ids").unwrap().shape(), [tensor.shape()[0]]);
        }
    }
    let line = format!("features --format safetensors --model {}", text(tiny()));
    assert_contains(&fails(words(&line), 2), "--help");
}

/// A sentence-transformers folder may ask for vectors of length 1.
#[test]
fn a_folders_unit_length_can_be_overridden() {
    let folder = copy_of(tiny());
    let module = |name: &str| json!({"type": format!("sentence_transformers.models.{name}")});
    let modules = json!([module("Transformer"), module("Normalize")]);
    folder.write("modules.json", &modules.to_string());
    let of = |model: &Path, more: &[&str]| numbers(&features(model, "a day\n", more)[0]["vector"]);
    let length = |vector: &[f64]| vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    let (plain, unit) = (of(tiny(), &[]), of(folder.0.path(), &[]));
    assert!((length(&unit) - 1.0).abs() < 1e-5 && (length(&plain) - 1.0).abs() > 0.1);
    assert_eq!(of(folder.0.path(), &["--no-normalize"]), plain);
    let both = ["--normalize", "--no-normalize"];
    let args = [&["features", "--model", text(tiny())], &both[..]].concat();
    fails(args, 2);
}

#[test]
fn lines_of_two_texts_are_read_as_pairs() {
    let more = ["--pair", "--pool", "none"];
    let object = &features(tiny(), "a day\tthe night\n", &more)[0];
    assert_eq!(object["text"], "a day");
    assert_eq!(object["pair"], "the night");
    let tokens = object["tokens"].as_array().unwrap();
    assert_eq!(tokens.iter().filter(|token| *token == "[SEP]").count(), 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.jsonl");
    assert!(features(tiny(), "a\tb\n", &["--pair", "--out", text(&path)]).is_empty());
    assert_eq!(read_json(&path)["pair"], "b");

    let args = ["features", "--model", text(tiny()), "--pair", "--out", text(&path)];
    let message = error_line(&piped(args, "c\td\nno tab\n"), 1);
    assert_contains(&message, "stdin:2: expected two texts, separated by a tab");
    // The file of the earlier run is replaced only by a complete one, and a device never.
    assert_eq!(read_json(&path)["pair"], "b");
    let args = ["features", "--model", text(tiny()), "--out", "/dev/null"];
    assert_contains(&error_line(&piped(args, "a\n"), 1), "/dev/null: is not a regular file");
}

/// The cosines that the model card of all-MiniLM-L6-v2 publishes.
#[test]
fn similarities_are_those_of_the_model_card() {
    let Some((_, model)) = real_data_and_model() else {
        return;
    };
    let lines = "The weather is lovely today.\nIt's so sunny outside!\nHe drove to the stadium.\n";
    for (dtype, tolerance) in [("f32", 1e-4), ("int8", 2e-2)] {
        let objects = features(&model, lines, &["--dtype", dtype]);
        let vectors: Vec<_> = objects.iter().map(|object| numbers(&object["vector"])).collect();
        let dot = |a: usize, b: usize| -> f64 {
            vectors[a].iter().zip(&vectors[b]).map(|(x, y)| x * y).sum()
        };
        for (a, b, expected) in [(0, 0, 1.0), (0, 1, 0.6660), (0, 2, 0.1046), (1, 2, 0.1411)] {
            let cosine = dot(a, b);
            assert!((cosine - expected).abs() < tolerance, "{dtype} {a} {b}: {cosine}");
        }
    }
}

/// Every embedding of the golden file, and the last layer's `[CLS]` of its pair, as computed in f64.
#[test]
fn embeddings_and_pairs_equal_the_golden_file() {
    let Some((golden, model)) = real_minilm() else {
        return;
    };
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        let first = case["text"].as_str().unwrap();
        let (line, more, expected) = match case.get("text_pair") {
            None => (format!("{first}\n"), &[][..], &case["sentence_embedding"]),
            Some(pair) => {
                let line = format!("{first}\t{}\n", pair.as_str().unwrap());
                let more = &["--pair", "--pool", "none"][..];
                (line, more, &case["last_hidden_cls"])
            }
        };
        let object = &features(&model, &line, more)[0];
        // The folder asks for vectors of length 1 for texts, not for tokens.
        let got = numbers(object.get("vector").unwrap_or(&object["vectors"][0]));
        for (got, expected) in got.iter().zip(numbers(expected)) {
            assert!((got - expected).abs() < 1e-4, "{line}: {got} {expected}");
        }
        compared += got.len();
    }
    assert_eq!(compared, 7 * 384);
}
