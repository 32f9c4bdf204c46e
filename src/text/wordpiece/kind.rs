//! The kinds of tokenizers that a `tokenizer.json` may describe: where words begin, which tokens have which
//! role, and how texts are joined.

use std::collections::HashMap;

use serde_json::{Map, Value};
use tokenizers::Tokenizer;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

use super::{Casing, SpecialIds};

/// How a tokenizer cuts text into pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// BERT's: words between blanks and punctuation, of which a piece that continues one begins with `##`.
    WordPiece,
    /// RoBERTa's byte-pair encoding of bytes: the first piece of a word begins with `Ġ`, the blank before it.
    ByteLevel,
    /// XLM-RoBERTa's SentencePiece Unigram: the first piece of a word begins with `▁`, the blank before it.
    Unigram,
}

impl Kind {
    /// Returns the kind and casing of a `tokenizer.json`'s pipeline, or which part of it is unknown.
    pub fn of(tokenizer: &Tokenizer) -> Result<(Self, Casing), &'static str> {
        match tokenizer.get_model() {
            ModelWrapper::WordPiece(_) => Ok((Self::WordPiece, bert_casing(tokenizer)?)),
            ModelWrapper::BPE(_) if is_byte_level(tokenizer.get_pre_tokenizer()) => {
                Ok((Self::ByteLevel, Casing::Cased))
            }
            ModelWrapper::BPE(_) => Err("pre-tokenizer is not ByteLevel"),
            ModelWrapper::Unigram(_) => Ok((Self::Unigram, Casing::Cased)),
            ModelWrapper::WordLevel(_) => Err("model is WordLevel"),
        }
    }

    /// Returns whether a token that is not special continues a word.
    pub fn continues(self, token: &str) -> bool {
        match self {
            Self::WordPiece => token.starts_with("##"),
            Self::ByteLevel => !token.starts_with('Ġ'),
            Self::Unigram => !token.starts_with('▁'),
        }
    }
}

fn is_byte_level(pre_tokenizer: Option<&PreTokenizerWrapper>) -> bool {
    let byte_level = |part: &PreTokenizerWrapper| matches!(part, PreTokenizerWrapper::ByteLevel(_));
    match pre_tokenizer {
        Some(PreTokenizerWrapper::Sequence(parts)) => parts.as_ref().iter().any(byte_level),
        other => other.is_some_and(byte_level),
    }
}

/// Returns the casing of a WordPiece pipeline, or which part of it is not BERT's.
fn bert_casing(tokenizer: &Tokenizer) -> Result<Casing, &'static str> {
    if let ModelWrapper::WordPiece(model) = tokenizer.get_model()
        && (model.continuing_subword_prefix != "##" || model.unk_token != "[UNK]")
    {
        return Err("model does not use ## and [UNK]");
    }
    let Some(PreTokenizerWrapper::BertPreTokenizer(_)) = tokenizer.get_pre_tokenizer() else {
        return Err("pre-tokenizer is not BertPreTokenizer");
    };
    match tokenizer.get_normalizer() {
        Some(NormalizerWrapper::BertNormalizer(normalizer)) => Ok(Casing::of(normalizer)),
        _ => Err("normalizer is not BertNormalizer"),
    }
}

/// The roles of special tokens in a `tokenizer_config.json`, each with BERT's and RoBERTa's name.
pub const ROLES: [(&str, [&str; 2]); 5] = [
    ("pad_token", ["[PAD]", "<pad>"]),
    ("unk_token", ["[UNK]", "<unk>"]),
    ("cls_token", ["[CLS]", "<s>"]),
    ("sep_token", ["[SEP]", "</s>"]),
    ("mask_token", ["[MASK]", "<mask>"]),
];

/// Finds the special tokens by their roles: as `config`, the `tokenizer_config.json`, names them, else by
/// their usual names.
pub fn special_ids(
    ids: &HashMap<String, u32>,
    config: &Map<String, Value>,
) -> Result<SpecialIds, String> {
    let mut found = ROLES.map(|(role, usual)| {
        let token = config.get(role);
        let named = token.and_then(|token| token.as_str().or_else(|| token["content"].as_str()));
        let names = named.into_iter().chain(usual);
        names.filter_map(|name| ids.get(name).copied()).next().ok_or_else(|| {
            let [bert, roberta] = usual;
            format!("the vocabulary has no {role}: neither {bert} nor {roberta} is in it")
        })
    });
    let mut next = found.iter_mut().map(|id| std::mem::replace(id, Ok(0)));
    let mut id = || next.next().unwrap_or(Ok(0));
    Ok(SpecialIds { pad: id()?, unk: id()?, cls: id()?, sep: id()?, mask: id()? })
}

/// How two texts are joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The tokens between the two: `[SEP]`, or RoBERTa's `</s></s>`.
    pub between: Vec<u32>,
    /// The segment id of the second text.
    pub segment: u32,
}

impl Join {
    /// Returns what the post-processor puts around two texts; None unless it is `[CLS] a [SEP] b [SEP]` with
    /// any number of separators between them.
    pub fn of(tokenizer: &Tokenizer, special: SpecialIds) -> Option<Self> {
        let single = tokenizer.encode("", true).ok()?;
        let pair = tokenizer.encode(("", ""), true).ok()?;
        let [first, between @ .., last] = pair.get_ids() else {
            return None;
        };
        let fits = single.get_ids() == [special.cls, special.sep]
            && [*first, *last] == [special.cls, special.sep]
            && !between.is_empty()
            && between.iter().all(|&id| id == special.sep);
        fits.then(|| Self {
            between: between.to_vec(),
            segment: *pair.get_type_ids().last().unwrap_or(&0),
        })
    }
}
