//! `cloze bench`: measurements on this machine, with a file for each subject.

mod budget;
mod cells;
mod estimate;
mod peer;
#[cfg(feature = "cuda")]
mod selftest;
mod speed;

use std::ffi::OsString;

use crate::engine::timing::Pass;
use crate::error::{Error, Result};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Args {
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    selftest: selftest::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Time training steps, with a peer's beside them if one is given
    Train(speed::Args),
    /// Time forward passes, with a peer's beside them if one is given
    Infer(speed::Args),
    /// Estimate the cost of a pre-training run: tokens, days, device-hours, money
    Estimate(estimate::Args),
    /// Time the cells of a notebook kernel, or of several kernels beside each other
    // The options are those of `cloze-bench-cells`, which answers `--help` too.
    #[command(disable_help_flag = true)]
    Cells {
        #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Some(Command::Train(args)) => speed::run(args, Pass::Train),
        Some(Command::Infer(args)) => speed::run(args, Pass::Infer),
        Some(Command::Estimate(args)) => estimate::run(args),
        Some(Command::Cells { options }) => cells::run(options),
        #[cfg(feature = "cuda")]
        None if args.selftest.asked() => selftest::run(args.selftest),
        None => {
            Err(Error::Usage("expected train, infer, estimate, cells, or --gpu-selftest".into()))
        }
    }
}
