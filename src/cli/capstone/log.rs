//! The log of a capstone, `capstone.json`: what was chosen, the plan, and the results of each run as soon as there are
//! any. A stopped capstone continues from it, and the leaderboard keeps it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::options::Choice;
use crate::cli::shared::checks::refuse;
use crate::error::{Error, Result};
use crate::eval::Scores;
use crate::files::replace;
use crate::train::exam::Mark;

/// The file.
pub(super) const LOG: &str = "capstone.json";

/// What the learner chose. A capstone is continued only with the same choices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Chosen {
    /// The files of the text; none for Cloze's own corpus.
    pub(super) text: Vec<PathBuf>,
    /// For all runs together.
    pub(super) minutes: f64,
    /// The most steps of a run, whatever the time allows.
    pub(super) max_steps: Option<u64>,
    /// The task and its options, as `cloze finetune` takes them.
    pub(super) finetune: String,
    /// All runs, the learner's first.
    pub(super) runs: Vec<Choice>,
}

/// A run and its results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    /// Its options and names.
    #[serde(flatten)]
    pub(super) choice: Choice,
    /// Planned steps of pre-training.
    pub(super) steps: u64,
    /// The time that measuring its speed took.
    pub(super) trial_seconds: f64,
    /// The time that the run took, without the trial.
    pub(super) seconds: f64,
    /// The results; None before the run is done.
    pub(super) results: Option<Results>,
}

/// The results of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Results {
    /// Parameters of the pre-trained model.
    pub(super) parameters: usize,
    /// Mean speed of pre-training.
    pub(super) tokens_per_s: f64,
    /// The scores in the exam; None for a model that can't take it.
    pub(super) exam: Option<Mark>,
    /// The task's scores: those of one run, or the mean over several seeds.
    pub(super) task: Scores,
    /// Their standard deviation over several seeds.
    pub(super) deviation: Option<Scores>,
    /// The name of the score that counts.
    pub(super) metric: String,
}

/// The whole log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Log {
    /// The version of Cloze.
    pub(super) cloze: String,
    /// When it began, in UTC.
    pub(super) date: String,
    /// The command line.
    pub(super) command: String,
    /// Names and values that describe the computer.
    pub(super) machine: Vec<(String, String)>,
    pub(super) text: Vec<PathBuf>,
    pub(super) minutes: f64,
    pub(super) max_steps: Option<u64>,
    pub(super) finetune: String,
    /// Tokens of the text that no run trains on.
    pub(super) held_out_tokens: u64,
    /// The time of reading the text and training the vocabulary.
    pub(super) vocabulary_seconds: f64,
    pub(super) runs: Vec<Run>,
}

impl Log {
    /// Returns the log of a capstone that begins.
    pub(super) fn new(chosen: Chosen, command: String, machine: Vec<(String, String)>) -> Self {
        let run =
            |choice| Run { choice, steps: 0, trial_seconds: 0.0, seconds: 0.0, results: None };
        let now = std::time::SystemTime::now();
        Self {
            cloze: env!("CARGO_PKG_VERSION").to_owned(),
            date: humantime::format_rfc3339_seconds(now).to_string(),
            command,
            machine,
            text: chosen.text,
            minutes: chosen.minutes,
            max_steps: chosen.max_steps,
            finetune: chosen.finetune,
            held_out_tokens: 0,
            vocabulary_seconds: 0.0,
            runs: chosen.runs.into_iter().map(run).collect(),
        }
    }

    /// Reads the log in a capstone's folder; None if there is none.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(LOG);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
        let log = serde_json::from_slice(&bytes);
        log.map(Some).map_err(|e| Error::file(&path, format!("is no log of a capstone: {e}")))
    }

    /// Writes it into the capstone's folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        replace(&folder.join(LOG), format!("{}\n", self.json()).as_bytes())
    }

    /// Returns it as JSON, indented.
    pub(super) fn json(&self) -> String {
        // Numbers, strings and lists can always be serialised.
        serde_json::to_string_pretty(self).expect("plain data")
    }

    /// Returns an error if the capstone has other choices than these.
    pub(super) fn continues(&self, now: &Chosen, folder: &Path) -> Result<()> {
        let folder = folder.display();
        let lines = |runs: Vec<&Choice>| {
            runs.iter()
                .map(|run| format!("{:?}", run.words.join(" ")))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let was = lines(self.runs.iter().map(|run| &run.choice).collect());
        let is = lines(now.runs.iter().collect());
        let steps = |most: Option<u64>| most.map_or("not given".into(), |most| most.to_string());
        let list = |files: &[PathBuf]| format!("{files:?}");
        for (what, was, is) in [
            ("--text", list(&self.text), list(&now.text)),
            ("--minutes", self.minutes.to_string(), now.minutes.to_string()),
            ("--max-steps", steps(self.max_steps), steps(now.max_steps)),
            ("--finetune", self.finetune.clone(), now.finetune.clone()),
            ("the options of the runs", was, is),
        ] {
            if was != is {
                refuse!(
                    "the capstone in {folder} can't be continued: {what} was {was} and is {is} now"
                );
            }
        }
        Ok(())
    }

    /// Returns the seconds that each run has, with its trial.
    pub(super) fn share(&self) -> f64 {
        let left = (60.0 * self.minutes - self.vocabulary_seconds).max(0.0);
        left / self.runs.len() as f64
    }

    /// Returns the seconds that everything took so far.
    pub(super) fn seconds(&self) -> f64 {
        let runs = self.runs.iter().map(|run| run.trial_seconds + run.seconds);
        self.vocabulary_seconds + runs.sum::<f64>()
    }

    /// Returns the finished runs with their results.
    pub(super) fn done(&self) -> impl Iterator<Item = (&Run, &Results)> {
        self.runs.iter().filter_map(|run| Some((run, run.results.as_ref()?)))
    }
}
