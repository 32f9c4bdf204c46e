//! Driving the built `cloze` command as a user would.

// Every test program uses only some of this.
#![allow(dead_code)]

pub mod pretraining;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Returns the command, ready for arguments.
pub fn cloze() -> Command {
    Command::new(env!("CARGO_BIN_EXE_cloze"))
}

/// Splits a command line into its words. No path in a test contains a space.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> (Command, Output) {
    let mut command = cloze();
    let output = command.args(args).output().unwrap();
    (command, output)
}

/// Runs `cloze` and expects success.
pub fn succeeds<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    let (command, output) = run(args);
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    output
}

/// Runs `cloze`, expects this exit code, and returns the last line of stderr.
pub fn fails<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>, code: i32) -> String {
    error_line(&run(args).1, code)
}

/// Returns the last line of stderr of a run that ended with this exit code.
pub fn error_line(output: &Output, code: i32) -> String {
    let all = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{all}");
    assert!(!all.contains("panicked"), "{all}");
    all.lines().last().unwrap_or_default().to_owned()
}

/// Runs `cloze` with this standard input.
pub fn piped<A: AsRef<OsStr>>(
    args: impl IntoIterator<Item = A>,
    input: impl AsRef<[u8]> + Send,
) -> Output {
    let mut command = cloze();
    command.args(args).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A command that refuses its arguments ends without reading.
        scope.spawn(move || stdin.write_all(input.as_ref()).is_ok());
        child.wait_with_output().unwrap()
    })
}

/// Fails with the whole text if it lacks `part`.
#[track_caller]
pub fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is missing in {text}");
}

/// Parses what a run printed on stdout as JSON.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Reads a JSON file.
pub fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns what a run printed on stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns what a run wrote on stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a path as text: paths in tests are plain ASCII.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns a file or folder of `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Returns a JSON list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap().iter();
    list.map(|number| number.as_f64().unwrap()).collect()
}

/// Fails if a value differs from the expected one by more than `tolerance`, relative to values above 1.
pub fn close(what: &str, values: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(values.len(), expected.len(), "{what}");
    for (i, (&value, expected)) in values.iter().zip(expected).enumerate() {
        let error = (f64::from(value) - expected).abs() / expected.abs().max(1.0);
        assert!(error < tolerance, "{what} [{i}]: {value}, expected {expected}");
    }
}

/// Returns the folder of a tiny model with its own vocabulary, trained for 20 steps.
pub fn tiny() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let out = text(folder.path());
            succeeds(["pretrain", "--out", out, "--steps", "20", "--json"]);
            folder
        })
        .path()
}

/// Stores new checksums in a model folder of which a file was changed.
pub fn accept_changes(folder: &Path) {
    let other = tempfile::tempdir().unwrap();
    let (from, to) = (text(folder), text(other.path()));
    succeeds(["convert", "--accept-changes", from, to]);
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(other.path().join(file), folder.join(file)).unwrap();
    }
}

/// Copies the files of a folder into one that a test may change.
pub fn copy_of(folder: &Path) -> Folder {
    let copy = Folder::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let from = entry.unwrap().path();
        if from.is_file() {
            std::fs::copy(&from, copy.path(text(Path::new(from.file_name().unwrap())))).unwrap();
        }
    }
    copy
}

/// Returns the folder of real data, if there is one; otherwise the test that needs it tests nothing.
pub fn real_data() -> Option<PathBuf> {
    real("CLOZE_TEST_DATA")
}

/// Returns the folders of real data and of a real model, as [`real_data`] does.
pub fn real_data_and_model() -> Option<(PathBuf, PathBuf)> {
    Some((real_data()?, real("CLOZE_TEST_MINILM")?))
}

/// Returns the published forward pass of all-MiniLM-L6-v2 and the folder of that model.
pub fn real_minilm() -> Option<(Value, PathBuf)> {
    let (data, model) = real_data_and_model()?;
    let file = std::fs::File::open(data.join("golden/minilm-l6-v2-forward.json.gz")).unwrap();
    let golden = serde_json::from_reader(flate2::read::GzDecoder::new(file));
    Some((golden.unwrap(), model))
}

fn real(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    if folder.is_none() {
        println!("{variable} is not set: nothing was tested");
    }
    folder
}

/// Waits until `condition` holds.
pub fn wait_for(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(240), "waited for too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a run that will be stopped.
pub fn started<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Child {
    let mut command = cloze();
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Sends a signal, such as `-INT`.
pub fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([name, &id]).status();
    assert!(sent.unwrap().success());
}

/// Starts a run, interrupts it as soon as `condition` holds, and expects it to end well.
pub fn interrupted<A: AsRef<OsStr>>(
    args: impl IntoIterator<Item = A>,
    condition: impl Fn() -> bool,
) -> Output {
    let child = started(args);
    wait_for(condition);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Starts a run and kills it as soon as `condition` holds.
pub fn killed<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>, condition: impl Fn() -> bool) {
    let mut child = started(args);
    wait_for(condition);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A folder for the files of a test and of the commands that it runs.
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

    /// Returns the arguments that fine-tune [`tiny`] on this folder's files into its folder `out`, in place of an
    /// earlier run unless `--resume` is given.
    pub fn finetune(&self, task: &str, more: &[&str]) -> Vec<String> {
        let mut args = self.finetune_into("out", task, more);
        if !more.contains(&"--resume") {
            args.push("--overwrite".to_owned());
        }
        args
    }

    /// Returns the arguments that fine-tune [`tiny`] on this folder's files, with a learning rate for so small a
    /// model if `more` has none.
    pub fn finetune_into(&self, out: &str, task: &str, more: &[&str]) -> Vec<String> {
        let (data, out) = (self.0.path(), self.path(out));
        let mut args = vec!["finetune", task, "--data", text(data), "--out", text(&out)];
        args.push("--json");
        if !more.contains(&"--model") {
            args.extend(["--model", text(tiny())]);
        }
        if !more.iter().any(|arg| arg.starts_with("--lr")) {
            args.extend(["--lr", "1e-3"]);
        }
        args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
    }

    /// Fine-tunes as [`Self::finetune`] says and returns the printed JSON.
    pub fn finetuned(&self, task: &str, more: &[&str]) -> Value {
        json(&succeeds(self.finetune(task, more)))
    }

    /// Returns the arguments of `evaluate` or `predict` with the model in `out` and a file of this folder.
    pub fn ask(&self, command: &str, task: &str, file: &str, more: &[&str]) -> Vec<String> {
        let (out, file) = (self.path("out"), self.path(file));
        let input = ["--data", "--input"][usize::from(command == "predict")];
        let args = [command, task, "--model", text(&out), input, text(&file)];
        args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
    }

    /// Returns the scores of the model in `out` on a file of this folder.
    pub fn evaluated(&self, task: &str, file: &str, more: &[&str]) -> Value {
        let more = [more, &["--json"]].concat();
        json(&succeeds(self.ask("evaluate", task, file, &more)))["dev"].clone()
    }

    /// Returns what the model in `out` predicts for a file of this folder.
    pub fn predicted(&self, task: &str, file: &str, more: &[&str]) -> String {
        stdout(&succeeds(self.ask("predict", task, file, more)))
    }

    /// Returns the configuration of the model in `out`.
    pub fn config(&self) -> Value {
        read_json(&self.path("out/config.json"))
    }
}
