//! `cloze bench`: measurements on this machine, one file a subject.

mod cells;
mod estimate;
mod peer;
mod speed;

use std::ffi::OsString;

use crate::error::Result;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Time training steps, or those of a peer beside them
    Train(speed::Args),
    /// Time forward passes, or those of a peer beside them
    Infer(speed::Args),
    /// Tell what a pre-training run costs: tokens, days, device-hours, money
    Estimate(estimate::Args),
    /// Time a notebook kernel's cells, or those of several kernels beside each other
    // The options are those of `cloze-kernel`, which answers `--help` too.
    #[command(disable_help_flag = true)]
    Cells {
        #[arg(
            value_name = "OPTIONS",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        options: Vec<OsString>,
    },
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Train(args) => speed::run(args, speed::Pass::Train),
        Command::Infer(args) => speed::run(args, speed::Pass::Infer),
        Command::Estimate(args) => estimate::run(args),
        Command::Cells { options } => cells::run(options),
    }
}
