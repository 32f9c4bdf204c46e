//! The description of a run on plain text in the records and the model card, and its settings by the names
//! of their options.

use std::path::PathBuf;

use crate::cli::checks::option_name;
use crate::cli::records;
use crate::data::Packing;
use crate::data::PretrainingData;
use crate::engine::Setup;
use crate::train::card::{Card, Measured};
use crate::train::identity::{Distilled, PretrainingIdentity, Recipe};
use crate::train::record::{About, Chart};
use crate::train::{EvalReport, Pretrainer};
use crate::view::page::Table;

use super::{Described, RunArgs};

/// Returns the charts of a run's report.
pub fn charts(packing: Packing, uniform: f64, unigram: f64) -> Vec<Chart> {
    let two = |chart: Chart, name: &str| {
        chart
            .curve("training batches", format!("train/{name}"))
            .curve("held-out documents", format!("eval/{name}"))
    };
    let masked = Chart::new("Masked-LM loss", "cross-entropy (nats a masked token)");
    let next = Chart::new("Next-sentence loss", "cross-entropy (nats a pair)");
    let accuracy =
        Chart::new("Held-out documents", "accuracy").curve("masked tokens", "eval/mlm_accuracy");
    let masked = two(masked, "mlm_loss")
        .reference("uniform guess: ln(V)", uniform)
        .reference("unigram entropy", unigram);
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

/// Describes the text of a run and the held-out text.
pub fn text(
    (text, data): (&[PathBuf], &PretrainingData),
    (other, held_out): (&[PathBuf], &PretrainingData),
) -> Table {
    let of = |data: &PretrainingData| {
        let (documents, tokens) = (data.documents(), data.tokens());
        format!("{tokens} tokens in {documents} documents")
    };
    let named = |files: &[PathBuf]| {
        let names = files.iter().map(|path| path.display().to_string());
        names.collect::<Vec<_>>().join(", ")
    };
    let files = match text {
        [] => "Cloze's own small corpus".to_owned(),
        files => named(files),
    };
    let apart = match other {
        [] => of(held_out),
        files => format!("{} ({})", of(held_out), named(files)),
    };
    Table::new("Data")
        .row("text", files)
        .row("trained on", of(data))
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

/// Returns the settings that may not change when the run is resumed, by the names of their options.
pub fn identity(identity: &PretrainingIdentity) -> Vec<(&'static str, String)> {
    let packing = match identity.packing {
        Packing::Pairs => "in pairs",
        Packing::Document => "sentences of one document",
        Packing::Full => "full sentences",
    };
    let distillation = match &identity.distilled {
        None => "without a teacher".to_owned(),
        Some(Distilled { recipe, teacher }) => format!(
            "temperature {}, alphas {} {} {}, a teacher of checksum {teacher:08x}",
            recipe.temperature, recipe.ce, recipe.mlm, recipe.cos
        ),
    };
    vec![
        ("--seed", identity.seed.to_string()),
        ("--batch", identity.batch.to_string()),
        ("--seq", identity.max_len.to_string()),
        ("--first-seq", identity.first_max_len.to_string()),
        ("--whole-word", identity.whole_word.to_string()),
        ("the distillation", distillation),
        ("--left-to-right", identity.left_to_right.to_string()),
        ("the cut of the text", packing.to_owned()),
        ("--mask-prob", identity.mask_probability.to_string()),
        ("--short-seq-prob", identity.short_probability.to_string()),
        ("the vocabulary's size", identity.vocab_size.to_string()),
        ("the number of tokens in the text", identity.tokens.to_string()),
        (
            "the text, or the order of its files (by checksum),",
            identity.checksum.map_or_else(String::new, |sum| format!("{sum:08x}")),
        ),
        ("the model", identity.model.as_ref().map_or_else(String::new, |model| model.to_string())),
        ("the order of the parameters in memory", identity.order.to_string()),
        ("--optimizer", option_name(identity.optimizer)),
    ]
}

/// Returns the settings that may change when the run is resumed, by the names of their options.
pub fn changeable(recipe: &Recipe) -> Vec<(&'static str, String)> {
    let Recipe { schedule, first_until, optimizer, max_norm, guard, dropout, precision } = recipe;
    let spike = guard.spike.map_or("none".to_owned(), |x| x.to_string());
    vec![
        ("--steps", schedule.total.to_string()),
        ("--lr", schedule.peak.to_string()),
        ("the last step of the warm-up", schedule.warmup.to_string()),
        ("the last step of the first phase", first_until.to_string()),
        ("--adam-beta2", optimizer.beta2.to_string()),
        ("--adam-epsilon", format!("{:e}", optimizer.epsilon)),
        ("--weight-decay", optimizer.weight_decay.to_string()),
        ("--max-grad-norm", max_norm.to_string()),
        ("--bad-steps", option_name(guard.bad_steps)),
        ("--spike", spike),
        ("--dropout", dropout.to_string()),
        ("--dtype", precision.map_or_else(String::new, |p| p.to_string())),
    ]
}

impl RunArgs {
    /// Describes the run for the records.
    pub(super) fn about(&self, model: &Described<'_>, setup: Setup, trainer: &Pretrainer) -> About {
        let Described { config, first_seq, .. } = model;
        let settings = trainer.settings();
        let first_until = trainer.recipe().first_until;
        let mut recipe = Table::new("Recipe")
            .row("starts from", &model.origin.words)
            .row("learns", learned(model))
            .row("steps", self.steps)
            .row("sequences a step", self.batch)
            .row("longest sequence", self.seq());
        if *first_seq < self.seq() {
            recipe = recipe
                .row("longest sequence at first", format!("{first_seq}, for {first_until} steps"));
        }
        let recipe = recipe
            .row("highest learning rate", format!("{:e}", settings.schedule.peak))
            .row("warm-up", format!("a share of {} of the steps", self.warmup))
            .row("optimizer", self.optimizer.describe(settings.optimizer))
            .row("dropout", config.hidden_dropout_prob)
            .row("masking", if self.whole_word { "whole words" } else { "pieces" })
            .row("number format", self.engine.dtype())
            .row("seed", self.seed);
        About {
            title: format!("Pre-training {}", records::name_of(&self.out)),
            command: records::command(),
            tables: vec![recipe, records::model(config, &model.layout), records::machine(setup)],
            charts: Vec::new(),
        }
    }

    /// Returns the model's card.
    pub(super) fn card(
        &self,
        about: About,
        model: &Described<'_>,
        trainer: &Pretrainer,
        evaluation: &EvalReport,
    ) -> Card {
        let (steps, planned) = (trainer.step(), self.steps);
        let history = trainer.history();
        let speed = history.tokens_per_s();
        let mut tables = about.tables;
        tables.push(Table::new("Speed").row("tokens/s", format!("{speed:.0}")));
        let name = records::name_of(&self.out);
        let stopped = if steps < planned {
            format!(" The run was stopped after {steps} of {planned} steps.")
        } else {
            String::new()
        };
        let mut scores = vec![
            ("accuracy".into(), evaluation.mlm_accuracy),
            ("perplexity".into(), evaluation.perplexity()),
        ];
        scores.extend(evaluation.nsp_accuracy.map(|share| ("nsp_accuracy".into(), share)));
        let (pipeline, ask) = if model.config.is_decoder {
            ("text-generation", String::new())
        } else {
            let ask = format!("`cloze fill-mask --model {name} \"The [MASK] sat.\"`, ");
            ("fill-mask", ask)
        };
        Card {
            summary: format!(
                "A BERT pre-trained with Cloze from {}: {}.{stopped} The results were measured on \
                 held-out documents.",
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
                "{ask}`cloze finetune … --model {name}`, or `AutoModel.from_pretrained(\"{name}\")` \
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
