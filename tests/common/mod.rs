//! Driving the built `cloze` command as a user would.

// Not every test needs every helper.
#![allow(dead_code)]

use std::path::Path;
use std::process::{Command, Output};

/// The command, ready for arguments.
pub fn cloze() -> Command {
    Command::new(env!("CARGO_BIN_EXE_cloze"))
}

/// Runs `cloze` and expects success.
pub fn succeeds(args: &[&str]) -> Output {
    let output = cloze().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    output
}

/// Runs `cloze`, expects this exit code, and gives the last line of stderr.
pub fn fails(args: &[&str], code: i32) -> String {
    sentence(&cloze().args(args).output().unwrap(), code)
}

/// The sentence that a run failed with: the last line of stderr, after this exit code.
pub fn sentence(output: &Output, code: i32) -> String {
    let all = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{all}");
    assert!(!all.contains("panicked"), "{all}");
    all.lines().last().unwrap_or_default().to_owned()
}

/// What a run printed on stdout, as JSON.
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a run wrote on stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Paths in tests are plain ASCII.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
