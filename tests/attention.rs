//! What a model looks at, against transformers, and the command that makes a page of it.

mod common;

use std::path::{Path, PathBuf};

use cloze::data::Packed;
use cloze::engine::Backend;
use cloze::model::weights::Model;
use cloze::model::{Bert, Layout, Part, SequenceAttention, Size};
use cloze::text::WordPiece;
use common::{fails, json, succeeds, text};
use dfdx::prelude::Cpu;
use serde_json::Value;

/// A small random model, with what transformers says about it (see the script beside it).
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/attention")
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(fixture().join("expected.json")).unwrap()).unwrap()
}

fn close(what: &str, got: &[f32], expected: &Value, most: f64) {
    let expected = expected.as_array().unwrap();
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected.as_f64().unwrap()).abs();
        assert!(error < most, "{what} [{i}]: {got}, expected {expected}");
    }
}

#[test]
fn weights_queries_keys_and_hidden_states_are_those_of_transformers() {
    let expected = expected();
    let model = Model::read(&fixture(), &[Part::Encoder], None).unwrap();
    let wordpiece = WordPiece::from_file(&fixture(), None).unwrap();
    let (a, b) = (expected["a"].as_str().unwrap(), expected["b"].as_str());
    let (encoding, segments) = wordpiece.encode_pair(a, b.unwrap());
    let mut batch = Packed::default();
    batch.push(0, &encoding.ids, &segments);
    // A second, shorter sequence must change nothing.
    batch.push(1, &encoding.ids[..5], &segments[..5]);

    // The typed modules at a size that no named model has, and the way for sizes without a type.
    let (config, layout) = (&model.config, &model.layout);
    let bert =
        Bert::<24, 3, 8, 40, f32, Cpu>::build(config, layout, &model.values, &Cpu::default());
    let reference = bert.unwrap().attention(&batch);
    let values = model.values.clone();
    let engine = Backend::Cpu
        .engine(config, layout, values)
        .unwrap()
        .attention(&batch);
    for (which, found) in [("reference", reference), ("engine", engine.unwrap())] {
        let [found, short] = &found[..] else {
            panic!("two sequences")
        };
        assert_eq!((found.tokens, found.heads, found.head_size), (19, 3, 8));
        assert_eq!((short.tokens, short.layers[1].weights.len()), (5, 3 * 25));
        for (i, layer) in found.layers.iter().enumerate() {
            let what = |part: &str| format!("{which}, layer {i}, {part}");
            close(
                &what("weights"),
                &layer.weights,
                &expected["weights"][i],
                1e-5,
            );
            close(
                &what("queries"),
                &layer.queries,
                &expected["queries"][i],
                1e-5,
            );
            close(&what("keys"), &layer.keys, &expected["keys"][i], 1e-5);
        }
        for (i, hidden) in found.hidden.iter().enumerate() {
            let what = format!("{which}, hidden states {i}");
            close(&what, hidden, &expected["hidden"][i], 1e-5);
        }
        assert_eq!((found.layers.len(), found.hidden.len()), (2, 3));
    }
}

/// Every weight is what its query and its key make of it, and every row is shared out as a whole.
fn consistent(found: &SequenceAttention) {
    for layer in 0..found.layers.len() {
        for head in 0..found.heads {
            for (token, row) in found.weights(layer, head).chunks(found.tokens).enumerate() {
                let sum: f32 = row.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5, "{layer}.{head}.{token}: {sum}");
                let query = found.query(layer, head, token);
                let scores = (0..found.tokens).map(|other| {
                    let key = found.key(layer, head, other);
                    let dot: f32 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                    f64::from(dot) / (found.head_size as f64).sqrt()
                });
                let powers: Vec<f64> = scores.map(f64::exp).collect();
                let total: f64 = powers.iter().sum();
                for (weight, power) in row.iter().zip(powers) {
                    assert!((f64::from(*weight) - power / total).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn the_reference_and_the_engine_look_at_the_same() {
    let config = Size::Mini.config(300);
    let layout = Layout::new(&config, &[Part::Encoder]);
    let mut values = layout.initialise(7);
    // Far from the small values of a new model, whose heads look everywhere alike.
    for (parameter, range) in layout.iter() {
        if !parameter.name.contains("LayerNorm") {
            values[range].iter_mut().for_each(|v| *v *= 5.0);
        }
    }
    let mut batch = Packed::default();
    for (sequence, length) in [(0, 37), (1, 5), (2, 64), (3, 1)] {
        let ids: Vec<u32> = (0..length).map(|i| (i * 31 + 7) % 300).collect();
        let segments: Vec<u32> = (0..length).map(|i| u32::from(i > length / 2)).collect();
        batch.push(sequence, &ids, &segments);
    }
    let [reference, engine] = [Backend::Reference, Backend::Cpu].map(|backend| {
        let mut engine = backend.engine(&config, &layout, values.clone()).unwrap();
        let found = engine.attention(&batch).unwrap();
        let states = engine.hidden_states(&batch, 0..5).unwrap();
        for (layer, all) in states.layers.iter().enumerate() {
            let parts: Vec<f32> = found.iter().flat_map(|f| f.hidden[layer].clone()).collect();
            assert_eq!(parts.len(), all.len());
            assert!(parts.iter().zip(all).all(|(a, b)| (a - b).abs() < 1e-5));
        }
        found
    });
    for (a, b) in reference.iter().zip(&engine) {
        consistent(a);
        consistent(b);
        for (a, b) in a.layers.iter().zip(&b.layers) {
            let far = a.weights.iter().zip(&b.weights).map(|(a, b)| (a - b).abs());
            let far = far.fold(0.0, f32::max);
            assert!(far < 1e-4, "{far}");
        }
    }
    let uneven = reference[2].layers[2]
        .weights
        .iter()
        .copied()
        .fold(0.0, f32::max);
    assert!(
        uneven > 0.1,
        "weights all alike would prove little: {uneven}"
    );
}

/// Arguments for the fixture's two texts.
fn arguments<'a>(folder: &'a str, texts: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["attention", "--model", folder], texts, more].concat()
}

#[test]
fn the_command_prints_the_weights_and_writes_the_page() {
    let expected = expected();
    let (fixture, out) = (fixture(), tempfile::tempdir().unwrap());
    let page = out.path().join("deep/view.html");
    let texts = ["a", "b"].map(|key| expected[key].as_str().unwrap());
    let more = ["--json", "--out", text(&page), "--view", "neuron"];
    let printed = json(&succeeds(&arguments(text(&fixture), &texts, &more)));
    assert_eq!(printed["tokens"], expected["tokens"]);
    assert_eq!(printed["segments"], expected["segments"]);
    assert_eq!(printed["layers"], serde_json::json!([0, 1]));
    for (layer, weights) in printed["weights"].as_array().unwrap().iter().enumerate() {
        let heads = weights.as_array().unwrap();
        assert_eq!((heads.len(), heads[0].as_array().unwrap().len()), (3, 19));
        let rows = heads.iter().flat_map(|head| head.as_array().unwrap());
        let numbers = rows.flat_map(|row| row.as_array().unwrap());
        let numbers: Vec<f32> = numbers.map(|v| v.as_f64().unwrap() as f32).collect();
        close("weights", &numbers, &expected["weights"][layer], 1e-5);
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\"view\":\"neuron\""));

    // The last layer of one text alone; without --out nothing is written.
    let more = ["--json", "--layers", "-1"];
    let printed = json(&succeeds(&arguments(text(&fixture), &texts[..1], &more)));
    assert_eq!(printed["layers"], serde_json::json!([1]));
    assert_eq!(printed["segments"], serde_json::json!(vec![0; 8]));
}

#[test]
fn wrong_arguments_exit_2_and_failed_work_exits_1() {
    let (fixture, folder) = (fixture(), tempfile::tempdir().unwrap());
    let model = text(&fixture);
    let page = folder.path().join("view.html");
    let out = ["--out", text(&page)];
    let wrong = |texts: &[&str], more: &[&str], code| {
        let said = fails(&arguments(model, texts, &[&out, more].concat()), code);
        assert!(!page.exists(), "{said}");
        said
    };
    assert!(wrong(&[""], &[], 2).contains("the first text has no tokens"));
    assert!(wrong(&["store", " \u{200b}\t"], &[], 2).contains("the second text has no tokens"));
    let layers = wrong(&["store"], &["--layers", "2"], 2);
    assert!(
        layers.contains("layers 2: the model has layers 0 to 1, or -2 to -1"),
        "{layers}"
    );
    wrong(&["store"], &["--view", "tail"], 2);
    fails(&["attention", "--model", model, "store"], 2);
    let long = wrong(&[&"store ".repeat(23)], &[], 1);
    assert!(
        long.contains("25 tokens") && long.contains("24 positions"),
        "{long}"
    );
    let backend = wrong(&["store"], &["--backend", "reference"], 1);
    assert!(
        backend.contains("24/3/40") && backend.contains("384/12/1536 (minilm)"),
        "{backend}"
    );

    let missing = folder.path().join("none");
    let said = fails(&arguments(text(&missing), &["store"], &out), 1);
    assert!(
        said.contains("none is neither a folder nor the name of a model"),
        "{said}"
    );
    // A file stands where a folder would have to be.
    std::fs::write(folder.path().join("file"), "").unwrap();
    let below = folder.path().join("file/view.html");
    let said = fails(&arguments(model, &["store"], &["--out", text(&below)]), 1);
    assert!(said.contains("file"), "{said}");
    let said = fails(
        &arguments(model, &["store"], &["--out", text(folder.path())]),
        1,
    );
    assert!(said.contains(text(folder.path())), "{said}");
}
