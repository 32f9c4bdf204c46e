//! `--frozen`: a head on a frozen encoder.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use crate::cli::shared::checks::at_least_one;
use crate::data::Sequences;
use crate::engine::{Engine, Setup, TaskEngine};
use crate::error::Result;
use crate::features::Frozen;
use crate::features::frozen::{Known, Plan};
use crate::features::{self, Advice, Combine, Pool, Settings};
use crate::files::Staged;
use crate::memory::{format_bytes, free};
use crate::model::weights::{self, Model, NumberFormat};
use crate::model::{Config, HeadInput, Layout, Part};
use crate::note;
use crate::tasks::Task;
use crate::text::WordPiece;
use crate::train::identity::checksum;

#[derive(clap::Args)]
pub(crate) struct FrozenArgs {
    /// Freeze the encoder and train a head on its vectors, which are computed once
    #[arg(long, conflicts_with = "recompute")]
    frozen: bool,
    /// Layers that such a head reads, counted as `cloze features` counts [default: -4..-1, the
    /// paper's last four]
    #[arg(long, value_name = "N|N..M", allow_hyphen_values = true, requires = "frozen")]
    layers: Option<String>,
    /// How several layers become one vector
    #[arg(long, value_enum, default_value_t = Combine::Concat, requires = "frozen")]
    combine: Combine,
    /// How tokens become one vector if the head reads whole texts [default: as the model folder says,
    /// else mean]
    #[arg(long, value_enum, requires = "frozen")]
    pool: Option<Pool>,
    /// What is trained on the vectors
    #[arg(long, value_enum, default_value_t = Kind::Linear, requires = "frozen")]
    head: Kind,
    /// Outputs of the LSTM in each direction
    #[arg(long, default_value_t = 768, value_name = "N", requires = "frozen")]
    lstm_width: usize,
}

/// The kind of head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A linear layer.
    Linear,
    /// A two-layer bidirectional LSTM and a linear layer, as in the paper.
    Bilstm,
}

impl FrozenArgs {
    /// Returns whether the encoder is frozen.
    pub(crate) fn on(&self) -> bool {
        self.frozen
    }

    fn layers(&self, config: &Config) -> String {
        let usual = || format!("-{}..-1", config.num_hidden_layers.min(4));
        self.layers.clone().unwrap_or_else(usual)
    }

    fn lstm(&self) -> Option<usize> {
        (self.head == Kind::Bilstm).then_some(self.lstm_width)
    }

    /// Describes a frozen encoder and its head for the records.
    pub(crate) fn describe(&self, config: &Config) -> Option<String> {
        let combine = format!("{:?}", self.combine).to_lowercase();
        let layers = self.layers(config);
        let head = match self.lstm() {
            None => "a linear head".to_owned(),
            Some(width) => format!("a two-layer BiLSTM of {width} and a linear head"),
        };
        self.frozen.then(|| format!("frozen; {head} over layers {layers}, {combine}"))
    }

    /// Returns what the head of `task` reads; None if the whole model is trained.
    pub(crate) fn plan(
        &self,
        folder: &Path,
        task: &dyn Task,
        config: &Config,
    ) -> Result<Option<Plan>> {
        if !self.frozen {
            return Ok(None);
        }
        at_least_one([("--lstm-width", self.lstm_width as u64)])?;
        let over_rows = task.part().task_head().map(|head| head.input) == Some(HeadInput::Rows);
        let pool = match self.pool {
            Some(pool) => pool,
            None if over_rows => Pool::None,
            None => Advice::read(folder)?.pool.unwrap_or(Pool::Mean),
        };
        let layers = features::parse_layers(&self.layers(config))?;
        let plan = Plan {
            vectors: Settings {
                layers: features::layers(layers, config.num_hidden_layers)?,
                combine: self.combine,
                pool,
                normalize: false,
            },
            lstm: self.lstm(),
        };
        // Fails before vectors are computed that the head can't read.
        plan.layout(config, task.part())?;
        Ok(Some(plan))
    }
}

/// What all runs with the same encoder share.
pub(crate) struct Head {
    plan: Plan,
    layout: Arc<Layout>,
    encoder: Vec<f32>,
    known: OnceCell<Known>,
}

impl Head {
    pub(crate) fn new(plan: Plan, model: &Model) -> Self {
        Self {
            plan,
            layout: model.layout.clone(),
            encoder: model.values.clone(),
            known: OnceCell::new(),
        }
    }

    /// Computes the vectors of the training data if memory has room for them; else every epoch computes
    /// them again.
    pub(crate) fn compute(
        &self,
        config: &Config,
        setup: Setup,
        sequences: &Sequences,
    ) -> Result<()> {
        let needs = Frozen::bytes(config, &self.plan, sequences);
        if free().is_some_and(|free| needs > free / 2) {
            let needs = format_bytes(needs);
            note!(
                "the vectors of the training data need {needs}, more than half of the free memory: \
                 every epoch computes them again"
            );
            return Ok(());
        }
        let (tokens, needs) = (sequences.tokens(), format_bytes(needs));
        note!("computing the vectors of {tokens} tokens, {needs}");
        let mut engine = self.encoder(config, setup)?;
        let vectors = features::embed(engine.as_mut(), sequences, &self.plan.vectors)?;
        self.known.get_or_init(|| Arc::new(vectors));
        Ok(())
    }

    /// Describes the encoder and what is read from it, so that runs on different encoders differ.
    pub(crate) fn describe(&self) -> String {
        let vectors = &self.plan.vectors;
        let (layers, combine, pool) = (&vectors.layers, vectors.combine, vectors.pool);
        let encoder = checksum(&self.encoder);
        format!("layers {layers:?} ({combine:?}, {pool:?}) of an encoder of checksum {encoder:08x}")
    }

    fn encoder(&self, config: &Config, setup: Setup) -> Result<Box<dyn Engine>> {
        Ok(setup.engine(config, &self.layout, self.encoder.clone())?)
    }

    /// Returns a new head on the encoder.
    pub(crate) fn engine(
        &self,
        config: &Config,
        part: Part,
        setup: Setup,
        seed: u64,
    ) -> Result<Box<dyn TaskEngine>> {
        let encoder = self.encoder(config, setup)?;
        let initial = |layout: &Layout| layout.initialise(seed);
        let engine = Frozen::new(encoder, self.plan.clone(), part, initial)?;
        Ok(Box::new(match self.known.get() {
            Some(known) => engine.with_known(known.clone()),
            None => engine,
        }))
    }

    /// Writes the encoder, the head and the vocabulary into a model folder.
    pub(crate) fn write(
        &self,
        out: &Path,
        config: &Config,
        layout: &Layout,
        values: &[f32],
        wordpiece: &WordPiece,
    ) -> Result<()> {
        let (encoder, vocabulary, format) = (&self.encoder, Some(wordpiece), NumberFormat::F32);
        let (mut files, entries) =
            weights::stage(out, config, &self.layout, encoder, vocabulary, format)?;
        files.push(self.plan.stage(out, layout, values, entries)?);
        features::frozen::remove(out)?;
        Staged::place(files)
    }
}
