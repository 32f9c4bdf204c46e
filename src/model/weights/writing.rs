//! Writes a model folder that transformers loads without a missing or unexpected key.

use std::path::Path;

use safetensors::tensor::Dtype;

use crate::error::{Error, Result};
use crate::files::{Staged, stage_bytes};
use crate::text::WordPiece;

use super::checksums::{CONFIG_ENTRY, VOCABULARY_ENTRY, of_config, of_vocabulary};
use super::{CONFIG, Config, Family, Layout, Part, TensorData, WEIGHTS, stage_tensors};

/// The number format of stored weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum NumberFormat {
    /// Single precision.
    #[default]
    F32,
    /// Half the size; 11 bits of precision, values up to 65,504.
    F16,
    /// Half the size; 8 bits of precision, the range of f32.
    Bf16,
}

impl NumberFormat {
    /// Returns the name in PyTorch and `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Returns the bytes per value.
    pub(super) fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    pub(super) fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
        }
    }

    /// Returns whether the format can represent all values.
    fn holds(self, values: &[f32]) -> bool {
        let fits = |x: f32| half::f16::from_f32(x).is_finite();
        self != Self::F16 || values.iter().all(|&x| fits(x))
    }

    /// Returns `values` rounded to nearest even, little-endian.
    pub(super) fn bytes(self, values: &[f32]) -> Vec<u8> {
        let values = values.iter();
        match self {
            Self::F32 => values.flat_map(|x| x.to_le_bytes()).collect(),
            Self::F16 => values.flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
            Self::Bf16 => values.flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        }
    }
}

/// Writes a model folder in f32 with its vocabulary: see [`super::Model::write`].
pub fn write(
    folder: &Path,
    config: &Config,
    layout: &Layout,
    values: &[f32],
    wordpiece: &WordPiece,
) -> Result<()> {
    let format = NumberFormat::F32;
    let (files, _) = stage(folder, config, layout, values, Some(wordpiece), format)?;
    Staged::place(files)
}

/// Writes a model folder with weights in any format; vocabulary files stay unchanged. Returns an
/// error if the format can't represent a value or a value is not finite.
pub fn write_as(
    folder: &Path,
    config: &Config,
    layout: &Layout,
    values: &[f32],
    format: NumberFormat,
) -> Result<()> {
    let (files, _) = stage(folder, config, layout, values, None, format)?;
    Staged::place(files)
}

/// Writes the files of a model folder to temporary files. Returns them, the weights last, and the
/// entries of the weights' header.
pub fn stage(
    folder: &Path,
    config: &Config,
    layout: &Layout,
    values: &[f32],
    wordpiece: Option<&WordPiece>,
    format: NumberFormat,
) -> Result<(Vec<Staged>, Entries)> {
    let path = folder.join(WEIGHTS);
    let tensors = tensors(config, layout, values, format).map_err(|m| Error::file(&path, m))?;
    let config = described(config, layout, format);
    let mut entries = vec![("format", "pt".to_owned()), (CONFIG_ENTRY, of_config(&config))];
    if let Some(wordpiece) = wordpiece {
        entries.push((VOCABULARY_ENTRY, of_vocabulary(wordpiece)));
    }
    let mut files = stage_beside(folder, &config, wordpiece)?;
    files.push(stage_tensors(&path, tensors, &entries)?);
    Ok((files, entries))
}

/// Writes the files beside the weights to temporary files: those of the tokenizer and the configuration.
pub fn stage_beside(
    folder: &Path,
    config: &Config,
    wordpiece: Option<&WordPiece>,
) -> Result<Vec<Staged>> {
    let mut files = match wordpiece {
        Some(wordpiece) => {
            wordpiece.stage(folder, config.type_vocab_size > 1, Some(config.positions()))?
        }
        None => Vec::new(),
    };
    files.push(stage_bytes(&folder.join(CONFIG), config.to_json().as_bytes())?);
    Ok(files)
}

/// Returns the configuration with the class, number format and classes of what is written.
pub fn described(config: &Config, layout: &Layout, format: NumberFormat) -> Config {
    let mut config = config.clone();
    config.architectures = vec![architecture(&config, layout)];
    config.set_number_format(format.name());
    if let Some(classes) = classes(layout)
        && classes != config.classes()
    {
        let names: Vec<String> = (0..classes).map(|id| format!("LABEL_{id}")).collect();
        config.set_labels(&names);
    }
    config
}

/// Returns an error, naming the tensor, if a value is not finite.
pub fn check_finite(name: &str, values: &[f32]) -> std::result::Result<(), String> {
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(()),
        Some(value) => Err(format!(
            "tensor {name} would hold {value}: training diverged, for example because the \
             learning rate was too high, and the model is not saved"
        )),
    }
}

/// Header entries of a safetensors file.
pub type Entries = Vec<(&'static str, String)>;

/// Returns the class of transformers that loads these parts.
fn architecture(config: &Config, layout: &Layout) -> String {
    let (family, parts) = (config.model_type, layout.parts());
    let has = |part| parts.contains(&part);
    if let Some(task) = parts.iter().find_map(|&part| task_class(family, part)) {
        return task;
    }
    if has(Part::Discriminator) {
        return family.class("ForPreTraining");
    }
    let left_to_right = family.left_to_right().filter(|_| config.is_decoder);
    family.class(match (has(Part::MaskedLm), has(Part::NextSentence)) {
        (true, false) => left_to_right.unwrap_or("ForMaskedLM"),
        (true, true) => "ForPreTraining",
        (false, true) => "ForNextSentencePrediction",
        (false, false) => BARE,
    })
}

/// The suffix of the class of a model without a head.
const BARE: &str = "Model";

/// Returns the class of transformers with this head, if it is a task's.
pub(super) fn task_class(family: Family, head: Part) -> Option<String> {
    let suffix = match head {
        Part::SequenceClassifier(_) => "ForSequenceClassification",
        Part::MultipleChoice => "ForMultipleChoice",
        Part::TokenClassifier(_) => "ForTokenClassification",
        Part::Span => "ForQuestionAnswering",
        Part::Encoder
        | Part::Pooler
        | Part::MaskedLm
        | Part::NextSentence
        | Part::Discriminator => return None,
    };
    Some(family.class(suffix))
}

/// Returns the number of classes that the class of transformers takes from `id2label`, if it does:
/// the span head counts its two outputs per token as classes.
fn classes(layout: &Layout) -> Option<usize> {
    layout.parts().iter().find_map(|part| match part {
        Part::SequenceClassifier(n) | Part::TokenClassifier(n) => Some(*n),
        Part::Span => Some(2),
        _ => None,
    })
}

/// Returns the tensors under the names that transformers uses.
fn tensors<'a>(
    config: &Config,
    layout: &Layout,
    values: &'a [f32],
    format: NumberFormat,
) -> std::result::Result<Vec<(String, TensorData<'a>)>, String> {
    // A bare encoder is a `BertModel`, whose names have no prefix.
    let family = config.model_type;
    let prefixed = architecture(config, layout) != family.class(BARE);
    let head = layout.task_head().map(|head| head.part);
    let named = layout.iter().map(|(parameter, range)| {
        let name = family.name_from_bert(&parameter.name, prefixed, head);
        let values = &values[range];
        check_finite(&name, values)?;
        if !format.holds(values) {
            return Err(format!(
                "tensor {name} holds a value beyond f16's maximum of 65504: bf16 has the range for it"
            ));
        }
        Ok((name, TensorData::new(format, parameter.shape.clone(), values)))
    });
    named.collect()
}
