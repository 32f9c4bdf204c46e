//! Answers the input requests of cells, on the thread that waits for the cell.

use std::io::IsTerminal;
use std::sync::{Arc, mpsc};

use rustyline::error::ReadlineError;

use super::screen::Screen;
use crate::session::{CellError, Event, Outcome, Session, is_review};

enum Step {
    Ask(String),
    Done(Outcome),
}

/// Runs a cell to its end, and answers its input requests from standard input, if that is `free`: the
/// cells themselves may come from there.
pub fn run(session: &Session, screen: &Screen, code: &str, free: bool) -> Outcome {
    let (steps, next) = mpsc::channel();
    let (show, ask) = (screen.sink(), steps.clone());
    let outcome = session.execute(
        code.to_owned(),
        Arc::new(move |event| match event {
            Event::Input { prompt } => drop(ask.send(Step::Ask(prompt))),
            event => show(event),
        }),
    );
    std::thread::spawn(move || {
        let outcome = outcome.blocking_recv();
        let outcome = outcome.unwrap_or_else(|_| CellError::session_lost().into());
        // The receiver waits for this.
        let _ = steps.send(Step::Done(outcome));
    });
    loop {
        match next.recv() {
            Ok(Step::Ask(prompt)) => {
                let line = free.then(|| answer(session, screen, code, &prompt)).flatten();
                session.give_input(line.as_deref());
            }
            Ok(Step::Done(outcome)) => return outcome,
            Err(_) => return CellError::session_lost().into(),
        }
    }
}

/// Reads a line for a cell. Returns `None` at the end of the input and after Ctrl-C, which stops the cell too.
fn answer(session: &Session, screen: &Screen, code: &str, prompt: &str) -> Option<String> {
    if !std::io::stdin().is_terminal() {
        let mut line = String::new();
        let length = std::io::stdin().read_line(&mut line).ok()?;
        line.truncate(line.trim_end_matches(['\n', '\r']).len());
        return (length > 0).then_some(line);
    }
    screen.begin_line();
    let mut editor = rustyline::DefaultEditor::new().ok()?;
    match editor.readline(prompt) {
        Ok(line) => Some(line),
        Err(ReadlineError::Interrupted) => {
            session.interrupt();
            None
        }
        // Ctrl-D, which leaves a lesson's questions open as an empty line does.
        Err(ReadlineError::Eof) if is_review(code) => Some(String::new()),
        Err(_) => None,
    }
}
