//! Fine-tuning as one call: a pre-trained model, a task, its files.
//!
//! ```no_run
//! use cloze::tasks;
//! use cloze::train::Finetuning;
//!
//! # fn main() -> cloze::Result<()> {
//! let task = tasks::your_own("text,label", "mails.csv")?;
//! let mut run = Finetuning::builder(task, "model").train("mails.csv").dev("more.csv").build()?;
//! let scores = run.run(|progress| println!("{progress}"))?;
//! println!("accuracy {}", scores["accuracy"]);
//! run.save("spam")?;
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};

use crate::data::bad::BadRows;
use crate::data::sequences::BatchSize;
use crate::engine::{Backend, Numerics, Setup, TaskEngine};
use crate::error::{Error, Result};
use crate::eval::Scores;
use crate::features::frozen;
use crate::hub;
use crate::model::Config;
use crate::model::weights::{self, Model, wordpiece_of};
use crate::text::WordPiece;

use super::finetune::{Finetuner, Outcome, Settings};
use super::progress::{Callback, Progress};
use super::stop::Stop;
use super::task::{Dataset, Reading, Role, Task, describe, measure};

/// Longest sequence, in tokens, unless another one is set.
const MAX_LEN: usize = 128;

/// Sets up a run of [`Finetuning`].
pub struct FinetuningBuilder {
    task: Box<dyn Task>,
    model: PathBuf,
    train: Option<PathBuf>,
    dev: Option<PathBuf>,
    max_len: usize,
    settings: Settings,
    setup: Setup,
    stop: Stop,
}

impl FinetuningBuilder {
    /// Trains on this file.
    pub fn train(mut self, file: impl Into<PathBuf>) -> Self {
        self.train = Some(file.into());
        self
    }

    /// Measures on this file after the training.
    pub fn dev(mut self, file: impl Into<PathBuf>) -> Self {
        self.dev = Some(file.into());
        self
    }

    /// Sets the passes over the training data. The default is 3.
    pub fn epochs(mut self, epochs: u32) -> Self {
        self.settings.epochs = epochs;
        self
    }

    /// Sets the rows a step. The default is 32.
    pub fn batch(mut self, rows: usize) -> Self {
        self.settings.batch = BatchSize::Examples(rows);
        self
    }

    /// Sets the highest learning rate. The default is 5e-5.
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.settings.learning_rate = rate;
        self
    }

    /// Sets the key of the order of rows, of dropout, and of the head's first weights. The default is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Sets the longest sequence, in tokens; longer texts are cut. The default is 128.
    pub fn max_len(mut self, tokens: usize) -> Self {
        self.max_len = tokens;
        self
    }

    /// Replaces epochs, batch, learning rate, seed and everything else about the optimizer. This run keeps no
    /// checkpoints and no epoch's model but the last: [`Finetuner`] does, with a folder and a report.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Chooses what computes, and how. The default is the fastest engine of this machine, in f32.
    pub fn setup(mut self, setup: Setup) -> Self {
        self.setup = setup;
        self
    }

    /// Ends the run early when this stop is requested, from another thread or from the callback.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Reads the model and the files.
    ///
    /// # Errors
    /// If no training file was set, there is no such model, a file cannot be read, a row is malformed, the model has
    /// too few positions, or a setting is out of range or does not suit the task.
    pub fn build(self) -> Result<Finetuning> {
        let Some(train) = &self.train else {
            let message = "fine-tuning needs a file to train on";
            return Err(Error::Usage(message.into()));
        };
        let of_folder = [
            ("keep_best", self.settings.keep_best),
            ("patience", self.settings.patience.is_some()),
            ("save_every", self.settings.save_every > 0),
        ];
        if let Some((name, _)) = of_folder.iter().find(|(_, is_set)| *is_set) {
            return Err(Error::Usage(format!(
                "the setting {name} needs a folder for checkpoints, which `Finetuning` does not have: use `Finetuner`"
            )));
        }
        let task = self.task.as_ref();
        let parts = task.part().with_encoder();
        let folder = hub::folder_of(&self.model)?;
        let model = Model::read(&folder, &parts, Some(self.settings.seed))?;
        let wordpiece = wordpiece_of(&folder, &model)?;
        let mut config = model.config;
        let layout = model.layout.tuned(self.settings.tuning, config.num_hidden_layers);
        if self.max_len > config.positions() {
            return Err(Error::Usage(format!(
                "sequences of {} tokens: the model has only {} positions",
                self.max_len,
                config.positions()
            )));
        }
        describe(task, self.max_len, &mut config);
        let read = |path: &Path, role| {
            let reading = Reading {
                wordpiece: &wordpiece,
                max_len: self.max_len,
                limit: None,
                split: None,
                bad: &mut BadRows::skipped_if(false),
                notes: &mut Vec::new(),
            };
            task.read(path, role, reading)
        };
        let train = read(train, Role::Train)?;
        let dev = self.dev.as_deref().map(|path| read(path, Role::Dev));
        let dev = dev.transpose()?;
        let mut settings = self.settings;
        settings.numerics = Some(Numerics::of(self.setup, settings.micro_batch));
        Ok(Finetuning {
            engine: Some(self.setup.engine(&config, &layout, model.values)?),
            task: self.task,
            config,
            wordpiece,
            train,
            dev,
            settings,
            stop: self.stop,
            outcome: Outcome::default(),
        })
    }
}

/// A run of fine-tuning: every parameter is trained, as in the paper.
pub struct Finetuning {
    task: Box<dyn Task>,
    /// None after a run that failed.
    engine: Option<Box<dyn TaskEngine>>,
    config: Config,
    wordpiece: WordPiece,
    train: Box<dyn Dataset>,
    dev: Option<Box<dyn Dataset>>,
    settings: Settings,
    stop: Stop,
    outcome: Outcome,
}

impl Finetuning {
    /// Starts to set up a run that fine-tunes a model for `task`: that in a folder, or one of a name, as the command
    /// takes it.
    pub fn builder(task: Box<dyn Task>, model: impl Into<PathBuf>) -> FinetuningBuilder {
        FinetuningBuilder {
            task,
            model: model.into(),
            train: None,
            dev: None,
            max_len: MAX_LEN,
            settings: Settings::default(),
            setup: Backend::Auto.into(),
            stop: Stop::default(),
        }
    }

    /// Trains for all epochs, or until the stop is requested, and measures on the development file. Returns
    /// the scores by name; none without such a file.
    ///
    /// # Errors
    /// If the run diverges or the engine fails.
    pub fn run(&mut self, mut progress: impl FnMut(&Progress)) -> Result<Scores> {
        self.train(&mut progress)
    }

    fn train(&mut self, progress: &mut dyn FnMut(&Progress)) -> Result<Scores> {
        let (examples, settings) = (self.train.examples(), self.settings.clone());
        let engine = self.engine.take().ok_or_else(failed)?;
        let mut trainer = Finetuner::new(engine, examples, settings)?;
        let mut report = Callback::new(trainer.steps(), progress);
        trainer.run(None, &mut report, &self.stop)?;
        self.outcome = trainer.outcome().clone();
        let mut engine = trainer.into_engine();
        let mut scores = Scores::new();
        if let Some(dev) = &self.dev {
            scores = measure(engine.as_mut(), dev.as_ref())?;
            self.task.remember(&scores, &mut self.config);
            report.scores(self.outcome.done(), scores.clone());
        }
        self.engine = Some(engine);
        Ok(scores)
    }

    /// Returns the steps, the tokens and the time of the training.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Writes the model and its vocabulary into `folder`.
    ///
    /// # Errors
    /// If a parameter is not finite or a file cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let engine = self.engine.as_deref().ok_or_else(failed)?;
        write(folder.as_ref(), engine, &self.config, &self.wordpiece)
    }
}

fn failed() -> Error {
    Error::Failed("the run failed: its model is lost".into())
}

/// Writes a fine-tuned model and its vocabulary into `folder`.
pub fn write(
    folder: &Path,
    engine: &dyn TaskEngine,
    config: &Config,
    wordpiece: &WordPiece,
) -> Result<()> {
    // First: a head that was left on another encoder would be read without complaint.
    frozen::remove(folder)?;
    let parameters = engine.parameters()?;
    weights::write(folder, config, engine.layout(), &parameters, wordpiece)
}
