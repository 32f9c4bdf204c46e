//! A process that runs one section of the self-test and reports each check as a line of JSON.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::engine::cuda::device::Device;
use crate::engine::cuda::selftest::{self, Ended, Section, Session};
use crate::engine::cuda::{self, driver};
use crate::error::{Error, Result};

use super::Args;
use super::report::Entry;

/// Opens the tested device; with `wait`, one that waits after each launch.
fn open(emulate: bool, wait: bool) -> Result<Box<dyn Device>> {
    let device = match emulate {
        true => cuda::open_emulated()?,
        false => cuda::open()?,
    };
    Ok(if wait { cuda::waiting(device) } else { device })
}

/// Returns an error if there is no device to test. Leaves opening a GPU to the workers.
pub fn available(emulate: bool) -> Result<()> {
    if emulate {
        cuda::open_emulated()?;
    } else {
        driver::probe()?;
    }
    Ok(())
}

/// Runs a section in this process; prints a line when a check begins and one when it ends.
pub fn serve(section: Section, args: &Args) -> Result<()> {
    let opened = || open(args.emulate, args.wait);
    let mut session = Session::new(&opened, args.scale());
    let mut checks = args.checks(section);
    if args.wait {
        checks.truncate(args.skip + 1);
    }
    let mut out = std::io::stdout().lock();
    let mut broken = None;
    let ended = selftest::run(
        checks.get(args.skip..).unwrap_or_default(),
        &mut session,
        &mut |name, outcome| {
            let line = match outcome {
                None => json!({"begins": name}),
                Some(outcome) => json!({
                    "check": name,
                    "passed": outcome.passed,
                    "line": outcome.line,
                    "data": outcome.data,
                    "lost": outcome.lost,
                }),
            };
            let written = writeln!(out, "{line}").and_then(|()| out.flush());
            broken = broken.take().or(written.err());
        },
    );
    if let Some(error) = broken {
        return Err(Error::io("<stdout>", error));
    }
    match ended {
        Ended::Whole => Ok(()),
        Ended::Lost => Err(Error::Failed("the device no longer responds".into())),
    }
}

/// The next event of a worker.
pub enum Event {
    Checked(Entry),
    /// The worker ended, for this reason.
    Ended(String),
    /// The worker printed nothing for too long.
    Timeout,
    /// The section's time is over.
    Deadline,
}

/// Number of last lines of a worker's stderr for its error.
const LAST_LINES: usize = 6;

/// A running worker.
pub struct Worker {
    section: Section,
    child: Child,
    lines: Receiver<String>,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    /// Whether a check began that has not ended.
    busy: bool,
    /// Whether anything was printed.
    started: bool,
}

impl Worker {
    pub fn start(section: Section, args: &Args, skip: usize, wait: bool) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| Error::io("<this program>", e))?;
        let mut command = Command::new(&program);
        #[cfg(not(test))]
        command
            .args(["bench", "--gpu-selftest", "--worker", section.name()])
            .args(["--skip", &skip.to_string()]);
        // In unit tests this program is the test harness, which runs one test.
        #[cfg(test)]
        command
            .args(super::tests::WORKER)
            .env(super::tests::VARIABLE, super::tests::variable(section, skip, wait, args));
        #[cfg(not(test))]
        for (given, option) in
            [(args.emulate, "--emulate"), (args.short, "--short"), (wait, "--wait")]
        {
            command.args(given.then_some(option));
        }
        #[cfg(not(test))]
        if let Some(text) = &args.matching {
            command.args(["--match", text]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Error::io(&program, e))?;
        let (send, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let last_lines = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stderr) = child.stderr.take() {
            let into = last_lines.clone();
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(|line| line.ok()) {
                    let mut lines = into.lock().unwrap_or_else(PoisonError::into_inner);
                    lines.push_back(line);
                    if lines.len() > LAST_LINES {
                        lines.pop_front();
                    }
                }
            });
        }
        Ok(Self { section, child, lines, last_lines, busy: false, started: false })
    }

    /// Waits for the next event; a check may take `timeout`.
    pub fn next(&mut self, timeout: Duration, deadline: Option<Instant>) -> Event {
        let mut until = Instant::now() + timeout;
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Event::Deadline;
            }
            if now >= until {
                return Event::Timeout;
            }
            let next = deadline.map_or(until, |deadline| deadline.min(until));
            match self.lines.recv_timeout(next - now) {
                Ok(line) => match self.parse(&line) {
                    Some(entry) => return Event::Checked(entry),
                    // A check has begun: its time counts from now on.
                    None => until = Instant::now() + timeout,
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Event::Ended(self.why()),
            }
        }
    }

    fn parse(&mut self, line: &str) -> Option<Entry> {
        let mut object: Value = serde_json::from_str(line).ok()?;
        self.started = true;
        self.busy = object.get("begins").is_some();
        let name = object.get("check")?.as_str()?.to_owned();
        Some(Entry {
            section: self.section,
            name,
            passed: Some(object.get("passed")?.as_bool()?),
            line: object.get("line")?.as_str()?.to_owned(),
            lost: object.get("lost")?.as_bool()?,
            data: object.get_mut("data")?.take(),
        })
    }

    /// Describes how the process ended.
    fn why(&mut self) -> String {
        let how = match self.wait() {
            Some(status) => status.to_string(),
            None => "it still runs".to_owned(),
        };
        format!("its process ended ({how}): {}", self.last_lines())
    }

    /// Returns the last lines of its stderr.
    pub fn last_lines(&self) -> String {
        // They may still be in the pipe.
        thread::sleep(Duration::from_millis(50));
        let lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.join(" | ")
    }

    /// Returns whether the last check that began has ended. A worker that ends here has lost the
    /// device, and reported it with that check.
    pub fn is_between_checks(&self) -> bool {
        self.started && !self.busy
    }

    /// Returns whether the worker printed anything.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Waits for the process to end, but not long: it may hang in the driver.
    fn wait(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + Duration::from_secs(15);
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        None
    }

    /// Ends the process if it still runs.
    pub fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait();
    }

    /// Ends the process for good.
    pub fn end(mut self) {
        self.stop();
    }
}
