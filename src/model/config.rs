//! The model's hyperparameters, read from and written to Hugging Face's `config.json`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

use super::Family;

/// Most classes of a task that a configuration may have.
const MOST_LABELS: u64 = 1 << 20;

/// A model's hyperparameters under Hugging Face's names for BERT (class `BertConfig`); files of other
/// [families](Family) are translated.
///
/// Fields unknown to Cloze are kept and written back unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The classes of transformers that load the weights.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// The family of the model.
    #[serde(default)]
    pub model_type: Family,
    /// Number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// H: the width of the residual stream.
    pub hidden_size: usize,
    /// L: the number of encoder layers.
    pub num_hidden_layers: usize,
    /// A: the number of attention heads; the head size is H / A.
    pub num_attention_heads: usize,
    /// I: the width of the feed-forward block, 4 H in the paper.
    pub intermediate_size: usize,
    /// Width of the embedding tables of a family that projects them to `hidden_size`: see
    /// [`embedding_width`](Self::embedding_width).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_size: Option<usize>,
    /// The activation function: `gelu`.
    #[serde(default = "default_activation")]
    pub hidden_act: String,
    /// Dropout of the embeddings and of every block's output.
    #[serde(default = "default_dropout")]
    pub hidden_dropout_prob: f64,
    /// Dropout of the attention probabilities.
    #[serde(default = "default_dropout")]
    pub attention_probs_dropout_prob: f64,
    /// Rows of the position table; [`positions`](Self::positions) is the longest sequence.
    #[serde(default = "default_positions")]
    pub max_position_embeddings: usize,
    /// Number of segment ids; 0 if the family has no segments.
    #[serde(default = "default_segments")]
    pub type_vocab_size: usize,
    /// Standard deviation of initial weights.
    #[serde(default = "default_initializer_range")]
    pub initializer_range: f64,
    /// LayerNorm's epsilon.
    #[serde(default = "default_layer_norm_eps")]
    pub layer_norm_eps: f64,
    /// Id of `[PAD]`.
    #[serde(default)]
    pub pad_token_id: u32,
    /// Whether a token attends only to itself and earlier tokens, as in a left-to-right language model.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_decoder: bool,
    /// All other fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn is_false(value: &bool) -> bool {
    !value
}
/// Defines functions that return default values.
macro_rules! defaults {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(fn $name() -> $type { $value })*
    };
}

defaults! {
    default_activation: String = "gelu".into();
    default_dropout: f64 = 0.1;
    default_positions: usize = 512;
    default_segments: usize = 2;
    default_initializer_range: f64 = 0.02;
    default_layer_norm_eps: f64 = 1e-12;
}

impl Config {
    /// Returns the paper's settings for a model of `layers` × `hidden` with `heads` heads.
    pub fn new(
        layers: usize,
        hidden: usize,
        heads: usize,
        intermediate: usize,
        vocab_size: usize,
    ) -> Self {
        Self {
            architectures: vec!["BertForPreTraining".into()],
            model_type: Family::Bert,
            vocab_size,
            hidden_size: hidden,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            intermediate_size: intermediate,
            embedding_size: None,
            hidden_act: default_activation(),
            hidden_dropout_prob: default_dropout(),
            attention_probs_dropout_prob: default_dropout(),
            max_position_embeddings: default_positions(),
            type_vocab_size: default_segments(),
            initializer_range: default_initializer_range(),
            layer_norm_eps: default_layer_norm_eps(),
            pad_token_id: 0,
            is_decoder: false,
            other: Map::new(),
        }
    }

    /// Returns the first row of the position table that the model uses: RoBERTa counts positions from
    /// `pad_token_id` + 1.
    pub fn position_offset(&self) -> usize {
        if self.model_type.is_roberta() { self.pad_token_id as usize + 1 } else { 0 }
    }

    /// Returns the length of the longest sequence, in tokens.
    pub fn positions(&self) -> usize {
        self.max_position_embeddings.saturating_sub(self.position_offset())
    }

    /// Returns the width of the embedding tables. Where it is not `hidden_size`, a linear layer behind the
    /// embeddings projects them.
    pub fn embedding_width(&self) -> usize {
        let own = self.embedding_size.filter(|_| self.model_type == Family::Electra);
        own.unwrap_or(self.hidden_size)
    }

    /// Returns whether the embeddings are projected to `hidden_size`.
    pub fn projects_embeddings(&self) -> bool {
        self.embedding_width() != self.hidden_size
    }

    /// Returns a field that only some families have, if it is a number.
    pub(super) fn number(&self, field: &str) -> Option<f64> {
        self.other.get(field)?.as_f64()
    }

    /// Returns the size of one attention head, H / A.
    pub fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Stores the names of a classifier's classes in the form that transformers uses.
    pub fn set_labels<S: AsRef<str>>(&mut self, labels: &[S]) {
        let labels = || labels.iter().map(AsRef::as_ref).enumerate();
        let by_id: serde_json::Map<_, _> =
            labels().map(|(id, label)| (id.to_string(), label.into())).collect();
        let by_label: serde_json::Map<_, _> =
            labels().map(|(id, label)| (label.to_owned(), id.into())).collect();
        // An explicit number of classes would override the names.
        self.other.remove("num_labels");
        self.other.insert("id2label".into(), by_id.into());
        self.other.insert("label2id".into(), by_label.into());
    }

    /// Removes the classes and the settings of an earlier task.
    pub fn clear_task(&mut self) {
        for key in [
            "id2label",
            "label2id",
            "num_labels",
            "problem_type",
            "finetuning_task",
            "finetuning_options",
            "null_score_threshold",
        ] {
            self.other.remove(key);
        }
    }

    /// Returns the names of a classifier's classes in the order of their ids. None if there are
    /// none or an id has no name.
    pub fn labels(&self) -> Option<Vec<&str>> {
        let by_id = self.other.get("id2label")?.as_object()?;
        (0..by_id.len()).map(|id| by_id.get(&id.to_string())?.as_str()).collect()
    }

    /// Returns the number of classes of a transformers classifier with this configuration; its
    /// default is 2.
    pub fn classes(&self) -> usize {
        let names = self.other.get("id2label").and_then(|v| v.as_object());
        let number = self.other.get("num_labels").and_then(|v| v.as_u64());
        match (names, number) {
            (Some(names), _) => names.len(),
            (None, Some(number)) => number as usize,
            (None, None) => 2,
        }
    }

    /// Records the number format of the weights under PyTorch's name. Newer transformers write
    /// `dtype` and read both keys; older ones know only `torch_dtype`.
    pub fn set_number_format(&mut self, name: &str) {
        self.other.remove("dtype");
        self.other.insert("torch_dtype".into(), name.into());
    }

    /// Reads `config.json` and checks that Cloze can run the model that it describes.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let wrong = |e| Error::file(path, format!("is not a model's configuration: {e}"));
        let mut fields: Map<String, Value> = serde_json::from_str(&text).map_err(wrong)?;
        let family = family_of(&fields).map_err(|m| Error::file(path, m))?;
        family.fields_to_bert(&mut fields);
        let config: Self = serde_json::from_value(fields.into()).map_err(wrong)?;
        config.check().map_err(|m| Error::file(path, m))?;
        Ok(config)
    }

    /// Returns the text of `config.json`, formatted as transformers writes it.
    pub fn to_json(&self) -> String {
        // Numbers, strings and maps with string keys always serialise.
        let plain = "a configuration is plain data";
        let mut fields = serde_json::to_value(self).expect(plain);
        if let Some(fields) = fields.as_object_mut() {
            self.model_type.fields_from_bert(fields);
        }
        let mut text = serde_json::to_string_pretty(&fields).expect(plain);
        text.push('\n');
        text
    }

    /// Returns what is wrong with the configuration, in one sentence.
    fn check(&self) -> std::result::Result<(), String> {
        if self.hidden_act != "gelu" {
            return Err(format!(
                "hidden_act is {:?}, but only \"gelu\" (the erf form) is supported",
                self.hidden_act
            ));
        }
        if self.other.get("add_cross_attention") == Some(&true.into()) {
            return Err("add_cross_attention is true, but only self-attention is supported".into());
        }
        let positions = self.max_position_embeddings;
        // Limits far above any real model, but low enough for no product of sizes to overflow. With
        // more heads, dropout's 32-bit random counter (24 bits for query and key) would wrap.
        for (name, value, most) in [
            ("vocab_size", self.vocab_size, 1 << 24),
            ("hidden_size", self.hidden_size, 1 << 16),
            ("embedding_size", self.embedding_width(), 1 << 16),
            ("num_hidden_layers", self.num_hidden_layers, 1 << 12),
            ("num_attention_heads", self.num_attention_heads, 1 << 8),
            ("intermediate_size", self.intermediate_size, 1 << 20),
            ("max_position_embeddings", positions, 1 << 20),
            ("type_vocab_size", self.type_vocab_size, 1 << 16),
        ] {
            let may_be_none = name == "type_vocab_size" && self.model_type == Family::DistilBert;
            if value == 0 && !may_be_none {
                return Err(format!("{name} is 0, but must be at least 1"));
            }
            if value > most {
                return Err(format!("{name} is {value}, but must be at most {most}"));
            }
        }
        if let Some(count) = self.other.get("num_labels").and_then(Value::as_u64)
            && count > MOST_LABELS
        {
            return Err(format!("num_labels is {count}, but must be at most {MOST_LABELS}"));
        }
        if self.positions() == 0 {
            return Err(format!(
                "max_position_embeddings is {positions}, but this model_type uses them only from row {} on",
                self.position_offset()
            ));
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return Err(format!(
                "hidden_size {} is not a multiple of num_attention_heads {}",
                self.hidden_size, self.num_attention_heads
            ));
        }
        let probabilities = [
            ("hidden_dropout_prob", Some(self.hidden_dropout_prob)),
            ("attention_probs_dropout_prob", Some(self.attention_probs_dropout_prob)),
        ];
        let of_heads = [
            "classifier_dropout",
            "seq_classif_dropout",
            "qa_dropout",
            "summary_first_dropout",
            "summary_last_dropout",
        ];
        let of_heads = of_heads.map(|name| (name, self.number(name)));
        for (name, p) in probabilities.into_iter().chain(of_heads) {
            let p = p.unwrap_or(0.0);
            if !(0.0..1.0).contains(&p) {
                return Err(format!("{name} is {p}, but must be at least 0 and under 1"));
            }
        }
        // Of ELECTRA's multiple choice.
        let summary: &[(&str, &str)] = match self.model_type {
            Family::Electra => &[
                ("summary_type", "\"first\""),
                ("summary_use_proj", "true"),
                ("summary_activation", "\"gelu\""),
            ],
            _ => &[],
        };
        let of_all = [
            ("position_embedding_type", "\"absolute\""),
            ("pruned_heads", "{}"),
            ("quantization_config", "null"),
        ];
        for &(name, expected) in of_all.iter().chain(summary) {
            if let Some(found) = self.other.get(name).map(ToString::to_string)
                && found != expected
                && found != "null"
            {
                return Err(format!("{name} is {found}, but only {expected} is supported"));
            }
        }
        Ok(())
    }
}

/// Returns the family that a `config.json` names; BERT if it names none.
fn family_of(fields: &Map<String, Value>) -> std::result::Result<Family, String> {
    let Some(found) = fields.get("model_type") else {
        return Ok(Family::Bert);
    };
    found.as_str().and_then(Family::named).ok_or_else(|| {
        let known = Family::ALL.map(|family| format!("{:?}", family.name()));
        format!("model_type is {found}, but only {} are supported", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(json: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        (dir, path)
    }

    #[test]
    fn unknown_fields_survive_a_round_trip() {
        let mut config = Config::new(2, 128, 2, 512, 1000);
        config.other.insert("gradient_checkpointing".into(), false.into());
        let (_dir, path) = written(&config.to_json());
        assert_eq!(Config::read(&path).unwrap(), config);
    }

    #[test]
    fn labels_survive_a_round_trip() {
        let mut config = Config::new(2, 128, 2, 512, 1000);
        assert_eq!(config.labels(), None);
        config.set_labels(&["no", "yes", "maybe"]);
        let (_dir, path) = written(&config.to_json());
        let again = Config::read(&path).unwrap();
        assert_eq!(again.labels().unwrap(), ["no", "yes", "maybe"]);
        assert_eq!(again.other["label2id"]["maybe"], 2);
        config.clear_task();
        assert_eq!((config.labels(), config.other.len()), (None, 0));
    }

    #[test]
    fn a_wrong_configuration_gets_one_sentence() {
        let good = Config::new(2, 128, 2, 512, 1000).to_json();
        for case in [
            r#""num_attention_heads": 2 => "num_attention_heads": 3 => not a multiple"#,
            r#""gelu" => "relu" => only "gelu""#,
            r#""bert" => "gpt2" => model_type is "gpt2", but only "bert", "roberta", "xlm-roberta", "distilbert", "electra" are supported"#,
            r#""hidden_act" => "position_embedding_type": "relative_key", "hidden_act" => position_embedding_type is "relative_key", but only "absolute" is supported"#,
            r#""hidden_act" => "quantization_config": {"bits": 8}, "hidden_act" => quantization_config is {"bits":8}"#,
            r#""hidden_act" => "add_cross_attention": true, "hidden_act" => only self-attention"#,
            r#""vocab_size": 1000 => "vocab_size": 0 => vocab_size is 0"#,
            r#""hidden_dropout_prob": 0.1 => "hidden_dropout_prob": 1.5 => hidden_dropout_prob is 1.5"#,
            r#""vocab_size": 1000, =>  => missing field `vocab_size`"#,
        ] {
            let [from, to, expected] = case.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{case}")
            };
            let (_dir, path) = written(&good.replacen(from, to, 1));
            let message = Config::read(&path).unwrap_err().to_string();
            assert!(message.contains("config.json"), "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn sizes_have_limits() {
        let good: serde_json::Value =
            serde_json::from_str(&Config::new(2, 128, 2, 512, 1000).to_json()).unwrap();
        for (field, most) in [
            ("vocab_size", 1 << 24),
            ("hidden_size", 1 << 16),
            ("num_hidden_layers", 1 << 12),
            ("intermediate_size", 1 << 20),
            ("max_position_embeddings", 1 << 20),
            ("type_vocab_size", 1 << 16),
            ("num_attention_heads", 1 << 8),
        ] {
            let with = |value: u64| {
                let mut config = good.clone();
                if field == "num_attention_heads" {
                    config["hidden_size"] = value.into();
                }
                config[field] = value.into();
                let (_dir, path) = written(&config.to_string());
                Config::read(&path)
            };
            assert!(with(most).is_ok(), "{field}");
            let expected =
                format!("config.json: {field} is {0}, but must be at most {most}", most * 2);
            let message = with(most * 2).unwrap_err().to_string();
            assert!(message.ends_with(&expected), "{message}");
        }
    }
}
