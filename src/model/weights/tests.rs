use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::*;

fn small() -> Model {
    let mut config = Config::new(1, 8, 2, 16, 11);
    config.max_position_embeddings = 6;
    let layout = Layout::new(&config, &PRETRAINING);
    let values = layout.initialise(3);
    Model {
        config,
        layout,
        values,
        fresh: Vec::new(),
        left_out: Vec::new(),
        saved_with: Checksums::default(),
        file: PathBuf::new(),
    }
}

/// Name, shape and bytes.
type Tensor = (String, Vec<usize>, Vec<u8>);

/// Rewrites the file with its tensors changed by `change`.
fn rewritten(folder: &Path, change: impl Fn(&mut Vec<Tensor>)) {
    let path = folder.join(WEIGHTS);
    let bytes = std::fs::read(&path).unwrap();
    let mut tensors: Vec<_> = SafeTensors::deserialize(&bytes)
        .unwrap()
        .tensors()
        .into_iter()
        .map(|(name, v)| (name, v.shape().to_vec(), v.data().to_vec()))
        .collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(name, shape, data)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), data).unwrap();
        (name.clone(), view)
    });
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_part_that_is_missing_is_initialised_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = small();
    model.write(folder.path()).unwrap();
    rewritten(folder.path(), |t| t.retain(|(name, ..)| !name.starts_with("cls.")));
    let refused = Model::read(folder.path(), &PRETRAINING, None).unwrap_err();
    assert!(refused.to_string().contains("holds no masked-LM head"), "{refused}");
    let filled = Model::read(folder.path(), &PRETRAINING, Some(3)).unwrap();
    assert_eq!(filled.fresh, [Part::MaskedLm, Part::NextSentence]);
    assert_eq!(filled.values, model.values);
}

#[test]
fn a_task_head_is_read_back_and_one_with_other_classes_is_reinitialised() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = small();
    for (part, class) in [
        (Part::SequenceClassifier(3), "BertForSequenceClassification"),
        (Part::MultipleChoice, "BertForMultipleChoice"),
        (Part::TokenClassifier(5), "BertForTokenClassification"),
        (Part::Span, "BertForQuestionAnswering"),
    ] {
        model.layout = Layout::new(&model.config, &part.with_encoder());
        model.values = model.layout.initialise(4);
        model.write(folder.path()).unwrap();
        let again = Model::read_all(folder.path()).unwrap();
        assert_eq!(again.config.architectures, [class]);
        assert!(again.layout.parts().contains(&part), "{part:?}");
        assert_eq!(again.values.len(), model.values.len(), "{part:?}");
        let same = Model::read(folder.path(), &part.with_encoder(), None).unwrap();
        assert_eq!(same.values, model.values, "{part:?}");
    }
    let part = Part::SequenceClassifier(3);
    model.layout = Layout::new(&model.config, &part.with_encoder());
    model.values = model.layout.initialise(4);
    model.write(folder.path()).unwrap();
    let other = Part::SequenceClassifier(2);
    let fresh = Model::read(folder.path(), &other.with_encoder(), Some(1)).unwrap();
    assert_eq!(fresh.fresh, [other]);
    // The head starts as it would in a new model; everything else comes from the file.
    let start = fresh.layout.initialise(1);
    for (parameter, range) in fresh.layout.iter() {
        let expected = match parameter.part == other {
            true => &start[range.clone()],
            false => model.parameter(&parameter.name).unwrap(),
        };
        assert_eq!(&fresh.values[range], expected, "{}", parameter.name);
    }
    let refused = Model::read(folder.path(), &other.with_encoder(), None).unwrap_err();
    let expected = "classifier.weight has shape [3, 8], but config.json asks for [2, 8]";
    assert!(refused.to_string().contains(expected), "{refused}");
}

#[test]
fn a_damaged_file_is_refused_with_the_tensor_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(WEIGHTS);
    let message = || Model::read_all(folder.path()).unwrap_err().to_string();

    small().write(folder.path()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 7, 100, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(message().contains("cut short"), "{}", message());
    }

    let refused = |expected: &str, change: fn(&mut Vec<Tensor>)| {
        small().write(folder.path()).unwrap();
        rewritten(folder.path(), change);
        assert!(message().contains(expected), "{}", message());
    };
    let expected = "tensor bert.encoder.layer.0.output.dense.weight of shape [8, 16] is missing";
    refused(expected, |t| {
        t.retain(|(name, ..)| name != "bert.encoder.layer.0.output.dense.weight");
    });
    let expected = "tensor bert.encoder.layer.1.output.dense.bias belongs to no model of 1 layers";
    refused(expected, |t| {
        let name = "bert.encoder.layer.1.output.dense.bias";
        t.push((name.into(), vec![1], vec![0; 4]));
    });
    let expected = "pooler.dense.weight has shape [4, 16], but config.json asks for [8, 8]";
    refused(expected, |t| {
        let pooler = t.iter_mut().find(|(name, ..)| name == "bert.pooler.dense.weight");
        pooler.unwrap().1 = vec![4, 16];
    });
    // Such a tensor takes no bytes in the file, but its shape could ask for any amount of memory.
    let expected = "tensor classifier.weight of shape [1152921504606846976, 0] holds no value";
    refused(expected, |t| {
        t.push(("classifier.weight".into(), vec![1 << 60, 0], Vec::new()));
    });
}

#[test]
fn a_flipped_bit_is_never_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(WEIGHTS);
    let model = small();
    model.write(folder.path()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let (header, _) = SafeTensors::read_metadata(&whole).unwrap();
    let data = size_of::<u64>() + header;
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        match Model::read_all(folder.path()) {
            // Nothing depends on the spaces that fill the header up, nor on the names of checksums.
            Ok(read) => assert!(at < data && read.values == model.values, "byte {at}"),
            Err(e) => assert!(at < data || e.to_string().contains("is damaged"), "byte {at}: {e}"),
        }
    }
}

#[test]
fn a_tensor_under_two_names_and_an_output_matrix_of_its_own_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = || Model::read_all(folder.path()).unwrap_err().to_string();
    small().write(folder.path()).unwrap();
    rewritten(folder.path(), |t| t.push(("pooler.dense.bias".into(), vec![8], vec![0; 32])));
    assert!(message().contains("stored twice"), "{}", message());

    small().write(folder.path()).unwrap();
    let decoder = "cls.predictions.decoder.weight";
    rewritten(folder.path(), |t| {
        let words = "bert.embeddings.word_embeddings.weight";
        let words = t.iter().find(|(name, ..)| name == words).unwrap().clone();
        t.push((decoder.into(), words.1, words.2));
    });
    let tied = Model::read_all(folder.path()).unwrap();
    assert_eq!(tied.values, small().values);
    rewritten(folder.path(), |t| {
        let (_, _, bytes) = t.iter_mut().find(|(name, ..)| name == decoder).unwrap();
        bytes[0] ^= 1;
    });
    let expected = "only a masked-LM head tied to the word embeddings is supported";
    assert!(message().contains(expected), "{}", message());
    // Without that head the matrix is ignored.
    Model::read(folder.path(), &[Part::Encoder, Part::Pooler], None).unwrap();
}

/// Writes the model in two shards, the pooler in the second, and returns the index.
fn sharded(folder: &Path) -> serde_json::Value {
    small().write(folder).unwrap();
    let whole = std::fs::read(folder.join(WEIGHTS)).unwrap();
    let whole = SafeTensors::deserialize(&whole).unwrap();
    let mut map = serde_json::Map::new();
    for (shard, of_pooler) in [("model-1.safetensors", false), ("model-2.safetensors", true)] {
        let mut views = whole.tensors();
        views.retain(|(name, _)| name.contains("pooler") == of_pooler);
        for (name, _) in &views {
            map.insert(name.clone(), shard.into());
        }
        std::fs::write(folder.join(shard), safetensors::serialize(views, None).unwrap()).unwrap();
    }
    std::fs::remove_file(folder.join(WEIGHTS)).unwrap();
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    std::fs::write(folder.join(INDEX), index.to_string()).unwrap();
    index
}

#[test]
fn shards_are_one_model_and_a_broken_set_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let index = sharded(folder.path());
    let message = || Model::read_all(folder.path()).unwrap_err().to_string();
    assert_eq!(Model::read_all(folder.path()).unwrap().values, small().values);

    let write = |index: &serde_json::Value| {
        std::fs::write(folder.path().join(INDEX), index.to_string()).unwrap();
    };
    for outside in ["../model-2.safetensors", "/etc/passwd", "sub/x.safetensors"] {
        let mut changed = index.clone();
        changed["weight_map"]["bert.pooler.dense.bias"] = outside.into();
        write(&changed);
        let expected = "which is not the name of a safetensors file beside the index";
        assert!(message().contains(expected), "{}", message());
    }
    let mut changed = index.clone();
    changed["weight_map"]["bert.pooler.dense.bias"] = "model-1.safetensors".into();
    write(&changed);
    let expected = "tensor bert.pooler.dense.bias, which the index lists here, is missing";
    assert!(message().contains(expected), "{}", message());
    write(&serde_json::json!({"weight_map": {}}));
    assert!(message().contains("lists no tensors"), "{}", message());
    write(&serde_json::json!([]));
    assert!(message().contains("is not an index"), "{}", message());

    write(&index);
    std::fs::remove_file(folder.path().join("model-2.safetensors")).unwrap();
    assert!(message().contains("model-2.safetensors"), "{}", message());
}

#[test]
fn formats_that_only_python_reads_are_refused_with_the_line_that_converts_them() {
    // The files of the folder, and parts of the message.
    for case in [
        "pytorch_model.bin config.json vocab.txt|pytorch_model.bin, a pickle file|\
         import BertForMaskedLM as M; M.from_pretrained('",
        "pytorch_model.bin.index.json config.json|pytorch_model.bin.index.json, a pickle file",
        "tf_model.h5 config.json|tf_model.h5, TensorFlow's format|\
         from_tf=True).save_pretrained('converted')",
        "bert_model.ckpt.data-00000-of-00001 bert_model.ckpt.index bert_config.json|\
         a checkpoint of TensorFlow|import BertForPreTraining as M|\
         /bert_model.ckpt.index', from_tf=True",
        "flax_model.msgpack|from_flax=True",
        "config.json|neither model.safetensors nor model.safetensors.index.json",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (files, expected) = case.split_once('|').unwrap();
        for name in files.split(' ') {
            let text = r#"{"architectures": ["BertForMaskedLM"]}"#;
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let message = Model::read_all(folder.path()).unwrap_err().to_string();
        for part in expected.split('|') {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn half_precision_is_written_rounded_and_recorded_in_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = small();
    model.config.other.insert("dtype".into(), "float64".into());
    let rounded = |format: NumberFormat, x: f32| match format {
        NumberFormat::F32 => x,
        NumberFormat::F16 => half::f16::from_f32(x).to_f32(),
        NumberFormat::Bf16 => half::bf16::from_f32(x).to_f32(),
    };
    let write = |model: &Model, format| {
        let (config, layout) = (&model.config, &model.layout);
        write_as(folder.path(), config, layout, &model.values, format)
    };
    let weights = folder.path().join(WEIGHTS);
    let size = || std::fs::metadata(&weights).unwrap().len();
    write(&model, NumberFormat::F32).unwrap();
    let whole = size();
    for format in [NumberFormat::F16, NumberFormat::Bf16] {
        write(&model, format).unwrap();
        // The headers differ by a few bytes.
        assert!((whole - size()).abs_diff(2 * model.values.len() as u64) < 100);
        let again = Model::read_all(folder.path()).unwrap();
        let expected: Vec<f32> = model.values.iter().map(|&x| rounded(format, x)).collect();
        assert_eq!(again.values, expected);
        assert_eq!(again.config.other["torch_dtype"], format.name());
        assert!(!again.config.other.contains_key("dtype"));
    }
    model.values[0] = 70_000.0;
    write(&model, NumberFormat::Bf16).unwrap();
    let message = write(&model, NumberFormat::F16).unwrap_err().to_string();
    let expected = "word_embeddings.weight holds a value beyond f16's maximum of 65504";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn class_names_are_written_for_transformers_and_parts_that_its_class_lacks_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = small();
    // A classifier of three classes becomes a model that finds answers.
    model.config.set_labels(&["yes", "no", "maybe"]);
    let parts = [Part::Encoder, Part::Pooler, Part::Span];
    model.layout = Layout::new(&model.config, &parts);
    model.values = model.layout.initialise(4);
    model.write(folder.path()).unwrap();
    let again = Model::read_all(folder.path()).unwrap();
    assert_eq!(again.config.labels().unwrap(), ["LABEL_0", "LABEL_1"]);
    assert_eq!(again.layout.parts(), [Part::Encoder, Part::Span]);
    assert_eq!(again.left_out, [Part::Pooler]);
}
