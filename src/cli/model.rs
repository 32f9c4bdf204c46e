//! What the commands that use a trained model share: reading the folder, and texts that fit it.

use std::path::Path;

use crate::data::Packed;
use crate::engine::{Backend, BertEngine, Setup, TaskEngine};
use crate::error::{Error, Result};
use crate::features::{Frozen, frozen};
use crate::model::weights::{Model, wordpiece_of};
use crate::model::{Config, Part, Size};
use crate::text::WordPiece;

/// A model ready to run, with its tokenizer.
pub struct Loaded<E: ?Sized = dyn BertEngine> {
    pub engine: Box<E>,
    pub wordpiece: WordPiece,
}

impl Loaded {
    /// Reads a model folder; `parts` must all be in it. For a text or two: the CPU has answered before
    /// a GPU is ready.
    pub fn read(folder: &Path, parts: &[Part]) -> Result<Self> {
        Self::read_with(folder, parts, Backend::Cpu.into())
    }

    /// The same, with the engine that the command line asks for.
    pub fn read_with(folder: &Path, parts: &[Part], setup: Setup) -> Result<Self> {
        let model = Model::read(folder, parts, None)?;
        let wordpiece = wordpiece_of(folder, &model)?;
        Ok(Self {
            engine: setup.engine(&model.config, &model.layout, model.values)?,
            wordpiece,
        })
    }

    /// Reads a folder that was fine-tuned for the task whose head `part` is.
    pub fn read_task(folder: &Path, part: Part, setup: Setup) -> Result<Loaded<dyn TaskEngine>> {
        if !frozen::holds(folder) {
            let Self { engine, wordpiece } = Self::read_with(folder, &part.with_encoder(), setup)?;
            return Ok(Loaded { engine, wordpiece });
        }
        let Self { engine, wordpiece } = Self::read_with(folder, &[Part::Encoder], setup)?;
        Ok(Loaded {
            engine: Box::new(Frozen::open(folder, engine, part)?),
            wordpiece,
        })
    }

    /// A batch of one sequence; refused when it is longer than the model's positions.
    pub fn batch(&self, ids: &[u32], segments: &[u32]) -> Result<Packed> {
        let positions = self.engine.config().max_position_embeddings;
        if ids.len() > positions {
            return Err(Error::Failed(format!(
                "the text has {} tokens with its special tokens, but the model has only {positions} positions",
                ids.len()
            )));
        }
        let mut batch = Packed::default();
        batch.push(0, ids, segments);
        Ok(batch)
    }
}

/// The configuration that `--size` names: a size of ours, or the path of a config.json.
pub fn config_of(size: &str, vocab_size: usize) -> Result<Config> {
    if is_file(size) {
        Config::read(Path::new(size))
    } else {
        Ok(size.parse::<Size>()?.config(vocab_size))
    }
}

/// Whether a `--size` is a configuration's path.
pub fn is_file(size: &str) -> bool {
    size.ends_with(".json")
}
