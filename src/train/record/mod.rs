//! The records that a run writes into its folder:
//!
//! - `metrics.jsonl`: a JSON object for each step and each measurement;
//! - `events.out.tfevents.*`: the same for TensorBoard;
//! - `report.html`: the same as charts, with a description of the run.
//!
//! A command that trains several times keeps the files of each run in a folder `runs/NAME` and shows all
//! of them in one report. A resumed run continues its files after the step of its checkpoint. Records never
//! end a run: if one can't be written, that is reported once, and the run continues without them.

mod curve;
mod events;
mod lines;
mod page;
mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::eval::Scores;
use crate::files::{create_folder, disk, replace};
use crate::note;
use crate::view::page::Table;

use super::report::{EvalReport, Report, StepReport};

use self::events::Events;
use self::lines::Lines;
pub use self::page::Chart;
pub use self::run::numbers;
use self::run::{LEFT_OUT, Run, STEP, State, TIME, TRAIN};

/// The file of all numbers.
pub const METRICS: &str = "metrics.jsonl";
/// The page.
pub const REPORT: &str = "report.html";
/// The folder of the runs of a command that trains several times.
const RUNS: &str = "runs";
/// The page is not written more often than this, nor for more than a hundredth of the time.
const REPORT_EVERY: Duration = Duration::from_secs(10);
const REPORT_SHARE: u32 = 100;

/// The description of a command: its report without the numbers.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Title of the page.
    pub title: String,
    /// The command line.
    pub command: String,
    /// Data, recipe, machine and the like.
    pub tables: Vec<Table>,
    /// The charts to draw.
    pub charts: Vec<Chart>,
}

/// The files of the present run.
struct Files {
    lines: Lines,
    events: Events,
}

/// The records of a command.
pub struct Records {
    folder: PathBuf,
    about: About,
    runs: Vec<Run>,
    files: Option<Files>,
    /// When the page was last written, and how long that took.
    written: Option<(Instant, Duration)>,
    failed: bool,
    /// Pictures of the result, as SVG.
    pictures: Vec<String>,
}

impl Records {
    /// Creates records in `folder`.
    pub fn new(folder: PathBuf, about: About) -> Self {
        Self {
            folder,
            about,
            runs: Vec::new(),
            files: None,
            written: None,
            failed: false,
            pictures: Vec::new(),
        }
    }

    /// Begins a run of `planned` steps; one of several has a `name`. `resumed` is the step of the checkpoint
    /// from which it continues.
    pub fn begin(&mut self, name: Option<&str>, planned: u64, resumed: Option<u64>) {
        self.close(State::BrokenOff);
        let mut run = Run::new(name, planned, resumed.unwrap_or(0));
        let files = self.open(&mut run, resumed);
        self.runs.push(run);
        self.files = self.attempt(files);
        self.report();
    }

    fn open(&self, run: &mut Run, resumed: Option<u64>) -> Result<Files> {
        if self.runs.is_empty() && resumed.is_none() {
            clear(&self.folder)?;
        }
        let folder = match &run.name {
            Some(name) => self.folder.join(RUNS).join(name),
            None => self.folder.clone(),
        };
        create_folder(&folder)?;
        Ok(Files {
            lines: Lines::open(&folder.join(METRICS), resumed, |step, line| {
                run.take(step, line);
            })?,
            events: Events::open(&folder, resumed, now())?,
        })
    }

    /// Records all numbers of a step's report.
    pub fn trained(&mut self, report: &impl Serialize) {
        let (step, values) = taken_apart(report);
        let Some(run) = self.runs.last_mut() else {
            return;
        };
        run.step = step;
        let mut line = line(step);
        for (name, value) in &values {
            line.insert(name.clone(), (*value).into());
            run.push(format!("{TRAIN}/{name}"), step, *value);
        }
        let tagged = values.iter().map(|(name, value)| (TRAIN, name.as_str(), *value));
        self.write(step, &line, tagged);
        self.report_in_time();
    }

    /// Records a step that was skipped.
    pub fn left_out(&mut self, step: u64, why: &str) {
        let Some(run) = self.runs.last_mut() else {
            return;
        };
        run.step = step;
        run.left_out += 1;
        let mut line = line(step);
        line.insert(LEFT_OUT.to_owned(), why.into());
        self.write(step, &line, [].into_iter());
        self.report_in_time();
    }

    /// Records scores that were measured after step `step`, unless they are already recorded.
    pub fn measured(&mut self, step: u64, group: &str, scores: &Scores) {
        let Some(run) = self.runs.last_mut() else {
            return;
        };
        if run.has_scores(group, step) {
            return;
        }
        run.measured(step, group, scores);
        let mut line = line(step);
        line.insert(group.to_owned(), Value::Object(scores.clone()));
        let tagged = numbers(scores).map(|(name, value)| (group, name, value));
        self.write(step, &line, tagged);
        self.report_in_time();
    }

    /// Ends the run, which has done all its steps or was stopped.
    pub fn end(&mut self) {
        self.close(State::Ended);
        self.report();
    }

    /// Adds pictures of the result, as SVG, and tables to the report.
    pub fn conclude(&mut self, pictures: Vec<String>, tables: Vec<Table>) {
        self.pictures = pictures;
        self.about.tables.splice(0..0, tables);
        self.report();
    }

    fn write<'v>(
        &mut self,
        step: u64,
        line: &Map<String, Value>,
        values: impl Iterator<Item = (&'v str, &'v str, f64)>,
    ) {
        let Some(files) = &mut self.files else { return };
        let mut values = values.map(|(group, name, v)| (format!("{group}/{name}"), v)).peekable();
        let mut written = files.lines.write(line);
        if values.peek().is_some() {
            written = written.and_then(|()| files.events.scalars(now(), step, values));
        }
        if self.attempt(written).is_none() {
            self.files = None;
        }
    }

    /// Reports the first error, and no other.
    fn attempt<T>(&mut self, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.failed {
                    note!("{error}: the run goes on without its records");
                }
                self.failed = true;
                None
            }
        }
    }

    fn close(&mut self, state: State) {
        if let Some(mut files) = self.files.take() {
            let flushed = files.lines.flush().and_then(|()| files.events.flush());
            self.attempt(flushed);
        }
        if let Some(run) = self.runs.last_mut()
            && run.state == State::Running
        {
            (run.state, run.took) = (state, run.began.elapsed());
        }
    }

    fn report_in_time(&mut self) {
        let due =
            |(at, took): (Instant, Duration)| at.elapsed() >= REPORT_EVERY.max(took * REPORT_SHARE);
        if self.written.is_none_or(due) {
            self.report();
        }
    }

    fn report(&mut self) {
        if self.failed {
            return;
        }
        let started = Instant::now();
        let html = self.page().html();
        let written = replace(&self.folder.join(REPORT), html.as_bytes());
        self.attempt(written);
        self.written = Some((Instant::now(), started.elapsed()));
    }
}

/// A run that ends with an error keeps its records.
impl Drop for Records {
    fn drop(&mut self) {
        if self.files.is_some() {
            self.close(State::BrokenOff);
            self.report();
        }
    }
}

impl Report for Records {
    fn step(&mut self, report: &StepReport) {
        self.trained(report);
    }

    fn evaluated(&mut self, report: &EvalReport) {
        let (step, values) = taken_apart(report);
        let scores = values.into_iter().map(|(name, value)| (name, value.into()));
        self.measured(step, "eval", &scores.collect());
    }

    fn saved(&mut self, _: u64) {}

    fn skipped(&mut self, step: u64, why: &str) {
        self.left_out(step, why);
    }
}

/// Reads the lines that a run wrote into its folder of records, up to the first damaged one.
///
/// # Errors
/// If the file can't be read.
pub fn lines_in(folder: &Path) -> Result<Vec<Map<String, Value>>> {
    let path = folder.join(METRICS);
    let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
    Ok(text.lines().map_while(|line| serde_json::from_str(line).ok()).collect())
}

/// Returns the step of a report and its numbers by name.
fn taken_apart(report: &impl Serialize) -> (u64, Vec<(String, f64)>) {
    let mut step = 0;
    let mut values = Vec::new();
    // Reports are structures of numbers, so they are always objects.
    if let Ok(Value::Object(fields)) = serde_json::to_value(report) {
        for (name, value) in fields {
            match (name.as_str(), value.as_f64()) {
                (STEP, _) => step = value.as_u64().unwrap_or(0),
                ("norm", Some(value)) => values.push(("gradient_norm".into(), value)),
                (_, Some(value)) => values.push((name, value)),
                (_, None) => {}
            }
        }
    }
    (step, values)
}

/// Removes the records of an earlier command from `folder`.
fn clear(folder: &Path) -> Result<()> {
    forget(folder)?;
    let runs = folder.join(RUNS);
    let Ok(entries) = fs::read_dir(&runs) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry.map_err(|e| Error::io(&runs, e))?.path();
        forget(&path)?;
        // A folder with other files stays.
        let _ = disk::remove_folder(&path);
    }
    let _ = disk::remove_folder(&runs);
    Ok(())
}

/// Removes the files of a run, if there are any.
fn forget(folder: &Path) -> Result<()> {
    let metrics = folder.join(METRICS);
    if metrics.is_file() {
        events::remove(folder)?;
        disk::remove(&metrics).map_err(|e| Error::io(&metrics, e))?;
    }
    Ok(())
}

fn line(step: u64) -> Map<String, Value> {
    let entries = [(STEP, step.into()), (TIME, rounded(now()).into())];
    entries.map(|(name, value): (&str, Value)| (name.to_owned(), value)).into_iter().collect()
}

/// Returns the seconds since 1970; 0 if the clock is set before that.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |time| time.as_secs_f64())
}

/// Rounds to milliseconds.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Returns a duration as text, to the second.
pub fn duration_text(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs_f64().round() as u64))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::finetune::TaskStep;

    fn about() -> About {
        About {
            title: "A run".into(),
            command: "cloze pretrain".into(),
            tables: vec![Table::new("Recipe").row("batch", 2)],
            charts: vec![
                Chart::new("Loss", "nats").curve("training batches", "train/loss"),
                Chart::new("Score", "accuracy").curve("dev", "dev/accuracy"),
                Chart::new("Nothing", "").curve("nothing", "train/nothing"),
            ],
        }
    }

    fn trained(step: u64, loss: f64) -> TaskStep {
        TaskStep { step, loss, learning_rate: 1e-3, norm: 0.5, tokens_per_s: 100.0 }
    }

    fn scores(accuracy: f64) -> Scores {
        [("accuracy".to_owned(), accuracy.into())].into_iter().collect()
    }

    fn metrics(folder: &Path) -> Vec<Value> {
        let text = fs::read_to_string(folder.join(METRICS)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_resumed_run_has_every_step_once_and_its_page_shows_all_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mut records = Records::new(path.to_path_buf(), about());
        records.begin(None, 6, None);
        for step in 1..=5 {
            records.trained(&trained(step, 5.0 / step as f64));
            if step == 3 {
                records.measured(3, "dev", &scores(0.5));
            }
        }
        // The process ends without a word after step 5; its checkpoint is of step 3.
        drop(records);
        let broken = fs::read_to_string(path.join(REPORT)).unwrap();
        assert!(broken.contains("step 5 of 6; broken off"), "{broken}");

        let mut records = Records::new(path.to_path_buf(), about());
        records.begin(None, 6, Some(3));
        records.trained(&trained(4, 1.0));
        records.left_out(5, "the loss is not a number");
        records.trained(&trained(6, f64::NAN));
        records.measured(6, "dev", &scores(0.75));
        records.measured(6, "dev", &scores(0.75));
        records.end();
        let lines = metrics(path);
        let steps: Vec<u64> = lines.iter().map(|line| line["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, [1, 2, 3, 3, 4, 5, 6, 6]);
        assert_eq!((&lines[0]["loss"], &lines[3]["dev"]["accuracy"]), (&5.0.into(), &0.5.into()));
        assert_eq!(lines[5]["left_out"], "the loss is not a number");
        assert_eq!(lines[0]["gradient_norm"], 0.5);
        assert!(lines[6]["loss"].is_null() && lines[0]["time"].as_f64().unwrap() > 1e9);

        let page = records.page();
        assert_eq!(page.charts.len(), 2, "a chart without numbers is left out");
        assert!(
            page.status.starts_with("step 6 of 6, resumed after 3, 1 left out; finished"),
            "{}",
            page.status
        );
        assert!(!page.running);
        let rows = &page.tables[0].rows;
        assert_eq!(rows[0], ("dev accuracy, step 6".to_owned(), "0.75".to_owned()));
        assert_eq!(page.tables[1].heading, "Recipe");
    }

    #[test]
    fn several_runs_have_folders_of_their_own_and_one_page_and_leave_nothing_to_the_next_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mut records = Records::new(path.to_path_buf(), about());
        for (name, loss) in [("seed-1", 2.0), ("seed-2", 3.0)] {
            records.begin(Some(name), 1, None);
            records.trained(&trained(1, loss));
            records.end();
        }
        for (name, loss) in [("seed-1", 2.0), ("seed-2", 3.0)] {
            let own = path.join(RUNS).join(name);
            assert_eq!(metrics(&own)[0]["loss"], loss);
            assert_eq!(events::files(&own).unwrap().len(), 1);
        }
        let page = fs::read_to_string(path.join(REPORT)).unwrap();
        assert!(
            page.contains("\nseed-1\n") && page.contains("run 2 (seed-2), step 1 of 1; finished")
        );
        records.begin(Some("seed-3"), 1, None);
        assert!(path.join(RUNS).join("seed-1").exists());
        drop(records);

        let mut records = Records::new(path.to_path_buf(), about());
        records.begin(None, 1, None);
        assert!(!path.join(RUNS).join("seed-1").exists());
    }

    #[test]
    fn a_run_goes_on_where_its_records_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let mut records = Records::new(file.join("trainer"), about());
        records.begin(None, 1, None);
        records.trained(&trained(1, 1.0));
        records.end();
        assert!(records.failed);
    }
}
