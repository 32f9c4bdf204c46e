//! A peer: another program that does the same work and reports its speed.

use std::process::Command;

use serde_json::Value;

use crate::error::{Error, Result};

/// One measured run.
pub(crate) struct Measured {
    pub(crate) tokens_per_s: f64,
    /// Peak memory of the device that computes.
    pub(crate) peak_bytes: Option<u64>,
}

/// The program and its work.
pub(crate) struct Peer<'a> {
    /// Program and arguments, separated by spaces.
    pub(crate) command: &'a str,
    pub(crate) size: &'a str,
    pub(crate) dtype: String,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
}

impl Peer<'_> {
    /// Runs the program once.
    pub(crate) fn run(&self) -> Result<Measured> {
        let mut words = self.command.split_whitespace();
        let program = words
            .next()
            .ok_or_else(|| Error::Usage("--peer is empty: expected a program".into()))?;
        let output = Command::new(program)
            .args(words)
            .args(["--size", self.size, "--dtype", &self.dtype])
            .args(["--batch", &self.batch.to_string()])
            .args(["--seq", &self.seq.to_string()])
            .args(["--threads", &rayon::current_num_threads().to_string()])
            .output()
            .map_err(|e| Error::io(program, e))?;
        let failed = |what: &str| {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or_default();
            Error::Failed(format!("the peer {:?} {what}: {last}", self.command))
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
}
