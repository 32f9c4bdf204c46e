//! `cloze bench cells`: measures a notebook kernel's latencies with a separate program.

use std::ffi::OsString;
use std::process::Command as Process;

use crate::cli::shared::programs;
use crate::error::{Error, Result};

/// The program; it depends on Jupyter's protocol (see `benches/cells`).
const PROGRAM: &str = "cloze-bench-cells";

pub(crate) fn run(options: Vec<OsString>) -> Result<()> {
    let program = programs::find(PROGRAM)?;
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
