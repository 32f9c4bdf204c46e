//! A model in memory: its engine, its tokenizer, and the threads that it computes on.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::Value;

use crate::data::Sequences;
use crate::data::labels::shortened;
use crate::engine::inference::{self, Logits};
use crate::engine::{BertEngine, Engine, Setup, TaskEngine};
use crate::error::{Error, Result};
use crate::features::{Frozen, frozen};
use crate::model::weights::{Model, wordpiece_of};
use crate::model::{Config, Part};
use crate::text::WordPiece;
use crate::train::task::stored;

use super::Builder;

/// A model that was read from its folder, with its tokenizer.
pub struct Loaded<E: ?Sized = dyn BertEngine> {
    pub engine: Box<E>,
    pub wordpiece: WordPiece,
}

impl Loaded {
    /// Reads a model folder, which must have all `parts`.
    pub fn read(folder: &Path, parts: &[Part], setup: Setup) -> Result<Self> {
        let model = Model::read(folder, parts, None)?;
        let wordpiece = wordpiece_of(folder, &model)?;
        Ok(Self { engine: setup.engine(&model.config, &model.layout, model.values)?, wordpiece })
    }

    /// Reads a folder that was fine-tuned for the task with this head, on a trained or on a frozen encoder.
    pub fn read_task(folder: &Path, head: Part, setup: Setup) -> Result<Loaded<dyn TaskEngine>> {
        if !frozen::holds(folder) {
            let Self { engine, wordpiece } = Self::read(folder, &head.with_encoder(), setup)?;
            return Ok(Loaded { engine, wordpiece });
        }
        let Self { engine, wordpiece } = Self::read(folder, &[Part::Encoder], setup)?;
        Ok(Loaded { engine: Box::new(Frozen::open(folder, engine, head)?), wordpiece })
    }
}

/// A loaded model that several threads may use, one at a time.
pub struct Shared<E: ?Sized = dyn BertEngine> {
    engine: Mutex<Box<E>>,
    threads: ThreadPool,
    pub wordpiece: WordPiece,
    pub config: Config,
    /// Longest sequence in tokens.
    pub max_len: usize,
}

impl<E: Engine + ?Sized> Shared<E> {
    /// Prepares a model for calls; its longest sequence is `usual` tokens if the settings name no other.
    pub fn new<M>(loaded: Loaded<E>, usual: Option<usize>, settings: &Builder<M>) -> Result<Self> {
        let Loaded { engine, wordpiece } = loaded;
        let config = engine.config().clone();
        let positions = config.positions();
        let max_len = match settings.max_len {
            Some(max_len) if max_len > positions => {
                return Err(Error::Usage(format!(
                    "sequences of {max_len} tokens: the model has only {positions} positions"
                )));
            }
            Some(max_len) => max_len,
            None => usual.map_or(positions, |usual| usual.min(positions)),
        };
        let threads = match settings.threads {
            Some(0) => {
                return Err(Error::Usage("0 threads: at least 1 is needed".into()));
            }
            Some(threads) => threads,
            None => rayon::current_num_threads(),
        };
        let threads = ThreadPoolBuilder::new().num_threads(threads).build();
        Ok(Self {
            engine: Mutex::new(engine),
            threads: threads
                .map_err(|e| Error::Failed(format!("no threads could be started: {e}")))?,
            wordpiece,
            config,
            max_len,
        })
    }

    /// Runs `work` on the model's threads, after the calls of other threads.
    pub fn run<R: Send>(&self, work: impl FnOnce(&mut E) -> R + Send) -> R {
        let run = || {
            // A call that panicked leaves nothing behind that the next one reads.
            let mut guard = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
            let engine: &mut E = &mut guard;
            self.threads.install(|| work(engine))
        };
        if rayon::current_thread_index().is_none() {
            return run();
        }
        // A worker of a pool takes up other work while it waits, perhaps another call of this model, which would
        // wait for the lock that this one holds. So it waits in a thread of no pool.
        std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|e| resume_unwind(e)))
    }

    /// Tokenises texts or pairs of texts; longer ones are cut.
    pub fn cut(&self, texts: &[(&str, Option<&str>)]) -> Result<Sequences> {
        let tokenise = || Sequences::tokenise(&self.wordpiece, texts, self.max_len);
        self.threads.install(tokenise)
    }

    /// Tokenises texts into windows that overlap.
    pub fn in_windows(&self, texts: &[&str]) -> Result<Sequences> {
        let tokenise = || Sequences::in_windows(&self.wordpiece, texts, self.max_len);
        self.threads.install(tokenise)
    }

    /// Tokenises texts or pairs of texts.
    ///
    /// # Errors
    /// If one is too long.
    pub fn whole(&self, texts: &[(&str, Option<&str>)]) -> Result<Sequences> {
        let tokenise = || Sequences::tokenise(&self.wordpiece, texts, usize::MAX);
        let sequences = self.threads.install(tokenise)?;
        let lengths = (0..texts.len()).map(|index| sequences.length(index));
        let mut all = texts.iter().zip(lengths);
        match all.find(|(_, length)| *length > self.max_len) {
            None => Ok(sequences),
            Some(((text, _), length)) => Err(Error::Failed(format!(
                "the text {:?} has {length} tokens with its special tokens, but the model takes only {}",
                shortened(text),
                self.max_len
            ))),
        }
    }
}

impl Shared {
    /// Reads a model folder, which must have all `parts`.
    pub fn read<M>(folder: &Path, parts: &[Part], settings: &Builder<M>) -> Result<Self> {
        let loaded = Loaded::read(folder, parts, settings.setup)?;
        Self::new(loaded, None, settings)
    }
}

impl Shared<dyn TaskEngine> {
    /// Computes the logits of the task's head.
    pub fn logits(&self, sequences: &Sequences) -> Result<Logits> {
        self.run(|engine| inference::logits(engine, sequences))
    }

    /// Reads a folder that was fine-tuned for the task with this head.
    pub fn read_task<M>(folder: &Path, head: Part, settings: &Builder<M>) -> Result<Self> {
        let loaded = Loaded::read_task(folder, head, settings.setup)?;
        let usual = stored(loaded.engine.config(), "max_len");
        Self::new(loaded, usual, settings)
    }
}

/// Returns the task that the model was fine-tuned for, by its name on the command line.
pub fn task_of(config: &Config) -> Option<&'static str> {
    let name = config.other.get("finetuning_task").and_then(Value::as_str);
    crate::tasks::named(name?)
}

/// Returns the names of a classifier's outputs; those that transformers gives if the model has none.
pub fn labels_of(config: &Config) -> Vec<String> {
    match config.labels() {
        Some(labels) => labels.into_iter().map(str::to_owned).collect(),
        None => (0..config.classes()).map(|i| format!("LABEL_{i}")).collect(),
    }
}
