//! What the commands that train on plain text share: their options and the run.

mod description;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::cli::run_folder::{Intent, RunFolder};
use crate::data::{Packing, PretrainingOptions};
use crate::engine::memory::Work;
use crate::error::{Error, Result};
use crate::model::{Config, Layout};
use crate::note;
use crate::train::checkpoint;
use crate::train::guard::{BadSteps, GuardSettings};
use crate::train::identity::Recipe;
use crate::train::pretrain::State;
use crate::train::pretraining::{PHASE_SHARE, Pretraining, Start};
use crate::train::{Pretrainer, Records, Report, Settings, Stop, Teacher};

use super::checks::{at_least_one, not_the_same, positive, share};
use super::engine::TrainingEngineArgs;
use super::memory;
use super::optimizer::OptimizerArgs;
use super::progress::{TrainingBar, measured};

#[derive(clap::Args)]
pub struct RunArgs {
    /// Text files (.txt, .txt.gz, WikiExtractor's wiki_00) and folders of them; every tenth document is
    /// held out, fewer of much text [default: a small corpus of our own]
    #[arg(long, num_args = 1.., value_name = "PATH")]
    pub text: Vec<PathBuf>,
    /// Held-out text; the run then trains on all documents of --text
    #[arg(long, num_args = 1.., value_name = "PATH")]
    held_out: Vec<PathBuf>,
    /// Folder for the model, its vocabulary and the checkpoints
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Optimizer steps
    #[arg(long, default_value_t = 12000)]
    steps: u64,
    /// Longest sequence in tokens [default: 128; without --text 40]
    #[arg(long)]
    seq: Option<usize>,
    /// Longest sequence in the first phase; there is no such phase if it is --seq [default: --seq; 40 for
    /// a new model narrower than 768]
    #[arg(long, value_name = "SEQ")]
    first_seq: Option<usize>,
    /// The first phase's share of the steps [default: 0.8]; the paper's is 0.9
    #[arg(long, value_name = "SHARE")]
    phase_share: Option<f64>,
    /// Sequences a step
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Sequences that are computed at once: gradient accumulation over the parts of a batch
    #[arg(long, value_name = "N")]
    micro_batch: Option<usize>,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    /// Highest learning rate, reached after the warm-up [default: for a new model 1e-4, or 0.192 / H if it
    /// is narrower than 768: 1.5e-3 for tiny; a fifth of that for `pretrain --init`]
    #[arg(long, allow_negative_numbers = true)]
    lr: Option<f64>,
    /// Share of the steps in which the learning rate rises; the paper's is 0.01
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    warmup: f64,
    /// Dropout in the encoder [default: as in the configuration or the model to start from; for new models
    /// 0.1, or 0 if they are narrower than 768]
    #[arg(long, value_name = "P")]
    dropout: Option<f64>,
    #[command(flatten)]
    pub engine: TrainingEngineArgs,
    /// Mask all pieces of a word together
    #[arg(long)]
    pub whole_word: bool,
    /// Share of the tokens to predict
    #[arg(long, default_value_t = 0.15, value_name = "SHARE")]
    mask_prob: f64,
    /// Share of sequences that are made shorter [default: 0.1; with full sentences 0]
    #[arg(long, value_name = "SHARE")]
    short_seq_prob: Option<f64>,
    /// Upper limit of the gradients' global norm
    #[arg(long, default_value_t = 1.0, value_name = "NORM")]
    max_grad_norm: f64,
    /// What to do with a step whose loss or gradient is not a number, or whose loss jumps
    #[arg(long, value_enum, default_value_t = BadSteps::Stop)]
    bad_steps: BadSteps,
    /// A loss above X times the running mean is a bad step too
    #[arg(long, value_name = "X")]
    spike: Option<f64>,
    /// Key of every random choice of the run
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Steps between two checkpoints; one is always written at the end
    #[arg(long, default_value_t = 500, value_name = "N")]
    save_every: u64,
    /// Steps between two evaluations on held-out documents [default: a tenth of the steps]
    #[arg(long, value_name = "N")]
    eval_every: Option<u64>,
    /// Upper limit of held-out sequences in an evaluation
    #[arg(long, default_value_t = 512, value_name = "N")]
    eval_sequences: usize,
    /// Continue the run in DIR
    #[arg(long)]
    resume: bool,
    /// Start anew in a folder that already holds a run or a model
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A run with checked options.
pub struct Begun {
    started: Instant,
    /// Held until the run ends.
    _folder: RunFolder,
    /// The state of the run that is continued.
    state: Option<State>,
}

impl Begun {
    pub fn continues(&self) -> bool {
        self.state.is_some()
    }
}

/// Where a run's first weights come from.
pub struct Origin {
    /// In words.
    pub words: String,
    /// The model's name, if it is one.
    pub base: Option<String>,
}

/// The model of a run, for the records.
struct Described<'a> {
    origin: &'a Origin,
    config: Config,
    layout: Arc<Layout>,
    packing: Packing,
    /// Longest sequence of the first phase.
    first_seq: usize,
}

impl RunArgs {
    /// Checks the options, locks the folder, and reads the state of the run that is continued. `from` is the
    /// folder of the model to start from.
    pub fn begin(&self, from: Option<&Path>) -> Result<Begun> {
        let started = Instant::now();
        self.check()?;
        self.room_in_out(from)?;
        let folder = RunFolder::open(&self.out)?;
        // Once more: another run may have ended since.
        self.room_in_out(from)?;
        Ok(Begun { started, _folder: folder, state: self.previous_state()? })
    }

    fn check(&self) -> Result<()> {
        let usage = |message: String| Err(Error::Usage(message));
        for (name, value) in [
            ("--steps", self.steps),
            ("--batch", self.batch as u64),
            ("--micro-batch", self.micro_batch.unwrap_or(1) as u64),
            ("--eval-sequences", self.eval_sequences as u64),
        ] {
            at_least_one(name, value)?;
        }
        self.engine.setup()?;
        positive("--lr", self.lr.unwrap_or(1.0))?;
        positive("--max-grad-norm", self.max_grad_norm)?;
        positive("--spike", self.spike.unwrap_or(2.0))?;
        positive("--mask-prob", self.mask_prob)?;
        share("--mask-prob", self.mask_prob)?;
        share("--short-seq-prob", self.short_seq_prob.unwrap_or(0.0))?;
        share("--warmup", self.warmup)?;
        share("--dropout", self.dropout.unwrap_or(0.0))?;
        self.optimizer.check()?;
        if let Some(first) = self.first_seq
            && first > self.seq()
        {
            return usage(format!(
                "--first-seq {first}: at most the length of --seq, {}, is needed",
                self.seq()
            ));
        }
        if let Some(share) = self.phase_share
            && !(share > 0.0 && share < 1.0)
        {
            return usage(format!("--phase-share {share}: a number above 0 and below 1 is needed"));
        }
        Ok(())
    }

    /// Checks that nothing in `--out` would be lost.
    fn room_in_out(&self, from: Option<&Path>) -> Result<()> {
        not_the_same(&self.out, from)?;
        let unfinished = [checkpoint::path(&self.out)];
        Intent::of(self.resume, self.overwrite).check(&self.out, &unfinished, &[])
    }

    /// Checks that the sequences fit the model and the phases. `first` is the default length of the first
    /// phase.
    pub fn fits(&self, config: &Config, first: Option<usize>) -> Result<()> {
        let seq = self.seq();
        if seq > config.max_position_embeddings {
            return Err(Error::Usage(format!(
                "--seq {seq}: the model has only {} positions",
                config.max_position_embeddings
            )));
        }
        if self.phase_share.is_some() && self.first_seq(first) >= seq {
            return Err(Error::Usage(
                "--phase-share: there is only one phase; give a --first-seq below --seq".into(),
            ));
        }
        Ok(())
    }

    /// Returns the state of the run in `--out`, if it is to be continued.
    fn previous_state(&self) -> Result<Option<State>> {
        if self.resume {
            let state = State::read(&self.out)?;
            if state.is_none() {
                note!("{} holds no checkpoint: starting a fresh run", self.out.display());
            }
            return Ok(state);
        }
        Ok(None)
    }

    /// Returns the longest sequence. Our own corpus is small and regular, so short ones suffice.
    fn seq(&self) -> usize {
        let default = if self.text.is_empty() { 40 } else { 128 };
        self.seq.unwrap_or(default)
    }

    /// Returns the longest sequence of the first phase, by default `usual`.
    fn first_seq(&self, usual: Option<usize>) -> usize {
        self.first_seq.or(usual).unwrap_or(self.seq())
    }

    /// Trains the model `start`, evaluates it, and writes it.
    pub fn train(&self, begun: Begun, mut start: Start, origin: &Origin) -> Result<()> {
        let seq = self.seq();
        if let Some(p) = self.dropout {
            (start.config.hidden_dropout_prob, start.config.attention_probs_dropout_prob) = (p, p);
        }
        self.fits(&start.config, start.first_seq)?;
        let sequences = self.micro_batch.map_or(self.batch, |n| n.min(self.batch));
        let work = Work { rows: sequences * seq, sequences, longest: seq };
        let setup = self.engine.setup()?;
        memory::check(&memory::Run {
            config: &start.config,
            layout: &start.layout,
            setup,
            work,
            teacher: start.teacher.as_ref().map(Teacher::model),
            option: "--micro-batch",
        })?;
        let settings = self.settings(self.lr.unwrap_or(start.learning_rate));
        let model = Described {
            origin,
            config: start.config.clone(),
            layout: start.layout.clone(),
            packing: start.packing,
            first_seq: self.first_seq(start.first_seq),
        };
        let trainer_folder = self.out.join("trainer");
        let mut run = Pretraining::builder()
            .text(&self.text)
            .held_out(&self.held_out)
            .seq(seq)
            .first_seq(model.first_seq)
            .phase_share(self.phase_share.unwrap_or(PHASE_SHARE))
            .options(self.options(start.packing))
            .settings(settings)
            .setup(setup)
            .tokens_in(&trainer_folder)
            .start(start)
            .build()?;
        let trainer = run.trainer();
        let (data, held_out) = trainer.data();
        let baselines = summary::Baselines::of(data, held_out, model.config.vocab_size);
        let text = description::text((&self.text, data), (&self.held_out, held_out));
        let mut about = self.about(&model, setup, trainer);
        about.tables.insert(1, text);
        about.charts = baselines.charts(model.packing);
        let resumed = begun.state.as_ref().map(|state| state.step);
        match begun.state {
            Some(state) => self.continue_from(trainer, state)?,
            // First, so that the new run is never taken for the old one.
            None => checkpoint::remove(&self.out)?,
        }
        if let Some(teacher) = trainer.evaluate_teacher()? {
            note!("the teacher, held out: {}", measured(&teacher));
        }
        let stop = Stop::on_signals()?;
        let mut records = Records::new(trainer_folder, about.clone());
        records.begin(None, self.steps, resumed);
        let mut bar = TrainingBar::new(self.steps, trainer.step());
        let trained = trainer.run(Some(&self.out), &mut (&mut bar, &mut records), &stop);
        bar.finish();
        trained?;
        let evaluation = trainer.latest()?;
        records.evaluated(&evaluation);
        records.end();
        self.card(about, &model, trainer, &evaluation).write(&self.out)?;
        let seconds = begun.started.elapsed().as_secs_f64();
        summary::print(self, trainer, &evaluation, baselines, seconds)
    }

    fn options(&self, packing: Packing) -> PretrainingOptions {
        let options = PretrainingOptions {
            whole_word: self.whole_word,
            mask_probability: self.mask_prob,
            packing,
            seed: self.seed,
            ..PretrainingOptions::default()
        };
        // RoBERTa trains with full-length sequences only (Liu et al., section 3.1).
        let short_probability = match (self.short_seq_prob, packing) {
            (Some(share), _) => share,
            (None, Packing::Full) => 0.0,
            (None, Packing::Pairs | Packing::Document) => options.short_probability,
        };
        PretrainingOptions { short_probability, ..options }
    }

    fn settings(&self, lr: f64) -> Settings {
        let mut settings = Settings::new(self.steps, self.batch, lr);
        settings.schedule.warmup = (self.steps as f64 * self.warmup) as u64;
        settings.save_every = self.save_every;
        settings.max_norm = self.max_grad_norm;
        settings.guard = GuardSettings { bad_steps: self.bad_steps, spike: self.spike };
        settings.micro_batch = self.micro_batch.unwrap_or(0);
        settings.optimizer = self.optimizer.over(settings.optimizer);
        if let Some(every) = self.eval_every {
            settings.evaluate_every = every;
        }
        settings.evaluate_on = self.eval_sequences;
        settings
    }

    fn continue_from(&self, trainer: &mut Pretrainer, state: State) -> Result<()> {
        let mut identity = trainer.identity();
        // A state of an earlier version has only the numbers of tokens and parameters.
        identity.checksum = state.run.identity.checksum.and(identity.checksum);
        identity.model = identity.model.filter(|_| state.run.identity.model.is_some());
        let (was, now) =
            (description::identity(&state.run.identity), description::identity(&identity));
        checkpoint::same_run(&self.out, &was, &now)?;
        let expected = trainer.engine().layout().total();
        if state.parameters.len() != expected {
            return Err(Error::Usage(format!(
                "the run in {} can't be continued: its model has {} parameters, this one {expected}",
                self.out.display(),
                state.parameters.len()
            )));
        }
        note!("continuing after step {}", state.step);
        let now = trainer.recipe();
        let before = state
            .run
            .recipe
            .map(|recipe| Recipe { precision: recipe.precision.or(now.precision), ..recipe });
        let (before, now) =
            (before.as_ref().map(description::changeable), description::changeable(&now));
        for ((what, was), (_, is)) in before.iter().flatten().zip(&now) {
            if was != is {
                note!("{what} was {was} and is {is} from here on");
            }
        }
        for change in state.numerics_changes(trainer.numerics()) {
            note!("{change}");
        }
        trainer.resume(state)
    }
}
