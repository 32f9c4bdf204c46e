//! Reading a vocabulary or a described tokenizer from files, checking it, and writing it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokenizers::Tokenizer;
use tokenizers::normalizers::NormalizerWrapper;

use super::{Casing, SPECIAL_TOKENS, WordPiece, library};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::text::files::read_to_string;

impl WordPiece {
    /// Reads a `vocab.txt`: one token a line, the first line being id 0.
    pub fn from_vocab_file(path: &Path, casing: Casing) -> Result<Self> {
        let text = read_to_string(path)?;
        let mut vocab: Vec<String> = text
            .split('\n')
            .map(|line| line.strip_suffix('\r').unwrap_or(line).to_owned())
            .collect();
        while vocab.last().is_some_and(String::is_empty) {
            vocab.pop();
        }
        check(&vocab).map_err(|fault| match fault.line {
            Some(line) => Error::line(path, line, fault.message),
            None => Error::file(path, fault.message),
        })?;
        Self::from_vocab(vocab, casing)
    }

    /// Reads a `vocab.txt`, a `tokenizer.json`, or a model folder, which holds one of them.
    ///
    /// Without `casing`, the file says: `tokenizer.json` itself, for `vocab.txt` the
    /// `do_lower_case` of a `tokenizer_config.json` beside it, else uncased.
    pub fn from_file(path: &Path, casing: Option<Casing>) -> Result<Self> {
        if !path.is_dir() {
            let json = path.extension().is_some_and(|e| e == "json");
            return if json {
                Self::from_json_file(path, casing)
            } else {
                let casing = casing.map_or_else(|| configured_casing(path), Ok)?;
                Self::from_vocab_file(path, casing)
            };
        }
        let file = Self::file_in(path);
        if !file.is_file() {
            let message = "the folder holds neither a tokenizer.json nor a vocab.txt";
            return Err(Error::file(path, message));
        }
        Self::from_file(&file, casing)
    }

    /// The file that describes the tokenizer in a model folder: `tokenizer.json` where there is one,
    /// else `vocab.txt`.
    pub fn file_in(folder: &Path) -> PathBuf {
        let json = folder.join("tokenizer.json");
        if json.is_file() {
            json
        } else {
            folder.join("vocab.txt")
        }
    }

    /// Reads a `tokenizer.json` that describes a BERT tokenizer.
    fn from_json_file(path: &Path, casing: Option<Casing>) -> Result<Self> {
        let text = read_to_string(path)?;
        let tokenizer = Tokenizer::from_bytes(text.as_bytes())
            .map_err(|e| Error::file(path, format!("this is no tokenizer.json: {e}")))?;
        let found = match bert_casing(&tokenizer) {
            Ok(found) => found,
            Err(part) => {
                let message = format!("its {part}; expected a BERT tokenizer");
                return Err(Error::file(path, message));
            }
        };
        if let Some(wanted) = casing
            && wanted != found
        {
            let message = format!("this tokenizer is {found:?}, but {wanted:?} was asked for");
            return Err(Error::file(path, message));
        }
        let mut entries: Vec<(String, u32)> = tokenizer.get_vocab(true).into_iter().collect();
        entries.sort_by_key(|(_, id)| *id);
        if let Some((expected, (token, id))) = (0u32..).zip(&entries).find(|(n, (_, id))| n != id) {
            let message = format!("token `{token}` has id {id}, but {expected} is the next id");
            return Err(Error::file(path, message));
        }
        let vocab: Vec<String> = entries.into_iter().map(|(token, _)| token).collect();
        check(&vocab).map_err(|fault| Error::file(path, fault.message))?;
        Self::new(tokenizer, vocab, found)
    }

    /// `vocab.txt` as bytes: one token a line.
    pub fn vocab_text(&self) -> String {
        self.inner
            .tokens
            .iter()
            .fold(String::new(), |mut text, token| {
                text.push_str(token);
                text.push('\n');
                text
            })
    }

    /// Writes `vocab.txt`, `tokenizer.json` and `tokenizer_config.json` into the model folder `dir`
    /// as `transformers` reads them.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let config = serde_json::json!({
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.inner.casing == Casing::Uncased,
            "do_basic_tokenize": true,
            "tokenize_chinese_chars": true,
            "strip_accents": null,
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        });
        let tokenizer = self.inner.tokenizer.to_string(true).map_err(library)?;
        write_atomic(&dir.join("vocab.txt"), self.vocab_text().as_bytes())?;
        write_atomic(&dir.join("tokenizer.json"), tokenizer.as_bytes())?;
        let config = format!("{config:#}\n");
        write_atomic(&dir.join("tokenizer_config.json"), config.as_bytes())
    }
}

/// What is wrong with a vocabulary, and on which line (from 1) where one line is at fault.
pub(super) struct Fault {
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

pub(super) fn check(vocab: &[String]) -> std::result::Result<(), Fault> {
    let fault = |line, message| Err(Fault { line, message });
    if vocab.is_empty() {
        return fault(None, "it is empty; expected one token a line".to_owned());
    }
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(vocab.len());
    for (token, line) in vocab.iter().zip(1..) {
        if token.is_empty() {
            return fault(
                Some(line),
                "an empty line where a token was expected".to_owned(),
            );
        }
        if let Some(first) = seen.insert(token, line) {
            let message = format!("the token `{token}` stands already on line {first}");
            return fault(Some(line), message);
        }
    }
    match SPECIAL_TOKENS.iter().find(|name| !seen.contains_key(*name)) {
        Some(name) => fault(None, missing(name).to_string()),
        None => Ok(()),
    }
}

pub(super) fn missing(name: &str) -> Error {
    let all = SPECIAL_TOKENS.join(" ");
    Error::Failed(format!(
        "the token {name} is missing; a BERT vocabulary has {all}"
    ))
}

/// The casing of a `tokenizer.json`'s pipeline, or which part of it is not BERT's.
fn bert_casing(tokenizer: &Tokenizer) -> std::result::Result<Casing, &'static str> {
    use tokenizers::models::ModelWrapper;
    use tokenizers::pre_tokenizers::PreTokenizerWrapper;
    let ModelWrapper::WordPiece(model) = tokenizer.get_model() else {
        return Err("model is not WordPiece");
    };
    if model.continuing_subword_prefix != "##" || model.unk_token != "[UNK]" {
        return Err("model does not use ## and [UNK]");
    }
    let Some(PreTokenizerWrapper::BertPreTokenizer(_)) = tokenizer.get_pre_tokenizer() else {
        return Err("pre-tokenizer is not BertPreTokenizer");
    };
    match tokenizer.get_normalizer() {
        Some(NormalizerWrapper::BertNormalizer(normalizer)) => Ok(if normalizer.lowercase {
            Casing::Uncased
        } else {
            Casing::Cased
        }),
        _ => Err("normalizer is not BertNormalizer"),
    }
}

/// What the `tokenizer_config.json` beside a `vocab.txt` says, else uncased.
fn configured_casing(vocab: &Path) -> Result<Casing> {
    let path = vocab.with_file_name("tokenizer_config.json");
    if !path.is_file() {
        return Ok(Casing::Uncased);
    }
    let text = read_to_string(&path)?;
    let config: serde_json::Value = serde_json::from_str(&text)
        .map_err(|e| Error::file(&path, format!("this is not JSON: {e}")))?;
    Ok(match config["do_lower_case"].as_bool() {
        Some(false) => Casing::Cased,
        _ => Casing::Uncased,
    })
}
