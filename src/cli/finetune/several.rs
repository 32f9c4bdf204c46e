//! The runs of one command: one, or one with every learning rate and then one with every seed.
//!
//! Of several runs the model of the best is kept. What the finished ones came to is kept too until
//! all are done, so that a command that was stopped goes on with the run that it was stopped in.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::run::{Run, Runner, same_run};
use super::{Args, RATES, summary};
use crate::error::{Error, Result};
use crate::files::{remove_if_there, write_atomic};
use crate::model::weights::Model;
use crate::tasks::Task;
use crate::train::Records;
use crate::train::finetune::{Identity, Settings};

/// What a command came to.
pub struct Runs {
    /// Those that came to their end; where the first one was stopped, that one.
    pub done: Vec<Run>,
    /// The place of the run whose model is in `--out`.
    best: usize,
    /// The run behind them that was stopped.
    pub stopped: Option<Run>,
}

impl Runs {
    /// The run whose model is in `--out`.
    pub fn kept(&self) -> &Run {
        &self.done[self.best]
    }

    /// The run in which the command was stopped, if it was.
    pub fn unfinished(&self) -> Option<&Run> {
        let last = self.stopped.as_ref().or(self.done.last());
        last.filter(|run| run.outcome.stopped())
    }
}

/// The finished runs of a command that has more to do.
#[derive(Deserialize)]
struct Finished {
    /// Of the last of them.
    identity: Identity,
    runs: Vec<Run>,
}

/// Where they are kept.
pub fn path(out: &Path) -> PathBuf {
    out.join("trainer").join("finished.json")
}

impl Finished {
    fn read(out: &Path) -> Result<Option<Self>> {
        let path = path(out);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(&path, e)),
        };
        let finished = serde_json::from_slice(&bytes);
        let what = |e| Error::file(&path, format!("is no list of finished runs: {e}"));
        finished.map(Some).map_err(what)
    }
}

impl Args {
    /// Learning rate and seed of the run after `runs`: every rate with the first seed, then the best
    /// of them with the other seeds.
    fn next(&self, runs: &[Run], task: &dyn Task) -> Option<(f64, u64)> {
        let own = [self.lr()];
        let rates = if self.lr_search { &RATES[..] } else { &own };
        if let Some(&rate) = rates.get(runs.len()) {
            return Some((rate, self.seed));
        }
        let more = 1 + (runs.len() - rates.len()) as u64;
        let rate = runs[best(&runs[..rates.len()], task)].learning_rate;
        (more < self.seeds).then(|| (rate, self.seed + more))
    }
}

/// The place of the run with the highest score, the first of equal ones.
fn best(runs: &[Run], task: &dyn Task) -> usize {
    let better = |best: usize, next: usize| {
        let ahead = runs[next].score(task) > runs[best].score(task);
        if ahead { next } else { best }
    };
    (0..runs.len()).reduce(better).unwrap_or(0)
}

impl Runner<'_> {
    /// Trains all of them; `first` is the model of the first run.
    pub fn all(&self, records: &mut Records, first: Model, settings: &Settings) -> Result<Runs> {
        let args = self.args;
        let (mut before, mut runs) = match self.finished(records)? {
            Some(Finished { identity, runs }) => (Some(identity), runs),
            None => (None, Vec::new()),
        };
        let mut first = Some(first).filter(|_| runs.is_empty());
        let mut resume = args.resume;
        let mut stopped = None;
        while let Some((learning_rate, seed)) = args.next(&runs, self.task) {
            let model = match first.take() {
                Some(model) => model,
                None => args.model(self.task, seed)?,
            };
            let settings = Settings {
                learning_rate,
                seed,
                ..settings.clone()
            };
            let config = model.config.clone();
            let trainer = self.trainer(model, settings)?;
            let identity = trainer.identity().clone();
            if let Some(before) = before.take() {
                let of_this = Identity {
                    seed,
                    learning_rate,
                    started_from: identity.started_from,
                    ..before
                };
                same_run(&args.out, &of_this, &identity)?;
            }
            let resume = std::mem::take(&mut resume);
            let mut trained = self.train(trainer, config, resume, records)?;
            let was_stopped = trained.run.outcome.stopped();
            if was_stopped && !runs.is_empty() {
                records.end();
                stopped = Some(trained.run);
                break;
            }
            self.measure(&mut trained, records)?;
            records.end();
            runs.push(trained.run.clone());
            if args.several() && best(&runs, self.task) + 1 == runs.len() {
                self.write(&mut trained)?;
            }
            if was_stopped {
                break;
            }
            if args.several() {
                summary::progress(self.task, &trained.run);
                let finished = json!({"identity": identity, "runs": runs});
                write_atomic(&path(&args.out), finished.to_string().as_bytes())?;
            }
        }
        if stopped.is_none() && !runs.iter().any(|run| run.outcome.stopped()) {
            remove_if_there(&path(&args.out))?;
        }
        Ok(Runs {
            best: best(&runs, self.task),
            done: runs,
            stopped,
        })
    }

    /// The runs that `--out` holds of this command, where it is to be continued.
    fn finished(&self, records: &mut Records) -> Result<Option<Finished>> {
        let args = self.args;
        if !args.resume {
            remove_if_there(&path(&args.out))?;
            return Ok(None);
        }
        let Some(finished) = Finished::read(&args.out)? else {
            return Ok(None);
        };
        for (i, run) in finished.runs.iter().enumerate() {
            if args.next(&finished.runs[..i], self.task) != Some((run.learning_rate, run.seed)) {
                return Err(Error::Usage(format!(
                    "the runs in {} can't be continued: run {} had seed {} and learning rate {:e}, \
                     which --seed, --lr, --lr-search and --seeds don't give now",
                    args.out.display(),
                    i + 1,
                    run.seed,
                    run.learning_rate
                )));
            }
            let done = run.outcome.done();
            records.begin(Some(&run.name()), done, Some(done));
            records.end();
        }
        eprintln!("continuing after {} finished runs", finished.runs.len());
        Ok(Some(finished))
    }
}
