//! Cells that ask: their questions are answered by the thread that waits for the cell.

use std::io::IsTerminal;
use std::sync::{Arc, mpsc};

use rustyline::error::ReadlineError;

use super::screen::Screen;
use crate::session::{Event, Outcome, Session, lost};

enum Step {
    Ask(String),
    Done(Outcome),
}

/// Runs a cell to its end, answering what it asks from standard input where that is `free`: where
/// it is not where the cells come from.
pub fn run(session: &Session, screen: &Screen, code: &str, free: bool) -> Outcome {
    let (steps, next) = mpsc::channel();
    let (show, ask) = (screen.sink(), steps.clone());
    let outcome = session.execute(
        code.to_owned(),
        Arc::new(move |event| match event {
            // A cell that has ended asks nothing.
            Event::Input { prompt } => drop(ask.send(Step::Ask(prompt))),
            event => show(event),
        }),
    );
    std::thread::spawn(move || {
        let outcome = outcome.blocking_recv().unwrap_or_else(|_| Outcome {
            error: Some(lost()),
            pages: Vec::new(),
        });
        // The receiver waits for this.
        let _ = steps.send(Step::Done(outcome));
    });
    loop {
        match next.recv() {
            Ok(Step::Ask(prompt)) => {
                let line = if free {
                    answer(session, screen, &prompt)
                } else {
                    None
                };
                session.give_input(line.as_deref());
            }
            Ok(Step::Done(outcome)) => return outcome,
            Err(_) => {
                return Outcome {
                    error: Some(lost()),
                    pages: Vec::new(),
                };
            }
        }
    }
}

/// Reads a line; `None` at the input's end and after Ctrl-C, which stops the cell too.
fn answer(session: &Session, screen: &Screen, prompt: &str) -> Option<String> {
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
        Err(_) => None,
    }
}
