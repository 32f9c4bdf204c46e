//! `cloze bench cells`: a notebook kernel's latencies, measured by the kernel's own binary.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command as Process;

use crate::error::{Error, Result};
use crate::files;

/// The kernel's binary, which has Jupyter's protocol that this one does without.
const KERNEL: &str = "cloze-kernel";

/// Runs the subcommand.
pub fn run(options: Vec<OsString>) -> Result<()> {
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
