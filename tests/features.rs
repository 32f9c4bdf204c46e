//! Vectors of texts through the command, as a user runs it.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{cloze, fails, real, text, tiny};
use serde_json::Value;

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
