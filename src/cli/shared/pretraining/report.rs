//! What the records and the model card say about a pre-training run, and the settings that make it that
//! run, under the names of the options.

use std::path::PathBuf;

use super::summary::Baselines;
use super::{Described, RunArgs};
use crate::cli::shared::checks::option_name;
use crate::cli::shared::records;
use crate::cli::shared::training::{describe, spike};
use crate::data::{Packing, PretrainingData};
use crate::engine::Setup;
use crate::ranks::Ranks;
use crate::train::card::{Card, Measured, in_code};
use crate::train::identity::{Changeable, PretrainingIdentity};
use crate::train::record::{About, Chart};
use crate::train::{EvalReport, Pretrainer};
use crate::view::page::Table;

/// Returns the charts of a run's report.
pub(crate) fn charts(packing: Packing, baselines: Baselines) -> Vec<Chart> {
    let two = |chart: Chart, name: &str| {
        chart
            .curve("training batches", format!("train/{name}"))
            .curve("held-out documents", format!("eval/{name}"))
    };
    let masked = Chart::new("Masked-LM loss", "cross-entropy (nats a masked token)");
    let next = Chart::new("Next-sentence loss", "cross-entropy (nats a pair)");
    let accuracy = Chart::new("Held-out documents", "share of right answers")
        .curve("masked tokens", "eval/mlm_accuracy");
    let masked = two(masked, "mlm_loss")
        .reference("uniform guess: ln(V)", baselines.uniform)
        .reference("unigram entropy", baselines.unigram);
    let mut all = vec![masked];
    if packing == Packing::Pairs {
        all.push(two(next, "nsp_loss"));
        all.push(accuracy.curve("next sentences", "eval/nsp_accuracy"));
    } else {
        all.push(accuracy);
    }
    all.extend(Chart::usual());
    all
}

/// Describes the training text and the held-out text of a run.
pub(crate) fn text(
    (text, data): (&[PathBuf], &PretrainingData),
    (other, held_out): (&[PathBuf], &PretrainingData),
) -> Table {
    let size = |data: &PretrainingData| {
        let (documents, tokens) = (data.documents(), data.tokens());
        format!("{tokens} tokens in {documents} documents")
    };
    let names = |files: &[PathBuf]| {
        let names: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    };
    let files = match text {
        [] => "Cloze's own small corpus".to_owned(),
        files => names(files),
    };
    let apart = match other {
        [] => size(held_out),
        files => format!("{} ({})", size(held_out), names(files)),
    };
    Table::new("Data")
        .row("text", files)
        .row("trained on", size(data))
        .row("held out", apart)
        .row("examples an epoch", data.examples_per_epoch())
}

/// Describes what the model learns.
fn learned(model: &Described<'_>) -> &'static str {
    match model.packing {
        _ if model.config.is_decoder => "next words, from left to right",
        Packing::Pairs => "masked words and next sentences",
        Packing::Document | Packing::Full => "masked words",
    }
}

/// Lists the settings that may not change when a run is resumed, under the names of the options.
pub(crate) fn identity(run: &PretrainingIdentity) -> Vec<(&'static str, String)> {
    let packing = match run.packing {
        Packing::Pairs => "in pairs",
        Packing::Document => "sentences of one document",
        Packing::Full => "full sentences",
    };
    let distilled = run.distilled.as_ref().map(|d| {
        let (recipe, teacher) = (&d.recipe, d.teacher);
        format!(
            "temperature {}, alphas {} {} {}, a teacher of checksum {teacher:08x}",
            recipe.temperature, recipe.ce, recipe.mlm, recipe.cos
        )
    });
    let text = "the text, or the order of its files (by checksum),";
    let batch = match Ranks::of_process().size() {
        1 => "--batch",
        _ => "--batch times the number of ranks",
    };
    vec![
        ("--seed", run.seed.to_string()),
        (batch, run.batch.to_string()),
        ("--seq", run.max_len.to_string()),
        ("--first-seq", run.first_max_len.to_string()),
        ("--whole-word", run.whole_word.to_string()),
        ("the distillation", distilled.unwrap_or("none".into())),
        ("--left-to-right", run.left_to_right.to_string()),
        ("the packing of the text", packing.to_owned()),
        ("--mask-prob", run.mask_probability.to_string()),
        ("--short-seq-prob", run.short_probability.to_string()),
        ("the vocabulary's size", run.vocab_size.to_string()),
        ("the number of tokens in the text", run.tokens.to_string()),
        (text, format!("{:08x}", run.checksum)),
        ("the model", run.model.to_string()),
        ("the order of the parameters in memory", run.order.to_string()),
        ("--optimizer", option_name(run.optimizer)),
    ]
}

/// Lists the settings that may change when a run is resumed, under the names of the options.
pub(crate) fn changeable(settings: &Changeable) -> Vec<(&'static str, String)> {
    let (schedule, optimizer) = (&settings.schedule, &settings.optimizer);
    let first_until = settings.first_until.to_string();
    vec![
        ("--steps", schedule.total.to_string()),
        ("--lr", schedule.peak.to_string()),
        ("--schedule", option_name(schedule.decay)),
        ("the last step of the warm-up", schedule.warmup.to_string()),
        ("the last step of the first phase", first_until),
        ("--adam-beta2", optimizer.beta2.to_string()),
        ("--adam-epsilon", format!("{:e}", optimizer.epsilon)),
        ("--weight-decay", optimizer.weight_decay.to_string()),
        ("--max-grad-norm", settings.max_norm.to_string()),
        ("--bad-steps", option_name(settings.guard.bad_steps)),
        ("--spike", spike(settings.guard)),
        ("--dropout", settings.dropout.to_string()),
        ("--dtype", settings.precision.to_string()),
    ]
}

impl RunArgs {
    /// Returns what the records say about the run besides its numbers.
    pub(super) fn about(&self, model: &Described<'_>, setup: Setup, trainer: &Pretrainer) -> About {
        let (config, first_seq) = (&model.config, model.first_seq);
        let settings = trainer.settings();
        let mut recipe = Table::new("Recipe")
            .row("starts from", &model.origin.words)
            .row("learns", learned(model))
            .row("steps", self.steps)
            .row("sequences a step", settings.batch)
            .row("longest sequence", self.seq());
        if first_seq < self.seq() {
            let first = format!("{first_seq}, for {} steps", trainer.changeable().first_until);
            recipe = recipe.row("longest sequence at first", first);
        }
        let schedule = settings.schedule;
        let peak = format!("{:e}", schedule.peak);
        let masking = if self.whole_word { "whole words" } else { "pieces" };
        let recipe = recipe
            .row("highest learning rate", peak)
            .row("warm-up", format!("{} steps", schedule.warmup))
            .row("learning rate after the warm-up", option_name(schedule.decay))
            .row("optimizer", describe(settings.optimizer))
            .row("dropout", config.hidden_dropout_prob)
            .row("masking", masking)
            .row("number format", self.training.engine.dtype())
            .row("seed", self.seed);
        About {
            title: format!("Pre-training {}", records::name_of(&self.out)),
            command: records::command(),
            tables: vec![recipe, records::model(config, &model.layout), records::machine(setup)],
            charts: Vec::new(),
        }
    }

    /// Returns the model card.
    pub(super) fn card(
        &self,
        about: About,
        model: &Described<'_>,
        trainer: &Pretrainer,
        evaluation: &EvalReport,
    ) -> Card {
        let (steps, planned) = (trainer.step(), self.steps);
        let speed = trainer.history().tokens_per_s();
        let mut tables = about.tables;
        tables.push(Table::new("Speed").row("tokens/s", format!("{speed:.0}")));
        let name = records::name_of(&self.out);
        let stopped = match steps < planned {
            true => format!(" The run was stopped after {steps} of {planned} steps."),
            false => String::new(),
        };
        let mut scores = vec![
            ("accuracy".into(), evaluation.mlm_accuracy),
            ("perplexity".into(), evaluation.perplexity()),
        ];
        let nsp = evaluation.nsp_accuracy;
        scores.extend(nsp.map(|share| ("nsp_accuracy".into(), share)));
        let named = in_code(&name);
        let (pipeline, fill) = if model.config.is_decoder {
            ("text-generation", String::new())
        } else {
            let fill = format!("`cloze fill-mask --model {named} \"The [MASK] sat.\"`, ");
            ("fill-mask", fill)
        };
        Card {
            summary: format!(
                "A BERT pre-trained with Cloze from {}: {}.{stopped} The results are of documents \
                 that were held out.",
                model.origin.words,
                learned(model)
            ),
            pipeline,
            results: vec![Measured {
                data: "held-out documents".into(),
                dataset: "own-text".into(),
                split: "validation",
                scores,
                ..Measured::default()
            }],
            usage: format!(
                "{fill}`cloze finetune … --model {named}`, or `AutoModel.from_pretrained(\"{named}\")` \
                 with transformers."
            ),
            command: about.command,
            tables,
            name,
            base_model: model.origin.base.clone(),
            ..Card::default()
        }
    }
}
