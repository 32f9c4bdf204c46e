//! A process that runs one section of the self-test and says line by line what it finds.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::engine::cuda::device::Device;
use crate::engine::cuda::emulated::Emulated;
use crate::engine::cuda::selftest::{self, Ended, Scale, Section, Session};
use crate::error::{Error, Result};

use super::Args;
use super::report::Entry;

fn open(emulate: bool) -> Result<Box<dyn Device>> {
    match emulate {
        true => Ok(Box::new(Emulated::new()?)),
        false => crate::engine::cuda::open(),
    }
}

/// Fails where there is no device to test. A GPU is not opened: that is the workers' work.
pub fn available(emulate: bool) -> Result<()> {
    if emulate {
        Emulated::new()?;
    } else {
        crate::engine::cuda::driver::probe()?;
    }
    Ok(())
}

/// Runs a section in this process: a line on stdout when a check begins and one when it ends.
pub fn serve(section: Section, scale: Scale, emulate: bool, skip: usize) -> Result<()> {
    let opened = || open(emulate);
    let mut session = Session::new(&opened, scale);
    let checks = selftest::checks(section, scale, emulate);
    let mut out = std::io::stdout().lock();
    let mut broken = None;
    let ended = selftest::run(
        checks.get(skip..).unwrap_or_default(),
        &mut session,
        &mut |name, told| {
            let line = match told {
                None => json!({"begins": name}),
                Some(told) => json!({
                    "check": name,
                    "passed": told.passed,
                    "told": told.line,
                    "data": told.data,
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
        Ended::Lost => Err(Error::Failed("the device answers no more".into())),
    }
}

/// What came of a worker's next word.
pub enum Heard {
    Told(Entry),
    /// It ended, and why.
    Ended(String),
    /// It said nothing for too long.
    Silence,
    /// The section's time is over.
    Late,
}

/// Lines of a worker's stderr that are kept.
const LAST_WORDS: usize = 6;

/// A running worker.
pub struct Worker {
    section: Section,
    child: Child,
    lines: Receiver<String>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    /// Whether a check began that has not been told.
    busy: bool,
    spoke: bool,
}

impl Worker {
    pub fn start(section: Section, args: &Args, skip: usize) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| Error::io("<this program>", e))?;
        let mut command = Command::new(&program);
        command
            .args(["bench", "--gpu-selftest", "--worker", section.name()])
            .args(["--skip", &skip.to_string()]);
        if args.emulate {
            command.arg("--emulate");
        }
        if args.short {
            command.arg("--short");
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
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stderr) = child.stderr.take() {
            let into = last_words.clone();
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(|line| line.ok()) {
                    let mut words = into.lock().unwrap_or_else(PoisonError::into_inner);
                    words.push_back(line);
                    if words.len() > LAST_WORDS {
                        words.pop_front();
                    }
                }
            });
        }
        Ok(Self {
            section,
            child,
            lines,
            last_words,
            busy: false,
            spoke: false,
        })
    }

    /// The next thing that it tells.
    pub fn hear(&mut self, patience: Duration, deadline: Option<Instant>) -> Heard {
        let mut until = Instant::now() + patience;
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Heard::Late;
            }
            if now >= until {
                return Heard::Silence;
            }
            let next = deadline.map_or(until, |deadline| deadline.min(until));
            match self.lines.recv_timeout(next - now) {
                Ok(line) => match self.understood(&line) {
                    Some(entry) => return Heard::Told(entry),
                    // A check has begun: its time counts from now on.
                    None => until = Instant::now() + patience,
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Heard::Ended(self.why()),
            }
        }
    }

    fn understood(&mut self, line: &str) -> Option<Entry> {
        let mut object: Value = serde_json::from_str(line).ok()?;
        self.spoke = true;
        self.busy = object.get("begins").is_some();
        let name = object.get("check")?.as_str()?.to_owned();
        Some(Entry {
            section: self.section,
            name,
            passed: Some(object.get("passed")?.as_bool()?),
            line: object.get("told")?.as_str()?.to_owned(),
            data: object.get_mut("data")?.take(),
        })
    }

    /// How the process ended.
    fn why(&mut self) -> String {
        let how = match self.wait() {
            Some(status) => status.to_string(),
            None => "it said no more".to_owned(),
        };
        // What it said last may still be on its way.
        thread::sleep(Duration::from_millis(50));
        let words = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        format!("its process ended ({how}): {}", words.join(" | "))
    }

    /// Whether the last check that began has been told. A worker that ends so has lost the device,
    /// and said so with that check.
    pub fn is_between_checks(&self) -> bool {
        self.spoke && !self.busy
    }

    /// Whether anything at all came of it.
    pub fn spoke(&self) -> bool {
        self.spoke
    }

    /// Waits until it has ended, but not for long: what a driver holds may never end.
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

    /// Ends it where it still runs.
    pub fn end(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait();
    }
}
