//! Pre-training as one call: from text to a trained model, with the defaults of the command.
//!
//! ```no_run
//! use cloze::model::Size;
//! use cloze::train::Pretraining;
//!
//! # fn main() -> cloze::Result<()> {
//! let mut run = Pretraining::builder().text(["book.txt.gz"]).size(Size::Tiny).steps(2000).build()?;
//! let held_out = run.run(|progress| println!("{progress}"))?;
//! println!("{:.1} % of held-out masked tokens predicted", 100.0 * held_out.mlm_accuracy);
//! run.save("model")?;
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::{Packing, PretrainingOptions, TokenStore};
use crate::engine::{Backend, Numerics, Setup};
use crate::error::{Error, Result};
use crate::files::Scratch;
use crate::model::weights::Model;
use crate::model::{Config, Layout, PRETRAINING, Part, Size};
use crate::text::reader::check_readable_twice;
use crate::text::{Casing, WordPiece};

pub use super::corpus::paragraphs;
use super::corpus::{Corpus, Source};
use super::distill::Teacher;
use super::phases::FirstPhase;
use super::pretrain::{Pretrainer, Settings};
use super::progress::{Callback, Progress};
use super::recipe::{Hyperparameters, Recipe};
use super::report::EvalReport;
use super::stop::Stop;

/// Returns the longest sequence of a run, in tokens, unless another one is set: the sentences of Cloze's own corpus,
/// which is used without a text of one's own, are short.
pub fn usual_seq(own_text: bool) -> usize {
    if own_text { 128 } else { 40 }
}

/// Returns the most pieces of a new vocabulary, unless another number is set.
pub fn usual_pieces(own_text: bool) -> usize {
    if own_text { 8000 } else { 2000 }
}

/// Trains a vocabulary of at most this many pieces from a text that is read again to be tokenised; from Cloze's own
/// corpus if there is none.
///
/// # Errors
/// If a file can't be read, or not twice, or if the text is too short.
pub fn vocabulary_of(text: &[PathBuf], pieces: usize, casing: Casing) -> Result<WordPiece> {
    text.iter().try_for_each(|path| check_readable_twice(path))?;
    WordPiece::train(paragraphs(text)?.map(|p| p.map(|p| p.text)), pieces, casing)
}

/// Returns the parts of a model that learns from text packed in this way.
pub fn parts(packing: Packing) -> &'static [Part] {
    match packing {
        Packing::Pairs => &PRETRAINING,
        Packing::Document | Packing::Full => &[Part::Encoder, Part::MaskedLm],
    }
}

/// The model that a run starts from.
pub struct Start {
    /// Its dimensions and settings.
    pub config: Config,
    /// The layout of its parameters.
    pub layout: Arc<Layout>,
    /// Its parameters, flat.
    pub values: Vec<f32>,
    /// Its tokenizer.
    pub wordpiece: WordPiece,
    /// How the text is cut into sequences.
    pub packing: Packing,
    /// What the run uses where nothing else is set.
    pub hyperparameters: Hyperparameters,
    /// Whether its weights are random: then those of positions beyond the first phase's length are repeated from the
    /// others when that phase ends.
    pub of_new_model: bool,
    /// The teacher of a distillation.
    pub teacher: Option<Teacher>,
}

impl Start {
    /// Returns a new model with random weights, drawn with `seed`, for a run by this recipe. The vocabulary decides
    /// its size.
    pub fn new_model(
        mut config: Config,
        wordpiece: WordPiece,
        packing: Packing,
        recipe: Recipe,
        seed: u64,
    ) -> Self {
        config.vocab_size = wordpiece.vocab_size();
        config.pad_token_id = wordpiece.special().pad;
        let layout = Layout::new(&config, parts(packing));
        Self {
            values: recipe.initialise(&layout, seed),
            layout,
            wordpiece,
            packing,
            hyperparameters: recipe.hyperparameters(config.hidden_size),
            of_new_model: true,
            teacher: None,
            config,
        }
    }

    /// Returns a model that was trained before. A head that it lacks starts from random weights.
    pub fn trained(mut model: Model, wordpiece: WordPiece, packing: Packing) -> Self {
        model.config.clear_task();
        Self {
            hyperparameters: Hyperparameters::of_trained(model.config.hidden_size),
            config: model.config,
            layout: model.layout,
            values: model.values,
            wordpiece,
            packing,
            of_new_model: false,
            teacher: None,
        }
    }
}

/// Sets up a run of [`Pretraining`].
pub struct PretrainingBuilder {
    text: Vec<PathBuf>,
    store: Option<(Arc<TokenStore>, WordPiece)>,
    held_out: Vec<PathBuf>,
    size: Size,
    config: Option<Config>,
    recipe: Option<Recipe>,
    vocabulary: Option<WordPiece>,
    vocabulary_size: Option<usize>,
    start: Option<Start>,
    seq: Option<usize>,
    first_seq: Option<usize>,
    phase_share: Option<f64>,
    steps: u64,
    batch: usize,
    learning_rate: Option<f64>,
    settings: Option<Settings>,
    options: Option<PretrainingOptions>,
    seed: Option<u64>,
    setup: Setup,
    tokens_in: Option<PathBuf>,
    stop: Stop,
}

impl PretrainingBuilder {
    /// Trains on these files and folders (`.txt`, `.txt.gz`, WikiExtractor's). The default is Cloze's own
    /// small corpus.
    pub fn text(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.text = paths.into_iter().map(Into::into).collect();
        self
    }

    /// Trains on the text of this store, with its vocabulary, instead of on files of text; see
    /// [`TokenStore::open`].
    pub fn store(mut self, store: Arc<TokenStore>, wordpiece: WordPiece) -> Self {
        self.store = Some((store, wordpiece));
        self
    }

    /// Measures on this text, instead of on every tenth document of the text to train on.
    pub fn held_out(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.held_out = paths.into_iter().map(Into::into).collect();
        self
    }

    /// Trains a new model of this size. The default is [`Size::Tiny`].
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// Trains a new model of this configuration, instead of one of a size; the vocabulary's size is filled in.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Trains the new model by this recipe. The default is [`Recipe::Hour`] for models narrower than 768, and
    /// [`Recipe::Paper`] for the others.
    pub fn recipe(mut self, recipe: Recipe) -> Self {
        self.recipe = Some(recipe);
        self
    }

    /// Uses this vocabulary, instead of one trained from the text.
    pub fn vocabulary(mut self, wordpiece: WordPiece) -> Self {
        self.vocabulary = Some(wordpiece);
        self
    }

    /// Trains a vocabulary of at most this many pieces. The default is 8,000, and 2,000 for Cloze's own
    /// corpus.
    pub fn vocabulary_size(mut self, pieces: usize) -> Self {
        self.vocabulary_size = Some(pieces);
        self
    }

    /// Starts from this model, instead of a new one: its configuration, vocabulary and packing hold.
    pub fn start(mut self, start: Start) -> Self {
        self.start = Some(start);
        self
    }

    /// Sets the number of optimizer steps. The default is 12,000.
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// Sets the sequences a step. The default is 16.
    pub fn batch(mut self, sequences: usize) -> Self {
        self.batch = sequences;
        self
    }

    /// Sets the highest learning rate. The default is the recipe's.
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.learning_rate = Some(rate);
        self
    }

    /// Replaces steps, batch, learning rate and everything else about the optimizer.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Sets the longest sequence, in tokens. The default is 128, and 40 for Cloze's own corpus.
    pub fn seq(mut self, tokens: usize) -> Self {
        self.seq = Some(tokens);
        self
    }

    /// Sets the longest sequence of the first phase; as long as the others for no such phase.
    pub fn first_seq(mut self, tokens: usize) -> Self {
        self.first_seq = Some(tokens);
        self
    }

    /// Sets the first phase's share of the steps. The default is the recipe's.
    pub fn phase_share(mut self, share: f64) -> Self {
        self.phase_share = Some(share);
        self
    }

    /// Replaces the recipe's masks, and sets packing and the seed; the longest sequence is set by
    /// [`seq`](Self::seq).
    pub fn options(mut self, options: PretrainingOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Sets the key of every random choice. The default is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Chooses what computes, and how. The default is the fastest engine of this machine, in f32.
    pub fn setup(mut self, setup: Setup) -> Self {
        self.setup = setup;
        self
    }

    /// Keeps the tokens of the text in files in this folder while the run lasts, instead of in the system's
    /// folder for temporary files (2 bytes a token). A store's tokens stay where they are.
    pub fn tokens_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.tokens_in = Some(folder.into());
        self
    }

    /// Ends the run early when this stop is requested, from another thread or from the callback.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Reads the text, trains a vocabulary if none was given, and prepares the engine.
    ///
    /// # Errors
    /// If a file cannot be read, the text is too short, or a setting is out of range.
    pub fn build(mut self) -> Result<Pretraining> {
        let start = match self.start.take() {
            Some(start) => start,
            None => self.new_model()?,
        };
        let (config, usual) = (&start.config, start.hyperparameters.on(self.setup, self.batch));
        let seq = self.seq.unwrap_or_else(|| usual_seq(self.has_text()));
        if seq > config.positions() {
            return Err(Error::Usage(format!(
                "sequences of {seq} tokens: the model has only {} positions",
                config.positions()
            )));
        }
        let mut settings = self.settings.take().unwrap_or_else(|| {
            let learning_rate = self.learning_rate.unwrap_or(usual.learning_rate);
            Hyperparameters { learning_rate, ..usual }.settings(self.steps, self.batch)
        });
        if settings.batch == 0 || settings.evaluate_on == 0 {
            let message = "batch and evaluate_on must be at least 1";
            return Err(Error::Usage(message.into()));
        }
        settings.numerics = Some(Numerics::of(self.setup, settings.micro_batch));
        let engine = self.setup.engine(config, &start.layout, start.values)?;
        let options = PretrainingOptions {
            max_len: seq,
            packing: start.packing,
            left_to_right: config.is_decoder,
            ..self.text_options(usual.mask_probability)
        };
        let tokens = self.token_folder()?;
        let source = match &self.store {
            Some((store, theirs)) => Source::Store(store, theirs),
            None => Source::Text(&self.text),
        };
        let corpus = Corpus::new(source, &self.held_out, &start.wordpiece, tokens.path())?;
        let (data, held_out) = corpus.data(&start.wordpiece, &options)?;
        let steps = settings.schedule.total;
        let mut trainer = Pretrainer::new(engine, data, held_out, settings)
            .with_vocabulary(start.wordpiece.clone());
        let first_seq = self.first_seq.or(usual.first_seq).unwrap_or(seq);
        if first_seq < seq {
            let options = PretrainingOptions { max_len: first_seq, ..options };
            let (data, held_out) = corpus.data(&start.wordpiece, &options)?;
            let share = self.phase_share.unwrap_or(usual.phase_share);
            trainer = trainer.with_first_phase(FirstPhase {
                data,
                held_out,
                until: (steps as f64 * share) as u64,
                of_new_model: start.of_new_model,
            });
        }
        if let Some(teacher) = start.teacher {
            trainer = trainer.with_teacher(teacher);
        }
        Ok(Pretraining { trainer, stop: self.stop, _tokens: tokens })
    }

    /// Returns how text becomes examples; this share of the tokens is masked unless another one is set.
    fn text_options(&self, mask_probability: f64) -> PretrainingOptions {
        let usual = PretrainingOptions { mask_probability, ..PretrainingOptions::default() };
        let options = self.options.clone().unwrap_or(usual);
        PretrainingOptions { seed: self.seed.unwrap_or(options.seed), ..options }
    }

    fn new_model(&self) -> Result<Start> {
        let recipe = |width| self.recipe.unwrap_or(Recipe::of_width(width));
        let config = self.config.clone().unwrap_or_else(|| {
            let width = self.size.config(0).hidden_size;
            recipe(width).config(self.size)
        });
        let recipe = recipe(config.hidden_size);
        let options =
            self.text_options(recipe.hyperparameters(config.hidden_size).mask_probability);
        config.check_parts(parts(options.packing))?;
        let stored = self.store.as_ref().map(|(_, wordpiece)| wordpiece);
        let wordpiece = match self.vocabulary.as_ref().or(stored) {
            Some(wordpiece) => wordpiece.clone(),
            None => {
                let pieces = self.vocabulary_size.unwrap_or(usual_pieces(!self.text.is_empty()));
                vocabulary_of(&self.text, pieces, Casing::Uncased)?
            }
        };
        Ok(Start::new_model(config, wordpiece, options.packing, recipe, options.seed))
    }

    /// Returns whether a text was given, and the run isn't one on Cloze's own corpus.
    fn has_text(&self) -> bool {
        !self.text.is_empty() || self.store.is_some()
    }

    /// Creates the folder of the token files, which is removed with the run. One that a killed run left is
    /// removed first.
    fn token_folder(&self) -> Result<Scratch> {
        match &self.tokens_in {
            Some(parent) => Scratch::at(&parent.join("tokens")),
            None => Scratch::new(),
        }
    }
}

/// A run of pre-training: masked LM and next sentence, as in the paper.
pub struct Pretraining {
    trainer: Pretrainer,
    stop: Stop,
    /// The token files, which the trainer reads.
    _tokens: Scratch,
}

impl Pretraining {
    /// Starts to set up a run.
    pub fn builder() -> PretrainingBuilder {
        PretrainingBuilder {
            text: Vec::new(),
            store: None,
            held_out: Vec::new(),
            size: Size::Tiny,
            config: None,
            recipe: None,
            vocabulary: None,
            vocabulary_size: None,
            start: None,
            seq: None,
            first_seq: None,
            phase_share: None,
            steps: 12_000,
            batch: 16,
            learning_rate: None,
            settings: None,
            options: None,
            seed: None,
            setup: Backend::Auto.into(),
            tokens_in: None,
            stop: Stop::default(),
        }
    }

    /// Trains to the end, or until the stop is requested. Returns the last measurement on held-out text.
    ///
    /// # Errors
    /// If the run diverges or the engine fails.
    pub fn run(&mut self, mut progress: impl FnMut(&Progress)) -> Result<EvalReport> {
        let steps = self.trainer.settings().schedule.total;
        let mut report = Callback::new(steps, &mut progress);
        let stop = self.stop.clone();
        self.trainer.run(None, &mut report, &stop)?;
        self.trainer.latest()
    }

    /// Writes the model, its vocabulary and the run's state into `folder`.
    ///
    /// # Errors
    /// If a parameter is not finite or a file cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        self.trainer.save(folder.as_ref())
    }

    /// Returns the trainer, for what this type has no method for.
    pub fn trainer(&mut self) -> &mut Pretrainer {
        &mut self.trainer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_ones_own_have_longer_sequences_and_a_trained_model_continues_slowly() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("book.txt");
        let paragraph =
            "The old house stood on the warm hill. Nobody had lived there for a year.\n";
        std::fs::write(&file, format!("{paragraph}{paragraph}\n").repeat(40)).unwrap();
        let config = || Config {
            num_hidden_layers: 1,
            max_position_embeddings: 128,
            ..Recipe::Hour.config(Size::Tiny)
        };
        let builder =
            || Pretraining::builder().config(config()).seed(3).steps(1).vocabulary_size(200);
        for (builder, expected) in [(builder(), 40), (builder().text([&file]), 128)] {
            let mut run = builder.build().unwrap();
            let (data, held_out) = run.trainer().data();
            assert_eq!((data.options().max_len, held_out.options().max_len), (expected, expected));
            assert_eq!(data.options().seed, 3);
            run.save(folder.path().join("out")).unwrap();
        }
        // 128 fill all positions.
        let message = builder().text([&file]).seq(129).build().err().unwrap().to_string();
        assert_eq!(message, "sequences of 129 tokens: the model has only 128 positions");
        let out = folder.path().join("out");
        let model = Model::read(&out, &PRETRAINING, None).unwrap();
        let wordpiece = WordPiece::from_file(&WordPiece::file_in(&out), None).unwrap();
        let more = Start::trained(model, wordpiece, Packing::Pairs);
        assert_eq!(more.hyperparameters, Hyperparameters::of_trained(128));
    }
}
