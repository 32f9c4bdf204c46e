//! Model folders in the Hugging Face layout: `config.json` and `model.safetensors`.
//!
//! Reading accepts one file or shards with their index, names with and without the `bert.` prefix or
//! that of another family, the old `gamma`/`beta`, and tensors in f32, f16 or bf16. It rejects a tensor that is missing,
//! unknown or of the wrong shape, naming it; for formats that only Python reads, the error explains
//! how to convert them. transformers loads what Cloze writes without a missing or unexpected key.

mod checksums;
mod files;
mod reading;
mod tensor_writer;
mod tokenizer;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::text::WordPiece;

use super::{Config, Family, Layout, PRETRAINING, Parameter, Part};

pub(crate) use self::checksums::{Checksums, check_tensors};
pub use self::files::{INDEX, any_weights_in, class_of, files_of, refusal};
pub(crate) use self::tensor_writer::{TensorData, stage_tensors};
pub use self::tokenizer::{any_wordpiece_of, wordpiece_of};
pub(crate) use self::writing::{Entries, stage};
pub use self::writing::{NumberFormat, write, write_as};
#[cfg(feature = "onnx")]
pub(crate) use self::writing::{check_finite, described, stage_beside};

use self::files::WeightFiles;
use self::reading::Tensors;

/// The file that holds the weights.
pub const WEIGHTS: &str = "model.safetensors";
/// The file that holds the configuration.
pub const CONFIG: &str = "config.json";

/// A model read from a folder.
#[derive(Debug)]
pub struct Model {
    /// The hyperparameters.
    pub config: Config,
    /// The layout of the parameters.
    pub layout: Arc<Layout>,
    /// The parameters, laid out as `layout` describes.
    pub values: Vec<f32>,
    /// Parts that the file lacked and that were initialised.
    pub fresh: Vec<Part>,
    /// Parts that the file holds but that were not requested.
    pub left_out: Vec<Part>,
    /// Checksums of the files that the weights were saved with.
    saved_with: Checksums,
    /// The file to name if the weights are at fault.
    file: PathBuf,
}

impl Model {
    /// Reads the parts that the task needs. If the file lacks a whole part, the part is initialised
    /// from `seed`; without a seed that is an error.
    pub fn read(folder: &Path, parts: &[Part], seed: Option<u64>) -> Result<Self> {
        let files = WeightFiles::find(folder)?;
        let config = Config::read(&folder.join(CONFIG))?;
        config.check_parts(parts)?;
        let bytes = files.read()?;
        let tensors = Tensors::parse(&files, &bytes, config.model_type)?;
        let model = Self::take(config, &tensors, parts, seed)?;
        model.check_config()?;
        Ok(model)
    }

    /// Reads every part of the file that one class of transformers has: with a task's head the
    /// parts of that task, otherwise the pre-trained parts.
    pub fn read_all(folder: &Path) -> Result<Self> {
        let model = Self::read_changed(folder)?;
        model.check_config()?;
        Ok(model)
    }

    /// Like [`read_all`](Self::read_all), but the folder's files may come from different saves.
    pub fn read_changed(folder: &Path) -> Result<Self> {
        let files = WeightFiles::find(folder)?;
        let config = Config::read(&folder.join(CONFIG))?;
        let bytes = files.read()?;
        let tensors = Tensors::parse(&files, &bytes, config.model_type)?;
        let holds = |part| tensors.holds(part);
        let parts = match tensors.task_head(&config) {
            Some(head) => head.with_encoder(),
            None if holds(Part::Discriminator) => vec![Part::Encoder, Part::Discriminator],
            None => match (holds(Part::MaskedLm), holds(Part::NextSentence)) {
                (true, true) => PRETRAINING.to_vec(),
                (true, false) => vec![Part::Encoder, Part::MaskedLm],
                (false, true) => vec![Part::Encoder, Part::Pooler, Part::NextSentence],
                (false, false) if holds(Part::Pooler) => vec![Part::Encoder, Part::Pooler],
                (false, false) => vec![Part::Encoder],
            },
        };
        Self::take(config, &tensors, &parts, None)
    }

    /// Returns the values of one parameter, row by row; `layout` has its shape. Returns an error if
    /// the model has no parameter of that name.
    pub fn parameter(&self, name: &str) -> Result<&[f32]> {
        match self.layout.find(name) {
            Some((_, range)) => Ok(&self.values[range]),
            None => Err(Error::Failed(format!(
                "the model has no parameter {name} (`layout.parameters()` lists its names)"
            ))),
        }
    }

    fn take(config: Config, file: &Tensors, parts: &[Part], seed: Option<u64>) -> Result<Self> {
        let layout = Layout::new(&config, parts);
        // A task that starts a head ignores one that was trained for other classes.
        let fits = |part| seed.is_none() || file.fits(&layout, part);
        let other = |part| file.other_class(&config, part);
        let has = |part| file.holds(part) && fits(part) && other(part).is_none();
        let lacks = |part: &Part| *part != Part::Encoder && !has(*part);
        let missing: Vec<Part> = parts.iter().copied().filter(lacks).collect();
        if let (Some(&part), None) = (missing.first(), seed) {
            let (missing_head, advice) = (describe(config.model_type, part), advice(part));
            let message = match other(part) {
                Some(class) => format!("is of a {class} and holds no {missing_head}: {advice}"),
                None => format!("holds no {missing_head}: {advice}"),
            };
            return Err(Error::file(file.path(), message));
        }
        let stored = || layout.iter().filter(|(p, _)| !missing.contains(&p.part));
        let head = layout.task_head().map(|head| head.part);
        // The configuration may ask for any size: the file must have it before memory is allocated.
        for (parameter, _) in stored() {
            file.find(parameter, head)?;
        }
        // Without a seed no part is missing, so nothing is initialised.
        let mut values = layout.initialise_parts(seed.unwrap_or_default(), &missing);
        for (parameter, range) in stored() {
            file.copy(parameter, head, &mut values[range])?;
        }
        file.refuse_unknown(&config)?;
        if parts.contains(&Part::MaskedLm) && !missing.contains(&Part::MaskedLm) {
            file.refuse_untied()?;
        }
        let heads = [Some(Part::Discriminator), file.task_head(&config)].into_iter().flatten();
        let known = PRETRAINING.into_iter().chain(heads);
        let left_out = known.filter(|part| !parts.contains(part) && file.holds(*part));
        let left_out = left_out.collect();
        Ok(Self {
            config,
            layout,
            values,
            fresh: missing,
            left_out,
            saved_with: file.saved_with().clone(),
            file: file.path().to_path_buf(),
        })
    }

    /// Returns an error if the weights were saved with another configuration.
    pub fn check_config(&self) -> Result<()> {
        self.saved_with.check_config(&self.file, &self.config)
    }

    /// Returns an error if the weights were saved with another vocabulary.
    pub fn check_vocabulary(&self, wordpiece: &WordPiece) -> Result<()> {
        self.saved_with.check_vocabulary(&self.file, wordpiece)
    }

    /// Writes `config.json` and `model.safetensors` into `folder`, each completely or not at all.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let format = NumberFormat::F32;
        write_as(folder, &self.config, &self.layout, &self.values, format)
    }
}

/// Describes a part, with its name in the family's files.
pub fn describe(family: Family, part: Part) -> String {
    let (what, layer) = match part {
        Part::Encoder => return "encoder".into(),
        Part::Pooler => ("pooler", "pooler.dense"),
        Part::MaskedLm => ("masked-LM head", "cls.predictions"),
        Part::NextSentence => ("next-sentence head", "cls.seq_relationship"),
        Part::Discriminator => ("discriminator", "discriminator_predictions"),
        Part::SequenceClassifier(_) => ("sequence classifier", "classifier"),
        Part::MultipleChoice => ("multiple-choice head", "classifier"),
        Part::TokenClassifier(_) => ("token classifier", "classifier"),
        Part::Span => ("span head", "qa_outputs"),
    };
    let name = family.name_from_bert(&format!("{layer}.bias"), false, Some(part));
    format!("{what} ({})", name.trim_end_matches(".bias"))
}

fn advice(part: Part) -> &'static str {
    match part {
        Part::Encoder | Part::Pooler => "take a model that has one",
        Part::MaskedLm | Part::NextSentence | Part::Discriminator => {
            "take a model that was pre-trained with it, as `cloze pretrain` writes it"
        }
        _ => "take a model that was fine-tuned for the task, as `cloze finetune` writes it",
    }
}

#[cfg(test)]
mod tests;
