//! The same pre-training run in f32 and in bf16, with a chart of both losses.
//!
//!     cargo bench --bench precision_curves [-- --steps 3000]
//!
//! Trains a tiny model on Cloze's own corpus with the settings of `cloze pretrain`, writes
//! `benches/results/bf16-curve.svg` and prints the held-out losses.

use std::path::Path;

use clap::Parser;

use cloze::data::{PretrainingData, PretrainingOptions};
use cloze::engine::{Backend, Precision, Setup};
use cloze::model::{Layout, PRETRAINING, Size};
use cloze::text::{Casing, WordPiece, embedded};
use cloze::train::{History, Pretrainer, Settings, Silent, Stop};
use cloze::view::LineChart;

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 3000)]
    steps: u64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn run(wordpiece: &WordPiece, precision: Precision, steps: u64) -> cloze::Result<History> {
    let options = PretrainingOptions { max_len: 40, ..PretrainingOptions::default() };
    let paragraphs = embedded::paragraphs().map(Ok);
    let (data, held_out) = PretrainingData::build_split(paragraphs, wordpiece, &options, None, 10)?;
    let mut config = Size::Tiny.config(wordpiece.vocab_size());
    // The initial values that `cloze pretrain` gives narrow models.
    config.initializer_range = 0.9 / (config.hidden_size as f64).sqrt();
    (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (0.0, 0.0);
    let layout = Layout::new(&config, &PRETRAINING);
    let setup = Setup { precision, ..Setup::from(Backend::Cpu) };
    let engine = setup.engine(&config, &layout, layout.initialise(0))?;
    let settings = Settings::new(steps, 16, 1.5e-3);
    let mut trainer = Pretrainer::new(engine, data, held_out, settings);
    trainer.run(None, &mut Silent, &Stop::default())?;
    Ok(trainer.history().clone())
}

fn main() -> cloze::Result<()> {
    let args = Args::parse();
    let texts = embedded::paragraphs().map(|p| Ok(p.text));
    let wordpiece = WordPiece::train(texts, 2000, Casing::Uncased)?;
    let mut chart = LineChart::new("The same run in f32 and in bf16")
        .axes("step", "masked-LM loss (nats a masked token)");
    for (name, precision) in [("f32", Precision::F32), ("bf16", Precision::Bf16)] {
        let history = run(&wordpiece, precision, args.steps)?;
        let points: Vec<(f64, f64)> =
            history.steps.iter().map(|step| (step.step as f64, step.mlm_loss)).collect();
        chart = chart.smoothed(name, &points);
        if let Some(last) = history.evaluations.last() {
            println!(
                "{name}: held-out masked-LM loss {:.4}, accuracy {:.1} %; next sentence {:.1} %",
                last.mlm_loss,
                100.0 * last.mlm_accuracy,
                100.0 * last.nsp_accuracy.unwrap_or(0.0)
            );
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    chart.save(root.join("benches/results/bf16-curve.svg"))
}
