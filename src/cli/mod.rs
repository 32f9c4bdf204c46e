//! The subcommands of `cloze`, one file each.

mod attention;
mod bench;
mod capstone;
mod convert;
mod data;
mod distill;
mod evaluate;
mod features;
mod fill_mask;
mod finetune;
mod lessons;
mod nsp;
mod picture;
mod predict;
mod prepare;
mod pretrain;
mod push;
mod records;
mod review;
mod score;
mod shared;
mod tokenize;
mod vocab;

use std::process::ExitCode;

use self::shared::ranks::Shareable;
use crate::error::Result;
use crate::note;
use crate::train::parallel::Launch;

/// Learn BERT by building it; train and use it.
#[derive(clap::Parser)]
#[command(name = "cloze", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Threads for computing [default: RAYON_NUM_THREADS, else as many as the processor has]
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Number of this process among those that train together, from 0 [default: as mpirun, srun or torchrun says]
    #[arg(long, global = true, value_name = "R", requires = "world")]
    rank: Option<usize>,
    /// Number of these processes
    #[arg(long, global = true, value_name = "N", requires = "rank")]
    world: Option<usize>,
}

impl Cli {
    /// Runs the subcommand and prints an error in one line on stderr.
    pub fn run(self) -> ExitCode {
        match self.work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                note!("error: {error}");
                ExitCode::from(error.exit_code())
            }
        }
    }

    /// Runs the subcommand.
    ///
    /// # Errors
    /// As the subcommand does.
    pub fn work(mut self) -> Result<()> {
        shared::checks::at_least_one([("--threads", self.threads.unwrap_or(1) as u64)])?;
        let launch = Launch::find(self.rank, self.world)?;
        let joined = shared::ranks::begin(launch.as_ref(), self.command.shareable(), self.threads)?;
        let result = self.command.run();
        match joined {
            Some(joined) => joined.end(result),
            None => result,
        }
    }
}

impl Command {
    /// Returns the options of a command whose work ranks can share.
    fn shareable(&mut self) -> Option<Shareable<'_>> {
        Some(match self {
            Self::Prepare(args) => return args.shareable(),
            Self::Pretrain(args) => args.run.shareable(),
            Self::Distill(args) => args.run.shareable(),
            Self::Finetune(args) => args.shareable(),
            Self::Evaluate(args) => args.shareable(),
            Self::Predict(args) => args.shareable(),
            Self::Features(args) => args.shareable(),
            _ => return None,
        })
    }

    fn run(self) -> Result<()> {
        match self {
            Self::Lessons(args) => lessons::run(args),
            Self::Tokenize(args) => tokenize::run(args),
            Self::Vocab(args) => vocab::run(args),
            Self::Prepare(args) => prepare::run(args),
            Self::Pretrain(args) => pretrain::run(args),
            Self::Distill(args) => distill::run(args),
            Self::Finetune(args) => finetune::run(*args),
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
            Self::Push(args) => push::run(args),
            Self::Records(args) => records::run(args),
        }
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the lessons, build their notebooks, check their sources
    Lessons(lessons::Args),
    /// Split lines of text into word pieces
    Tokenize(tokenize::Args),
    /// Train a WordPiece vocabulary from text
    Vocab(vocab::Args),
    /// Tokenise a large text once, for many runs of pretrain
    Prepare(prepare::Args),
    /// Pre-train a BERT on text: masked words and next sentences
    Pretrain(pretrain::Args),
    /// Train a smaller model that imitates a trained one
    Distill(distill::Args),
    /// Train a model for a task: GLUE, multiple choice, entities, your own data
    Finetune(Box<finetune::Args>),
    /// Measure a fine-tuned model on labelled data
    Evaluate(evaluate::Args),
    /// Answer with a fine-tuned model, in the format of the task's submissions
    Predict(predict::Args),
    /// Score a file of predictions as the official scripts do
    Score(score::Args),
    /// Compute vectors for lines of text: one a line, or one for each token
    Features(features::Args),
    /// Show a model's attention over a text or a pair: one page with three views
    Attention(attention::Args),
    /// Fill the [MASK]s in a text
    FillMask(fill_mask::Args),
    /// Print the probability that one text follows another
    Nsp(nsp::Args),
    /// Measure speed and estimate costs
    Bench(bench::Args),
    /// List data sets and download them
    Data(data::Args),
    /// Rewrite a model folder in the current Hugging Face layout, or as an ONNX file
    Convert(convert::Args),
    /// Send a model folder to the Hugging Face Hub
    Push(push::Args),
    /// Write the records of a run for MLflow
    Records(records::Args),
}
