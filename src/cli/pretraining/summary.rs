//! What a run on plain text prints at its start and at its end.

use serde_json::{Value, json};

use crate::cli::print::say;
use crate::data::{Packing, PretrainingData};
use crate::error::Result;
use crate::note;
use crate::train::pretraining_chart;
use crate::train::record::Chart;
use crate::train::report::mean;
use crate::train::{EvalReport, Pretrainer};

use super::{RunArgs, description};
use crate::cli::progress::measured;

/// The losses of guesses, in nats a token.
#[derive(Clone, Copy)]
pub struct Baselines {
    /// The uniform guess.
    uniform: f64,
    /// The best guess without context.
    unigram: f64,
}

impl Baselines {
    /// Computes them and reports them on stderr, with the sizes of the text.
    pub fn of(data: &PretrainingData, held_out: &PretrainingData, vocab_size: usize) -> Self {
        note!(
            "{} tokens in {} documents to train on, {} tokens in {} documents held out; {} examples an epoch",
            data.tokens(),
            data.documents(),
            held_out.tokens(),
            held_out.documents(),
            data.examples_per_epoch(),
        );
        let uniform = (vocab_size as f64).ln();
        // Of the training text: a few held-out documents repeat themselves more and would give a smaller
        // number, which no model that knows only the word counts could reach.
        let unigram = data.unigram_entropy();
        note!(
            "loss of a uniform guess: ln({vocab_size}) = {uniform:.3}; of a guess from the text's token counts alone (unigram entropy): {unigram:.3}",
        );
        Self { uniform, unigram }
    }

    /// Returns the charts of the run's report, with these losses as references.
    pub fn charts(self, packing: Packing) -> Vec<Chart> {
        description::charts(packing, self.uniform, self.unigram)
    }
}

/// Saves the run's chart and prints the results.
pub fn print(
    args: &RunArgs,
    trainer: &mut Pretrainer,
    evaluation: &EvalReport,
    baselines: Baselines,
    seconds: f64,
) -> Result<()> {
    let Baselines { uniform, unigram } = baselines;
    let stopped = trainer.step() < args.steps;
    let history = trainer.history();
    let chart = pretraining_chart(history, uniform, unigram);
    chart.save(args.out.join("trainer").join("loss.svg"))?;
    let loss_first = history.steps.first().map_or(0.0, |s| s.loss);
    // One batch is noisy: the last loss is the mean of the last ten.
    let loss_last = mean(history.steps.latest(10).map(|s| s.loss));
    let tokens_per_s = history.tokens_per_s();
    let teacher = trainer.evaluate_teacher()?;
    if args.json {
        let object = json!({
            "steps": trainer.step(),
            "stopped": stopped,
            "loss_first": loss_first,
            "loss_last": loss_last,
            "tokens_per_s": tokens_per_s,
            "seconds": seconds,
            "uniform_loss": uniform,
            "unigram_entropy": unigram,
            "eval": object(evaluation),
            "teacher": teacher.as_ref().map(object),
        });
        say!("{object}")?;
    } else {
        say!(
            "{} steps in {seconds:.0} s, {tokens_per_s:.0} tokens/s; loss {loss_first:.3} -> {loss_last:.3}",
            trainer.step()
        )?;
        say!(
            "held out: {} (loss of a uniform guess {uniform:.3}, unigram {unigram:.3})",
            measured(evaluation)
        )?;
        if let Some(teacher) = &teacher {
            say!("the teacher, held out: {}", measured(teacher))?;
        }
        say!("model in {0}, its curves in {0}/trainer/report.html", args.out.display())?;
    }
    if stopped {
        note!(
            "stopped after step {} of {}: the same command with --resume continues from there",
            trainer.step(),
            args.steps
        );
    }
    Ok(())
}

/// Returns an evaluation as JSON, with null for what was not measured.
fn object(evaluation: &EvalReport) -> Value {
    json!({
        "mlm_accuracy": evaluation.mlm_accuracy,
        "mlm_loss": evaluation.mlm_loss,
        "perplexity": evaluation.perplexity(),
        "nsp_accuracy": evaluation.nsp_accuracy,
        "nsp_loss": evaluation.nsp_loss,
    })
}
