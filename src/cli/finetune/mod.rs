//! `cloze finetune`: trains a pre-trained model for a task, once or with several seeds and learning rates.

mod frozen;
mod report;
mod run;
mod several;
mod summary;

use std::path::{Path, PathBuf};

use self::frozen::{FrozenArgs, Head};
use self::run::Runner;
use super::shared::checks::{at_least_one, positive, refuse};
use super::shared::memory;
use super::shared::task::{TaskArgs, with_negative_numbers};
use super::shared::training::TrainingArgs;
use crate::cli::shared::run_folder::RunFolder;
use crate::data::sequences::BatchSize;
use crate::engine::Numerics;
use crate::engine::optimizer::Optimizer;
use crate::error::Result;
use crate::hub;
use crate::lessons::data::MODEL;
use crate::model::Part;
use crate::model::weights::{self, Model, wordpiece_of};
use crate::note;
use crate::tasks::{self, Dataset, Files, Role, Task};
use crate::train::finetune::Settings;
use crate::train::task::describe;
use crate::train::{Records, Stop, checkpoint};

/// The learning rates that the paper chooses from (Devlin et al., appendix A.3).
const RATES: [f64; 4] = [5e-5, 4e-5, 3e-5, 2e-5];

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub(crate) struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// Folder with the task's official files; not needed with --train and --dev
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// File to train on, instead of the official one
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// File to measure on, instead of the official one
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
    /// Passes over the training rows [default: 3, with --frozen 20]
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Rows a step
    #[arg(long, default_value_t = 32, value_name = "N")]
    batch: usize,
    /// Tokens a step, instead of a number of rows
    #[arg(long, value_name = "N", conflicts_with = "batch")]
    batch_tokens: Option<usize>,
    /// Highest learning rate, reached after the warm-up [default: 5e-5, with --frozen 1e-3]
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// Try the paper's learning rates, 5e-5, 4e-5, 3e-5 and 2e-5, and use the best on the development
    /// file
    #[arg(long, conflicts_with_all = ["lr", "frozen"])]
    lr_search: bool,
    /// Key of the order of rows, of dropout, and of the head's initial weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Train with N seeds from --seed on, keep the best model, and print mean and deviation
    #[arg(long, default_value_t = 1, value_name = "N")]
    seeds: u64,
    /// Start the encoder from random weights too, to see what pre-training is worth
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
    /// Steps between two checkpoints; a stopped run always writes one
    #[arg(long, default_value_t = 0, value_name = "N")]
    save_every: u64,
    #[command(flatten)]
    training: TrainingArgs,
}

/// The name of a development file's results, and its rows.
type Measured = (&'static str, Box<dyn Dataset>);

pub(crate) fn run(mut args: Args) -> Result<()> {
    args.check()?;
    args.model = hub::folder_of(&args.model)?;
    args.check_out()?;
    let (train_file, dev_files) = (args.train_file()?, args.dev_files()?);
    let task = args.task.to_train(&train_file)?;
    let first = args.model(task.as_ref(), args.seed)?;
    let plan = args.frozen.plan(&args.model, task.as_ref(), &first.config)?;
    let wordpiece = wordpiece_of(&args.model, &first)?;
    let config = &first.config;
    let names = &args.task;
    let read =
        |path: &Path, role, limit| names.read(task.as_ref(), path, role, config, &wordpiece, limit);
    let train = read(&train_file, Role::Train, args.limit)?;
    let mut devs: Vec<Measured> = Vec::new();
    for (name, path) in &dev_files {
        devs.push((name, read(path, Role::Dev, None)?));
    }
    let _folder = RunFolder::open(&args.out)?;
    // Again: another run may have ended in the meantime.
    args.check_out()?;
    let mut settings = args.settings();
    let setup = args.training.engine.setup()?;
    settings.numerics = Some(Numerics::of(setup, settings.micro_batch));
    let sequences = &train.examples().sequences;
    let head = plan.map(|plan| Head::new(plan, &first));
    if head.is_none() {
        let (size, option) = ((0, 0), "--micro-batch");
        let mut run = memory::Run::new(config, &first.layout, setup, size, option);
        run.work = memory::largest(sequences, settings.batch, settings.micro_batch);
        run.check()?;
    }
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
            for &part in &first.fresh {
                let part = weights::describe(part);
                note!("the {part} starts from random weights");
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
            match (&self.train, &self.dev) {
                (Some(_), Some(_)) => {}
                (Some(_), None) => {
                    refuse!("--dev FILE is needed beside --train: what to measure on")
                }
                (None, Some(_)) => {
                    refuse!("--train FILE is needed beside --dev: what to learn from")
                }
                (None, None) => refuse!("--data DIR is needed, or --train FILE and --dev FILE"),
            }
        }
        // The file is read for its labels first.
        if self.train.as_deref() == Some(Path::new("-")) {
            refuse!("--train -: training data is read more than once, so a file is needed");
        }
        at_least_one([
            ("--epochs", self.epochs() as usize as u64),
            ("--batch", self.batch as u64),
            ("--batch-tokens", self.batch_tokens.unwrap_or(1) as u64),
            ("--limit", self.limit.unwrap_or(1) as u64),
            ("--seeds", self.seeds as usize as u64),
        ])?;
        positive("--lr", self.lr())?;
        self.training.check()
    }

    /// Returns an error if something in `--out` would be lost.
    fn check_out(&self) -> Result<()> {
        let out = &self.out;
        let unfinished = [checkpoint::path(out), several::path(out)];
        let done = [several::done_path(out)];
        let from = Some(self.model.as_path());
        self.training.check_out(out, from, &unfinished, &done)
    }

    fn epochs(&self) -> u32 {
        let usual = if self.frozen.on() { 20 } else { 3 };
        self.epochs.unwrap_or(usual)
    }

    fn lr(&self) -> f64 {
        let usual = if self.frozen.on() { 1e-3 } else { 5e-5 };
        self.lr.unwrap_or(usual)
    }

    /// Returns whether the command trains more than once.
    fn several(&self) -> bool {
        self.seeds > 1 || self.lr_search
    }

    fn train_file(&self) -> Result<PathBuf> {
        match &self.train {
            Some(path) => a_file("--train", path),
            None => self.official()?.train_in(self.folder()?),
        }
    }

    /// Returns the names of results and the files that they are measured on.
    fn dev_files(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        match &self.dev {
            Some(path) => Ok(vec![("dev", a_file("--dev", path)?)]),
            None => self.official()?.dev_in(self.folder()?),
        }
    }

    fn official(&self) -> Result<Files> {
        let task = &self.task.task;
        let Some(files) = tasks::files(task) else {
            refuse!(
                "{task} has nothing to train on: fine-tune mnli, and `cloze predict {task}` with its model"
            )
        };
        Ok(files)
    }

    /// Returns the folder of the official files.
    fn folder(&self) -> Result<&Path> {
        // [`Args::check`] requires --data unless both files are given.
        let folder = self.data.as_deref().unwrap_or(Path::new("."));
        if folder.is_file() {
            refuse!(
                "--data {}: is a file; expected the folder of the task's official files, or --train FILE \
                 and --dev FILE",
                folder.display()
            );
        }
        Ok(folder)
    }

    /// Returns the pre-trained model with the task's head and labels; without the head if the encoder is
    /// frozen.
    fn model(&self, task: &dyn Task, seed: u64) -> Result<Model> {
        let parts = match self.frozen.on() {
            true => vec![Part::Encoder],
            false => task.part().with_encoder(),
        };
        let mut model = Model::read(&self.model, &parts, Some(seed))?;
        if self.from_scratch {
            model.values = model.layout.initialise(seed);
            model.fresh = vec![Part::Encoder];
        }
        let max_len = self.task.reading.max_len(task.name(), &model.config)?;
        describe(task, max_len, &mut model.config);
        self.training.set_dropout(&mut model.config);
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
            warmup: self.training.warmup,
            optimizer: self.training.optimizer(Optimizer::default()),
            micro_batch: self.training.micro_batch(),
            seed: self.seed,
            save_every: self.save_every,
            guard: self.training.guard(),
            keep_best: self.keep_best,
            ..Settings::default()
        }
    }
}

/// Returns an error if `path` is a folder.
fn a_file(option: &str, path: &Path) -> Result<PathBuf> {
    if path.is_dir() {
        refuse!("{option} {}: is a folder; expected a file", path.display());
    }
    Ok(path.to_owned())
}
