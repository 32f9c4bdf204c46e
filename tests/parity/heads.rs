//! Every head against transformers: with equal weights, equal batches and no dropout, the gradients of the first
//! step and the losses of 20 steps of AdamW agree to 1e-4. tests/fixtures/heads has the fixtures and their script.

use cloze::data::{Examples, Packed, PretrainingBatch, Sequences, Targets};
use cloze::engine::optimizer::{Optimizer, Update};
use cloze::engine::{Backend, BertEngine};
use cloze::model::weights::Model;
use cloze::model::{Dropout, Part};
use serde_json::Value;

use crate::common::{fixture, read_json};
use crate::compare_gradients;

const NO_DROPOUT: Dropout = Dropout { seed: 0, step: 0 };

fn numbers(value: &Value) -> Vec<u32> {
    let list = value.as_array().unwrap();
    list.iter().map(|x| x.as_u64().unwrap() as u32).collect()
}

fn rows(value: &Value) -> Vec<Vec<u32>> {
    value.as_array().unwrap().iter().map(numbers).collect()
}

/// Returns the labels of all rows in one list, with None for -100.
fn labels(value: &Value) -> Vec<Option<u32>> {
    let sequences = value.as_array().unwrap().iter();
    let rows = sequences.flat_map(|row| row.as_array().unwrap());
    rows.map(|x| u32::try_from(x.as_i64().unwrap()).ok()).collect()
}

fn packed(batch: &Value) -> Packed {
    let mut packed = Packed::default();
    let (ids, segments) = (rows(&batch["ids"]), rows(&batch["segments"]));
    for (index, (ids, segments)) in ids.iter().zip(&segments).enumerate() {
        packed.push(index as u64, ids, segments);
    }
    packed
}

/// Computes the gradients of a batch as the trainer does and returns the mean loss.
fn gradients(engine: &mut dyn BertEngine, head: &str, batch: &Value) -> f64 {
    let packed = packed(batch);
    let all = &batch["targets"];
    let targets = match head {
        "sequence" => Targets::Classes(numbers(all)),
        "regression" => {
            let values = all.as_array().unwrap().iter();
            Targets::Values(values.map(|x| x.as_f64().unwrap() as f32).collect())
        }
        "choice" => Targets::Choices(numbers(all)),
        "token" => Targets::Rows(labels(all)),
        "span" => Targets::Spans(rows(all).iter().map(|s| [s[0], s[1]]).collect()),
        _ => return pretraining_gradients(engine, packed, batch),
    };
    let mut sequences = Sequences::default();
    for (ids, segments) in rows(&batch["ids"]).iter().zip(rows(&batch["segments"])) {
        let first = segments.iter().filter(|&&s| s == 0).count();
        let (a, b) = ids.split_at(first);
        sequences.push(&[(a, 0), (b, 1)]);
    }
    let choices = if head == "choice" { 4 } else { 1 };
    let examples = Examples { sequences: sequences.with_choices(choices), targets };
    let all: Vec<usize> = (0..examples.len()).collect();
    let (loss, tokens) =
        cloze::train::finetune::gradients(engine, &examples, &all, 0, NO_DROPOUT).unwrap();
    assert_eq!(tokens as usize, packed.rows());
    loss
}

fn pretraining_gradients(engine: &mut dyn BertEngine, packed: Packed, batch: &Value) -> f64 {
    let all = labels(&batch["targets"]);
    let masked = || all.iter().enumerate().filter_map(|(row, label)| Some((row as u32, (*label)?)));
    let batch = PretrainingBatch {
        packed,
        masked_rows: masked().map(|(row, _)| row).collect(),
        masked_labels: masked().map(|(_, label)| label).collect(),
        next_labels: match &batch["following"] {
            Value::Null => Vec::new(),
            following => numbers(following),
        },
    };
    engine.pretraining_gradients(&batch, NO_DROPOUT).unwrap().loss()
}

fn parts(head: &str) -> Vec<Part> {
    match head {
        "sequence" => Part::SequenceClassifier(3).with_encoder(),
        "regression" => Part::SequenceClassifier(1).with_encoder(),
        "choice" => Part::MultipleChoice.with_encoder(),
        "token" => Part::TokenClassifier(4).with_encoder(),
        "span" => Part::Span.with_encoder(),
        "causal" => vec![Part::Encoder, Part::MaskedLm],
        _ => cloze::model::PRETRAINING.to_vec(),
    }
}

/// Checks the fixture of this name: that of a head, with the family before it unless it is BERT.
fn agrees(name: &str) {
    let folder = fixture("heads").join(name);
    let file = read_json(&folder.join("batches.json"));
    let (family, head) = name.split_once('-').unwrap_or(("bert", name));
    let parts = match (family, head) {
        ("bert", _) | (_, "sequence" | "choice" | "token" | "span") => parts(head),
        _ => vec![Part::Encoder, Part::MaskedLm],
    };
    let model = Model::read(&folder, &parts, None).unwrap();
    let layout = model.layout.clone();
    let mut engine = Backend::Cpu.engine(&model.config, &layout, model.values).unwrap();
    let batches = file["batches"].as_array().unwrap();
    for (step, expected) in (1u64..).zip(file["losses"].as_array().unwrap()) {
        let batch = &batches[(step as usize - 1) % batches.len()];
        let loss = gradients(engine.as_mut(), head, batch);
        let expected = expected.as_f64().unwrap();
        let error = (loss - expected).abs() / expected.max(1.0);
        assert!(error < 1e-4, "{name}, step {step}: loss {loss}, transformers {expected}");
        if step == 1 {
            compare_gradients(name, &folder, engine.as_ref());
        }
        let update =
            Update { optimizer: Optimizer::default(), learning_rate: 1e-3, step, max_norm: 1.0 };
        engine.update(&update).unwrap();
    }
}

#[test]
fn a_classifier_is_that_of_transformers() {
    agrees("sequence");
}

#[test]
fn a_regression_is_that_of_transformers() {
    agrees("regression");
}

#[test]
fn a_multiple_choice_is_that_of_transformers() {
    agrees("choice");
}

#[test]
fn a_token_classifier_is_that_of_transformers() {
    agrees("token");
}

#[test]
fn a_span_head_is_that_of_transformers() {
    agrees("span");
}

#[test]
fn roberta_is_that_of_transformers() {
    agrees("roberta-sequence");
    agrees("roberta-pretraining");
}

#[test]
fn distilbert_is_that_of_transformers() {
    for head in ["sequence", "token", "span", "pretraining"] {
        agrees(&format!("distilbert-{head}"));
    }
}

#[test]
fn electra_is_that_of_transformers() {
    for head in ["sequence", "choice", "token", "span", "pretraining"] {
        agrees(&format!("electra-{head}"));
    }
}

#[test]
fn a_left_to_right_model_is_that_of_transformers() {
    agrees("causal");
}

#[test]
fn pre_training_is_that_of_transformers() {
    agrees("pretraining");
}
