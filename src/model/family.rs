//! The families of encoders: what differs between BERT and the models that were made from it.
//!
//! Inside Cloze every model has BERT's fields and BERT's tensor names. This module translates both from and
//! to those of a family in transformers (modeling_roberta.py, modeling_distilbert.py, modeling_electra.py), and
//! states the few differences in the computation: where positions begin, the activation of the pooler, and (in
//! `dropout.rs`) where dropout applies. The width of ELECTRA's embeddings is in `config.rs`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Part, Real};

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
    /// ELECTRA: BERT pre-trained to tell replaced tokens from original ones, with embeddings that may be
    /// narrower than the layers (arXiv 2003.10555).
    #[serde(rename = "electra")]
    Electra,
}

/// The activation function of the pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `tanh(x)`.
    Tanh,
    /// `max(0, x)`.
    Relu,
    /// `x Φ(x)`, the exact GELU.
    Gelu,
}

impl Activation {
    /// Returns the function's value at `x`.
    pub fn of(self, x: f32) -> f32 {
        match self {
            Self::Tanh => x.tanh(),
            Self::Relu => x.max(0.0),
            Self::Gelu => x * normal_below(x),
        }
    }

    /// Returns the function's derivative at `x`.
    pub fn slope(self, x: f32) -> f32 {
        match self {
            Self::Tanh => 1.0 - x.tanh().powi(2),
            Self::Relu => f32::from(x > 0.0),
            Self::Gelu => normal_below(x) + x * f32::FRAC_1_SQRT_TAU * (-0.5 * x * x).exp(),
        }
    }
}

/// Returns `Φ(x)`, the probability that a normal number is below `x`.
fn normal_below(x: f32) -> f32 {
    0.5 * (1.0 + Real::erf(x * std::f32::consts::FRAC_1_SQRT_2))
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

/// The generator's head.
const ELECTRA_HEADS: Names = &[
    ("generator_predictions.dense.", "cls.predictions.transform.dense."),
    ("generator_predictions.LayerNorm.", "cls.predictions.transform.LayerNorm."),
    ("generator_lm_head.bias", "cls.predictions.bias"),
    ("generator_lm_head.weight", "cls.predictions.decoder.weight"),
];

/// The layers of a classifier of sequences, whose first one takes the pooler's place in RoBERTa and ELECTRA.
const CLASSIFIER: Names = &[("classifier.dense.", POOLER), ("classifier.out_proj.", "classifier.")];

/// The layer in the pooler's place of ELECTRA's multiple choice.
const ELECTRA_SUMMARY: Names = &[("sequence_summary.summary.", POOLER)];

/// ELECTRA's `embedding_size` if its `config.json` has none.
const ELECTRA_WIDTH: usize = 128;

/// BERT's name of the pooler.
pub(super) const POOLER: &str = "pooler.dense.";
/// BERT's name of the layers.
const LAYERS: &str = "encoder.layer.";

/// Replaces the start of a name by the other name of its pair.
fn replaced(
    name: &str,
    pairs: impl Iterator<Item = (&'static str, &'static str)>,
) -> Option<String> {
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
    pub const ALL: [Self; 5] =
        [Self::Bert, Self::Roberta, Self::XlmRoberta, Self::DistilBert, Self::Electra];

    /// Returns the `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::Roberta => "roberta",
            Self::XlmRoberta => "xlm-roberta",
            Self::DistilBert => "distilbert",
            Self::Electra => "electra",
        }
    }

    /// Returns the family of this `model_type`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }

    /// Returns whether the model is RoBERTa, in one or many languages.
    pub fn is_roberta(self) -> bool {
        matches!(self, Self::Roberta | Self::XlmRoberta)
    }

    /// Returns the class of transformers with this suffix, such as `ForMaskedLM`.
    pub fn class(self, suffix: &str) -> String {
        let stem = match self {
            Self::Bert => "Bert",
            Self::Roberta => "Roberta",
            Self::XlmRoberta => "XLMRoberta",
            Self::DistilBert => "DistilBert",
            Self::Electra => "Electra",
        };
        format!("{stem}{suffix}")
    }

    /// Returns the suffix of the class of left-to-right models; None if the family has none.
    pub fn left_to_right(self) -> Option<&'static str> {
        match self {
            Self::Bert => Some("LMHeadModel"),
            Self::Roberta | Self::XlmRoberta | Self::Electra => Some("ForCausalLM"),
            Self::DistilBert => None,
        }
    }

    /// Returns whether the family's models predict next sentences.
    pub fn has_next_sentence(self) -> bool {
        self == Self::Bert
    }

    /// Returns whether the family's models without a head have a pooler.
    pub fn has_pooler(self) -> bool {
        !matches!(self, Self::DistilBert | Self::Electra)
    }

    /// Returns the activation of the pooler, or of the layer in its place.
    pub fn pooler_activation(self) -> Activation {
        match self {
            Self::DistilBert => Activation::Relu,
            Self::Electra => Activation::Gelu,
            Self::Bert | Self::Roberta | Self::XlmRoberta => Activation::Tanh,
        }
    }

    /// Renames the fields of a `config.json` to BERT's and adds those that the family leaves out.
    pub(super) fn fields_to_bert(self, fields: &mut Map<String, Value>) {
        if self.is_roberta() {
            fields.entry("pad_token_id").or_insert(1.into());
        }
        if self == Self::Electra {
            fields.entry("embedding_size").or_insert(ELECTRA_WIDTH.into());
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
            Self::Electra => "electra.",
        }
    }

    fn heads(self) -> Names {
        match self {
            Self::Bert => &[],
            Self::Roberta | Self::XlmRoberta => ROBERTA_HEADS,
            Self::DistilBert => DISTILBERT_HEADS,
            Self::Electra => ELECTRA_HEADS,
        }
    }

    /// Returns the names of layers that a model with this head has in the pooler's place.
    fn summary(self, head: Part) -> Names {
        match (self, head) {
            (Self::Roberta | Self::XlmRoberta | Self::Electra, Part::SequenceClassifier(_)) => {
                CLASSIFIER
            }
            (Self::Electra, Part::MultipleChoice) => ELECTRA_SUMMARY,
            _ => &[],
        }
    }

    /// Returns BERT's name, without prefix, of a tensor in a file.
    pub fn name_to_bert(self, name: &str) -> String {
        let name = self.without_prefix(name).unwrap_or(name);
        let summaries =
            [Part::SequenceClassifier(1), Part::MultipleChoice].map(|head| self.summary(head));
        let heads = self.heads().iter().chain(summaries.into_iter().flatten()).copied();
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
        self.without_prefix(name).unwrap_or(name).starts_with("pooler.")
    }

    /// Returns the name of one of the encoder's tensors in a file without the family's prefix, if it has it.
    pub(super) fn without_prefix(self, name: &str) -> Option<&str> {
        name.strip_prefix(self.prefix())
    }

    /// Returns the name in a file of a tensor with this name in BERT. In a file that is `prefixed`, as those
    /// of models with a head are, the encoder's tensors have the family's prefix. `head` is the task's head
    /// in the file.
    pub fn name_from_bert(self, name: &str, prefixed: bool, head: Option<Part>) -> String {
        let summary = head.map_or(&[][..], |head| self.summary(head));
        if let Some(head) = replaced(name, swapped(self.heads()).chain(swapped(summary))) {
            return head;
        }
        let of_encoder = ["embeddings", "encoder.", "pooler."];
        let prefixed = prefixed && of_encoder.iter().any(|start| name.starts_with(start));
        let layer = || match self {
            Self::DistilBert => {
                let rest = name.strip_prefix(LAYERS)?;
                in_layer(rest, "transformer.layer.", swapped(DISTILBERT_LAYER))
            }
            _ => None,
        };
        let name = layer().unwrap_or_else(|| name.to_owned());
        match prefixed {
            true => self.prefix().to_owned() + &name,
            false => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, Layout, Part};

    fn config(family: Family) -> Config {
        let mut config = Config::new(12, 8, 2, 16, 20);
        config.model_type = family;
        config.embedding_size = Some(4);
        if family == Family::DistilBert {
            config.type_vocab_size = 0;
        }
        config
    }

    #[test]
    fn every_name_comes_back_from_the_family_s_files() {
        for family in Family::ALL {
            for head in [
                Part::MaskedLm,
                Part::SequenceClassifier(3),
                Part::MultipleChoice,
                Part::TokenClassifier(2),
            ] {
                let parts = [Part::Encoder, Part::Pooler, head];
                let layout = Layout::new(&config(family), &parts);
                let mut seen = std::collections::HashSet::new();
                for parameter in layout.parameters() {
                    let theirs = family.name_from_bert(&parameter.name, true, Some(head));
                    assert_eq!(family.name_to_bert(&theirs), parameter.name, "{theirs}");
                    assert!(seen.insert(theirs));
                }
            }
        }
    }

    #[test]
    fn names_are_those_of_transformers() {
        let (classes, choice) = (Part::SequenceClassifier(2), Part::MultipleChoice);
        for (family, head, ours, theirs) in [
            (Family::Bert, classes, "pooler.dense.bias", "bert.pooler.dense.bias"),
            (Family::Roberta, choice, "pooler.dense.bias", "roberta.pooler.dense.bias"),
            (Family::XlmRoberta, classes, "pooler.dense.bias", "classifier.dense.bias"),
            (Family::Electra, classes, "classifier.bias", "classifier.out_proj.bias"),
            (Family::Electra, choice, "pooler.dense.bias", "sequence_summary.summary.bias"),
            (Family::Electra, choice, "classifier.bias", "classifier.bias"),
            (Family::Electra, choice, "embeddings_project.bias", "electra.embeddings_project.bias"),
            (
                Family::DistilBert,
                choice,
                "encoder.layer.11.attention.output.dense.weight",
                "distilbert.transformer.layer.11.attention.out_lin.weight",
            ),
            (
                Family::DistilBert,
                choice,
                "encoder.layer.0.output.LayerNorm.bias",
                "distilbert.transformer.layer.0.output_layer_norm.bias",
            ),
        ] {
            assert_eq!(family.name_from_bert(ours, true, Some(head)), theirs);
        }
    }

    #[test]
    fn slopes_are_those_of_finite_differences() {
        for activation in [Activation::Tanh, Activation::Relu, Activation::Gelu] {
            for x in [-3.0, -0.7, 0.4, 2.5] {
                let slope = (activation.of(x + 1e-2) - activation.of(x - 1e-2)) / 2e-2;
                assert!((slope - activation.slope(x)).abs() < 1e-4, "{activation:?} {x}");
            }
        }
    }

    #[test]
    fn distilbert_s_fields_are_renamed_both_ways() {
        let text = r#"{"model_type": "distilbert", "dim": 8, "n_layers": 12, "n_heads": 2,
            "hidden_dim": 16, "vocab_size": 20, "activation": "gelu", "dropout": 0.3,
            "attention_dropout": 0.2, "qa_dropout": 0.4, "sinusoidal_pos_embds": false,
            "max_position_embeddings": 40, "pad_token_id": 0, "initializer_range": 0.02,
            "architectures": ["DistilBertModel"]}"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        let config = Config::read(&path).unwrap();
        assert_eq!((config.hidden_size, config.type_vocab_size), (8, 0));
        assert_eq!((config.hidden_dropout_prob, config.attention_probs_dropout_prob), (0.3, 0.2));
        let span = Part::Span.task_head().unwrap();
        assert_eq!(config.head_dropout(span), 0.4);
        let written: Value = serde_json::from_str(&config.to_json()).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn robertas_positions_begin_behind_the_padding() {
        let mut config = config(Family::Roberta);
        (config.pad_token_id, config.max_position_embeddings) = (1, 514);
        assert_eq!((config.position_offset(), config.positions()), (2, 512));
        assert_eq!(Config::new(2, 8, 2, 16, 20).positions(), 512);
    }
}
