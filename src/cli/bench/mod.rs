//! `cloze bench`: measurements on this machine, one file for each subject.

mod budget;
mod cells;
mod estimate;
mod kernels;
#[cfg(feature = "cuda")]
mod launches;
mod peer;
mod scale;
mod scaling;
#[cfg(feature = "cuda")]
mod selftest;
mod speed;

use std::ffi::OsString;

use crate::cli::shared::checks::refuse;
use crate::engine::timing::Pass;
use crate::error::Result;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    selftest: selftest::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Time training steps, and those of a peer
    Train(speed::Args),
    /// Time forward passes, and those of a peer
    Infer(speed::Args),
    /// Estimate what a pre-training run costs: tokens, days, device-hours, money
    Estimate(estimate::Args),
    /// List what a training step launches on a GPU, and how long that is expected to take; needs no GPU
    #[cfg(feature = "cuda")]
    Launches(launches::Args),
    /// Estimate how data-parallel training grows with the number of GPUs
    Scale(scale::Args),
    /// Time a notebook kernel's cells, or compare several kernels
    // The options are those of `cloze-bench-cells`, which answers `--help` too.
    #[command(disable_help_flag = true)]
    Cells {
        #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Some(Command::Train(args)) => speed::run(args, Pass::Train),
        Some(Command::Infer(args)) => speed::run(args, Pass::Infer),
        Some(Command::Estimate(args)) => estimate::run(args),
        #[cfg(feature = "cuda")]
        Some(Command::Launches(args)) => launches::run(args),
        Some(Command::Scale(args)) => scale::run(args),
        Some(Command::Cells { options }) => cells::run(options),
        #[cfg(feature = "cuda")]
        None if args.selftest.asked() => selftest::run(args.selftest),
        None => {
            refuse!("expected train, infer, estimate, launches, scale, cells, or --gpu-selftest")
        }
    }
}
