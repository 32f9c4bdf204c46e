//! `cloze finetune`: a pre-trained model trained for a task, once or with several seeds and learning
//! rates.

mod description;
mod frozen;
mod run;
mod several;
mod summary;

use std::path::{Path, PathBuf};

use crate::cli::run_folder::{Intent, RunFolder};
use crate::data::sequences::BatchSize;
use crate::engine::Numerics;
use crate::engine::optimizer::Optimizer;
use crate::error::{Error, Result};
use crate::hub;
use crate::lessons::data::MODEL;
use crate::model::weights::{self, Model};
use crate::model::{Config, Part};
use crate::note;
use crate::tasks::{self, Dataset, Files, Role, Task};
use crate::text::WordPiece;
use crate::train::finetune::Settings;
use crate::train::finetuning::write;
use crate::train::guard::{BadSteps, GuardSettings};
use crate::train::task::describe;
use crate::train::{Records, Stop, checkpoint};

use self::frozen::{FrozenArgs, Head};
use self::run::{Run, Runner};
use super::checks::{at_least_one, not_the_same, positive, share};
use super::engine::TrainingEngineArgs;
use super::memory;
use super::optimizer::OptimizerArgs;
use super::task::{TaskArgs, with_negative_numbers};
use crate::model::weights::wordpiece_of;

/// The learning rates that the paper chooses from (Devlin et al., appendix A.3).
const RATES: [f64; 4] = [5e-5, 4e-5, 3e-5, 2e-5];

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// Folder with the task's official files; not needed beside --train and --dev
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// File to train on in place of the official one
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// File to measure on in place of the official one
    #[arg(long, value_name = "FILE")]
    dev: Option<PathBuf>,
    /// Folder of the pre-trained model, or the name of one on the Hub
    #[arg(long, default_value = MODEL, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Folder for the fine-tuned model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Train on the first N rows only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Times that every row is seen [default: 3, with --frozen 20]
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Rows a step
    #[arg(long, default_value_t = 32, value_name = "N")]
    batch: usize,
    /// Tokens a step, in place of a number of rows
    #[arg(long, value_name = "N", conflicts_with = "batch")]
    batch_tokens: Option<usize>,
    /// Rows that go through the model at once; the gradients of a step's parts are added up
    #[arg(long, value_name = "N")]
    micro_batch: Option<usize>,
    /// Highest learning rate, reached after the warm-up [default: 5e-5, with --frozen 1e-3]
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// Try the paper's learning rates, 5e-5, 4e-5, 3e-5 and 2e-5, and continue with the best on the
    /// development file
    #[arg(long, conflicts_with_all = ["lr", "frozen"])]
    lr_search: bool,
    /// Share of the steps in which the learning rate rises
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    warmup: f64,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    /// Dropout in place of the model's own
    #[arg(long, value_name = "P")]
    dropout: Option<f64>,
    /// Key of the order of rows, of dropout, and of the head's first weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Train with N seeds from --seed on, keep the best model, print the scores' mean and deviation
    #[arg(long, default_value_t = 1, value_name = "N")]
    seeds: u64,
    /// Start the encoder from random weights too, to measure the effect of pre-training
    #[arg(long, conflicts_with = "frozen")]
    from_scratch: bool,
    #[command(flatten)]
    frozen: FrozenArgs,
    /// Measure after every epoch, not only at the end
    #[arg(long)]
    eval_epochs: bool,
    /// Measure after every epoch and keep the model of the best one, not of the last
    #[arg(long)]
    keep_best: bool,
    /// What to do with a step whose loss or gradient is not a number, or whose loss jumps
    #[arg(long, value_enum, default_value_t = BadSteps::Stop)]
    bad_steps: BadSteps,
    /// A loss above X times the running mean is a bad step too
    #[arg(long, value_name = "X")]
    spike: Option<f64>,
    /// Steps between two checkpoints; one is always written when a run is stopped
    #[arg(long, default_value_t = 0, value_name = "N")]
    save_every: u64,
    /// Continue the run in --out; if it has finished, print its results
    #[arg(long)]
    resume: bool,
    /// Start anew in a folder that already holds a run or a model
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    #[command(flatten)]
    engine: TrainingEngineArgs,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A development file that was read, with the name of its results.
type Measured = (&'static str, Box<dyn Dataset>);

pub fn run(mut args: Args) -> Result<()> {
    args.check()?;
    args.model = hub::folder_of(&args.model)?;
    args.room_in_out()?;
    let (train_file, dev_files) = (args.train_file()?, args.dev_files()?);
    let task = args.task.to_train(&train_file)?;
    let first = args.model(task.as_ref(), args.seed)?;
    let plan = args.frozen.plan(&args.model, task.as_ref(), &first.config)?;
    let wordpiece = wordpiece_of(&args.model, &first)?;
    let config = &first.config;
    let read = |path: &Path, role, limit| {
        args.task.read(task.as_ref(), path, role, config, &wordpiece, limit)
    };
    let train = read(&train_file, Role::Train, args.limit)?;
    let mut devs: Vec<Measured> = Vec::new();
    for (name, path) in &dev_files {
        devs.push((name, read(path, Role::Dev, None)?));
    }
    let _folder = RunFolder::open(&args.out)?;
    // Once more: another run may have ended since.
    args.room_in_out()?;
    let mut settings = args.settings();
    let setup = args.engine.setup()?;
    settings.numerics = Some(Numerics::of(setup, settings.micro_batch));
    let sequences = &train.examples().sequences;
    let head = match plan {
        Some(plan) => Some(Head::new(plan, &first)),
        None => {
            memory::check(&memory::Run {
                config,
                layout: &first.layout,
                setup,
                work: memory::largest(sequences, settings.batch, settings.micro_batch),
                teacher: None,
                option: "--micro-batch",
            })?;
            None
        }
    };
    settings.frozen = head.as_ref().map(Head::describe);
    let about = args.about(task.as_ref(), &first, train.as_ref(), &devs)?;
    let mut records = Records::new(args.out.join("trainer"), about.clone());
    let runner = Runner {
        args: &args,
        task: task.as_ref(),
        train: train.as_ref(),
        devs: &devs,
        wordpiece: &wordpiece,
        setup,
        head: head.as_ref(),
        stop: Stop::on_signals()?,
    };
    let runs = match runner.done(&settings)? {
        Some(runs) => runs,
        None => {
            for part in &first.fresh {
                note!("the {} starts from random weights", weights::describe(*part));
            }
            let runs = runner.all(&mut records, first, &settings)?;
            summary::chart(&args.out, task.as_ref(), runs.kept())?;
            args.card(about, task.as_ref(), &runs).write(&args.out)?;
            runs
        }
    };
    summary::print(&args, task.as_ref(), train.rows(), &runs)
}

impl Args {
    fn check(&self) -> Result<()> {
        if self.data.is_none() {
            let needed = match (&self.train, &self.dev) {
                (Some(_), Some(_)) => None,
                (Some(_), None) => Some("--dev FILE is needed beside --train: what to measure on"),
                (None, Some(_)) => Some("--train FILE is needed beside --dev: what to learn from"),
                (None, None) => Some("--data DIR is needed, or --train FILE and --dev FILE"),
            };
            if let Some(needed) = needed {
                return Err(Error::Usage(needed.to_owned()));
            }
        }
        // Its labels are looked for before its rows are read.
        if self.train.as_deref() == Some(Path::new("-")) {
            return Err(Error::Usage(
                "--train -: training data is read more than once, so a file is needed".to_owned(),
            ));
        }
        for (name, value) in [
            ("--epochs", self.epochs() as usize),
            ("--batch", self.batch),
            ("--batch-tokens", self.batch_tokens.unwrap_or(1)),
            ("--micro-batch", self.micro_batch.unwrap_or(1)),
            ("--limit", self.limit.unwrap_or(1)),
            ("--seeds", self.seeds as usize),
        ] {
            at_least_one(name, value as u64)?;
        }
        positive("--lr", self.lr())?;
        positive("--spike", self.spike.unwrap_or(2.0))?;
        share("--warmup", self.warmup)?;
        share("--dropout", self.dropout.unwrap_or(0.0))?;
        self.optimizer.check()
    }

    /// Refuses an `--out` in which something would be lost.
    fn room_in_out(&self) -> Result<()> {
        let out = &self.out;
        let unfinished = [checkpoint::path(out), several::path(out)];
        let done = [several::done_path(out)];
        not_the_same(out, Some(&self.model))?;
        Intent::of(self.resume, self.overwrite).check(out, &unfinished, &done)
    }

    fn epochs(&self) -> u32 {
        self.epochs.unwrap_or(if self.frozen.is_set() { 20 } else { 3 })
    }

    fn lr(&self) -> f64 {
        self.lr.unwrap_or(if self.frozen.is_set() { 1e-3 } else { 5e-5 })
    }

    /// Whether the command trains more than once.
    fn several(&self) -> bool {
        self.seeds > 1 || self.lr_search
    }

    fn train_file(&self) -> Result<PathBuf> {
        match &self.train {
            Some(path) => a_file("--train", path),
            None => self.official()?.train_in(self.folder()?),
        }
    }

    /// The names of results with the files that they are measured on.
    fn dev_files(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        match &self.dev {
            Some(path) => Ok(vec![("dev", a_file("--dev", path)?)]),
            None => self.official()?.dev_in(self.folder()?),
        }
    }

    fn official(&self) -> Result<Files> {
        tasks::files(&self.task.task).ok_or_else(|| {
            Error::Usage(format!(
                "{0} has nothing to train on: fine-tune mnli, and `cloze predict {0}` with its model",
                self.task.task
            ))
        })
    }

    /// The folder of the official files.
    fn folder(&self) -> Result<&Path> {
        // [`Args::check`] asks for --data unless both files are given.
        let folder = self.data.as_deref().unwrap_or(Path::new("."));
        if folder.is_file() {
            return Err(Error::Usage(format!(
                "--data {}: is a file; expected the folder of the task's official files, or --train FILE \
                 and --dev FILE",
                folder.display()
            )));
        }
        Ok(folder)
    }

    /// The pre-trained model with the task's head, which stands apart where the encoder is frozen, and
    /// the labels in its configuration.
    fn model(&self, task: &dyn Task, seed: u64) -> Result<Model> {
        let parts =
            if self.frozen.is_set() { vec![Part::Encoder] } else { task.part().with_encoder() };
        let mut model = Model::read(&self.model, &parts, Some(seed))?;
        if self.from_scratch {
            model.values = model.layout.initialise(seed);
            model.fresh = vec![Part::Encoder];
        }
        let max_len = self.task.reading.max_len(task.name(), &model.config)?;
        describe(task, max_len, &mut model.config);
        if let Some(p) = self.dropout {
            let Config { hidden_dropout_prob, attention_probs_dropout_prob, .. } =
                &mut model.config;
            (*hidden_dropout_prob, *attention_probs_dropout_prob) = (p, p);
        }
        Ok(model)
    }

    fn settings(&self) -> Settings {
        Settings {
            epochs: self.epochs(),
            batch: match self.batch_tokens {
                Some(tokens) => BatchSize::Tokens(tokens),
                None => BatchSize::Examples(self.batch),
            },
            learning_rate: self.lr(),
            warmup: self.warmup,
            optimizer: self.optimizer.over(Optimizer::default()),
            micro_batch: self.micro_batch.unwrap_or(0),
            seed: self.seed,
            save_every: self.save_every,
            guard: GuardSettings { bad_steps: self.bad_steps, spike: self.spike },
            keep_best: self.keep_best,
            ..Settings::default()
        }
    }
}

/// The path of a file; a folder is refused.
fn a_file(option: &str, path: &Path) -> Result<PathBuf> {
    match path.is_dir() {
        true => {
            Err(Error::Usage(format!("{option} {}: is a folder; expected a file", path.display())))
        }
        false => Ok(path.to_owned()),
    }
}

/// What a run has become before it is known whether its model is kept.
struct Trained<'a> {
    run: Run,
    trainer: crate::train::Finetuner<'a>,
    config: Config,
}

/// Saves what makes a model folder whole: configuration, weights, vocabulary, and a head that stands
/// apart.
fn write_model(
    out: &Path,
    trained: &mut Trained<'_>,
    head: Option<&Head>,
    wordpiece: &WordPiece,
) -> Result<()> {
    let engine = trained.trainer.engine();
    let config = &trained.config;
    match head {
        Some(head) => {
            let parameters = engine.parameters()?;
            head.write(out, config, engine.layout(), &parameters, wordpiece)
        }
        None => write(out, engine, config, wordpiece),
    }
}
