//! The `cloze` command.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cloze::cli::Cli::parse().run()
}
