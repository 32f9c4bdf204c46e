//! Reads tensors of safetensors files by name, converted to f32.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::{Error, Result};

use super::checksums::{Checksums, check_tensors};
use super::files::WeightFiles;
use super::writing::task_class;
use super::{Config, Family, Layout, PRETRAINING, Parameter, Part};
use crate::model::family::POOLER;

/// The output layer of the masked-LM head: its matrix is the word embeddings, and its bias is
/// stored twice under two names.
const DECODER: &str = "cls.predictions.decoder.weight";
const DECODER_BIAS: &str = "cls.predictions.decoder.bias";
const MASKED_LM_BIAS: &str = "cls.predictions.bias";
const WORDS: &str = "embeddings.word_embeddings.weight";

/// Tensors that repeat others: the position ids 0, 1, 2, …, and the tied output layer.
const IGNORED: [&str; 3] = ["embeddings.position_ids", DECODER, DECODER_BIAS];

/// A tensor in a file.
pub(super) struct Tensor<'a> {
    path: &'a Path,
    /// Its name there.
    name: String,
    view: TensorView<'a>,
}

/// The tensors of a model's files under their canonical names.
pub(super) struct Tensors<'a> {
    /// The file to name in errors about the whole.
    main: &'a Path,
    tensors: HashMap<String, Tensor<'a>>,
    saved_with: Checksums,
    family: Family,
    /// Whether the encoder's tensors have the family's prefix.
    prefixed: bool,
}

/// Returns whether the configuration names the class of transformers with this head.
fn is_of(config: &Config, head: Part) -> bool {
    let class = task_class(config.model_type, head);
    config.architectures.iter().any(|name| Some(name) == class.as_ref())
}

impl<'a> Tensors<'a> {
    /// Parses the `bytes` of `files`, which hold a model of `family`.
    pub fn parse(files: &'a WeightFiles, bytes: &'a [Vec<u8>], family: Family) -> Result<Self> {
        let mut tensors: HashMap<String, Tensor> = HashMap::new();
        let mut prefixed = false;
        let parts = files.paths.iter().zip(bytes).zip(&files.promised);
        for ((path, bytes), promised) in parts {
            let parsed = SafeTensors::deserialize(bytes).map_err(|e| {
                let message = format!("is cut short or not a safetensors file ({e})");
                Error::file(path, message)
            })?;
            check_tensors(path, bytes)?;
            if let Some(name) = promised.iter().find(|name| parsed.tensor(name).is_err()) {
                let message = format!("tensor {name}, which the index lists here, is missing");
                return Err(Error::file(path, message));
            }
            let all = parsed.tensors();
            // Old classifiers of RoBERTa hold the encoder's pooler, which they don't use, beside their own.
            let takes_place = |(name, _): &(String, TensorView)| {
                !family.is_pooler(name) && canonical(name, family).starts_with(POOLER)
            };
            let unused_pooler = all.iter().any(takes_place);
            for (name, view) in all {
                if unused_pooler && family.is_pooler(&name) {
                    continue;
                }
                // Its other dimensions could be arbitrarily large, and no BERT has an empty tensor.
                if view.data().is_empty() {
                    let shape = view.shape();
                    let message = format!("tensor {name} of shape {shape:?} holds no value");
                    return Err(Error::file(path, message));
                }
                prefixed |= family.without_prefix(&name).is_some();
                let known = canonical(&name, family);
                if let Some(first) = tensors.insert(known, Tensor { path, name, view }) {
                    let message = format!("tensor {} is stored twice, under two names", first.name);
                    return Err(Error::file(path, message));
                }
            }
        }
        if !tensors.contains_key(MASKED_LM_BIAS)
            && let Some(bias) = tensors.remove(DECODER_BIAS)
        {
            tensors.insert(MASKED_LM_BIAS.into(), bias);
        }
        Ok(Self {
            main: &files.main,
            tensors,
            saved_with: match bytes {
                [whole] => Checksums::of(whole),
                _ => Checksums::default(),
            },
            family,
            prefixed,
        })
    }

    /// Returns the checksums of the files that the weights were saved with.
    pub fn saved_with(&self) -> &Checksums {
        &self.saved_with
    }

    /// Returns the file to name in errors about the whole: the single file, or the index of shards.
    pub fn path(&self) -> &Path {
        self.main
    }

    pub fn holds(&self, part: Part) -> bool {
        let prefix = match part {
            Part::Encoder => "embeddings.",
            Part::Pooler => "pooler.",
            Part::MaskedLm => "cls.predictions.transform.",
            Part::NextSentence => "cls.seq_relationship.",
            Part::Discriminator => "discriminator_predictions.",
            _ => part.task_head().map_or("", |head| head.name),
        };
        self.tensors.keys().any(|name| name.starts_with(prefix))
    }

    /// Returns whether the part's tensors have the shapes that the layout declares.
    pub fn fits(&self, layout: &Layout, part: Part) -> bool {
        layout
            .parameters()
            .iter()
            .filter(|parameter| parameter.part == part && part.task_head().is_some())
            .all(|parameter| {
                let tensor = self.tensors.get(&parameter.name);
                tensor.is_some_and(|tensor| tensor.view.shape() == parameter.shape)
            })
    }

    /// Returns the task's head in the file. Only the configuration says what kind of head a
    /// `classifier` is.
    pub fn task_head(&self, config: &Config) -> Option<Part> {
        if self.holds(Part::Span) {
            return Some(Part::Span);
        }
        let weight = self.tensors.get("classifier.weight")?;
        let outputs = *weight.view.shape().first()?;
        let heads = [Part::TokenClassifier(outputs), Part::MultipleChoice];
        let named = heads.into_iter().find(|&head| is_of(config, head));
        Some(named.unwrap_or(Part::SequenceClassifier(outputs)))
    }

    /// Returns the model's transformers class if its head is for another task than `part`: files
    /// use one name for classifiers of every kind.
    pub fn other_class(&self, config: &Config, part: Part) -> Option<String> {
        let own = self.task_head(config)?;
        let [own_class, class] = [own, part].map(|part| task_class(self.family, part));
        let differs = own_class != class;
        let class = class.and(own_class)?;
        (differs && is_of(config, own)).then_some(class)
    }

    /// Finds the tensor of a parameter; returns an error unless it has the parameter's shape. `head` is the
    /// task's head of the model.
    pub fn find(&self, parameter: &Parameter, head: Option<Part>) -> Result<&Tensor<'a>> {
        let shape = &parameter.shape;
        let Some(found) = self.tensors.get(&parameter.name) else {
            let name = self.family.name_from_bert(&parameter.name, self.prefixed, head);
            let message = format!("tensor {name} of shape {shape:?} is missing");
            return Err(Error::file(self.main, message));
        };
        let has = found.view.shape();
        if has != shape {
            let name = &found.name;
            let message =
                format!("tensor {name} has shape {has:?}, but config.json asks for {shape:?}");
            return Err(Error::file(found.path, message));
        }
        Ok(found)
    }

    /// Copies the tensor of a parameter as f32; returns an error if a value is not finite.
    pub fn copy(
        &self,
        parameter: &Parameter,
        head: Option<Part>,
        values: &mut [f32],
    ) -> Result<()> {
        let Tensor { path, name, view } = self.find(parameter, head)?;
        let data = view.data();
        match view.dtype() {
            Dtype::F32 => convert(data, values, f32::from_le_bytes),
            Dtype::F16 => convert(data, values, |x| half::f16::from_le_bytes(x).to_f32()),
            Dtype::BF16 => convert(data, values, |x| half::bf16::from_le_bytes(x).to_f32()),
            other => {
                let message = format!(
                    "tensor {name} is of type {other:?}, but F32, F16 or BF16 was expected"
                );
                return Err(Error::file(path, message));
            }
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let message = format!(
                "tensor {name} holds {} (value {at}): training diverged, or the conversion failed",
                values[at]
            );
            return Err(Error::file(path, message));
        }
        Ok(())
    }

    /// Returns an error if a tensor belongs to no model of this configuration; heads of other tasks
    /// are ignored.
    pub fn refuse_unknown(&self, config: &Config) -> Result<()> {
        let mut pretrained = PRETRAINING.to_vec();
        pretrained.extend((self.family == Family::Electra).then_some(Part::Discriminator));
        let layout = Layout::new(config, &pretrained);
        let other_head = ["classifier.", "qa_outputs."];
        let unknown = self
            .tensors
            .iter()
            .filter(|(name, _)| layout.find(name).is_none())
            .filter(|(name, _)| !other_head.iter().any(|head| name.starts_with(head)))
            .filter(|(name, _)| !IGNORED.contains(&name.as_str()))
            .min_by_key(|(name, _)| name.as_str());
        match unknown {
            None => Ok(()),
            Some((_, Tensor { path, name, .. })) => {
                let layers = config.num_hidden_layers;
                let message = format!(
                    "tensor {name} belongs to no model of {layers} layers as config.json describes it"
                );
                Err(Error::file(path, message))
            }
        }
    }

    /// Returns an error if the masked-LM head has its own output matrix.
    pub fn refuse_untied(&self) -> Result<()> {
        match (self.tensors.get(DECODER), self.tensors.get(WORDS)) {
            (Some(decoder), Some(words)) if decoder.view.data() != words.view.data() => {
                let message = format!(
                    "{} differs from {} (tie_word_embeddings false), but only a masked-LM head tied to the word embeddings is supported",
                    decoder.name, words.name
                );
                Err(Error::file(self.main, message))
            }
            _ => Ok(()),
        }
    }
}

fn convert<const N: usize>(data: &[u8], values: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    for (value, bytes) in values.iter_mut().zip(data.as_chunks::<N>().0) {
        *value = number(*bytes);
    }
}

/// Returns the declared form of a name: BERT's without prefix, LayerNorms with weight and bias.
fn canonical(name: &str, family: Family) -> String {
    let name = family.name_to_bert(name);
    let ends = [("gamma", "weight"), ("beta", "bias")];
    let old = ends.iter().find_map(|(old, new)| {
        let stem = name.strip_suffix(old)?.strip_suffix("LayerNorm.")?;
        Some(format!("{stem}LayerNorm.{new}"))
    });
    old.unwrap_or(name)
}
