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
mod input;
mod loops;
mod patience;
mod rewrite;
mod rustc;
mod stream;
mod surroundings;
pub mod template;
mod tree;
mod types;

use std::path::PathBuf;
use std::process::Child;
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

/// What other threads may know of the child, once there is one.
struct Running {
    process: Arc<Mutex<Child>>,
    monitor: Monitor,
}

/// The handle by which front ends use a session.
pub struct Session {
    requests: Option<mpsc::Sender<Request>>,
    running: Arc<Mutex<Option<Running>>>,
    evaluator: Option<std::thread::JoinHandle<()>>,
    folder: SessionFolder,
}

impl Session {
    /// Starts a session in `folder`; it warms up on its own thread. `say` gets a line when that
    /// will take long.
    pub fn start(folder: SessionFolder, say: Sink) -> std::io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let running = Arc::new(Mutex::new(None));
        let place = folder.path().to_path_buf();
        let shared = Arc::clone(&running);
        let evaluator = std::thread::Builder::new()
            .name("evaluator".to_owned())
            .spawn(move || evaluator::serve(&place, &inbox, &shared, &say))?;
        Ok(Self {
            requests: Some(requests),
            running,
            evaluator: Some(evaluator),
            folder,
        })
    }

    /// Runs a cell after those asked for before it.
    pub fn execute(&self, code: String, sink: Sink) -> oneshot::Receiver<Outcome> {
        let (reply, receive) = oneshot::channel();
        self.ask(Request::Execute { code, sink, reply });
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
    /// two seconds, in which it had a processor, by ending its process, with all variables. Returns
    /// at once.
    pub fn interrupt(&self) {
        let running = lock(&self.running);
        let Some(Running { process, monitor }) = running.as_ref() else {
            return;
        };
        monitor.interrupt();
        let (process, monitor) = (Arc::clone(process), monitor.clone());
        std::thread::spawn(move || {
            let asked = Instant::now();
            let waits = Waits::of(lock(&process).id());
            // A cell that waits for input finds its end, after it has heard of the interrupt.
            std::thread::sleep(Duration::from_millis(20));
            monitor.give_input(None);
            // A new cell withdraws the request; a cell that is being compiled is not killed.
            while monitor.interrupted() {
                let runs = monitor.running_for();
                let over = runs.map(|runs| runs.min(asked.elapsed()));
                if over.is_some_and(|over| patience::too_long(over, || waits.since())) {
                    // It may have ended by itself meanwhile.
                    let _ = lock(&process).kill();
                    return;
                }
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
        if let Some(Running { process, .. }) = lock(&self.running).take() {
            // It may have ended by itself.
            let _ = lock(&process).kill();
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
