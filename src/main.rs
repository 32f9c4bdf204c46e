//! The `cloze` command.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cloze::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
