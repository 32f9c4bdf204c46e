//! Models of other families than BERT, with tokenizers of their own, give transformers' tokens and outputs
//! (tests/fixtures/families/make.py), also after `cloze convert`, which keeps their files' form.

use std::path::{Path, PathBuf};

use cloze::data::{Packed, Sequences};
use cloze::model::Config;
use cloze::text::WordPiece;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::common::{fixture, json, read_json, succeeds, text};
use crate::model_files::compare_outputs;

/// How far the engine's outputs may be from PyTorch's.
const TOLERANCE: f64 = 1e-4;

fn all() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture("families")).unwrap();
    let folders: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), 14);
    folders
}

/// Compares tokens and outputs of the model in `folder` with what transformers computed.
fn compare(folder: &Path, expected: &Value) {
    let wordpiece = WordPiece::from_file(folder, None).unwrap();
    let segmented = Config::read(&folder.join("config.json")).unwrap().type_vocab_size > 1;
    let mut batch = Packed::default();
    let texts = expected["texts"].as_array().unwrap();
    let pair = |t: &Value| (t["a"].as_str().unwrap().to_owned(), t["b"].as_str().map(str::to_owned));
    let pairs: Vec<_> = texts.iter().map(pair).collect();
    for (index, ((a, b), expected)) in pairs.iter().zip(texts).enumerate() {
        let (encoding, segments) = match b {
            Some(b) => wordpiece.encode_pair(a, b),
            None => {
                let encoding = wordpiece.encode_with_special(a);
                let segments = vec![0; encoding.len()];
                (encoding, segments)
            }
        };
        assert_eq!(json!(encoding.ids), expected["ids"], "{a:?}");
        assert_eq!(json!(encoding.offsets), expected["offsets"], "{a:?}");
        assert_eq!(json!(segments), expected["segments"], "{a:?}");
        batch.push(index as u64, &encoding.ids, &segments);
    }
    let borrowed: Vec<_> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_deref())).collect();
    let sequences = Sequences::tokenise(&wordpiece, &borrowed, 40).unwrap();
    let all: Vec<usize> = (0..pairs.len()).collect();
    assert_eq!(sequences.batch(&all).ids, batch.ids);
    assert_eq!(sequences.batch(&all).segments, batch.segments);
    assert!(!segmented || batch.segments.contains(&1));
    let mask = wordpiece.special().mask;
    let rows = (0..).zip(&batch.ids).filter(|(_, id)| **id == mask).map(|(row, _)| row);
    let rows: Vec<u32> = rows.collect();
    compare_outputs(folder, &batch, &rows, &expected["outputs"], TOLERANCE);
}

#[test]
fn every_class_gives_the_tokens_and_outputs_of_transformers() {
    for folder in all() {
        compare(&folder, &read_json(&folder.join("expected.json")));
    }
}

/// Returns names and shapes of the tensors in a folder.
fn tensors(folder: &Path) -> Vec<(String, Vec<usize>)> {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<_> =
        file.tensors().into_iter().map(|(name, t)| (name, t.shape().to_vec())).collect();
    all.sort();
    all
}

#[test]
fn converted_folders_have_the_same_tensors_fields_and_tokenizer() {
    let out = tempfile::tempdir().unwrap();
    for folder in all() {
        let to = out.path().join(folder.file_name().unwrap());
        let args = ["convert", text(&folder), text(&to), "--json"];
        assert_eq!(json(&succeeds(args))["left_out"], json!([]));
        compare(&to, &read_json(&folder.join("expected.json")));
        assert_eq!(tensors(&folder), tensors(&to));
        let [before, after] = [&folder, &to].map(|folder| read_json(&folder.join("config.json")));
        for (field, value) in before.as_object().unwrap() {
            // Cloze writes torch_dtype, which all versions of transformers read, and is_decoder only if it is true.
            if field != "dtype" && (field != "is_decoder" || value == true) {
                assert_eq!(&after[field], value, "{}: {field}", folder.display());
            }
        }
        let added = ["torch_dtype", "id2label", "label2id"];
        let unknown = |field: &&String| before.get(field.as_str()).is_none();
        let new: Vec<_> = after.as_object().unwrap().keys().filter(unknown).collect();
        assert!(new.iter().all(|field| added.contains(&field.as_str())), "{new:?}");
    }
}
