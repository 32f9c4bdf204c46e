//! What a pre-training run prints at its start and at its end.

use serde_json::{Value, json};

use super::RunArgs;
use crate::cli::shared::progress::measured;
use crate::cli::shared::stdio::say;
use crate::cli::shared::training::note_stopped;
use crate::data::PretrainingData;
use crate::error::Result;
use crate::note;
use crate::train::pretraining_chart;
use crate::train::report::mean;
use crate::train::{EvalReport, Pretrainer};

/// Losses of guesses, in nats a token.
#[derive(Clone, Copy)]
pub(crate) struct Baselines {
    /// If all tokens are equally probable.
    pub(crate) uniform: f64,
    /// The smallest without any context.
    pub(crate) unigram: f64,
}

impl Baselines {
    /// Computes the losses and prints them on stderr, with the size of the text.
    pub(crate) fn of(
        data: &PretrainingData,
        held_out: &PretrainingData,
        vocab_size: usize,
    ) -> Self {
        note!(
            "{} tokens in {} documents to train on, {} tokens in {} documents held out; {} examples an epoch",
            data.tokens(),
            data.documents(),
            held_out.tokens(),
            held_out.documents(),
            data.examples_per_epoch(),
        );
        let uniform = (vocab_size as f64).ln();
        // Of the training text: a few held-out documents repeat themselves more, and their smaller
        // entropy is out of reach for a model that knows only the counts.
        let unigram = data.unigram_entropy();
        note!(
            "loss of a uniform guess: ln({vocab_size}) = {uniform:.3}; of a guess from the text's token counts alone (unigram entropy): {unigram:.3}",
        );
        Self { uniform, unigram }
    }
}

/// The results of a run.
pub(crate) struct Summary {
    steps: u64,
    planned: u64,
    loss_first: f64,
    loss_last: f64,
    pub(crate) tokens_per_s: f64,
    seconds: f64,
    baselines: Baselines,
    evaluation: EvalReport,
    teacher: Option<EvalReport>,
}

impl Summary {
    /// Saves the run's chart and returns its results.
    pub(crate) fn of(
        args: &RunArgs,
        trainer: &mut Pretrainer,
        evaluation: EvalReport,
        baselines: Baselines,
        seconds: f64,
    ) -> Result<Self> {
        let teacher = trainer.evaluate_teacher()?;
        let history = trainer.history();
        let chart = pretraining_chart(history, baselines.uniform, baselines.unigram);
        chart.save(args.out.join("trainer").join("loss.svg"))?;
        Ok(Self {
            steps: trainer.step(),
            planned: args.steps,
            loss_first: history.steps.first().map_or(0.0, |s| s.loss),
            // The mean of ten batches: a single one is noisy.
            loss_last: mean(history.steps.latest(10).map(|s| s.loss)),
            tokens_per_s: history.tokens_per_s(),
            seconds,
            baselines,
            evaluation,
            teacher,
        })
    }

    /// Returns whether the run was stopped before its last step.
    pub(crate) fn stopped(&self) -> bool {
        self.steps < self.planned
    }

    /// Prints the results.
    pub(crate) fn print(&self, args: &RunArgs) -> Result<()> {
        let Self { steps, loss_first, loss_last, tokens_per_s, seconds, .. } = *self;
        let (Baselines { uniform, unigram }, teacher) = (self.baselines, &self.teacher);
        if args.training.json {
            let object = json!({
                "steps": steps,
                "stopped": self.stopped(),
                "loss_first": loss_first,
                "loss_last": loss_last,
                "tokens_per_s": tokens_per_s,
                "seconds": seconds,
                "uniform_loss": uniform,
                "unigram_entropy": unigram,
                "eval": object(&self.evaluation),
                "teacher": teacher.as_ref().map(object),
            });
            say!("{object}")?;
        } else {
            say!(
                "{steps} steps in {seconds:.0} s, {tokens_per_s:.0} tokens/s; loss {loss_first:.3} -> {loss_last:.3}"
            )?;
            say!(
                "held out: {} (loss of a uniform guess {uniform:.3}, unigram {unigram:.3})",
                measured(&self.evaluation)
            )?;
            if let Some(teacher) = teacher {
                say!("the teacher, held out: {}", measured(teacher))?;
            }
            let out = args.out.display();
            say!("model in {out}, its curves in {out}/trainer/report.html")?;
        }
        if self.stopped() {
            note_stopped(steps, self.planned, "");
        }
        Ok(())
    }
}

/// Converts a measurement to JSON; values that were not measured are null.
fn object(evaluation: &EvalReport) -> Value {
    json!({
        "mlm_accuracy": evaluation.mlm_accuracy,
        "mlm_loss": evaluation.mlm_loss,
        "perplexity": evaluation.perplexity(),
        "nsp_accuracy": evaluation.nsp_accuracy,
        "nsp_loss": evaluation.nsp_loss,
    })
}
