//! Driving the built `cloze` command as a user would.

// Every file of tests is a program of its own and uses only some of this.
#![allow(dead_code)]

pub mod pretraining;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

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

/// A tiny model that has hardly been trained, with a vocabulary of its own.
pub fn tiny() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let out = text(folder.path());
            succeeds(&["pretrain", "--out", out, "--steps", "20", "--json"]);
            folder
        })
        .path()
}

/// Makes a model folder one whose files belong together, after one of them was changed.
pub fn accept_changes(folder: &Path) {
    let other = tempfile::tempdir().unwrap();
    let (from, to) = (text(folder), text(other.path()));
    succeeds(&["convert", "--accept-changes", from, to]);
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(other.path().join(file), folder.join(file)).unwrap();
    }
}

/// Real data and a real model, where they are.
pub fn real() -> Option<(PathBuf, PathBuf)> {
    let (Some(data), Some(model)) = (
        std::env::var_os("CLOZE_TEST_DATA"),
        std::env::var_os("CLOZE_TEST_MINILM"),
    ) else {
        println!("CLOZE_TEST_DATA or CLOZE_TEST_MINILM is not set: nothing was trained");
        return None;
    };
    Some((PathBuf::from(data), PathBuf::from(model)))
}

/// Waits until `condition` holds.
pub fn wait_for(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(240),
            "waited for too long"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A run that is to be stopped.
pub fn started(args: &[&str]) -> Child {
    let mut command = cloze();
    command
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Sends a signal, such as `-INT`.
pub fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([name, &id]).status();
    assert!(sent.unwrap().success());
}

/// A folder for what a test writes and what the command makes of it.
pub struct Folder(pub tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }
}
