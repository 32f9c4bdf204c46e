//! The runs of one command: one, or one with each learning rate and then one with each seed.
//!
//! The best run's model is kept. The results of finished runs are kept too: with `--resume` a command that was
//! stopped continues the run in which it was stopped, and a command that has finished trains nothing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::run::{Run, Runner, Runs, same_run};
use super::selection::Selection;
use crate::cli::shared::checks::refuse;
use crate::engine::Numerics;
use crate::error::{Error, Result};
use crate::files::{remove_if_there, write_atomic};
use crate::model::weights::{self, Model};
use crate::note;
use crate::train::best::Best;
use crate::train::finetune::{Settings, State};
use crate::train::identity::FinetuningIdentity;
use crate::train::{Records, checkpoint};

/// The finished runs of a command.
#[derive(Serialize, Deserialize)]
struct Finished {
    /// The identity of the last run.
    identity: FinetuningIdentity,
    runs: Vec<Run>,
    /// What computed the last run.
    numerics: Option<Numerics>,
}

/// Returns the path of the finished runs of an unfinished command.
pub(crate) fn path(out: &Path) -> PathBuf {
    out.join("trainer").join("finished.json")
}

/// Returns the path of the runs of a finished command.
pub(crate) fn done_path(out: &Path) -> PathBuf {
    out.join("trainer").join("done.json")
}

impl Finished {
    fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
        let finished = serde_json::from_slice(&bytes);
        let what = |e| Error::file(path, format!("is no list of finished runs: {e}"));
        finished.map(Some).map_err(what)
    }

    fn write(&self, path: &Path) -> Result<()> {
        // Numbers, strings and lists can always be serialised.
        write_atomic(path, &serde_json::to_vec(self).expect("plain data"))
    }
}

/// Returns the index of the run with the highest score, or of the first such run.
fn best(runs: &[Run], selection: &Selection) -> usize {
    let better = |best: usize, next: usize| {
        let ahead = runs[next].score(selection) > runs[best].score(selection);
        if ahead { next } else { best }
    };
    (0..runs.len()).reduce(better).unwrap_or(0)
}

impl Runner<'_> {
    /// Returns the learning rate and the seed of the run after `runs`: each rate with the first seed, then the
    /// best rate with the other seeds.
    fn next(&self, runs: &[Run]) -> Option<(f64, u64)> {
        let (rates, args) = (&self.recipe.rates, self.args);
        if let Some(&rate) = rates.get(runs.len()) {
            return Some((rate, args.seed));
        }
        let more = 1 + (runs.len() - rates.len()) as u64;
        let rate = runs[best(&runs[..rates.len()], self.selection)].learning_rate;
        (more < args.seeds).then(|| (rate, args.seed + more))
    }

    /// Returns an error if this command does not begin with these runs.
    fn begins_with(&self, runs: &[Run]) -> Result<()> {
        let out = self.args.out.display();
        for (i, run) in runs.iter().enumerate() {
            let (rate, seed, kept) = (run.learning_rate, run.seed, run.kept.is_some());
            if self.next(&runs[..i]) != Some((rate, seed)) {
                refuse!(
                    "the runs in {out} can't be continued: run {} had seed {seed} and learning rate {rate:e}, \
                     which --seed, --lr, --lr-search and --seeds don't give now",
                    i + 1
                );
            }
            let now = self.selection.keep_best;
            if now != kept {
                refuse!(
                    "the runs in {out} can't be continued: --keep-best was {kept} and is {now} now"
                );
            }
        }
        Ok(())
    }

    /// With `--resume`, returns the runs in `--out` if they are all runs of this command, or an error if
    /// they are another command's. If this command has more runs, it continues after those that are done.
    pub(crate) fn done(&self, settings: &Settings) -> Result<Option<Runs>> {
        let args = self.args;
        // A run without a model has to be repeated.
        if !args.training.resume || !args.out.join(weights::WEIGHTS).exists() {
            return Ok(None);
        }
        let Some(Finished { identity, runs, numerics }) = Finished::read(&done_path(&args.out))?
        else {
            return Ok(None);
        };
        let before = &runs[..runs.len().saturating_sub(1)];
        if let Some((learning_rate, seed)) = self.next(before) {
            let model = args.model(self.task, seed)?;
            let now = self.trainer(model, settings, learning_rate, seed)?;
            same_run(&args.out, &identity, now.identity())?;
        }
        self.begins_with(&runs)?;
        if self.next(&runs).is_some() {
            // The records of a single run are in the folder of those of all runs.
            if runs.len() == 1 {
                refuse!(
                    "the run in {} is done, and --seeds or --lr-search ask for more now: give \
                     --overwrite to start again, or another --out",
                    args.out.display()
                );
            }
            Finished { identity, runs, numerics }.write(&path(&args.out))?;
            return Ok(None);
        }
        // A command that was killed may have left them.
        self.forget_unfinished()?;
        let out = args.out.display();
        note!("the run in {out} is done: nothing is trained");
        Ok(Some(Runs { best: best(&runs, self.selection), done: runs, stopped: None }))
    }

    /// Trains all runs; `first` is the model of the first one.
    pub(crate) fn all(
        &self,
        records: &mut Records,
        first: Model,
        settings: &Settings,
    ) -> Result<Runs> {
        let args = self.args;
        remove_if_there(&done_path(&args.out))?;
        if !args.training.resume {
            // Now, or a later --resume could continue the earlier run.
            self.forget_unfinished()?;
        }
        if let Some(head) = self.head {
            let sequences = &self.train.examples().sequences;
            head.compute(&first.config, self.setup, sequences)?;
        }
        let (mut before, mut runs) = match self.finished(records)? {
            Some(Finished { identity, runs, numerics }) => (Some((identity, numerics)), runs),
            None => (None, Vec::new()),
        };
        let mut first = Some(first).filter(|_| runs.is_empty());
        let mut resume = args.training.resume;
        let mut stopped = None;
        while let Some((learning_rate, seed)) = self.next(&runs) {
            let model = match first.take() {
                Some(model) => model,
                None => args.model(self.task, seed)?,
            };
            let config = model.config.clone();
            let trainer = self.trainer(model, settings, learning_rate, seed)?;
            let identity = trainer.identity().clone();
            let numerics = trainer.numerics().cloned();
            if let Some((before, computed)) = before.take() {
                let of_this = FinetuningIdentity {
                    seed,
                    learning_rate,
                    started_from: identity.started_from,
                    ..before
                };
                same_run(&args.out, &of_this, &identity)?;
                if let (Some(now), Some(computed)) = (&numerics, &computed)
                    && !checkpoint::path(&args.out).exists()
                {
                    // With a state, its own are compared.
                    now.changes(computed).iter().for_each(|change| note!("{change}"));
                }
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
            if args.several() && best(&runs, self.selection) + 1 == runs.len() {
                self.write(&mut trained)?;
            }
            if was_stopped {
                break;
            }
            if args.several() {
                let shown = trained.run.shown(self.selection);
                note!("seed {seed}, learning rate {learning_rate:e}: {shown}");
            }
            let finished = Finished { identity, runs, numerics };
            finished.write(&match self.next(&finished.runs) {
                Some(_) => path(&args.out),
                None => done_path(&args.out),
            })?;
            runs = finished.runs;
            self.forget_state()?;
        }
        if stopped.is_none() && !runs.iter().any(|run| run.outcome.stopped()) {
            remove_if_there(&path(&args.out))?;
        }
        Ok(Runs { best: best(&runs, self.selection), done: runs, stopped })
    }

    /// Removes the state of the run in `--out`.
    fn forget_state(&self) -> Result<()> {
        checkpoint::remove(&self.args.out)?;
        Best::remove(&self.args.out)
    }

    /// Removes that state and the list of the runs before it.
    fn forget_unfinished(&self) -> Result<()> {
        self.forget_state()?;
        remove_if_there(&path(&self.args.out))
    }

    /// With `--resume`, returns the finished runs of this command in `--out`.
    fn finished(&self, records: &mut Records) -> Result<Option<Finished>> {
        let args = self.args;
        if !args.training.resume {
            return Ok(None);
        }
        let Some(finished) = Finished::read(&path(&args.out))? else {
            return Ok(None);
        };
        self.begins_with(&finished.runs)?;
        // A command that was killed may have left the state of the last finished run.
        if State::read(&args.out)?.is_some_and(|state| state.run.identity == finished.identity) {
            self.forget_state()?;
        }
        for run in &finished.runs {
            let done = run.outcome.done();
            records.begin(Some(&run.name()), done, Some(done));
            records.end();
        }
        note!("continuing after {} finished runs", finished.runs.len());
        Ok(Some(finished))
    }
}
