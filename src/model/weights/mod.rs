//! Model folders in the Hugging Face layout: `config.json` and `model.safetensors`.
//!
//! Reading accepts one file or shards with their index, names with and without the `bert.` prefix,
//! the old `gamma`/`beta`, and tensors in f32, f16 or bf16; it refuses a tensor that is missing,
//! unknown or of another shape by name, and formats that only Python reads with the way to convert
//! them. Writing gives what transformers loads without a missing or unexpected key.

mod numbers;
mod places;
mod stored;
mod together;
mod tokenizer;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::text::WordPiece;

use super::{Config, Layout, PRETRAINING, Part};

pub(crate) use self::numbers::{Numbers, stage_tensors, write_tensors};
pub use self::places::{INDEX, class_of, files_of, refusal};
pub(crate) use self::together::SavedWith;
pub use self::tokenizer::{any_wordpiece_of, wordpiece_of};
pub(crate) use self::writing::{Entries, stage};
pub use self::writing::{NumberFormat, write, write_as};

use self::places::Places;
use self::stored::Tensors;

/// The file that holds the weights.
pub const WEIGHTS: &str = "model.safetensors";
/// The file that holds the configuration.
pub const CONFIG: &str = "config.json";

/// A model read from a folder.
#[derive(Debug)]
pub struct Model {
    pub config: Config,
    pub layout: Arc<Layout>,
    /// Laid out as `layout` says.
    pub values: Vec<f32>,
    /// Parts that the file didn't hold and that start from their initialisers.
    pub fresh: Vec<Part>,
    /// Parts that the file holds and that were not asked for.
    pub left_out: Vec<Part>,
    /// What the weights were saved with.
    saved_with: SavedWith,
    /// The file to name if the weights are at fault.
    file: PathBuf,
}

impl Model {
    /// Reads the parts that the task needs. A part that the file lacks as a whole is initialised
    /// from `seed` when that is given, and refused otherwise.
    pub fn read(folder: &Path, parts: &[Part], seed: Option<u64>) -> Result<Self> {
        let places = Places::find(folder)?;
        let config = Config::read(&folder.join(CONFIG))?;
        let bytes = places.read()?;
        let model = Self::take(config, &Tensors::parse(&places, &bytes)?, parts, seed)?;
        model.check_config()?;
        Ok(model)
    }

    /// Reads every part that the file holds and that one class of transformers has: with a task's
    /// head what belongs to that, else what was pre-trained.
    pub fn read_all(folder: &Path) -> Result<Self> {
        let model = Self::read_changed(folder)?;
        model.check_config()?;
        Ok(model)
    }

    /// The same of a folder whose files need not be those that were saved together.
    pub fn read_changed(folder: &Path) -> Result<Self> {
        let places = Places::find(folder)?;
        let config = Config::read(&folder.join(CONFIG))?;
        let bytes = places.read()?;
        let tensors = Tensors::parse(&places, &bytes)?;
        let holds = |part| tensors.holds(part);
        let parts = match tensors.task_head(&config) {
            Some(head) => head.with_encoder(),
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

    /// The values of one parameter, row by row; `layout` has its shape. An error for a name that the
    /// model does not have.
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
        // A head that was trained for other classes is as good as none to a task that starts one.
        let fits = |part| seed.is_none() || file.fits(&layout, part);
        let other = |part| file.other_class(&config, part);
        let has = |part| file.holds(part) && fits(part) && other(part).is_none();
        let missing: Vec<Part> = parts
            .iter()
            .copied()
            .filter(|&part| part != Part::Encoder && !has(part))
            .collect();
        if let (Some(&part), None) = (missing.first(), seed) {
            let (lacks, advice) = (describe(part), advice(part));
            let message = match other(part) {
                Some(class) => format!("is of a {class} and holds no {lacks}: {advice}"),
                None => format!("holds no {lacks}: {advice}"),
            };
            return Err(Error::file(file.path(), message));
        }
        let stored = || layout.iter().filter(|(p, _)| !missing.contains(&p.part));
        // The configuration may ask for any size: the file vouches for it before memory is asked for.
        for (parameter, _) in stored() {
            file.find(&parameter.name, &parameter.shape)?;
        }
        let mut values = match seed {
            Some(seed) if !missing.is_empty() => layout.initialise(seed),
            _ => vec![0.0; layout.total()],
        };
        for (parameter, range) in stored() {
            file.copy(&parameter.name, &parameter.shape, &mut values[range])?;
        }
        file.refuse_unknown(&config)?;
        if parts.contains(&Part::MaskedLm) && !missing.contains(&Part::MaskedLm) {
            file.refuse_untied()?;
        }
        let left_out = PRETRAINING
            .into_iter()
            .chain(file.task_head(&config))
            .filter(|part| !parts.contains(part) && file.holds(*part))
            .collect();
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

    /// Refuses a configuration that is not the one that the weights were saved with.
    pub fn check_config(&self) -> Result<()> {
        self.saved_with.check_config(&self.file, &self.config)
    }

    /// Refuses a vocabulary that is not the one that the weights were saved with.
    pub fn check_vocabulary(&self, wordpiece: &WordPiece) -> Result<()> {
        self.saved_with.check_vocabulary(&self.file, wordpiece)
    }

    /// Writes `config.json` and `model.safetensors` into `folder`, each whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let format = NumberFormat::F32;
        write_as(folder, &self.config, &self.layout, &self.values, format)
    }
}

/// What a part is, with its name in files.
pub fn describe(part: Part) -> &'static str {
    match part {
        Part::Encoder => "encoder",
        Part::Pooler => "pooler (pooler.dense)",
        Part::MaskedLm => "masked-LM head (cls.predictions)",
        Part::NextSentence => "next-sentence head (cls.seq_relationship)",
        Part::SequenceClassifier(_) => "sequence classifier (classifier)",
        Part::MultipleChoice => "multiple-choice head (classifier)",
        Part::TokenClassifier(_) => "token classifier (classifier)",
        Part::Span => "span head (qa_outputs)",
    }
}

fn advice(part: Part) -> &'static str {
    match part {
        Part::Encoder | Part::Pooler => "take a model that has one",
        Part::MaskedLm | Part::NextSentence => {
            "take a model that was pre-trained with it, as `cloze pretrain` writes it"
        }
        Part::SequenceClassifier(_)
        | Part::MultipleChoice
        | Part::TokenClassifier(_)
        | Part::Span => {
            "take a model that was fine-tuned for the task, as `cloze finetune` writes it"
        }
    }
}

#[cfg(test)]
mod tests;
