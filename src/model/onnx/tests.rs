//! The structure of written files. tests/onnx compares what onnxruntime computes with the engine.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::proto::{Axis, FLOAT, Graph, Header, INT64, Tensor, Value};
use super::*;
use crate::model::{Family, PRETRAINING, Part};
use crate::text::Casing;

/// A whole file, with the fields that are written one after the other.
#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, optional, tag = "7")]
    graph: Option<Graph>,
}

/// The weights and constants of a file.
#[derive(Clone, PartialEq, Message)]
struct Weights {
    #[prost(message, optional, tag = "7")]
    graph: Option<Initializers>,
}

#[derive(Clone, PartialEq, Message)]
struct Initializers {
    #[prost(message, repeated, tag = "5")]
    tensors: Vec<Tensor>,
}

struct Written {
    header: Header,
    graph: Graph,
    tensors: BTreeMap<String, Tensor>,
}

fn config() -> Config {
    Config::new(2, 8, 2, 12, 11)
}

/// Models of the families, ELECTRA's with narrow embeddings.
fn families() -> [Config; 4] {
    [(Family::Bert, 2), (Family::Roberta, 1), (Family::DistilBert, 0), (Family::Electra, 2)].map(
        |(family, segments)| {
            let mut config = config();
            (config.model_type, config.type_vocab_size) = (family, segments);
            config.embedding_size = Some(6);
            config
        },
    )
}

fn written(config: &Config, layout: &Layout, values: &[f32]) -> Written {
    let mut bytes = Vec::new();
    bert::graph(config, layout, values).write(&mut bytes).unwrap();
    let tensors = Weights::decode(&bytes[..]).unwrap().graph.unwrap().tensors;
    let count = tensors.len();
    let tensors: BTreeMap<_, _> = tensors.into_iter().map(|t| (t.name.clone(), t)).collect();
    assert_eq!(tensors.len(), count, "a name is given twice");
    let graph = File::decode(&bytes[..]).unwrap().graph.unwrap();
    Written { header: Header::decode(&bytes[..]).unwrap(), graph, tensors }
}

fn of(config: &Config, parts: &[Part]) -> Written {
    let layout = Layout::new(config, parts);
    written(config, &layout, &layout.initialise(1))
}

/// Returns an input or output as text: its name, type and shape.
fn shown(value: &Value) -> String {
    let tensor = value.kind.as_ref().unwrap().tensor.as_ref().unwrap();
    let dims = tensor.shape.as_ref().unwrap().dims.iter();
    let dims = dims.map(|dim| match dim.size.as_ref().unwrap() {
        Axis::Fixed(n) => n.to_string(),
        Axis::Named(name) => name.clone(),
    });
    let kind = match tensor.element {
        FLOAT => "f32",
        INT64 => "i64",
        other => panic!("type {other}"),
    };
    format!("{}: {kind}[{}]", value.name, dims.collect::<Vec<_>>().join(", "))
}

#[test]
fn every_head_has_the_inputs_and_outputs_of_the_optimum_exporter() {
    let (rows, batch) = ("batch_size, sequence_length", "batch_size");
    for (parts, outputs) in [
        (vec![Part::Encoder], vec![format!("last_hidden_state: f32[{rows}, 8]")]),
        (
            vec![Part::Encoder, Part::Pooler],
            vec![
                format!("last_hidden_state: f32[{rows}, 8]"),
                format!("pooler_output: f32[{batch}, 8]"),
            ],
        ),
        (Part::SequenceClassifier(3).with_encoder(), vec![format!("logits: f32[{batch}, 3]")]),
        (Part::TokenClassifier(5).with_encoder(), vec![format!("logits: f32[{rows}, 5]")]),
        (
            Part::Span.with_encoder(),
            vec![format!("start_logits: f32[{rows}]"), format!("end_logits: f32[{rows}]")],
        ),
        (vec![Part::Encoder, Part::MaskedLm], vec![format!("logits: f32[{rows}, 11]")]),
        (
            vec![Part::Encoder, Part::Pooler, Part::NextSentence],
            vec![format!("logits: f32[{batch}, 2]")],
        ),
        (
            PRETRAINING.to_vec(),
            vec![
                format!("prediction_logits: f32[{rows}, 11]"),
                format!("seq_relationship_logits: f32[{batch}, 2]"),
            ],
        ),
        (
            Part::MultipleChoice.with_encoder(),
            vec!["logits: f32[batch_size, num_choices]".to_owned()],
        ),
    ] {
        let file = of(&config(), &parts);
        let own: Vec<String> = file.graph.outputs.iter().map(shown).collect();
        assert_eq!(own, outputs);
        let axes = match parts.contains(&Part::MultipleChoice) {
            true => "batch_size, num_choices, sequence_length",
            false => rows,
        };
        let inputs = ["input_ids", "attention_mask", "token_type_ids"];
        let inputs = inputs.map(|name| format!("{name}: i64[{axes}]"));
        assert_eq!(file.graph.inputs.iter().map(shown).collect::<Vec<_>>(), inputs);
    }
}

#[test]
fn only_models_with_several_segments_have_an_input_for_them() {
    for config in families() {
        let file = of(&config, &Part::MultipleChoice.with_encoder());
        let segments = file.graph.inputs.iter().any(|input| input.name == "token_type_ids");
        assert_eq!(segments, config.type_vocab_size > 1);
    }
    let file = of(&families()[3], &[Part::Encoder, Part::Discriminator]);
    assert_eq!(shown(&file.graph.outputs[0]), "logits: f32[batch_size, sequence_length]");
}

#[test]
fn every_value_is_computed_once_and_before_its_use() {
    let all = [
        (false, PRETRAINING.to_vec()),
        (true, PRETRAINING.to_vec()),
        (false, Part::MultipleChoice.with_encoder()),
        (true, Part::SequenceClassifier(2).with_encoder()),
        (false, Part::Span.with_encoder()),
    ];
    for (mut config, (decoder, parts)) in
        families().into_iter().flat_map(|config| all.iter().map(move |one| (config.clone(), one)))
    {
        config.is_decoder = *decoder;
        let file = of(&config, parts);
        let inputs = file.graph.inputs.iter().map(|value| &value.name);
        let mut known: BTreeSet<&String> = file.tensors.keys().chain(inputs).collect();
        let mut used = BTreeSet::new();
        for node in &file.graph.nodes {
            assert!(node.inputs.iter().all(|input| known.contains(input)), "{node:?}");
            used.extend(&node.inputs);
            assert!(node.outputs.iter().all(|output| known.insert(output)), "{node:?}");
        }
        used.extend(file.graph.outputs.iter().map(|value| &value.name));
        assert_eq!(known.difference(&used).collect::<Vec<_>>(), Vec::<&&String>::new());
    }
}

#[test]
fn the_file_holds_every_parameter_once_and_linear_weights_turned() {
    let layout = Layout::new(&config(), &PRETRAINING);
    let values: Vec<f32> = (0..layout.total()).map(|i| i as f32).collect();
    let file = written(&config(), &layout, &values);
    assert_eq!((file.header.ir_version, file.header.opset_import[0].version), (8, 17));
    let numbers = |tensor: &Tensor| -> Vec<f32> {
        let bytes = tensor.raw_data.chunks_exact(4);
        bytes.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    let (mut weights, mut turned) = (0, 0);
    for (parameter, range) in layout.iter() {
        let values = &values[range];
        if let Some(tensor) = file.tensors.get(&parameter.name) {
            let dims: Vec<usize> = tensor.dims.iter().map(|&n| n as usize).collect();
            assert_eq!((dims, &numbers(tensor)[..]), (parameter.shape.clone(), values));
        } else {
            let tensor = &file.tensors[&format!("{}_transposed", parameter.name)];
            let (rows, columns) = (parameter.shape[0], parameter.shape[1]);
            assert_eq!(tensor.dims, [columns as i64, rows as i64]);
            let own = numbers(tensor);
            for (index, value) in values.iter().enumerate() {
                assert_eq!(own[index % columns * rows + index / columns], *value);
            }
            turned += 1;
        }
        weights += 1;
    }
    let constant =
        |name: &&String| ["number_", "int_", "ints_"].iter().any(|start| name.starts_with(start));
    let constants = file.tensors.keys().filter(constant).count();
    assert_eq!(weights + constants, file.tensors.len());
    // Four in each attention and two in each feed-forward block, the pooler and one in each head.
    assert_eq!(turned, 2 * 6 + 3);
}

#[test]
fn what_one_file_cannot_hold_is_refused_before_anything_is_written() {
    let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned).to_vec();
    let wordpiece = WordPiece::from_vocab(vocab, Casing::Uncased).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let fails = |config: &Config, values: &[f32]| {
        let layout = Layout::new(config, &[Part::Encoder]);
        let written = write(folder.path(), config, &layout, values, &wordpiece);
        let message = written.unwrap_err().to_string();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        message
    };
    let large = Config::new(1, 64, 2, 64, 1 << 23);
    let message = fails(&large, &[]);
    assert!(message.contains("the weights need 2.0 GiB in f32"), "{message}");
    let small = config();
    let layout = Layout::new(&small, &[Part::Encoder]);
    let message = fails(&small, &vec![f32::NAN; layout.total()]);
    assert!(message.contains("word_embeddings.weight would hold NaN"), "{message}");
}
