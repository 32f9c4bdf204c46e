//! `cloze-kernel`: Cloze's notebook kernel, its REPL, and the way to both.

mod bench;
mod install;
mod jupyter;
mod lab;
mod mutex;
mod paths;
mod repl;
mod session;
mod spare;

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
    /// Build the lessons and open them in JupyterLab; gets what is missing.
    Lab(lab::Options),
    /// Rust cells in the terminal, or from a script: a file, standard input, `-e CODE`.
    Repl(repl::Options),
    /// Make the kernel known to Jupyter, with all that its sessions need.
    Install {
        /// Install below this folder instead of in your home folder.
        #[arg(long, value_name = "P")]
        prefix: Option<PathBuf>,
    },
    /// Remove the kernel from Jupyter, with all that was built for it.
    Uninstall {
        /// The folder that was given to `install`.
        #[arg(long, value_name = "P")]
        prefix: Option<PathBuf>,
    },
    /// Warm a session up and wait for the next kernel (kernels and `lab` do this).
    #[command(hide = true)]
    Spare,
    /// Time the cells of installed kernels (`cloze bench cells` runs this).
    #[command(hide = true)]
    BenchCells(bench::Options),
    /// Build what every session shares (`install` and `lab` do this).
    #[command(hide = true)]
    BuildTemplate,
}

fn main() -> ExitCode {
    if let Some(code) = session::cargo::run_if_cargo() {
        return code;
    }
    // Both may turn this process into something else and must come before everything.
    session::child::run_if_child();
    evcxr::runtime_hook();

    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cloze::note!("cloze-kernel: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Jupyter { connection_file } => {
            let connection = jupyter::connection::read(&connection_file)?;
            if spare::hand_over(&connection_file)? {
                return Ok(());
            }
            let keeper = spare::Keeper::prepare();
            // SAFETY: `main` has started no thread.
            let folder = unsafe { SessionFolder::reserve() }?;
            jupyter::run(&connection, folder, keeper)
        }
        Command::Lab(options) => lab::run(options),
        Command::Repl(options) => {
            // SAFETY: `main` has started no thread.
            let folder = unsafe { SessionFolder::reserve() }?;
            repl::run(&options, folder)
        }
        Command::BenchCells(options) => bench::run(&options),
        Command::Install { prefix } => install::install(prefix.as_deref()),
        Command::Uninstall { prefix } => install::uninstall(prefix.as_deref()),
        Command::Spare => {
            let keeper = spare::Keeper::prepare();
            // SAFETY: `main` has started no thread.
            let folder = unsafe { SessionFolder::reserve() }?;
            spare::stand_by(keeper, folder)
        }
        Command::BuildTemplate => Template::build(|workshop| {
            // SAFETY: `main` has started no thread.
            unsafe { session::point_evcxr_at(&workshop.folder) };
            session::fill_template(workshop)
        }),
    }
}
