//! The REPL: a session in a terminal, or for a script.

mod ask;
mod assistant;
mod editor;
mod formula;
mod highlight;
mod input;
mod interactive;
mod interrupts;
mod keys;
mod markdown;
mod picture;
mod screen;
mod script;
mod sixel;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cloze::{Error, Result};

use crate::session::{CellError, Event, Outcome, Session, SessionFolder, Sink};
use interrupts::Interrupts;
use picture::Known;
use screen::Screen;
use script::Script;

/// The options of `repl`.
#[derive(clap::Args)]
pub struct Options {
    /// Run this code and exit; several are cells of one session.
    #[arg(short, long = "execute", value_name = "CODE")]
    execute: Vec<String>,
    /// Run this file and exit, every complete piece as a cell; `-` is standard input.
    #[arg(value_name = "FILE", conflicts_with = "execute")]
    script: Option<PathBuf>,
}

/// Runs until the input ends. A script ends at its first error.
pub fn run(options: &Options, folder: SessionFolder) -> Result<()> {
    let from_input = match &options.script {
        None => !std::io::stdin().is_terminal(),
        Some(path) => path == Path::new("-"),
    };
    if !options.execute.is_empty() {
        let cells = options.execute.iter().enumerate();
        let mut cells =
            cells.map(|(index, code)| (format!("-e number {}", index + 1), code.clone()));
        return cells_of(folder, true, || Ok(cells.next()));
    }
    let mut script = match &options.script {
        _ if from_input => Script::standard_input(),
        Some(path) => Script::file(path)?,
        None => return interactive::run(folder),
    };
    cells_of(folder, !from_input, || {
        let piece = script.next()?;
        Ok(piece.map(|piece| (format!("{}:{}", script.name(), piece.line), piece.code)))
    })
}

/// Runs cells, which come with their places for error messages. `free` is set if standard input is free
/// for the cells.
fn cells_of(
    folder: SessionFolder,
    free: bool,
    mut next: impl FnMut() -> Result<Option<(String, String)>>,
) -> Result<()> {
    let screen = Screen::standard(Known::standard().protocol());
    let (show, live) = (screen.sink(), std::io::stdout().is_terminal());
    // Progress does not belong among the results of a script.
    let say: Sink = Arc::new(move |event| match event {
        Event::Stream { .. } => show(event),
        event if live => show(event),
        _ => {}
    });
    let session = start(folder, false, say)?;
    let interrupts = Interrupts::pass_on(&session, &screen, true)?;
    let ended = loop {
        match next() {
            Ok(Some((place, code))) => {
                if wait(&session, &screen, &interrupts, &code, free).error.is_some() {
                    break Err(Error::Failed(format!(
                        "{place}: the script ended at its first error"
                    )));
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    end(session);
    ended
}

fn start(folder: SessionFolder, warm: bool, say: Sink) -> Result<Arc<Session>> {
    Session::start(folder, warm, say)
        .map(Arc::new)
        .map_err(|error| Error::Failed(format!("cannot start a session: {error}")))
}

fn end(session: Arc<Session>) {
    // The thread that waits for Ctrl-C holds another reference for a moment at most.
    if let Some(session) = Arc::into_inner(session) {
        session.shut_down();
    }
}

/// Runs a cell and shows its output; `free` is set if the cell may read standard input.
fn wait(
    session: &Session,
    screen: &Screen,
    interrupts: &Interrupts,
    code: &str,
    free: bool,
) -> Outcome {
    interrupts.cell_begins();
    let mut outcome = input::run(session, screen, code, free);
    // Ctrl-C reaches the compiler too, whose output is then no error of the cell.
    if interrupts.cell_ends() && outcome.error.as_ref().is_some_and(|it| it.name == "error") {
        outcome.error = Some(CellError::interrupted());
    }
    screen.end(&outcome);
    outcome
}
