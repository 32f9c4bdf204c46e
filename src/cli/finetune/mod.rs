//! `cloze finetune`: trains a pre-trained model for a task, once or with several seeds and learning rates.

mod advice;
mod frozen;
mod recipe;
mod report;
mod run;
mod selection;
mod several;
mod summary;

use std::path::{Path, PathBuf};

use self::frozen::{FrozenArgs, Head};
use self::recipe::{Recipe, RecipeArgs};
use self::run::Runner;
use self::selection::{Selection, SelectionArgs};
pub(crate) use self::summary::Trained;
use super::shared::checks::{at_least_one, refuse, share};
use super::shared::classes;
use super::shared::memory;
use super::shared::ranks::Shareable;
use super::shared::task::{TaskArgs, with_negative_numbers};
use super::shared::training::TrainingArgs;
use crate::cli::shared::run_folder::RunFolder;
use crate::data::split::Split;
use crate::engine::Numerics;
use crate::error::Result;
use crate::hub::{self, Part as SetPart};
use crate::lessons::data::SMALL;
use crate::model::Part;
use crate::model::weights::{self, Model, wordpiece_of};
use crate::note;
use crate::ranks::Ranks;
use crate::tasks::{self, Dataset, Files, Role, Task};
use crate::text::reader::check_readable_twice;
use crate::train::finetune::Settings;
use crate::train::task::describe;
use crate::train::{Records, Stop, checkpoint};

/// The share of the training rows that is held out if there is no development file.
const HELD_OUT: f64 = 0.1;
/// The task that divides its only file itself.
const CODAH: &str = "codah";

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub(crate) struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// Folder with the task's official files; not needed with --train. For your own data also hub:USER/NAME, a
    /// data set of the Hub
    #[arg(long, value_name = "DIR|hub:NAME")]
    data: Option<PathBuf>,
    /// File to train on, instead of the official one. For your own data also a quoted pattern of files such as
    /// 'train-*.csv', or the training files of hub:USER/NAME
    #[arg(long, value_name = "FILE|hub:NAME")]
    train: Option<PathBuf>,
    /// File to measure on, instead of the official one. For your own data also a quoted pattern of files, or the
    /// validation files of hub:USER/NAME
    #[arg(long, value_name = "FILE|hub:NAME")]
    dev: Option<PathBuf>,
    #[arg(skip)]
    hub: HubData,
    /// Share of the training rows to hold out and measure on, in the place of a development file; 0 to train
    /// on all rows and measure nothing [default: 0.1 if there is no development file]
    #[arg(long, value_name = "SHARE", conflicts_with = "dev")]
    split: Option<f64>,
    /// Folder of the pre-trained model, or the name of one on the Hub
    #[arg(long, default_value = SMALL, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Folder for the fine-tuned model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Train on the first N rows only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Key of the order of rows, of dropout, of the head's initial weights, and of the rows held out
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
    #[command(flatten)]
    selection: SelectionArgs,
    /// Steps between two checkpoints; a stopped run always writes one
    #[arg(long, default_value_t = 0, value_name = "N")]
    save_every: u64,
    #[command(flatten)]
    training: TrainingArgs,
}

/// The data sets of the Hub whose files are used.
#[derive(Debug, Clone, Default)]
struct HubData {
    /// That of the training file.
    train: Option<String>,
    /// That of the development file.
    dev: Option<String>,
}

/// The names of results with the files that they are measured on, and which rows of the training file are held out.
type DevFiles = (Vec<(&'static str, PathBuf)>, Option<Split>);

/// The name of a development file's results, and its rows.
type Measured = (&'static str, Box<dyn Dataset>);

pub(crate) fn run(args: Args) -> Result<()> {
    train(args)?.print()
}

/// Trains, measures, and writes the model.
pub(crate) fn train(mut args: Args) -> Result<Trained> {
    args.check()?;
    args.model = hub::folder_of(&args.model)?;
    args.check_out()?;
    args.download()?;
    let train_file = args.train_file()?;
    let (dev_files, split) = args.dev_files(&train_file)?;
    if dev_files.iter().any(|(_, path)| *path == train_file) {
        check_readable_twice(&train_file)?;
    }
    let task = args.task.to_train(&train_file)?;
    let selection = args.selection(task.as_ref(), !dev_files.is_empty())?;
    let first = args.model(task.as_ref(), args.seed)?;
    let plan = args.frozen.plan(&args.model, task.as_ref(), &first.config)?;
    let wordpiece = wordpiece_of(&args.model, &first)?;
    let config = &first.config;
    let names = &args.task;
    let read = |path: &Path, role, limit| {
        names.read(task.as_ref(), path, role, config, &wordpiece, (limit, split))
    };
    let train = read(&train_file, Role::Train, args.limit)?;
    let mut devs: Vec<Measured> = Vec::new();
    for (name, path) in &dev_files {
        devs.push((name, read(path, Role::Dev, None)?));
    }
    if let (Some(split), Some((_, held_out))) = (split, devs.first()) {
        let (rows, all) = (held_out.rows(), held_out.rows() + train.rows());
        let path = train_file.display();
        note!("{path}: {rows} of {all} rows are held out to measure on (--split {})", split.share);
    }
    let recipe = args.recipe.resolve(config, train.examples(), args.frozen.on())?;
    let _folder = RunFolder::open(&args.out)?;
    // Again: another run may have ended in the meantime.
    args.check_out()?;
    let mut settings = args.settings(&recipe, &selection);
    let setup = args.training.engine.setup()?;
    settings.numerics = Some(Numerics::of(setup, settings.micro_batch));
    let sequences = &train.examples().sequences;
    let head = plan.map(|plan| Head::new(plan, &first));
    if head.is_none() {
        let (size, option) = ((0, 0), "--micro-batch");
        let mut run = memory::Run::new(config, &first.layout, setup, size, option);
        let batch = args.recipe.batch();
        run.work = memory::largest(sequences, batch, settings.micro_batch);
        run.rule = settings.optimizer.rule;
        run.check()?;
    }
    settings.frozen = head.as_ref().map(Head::describe);
    let about =
        args.about(task.as_ref(), &first, (train.as_ref(), &devs), (&recipe, &selection))?;
    let mut records = Records::new(args.out.join("trainer"), about.clone());
    let runner = Runner {
        args: &args,
        task: task.as_ref(),
        train: train.as_ref(),
        devs: &devs,
        wordpiece: &wordpiece,
        setup,
        recipe: &recipe,
        selection: &selection,
        head: head.as_ref(),
        stop: Stop::on_signals()?,
    };
    let runs = match runner.done(&settings)? {
        Some(runs) => runs,
        None => {
            for &part in &first.fresh {
                let part = weights::describe(first.config.model_type, part);
                note!("the {part} starts from random weights");
            }
            let runs = runner.all(&mut records, first, &settings)?;
            summary::chart(&args.out, task.as_ref(), runs.kept())?;
            if let Some(report) = &runs.kept().report {
                records.conclude(classes::pictures(report), classes::tables(report));
            }
            args.card(about, task.as_ref(), &selection, &runs).write(&args.out)?;
            runs
        }
    };
    advice::print(runs.kept(), &recipe);
    let rows = train.rows();
    Ok(Trained { metric: selection.metric, args, task, rows, runs })
}

impl Args {
    pub(crate) fn shareable(&mut self) -> Shareable<'_> {
        Shareable { engine: self.training.engine.run, out: Some(&mut self.out) }
    }

    /// Checks the values of the options.
    pub(crate) fn check(&self) -> Result<()> {
        if self.frozen.on() && Ranks::of_process().size() > 1 {
            refuse!("--frozen: the encoder's vectors are computed once; start a single process");
        }
        if self.data.is_none() && self.train.is_none() {
            match &self.dev {
                Some(_) => refuse!("--train FILE is needed beside --dev: what to learn from"),
                None => refuse!("--data DIR is needed, or --train FILE"),
            }
        }
        share("--split", self.split.unwrap_or_default())?;
        if self.split.is_some() && self.task.task == CODAH {
            refuse!("--split: codah is divided by --fold, which holds a fifth of its rows out");
        }
        // The file is read for its labels first.
        if self.train.as_deref() == Some(Path::new("-")) {
            refuse!("--train -: training data is read more than once, so a file is needed");
        }
        at_least_one([("--limit", self.limit.unwrap_or(1) as u64), ("--seeds", self.seeds)])?;
        self.recipe.check()?;
        self.training.check()
    }

    /// Returns with how many seeds the command trains.
    pub(crate) fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Downloads the data sets of the Hub, and puts their files in the place of their names.
    fn download(&mut self) -> Result<()> {
        let find = |option, path: &Option<PathBuf>| match path {
            Some(path) => self.task.data_set(option, path),
            None => Ok(None),
        };
        let (both, train) = (find("--data", &self.data)?, find("--train", &self.train)?);
        let dev = find("--dev", &self.dev)?;
        let any = [&both, &train, &dev].iter().any(|set| set.is_some());
        if any && self.task.reading.columns()?.is_none() {
            refuse!(
                "--columns is needed: those of the data set's texts and labels, such as text,label"
            );
        }
        let of_both = both.as_ref().filter(|_| self.train.is_none());
        if let Some(set) = train.as_ref().or(of_both) {
            self.train = Some(set.get(SetPart::Train)?);
            self.hub.train = Some(set.name().to_owned());
        }
        let of_both = both.as_ref().filter(|set| {
            self.dev.is_none() && self.split.is_none() && set.has(SetPart::Validation)
        });
        if let Some(set) = dev.as_ref().or(of_both) {
            self.dev = Some(set.get(SetPart::Validation)?);
            self.hub.dev = Some(set.name().to_owned());
        }
        Ok(())
    }

    /// Returns an error if something in `--out` would be lost.
    fn check_out(&self) -> Result<()> {
        let out = &self.out;
        let states = [checkpoint::path(out), checkpoint::previous(out)];
        let unfinished = [&states[..], &[several::path(out)]].concat();
        let done = [several::done_path(out)];
        let from = Some(self.model.as_path());
        self.training.check_out(out, from, &unfinished, &done)
    }

    /// Returns whether the command trains more than once.
    fn several(&self) -> bool {
        self.seeds > 1 || self.recipe.searches()
    }

    fn train_file(&self) -> Result<PathBuf> {
        match &self.train {
            Some(path) => a_file("--train", path),
            None => self.official()?.train_in(self.folder()?),
        }
    }

    /// Returns the names of results and the files that they are measured on, and which rows of the training file
    /// are held out for that.
    fn dev_files(&self, train: &Path) -> Result<DevFiles> {
        let held_out = |share| {
            let split = Split { share, seed: self.seed };
            Ok((vec![("dev", train.to_owned())], Some(split)))
        };
        match (&self.dev, self.split) {
            (Some(path), _) => Ok((vec![("dev", a_file("--dev", path)?)], None)),
            (None, Some(0.0)) => Ok((Vec::new(), None)),
            (None, Some(share)) => held_out(share),
            (None, None) if self.train.is_some() && self.task.task == CODAH => {
                Ok((vec![("dev", train.to_owned())], None))
            }
            (None, None) if self.train.is_some() => held_out(HELD_OUT),
            (None, None) => match self.official()?.dev_in(self.folder()?) {
                Err(_) if self.task.task == "custom" => held_out(HELD_OUT),
                files => Ok((files?, None)),
            },
        }
    }

    /// Returns how models are compared; `measures` is whether there is anything to measure on.
    fn selection(&self, task: &dyn Task, measures: bool) -> Result<Selection> {
        if self.several() && !measures {
            refuse!("--seeds and --lr-search need development data, and --split 0 holds none out");
        }
        self.selection.of(task, measures)
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
        let (tuning, layers) = (self.recipe.tuning(&model.config)?, model.config.num_hidden_layers);
        model.layout = model.layout.tuned(tuning, layers);
        Ok(model)
    }

    fn settings(&self, recipe: &Recipe, selection: &Selection) -> Settings {
        let usual = Settings::default();
        Settings {
            epochs: recipe.epochs,
            max_steps: recipe.max_steps,
            batch: recipe.batch,
            balanced: recipe.balanced,
            // That of the first run.
            learning_rate: recipe.rates[0],
            warmup: self.training.warmup(usual.warmup),
            decay: self.training.decay(usual.decay),
            tuning: recipe.tuning,
            loss: recipe.loss.clone(),
            optimizer: self.training.optimizer(usual.optimizer),
            micro_batch: self.training.micro_batch(),
            seed: self.seed,
            save_every: self.save_every,
            guard: self.training.guard(),
            keep_best: selection.keep_best,
            metric: Some(selection.metric.clone()),
            patience: selection.patience,
            ..usual
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
