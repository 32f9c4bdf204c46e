//! What the records and the model card tell of a pre-training run.

use std::path::PathBuf;

use crate::cli::records;
use crate::data::PretrainingData;
use crate::error::Result;
use crate::model::{Config, Layout};
use crate::train::card::{Card, Measured};
use crate::train::record::{About, Chart};
use crate::train::{EvalReport, Pretrainer};
use crate::view::report::Table;

use super::{Args, option_name};

/// The curves of a run's report.
pub fn charts(uniform: f64, unigram: f64) -> Vec<Chart> {
    let two = |chart: Chart, name: &str| {
        chart
            .curve("training batches", format!("train/{name}"))
            .curve("held-out documents", format!("eval/{name}"))
    };
    let masked = Chart::new("Masked-LM loss", "cross-entropy (nats a masked token)");
    let next = Chart::new("Next-sentence loss", "cross-entropy (nats a pair)");
    let accuracy = Chart::new("Held-out documents", "share told right")
        .curve("masked tokens", "eval/mlm_accuracy")
        .curve("next sentences", "eval/nsp_accuracy");
    let masked = two(masked, "mlm_loss")
        .reference("uniform guess: ln(V)", uniform)
        .reference("unigram entropy", unigram);
    let mut all = vec![masked, two(next, "nsp_loss"), accuracy];
    all.extend(Chart::usual());
    all
}

/// The text of a run.
pub fn text(text: &[PathBuf], data: &PretrainingData, held_out: &PretrainingData) -> Table {
    let of = |data: &PretrainingData| {
        let (documents, tokens) = (data.documents(), data.tokens());
        format!("{tokens} tokens in {documents} documents")
    };
    let files: Vec<String> = text.iter().map(|path| path.display().to_string()).collect();
    let files = match files.as_slice() {
        [] => "Cloze's own small corpus".to_owned(),
        files => files.join(", "),
    };
    Table::new("Data")
        .row("text", files)
        .row("trained on", of(data))
        .row("held out", of(held_out))
        .row("examples an epoch", data.examples_per_epoch())
}

impl Args {
    /// What the records tell of the run beside its numbers.
    pub(super) fn about(
        &self,
        config: &Config,
        layout: &Layout,
        lr: f64,
        seq: usize,
        first_seq: usize,
    ) -> Result<About> {
        let recipe = Table::new("Recipe")
            .row("steps", self.steps)
            .row("sequences a step", self.batch)
            .row("longest sequence", seq)
            .row("longest sequence of the first four fifths", first_seq)
            .row("highest learning rate", lr)
            .row("warm-up", "a tenth of the steps")
            .row("optimizer", option_name(self.optimizer))
            .row("dropout", config.hidden_dropout_prob)
            .row(
                "standard deviation of initial weights",
                config.initializer_range,
            )
            .row(
                "masking",
                if self.whole_word {
                    "whole words"
                } else {
                    "pieces"
                },
            )
            .row("number format", self.engine.dtype())
            .row("seed", self.seed);
        let setup = self.engine.setup()?;
        Ok(About {
            title: format!("Pre-training {}", records::name_of(&self.out)),
            command: records::command(),
            tables: vec![
                recipe,
                records::model(config, layout),
                records::machine(setup),
            ],
            charts: Vec::new(),
        })
    }

    /// The model's card.
    pub(super) fn card(&self, about: About, trainer: &Pretrainer, evaluation: &EvalReport) -> Card {
        let (steps, planned) = (trainer.step(), self.steps);
        let history = trainer.history();
        let speeds = history.steps.iter().map(|step| step.tokens_per_s);
        let speed = speeds.sum::<f64>() / history.steps.len().max(1) as f64;
        let mut tables = about.tables;
        tables.push(Table::new("Speed").row("tokens/s", format!("{speed:.0}")));
        let name = records::name_of(&self.out);
        let stopped = if steps < planned {
            format!(" The run was stopped after {steps} of {planned} steps.")
        } else {
            String::new()
        };
        Card {
            summary: format!(
                "A BERT pre-trained from random weights with Cloze: masked words and next \
                 sentences.{stopped} The results are of documents that were held out."
            ),
            pipeline: "fill-mask",
            results: vec![Measured {
                data: "held-out documents".into(),
                dataset: "own-text".into(),
                split: "validation",
                scores: vec![
                    ("accuracy".into(), evaluation.mlm_accuracy),
                    ("perplexity".into(), evaluation.mlm_loss.exp()),
                    ("nsp_accuracy".into(), evaluation.nsp_accuracy),
                ],
                ..Measured::default()
            }],
            usage: format!(
                "`cloze fill-mask --model {name} \"The [MASK] sat.\"`, `cloze finetune … --model {name}`, \
                 or `BertForPreTraining.from_pretrained(\"{name}\")` with transformers."
            ),
            command: about.command,
            tables,
            name,
            ..Card::default()
        }
    }
}
