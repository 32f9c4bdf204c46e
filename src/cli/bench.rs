//! `cloze bench`: measurements on this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command as Process;

use crate::error::{Error, Result};
use crate::files;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
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

/// The kernel's binary, which has Jupyter's protocol that this one does without.
const KERNEL: &str = "cloze-kernel";

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    let Command::Cells { options } = args.command;
    let kernel = kernel().ok_or_else(|| {
        Error::Failed(format!(
            "`{KERNEL}` is not there (looked beside this program, in Cloze's data folder and on \
             PATH): build it with `cargo build --workspace --bins`"
        ))
    })?;
    let status = Process::new(&kernel)
        .arg("bench-cells")
        .args(options)
        .status()
        .map_err(|error| Error::io(&kernel, error))?;
    if status.success() {
        return Ok(());
    }
    // It has said why; a process that a signal ended has no code.
    std::process::exit(status.code().unwrap_or(1));
}

fn kernel() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.and_then(|own| Some(own.parent()?.join(KERNEL)));
    let installed = files::data_folder().map(|folder| folder.join("bin").join(KERNEL));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(KERNEL));
    beside
        .into_iter()
        .chain(installed)
        .chain(on_path)
        .find(|candidate| candidate.is_file())
}
