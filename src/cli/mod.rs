//! The subcommands of `cloze`, one file each.

mod attention;
mod bench;
mod checks;
mod convert;
mod data;
mod distill;
mod engine;
mod evaluate;
mod features;
mod fill_mask;
mod finetune;
mod lessons;
mod lines;
mod memory;
mod model;
mod nsp;
mod optimizer;
mod predict;
mod pretrain;
mod pretraining;
mod print;
mod progress;
mod records;
mod run_folder;
mod score;
mod task;
mod tokenize;
mod vocab;

use std::process::ExitCode;

use crate::error::{Error, Result};
use crate::note;

/// Learn BERT by building it; train and use it.
#[derive(clap::Parser)]
#[command(name = "cloze", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Number of threads [default: as many as the processor has, or RAYON_NUM_THREADS]
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
}

impl Cli {
    /// Runs the subcommand; an error is reported in one line on stderr.
    pub fn run(self) -> ExitCode {
        match self.work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                note!("error: {error}");
                ExitCode::from(error.exit_code())
            }
        }
    }

    fn work(self) -> Result<()> {
        if let Some(threads) = self.threads {
            checks::at_least_one("--threads", threads as u64)?;
            // It fails only if the pool exists, but nothing has computed yet.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build_global().map_err(|e| Error::Failed(format!("--threads {threads}: {e}")))?;
        }
        self.command.run()
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the lessons, build their notebooks, check their sources
    Lessons(lessons::Args),
    /// Cut lines of text into word pieces
    Tokenize(tokenize::Args),
    /// Train a WordPiece vocabulary from text
    Vocab(vocab::Args),
    /// Pre-train a BERT from text: masked words and next sentences
    Pretrain(pretrain::Args),
    /// Train a smaller model to predict as a trained one does
    Distill(distill::Args),
    /// Train a model for a task: GLUE, multiple choice, entities, your own data
    Finetune(finetune::Args),
    /// Measure a fine-tuned model on labelled data
    Evaluate(evaluate::Args),
    /// Answer with a fine-tuned model, in the layout of the task's submissions
    Predict(predict::Args),
    /// Score a file of predictions as the official scripts do
    Score(score::Args),
    /// Compute vectors of lines of text: of sentences or of every token
    Features(features::Args),
    /// Draw a model's attention to a text or a pair: one page with three views
    Attention(attention::Args),
    /// Fill [MASK]s in a text
    FillMask(fill_mask::Args),
    /// Estimate whether one text follows another
    Nsp(nsp::Args),
    /// Measure speed on this machine, and estimate the cost of a run
    Bench(bench::Args),
    /// List data sets and download them
    Data(data::Args),
    /// Rewrite a model folder in today's Hugging Face layout
    Convert(convert::Args),
}

impl Command {
    fn run(self) -> Result<()> {
        match self {
            Self::Lessons(args) => lessons::run(args),
            Self::Tokenize(args) => tokenize::run(args),
            Self::Vocab(args) => vocab::run(args),
            Self::Pretrain(args) => pretrain::run(args),
            Self::Distill(args) => distill::run(args),
            Self::Finetune(args) => finetune::run(args),
            Self::Evaluate(args) => evaluate::run(args),
            Self::Predict(args) => predict::run(args),
            Self::Score(args) => score::run(args),
            Self::Features(args) => features::run(args),
            Self::Attention(args) => attention::run(args),
            Self::FillMask(args) => fill_mask::run(args),
            Self::Nsp(args) => nsp::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Data(args) => data::run(args),
            Self::Convert(args) => convert::run(args),
        }
    }
}
