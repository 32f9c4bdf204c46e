//! Trained models in a program: load one by its folder or its name, and pass it a batch of texts.
//!
//! | type | returns |
//! |---|---|
//! | [`FillMask`] | the most probable tokens for every `[MASK]` |
//! | [`NextSentence`] | the probability that one text follows another |
//! | [`TextClassifier`] | a class or a number for a text or a pair of texts |
//! | [`TokenClassifier`] | the entities in a text, such as names and places |
//! | [`QuestionAnswerer`] | the part of a text that answers a question |
//! | [`MultipleChoice`] | the most probable of several continuations |
//! | [`Embedder`] | a vector for a text |
//!
//! Every type has `load`, `builder` for [more settings](Builder), and calls that take a batch and return the
//! answers in its order. A call sorts the texts by length and computes several at once, so one call with many
//! texts is much faster than many calls. Models can be shared between threads; each computes one call at a time.

mod embedder;
mod fill_mask;
mod loaded;
mod multiple_choice;
mod next_sentence;
mod question_answerer;
mod text_classifier;
mod token_classifier;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::engine::{Backend, Precision, Setup};
use crate::error::Result;
use crate::features::{Combine, LayerRange, Pool};
use crate::hub;

pub use embedder::Embedder;
pub use fill_mask::{FillMask, Guess};
#[cfg(feature = "cli")]
pub(crate) use loaded::Loaded;
pub use multiple_choice::{Choice, MultipleChoice};
pub use next_sentence::NextSentence;
pub use question_answerer::{Answer, QuestionAnswerer};
pub use text_classifier::{Prediction, TextClassifier};
pub use token_classifier::{Entity, TokenClassifier};

/// Settings for loading a model.
///
/// ```
/// use cloze::{Backend, FillMask};
///
/// let model = FillMask::builder("cloze-small").backend(Backend::Cpu).threads(1).load()?;
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Builder<M> {
    model: PathBuf,
    setup: Setup,
    threads: Option<usize>,
    max_len: Option<usize>,
    vectors: VectorOptions,
    kind: PhantomData<fn() -> M>,
}

/// What [`Embedder`] computes, as far as it was set.
#[derive(Debug, Clone, Default)]
struct VectorOptions {
    layers: Option<LayerRange>,
    combine: Option<Combine>,
    pool: Option<Pool>,
    normalize: Option<bool>,
}

impl<M> Builder<M> {
    fn new(model: &Path) -> Self {
        Self {
            model: model.to_owned(),
            setup: Backend::Auto.into(),
            threads: None,
            max_len: None,
            vectors: VectorOptions::default(),
            kind: PhantomData,
        }
    }

    /// Chooses what computes. The default is the fastest engine of this machine: a GPU, else the CPU.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.setup.backend = backend;
        self
    }

    /// Sets the number format of matrix products. The default is f32.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.setup.precision = precision;
        self
    }

    /// Sets backend and precision at once.
    pub fn setup(mut self, setup: Setup) -> Self {
        self.setup = setup;
        self
    }

    /// Sets the number of threads, which belong to this model alone. The default is one for each processor.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the longest sequence, in tokens. The default is that of the model's fine-tuning, else the number of
    /// its positions. Each type's documentation says what happens to longer texts.
    pub fn max_len(mut self, tokens: usize) -> Self {
        self.max_len = Some(tokens);
        self
    }
}

impl<M: Open> Builder<M> {
    /// Loads the model.
    ///
    /// # Errors
    /// If there is no such model, it lacks the head, one of its files is damaged, or a setting does not suit it.
    pub fn load(self) -> Result<M> {
        M::open(&hub::folder_of(&self.model)?, &self)
    }
}

/// A type that [`Builder::load`] makes.
pub trait Open: Sized {
    /// Reads a model from its folder.
    #[doc(hidden)]
    fn open(folder: &Path, settings: &Builder<Self>) -> Result<Self>;
}

/// Implements `load` and `builder`.
macro_rules! loading {
    ($type:ident) => {
        impl $type {
            /// Loads the model in a folder, or with the feature `hub` the one with that name on the Hugging Face
            /// Hub. `cloze-small` and the smaller `cloze-tiny` come with Cloze.
            ///
            /// # Errors
            /// If there is no such model, it lacks the head, or one of its files is damaged.
            pub fn load(model: impl AsRef<std::path::Path>) -> $crate::Result<Self> {
                Self::builder(model).load()
            }

            /// Starts to load a model with other settings than [`load`](Self::load).
            pub fn builder(model: impl AsRef<std::path::Path>) -> $crate::predict::Builder<Self> {
                $crate::predict::Builder::new(model.as_ref())
            }
        }
    };
}
use loading;
