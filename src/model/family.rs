//! The families of encoders: what differs between BERT and the models that were made from it.
//!
//! Inside Cloze every model has BERT's fields and BERT's tensor names. This module translates both from and
//! to those of a family in transformers (modeling_roberta.py, modeling_distilbert.py), and states the few
//! differences in the computation: where positions begin, the activation of the pooler, and dropout.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::random::Site;

use super::{Config, HeadInput, Parameter, Part, TaskHead};

/// A family of encoders, named by `model_type` in `config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Family {
    /// BERT.
    #[default]
    #[serde(rename = "bert")]
    Bert,
    /// RoBERTa: BERT without next-sentence prediction, with a byte-level vocabulary (arXiv 1907.11692).
    #[serde(rename = "roberta")]
    Roberta,
    /// XLM-RoBERTa: RoBERTa with a SentencePiece vocabulary of many languages (arXiv 1911.02116).
    #[serde(rename = "xlm-roberta")]
    XlmRoberta,
    /// DistilBERT: BERT with half the layers, without segments and pooler (arXiv 1910.01108).
    #[serde(rename = "distilbert")]
    DistilBert,
}

/// The activation function of the pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `tanh(x)`.
    Tanh,
    /// `max(0, x)`.
    Relu,
}

impl Activation {
    /// Returns the function's value.
    pub fn of(self, x: f32) -> f32 {
        match self {
            Self::Tanh => x.tanh(),
            Self::Relu => x.max(0.0),
        }
    }

    /// Returns the function's derivative where its value is `y`.
    pub fn slope(self, y: f32) -> f32 {
        match self {
            Self::Tanh => 1.0 - y * y,
            Self::Relu => f32::from(y > 0.0),
        }
    }
}

/// Pairs of a family's name and BERT's.
type Names = &'static [(&'static str, &'static str)];

/// DistilBERT's names of the fields of `config.json`.
const DISTILBERT_FIELDS: Names = &[
    ("dim", "hidden_size"),
    ("n_layers", "num_hidden_layers"),
    ("n_heads", "num_attention_heads"),
    ("hidden_dim", "intermediate_size"),
    ("activation", "hidden_act"),
    ("dropout", "hidden_dropout_prob"),
    ("attention_dropout", "attention_probs_dropout_prob"),
];

/// Fields of BERT that DistilBERT's `config.json` lacks.
const NOT_DISTILBERT: [&str; 2] = ["type_vocab_size", "layer_norm_eps"];

const DISTILBERT_LAYER: Names = &[
    ("attention.q_lin.", "attention.self.query."),
    ("attention.k_lin.", "attention.self.key."),
    ("attention.v_lin.", "attention.self.value."),
    ("attention.out_lin.", "attention.output.dense."),
    ("sa_layer_norm.", "attention.output.LayerNorm."),
    ("ffn.lin1.", "intermediate.dense."),
    ("ffn.lin2.", "output.dense."),
    ("output_layer_norm.", "output.LayerNorm."),
];

const DISTILBERT_HEADS: Names = &[
    ("vocab_transform.", "cls.predictions.transform.dense."),
    ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("vocab_projector.bias", "cls.predictions.bias"),
    ("vocab_projector.weight", "cls.predictions.decoder.weight"),
    ("pre_classifier.", POOLER),
];

const ROBERTA_HEADS: Names = &[
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.bias", "cls.predictions.bias"),
    ("lm_head.decoder.", "cls.predictions.decoder."),
];

/// The layers of a classifier of sequences, whose first one takes the pooler's place.
const ROBERTA_CLASSIFIER: Names =
    &[("classifier.dense.", POOLER), ("classifier.out_proj.", "classifier.")];

/// BERT's name of the pooler.
pub(super) const POOLER: &str = "pooler.dense.";
/// BERT's name of the layers.
const LAYERS: &str = "encoder.layer.";

/// Replaces the start of a name by the other name of its pair.
fn replaced(name: &str, pairs: impl Iterator<Item = (&'static str, &'static str)>) -> Option<String> {
    let mut found = pairs.filter_map(|(from, to)| Some(to.to_owned() + name.strip_prefix(from)?));
    found.next()
}

/// Replaces the names of a layer's parts in `name`, which goes on with the layer's number.
fn in_layer(
    name: &str,
    to: &str,
    pairs: impl Iterator<Item = (&'static str, &'static str)>,
) -> Option<String> {
    let (number, rest) = name.split_once('.')?;
    Some(format!("{to}{number}.{}", replaced(rest, pairs)?))
}

fn swapped(names: Names) -> impl Iterator<Item = (&'static str, &'static str)> {
    names.iter().map(|&(theirs, ours)| (ours, theirs))
}

impl Family {
    /// All families.
    pub const ALL: [Self; 4] = [Self::Bert, Self::Roberta, Self::XlmRoberta, Self::DistilBert];

    /// Returns the `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::Roberta => "roberta",
            Self::XlmRoberta => "xlm-roberta",
            Self::DistilBert => "distilbert",
        }
    }

    /// Returns the family of this `model_type`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }

    fn is_roberta(self) -> bool {
        matches!(self, Self::Roberta | Self::XlmRoberta)
    }

    /// Returns the class of transformers with this suffix, such as `ForMaskedLM`.
    pub fn class(self, suffix: &str) -> String {
        let stem = match self {
            Self::Bert => "Bert",
            Self::Roberta => "Roberta",
            Self::XlmRoberta => "XLMRoberta",
            Self::DistilBert => "DistilBert",
        };
        format!("{stem}{suffix}")
    }

    /// Returns the suffix of the class of left-to-right models; None if the family has none.
    pub fn left_to_right(self) -> Option<&'static str> {
        match self {
            Self::Bert => Some("LMHeadModel"),
            Self::Roberta | Self::XlmRoberta => Some("ForCausalLM"),
            Self::DistilBert => None,
        }
    }

    /// Returns whether the family's models predict next sentences.
    pub fn has_next_sentence(self) -> bool {
        self == Self::Bert
    }

    /// Returns the activation of the pooler, or of the layer in its place.
    pub fn pooler_activation(self) -> Activation {
        match self {
            Self::DistilBert => Activation::Relu,
            _ => Activation::Tanh,
        }
    }

    /// Renames the fields of a `config.json` to BERT's and adds those that the family leaves out.
    pub(super) fn fields_to_bert(self, fields: &mut Map<String, Value>) {
        if self.is_roberta() {
            fields.entry("pad_token_id").or_insert(1.into());
        }
        if self != Self::DistilBert {
            return;
        }
        for &(theirs, ours) in DISTILBERT_FIELDS {
            if let Some(value) = fields.remove(theirs) {
                fields.insert(ours.into(), value);
            }
        }
        fields.insert("type_vocab_size".into(), 0.into());
    }

    /// Undoes [`fields_to_bert`](Self::fields_to_bert).
    pub(super) fn fields_from_bert(self, fields: &mut Map<String, Value>) {
        if self != Self::DistilBert {
            return;
        }
        for name in NOT_DISTILBERT {
            fields.remove(name);
        }
        for &(theirs, ours) in DISTILBERT_FIELDS {
            if let Some(value) = fields.remove(ours) {
                fields.insert(theirs.into(), value);
            }
        }
    }

    /// Returns the prefix of the encoder's tensors in models with a head.
    fn prefix(self) -> &'static str {
        match self {
            Self::Bert => "bert.",
            Self::Roberta | Self::XlmRoberta => "roberta.",
            Self::DistilBert => "distilbert.",
        }
    }

    fn heads(self) -> Names {
        match self {
            Self::Bert => &[],
            Self::Roberta | Self::XlmRoberta => ROBERTA_HEADS,
            Self::DistilBert => DISTILBERT_HEADS,
        }
    }

    fn classifier(self) -> Names {
        if self.is_roberta() { ROBERTA_CLASSIFIER } else { &[] }
    }

    /// Returns BERT's name, without prefix, of a tensor in a file.
    pub fn name_to_bert(self, name: &str) -> String {
        let name = name.strip_prefix(self.prefix()).unwrap_or(name);
        let heads = self.heads().iter().chain(self.classifier()).copied();
        let layer = || match self {
            Self::DistilBert => {
                let rest = name.strip_prefix("transformer.layer.")?;
                in_layer(rest, LAYERS, DISTILBERT_LAYER.iter().copied())
            }
            _ => None,
        };
        replaced(name, heads).or_else(layer).unwrap_or_else(|| name.to_owned())
    }

    /// Returns whether a tensor in a file is the encoder's pooler.
    pub(super) fn is_pooler(self, name: &str) -> bool {
        name.strip_prefix(self.prefix()).unwrap_or(name).starts_with("pooler.")
    }

    /// Returns the name of a tensor in a file of a model with these parts. `prefixed` says whether its
    /// encoder's names have a prefix there.
    pub(super) fn name_from_bert(self, parameter: &Parameter, parts: &[Part], prefixed: bool) -> String {
        let name = parameter.name.as_str();
        let classifies = parts.iter().any(|part| matches!(part, Part::SequenceClassifier(_)));
        let classifier = if classifies { self.classifier() } else { &[] };
        if let Some(head) = replaced(name, swapped(self.heads()).chain(swapped(classifier))) {
            return head;
        }
        let layer = || match self {
            Self::DistilBert => {
                let rest = name.strip_prefix(LAYERS)?;
                in_layer(rest, "transformer.layer.", swapped(DISTILBERT_LAYER))
            }
            _ => None,
        };
        let name = layer().unwrap_or_else(|| name.to_owned());
        match parameter.part {
            Part::Encoder | Part::Pooler if prefixed => self.prefix().to_owned() + &name,
            _ => name,
        }
    }
}

impl Config {
    /// Returns the first row of the position table that a model uses: RoBERTa counts positions from
    /// `pad_token_id` + 1.
    pub fn position_offset(&self) -> usize {
        if self.model_type.is_roberta() { self.pad_token_id as usize + 1 } else { 0 }
    }

    /// Returns the length of the longest sequence, in tokens.
    pub fn positions(&self) -> usize {
        self.max_position_embeddings.saturating_sub(self.position_offset())
    }

    /// Returns the probability of dropout at a site of the hidden states.
    pub fn dropout_at(&self, site: Site) -> f64 {
        match (self.model_type, site) {
            // DistilBERT adds the attention block's output without dropout.
            (Family::DistilBert, Site::AttentionOutputDropout(_)) => 0.0,
            _ => self.hidden_dropout_prob,
        }
    }

    /// Returns the probability of dropout of the input of a task's head.
    pub fn head_dropout(&self, head: TaskHead) -> f64 {
        if self.model_type != Family::DistilBert {
            return if head.dropout { self.classifier_dropout() } else { 0.0 };
        }
        match head.input {
            HeadInput::Pooled => self.number("seq_classif_dropout").unwrap_or(0.2),
            HeadInput::Rows if head.dropout => self.hidden_dropout_prob,
            HeadInput::Rows => self.number("qa_dropout").unwrap_or(0.1),
        }
    }

    /// Returns the probability of dropout of the input of the pooler that a head reads: only RoBERTa's
    /// classifier of sequences drops some.
    pub fn pooler_dropout(&self, head: TaskHead) -> f64 {
        match head.part {
            Part::SequenceClassifier(_) if self.model_type.is_roberta() => self.classifier_dropout(),
            _ => 0.0,
        }
    }

    fn classifier_dropout(&self) -> f64 {
        self.number("classifier_dropout").unwrap_or(self.hidden_dropout_prob)
    }

    pub(super) fn number(&self, field: &str) -> Option<f64> {
        self.other.get(field)?.as_f64()
    }
}
