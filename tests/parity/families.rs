//! Models of other families than BERT, with tokenizers of their own, give transformers' tokens and outputs
//! (tests/fixtures/families/make.py), also after `cloze convert`, which keeps their files' form.

use std::path::{Path, PathBuf};

use cloze::data::pretraining::masking::Masker;
use cloze::data::{Packed, Sequences};
use cloze::model::weights::Model;
use cloze::model::{Config, Part};
use cloze::text::WordPiece;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use proptest::prelude::*;

use crate::common::{assert_contains, fails, fixture, json, read_json, succeeds, text};
use crate::model_files::compare_outputs;

/// How far the engine's outputs may be from PyTorch's.
const TOLERANCE: f64 = 1e-4;

fn all() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture("families")).unwrap();
    let is_model = |path: &PathBuf| path.join("config.json").exists();
    let folders: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(is_model).collect();
    assert_eq!(folders.len(), 21);
    folders
}

/// Compares tokens and outputs of the model in `folder` with what transformers computed.
fn compare(folder: &Path, expected: &Value) {
    let wordpiece = WordPiece::from_file(folder, None).unwrap();
    let segmented = Config::read(&folder.join("config.json")).unwrap().type_vocab_size > 1;
    let mut batch = Packed::default();
    let texts = expected["texts"].as_array().unwrap();
    let pair =
        |t: &Value| (t["a"].as_str().unwrap().to_owned(), t["b"].as_str().map(str::to_owned));
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

/// Copies a fixture into a new folder.
fn copied(name: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture("families").join(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

/// As in roberta-large-mnli: the encoder's pooler stands beside the classifier's own first layer.
#[test]
fn an_unused_pooler_beside_robertas_classifier_is_ignored() {
    let folder = copied("RobertaForSequenceClassification");
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut all = file.tensors();
    for end in ["weight", "bias"] {
        let like = file.tensor(&format!("classifier.dense.{end}")).unwrap();
        let like = safetensors::tensor::TensorView::new(
            like.dtype(),
            like.shape().to_vec(),
            &bytes[..like.data().len()],
        );
        all.push((format!("roberta.pooler.dense.{end}"), like.unwrap()));
    }
    std::fs::write(&path, safetensors::serialize(all, None).unwrap()).unwrap();
    compare(folder.path(), &read_json(&folder.path().join("expected.json")));
}

#[test]
fn a_base_model_starts_a_classifier_with_fresh_layers() {
    let folder = fixture("families").join("DistilBertForMaskedLM");
    let model = Model::read(&folder, &Part::SequenceClassifier(4).with_encoder(), Some(1)).unwrap();
    assert_eq!(model.fresh, [Part::Pooler, Part::SequenceClassifier(4)]);
    assert_eq!(model.left_out, [Part::MaskedLm]);
    let folder = fixture("families").join("ElectraForPreTraining");
    let model = Model::read(&folder, &Part::Span.with_encoder(), Some(1)).unwrap();
    assert_eq!((model.fresh, model.left_out), (vec![Part::Span], vec![Part::Discriminator]));
}

/// Errors name the tensors as the file does.
#[test]
fn a_missing_tensor_is_named_as_in_the_family_s_files() {
    for (class, gone, expected) in [
        ("RobertaForMaskedLM", "lm_head.dense.bias", "lm_head.dense.bias of shape [16]"),
        (
            "DistilBertModel",
            "transformer.layer.1.ffn.lin2.bias",
            "transformer.layer.1.ffn.lin2.bias of shape [16]",
        ),
        (
            "DistilBertForMaskedLM",
            "distilbert.transformer.layer.0.attention.q_lin.weight",
            "distilbert.transformer.layer.0.attention.q_lin.weight of shape [16, 16]",
        ),
        (
            "ElectraForMultipleChoice",
            "sequence_summary.summary.bias",
            "sequence_summary.summary.bias of shape [16]",
        ),
        (
            "ElectraForSequenceClassification",
            "electra.embeddings_project.weight",
            "electra.embeddings_project.weight of shape [16, 8]",
        ),
    ] {
        let folder = copied(class);
        let path = folder.path().join("model.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        let mut all = SafeTensors::deserialize(&bytes).unwrap().tensors();
        let before = all.len();
        all.retain(|(name, _)| name != gone);
        assert_eq!(all.len() + 1, before);
        std::fs::write(&path, safetensors::serialize(all, None).unwrap()).unwrap();
        let message = Model::read_all(folder.path()).unwrap_err().to_string();
        assert_contains(&message, &format!("tensor {expected} is missing"));
    }
    let folder = fixture("families").join("RobertaModel");
    let refused = Model::read(&folder, &[Part::Encoder, Part::MaskedLm], None).unwrap_err();
    assert_contains(&refused.to_string(), "holds no masked-LM head (lm_head)");
}

#[test]
fn what_a_family_lacks_is_refused_with_a_sentence() {
    let folder = fixture("families").join("RobertaForMaskedLM");
    let out = tempfile::tempdir().unwrap();
    let model = text(&folder);
    let pairs = ["pretrain", "--init", model, "--out", text(out.path()), "--steps", "1"];
    let expected = "models of model_type \"roberta\" have no next-sentence head";
    assert_contains(&fails(pairs, 2), expected);
    let blank = fails(["fill-mask", "--model", model, "A [MASK]."], 2);
    assert_contains(&blank, "has no <mask>: write one where a word is missing");
    let other = copied("RobertaModel");
    std::fs::rename(other.path().join("tokenizer.json"), other.path().join("merges.txt")).unwrap();
    let bare = fails(["tokenize", "--vocab", text(other.path())], 1);
    assert_contains(&bare, "there is no tokenizer.json, but merges.txt");
    for (class, expected) in [
        ("DistilBertForMaskedLM", "\"distilbert\", because it adds segment embeddings"),
        ("ElectraForMaskedLM", "\"electra\", because it has neither their GELU pooler"),
    ] {
        let folder = fixture("families").join(class);
        let (folder, out) = (text(&folder), text(out.path()));
        let args = ["pretrain", "--init", folder, "--no-nsp", "--seq", "20", "--steps", "1"];
        let args = [&args[..], &["--backend", "reference", "--out", out]].concat();
        assert_contains(&fails(args, 2), expected);
    }
}

fn tokenizers() -> [WordPiece; 3] {
    ["RobertaModel", "XLMRobertaForMaskedLM", "DistilBertModel"]
        .map(|name| WordPiece::from_file(&fixture("families").join(name), None).unwrap())
}

proptest! {
    /// The fast way gives the ids of the library's own pipeline, which the words of a text do not share.
    #[test]
    fn every_text_has_the_tokens_of_the_library(text in "[a-zA-Z .,'\\u{e9}\\u{1f600}\\t\\n\\u{3000}<>/]{0,40}") {
        for (wordpiece, name) in tokenizers().iter().zip(["RobertaModel", "XLMRobertaForMaskedLM", "DistilBertModel"]) {
            let path = fixture("families").join(name).join("tokenizer.json");
            let library = tokenizers::Tokenizer::from_file(path).unwrap();
            let expected = library.encode_char_offsets(text.as_str(), false).unwrap();
            let encoding = wordpiece.encode(&text);
            prop_assert_eq!(&encoding.ids, expected.get_ids());
            prop_assert_eq!(&encoding.offsets, expected.get_offsets());
            let mut ids = Vec::new();
            wordpiece.encode_ids(&text, &mut ids);
            prop_assert_eq!(ids, encoding.ids);
        }
    }
}

/// The pieces of a word are masked together: where words begin, a blank is part of the piece.
#[test]
fn whole_words_are_masked() {
    for wordpiece in &tokenizers()[..2] {
        let mask = wordpiece.special().mask;
        let masker = Masker::new(wordpiece, 0.3, true, 5);
        let text = "barked houses Dächern barked houses Dächern barked houses";
        let encoding = wordpiece.encode_with_special(text);
        let starts: Vec<bool> =
            encoding.ids.iter().map(|&id| !wordpiece.is_continuation(id)).collect();
        // One word start for each word but the first, which has no blank before it in a byte-level vocabulary.
        let begun = starts[2..starts.len() - 1].iter().filter(|&&start| start).count();
        assert_eq!(begun, 7);
        let mut masked = 0;
        for example in 0..50 {
            let mut ids = encoding.ids.clone();
            let targets = masker.mask(example, &mut ids);
            let chosen = |at: usize| targets.iter().any(|target| target.position as usize == at);
            for (at, start) in starts.iter().enumerate().take(ids.len() - 1).skip(2) {
                assert!(*start || chosen(at) == chosen(at - 1), "{targets:?}");
            }
            masked += ids.iter().filter(|&&id| id == mask).count();
        }
        assert!(masked > 50);
    }
}

/// A word of a sentence has the pieces that it has behind a blank.
#[test]
fn words_are_tokenised_as_behind_a_blank() {
    for wordpiece in tokenizers() {
        let (mut word, mut whole) = (Vec::new(), Vec::new());
        wordpiece.encode_ids_after_blank("houses", &mut word);
        wordpiece.encode_ids("the houses", &mut whole);
        assert!(whole.ends_with(&word) && whole.len() > word.len());
    }
}
