//! Runs cargo for a session template, and reports its progress to the user who waits for the template.

use std::io::{BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::layout::cannot_run;
use super::process_group;

/// The receiver of reports while a session template is built: a notebook, the REPL, or a terminal.
pub trait Watch {
    /// Shows a line.
    fn say(&mut self, line: &str);
    /// Shows how far the template is, in place of the line that this has shown before.
    fn progress(&mut self, line: &str);
    /// Returns whether nobody waits any longer. It is called every [`INTERVAL`].
    fn is_over(&mut self) -> bool;
}

/// Why cargo has not done its work.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody waits any longer.
    Stopped,
    /// It failed with these messages.
    Failed(String),
}

pub const INTERVAL: Duration = Duration::from_millis(250);
/// The time between two reports where each takes a line of its own.
pub const LINE_INTERVAL: Duration = Duration::from_secs(20);
/// The shortest time between two reports.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);
/// Makes cargo count what it does, although its standard error is no terminal.
const SETTINGS: [(&str, &str); 4] = [
    ("CARGO_TERM_PROGRESS_WHEN", "always"),
    ("CARGO_TERM_PROGRESS_WIDTH", "120"),
    ("CARGO_TERM_COLOR", "never"),
    ("CARGO_TERM_QUIET", "false"),
];

/// Runs cargo to its end; reports count from `began`. If nobody waits any longer, it is killed with the compilers that
/// it has started.
pub fn run(mut cargo: Command, began: Instant, watch: &mut dyn Watch) -> Result<(), Failure> {
    // Ctrl-C in a terminal is for the session, which decides.
    cargo.envs(SETTINGS).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let failed = |error| Failure::Failed(cannot_run("cargo")(error).to_string());
    let mut child = cargo.spawn().map_err(failed)?;
    let (send, pieces) = mpsc::channel();
    if let Some(errors) = child.stderr.take() {
        std::thread::spawn(move || read(errors, &send));
    }
    let mut messages = Vec::new();
    let mut reported = None::<Instant>;
    loop {
        if watch.is_over() {
            process_group::kill(child.id());
            // It has been killed, so this does not take long.
            let _ = child.wait();
            return Err(Failure::Stopped);
        }
        let deadline = Instant::now() + INTERVAL;
        let mut last = None;
        // Cargo writes faster than anybody can read while it finds crates compiled.
        let ended = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match pieces.recv_timeout(left) {
                Ok(piece) => match progress(&piece) {
                    Some(found) => last = Some(found),
                    None if piece.trim().is_empty() => {}
                    None => messages.push(piece),
                },
                Err(RecvTimeoutError::Timeout) => break false,
                Err(RecvTimeoutError::Disconnected) => break true,
            }
        };
        if let Some(state) = last
            && reported.is_none_or(|at| at.elapsed() >= BETWEEN_REPORTS)
        {
            reported = Some(Instant::now());
            watch.progress(&since(began, &state));
        }
        if ended {
            break;
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::Failed(errors_of(&messages))),
    }
}

/// Sends what cargo writes, in pieces: each is a line, or a state of its progress bar, which ends in a carriage return.
fn read(errors: ChildStderr, pieces: &mpsc::Sender<String>) {
    let mut piece = Vec::new();
    // A program that cannot be read from has ended.
    for byte in BufReader::new(errors).bytes().map_while(Result::ok) {
        if byte != b'\n' && byte != b'\r' {
            piece.push(byte);
        } else if pieces.send(String::from_utf8_lossy(&piece).into_owned()).is_err() {
            return;
        } else {
            piece.clear();
        }
    }
    let _ = pieces.send(String::from_utf8_lossy(&piece).into_owned());
}

/// Returns what a state of cargo's progress says: `Downloading 9 crates, remaining bytes: 3.1MiB`, or
/// `Building [=>  ] 28/315: libc, serde_core`.
fn progress(piece: &str) -> Option<String> {
    let piece = piece.trim();
    if piece.starts_with("Downloading ") {
        return Some(piece.to_owned());
    }
    let (_, counts) = piece.strip_prefix("Building [")?.split_once("] ")?;
    let (count, names) = counts.split_once(':').unwrap_or((counts, ""));
    let (done, all) = count.split_once('/')?;
    let names = names.trim().trim_end_matches("...");
    Some(format!("Compiling: {done} of {all} steps done, now {names}"))
}

/// Returns the messages from the first error on.
fn errors_of(messages: &[String]) -> String {
    let first = messages.iter().position(|line| line.starts_with("error"));
    messages[first.unwrap_or(messages.len().saturating_sub(20))..].join("\n")
}

/// Returns a report with the minutes and seconds since `began`.
pub fn since(began: Instant, state: &str) -> String {
    let seconds = began.elapsed().as_secs();
    format!("{}:{:02} · {state}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Kept {
        states: Vec<String>,
        asked: u32,
        patience: u32,
    }

    impl Watch for Kept {
        fn say(&mut self, _: &str) {}
        fn progress(&mut self, line: &str) {
            self.states.push(line.to_owned());
        }
        fn is_over(&mut self) -> bool {
            self.asked += 1;
            self.asked > self.patience
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn states_of_the_progress_bar_are_reported_and_errors_returned() {
        let mut kept = Kept { patience: u32::MAX, ..Kept::default() };
        let script = "printf '   Compiling libc v0.2\\n    Building [=> ] 2/31: libc, syn...\\r' >&2; sleep 0.6;
            printf '    Building [==] 30/31: syn\\r\\033[Kwarning: odd\\nerror: no disk\\nwhy\\n' >&2; exit 3";
        let failed = run(shell(script), Instant::now(), &mut kept);
        assert_eq!(failed, Err(Failure::Failed("error: no disk\nwhy".to_owned())));
        assert_eq!(kept.states, ["0:00 · Compiling: 2 of 31 steps done, now libc, syn"]);
        assert_eq!(run(shell("exit 0"), Instant::now(), &mut kept), Ok(()));
    }

    #[test]
    fn what_cargo_has_started_is_killed_when_nobody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("late");
        let began = Instant::now();
        let mut kept = Kept { patience: 2, ..Kept::default() };
        let script = format!("(sleep 2; touch '{}') & wait", file.display());
        assert_eq!(run(shell(&script), began, &mut kept), Err(Failure::Stopped));
        assert!(began.elapsed() < Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(2500).saturating_sub(began.elapsed()));
        assert!(!file.exists());
    }

    #[test]
    fn only_counts_are_states() {
        for (piece, state) in [
            (
                "    Building [=>   ] 28/315: libc, serde_core...   ",
                Some("Compiling: 28 of 315 steps done, now libc, serde_core"),
            ),
            (
                " Downloading 9 crates, remaining bytes: 3.1MiB  ",
                Some("Downloading 9 crates, remaining bytes: 3.1MiB"),
            ),
            ("  Downloaded syn v2.0.119", None),
            ("   Compiling serde v1.0.229", None),
        ] {
            assert_eq!(progress(piece).as_deref(), state, "{piece}");
        }
    }
}
