//! One session of cells: the common part of the notebook kernel and the REPL.
//!
//! A [`Session`] owns a thread with evcxr's context, which compiles cells and keeps track of
//! variables, and through it a child process in which cells run. It answers requests in order;
//! output comes while a cell runs, through the [`Sink`] given with it. Requests made before the
//! session is warm wait for it.

pub mod cargo;
pub mod channel;
pub mod child;
mod commands;
pub mod completeness;
pub mod completion;
mod course;
mod crash;
mod definitions;
mod documentation;
mod errors;
mod evaluator;
mod excerpt;
mod explain;
mod folder;
mod inbox;
mod inherited;
mod input;
mod inspection;
mod kill_timeout;
pub mod layout;
mod library;
mod linker;
mod markers;
mod outline;
mod own_types;
mod process_group;
mod rewrite;
mod rustc;
mod serve;
mod shell;
mod signature;
mod source;
mod sources;
mod stream;
pub mod template;
mod tree;
mod types;
mod usage;
mod visible;
mod watch;

use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use cloze::display::Content;
use cloze::display::wire::Comm;
use tokio::sync::oneshot;

pub use commands::is_review;
pub use completion::Completions;
pub use excerpt::without_colours;
pub use folder::{CHANGED_VARIABLES, SessionFolder};
pub use source::{call_of_main, command_lines, syntax_error};
pub use template::Template;
pub use watch::{LINE_INTERVAL, Watch};

use channel::Monitor;
use evaluator::Evaluator;
use excerpt::{BOLD, OFF, RED};
use inbox::Inbox;
use kill_timeout::Waits;

use crate::mutex::lock;

/// The two output streams of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// What a cell shows while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Printed text, not necessarily whole lines.
    Stream { stream: Stream, text: String },
    /// A display, with an id if it will be updated.
    Display { content: Content, id: Option<String> },
    /// Replaces the displays with that id.
    Update { content: Content, id: String },
    /// The value of the cell's last expression.
    Result(Content),
    /// Clears the cell's output; with `wait`, when the next output comes.
    Clear { wait: bool },
    /// The cell waits for a line on its standard input: see [`Session::give_input`].
    Input { prompt: String },
    /// A message of a widget to the page; the page answers with [`Session::comm`].
    Comm(Comm),
}

/// Takes a cell's events in order, on several threads; it must not block.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Why a cell failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellError {
    /// The kind in one word: `error[E0308]`, `panic`, `interrupted`, …
    pub name: String,
    /// The message in a sentence.
    pub value: String,
    /// Lines to show, with ANSI colours, the message among them.
    pub traceback: Vec<String>,
}

impl CellError {
    /// Returns an error that consists of one sentence.
    pub fn new(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_owned(),
            traceback: vec![format!("{RED}{name}{OFF}{BOLD}: {value}{OFF}")],
        }
    }

    /// The error of a cell that stopped at a poll.
    pub fn interrupted() -> Self {
        Self::new("interrupted", "the cell was stopped; variables of earlier cells are kept")
    }

    /// The error of a cell whose session no longer exists.
    pub fn session_lost() -> Self {
        Self::new(
            "session",
            "the session has ended because of an internal error; restart the kernel",
        )
    }
}

/// How a cell ended.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub error: Option<CellError>,
    /// Texts that the cell sent to the pager.
    pub pages: Vec<String>,
}

impl From<CellError> for Outcome {
    fn from(error: CellError) -> Self {
        Self { error: Some(error), pages: Vec::new() }
    }
}

/// Counts the requested cells. An interrupt applies to all that were requested before it, even to one
/// that waits for the session to be warm.
#[derive(Default)]
struct Turns {
    next: AtomicU64,
    first_wanted: AtomicU64,
    interrupts: AtomicU64,
    ended: AtomicBool,
}

impl Turns {
    fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    fn interrupt(&self) {
        let next = self.next.load(Ordering::SeqCst);
        self.first_wanted.fetch_max(next, Ordering::SeqCst);
        self.interrupts.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many interrupts there were.
    fn interrupts(&self) -> u64 {
        self.interrupts.load(Ordering::SeqCst)
    }

    /// Records that the session ends.
    fn end(&self) {
        self.interrupt();
        self.ended.store(true, Ordering::SeqCst);
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn is_interrupted(&self, turn: u64) -> bool {
        turn < self.first_wanted.load(Ordering::SeqCst)
    }
}

/// The child, once there is one, as other threads see it.
struct Running {
    process: Arc<Mutex<Child>>,
    monitor: Monitor,
}

/// Work for the evaluator's thread. It gets the evaluator, or the reason why there is none.
type Work = Box<dyn FnOnce(Result<&mut Evaluator, &str>) + Send>;

/// What the evaluator's thread is asked for.
enum Request {
    /// Runs after the cells before it.
    Cell(Work),
    /// Needs no cell's code to run, so it is answered while one runs.
    Question(Work),
    /// The running cell has ended.
    Ended,
    /// The session ends.
    Stop,
}

/// The handle through which front ends use a session.
pub struct Session {
    requests: Option<mpsc::Sender<Request>>,
    running: Arc<Mutex<Option<Running>>>,
    turns: Arc<Turns>,
    evaluator: Option<std::thread::JoinHandle<()>>,
    folder: SessionFolder,
}

impl Session {
    /// Starts a session in `folder`, which warms up on a thread of its own. `say` gets lines, and a display that is
    /// updated, if that takes long. `warm` is unset for a session that has cells already: they load what they need.
    pub fn start(mut folder: SessionFolder, warm: bool, say: Sink) -> std::io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let inbox = Inbox::new(inbox, requests.clone());
        let running = Arc::new(Mutex::new(None));
        let turns = Arc::new(Turns::default());
        let path = folder.path().to_path_buf();
        let environment = match folder.problem.take() {
            Some(problem) => Err(problem),
            None => Ok(folder.environment()),
        };
        let (shared, order) = (Arc::clone(&running), Arc::clone(&turns));
        let evaluator = std::thread::Builder::new()
            .name("evaluator".to_owned())
            .spawn(move || serve::serve(&path, warm, environment, inbox, &shared, order, &say))?;
        Ok(Self { requests: Some(requests), running, turns, evaluator: Some(evaluator), folder })
    }

    /// Runs a cell or a command after those requested before it.
    pub fn execute(&self, code: String, sink: Sink) -> oneshot::Receiver<Outcome> {
        let turn = self.turns.take();
        self.ask(Request::Cell, move |evaluator| {
            Some(match evaluator {
                Ok(evaluator) => {
                    evaluator.turn = turn;
                    commands::run(evaluator, &code, &sink)
                        .unwrap_or_else(|| evaluator.cell(&code, &sink))
                }
                Err(message) => CellError::new("session", message).into(),
            })
        })
    }

    /// Runs a command that needs no cell (`:vars`, `:type`, `:time`, …) while one runs. All other code waits
    /// for its turn, as in [`execute`](Self::execute).
    pub fn execute_beside(&self, code: String, sink: Sink) -> oneshot::Receiver<Outcome> {
        if !commands::needs_no_cell(&code) {
            return self.execute(code, sink);
        }
        let turn = self.turns.take();
        self.ask(Request::Question, move |evaluator| {
            Some(match evaluator {
                Ok(evaluator) => {
                    let turn = std::mem::replace(&mut evaluator.turn, turn);
                    let outcome = commands::run(evaluator, &code, &sink);
                    evaluator.turn = turn;
                    outcome.unwrap_or_default()
                }
                Err(message) => CellError::new("session", message).into(),
            })
        })
    }

    /// Completes `code` at the byte `position`.
    pub fn complete(&self, code: String, position: usize) -> oneshot::Receiver<Completions> {
        self.ask(Request::Question, move |evaluator| {
            let Evaluator { context, usage, .. } = evaluator.ok()?;
            let found = commands::complete(context, &code, position);
            Some(found.unwrap_or_else(|| completion::complete(context, usage, &code, position)))
        })
    }

    /// Returns the documentation of the name in `code` at the byte `position`.
    pub fn inspect(&self, code: String, position: usize) -> oneshot::Receiver<Option<Content>> {
        self.ask(Request::Question, move |evaluator| {
            let context = &mut evaluator.ok()?.context;
            Some(inspection::inspect(context, &code, position))
        })
    }

    /// Continues in another working folder and with other variables; waits until that is done.
    pub fn move_to(&self, folder: PathBuf, environment: Vec<(String, String)>) {
        let moved = self.ask(Request::Cell, move |evaluator| {
            evaluator.ok()?.move_to(&folder, &environment);
            Some(())
        });
        // If the evaluator has ended, the next cell reports it.
        let _ = moved.blocking_recv();
    }

    /// Asks the evaluator. Without an answer the reply is dropped.
    fn ask<T: Send + 'static>(
        &self,
        kind: impl FnOnce(Work) -> Request,
        answer: impl FnOnce(Result<&mut Evaluator, &str>) -> Option<T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (reply, receive) = oneshot::channel();
        if let Some(requests) = &self.requests {
            // If the evaluator has ended, the reply is dropped.
            let _ = requests.send(kind(Box::new(move |evaluator| {
                // A front end that has gone needs no reply.
                let _ = answer(evaluator).map(|answer| reply.send(answer));
            })));
        }
        receive
    }

    /// Stops the running cell, and returns at once. Polls check a flag; if the cell runs on for two
    /// seconds, not counting the time in which it waited for a processor, its process is killed, with all
    /// variables. A requested cell that has not begun will not run. An idle session does not change.
    pub fn interrupt(&self) {
        self.turns.interrupt();
        let running = lock(&self.running);
        let Some(Running { process, monitor }) = running.as_ref() else {
            return;
        };
        if !monitor.interrupt() {
            monitor.interrupt_widgets(lock(process).id());
            return;
        }
        let (process, monitor) = (Arc::clone(process), monitor.clone());
        std::thread::spawn(move || {
            let asked = Instant::now();
            let waits = Waits::of(lock(&process).id());
            // A cell that waits for input finds its end, after it has noticed the interrupt.
            std::thread::sleep(Duration::from_millis(20));
            monitor.give_input(None);
            // A new cell clears the flag; a cell that is being compiled is not killed.
            while monitor.interrupted() {
                let child = lock(&process);
                let runs = monitor.running_for(child.id());
                let over = runs.map(|runs| runs.min(asked.elapsed()));
                if over.is_some_and(|over| kill_timeout::is_over(over, || waits.since())) {
                    process_group::kill(child.id());
                    return;
                }
                drop(child);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }

    /// Answers [`Event::Input`] with a line, or with `None` if nobody can be asked: then the cell finds the
    /// end of its input. A line that nobody asked for is dropped.
    pub fn give_input(&self, line: Option<&str>) {
        if let Some(running) = lock(&self.running).as_ref() {
            running.monitor.give_input(line);
        }
    }

    /// Passes a message of the page on to its widget. Returns false if that no longer exists.
    pub fn comm(&self, message: &Comm) -> bool {
        // A pipe that nobody reads fills up, so nothing is written to a dead child, and no lock is held meanwhile.
        let (child, monitor) = match lock(&self.running).as_ref() {
            Some(Running { process, monitor }) => {
                let mut process = lock(process);
                if !matches!(process.try_wait(), Ok(None)) {
                    return false;
                }
                (process.id(), monitor.clone())
            }
            None => return false,
        };
        // `cloze-comm-<process>-<number>`: the process in which the widget lives.
        let lives = message.id.split('-').nth(2) == Some(child.to_string().as_str());
        if lives {
            monitor.comm(child, message);
        }
        lives
    }

    /// Ends the session and its child, whatever the child does, and removes its folder.
    pub fn shut_down(mut self) {
        if let Some(requests) = self.requests.take() {
            // If the evaluator has ended, it need not be asked to.
            let _ = requests.send(Request::Stop);
        }
        self.turns.end();
        if let Some(Running { process, monitor }) = lock(&self.running).take() {
            // Stops shell commands.
            monitor.interrupt();
            process_group::kill(lock(&process).id());
        }
        if let Some(evaluator) = self.evaluator.take() {
            let deadline = Instant::now() + Duration::from_secs(5);
            // Gives a compilation some time to end.
            while !evaluator.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        drop(self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_applies_to_the_cells_requested_before_it() {
        let turns = Turns::default();
        turns.interrupt();
        let (first, second) = (turns.take(), turns.take());
        assert!(!turns.is_interrupted(first));
        turns.interrupt();
        assert!(turns.is_interrupted(first) && turns.is_interrupted(second));
        assert!(!turns.is_interrupted(turns.take()));
    }
}
