//! The one declaration of BERT's parameters, and the flat memory that holds them.
//!
//! [`declare`] lists every parameter once: Hugging Face name, shape, weight decay, initialiser.
//! Everything else follows from it: the offsets in a flat buffer ([`Layout`]), the dfdx modules,
//! which take their tensors by name, safetensors files, counts and optimizer groups.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::{Site, Stream};

use super::Config;

/// How a parameter is initialised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// Normal with this standard deviation, truncated at two of them (BERT's `truncated_normal`).
    TruncatedNormal(f64),
}

/// One declared parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name in a Hugging Face `BertForPreTraining`, without the `bert.` prefix.
    pub name: String,
    /// Row-major; linear weights are (outputs, inputs).
    pub shape: Vec<usize>,
    /// Whether weight decay applies: to weights, but not to biases and LayerNorms (as in
    /// google-research/bert, optimization.py).
    pub decay: bool,
    /// The initialiser.
    pub init: Init,
    /// The part of the model that the parameter belongs to.
    pub part: Part,
    /// Factor of the learning rate; 0 for a frozen parameter.
    pub rate: f32,
}

impl Parameter {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the parameter has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The parts of a model. Every model has the encoder; files and tasks add others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Embeddings and layers.
    Encoder,
    /// A dense layer with an activation (BERT's is tanh) over `[CLS]`.
    Pooler,
    /// Predicts masked tokens; its output matrix is the token embedding.
    MaskedLm,
    /// Predicts whether segment B follows segment A; reads the pooler.
    NextSentence,
    /// ELECTRA's discriminator, which tells replaced tokens from original ones. It is read and written,
    /// also as ONNX, but no engine runs it.
    Discriminator,
    /// Classifies a sequence into this many classes, or predicts one number; reads the pooler.
    SequenceClassifier(usize),
    /// Scores each of several candidate sequences, of which the best is chosen; reads the pooler.
    MultipleChoice,
    /// Classifies every token into this many classes.
    TokenClassifier(usize),
    /// Scores every token as the start and as the end of an answer.
    Span,
}

/// The input of a task's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadInput {
    /// The pooler's output: one row per sequence.
    Pooled,
    /// The last hidden states: one row per token.
    Rows,
}

/// The head of a task: one linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskHead {
    /// The part that it is.
    pub part: Part,
    /// Name of the layer in transformers' classes.
    pub name: &'static str,
    /// The input of the layer.
    pub input: HeadInput,
    /// Number of outputs.
    pub outputs: usize,
    /// Whether dropout applies to the input: to all but the span head's, as in transformers'
    /// modeling_bert.py ([`Config::head_dropout`] knows other families).
    pub dropout: bool,
}

impl Part {
    /// Returns the task head that this part is, if it is one.
    pub fn task_head(self) -> Option<TaskHead> {
        let classifier = |input, outputs| TaskHead {
            part: self,
            name: "classifier",
            input,
            outputs,
            dropout: true,
        };
        match self {
            Self::Encoder
            | Self::Pooler
            | Self::MaskedLm
            | Self::NextSentence
            | Self::Discriminator => None,
            Self::SequenceClassifier(classes) => Some(classifier(HeadInput::Pooled, classes)),
            Self::MultipleChoice => Some(classifier(HeadInput::Pooled, 1)),
            Self::TokenClassifier(classes) => Some(classifier(HeadInput::Rows, classes)),
            Self::Span => Some(TaskHead {
                part: self,
                name: "qa_outputs",
                input: HeadInput::Rows,
                outputs: 2,
                dropout: false,
            }),
        }
    }

    /// Returns all parts of a model with this part as its head.
    pub fn with_encoder(self) -> Vec<Self> {
        let mut parts = vec![Self::Encoder];
        let head = self.task_head();
        if head.is_some_and(|head| head.input == HeadInput::Pooled) {
            parts.push(Self::Pooler);
        }
        parts.push(self);
        parts
    }
}

/// The parts that pre-training needs.
pub const PRETRAINING: [Part; 4] =
    [Part::Encoder, Part::Pooler, Part::MaskedLm, Part::NextSentence];

impl Config {
    /// Returns an error if the family has no model with these parts.
    pub fn check_parts(&self, parts: &[Part]) -> Result<()> {
        let family = self.model_type;
        if parts.contains(&Part::NextSentence) && !family.has_next_sentence() {
            return Err(Error::Usage(format!(
                "models of model_type {:?} have no next-sentence head: train them without pairs (--no-nsp)",
                family.name()
            )));
        }
        if self.is_decoder && family.left_to_right().is_none() {
            return Err(Error::Usage(format!(
                "models of model_type {:?} don't read from left to right",
                family.name()
            )));
        }
        Ok(())
    }
}

/// Builds the declaration, one group of parameters at a time.
struct Declaration {
    list: Vec<Parameter>,
    part: Part,
    deviation: f64,
}

impl Declaration {
    fn add(&mut self, name: String, shape: &[usize], decay: bool, init: Init) {
        let (shape, part) = (shape.to_vec(), self.part);
        self.list.push(Parameter { name, shape, decay, init, part, rate: 1.0 });
    }

    fn linear(&mut self, name: &str, inputs: usize, outputs: usize) {
        self.linears([name.to_owned()], inputs, outputs);
    }

    /// Adds linear layers with the same input: first all weights, then all biases, so that an
    /// engine can run them as one.
    fn linears<const N: usize>(&mut self, names: [String; N], inputs: usize, outputs: usize) {
        let init = Init::TruncatedNormal(self.deviation);
        for name in &names {
            self.add(format!("{name}.weight"), &[outputs, inputs], true, init);
        }
        for name in &names {
            self.add(format!("{name}.bias"), &[outputs], false, Init::Zeros);
        }
    }

    fn layer_norm(&mut self, name: &str, width: usize) {
        self.add(format!("{name}.weight"), &[width], false, Init::Ones);
        self.add(format!("{name}.bias"), &[width], false, Init::Zeros);
    }
}

/// Lists the parameters of the given parts in the order of Hugging Face's `BertForPreTraining`,
/// except for the weights and biases of queries, keys and values.
pub fn declare(config: &Config, parts: &[Part]) -> Vec<Parameter> {
    let (h, i) = (config.hidden_size, config.intermediate_size);
    let e = config.embedding_width();
    let mut d =
        Declaration { list: Vec::new(), part: Part::Encoder, deviation: config.initializer_range };

    for (name, rows) in [
        ("word", config.vocab_size),
        ("position", config.max_position_embeddings),
        ("token_type", config.type_vocab_size),
    ] {
        let init = Init::TruncatedNormal(d.deviation);
        // DistilBERT has no segments.
        if rows > 0 {
            let name = format!("embeddings.{name}_embeddings.weight");
            d.add(name, &[rows, e], true, init);
        }
    }
    d.layer_norm("embeddings.LayerNorm", e);
    if config.projects_embeddings() {
        d.linear("embeddings_project", e, h);
    }
    for layer in 0..config.num_hidden_layers {
        let name = |rest: &str| format!("encoder.layer.{layer}.{rest}");
        let projections = ["query", "key", "value"];
        let projections = projections.map(|part| name(&format!("attention.self.{part}")));
        d.linears(projections, h, h);
        d.linear(&name("attention.output.dense"), h, h);
        d.layer_norm(&name("attention.output.LayerNorm"), h);
        d.linear(&name("intermediate.dense"), h, i);
        d.linear(&name("output.dense"), i, h);
        d.layer_norm(&name("output.LayerNorm"), h);
    }
    if parts.contains(&Part::Pooler) {
        d.part = Part::Pooler;
        d.linear("pooler.dense", h, h);
    }
    if parts.contains(&Part::MaskedLm) {
        d.part = Part::MaskedLm;
        let bias = "cls.predictions.bias".to_owned();
        d.add(bias, &[config.vocab_size], false, Init::Zeros);
        d.linear("cls.predictions.transform.dense", h, e);
        d.layer_norm("cls.predictions.transform.LayerNorm", e);
    }
    if parts.contains(&Part::NextSentence) {
        d.part = Part::NextSentence;
        d.linear("cls.seq_relationship", h, 2);
    }
    if parts.contains(&Part::Discriminator) {
        d.part = Part::Discriminator;
        d.linear("discriminator_predictions.dense", h, h);
        d.linear("discriminator_predictions.dense_prediction", h, 1);
    }
    for &part in parts {
        if let Some(head) = part.task_head() {
            d.part = part;
            d.linear(head.name, h, head.outputs);
        }
    }
    d.list
}

/// The start of the names of the embeddings' tensors and of their projection's.
const EMBEDDINGS: &str = "embeddings";

/// How much of the learning rate each layer gets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Factor of the learning rate from each layer to the one below it, with the embeddings below the
    /// first layer; pooler and heads learn at the full rate (Clark et al., ELECTRA, arXiv 2003.10555,
    /// appendix A; Howard and Ruder, ULMFiT, section 3.2).
    pub layer_decay: f64,
    /// Number of frozen layers, from the first on, beside the embeddings; None if nothing is frozen.
    pub freeze: Option<usize>,
}

impl Default for Tuning {
    /// The full rate for everything.
    fn default() -> Self {
        Self { layer_decay: 1.0, freeze: None }
    }
}

impl Tuning {
    /// Returns the factor of the rate of a parameter of a model with this many layers.
    fn rate(self, name: &str, layers: usize) -> f32 {
        // 0 for the embeddings, 1 for the first layer.
        let depth = match name.strip_prefix("encoder.layer.") {
            Some(rest) => {
                let number = rest.split('.').next().and_then(|number| number.parse::<usize>().ok());
                number.map_or(layers + 1, |layer| layer + 1)
            }
            None if name.starts_with(EMBEDDINGS) => 0,
            None => layers + 1,
        };
        match self.freeze {
            Some(frozen) if depth <= frozen => 0.0,
            _ => self.layer_decay.powi((layers + 1 - depth.min(layers + 1)) as i32) as f32,
        }
    }
}

/// The declaration with each parameter's range in a flat buffer.
#[derive(Debug)]
pub struct Layout {
    parameters: Vec<Parameter>,
    ranges: Vec<Range<usize>>,
    by_name: HashMap<String, usize>,
    parts: Vec<Part>,
}

impl Layout {
    /// Lays out the parameters of `parts` consecutively, in the order of [`declare`].
    pub fn new(config: &Config, parts: &[Part]) -> Arc<Self> {
        Self::laid_out(declare(config, parts), parts)
    }

    /// Lays out a head whose parameters [`declare`] doesn't know.
    pub fn of(parameters: Vec<Parameter>, part: Part) -> Arc<Self> {
        Self::laid_out(parameters, &[part])
    }

    /// Returns the layout with the rates of `tuning` for a model with this many layers.
    pub fn tuned(&self, tuning: Tuning, layers: usize) -> Arc<Self> {
        let mut parameters = self.parameters.clone();
        for parameter in &mut parameters {
            parameter.rate = tuning.rate(&parameter.name, layers);
        }
        Self::laid_out(parameters, &self.parts)
    }

    /// Returns the number of the first layer that is trained, if everything below it is frozen: a backward
    /// pass can end there. None if the embeddings are trained too.
    pub fn first_trained(&self) -> Option<usize> {
        let trained = self.parameters.iter().find(|parameter| parameter.rate > 0.0)?;
        let rest = match trained.name.strip_prefix("encoder.layer.") {
            Some(rest) => rest,
            None if trained.name.starts_with(EMBEDDINGS) => return None,
            None => return Some(usize::MAX),
        };
        rest.split('.').next()?.parse().ok()
    }

    fn laid_out(parameters: Vec<Parameter>, parts: &[Part]) -> Arc<Self> {
        let mut end = 0;
        let ranges = parameters
            .iter()
            .map(|p| {
                let start = end;
                end += p.len();
                start..end
            })
            .collect();
        let names = parameters.iter().map(|p| p.name.clone());
        let by_name = names.zip(0..).collect();
        Arc::new(Self { parameters, ranges, by_name, parts: parts.to_vec() })
    }

    /// Returns the declared parameters in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the parts of the layout.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the task's head, if there is one.
    pub fn task_head(&self) -> Option<TaskHead> {
        self.parts.iter().find_map(|part| part.task_head())
    }

    /// Returns the parameter of this name and its range.
    pub fn find(&self, name: &str) -> Option<(&Parameter, Range<usize>)> {
        let index = *self.by_name.get(name)?;
        Some((&self.parameters[index], self.ranges[index].clone()))
    }

    /// Iterates over parameters and their ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Parameter, Range<usize>)> + '_ {
        self.parameters.iter().zip(self.ranges.iter().cloned())
    }

    /// Iterates over the parameters with elements in a range of the flat buffer, and their shares
    /// of it.
    pub fn within(
        &self,
        part: Range<usize>,
    ) -> impl Iterator<Item = (&Parameter, Range<usize>)> + '_ {
        let first = self.ranges.partition_point(|range| range.end <= part.start);
        let all = self.parameters[first..].iter().zip(&self.ranges[first..]);
        let end = part.end;
        all.take_while(move |(_, range)| range.start < end).map(move |(parameter, range)| {
            let mine = range.start.max(part.start)..range.end.min(part.end);
            (parameter, mine)
        })
    }

    /// Returns the number of elements of all parameters: the length of every flat buffer.
    pub fn total(&self) -> usize {
        self.ranges.last().map_or(0, |r| r.end)
    }

    /// Returns initial values, a pure function of the seed and the layout.
    pub fn initialise(&self, seed: u64) -> Vec<f32> {
        self.initialise_parts(seed, &self.parts)
    }

    /// Returns the initial values of these parts, and zeros for the others.
    pub(crate) fn initialise_parts(&self, seed: u64, parts: &[Part]) -> Vec<f32> {
        let mut values = vec![0.0; self.total()];
        let chosen = self.iter().enumerate().filter(|(_, (p, _))| parts.contains(&p.part));
        for (index, (parameter, range)) in chosen {
            let values = &mut values[range];
            match parameter.init {
                Init::Zeros => {}
                Init::Ones => values.fill(1.0),
                Init::TruncatedNormal(deviation) => {
                    let site = Site::Init(index as u32);
                    // One stream per 1,024 values, so that threads can share the work.
                    values.par_chunks_mut(1024).enumerate().for_each(|(row, chunk)| {
                        let stream = Stream::new(seed, 0, site, row as u64);
                        truncated_normal(&stream, deviation, chunk);
                    });
                }
            }
        }
        values
    }
}

/// Fills `values` from a normal distribution truncated at two standard deviations.
fn truncated_normal(stream: &Stream, deviation: f64, values: &mut [f32]) {
    let mut index = 0;
    for value in values {
        // About 4.6 % of draws lie beyond two deviations and are redrawn.
        *value = loop {
            // Box-Muller; 1 - u lies in (0, 1], so the logarithm is finite.
            let radius = (-2.0 * (1.0 - stream.uniform(index)).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * stream.uniform(index + 1)).cos();
            index += 2;
            if normal.abs() <= 2.0 {
                break (normal * deviation) as f32;
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Size;

    /// The paper rounds these counts to 110M and 340M, for the encoder with pooler.
    #[test]
    fn counts_are_those_of_the_published_models() {
        let count = |size: Size| {
            let parts = [Part::Encoder, Part::Pooler];
            Layout::new(&size.config(30522), &parts).total()
        };
        assert_eq!(count(Size::Base), 109_482_240);
        assert_eq!(count(Size::Large), 335_141_888);
        assert_eq!(count(Size::Tiny), 4_385_920);
    }

    #[test]
    fn ranges_tile_the_buffer_and_names_are_unique() {
        let layout = Layout::new(&Size::Tiny.config(100), &PRETRAINING);
        let mut end = 0;
        for (parameter, range) in layout.iter() {
            assert_eq!(range.start, end);
            assert_eq!(range.len(), parameter.len());
            end = range.end;
            assert_eq!(layout.find(&parameter.name).unwrap().1, range);
        }
        assert_eq!(end, layout.total());
    }

    #[test]
    fn any_range_of_the_buffer_finds_its_parameters() {
        let layout = Layout::new(&Size::Tiny.config(100), &PRETRAINING);
        for chunk in [1000, 128, 5000, layout.total()] {
            let mut end = 0;
            for start in (0..layout.total()).step_by(chunk) {
                let part = start..(start + chunk).min(layout.total());
                for (parameter, range) in layout.within(part.clone()) {
                    assert_eq!(range.start, end);
                    assert!(part.start <= range.start && range.end <= part.end);
                    let whole = layout.find(&parameter.name).unwrap().1;
                    assert!(whole.start <= range.start && range.end <= whole.end);
                    end = range.end;
                }
            }
            assert_eq!(end, layout.total());
        }
    }

    #[test]
    fn lower_layers_learn_more_slowly_and_frozen_ones_not_at_all() {
        let config = Config::new(3, 8, 2, 16, 20);
        let parts = Part::SequenceClassifier(2).with_encoder();
        let layout = Layout::new(&config, &parts);
        assert!(layout.parameters().iter().all(|p| p.rate == 1.0));
        assert_eq!(layout.first_trained(), None);
        let rates = |layer_decay, freeze| {
            let layout = layout.tuned(Tuning { layer_decay, freeze }, 3);
            let rate = |name: &str| layout.find(name).unwrap().0.rate;
            let rates = [
                rate("embeddings.LayerNorm.bias"),
                rate("encoder.layer.0.output.dense.weight"),
                rate("encoder.layer.2.attention.self.key.bias"),
                rate("pooler.dense.weight"),
                rate("classifier.bias"),
            ];
            (rates, layout.first_trained())
        };
        assert_eq!(rates(0.5, None), ([0.0625, 0.125, 0.5, 1.0, 1.0], None));
        assert_eq!(rates(1.0, Some(0)), ([0.0, 1.0, 1.0, 1.0, 1.0], Some(0)));
        assert_eq!(rates(0.5, Some(2)), ([0.0, 0.0, 0.5, 1.0, 1.0], Some(2)));
        assert_eq!(rates(1.0, Some(3)), ([0.0, 0.0, 0.0, 1.0, 1.0], Some(usize::MAX)));
    }

    #[test]
    fn decay_spares_biases_and_layer_norms() {
        for p in declare(&Size::Tiny.config(100), &PRETRAINING) {
            let spared = p.name.ends_with("bias") || p.name.contains("LayerNorm");
            assert_eq!(p.decay, !spared, "{}", p.name);
        }
    }

    #[test]
    fn initial_values_are_a_truncated_normal() {
        let layout = Layout::new(&Size::Tiny.config(5000), &[Part::Encoder]);
        let values = layout.initialise(1);
        let (_, range) = layout.find("embeddings.word_embeddings.weight").unwrap();
        let words = &values[range];
        let n = words.len() as f64;
        let mean = words.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let variance = words.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n;
        // A normal distribution truncated at two deviations keeps 0.7737 of its variance: 0.88 of
        // the deviation.
        assert!(mean.abs() < 1e-4, "mean {mean}");
        let deviation = variance.sqrt();
        assert!((deviation / 0.02 - 0.8796).abs() < 5e-3, "{deviation}");
        assert!(words.iter().all(|x| x.abs() <= 0.04));
        let (_, range) = layout.find("embeddings.LayerNorm.weight").unwrap();
        assert!(values[range].iter().all(|&x| x == 1.0));
        assert_eq!(values, layout.initialise(1));
        assert_ne!(values, layout.initialise(2));
    }
}
