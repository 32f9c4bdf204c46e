//! `cloze records`: writes the records of a run for other programs that keep records of experiments.

mod mlflow;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::cli::shared::records::name_of;
use crate::cli::shared::stdio::say;
use crate::error::{Error, Result};
use crate::train::card::unescaped;
use crate::train::record::METRICS;

use self::mlflow::Store;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder that pretrain, distill or finetune wrote
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// MLflow's file store, such as mlruns; a run that is there already is replaced
    #[arg(long, value_name = "STORE")]
    mlflow: PathBuf,
    /// Experiment to which the run is added
    #[arg(long, default_value = "cloze", value_name = "NAME")]
    experiment: String,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What a run recorded.
struct Run {
    name: String,
    /// The file with the numbers.
    metrics: PathBuf,
    /// Milliseconds since 1970 of the first and the last line.
    times: (i64, i64),
    /// Values by their names, such as `train/loss`.
    series: BTreeMap<String, Vec<Point>>,
}

/// A value.
struct Point {
    /// Milliseconds since 1970.
    time: i64,
    step: u64,
    value: f64,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let runs = runs_in(&args.folder)?;
    let settings = settings(&args.folder)?;
    let store = Store::open(&args.mlflow, &args.experiment)?;
    let mut written = Vec::new();
    for run in &runs {
        let id = store.add(run, &settings)?;
        let values: usize = run.series.values().map(Vec::len).sum();
        written.push(json!({"name": run.name, "id": id, "values": values}));
    }
    if args.json {
        let object = json!({"experiment": args.experiment, "runs": written});
        return say!("{object}");
    }
    let (count, store) = (runs.len(), args.mlflow.display());
    say!("runs written to the experiment {} in {store}: {count}", args.experiment)
}

/// Returns the runs whose records are in a model's folder: one, or those of a command that trained
/// several times.
fn runs_in(folder: &Path) -> Result<Vec<Run>> {
    let (name, trainer) = (name_of(folder), folder.join("trainer"));
    let own = trainer.join(METRICS);
    if own.is_file() {
        return Ok(vec![Run::read(name, own)?]);
    }
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(trainer.join("runs")).into_iter().flatten().flatten() {
        let metrics = entry.path().join(METRICS);
        if metrics.is_file() {
            runs.push(Run::read(format!("{name}/{}", name_of(&entry.path())), metrics)?);
        }
    }
    if runs.is_empty() {
        let message = "holds no records of a run, trainer/metrics.jsonl, which pretrain, distill and finetune write";
        return Err(Error::file(folder, message));
    }
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runs)
}

impl Run {
    /// Reads the lines of a file. A last line without an end, which a killed run may leave, is left out.
    fn read(name: String, metrics: PathBuf) -> Result<Self> {
        let text = std::fs::read_to_string(&metrics).map_err(|e| Error::io(&metrics, e))?;
        let mut run = Self { name, metrics, times: (i64::MAX, 0), series: BTreeMap::new() };
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        for (number, line) in (1..).zip(text[..end].lines()) {
            let wrong = |message: &str| Error::line(&run.metrics, number, message);
            let line: Map<String, Value> = serde_json::from_str(line)
                .map_err(|e| wrong(&format!("is not a record of a run: {e}")))?;
            let step = line.get("step").and_then(Value::as_u64);
            let time = line.get("time").and_then(Value::as_f64);
            let (Some(step), Some(time)) = (step, time) else {
                return Err(wrong("is not a record of a run: it has no step or no time"));
            };
            run.take(step, (time * 1e3).round() as i64, &line);
        }
        Ok(run)
    }

    fn take(&mut self, step: u64, time: i64, line: &Map<String, Value>) {
        self.times = (self.times.0.min(time), self.times.1.max(time));
        for (name, value) in line {
            match value {
                Value::Object(scores) => {
                    scores
                        .iter()
                        .for_each(|(score, value)| self.push(name, score, step, time, value));
                }
                _ if name != "step" && name != "time" => {
                    self.push("train", name, step, time, value)
                }
                _ => {}
            }
        }
    }

    /// Adds a number; null stands for one that is not finite. Text and lists are left out.
    fn push(&mut self, group: &str, name: &str, step: u64, time: i64, value: &Value) {
        let value = match value {
            Value::Null => f64::NAN,
            value => match value.as_f64() {
                Some(value) => value,
                None => return,
            },
        };
        let points = self.series.entry(format!("{}/{}", plain(group), plain(name))).or_default();
        points.push(Point { time, step, value });
    }
}

/// Returns the settings of the runs: the tables with two columns in the model card that Cloze wrote, each
/// setting with its table's heading. Without a card the list is empty.
fn settings(folder: &Path) -> Result<BTreeMap<String, String>> {
    let path = folder.join("README.md");
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
    let (mut settings, mut heading, mut inside) = (BTreeMap::new(), "", false);
    for line in text.lines() {
        let row = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |"));
        if let Some(title) = line.strip_prefix("## ") {
            heading = title;
        } else if line == "|---|---|" {
            inside = true;
        } else if let Some((name, value)) = row.and_then(|row| row.split_once(" | ")) {
            if inside {
                let name = plain(&unescaped(name));
                settings.insert(format!("{}/{name}", plain(heading)), unescaped(value));
            }
        } else {
            inside = false;
        }
    }
    Ok(settings)
}

/// Returns a name as MLflow accepts it within a longer one.
fn plain(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-. ".contains(c);
    name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}
