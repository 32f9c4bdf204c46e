//! A peer: another program that does the same work and reports its speed.

use std::process::Command;

use serde_json::Value;

use crate::cli::shared::checks::refuse;
use crate::error::{Error, Result};

/// One measured run.
pub(crate) struct Measured {
    pub(crate) tokens_per_s: f64,
    /// Peak memory of the device that computes.
    pub(crate) peak_bytes: Option<u64>,
}

/// Runs a peer once; `command` is the program and its arguments, separated by spaces, and `work` the options for the
/// work.
pub(crate) fn run(command: &str, work: &[(&str, String)]) -> Result<Measured> {
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else {
        refuse!("--peer is empty: expected a program");
    };
    let output = Command::new(program)
        .args(words)
        .args(work.iter().flat_map(|(name, value)| [name, value.as_str()]))
        .args(["--threads", &rayon::current_num_threads().to_string()])
        .output()
        .map_err(|e| Error::io(program, e))?;
    let failed = |what: &str| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or_default();
        Error::Failed(format!("the peer {:?} {what}: {last}", command))
    };
    if !output.status.success() {
        return Err(failed("failed"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().rev();
    let object: Option<Value> = lines.find_map(|line| serde_json::from_str(line).ok());
    let number = |key: &str| object.as_ref()?.get(key)?.as_f64();
    Ok(Measured {
        tokens_per_s: number("tokens_per_s")
            .ok_or_else(|| failed("printed no JSON object with tokens_per_s"))?,
        peak_bytes: number("peak_GiB").map(|gibibytes| (gibibytes * 1.073_741_824e9) as u64),
    })
}
