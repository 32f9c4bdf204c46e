//! The evaluator's thread: prepares the session, and answers requests.

use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cloze::display::Content;

use super::evaluator::Evaluator;
use super::inbox::Inbox;
use super::template::Template;
use super::watch::Watch;
use super::{Event, Running, Sink, Stream, Turns};
use crate::mutex::lock;

/// The display that shows how far the session template is.
const PROGRESS: &str = "cloze-session-template";
/// The error of a cell that was stopped before the session had begun.
const STOPPED: &str = "the cell was stopped; the library that all sessions share is still being prepared, and cells wait for it";

/// Answers requests until the handle is dropped; shell commands run with `environment`, in place of which there may be a
/// reason why the session cannot start. `warm` is set if the first cells are run in advance.
pub fn serve(
    folder: &Path,
    warm: bool,
    environment: Result<Vec<(OsString, OsString)>, String>,
    inbox: Inbox,
    running: &Mutex<Option<Running>>,
    turns: Arc<Turns>,
    sink: &Sink,
) {
    let inbox = Rc::new(inbox);
    let mut user = User { inbox: &inbox, turns: &turns, sink, shown: false, interrupts: 0 };
    let opened = environment.and_then(|environment| {
        Template::find_or_build(&environment, &mut user)
            .and_then(|template| template.open(folder))
            .and_then(|workshop| Evaluator::start(workshop, warm, environment, Rc::clone(&inbox)))
            .map_err(|error| error.to_string())
    });
    match opened {
        Ok(mut evaluator) => {
            evaluator.turns = turns;
            *lock(running) = Some(Running {
                process: evaluator.context.process_handle(),
                monitor: evaluator.channel.monitor(),
            });
            while let Some(work) = inbox.next() {
                work(Ok(&mut evaluator));
            }
        }
        Err(message) => {
            sink(Event::Stream { stream: Stream::Stderr, text: format!("{message}\n") });
            while let Some(work) = inbox.next() {
                work(Err(&message));
            }
        }
    }
}

/// The user of a session, who waits for its template.
struct User<'a> {
    inbox: &'a Inbox,
    turns: &'a Turns,
    sink: &'a Sink,
    shown: bool,
    /// The interrupts that cells were stopped for.
    interrupts: u64,
}

impl Watch for User<'_> {
    fn say(&mut self, line: &str) {
        // Not on standard error, which notebooks paint like an error.
        (self.sink)(Event::Display { content: Content::text(line.to_owned()), id: None });
    }

    fn progress(&mut self, line: &str) {
        let (content, id) = (Content::text(line.to_owned()), PROGRESS.to_owned());
        (self.sink)(match std::mem::replace(&mut self.shown, true) {
            false => Event::Display { content, id: Some(id) },
            true => Event::Update { content, id },
        });
    }

    fn is_over(&mut self) -> bool {
        let interrupts = self.turns.interrupts();
        if self.interrupts != interrupts {
            self.interrupts = interrupts;
            // A cell requested in the same quarter of a second is stopped too.
            self.inbox.refuse(STOPPED);
        }
        self.turns.ended()
    }
}
