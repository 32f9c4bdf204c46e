//! One session of cells: what the notebook kernel and the REPL have in common.
//!
//! A [`Session`] owns a thread with evcxr's context, which compiles cells and keeps track of
//! variables, and through it a child process in which cells run. Requests are answered in order;
//! output comes while a cell runs, through the [`Sink`] given with it. The first requests may be
//! made before the session is warm: they wait for it.

pub mod cargo;
pub mod channel;
pub mod child;
mod commands;
pub mod completeness;
pub mod completion;
mod crash;
mod documentation;
mod errors;
mod evaluator;
mod excerpt;
mod explain;
mod folder;
mod group;
mod input;
mod loops;
mod patience;
mod rewrite;
mod rustc;
mod shell;
mod stream;
mod surroundings;
pub mod template;
mod tree;
mod types;
mod words;

use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use cloze::display::Content;
use tokio::sync::oneshot;

pub use completion::Completions;
pub use errors::{interrupted, without_colours};
pub use evaluator::{fill_template, secret};
pub use folder::{CHANGED_VARIABLES, SessionFolder, point_evcxr_at};
pub use rewrite::command_lines;
pub use template::Template;

use channel::Monitor;
use patience::Waits;

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
    /// Printed text, as much as came at once; not whole lines.
    Stream { stream: Stream, text: String },
    /// A display, under a name where it will be updated.
    Display {
        content: Content,
        id: Option<String>,
    },
    /// Replaces the displays of that name.
    Update { content: Content, id: String },
    /// The value of the cell's last expression.
    Result(Content),
    /// The cell's output so far is to go, with `wait` when the next output comes.
    Clear { wait: bool },
    /// The cell waits for a line on its standard input: see [`Session::give_input`].
    Input { prompt: String },
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
    /// Lines to show, with ANSI colours; the message is among them.
    pub traceback: Vec<String>,
}

/// How a cell ended.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub error: Option<CellError>,
    /// Texts that the cell sent to the pager.
    pub pages: Vec<String>,
}

/// The error of cells whose session is no longer there.
pub fn lost() -> CellError {
    errors::plain(
        "session",
        "the session has ended by a fault of its own; restart the kernel",
    )
}

/// The error of an expression that was asked for its value and has none.
pub fn without_value(code: &str) -> CellError {
    errors::plain("value", &format!("`{code}` has no value to show"))
}

enum Request {
    MoveTo {
        folder: PathBuf,
        environment: Vec<(String, String)>,
        reply: oneshot::Sender<()>,
    },
    Execute {
        code: String,
        turn: u64,
        sink: Sink,
        reply: oneshot::Sender<Outcome>,
    },
    Complete {
        code: String,
        position: usize,
        reply: oneshot::Sender<Completions>,
    },
    Inspect {
        code: String,
        position: usize,
        reply: oneshot::Sender<Option<Content>>,
    },
}

/// Counts the cells asked for. An interrupt is for all that were asked for before it, also for one
/// that waits for the session to be warm.
#[derive(Default)]
struct Turns {
    next: AtomicU64,
    first_wanted: AtomicU64,
}

impl Turns {
    fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    fn interrupt(&self) {
        let next = self.next.load(Ordering::SeqCst);
        self.first_wanted.fetch_max(next, Ordering::SeqCst);
    }

    fn is_interrupted(&self, turn: u64) -> bool {
        turn < self.first_wanted.load(Ordering::SeqCst)
    }
}

/// What other threads may know of the child, once there is one.
struct Running {
    process: Arc<Mutex<Child>>,
    monitor: Monitor,
}

/// The handle by which front ends use a session.
pub struct Session {
    requests: Option<mpsc::Sender<Request>>,
    running: Arc<Mutex<Option<Running>>>,
    turns: Arc<Turns>,
    evaluator: Option<std::thread::JoinHandle<()>>,
    folder: SessionFolder,
}

impl Session {
    /// Starts a session in `folder`; it warms up on its own thread. `say` gets a line when that
    /// will take long.
    pub fn start(folder: SessionFolder, say: Sink) -> std::io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let running = Arc::new(Mutex::new(None));
        let turns = Arc::new(Turns::default());
        let place = folder.path().to_path_buf();
        let environment = folder.environment();
        let (shared, order) = (Arc::clone(&running), Arc::clone(&turns));
        let evaluator = std::thread::Builder::new()
            .name("evaluator".to_owned())
            .spawn(move || evaluator::serve(&place, environment, &inbox, &shared, order, &say))?;
        Ok(Self {
            requests: Some(requests),
            running,
            turns,
            evaluator: Some(evaluator),
            folder,
        })
    }

    /// Runs a cell after those asked for before it.
    pub fn execute(&self, code: String, sink: Sink) -> oneshot::Receiver<Outcome> {
        let (reply, receive) = oneshot::channel();
        let turn = self.turns.take();
        self.ask(Request::Execute {
            code,
            turn,
            sink,
            reply,
        });
        receive
    }

    /// Completes `code` at the byte `position`.
    pub fn complete(&self, code: String, position: usize) -> oneshot::Receiver<Completions> {
        let (reply, receive) = oneshot::channel();
        self.ask(Request::Complete {
            code,
            position,
            reply,
        });
        receive
    }

    /// Documentation of what stands in `code` at the byte `position`.
    pub fn inspect(&self, code: String, position: usize) -> oneshot::Receiver<Option<Content>> {
        let (reply, receive) = oneshot::channel();
        self.ask(Request::Inspect {
            code,
            position,
            reply,
        });
        receive
    }

    fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // Where the evaluator has ended, the dropped reply tells the caller.
            let _ = requests.send(request);
        }
    }

    /// Continues in another working folder and with other variables; waits until that is done.
    pub fn move_to(&self, folder: PathBuf, environment: Vec<(String, String)>) {
        let (reply, receive) = oneshot::channel();
        self.ask(Request::MoveTo {
            folder,
            environment,
            reply,
        });
        // An evaluator that has ended says so with the next cell.
        let _ = receive.blocking_recv();
    }

    /// Stops the cell that runs: first by the flag that polls look at, and where it goes on for
    /// two seconds, in which it had a processor, by ending its process, with all variables. A cell
    /// that has not begun will not; an idle session goes on as it was. Returns at once.
    pub fn interrupt(&self) {
        self.turns.interrupt();
        let running = lock(&self.running);
        let Some(Running { process, monitor }) = running.as_ref() else {
            return;
        };
        if !monitor.interrupt() {
            return;
        }
        let (process, monitor) = (Arc::clone(process), monitor.clone());
        std::thread::spawn(move || {
            let asked = Instant::now();
            let waits = Waits::of(lock(&process).id());
            // A cell that waits for input finds its end, after it has heard of the interrupt.
            std::thread::sleep(Duration::from_millis(20));
            monitor.give_input(None);
            // A new cell withdraws the request; a cell that is being compiled is not killed.
            while monitor.interrupted() {
                let child = lock(&process);
                let runs = monitor.running_for(child.id());
                let over = runs.map(|runs| runs.min(asked.elapsed()));
                if over.is_some_and(|over| patience::too_long(over, || waits.since())) {
                    group::end(child.id());
                    return;
                }
                drop(child);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }

    /// Answers [`Event::Input`] with a line, or with `None` where there is nobody to ask: the cell
    /// finds its input at the end. Not asked for, a line is dropped.
    pub fn give_input(&self, line: Option<&str>) {
        if let Some(running) = lock(&self.running).as_ref() {
            running.monitor.give_input(line);
        }
    }

    /// Ends the session and its child, whatever it does, and removes its folder.
    pub fn shut_down(mut self) {
        self.requests = None;
        self.turns.interrupt();
        if let Some(Running { process, monitor }) = lock(&self.running).take() {
            // A command of the shell hears of it so.
            monitor.interrupt();
            group::end(lock(&process).id());
        }
        if let Some(evaluator) = self.evaluator.take() {
            let deadline = Instant::now() + Duration::from_secs(5);
            // A compilation under way is waited for, but not for ever.
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
    fn an_interrupt_is_for_the_cells_asked_for_before_it() {
        let turns = Turns::default();
        turns.interrupt();
        let (first, second) = (turns.take(), turns.take());
        assert!(!turns.is_interrupted(first));
        turns.interrupt();
        assert!(turns.is_interrupted(first) && turns.is_interrupted(second));
        assert!(!turns.is_interrupted(turns.take()));
    }
}
