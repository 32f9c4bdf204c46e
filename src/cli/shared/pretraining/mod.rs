//! What `pretrain` and `distill` share: their options, and the run from the first weights to the last.

mod report;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::checks::{at_least_one, positions, positive, refuse, require, share};
use super::memory;
use super::progress::{TrainingBar, measured};
use super::ranks::Shareable;
use super::training::{TrainingArgs, read_state};
use crate::cli::shared::run_folder::RunFolder;
use crate::data::{Packing, PretrainingOptions, TokenStore};
use crate::error::Result;
use crate::model::{Config, Layout};
use crate::note;
use crate::ranks::Ranks;
use crate::text::WordPiece;
use crate::train::checkpoint;
use crate::train::pretrain::State;
use crate::train::pretraining::{Pretraining, Start, usual_seq};
use crate::train::recipe::Hyperparameters;
use crate::train::{Pretrainer, Records, Report, Settings, Stop, Teacher};
pub(crate) use summary::Summary;

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Text files (.txt, .txt.gz, WikiExtractor's wiki_00) and folders of them; every tenth document, or
    /// fewer of a large text, is held out to measure on [default: a small corpus of our own]
    #[arg(long, num_args = 1.., value_name = "PATH")]
    pub(crate) text: Vec<PathBuf>,
    /// Text that `cloze prepare` has tokenised, with its vocabulary, in place of --text and --vocab
    #[arg(long, value_name = "STORE", conflicts_with = "text")]
    store: Option<PathBuf>,
    /// Text to measure on; then all of --text is trained on
    #[arg(long, num_args = 1.., value_name = "PATH")]
    held_out: Vec<PathBuf>,
    /// Folder for the model, its vocabulary and the checkpoints
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Optimizer steps
    #[arg(long, default_value_t = 12000)]
    steps: u64,
    /// Longest sequence in tokens [default: 128; for our own corpus 40]
    #[arg(long)]
    seq: Option<usize>,
    /// Longest sequence in the first phase; the value of --seq for no such phase [default: as --seq; for a
    /// new model that of the recipe]
    #[arg(long, value_name = "SEQ")]
    first_seq: Option<usize>,
    /// The first phase's share of the steps [default: 0.8; for a new model that of the recipe]
    #[arg(long, value_name = "SHARE")]
    phase_share: Option<f64>,
    /// Sequences a step; with several ranks those of each
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Highest learning rate, reached after the warm-up [default: for a new model that of the recipe; a
    /// fifth of it for `pretrain --init`]
    #[arg(long, allow_negative_numbers = true)]
    lr: Option<f64>,
    #[command(flatten)]
    pub(crate) training: TrainingArgs,
    /// Mask all pieces of a word together
    #[arg(long)]
    pub(crate) whole_word: bool,
    /// Share of the tokens that the model must predict [default: 0.15; for a new model that of the recipe]
    #[arg(long, value_name = "SHARE")]
    mask_prob: Option<f64>,
    /// Share of the sequences that are shorter than possible [default: 0.1; with full sentences 0]
    #[arg(long, value_name = "SHARE")]
    short_seq_prob: Option<f64>,
    /// Upper limit of the gradients' global norm
    #[arg(long, default_value_t = 1.0, value_name = "NORM")]
    max_grad_norm: f64,
    /// Key of every random choice in the run
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Steps between two checkpoints; one is always written at the end
    #[arg(long, default_value_t = 500, value_name = "N")]
    save_every: u64,
    /// Steps between two evaluations on held-out documents [default: a tenth of the steps]
    #[arg(long, value_name = "N")]
    eval_every: Option<u64>,
    /// Held-out sequences in an evaluation, at most
    #[arg(long, default_value_t = 512, value_name = "N")]
    eval_sequences: usize,
}

/// A run with valid options.
pub(crate) struct Begun {
    started: Instant,
    /// Locked until the run ends.
    _folder: RunFolder,
    /// The state of the run that is continued.
    pub(crate) state: Option<State>,
    /// The store to train on, with its vocabulary.
    pub(crate) store: Option<(Arc<TokenStore>, WordPiece)>,
}

/// The origin of a run's first weights.
pub(crate) struct Origin {
    /// In words.
    pub(crate) words: String,
    /// The model's name, if they are a model's.
    pub(crate) base: Option<String>,
}

/// What the records say about the model of a run.
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
    /// folder of the model that the run starts from.
    pub(crate) fn begin(&self, from: Option<&Path>) -> Result<Begun> {
        let started = Instant::now();
        self.check()?;
        let unfinished = [checkpoint::path(&self.out), checkpoint::previous(&self.out)];
        let check_out = || self.training.check_out(&self.out, from, &unfinished, &[]);
        check_out()?;
        let store = self.store.as_deref().map(TokenStore::open).transpose()?;
        let folder = RunFolder::open(&self.out)?;
        // Again: another run may have ended in the meantime.
        check_out()?;
        let resume = self.training.resume;
        Ok(Begun {
            store: store.map(|(store, wordpiece)| (Arc::new(store), wordpiece)),
            started,
            _folder: folder,
            state: resume.then(|| read_state(&self.out)).transpose()?.flatten(),
        })
    }

    pub(crate) fn shareable(&mut self) -> Shareable<'_> {
        Shareable { engine: self.training.engine.run, out: Some(&mut self.out) }
    }

    pub(crate) fn check(&self) -> Result<()> {
        at_least_one([
            ("--steps", self.steps),
            ("--batch", self.batch as u64),
            ("--eval-sequences", self.eval_sequences as u64),
        ])?;
        self.training.check()?;
        self.training.engine.setup()?;
        positive("--lr", self.lr.unwrap_or(1.0))?;
        positive("--max-grad-norm", self.max_grad_norm)?;
        let masked = self.mask_prob.unwrap_or(0.5);
        positive("--mask-prob", masked)?;
        share("--mask-prob", masked)?;
        share("--short-seq-prob", self.short_seq_prob.unwrap_or(0.0))?;
        let (first, seq) = (self.first_seq.unwrap_or(0), self.seq());
        let most = format!("at most the length of --seq, {seq},");
        require("--first-seq", first, first <= seq, &most)?;
        let share = self.phase_share.unwrap_or(0.5);
        let fits = share > 0.0 && share < 1.0;
        require("--phase-share", share, fits, "a number above 0 and below 1")
    }

    /// Returns an error if the model or the phases have no room for the sequences. `first` is the default
    /// length of the first phase.
    pub(crate) fn fits(&self, config: &Config, first: Option<usize>) -> Result<()> {
        let seq = self.seq();
        positions("--seq", seq, config.positions())?;
        if self.phase_share.is_some() && self.first_seq(first) >= seq {
            refuse!("--phase-share: there is only one phase; give a --first-seq below --seq");
        }
        Ok(())
    }

    /// Returns where the text to train on is: files and folders of text, or a store; nothing for our own corpus.
    fn source(&self) -> &[PathBuf] {
        self.store.as_ref().map_or(&self.text, std::slice::from_ref)
    }

    /// Returns the longest sequence. Our own corpus needs only short ones.
    fn seq(&self) -> usize {
        self.seq.unwrap_or_else(|| usual_seq(!self.source().is_empty()))
    }

    /// Returns the longest sequence of the first phase, by default `usual`.
    fn first_seq(&self, usual: Option<usize>) -> usize {
        self.first_seq.or(usual).unwrap_or(self.seq())
    }

    /// Trains the model in `start`, measures it, and writes it.
    pub(crate) fn train(&self, begun: Begun, mut start: Start, origin: &Origin) -> Result<Summary> {
        let seq = self.seq();
        let options = &self.training;
        options.set_dropout(&mut start.config);
        let setup = options.engine.setup()?;
        let usual = start.hyperparameters.on(setup, self.all_ranks_batch());
        self.fits(&start.config, usual.first_seq)?;
        let sequences = match options.micro_batch() {
            0 => self.batch,
            n => n.min(self.batch),
        };
        let (config, layout) = (&start.config, &start.layout);
        let size = (sequences, seq);
        let mut run = memory::Run::new(config, layout, setup, size, "--micro-batch");
        let masked = match config.is_decoder {
            true => 1.0,
            false => self.mask_prob.unwrap_or(usual.mask_probability),
        };
        let settings = self.settings(usual);
        run.work.predicted = (run.work.rows as f64 * masked).ceil() as usize;
        run.rule = settings.optimizer.rule;
        run.teacher = start.teacher.as_ref().map(Teacher::model);
        run.check()?;
        let model = Described {
            origin,
            config: start.config.clone(),
            layout: start.layout.clone(),
            packing: start.packing,
            first_seq: self.first_seq(usual.first_seq),
        };
        let trainer_folder = self.out.join("trainer");
        let mut builder = Pretraining::builder();
        if let Some((store, wordpiece)) = begun.store {
            builder = builder.store(store, wordpiece);
        }
        let mut run = builder
            .text(&self.text)
            .held_out(&self.held_out)
            .seq(seq)
            .first_seq(model.first_seq)
            .phase_share(self.phase_share.unwrap_or(usual.phase_share))
            .options(self.options(start.packing, usual.mask_probability))
            .settings(settings)
            .setup(setup)
            .tokens_in(&trainer_folder)
            .start(start)
            .build()?;
        let trainer = run.trainer();
        let (data, held_out) = trainer.data();
        let baselines = summary::Baselines::of(data, held_out, model.config.vocab_size);
        let text = report::text((self.source(), data), (&self.held_out, held_out));
        let resumed = begun.state.as_ref().map(|state| state.step);
        match begun.state {
            Some(state) => self.continue_from(trainer, state)?,
            // Now, or a later --resume could continue the earlier run.
            None => checkpoint::remove(&self.out)?,
        }
        // A resumed run may keep the end of its first phase, whatever the options are.
        let mut about = self.about(&model, setup, trainer);
        about.tables.insert(1, text);
        about.charts = report::charts(model.packing, baselines);
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
        Summary::of(self, trainer, evaluation, baselines, seconds)
    }

    fn options(&self, packing: Packing, masked: f64) -> PretrainingOptions {
        let mut options = PretrainingOptions {
            whole_word: self.whole_word,
            mask_probability: self.mask_prob.unwrap_or(masked),
            packing,
            seed: self.seed,
            ..PretrainingOptions::default()
        };
        if packing == Packing::Full {
            // RoBERTa trains with full-length sequences only (Liu et al., section 3.1).
            options.short_probability = 0.0;
        }
        if let Some(share) = self.short_seq_prob {
            options.short_probability = share;
        }
        options
    }

    /// Returns the sequences a step of all ranks together.
    fn all_ranks_batch(&self) -> usize {
        self.batch * Ranks::of_process().size()
    }

    fn settings(&self, usual: Hyperparameters) -> Settings {
        let hyperparameters = Hyperparameters {
            learning_rate: self.lr.unwrap_or(usual.learning_rate),
            warmup: self.training.warmup(usual.warmup),
            decay: self.training.decay(usual.decay),
            optimizer: self.training.optimizer(usual.optimizer),
            ..usual
        };
        let mut settings = hyperparameters.settings(self.steps, self.all_ranks_batch());
        settings.save_every = self.save_every;
        settings.max_norm = self.max_grad_norm;
        settings.guard = self.training.guard();
        settings.micro_batch = self.training.micro_batch();
        settings.evaluate_every = self.eval_every.unwrap_or(settings.evaluate_every);
        settings.evaluate_on = self.eval_sequences;
        settings
    }

    fn continue_from(&self, trainer: &mut Pretrainer, state: State) -> Result<()> {
        let was = report::identity(&state.run.identity);
        checkpoint::same_run(&self.out, &was, &report::identity(&trainer.identity()))?;
        note!("continuing after step {}", state.step);
        let before = report::changeable(&state.run.changeable);
        let mut changes = state.other_files(&self.out);
        changes.extend(state.numerics_changes(trainer.numerics()));
        trainer.resume(state)?;
        // A phase that has ended stays ended, whatever the options are.
        for ((what, was), (_, is)) in before.iter().zip(&report::changeable(&trainer.changeable()))
        {
            if was != is {
                note!("{what} was {was} and is {is} from here on");
            }
        }
        for change in changes {
            note!("{change}");
        }
        Ok(())
    }
}
