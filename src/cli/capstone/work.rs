//! The stages of a run: pre-training and fine-tuning, as the commands do them, with what all runs of a capstone share.

use std::path::{Path, PathBuf};

use super::log::Results;
use super::options::parse;
use crate::cli::finetune::{self, Trained};
use crate::cli::pretrain;
use crate::cli::shared::pretraining::Summary;
use crate::error::Result;
use crate::model::weights::Model;
use crate::train::exam::Exam;

/// The folder of the fine-tuned model in that of a run.
const FINETUNED: &str = "finetuned";
/// Held-out sequences in the measurements of a run's curve; the exam has more.
const SEQUENCES: &str = "128";
/// Checkpoints of a run, beside the one at the end.
const CHECKPOINTS: u64 = 10;

/// What all runs share.
pub(super) struct Work<'a> {
    pub(super) text: &'a [PathBuf],
    /// The file of the vocabulary.
    pub(super) vocabulary: &'a Path,
    /// The task and its options.
    pub(super) task: &'a [String],
    pub(super) exam: &'a Exam,
}

impl Work<'_> {
    /// Pre-trains a model into `out` with these options; with `resume` continues.
    pub(super) fn pretrain(
        &self,
        words: &[String],
        steps: u64,
        out: &Path,
        resume: bool,
    ) -> Result<Summary> {
        let (steps, every) = (steps.to_string(), (steps / CHECKPOINTS).to_string());
        let mut all = words.to_vec();
        for (option, value) in [
            ("--out", text(out)),
            ("--vocab", text(self.vocabulary)),
            ("--steps", steps),
            ("--save-every", every),
            ("--eval-sequences", SEQUENCES.to_owned()),
        ] {
            all.extend([option.to_owned(), value]);
        }
        all.extend(resume.then(|| "--resume".to_owned()));
        if !self.text.is_empty() {
            all.push("--text".to_owned());
            all.extend(self.text.iter().map(|path| text(path)));
        }
        pretrain::train(&parse("--pretrain", &all)?)
    }

    /// Fine-tunes the model in `model` once into a folder within, as a trial. Returns in how many times the time a run
    /// does it, with all its seeds; None if it was stopped.
    pub(super) fn try_finetuning(&self, model: &Path) -> Result<Option<u64>> {
        let args: finetune::Args = parse("--finetune", &self.finetuning(self.task, model))?;
        let once = [self.task, &["--seeds".to_owned(), "1".to_owned()]].concat();
        let trained = finetune::train(parse("--finetune", &self.finetuning(&once, model))?)?;
        Ok((!trained.stopped()).then_some(args.seeds()))
    }

    /// Fine-tunes the model in `model` into a folder within; with `resume` continues.
    fn finetune(&self, model: &Path, resume: bool) -> Result<Trained> {
        let mut all = self.finetuning(self.task, model);
        all.extend(resume.then(|| "--resume".to_owned()));
        finetune::train(parse("--finetune", &all)?)
    }

    /// Returns the whole command line of fine-tuning the model in `model`.
    fn finetuning(&self, task: &[String], model: &Path) -> Vec<String> {
        let (out, model) = (text(&model.join(FINETUNED)), text(model));
        let given = [("--out", out), ("--model", model)];
        let given = given.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
        task.iter().cloned().chain(given).collect()
    }

    /// Does all of a run in its folder, or what is left of it; None if it was stopped.
    pub(super) fn run(
        &self,
        words: &[String],
        steps: u64,
        folder: &Path,
    ) -> Result<Option<Results>> {
        let pretrained = self.pretrain(words, steps, folder, folder.exists())?;
        if pretrained.stopped() {
            return Ok(None);
        }
        let finetuned = self.finetune(folder, folder.join(FINETUNED).exists())?;
        if finetuned.stopped() {
            return Ok(None);
        }
        let (task, deviation) = finetuned.scores();
        Ok(Some(Results {
            parameters: Model::read_all(folder)?.values.len(),
            tokens_per_s: pretrained.tokens_per_s,
            exam: self.exam.mark(folder)?,
            task,
            deviation,
            metric: finetuned.metric,
        }))
    }
}

/// Returns a path as a word of a command line.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
