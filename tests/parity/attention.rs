//! What attention computes: as in transformers, and alike in the reference and the engine.

use cloze::data::Packed;
use cloze::engine::Backend;
use cloze::model::weights::Model;
use cloze::model::{Bert, Layout, Part, SequenceAttention, Size};
use cloze::text::WordPiece;
use dfdx::prelude::Cpu;

use crate::common::{close, fixture, numbers, read_json};

/// A small random model, with the values of transformers (see the script beside it).
fn folder() -> std::path::PathBuf {
    fixture("attention")
}

#[test]
fn weights_queries_keys_and_hidden_states_are_those_of_transformers() {
    let expected = read_json(&folder().join("expected.json"));
    let model = Model::read(&folder(), &[Part::Encoder], None).unwrap();
    let wordpiece = WordPiece::from_file(&folder(), None).unwrap();
    let (a, b) = (expected["a"].as_str().unwrap(), expected["b"].as_str());
    let (encoding, segments) = wordpiece.encode_pair(a, b.unwrap());
    let mut batch = Packed::default();
    batch.push(0, &encoding.ids, &segments);
    // A second, shorter sequence changes nothing.
    batch.push(1, &encoding.ids[..5], &segments[..5]);

    // The typed modules at a size of no named model; the engine takes any size.
    let (config, layout) = (&model.config, &model.layout);
    let bert =
        Bert::<24, 3, 8, 40, f32, Cpu>::build(config, layout, &model.values, &Cpu::default());
    let reference = bert.unwrap().attention(&batch);
    let values = model.values.clone();
    let engine = Backend::Cpu.engine(config, layout, values).unwrap().attention(&batch);
    for (which, found) in [("reference", reference), ("engine", engine.unwrap())] {
        let [found, short] = &found[..] else { panic!("two sequences") };
        assert_eq!((found.tokens, found.heads, found.head_size), (19, 3, 8));
        assert_eq!((short.tokens, short.layers[1].weights.len()), (5, 3 * 25));
        for (i, layer) in found.layers.iter().enumerate() {
            for (what, values) in
                [("weights", &layer.weights), ("queries", &layer.queries), ("keys", &layer.keys)]
            {
                let expected = numbers(&expected[what][i]);
                close(&format!("{which}, layer {i}, {what}"), values, &expected, 1e-5);
            }
        }
        for (i, hidden) in found.hidden.iter().enumerate() {
            let what = format!("{which}, hidden states {i}");
            close(&what, hidden, &numbers(&expected["hidden"][i]), 1e-5);
        }
        assert_eq!((found.layers.len(), found.hidden.len()), (2, 3));
    }
}

/// Checks that every row of weights is the softmax of its query's products with the keys.
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
fn the_reference_and_the_engine_attend_alike() {
    let config = Size::Mini.config(300);
    let layout = Layout::new(&config, &[Part::Encoder]);
    let mut values = layout.initialise(7);
    // The small values of a new model would spread attention evenly.
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
    let uneven = reference[2].layers[2].weights.iter().copied().fold(0.0, f32::max);
    assert!(uneven > 0.1, "even weights would prove little: {uneven}");
}
