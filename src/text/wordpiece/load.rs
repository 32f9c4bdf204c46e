//! Reads a tokenizer from a `vocab.txt` or a `tokenizer.json`, checks it, and writes it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::Tokenizer;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper};

use super::kind::{Kind, ROLES};
use super::{Casing, SPECIAL_TOKENS, SpecialIds, WordPiece, library};
use crate::error::{Error, Result};
use crate::files::{Staged, stage_bytes};
use crate::text::reader::read_to_string;

/// Returns what to do with a model that has no `tokenizer.json`, but the files that transformers makes one of;
/// None if it has no such file. `model` is the name or path for transformers.
pub fn other_vocabulary(has: impl Fn(&str) -> bool, model: &str) -> Option<String> {
    let other = ["merges.txt", "sentencepiece.bpe.model"].into_iter().find(|name| has(name))?;
    Some(format!(
        "there is no tokenizer.json, but {other}, of which transformers makes one: python -c \"from transformers \
         import AutoTokenizer as T; T.from_pretrained('{model}').save_pretrained('converted')\""
    ))
}

/// The fields of a `tokenizer_config.json`.
pub(super) type Settings = Map<String, Value>;

/// The field with the longest sequence in tokens.
const LONGEST: &str = "model_max_length";

impl WordPiece {
    /// Reads a `vocab.txt`: one token a line; the first line has id 0.
    pub fn from_vocab_file(path: &Path, casing: Casing) -> Result<Self> {
        Self::from_vocab(read_vocab(path)?, casing)
    }

    /// Reads a `vocab.txt`, a `tokenizer.json`, or a model folder, which holds one of them.
    ///
    /// Without `casing`, a `tokenizer.json` states it itself, and for a `vocab.txt` the
    /// `tokenizer_config.json` beside it does. Without that file, the vocabulary is cased if any token has
    /// a capital.
    pub fn from_file(path: &Path, casing: Option<Casing>) -> Result<Self> {
        if !path.is_dir() {
            let json = path.extension().is_some_and(|e| e == "json");
            return match casing {
                _ if json => Self::from_json_file(path, casing),
                Some(casing) => Self::from_vocab_file(path, casing),
                None => {
                    let vocab = read_vocab(path)?;
                    let settings = settings_beside(path)?;
                    let normalizer = configured(&settings, &vocab);
                    Self::normalised(vocab, normalizer, longest_alone(settings))
                }
            };
        }
        let file = Self::file_in(path);
        if !file.is_file() {
            let mut message =
                "the folder holds neither a tokenizer.json nor a vocab.txt".to_owned();
            let model = path.display().to_string();
            if let Some(advice) = other_vocabulary(|name| path.join(name).exists(), &model) {
                message = advice;
            }
            return Err(Error::file(path, message));
        }
        Self::from_file(&file, casing)
    }

    /// Returns the path of the tokenizer's file in a model folder: `tokenizer.json` if it exists, else
    /// `vocab.txt`.
    pub fn file_in(folder: &Path) -> PathBuf {
        let json = folder.join("tokenizer.json");
        match json.is_file() {
            true => json,
            false => folder.join("vocab.txt"),
        }
    }

    /// Reads a `tokenizer.json` with the `tokenizer_config.json` beside it.
    fn from_json_file(path: &Path, casing: Option<Casing>) -> Result<Self> {
        let text = read_to_string(path)?;
        let wrong = |e: String| Error::file(path, format!("this is no tokenizer.json: {e}"));
        // The crate panics where a decoder or a normaliser is no JSON.
        serde_json::from_str::<Value>(&text).map_err(|e| wrong(e.to_string()))?;
        let tokenizer = Tokenizer::from_bytes(text.as_bytes()).map_err(|e| wrong(e.to_string()))?;
        let (kind, found) = Kind::of(&tokenizer).map_err(|part| {
            let expected = "expected BERT's WordPiece, RoBERTa's byte-level BPE or a Unigram model";
            Error::file(path, format!("its {part}; {expected}"))
        })?;
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
        let mut settings = settings_beside(path)?;
        if kind == Kind::WordPiece {
            check(&vocab).map_err(|fault| Error::file(path, fault.message))?;
            settings = longest_alone(settings);
        }
        Self::new(tokenizer, vocab, (kind, found), settings).map_err(|e| match e {
            Error::Failed(message) => Error::file(path, message),
            other => other,
        })
    }

    /// Returns the text of `vocab.txt`: one token a line.
    pub fn vocab_text(&self) -> String {
        let tokens = self.tokens().iter();
        tokens.flat_map(|token| [token, "\n"]).collect()
    }

    /// Returns the text of `tokenizer.json`, which holds the vocabulary and how text is split.
    pub fn json(&self) -> Result<String> {
        self.inner.tokenizer.to_string(true).map_err(library)
    }

    /// Writes `tokenizer.json`, `tokenizer_config.json` and for BERT's tokenizer `vocab.txt` into the model
    /// folder `dir`, as `transformers` reads them.
    pub fn save(&self, dir: &Path) -> Result<()> {
        Staged::place(self.stage(dir, true, None)?)
    }

    /// Stages the same files; `segments` is whether the model has different embeddings for the two texts of a pair,
    /// and `positions` the number of its positions.
    pub(crate) fn stage(
        &self,
        dir: &Path,
        segments: bool,
        positions: Option<usize>,
    ) -> Result<Vec<Staged>> {
        let tokenizer = self.json()?;
        let mut config = match self.inner.kind {
            Kind::WordPiece => self.bert_settings(),
            Kind::ByteLevel | Kind::Unigram => self.completed_settings(),
        };
        if !segments {
            config["model_input_names"] = serde_json::json!(["input_ids", "attention_mask"]);
        }
        let stored = self.inner.settings.get(LONGEST);
        let longest = match (stored.and_then(Value::as_u64), positions) {
            (_, None) => stored.cloned(),
            // The model may be another one than that which the tokenizer was read with.
            (Some(stored), Some(positions)) => Some(stored.min(positions as u64).into()),
            // transformers writes 1e30 for no limit.
            (None, Some(positions)) => Some(positions.into()),
        };
        if let Some(longest) = longest {
            config[LONGEST] = longest;
        }
        let mut files =
            vec![("tokenizer.json", tokenizer), ("tokenizer_config.json", format!("{config:#}\n"))];
        if self.inner.kind == Kind::WordPiece {
            files.push(("vocab.txt", self.vocab_text()));
        }
        let stage = |(name, text): &(_, String)| stage_bytes(&dir.join(name), text.as_bytes());
        files.iter().map(stage).collect()
    }

    /// Returns the settings that the tokenizer was read with, and what transformers needs besides.
    fn completed_settings(&self) -> Value {
        let mut settings = self.inner.settings.clone();
        let mut default = |name: &str, value: &str| {
            settings.entry(name).or_insert_with(|| value.into());
        };
        default("tokenizer_class", "PreTrainedTokenizerFast");
        let SpecialIds { pad, unk, cls, sep, mask } = self.inner.special;
        for ((role, _), id) in ROLES.into_iter().zip([pad, unk, cls, sep, mask]) {
            default(role, &self.tokens()[id as usize]);
        }
        settings.into()
    }

    /// Returns the settings of a BERT tokenizer.
    fn bert_settings(&self) -> Value {
        // Transformers configures the tokenizer by these settings too.
        let (chinese, strip) = match self.inner.tokenizer.get_normalizer() {
            Some(NormalizerWrapper::BertNormalizer(own)) => {
                let unusual = own.strip_accents.filter(|&strip| strip != own.lowercase);
                (own.handle_chinese_chars, unusual)
            }
            _ => (true, None),
        };
        serde_json::json!({
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.inner.casing == Casing::Uncased,
            "do_basic_tokenize": true,
            "tokenize_chinese_chars": chinese,
            "strip_accents": strip,
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        })
    }
}

/// A fault of a vocabulary, with the line, counted from 1, if a single one is at fault.
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
            let message = "an empty line where a token was expected".to_owned();
            return fault(Some(line), message);
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
    Error::Failed(format!("the token {name} is missing; a BERT vocabulary has {all}"))
}

/// Reads the `tokenizer_config.json` beside a file; no settings if there is none.
fn settings_beside(path: &Path) -> Result<Settings> {
    let file = path.with_file_name("tokenizer_config.json");
    if !file.is_file() {
        return Ok(Settings::new());
    }
    serde_json::from_str(&read_to_string(&file)?)
        .map_err(|e| Error::file(&file, format!("this is not JSON: {e}")))
}

/// Returns the only field of these settings that isn't written anew for BERT's tokenizer.
fn longest_alone(mut settings: Settings) -> Settings {
    settings.retain(|name, _| name == LONGEST);
    settings
}

/// Reads the tokens of a `vocab.txt`.
fn read_vocab(path: &Path) -> Result<Vec<String>> {
    let text = read_to_string(path)?;
    let plain = |line: &str| line.strip_suffix('\r').unwrap_or(line).to_owned();
    let mut vocab: Vec<String> = text.split('\n').map(plain).collect();
    while vocab.last().is_some_and(String::is_empty) {
        vocab.pop();
    }
    check(&vocab).map_err(|fault| match fault.line {
        Some(line) => Error::line(path, line, fault.message),
        None => Error::file(path, fault.message),
    })?;
    Ok(vocab)
}

/// Returns the normaliser that the `tokenizer_config.json` beside a `vocab.txt` describes. Without that
/// file, a vocabulary without capitals is uncased.
fn configured(config: &Settings, vocab: &[String]) -> BertNormalizer {
    let capital = |token: &String| {
        let special = token.starts_with('[') && token.ends_with(']');
        !special && token.bytes().any(|b| b.is_ascii_uppercase())
    };
    let setting = |key: &str| config.get(key)?.as_bool();
    let lower = setting("do_lower_case").unwrap_or_else(|| !vocab.iter().any(capital));
    BertNormalizer::new(
        true,
        setting("tokenize_chinese_chars").unwrap_or(true),
        Some(setting("strip_accents").unwrap_or(lower)),
        lower,
    )
}
