//! `cloze bench cells`: measures a notebook kernel's latencies with a separate program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command as Process;

use crate::error::{Error, Result};

/// The program; it depends on Jupyter's protocol (see `benches/cells`).
const PROGRAM: &str = "cloze-bench-cells";

pub(crate) fn run(options: Vec<OsString>) -> Result<()> {
    let program = program().ok_or_else(|| {
        Error::Failed(format!(
            "`{PROGRAM}` is neither beside this program nor on PATH: build it with `cargo build \
             --workspace --bins`"
        ))
    })?;
    let status = Process::new(&program)
        .args(options)
        .status()
        .map_err(|error| Error::io(&program, error))?;
    if status.success() {
        return Ok(());
    }
    // The program has printed the reason. It has no exit code if a signal ended it.
    std::process::exit(status.code().unwrap_or(1));
}

fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.to_path_buf()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = beside.into_iter().chain(std::env::split_paths(&path));
    folders.find_map(|folder| Some(folder.join(PROGRAM)).filter(|program| program.is_file()))
}
