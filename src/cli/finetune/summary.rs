//! The results of fine-tuning, for people and as JSON.

use std::path::Path;

use serde_json::{Value, json};

use super::Args;
use super::run::{Run, Runs};
use crate::cli::shared::classes;
use crate::cli::shared::stdio::say;
use crate::cli::shared::task::line;
use crate::cli::shared::training::note_stopped;
use crate::error::Result;
use crate::eval::Scores;
use crate::files::create_folder;
use crate::note;
use crate::tasks::Task;
use crate::view::LineChart;

/// Draws the losses of a run.
pub(crate) fn chart(out: &Path, task: &dyn Task, run: &Run) -> Result<()> {
    let folder = out.join("trainer");
    create_folder(&folder)?;
    let steps = &run.outcome.steps;
    let points: Vec<(f64, f64)> = steps.iter().map(|s| (s.step as f64, s.loss)).collect();
    LineChart::new(format!("Fine-tuning on {}", task.name()))
        .axes("step", task.loss())
        .smoothed("training batches", &points)
        .save(folder.join("loss.svg"))
}

/// The results of a command.
pub(crate) struct Trained {
    pub(super) args: Args,
    pub(super) task: Box<dyn Task>,
    /// The rows that the model was trained on.
    pub(super) rows: usize,
    pub(super) runs: Runs,
    /// The name of the score that compares models.
    pub(crate) metric: String,
}

impl Trained {
    /// Returns whether a run was stopped before its last step.
    pub(crate) fn stopped(&self) -> bool {
        self.runs.unfinished().is_some()
    }

    /// Returns the mean scores on the first development file and their deviation, or those of the only run.
    pub(crate) fn scores(&self) -> (Scores, Option<Scores>) {
        match self.several() {
            Some(Several { mean, deviation, .. }) => (mean, Some(deviation)),
            None => {
                let scores = self.runs.kept().scores.first();
                (scores.map(|(_, scores)| scores.clone()).unwrap_or_default(), None)
            }
        }
    }

    fn several(&self) -> Option<Several> {
        Several::of(&self.runs.done, self.runs.kept().learning_rate)
    }

    /// Prints the results.
    pub(crate) fn print(&self) -> Result<()> {
        let Self { args, task, rows, runs, .. } = self;
        let (kept, several) = (runs.kept(), self.several());
        if args.training.json {
            let mut object = json!({"task": task.name(), "rows": rows});
            if let (Value::Object(all), Value::Object(own)) = (&mut object, kept.json()) {
                all.extend(own);
            }
            if runs.done.len() > 1 {
                object["runs"] = runs.done.iter().map(Run::json).collect();
            }
            if let Some(several) = &several {
                object["seeds"] = several.seeds.into();
                object["mean"] = Value::Object(several.mean.clone());
                object["deviation"] = Value::Object(several.deviation.clone());
            }
            object["stopped"] = runs.unfinished().is_some().into();
            say!("{object}")?;
        } else {
            say!(
                "{} steps on {rows} rows in {:.1} s, {:.0} tokens/s; loss of the last steps {:.3}",
                kept.outcome.done(),
                kept.outcome.training.as_secs_f64(),
                kept.outcome.tokens_per_s(),
                kept.outcome.last_loss(),
            )?;
            if let Some(epoch) = kept.kept {
                say!("the model of epoch {epoch} was kept")?;
            }
            if let Some(epoch) = kept.outcome.ended_early {
                say!(
                    "the run ended after epoch {epoch}: no epoch was better for as long as --patience allows"
                )?;
            }
            for (name, scores) in &kept.scores {
                say!("{name}: {}", line(scores))?;
            }
            if let Some(report) = &kept.report {
                say!("{}", classes::text(report))?;
            }
            if let Some(several) = &several {
                say!("mean of {} seeds: {}", several.seeds, line(&several.mean))?;
                say!("standard deviation: {}", line(&several.deviation))?;
            }
            let out = args.out.display();
            say!("model in {out}, its curves in {out}/trainer/report.html")?;
        }
        if kept.outcome.skipped > 0 {
            note!("{} steps were left out", kept.outcome.skipped);
        }
        if let Some(run) = runs.unfinished() {
            let (done, planned) = (run.outcome.done(), run.outcome.planned);
            let of = match args.several() {
                true => format!(" of the run with seed {}", run.seed),
                false => String::new(),
            };
            note_stopped(done, planned, &of);
        }
        Ok(())
    }
}

/// Mean and standard deviation over two or more seeds with one learning rate.
pub(crate) struct Several {
    pub(crate) seeds: usize,
    pub(crate) mean: Scores,
    /// The sample's: the divisor is one less than the number of seeds.
    pub(crate) deviation: Scores,
}

impl Several {
    /// Summarises the runs with this learning rate; None if there is only one.
    pub(crate) fn of(runs: &[Run], learning_rate: f64) -> Option<Self> {
        let same: Vec<&Scores> = runs
            .iter()
            .filter(|run| run.learning_rate == learning_rate)
            .filter_map(|run| run.scores.first().map(|(_, scores)| scores))
            .collect();
        if same.len() < 2 {
            return None;
        }
        let n = same.len() as f64;
        let (mut mean, mut deviation) = (Scores::new(), Scores::new());
        for name in same[0].keys() {
            let values: Option<Vec<f64>> = same.iter().map(|s| s.get(name)?.as_f64()).collect();
            let Some(values) = values else { continue };
            let middle = values.iter().sum::<f64>() / n;
            let squares: f64 = values.iter().map(|x| (x - middle).powi(2)).sum();
            mean.insert(name.clone(), middle.into());
            deviation.insert(name.clone(), (squares / (n - 1.0)).sqrt().into());
        }
        Some(Self { seeds: same.len(), mean, deviation })
    }
}
