//! The options of `finetune`, `evaluate` and `predict` that name a task and its data.

mod reading;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use serde_json::Value;

use super::checks::{refuse, require};
use super::engine::EngineArgs;
use crate::data::bad::BadRows;
use crate::data::split::Split;
use crate::engine::TaskEngine;
use crate::error::Result;
use crate::eval::Scores;
use crate::hub::{self, DataSet};
use crate::model::{Config, weights};
use crate::note;
use crate::predict::Loaded;
use crate::tasks::{self, Dataset, Kind, Labels, Options, Reading, Role, SpanOptions, Task};
use crate::text::WordPiece;
use reading::{OWN, ReadingArgs, SQUAD};

#[derive(clap::Args, Clone)]
pub(crate) struct TaskArgs {
    /// The task; ax has no training data, use a model of mnli
    #[arg(value_parser = TaskName)]
    pub(crate) task: String,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// What the labels of your own data are [default: as the model was fine-tuned; to fine-tune, class]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// SQuAD: number of answers listed for each question [default: 20]
    #[arg(long, value_name = "N")]
    n_best: Option<usize>,
    /// SQuAD 2.0: give no answer if the score of no answer exceeds that of the best answer by more than
    /// this [default: as fine-tuning chose it; else the best on the data to evaluate, and 0 to predict]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    null_threshold: Option<f64>,
    /// Skip malformed rows and print how many there were, instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
}

/// Options of the commands that use a fine-tuned model.
#[derive(clap::Args)]
pub(crate) struct FinetunedArgs {
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    /// Model folder that `cloze finetune` or transformers wrote for the task, or the name of one on the
    /// Hub
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// Parses a task's name, in any case and with or without hyphens.
#[derive(Clone)]
struct TaskName;

impl TypedValueParser for TaskName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        let typed = value.to_string_lossy();
        let unknown = || {
            let message = unknown_task(&typed);
            clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(command)
        };
        tasks::named(&typed).map(str::to_owned).ok_or_else(unknown)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(tasks::names().map(PossibleValue::new)))
    }
}

/// Words in what people type for a task, and the task that they mean.
const MEANT: [(&str, &str); 12] = [
    ("multi", "custom --kind classes"),
    ("regress", "custom --kind number"),
    ("token", "custom --kind tokens"),
    ("tag", "custom --kind tokens"),
    ("entit", "ner"),
    ("conll", "ner"),
    ("sentim", "sst-2"),
    ("question", "squad"),
    ("qa", "squad"),
    ("choice", "swag"),
    ("clas", "custom"),
    ("text", "custom"),
];

/// Lists the tasks by kind, with the one that is probably meant.
fn unknown_task(typed: &str) -> String {
    let lower = typed.to_lowercase();
    let meant = MEANT.iter().find(|(word, _)| lower.contains(word));
    let meant = meant.map(|(_, task)| format!("; do you mean {task}?")).unwrap_or_default();
    format!(
        "there is no task {typed:?}{meant}\n\n  \
         classes of texts and pairs   cola sst-2 mrpc qqp mnli qnli rte wnli ax\n  \
         a number for a pair          sts-b\n  \
         answers in a text            squad squad2\n  \
         the right ending             swag codah\n  \
         names in sentences           ner\n  \
         your own data                custom, with --kind class, classes, number or tokens\n"
    )
}

/// Lets options take negative numbers, so that an error about one names the option.
pub(crate) fn with_negative_numbers(arg: Arg) -> Arg {
    match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    }
}

/// A fine-tuned model with its task and a file.
pub(crate) struct Opened {
    pub(crate) task: Box<dyn Task>,
    pub(crate) engine: Box<dyn TaskEngine>,
    pub(crate) data: Box<dyn Dataset>,
}

impl FinetunedArgs {
    /// Opens the model, its task, and the first `limit` rows of a file.
    pub(crate) fn open(&self, data: &Path, role: Role, limit: Option<usize>) -> Result<Opened> {
        let setup = self.engine.setup()?;
        self.task.refuse_foreign()?;
        self.task.refuse_folder(data, role)?;
        let folder = hub::folder_of(&self.model)?;
        let path = folder.join(weights::CONFIG);
        let config = Config::read(&path)?;
        let stored = ReadingArgs::stored(&config, &path)?;
        let mut args = self.task.clone();
        if let Some(note) = args.reading.fold_note(&stored)
            && role == Role::Dev
        {
            note!("{note}");
        }
        args.reading = args.reading.or(&stored);
        let unlabelled = args.reading.unlabelled(&stored, role)?;
        let task = args.open(Labels::Model(&config), unlabelled)?;
        let finetuned_for = config.other.get("finetuning_task").and_then(Value::as_str);
        if let Some(other) = finetuned_for.filter(|&other| !akin(other, task.name())) {
            let (folder, name) = (folder.display(), task.name());
            note!("{folder}: was fine-tuned for {other}, not for {name}");
        }
        let Loaded { engine, wordpiece } = Loaded::read_task(&folder, task.part(), setup)?;
        let part = (limit, None);
        let data = args.read(task.as_ref(), data, role, &config, &wordpiece, part)?;
        Ok(Opened { task, engine, data })
    }
}

impl TaskArgs {
    /// Returns the task with the labels of a training file.
    pub(crate) fn to_train(&self, file: &Path) -> Result<Box<dyn Task>> {
        self.refuse_foreign()?;
        self.open(Labels::Training(file), false)
    }

    /// Returns an error if an option was given that the task does not have.
    fn refuse_foreign(&self) -> Result<()> {
        let own = [
            ("--kind", self.kind.is_some(), OWN),
            ("--n-best", self.n_best.is_some(), SQUAD),
            ("--null-threshold", self.null_threshold.is_some(), &["squad2"]),
        ];
        let task = self.task.as_str();
        let mut all = self.reading.of_some_tasks().into_iter().chain(own);
        if let Some((option, _, tasks)) = all.find(|(_, given, of)| *given && !of.contains(&task)) {
            refuse!("{option}: is for {}, not for {task}: omit it", tasks.join(" and "));
        }
        Ok(())
    }

    fn open(&self, labels: Labels<'_>, unlabelled: bool) -> Result<Box<dyn Task>> {
        let threshold = self.null_threshold.unwrap_or_default();
        require("--null-threshold", threshold, !threshold.is_nan(), "a number")?;
        let spans = self.reading.spans();
        let options = Options {
            columns: self.reading.columns()?,
            unlabelled,
            kind: self.kind,
            skip_bad: self.skip_bad,
            fold: self.reading.fold(),
            long_text: self.reading.long_text(),
            spans: SpanOptions {
                n_best: self.n_best.unwrap_or(spans.n_best),
                threshold: self.null_threshold,
                ..spans
            },
        };
        tasks::open(&self.task, &options, labels)
    }

    /// Returns the data set of the Hub that the `path` of this option names by `hub:USER/NAME`; None if it is a
    /// file or a folder.
    pub(crate) fn data_set(&self, option: &str, path: &Path) -> Result<Option<DataSet>> {
        let Some(name) = path.to_str().and_then(|path| path.strip_prefix("hub:")) else {
            return Ok(None);
        };
        let task = &self.task;
        if task != "custom" {
            refuse!(
                "{option} hub:{name}: the rows of data sets of the Hub are your own data, so the task is \
                 custom; {task} reads its official files, which `cloze data get` downloads"
            );
        }
        DataSet::find(name).map(Some)
    }

    /// Returns an error if `path` is a folder, with the file in it that is probably meant.
    fn refuse_folder(&self, path: &Path, role: Role) -> Result<()> {
        if !path.is_dir() {
            return Ok(());
        }
        let option = match role {
            Role::Test => "--input",
            Role::Train | Role::Dev => "--data",
        };
        let files = tasks::files(&self.task).filter(|_| role != Role::Test);
        let meant = files.and_then(|files| files.dev_in(path).ok());
        let such_as = match meant.unwrap_or_default().first() {
            Some((_, file)) => format!(", such as {}", file.display()),
            None => String::new(),
        };
        let path = path.display();
        refuse!("{option} {path}: is a folder; expected a file{such_as}")
    }

    /// Reads a file and prints remarks on stderr.
    pub(crate) fn read(
        &self,
        task: &dyn Task,
        path: &Path,
        role: Role,
        config: &Config,
        wordpiece: &WordPiece,
        (limit, split): (Option<usize>, Option<Split>),
    ) -> Result<Box<dyn Dataset>> {
        let mut bad = BadRows::skipped_if(self.skip_bad);
        let mut notes = Vec::new();
        let reading = Reading {
            wordpiece,
            max_len: self.reading.max_len(&self.task, config)?,
            limit,
            split,
            bad: &mut bad,
            notes: &mut notes,
        };
        let dataset = task.read(path, role, reading)?;
        for note in bad.report().iter().chain(&notes) {
            note!("{note}");
        }
        Ok(dataset)
    }
}

/// Returns whether a model that was fine-tuned for one task suits another. The first name is Cloze's or that of
/// transformers' scripts.
fn akin(finetuned_for: &str, task: &str) -> bool {
    const FAMILIES: [[&str; 2]; 3] = [["squad", "squad2"], ["swag", "codah"], ["mnli", "ax"]];
    let names = [finetuned_for, task];
    tasks::named(finetuned_for) == Some(task)
        || names.contains(&"custom")
        || FAMILIES.iter().any(|family| names.iter().all(|name| family.contains(name)))
}

/// Formats scores in a line for people; scores by type are only in the JSON.
pub(crate) fn line(scores: &Scores) -> String {
    let numbers = scores.iter().filter(|(_, value)| value.is_number());
    let format = |(name, value): (&String, &Value)| match value.as_f64() {
        Some(number) if value.is_f64() => format!("{name} {number:.4}"),
        _ => format!("{name} {value}"),
    };
    numbers.map(format).collect::<Vec<_>>().join(", ")
}
