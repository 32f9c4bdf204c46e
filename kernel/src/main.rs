//! `cloze-kernel`: Cloze's notebook kernel and its REPL, with their installation.

mod install;
mod jupyter;
mod lab;
mod mutex;
mod paths;
mod repl;
mod session;
mod spare;
mod system;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cloze::{Error, Result};

use session::SessionFolder;

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
    /// Build the lessons and open them in JupyterLab; installs what is missing.
    Lab(lab::Options),
    /// Run Rust cells in the terminal, or from a script: a file, standard input, `-e CODE`.
    Repl(repl::Options),
    /// Install the kernel for Jupyter, with everything that its sessions need.
    Install {
        /// Install below this folder instead of in your home folder.
        #[arg(long, value_name = "P")]
        prefix: Option<PathBuf>,
        /// Install for all users of this machine, below /usr/local if no other folder is given.
        #[arg(long)]
        system: bool,
    },
    /// Remove the kernel from Jupyter, with everything that was built for it.
    Uninstall {
        /// The folder that was given to `install`.
        #[arg(long, value_name = "P")]
        prefix: Option<PathBuf>,
        /// Remove what `install --system` has made.
        #[arg(long)]
        system: bool,
    },
    /// Warm a session up and wait for the next kernel (kernels and `lab` do this).
    #[command(hide = true)]
    Spare,
    /// Time the cells of installed kernels, like `cloze bench cells`.
    #[command(hide = true, disable_help_flag = true)]
    BenchCells {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    if let Some(code) = session::cargo::run_if_cargo() {
        return code;
    }
    // Both may turn this process into something else, so they come first.
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
        Command::BenchCells { options } => {
            let program = paths::this_program()?.with_file_name("cloze-bench-cells");
            let error = std::process::Command::new(&program).args(options).exec();
            Err(Error::io(program, error))
        }
        Command::Install { prefix, system: true } => system::install(prefix.as_deref()),
        Command::Install { prefix, system: false } => install::install(prefix.as_deref()),
        Command::Uninstall { prefix, system: true } => system::uninstall(prefix.as_deref()),
        Command::Uninstall { prefix, system: false } => install::uninstall(prefix.as_deref()),
        Command::Spare => {
            let keeper = spare::Keeper::prepare();
            // SAFETY: `main` has started no thread.
            let folder = unsafe { SessionFolder::reserve() }?;
            match spare::stand_by(&keeper, folder)? {
                Some((session, link, file)) => jupyter::run_spare(&file, session, link, keeper),
                None => Ok(()),
            }
        }
    }
}
