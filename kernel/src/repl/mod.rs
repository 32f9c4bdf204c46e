//! The REPL: the session in a terminal, or fed by a script.

mod assistant;
mod editor;
mod highlight;
mod interactive;
mod interrupts;
mod keys;
mod picture;
mod questions;
mod screen;
mod script;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cloze::{Error, Result};

use crate::session::{Outcome, Session, SessionFolder, Sink, interrupted};
use interrupts::Interrupts;
use screen::Screen;
use script::Script;

#[derive(clap::Args)]
pub struct Options {
    /// Run this code and leave; several are cells of one session.
    #[arg(short, long = "execute", value_name = "CODE")]
    execute: Vec<String>,
    /// Run this file and leave, every complete piece as a cell; `-` is standard input.
    #[arg(value_name = "FILE", conflicts_with = "execute")]
    script: Option<PathBuf>,
}

/// Runs until the input ends; the first error ends what nobody types.
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

/// Runs cells that come with the name of their place.
fn cells_of(
    folder: SessionFolder,
    free: bool,
    mut next: impl FnMut() -> Result<Option<(String, String)>>,
) -> Result<()> {
    let screen = Screen::standard();
    let session = start(folder, screen.sink())?;
    let interrupts = Interrupts::pass_on(&session, &screen, true)?;
    let ended = loop {
        match next() {
            Ok(Some((place, code))) => {
                if wait(&session, &screen, &interrupts, &code, free)
                    .error
                    .is_some()
                {
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

fn start(folder: SessionFolder, say: Sink) -> Result<Arc<Session>> {
    Session::start(folder, say)
        .map(Arc::new)
        .map_err(|error| Error::Failed(format!("cannot start a session: {error}")))
}

fn end(session: Arc<Session>) {
    // The thread that waits for Ctrl-C holds it for a moment at most.
    if let Some(session) = Arc::into_inner(session) {
        session.shut_down();
    }
}

/// Runs a cell and shows all that it brings; `free` tells whether standard input is the cell's.
fn wait(
    session: &Session,
    screen: &Screen,
    interrupts: &Interrupts,
    code: &str,
    free: bool,
) -> Outcome {
    interrupts.cell_begins();
    let mut outcome = questions::run(session, screen, code, free);
    // The key reaches the compiler too, and what is left of its output is no error of the cell's.
    if interrupts.cell_ends() && outcome.error.as_ref().is_some_and(|it| it.name == "error") {
        outcome.error = Some(interrupted());
    }
    screen.end(&outcome);
    outcome
}
