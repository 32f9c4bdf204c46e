//! Tensors of safetensors files by name, and their values as f32.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::{Error, Result};

use super::places::Places;
use super::together::SavedWith;
use super::writing::task_class;
use super::{Config, Layout, PRETRAINING, Part};

/// The output layer of the masked-LM head, whose matrix is the word embeddings and whose bias is
/// stored once more under another name.
const DECODER: &str = "cls.predictions.decoder.weight";
const DECODER_BIAS: &str = "cls.predictions.decoder.bias";
const MASKED_LM_BIAS: &str = "cls.predictions.bias";
const WORDS: &str = "embeddings.word_embeddings.weight";

/// Tensors that repeat what others hold: a table of 0, 1, 2, …, and the tied output layer.
const IGNORED: [&str; 3] = ["embeddings.position_ids", DECODER, DECODER_BIAS];

/// The tensors of a model's files with names in their canonical form.
pub(super) struct Tensors<'a> {
    /// The file to name where the whole is at fault.
    main: &'a Path,
    tensors: HashMap<String, (&'a Path, TensorView<'a>)>,
    saved_with: SavedWith,
}

/// Whether the configuration names the class of transformers that has this head.
fn is_of(config: &Config, head: Part) -> bool {
    let class = task_class(head);
    let mut names = config.architectures.iter();
    names.any(|name| Some(name.as_str()) == class)
}

impl<'a> Tensors<'a> {
    /// Parses the `bytes` of the files at `places`.
    pub fn parse(places: &'a Places, bytes: &'a [Vec<u8>]) -> Result<Self> {
        let mut tensors: HashMap<String, (&Path, TensorView)> = HashMap::new();
        let files = places.files.iter().zip(bytes).zip(&places.promised);
        for ((path, bytes), promised) in files {
            let parsed = SafeTensors::deserialize(bytes).map_err(|e| {
                let message = format!("is cut short or not a safetensors file ({e})");
                Error::file(path, message)
            })?;
            if let Some(name) = promised.iter().find(|name| parsed.tensor(name).is_err()) {
                let message = format!("tensor {name}, which the index promises, is missing");
                return Err(Error::file(path, message));
            }
            for (name, view) in parsed.tensors() {
                // Its other dimensions may be as large as they like, and no BERT has one.
                if view.data().is_empty() {
                    let shape = view.shape();
                    let message = format!("tensor {name} of shape {shape:?} holds no value");
                    return Err(Error::file(path, message));
                }
                let known = canonical(&name);
                if tensors.insert(known, (path, view)).is_some() {
                    let message = format!("tensor {name} is stored twice, under two names");
                    return Err(Error::file(path, message));
                }
            }
        }
        if !tensors.contains_key(MASKED_LM_BIAS)
            && let Some(bias) = tensors.get(DECODER_BIAS).cloned()
        {
            tensors.insert(MASKED_LM_BIAS.into(), bias);
        }
        Ok(Self {
            main: &places.main,
            tensors,
            saved_with: match bytes {
                [whole] => SavedWith::of(whole),
                _ => SavedWith::default(),
            },
        })
    }

    /// What the weights were saved with.
    pub fn saved_with(&self) -> &SavedWith {
        &self.saved_with
    }

    /// The file to name where the whole is at fault: the single one, or the index of shards.
    pub fn path(&self) -> &Path {
        self.main
    }

    pub fn holds(&self, part: Part) -> bool {
        let prefix = match part {
            Part::Encoder => "embeddings.",
            Part::Pooler => "pooler.",
            Part::MaskedLm => "cls.predictions.transform.",
            Part::NextSentence => "cls.seq_relationship.",
            Part::SequenceClassifier(_)
            | Part::MultipleChoice
            | Part::TokenClassifier(_)
            | Part::Span => part.task_head().map_or("", |head| head.name),
        };
        self.tensors.keys().any(|name| name.starts_with(prefix))
    }

    /// Whether the part's tensors have the shapes that the layout asks for.
    pub fn fits(&self, layout: &Layout, part: Part) -> bool {
        layout
            .parameters()
            .iter()
            .filter(|parameter| parameter.part == part && part.task_head().is_some())
            .all(|parameter| {
                let tensor = self.tensors.get(&parameter.name);
                tensor.is_some_and(|(_, tensor)| tensor.shape() == parameter.shape)
            })
    }

    /// The task's head that the file holds. What a `classifier` reads only the configuration tells.
    pub fn task_head(&self, config: &Config) -> Option<Part> {
        if self.holds(Part::Span) {
            return Some(Part::Span);
        }
        let (_, weight) = self.tensors.get("classifier.weight")?;
        let outputs = *weight.shape().first()?;
        let heads = [Part::TokenClassifier(outputs), Part::MultipleChoice];
        let told = heads.into_iter().find(|&head| is_of(config, head));
        Some(told.unwrap_or(Part::SequenceClassifier(outputs)))
    }

    /// The class of transformers that the model is of, where that has another task's head than `part`:
    /// classifiers of every kind have one name in the files.
    pub fn other_class(&self, config: &Config, part: Part) -> Option<String> {
        let own = self.task_head(config)?;
        let differs = task_class(own) != task_class(part);
        let class = task_class(part).and(task_class(own))?;
        (differs && is_of(config, own)).then(|| class.to_owned())
    }

    /// Finds tensor `name` with its file; it must have this shape.
    pub fn find(&self, name: &str, shape: &[usize]) -> Result<&(&'a Path, TensorView<'a>)> {
        let Some(found) = self.tensors.get(name) else {
            let message = format!("tensor {name} of shape {shape:?} is missing");
            return Err(Error::file(self.main, message));
        };
        let (path, view) = found;
        if view.shape() != shape {
            let has = view.shape();
            let message =
                format!("tensor {name} has shape {has:?}, but config.json asks for {shape:?}");
            return Err(Error::file(path, message));
        }
        Ok(found)
    }

    /// Copies tensor `name` as f32; each value must be a number.
    pub fn copy(&self, name: &str, shape: &[usize], values: &mut [f32]) -> Result<()> {
        let (path, view) = self.find(name, shape)?;
        let data = view.data();
        match view.dtype() {
            Dtype::F32 => {
                for (value, bytes) in values.iter_mut().zip(data.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Dtype::F16 => {
                for (value, bytes) in values.iter_mut().zip(data.as_chunks::<2>().0) {
                    *value = half::f16::from_le_bytes(*bytes).to_f32();
                }
            }
            Dtype::BF16 => {
                for (value, bytes) in values.iter_mut().zip(data.as_chunks::<2>().0) {
                    *value = half::bf16::from_le_bytes(*bytes).to_f32();
                }
            }
            other => {
                let message = format!(
                    "tensor {name} is of type {other:?}, but F32, F16 or BF16 was expected"
                );
                return Err(Error::file(path, message));
            }
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let message = format!(
                "tensor {name} holds {} (value {at}): the model was spoilt when it was trained or converted",
                values[at]
            );
            return Err(Error::file(path, message));
        }
        Ok(())
    }

    /// Refuses tensors that belong to no BERT of this configuration; heads of tasks that were not
    /// asked for are left alone.
    pub fn refuse_unknown(&self, config: &Config) -> Result<()> {
        let layout = Layout::new(config, &PRETRAINING);
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
            Some((name, (path, _))) => {
                let layers = config.num_hidden_layers;
                let message = format!(
                    "tensor {name} belongs to no BERT of {layers} layers as config.json describes it"
                );
                Err(Error::file(path, message))
            }
        }
    }

    /// Refuses a masked-LM head with an output matrix of its own.
    pub fn refuse_untied(&self) -> Result<()> {
        let tied = match (self.tensors.get(DECODER), self.tensors.get(WORDS)) {
            (Some((_, decoder)), Some((_, words))) => decoder.data() == words.data(),
            _ => true,
        };
        if tied {
            return Ok(());
        }
        let message = format!(
            "{DECODER} is another matrix than {WORDS} (tie_word_embeddings false), but only a masked-LM head tied to the word embeddings is supported"
        );
        Err(Error::file(self.main, message))
    }
}

/// The declared form of a name: no `bert.` prefix, LayerNorms with weight and bias.
fn canonical(name: &str) -> String {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    let name: Cow<'_, str> = match name.strip_suffix("LayerNorm.gamma") {
        Some(stem) => format!("{stem}LayerNorm.weight").into(),
        None => match name.strip_suffix("LayerNorm.beta") {
            Some(stem) => format!("{stem}LayerNorm.bias").into(),
            None => name.into(),
        },
    };
    name.into_owned()
}
