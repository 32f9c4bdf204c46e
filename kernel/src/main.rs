//! `cloze-kernel`: Cloze's notebook kernel, its REPL, and the way to both.

mod jupyter;
mod paths;
mod session;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cloze::Result;

use session::{SessionFolder, Template};

/// Rust cells with Cloze's tensors: notebooks, a REPL, lessons.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a Jupyter front end (Jupyter itself runs this).
    Jupyter {
        /// The connection file that the front end has written.
        connection_file: PathBuf,
    },
    /// Build what every session shares (`install` and `lab` do this).
    #[command(hide = true)]
    BuildTemplate,
}

fn main() -> ExitCode {
    // Both may turn this process into something else and must come before everything.
    session::child::run_if_child();
    evcxr::runtime_hook();

    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cloze-kernel: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Jupyter { connection_file } => {
            // SAFETY: `main` has started no thread.
            let folder = unsafe { SessionFolder::reserve() }?;
            jupyter::run(&connection_file, folder)
        }
        Command::BuildTemplate => Template::build(|workshop| {
            // SAFETY: `main` has started no thread.
            unsafe { session::point_evcxr_at(&workshop.folder) };
            session::fill_template(workshop)
        }),
    }
}
