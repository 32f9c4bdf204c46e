//! The REPL: the session in a terminal, or fed by a script on standard input.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cloze::{Error, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper, Highlighter, Hinter};

use crate::paths;
use crate::session::completeness::{self, Completeness};
use crate::session::{Event, Outcome, Session, SessionFolder, Sink, Stream, without_colours};

const PROMPT: &str = ">> ";
const HISTORY: usize = 10_000;

/// Runs until the input ends. On standard input that is no terminal every complete piece is a cell;
/// the first error ends the script.
pub fn run(folder: SessionFolder) -> Result<()> {
    let session = Session::start(folder, printer())
        .map_err(|error| Error::Failed(format!("cannot start a session: {error}")))?;
    let session = Arc::new(session);
    let ended = if std::io::stdin().is_terminal() {
        interactive(&session)
    } else {
        script(&session)
    };
    if let Some(session) = Arc::into_inner(session) {
        session.shut_down();
    }
    ended
}

fn script(session: &Session) -> Result<()> {
    let mut code = String::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|source| Error::io("standard input", source))?;
        code.push_str(&line);
        code.push('\n');
        if !matches!(completeness::judge(&code), Completeness::Incomplete { .. }) {
            cell(session, &std::mem::take(&mut code))?;
        }
    }
    // What the end of the input left incomplete is for the compiler to judge.
    cell(session, &code)
}

/// Runs one cell of a script.
fn cell(session: &Session, code: &str) -> Result<()> {
    if code.trim().is_empty() {
        return Ok(());
    }
    let outcome = wait(session, code);
    let failed = outcome.error.is_some();
    report(&outcome);
    if failed {
        return Err(Error::Failed(
            "the script ended at its first error".to_owned(),
        ));
    }
    Ok(())
}

fn interactive(session: &Arc<Session>) -> Result<()> {
    let failed = |error: ReadlineError| Error::Failed(format!("the terminal: {error}"));
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY)
        .map_err(failed)?
        .auto_add_history(true)
        .build();
    let mut editor: Editor<Assistant, DefaultHistory> =
        Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Assistant {
        session: Arc::clone(session),
    }));
    let history = paths::history()?;
    // The first time there is none.
    let _ = editor.load_history(&history);
    println!(
        "Cloze {}: Rust cells with BERT's tensors. `use cloze::prelude::*;` to begin, `:help` for \
         commands, Ctrl-D to leave.",
        env!("CARGO_PKG_VERSION")
    );
    interrupt_on_signals(session)?;
    loop {
        match editor.readline(PROMPT) {
            Ok(code) if code.trim().is_empty() => {}
            Ok(code) if code.trim() == ":quit" => break,
            Ok(code) => report(&wait(session, &code)),
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if let Some(folder) = history.parent() {
        paths::create(folder)?;
    }
    editor.save_history(&history).map_err(failed)
}

/// While a cell runs the terminal is in its usual mode and Ctrl-C is a signal.
fn interrupt_on_signals(session: &Arc<Session>) -> Result<()> {
    let session = Arc::downgrade(session);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot wait for signals: {error}")))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let kind = tokio::signal::unix::SignalKind::interrupt();
            let Ok(mut interrupts) = tokio::signal::unix::signal(kind) else {
                return;
            };
            while interrupts.recv().await.is_some() {
                match session.upgrade() {
                    Some(session) => session.interrupt(),
                    None => return,
                }
            }
        });
    });
    Ok(())
}

fn wait(session: &Session, code: &str) -> Outcome {
    let fresh_line = Arc::new(AtomicBool::new(true));
    let outcome = session
        .execute(code.to_owned(), printer_with(Arc::clone(&fresh_line)))
        .blocking_recv()
        .unwrap_or_else(|_| Outcome {
            error: Some(crate::session::lost()),
            pages: Vec::new(),
        });
    if !fresh_line.load(Ordering::Relaxed) {
        println!();
    }
    outcome
}

fn report(outcome: &Outcome) {
    for page in &outcome.pages {
        println!("{page}");
    }
    if let Some(error) = &outcome.error {
        let text = error.traceback.join("\n");
        if std::io::stderr().is_terminal() {
            eprintln!("{text}");
        } else {
            eprintln!("{}", without_colours(&text));
        }
    }
}

fn printer() -> Sink {
    printer_with(Arc::new(AtomicBool::new(true)))
}

/// Prints a cell's events; `fresh_line` tells whether the terminal stands at a line's beginning.
fn printer_with(fresh_line: Arc<AtomicBool>) -> Sink {
    let order = Mutex::new(());
    Arc::new(move |event| {
        let _turn = order.lock().unwrap_or_else(PoisonError::into_inner);
        let print = |text: &str| {
            print!("{text}");
            // A closed terminal is noticed when the next line is read.
            let _ = std::io::stdout().flush();
            fresh_line.store(text.ends_with('\n'), Ordering::Relaxed);
        };
        match event {
            Event::Stream {
                stream: Stream::Stdout,
                text,
            } => print(&text),
            Event::Stream {
                stream: Stream::Stderr,
                text,
            } => {
                eprint!("{text}");
                fresh_line.store(text.ends_with('\n'), Ordering::Relaxed);
            }
            Event::Display { content, .. } | Event::Result(content) => {
                if !fresh_line.load(Ordering::Relaxed) {
                    print("\n");
                }
                print(&format!("{}\n", content.plain().trim_end_matches('\n')));
            }
            // A terminal keeps what it has shown.
            Event::Update { .. } | Event::Clear { .. } | Event::Input { .. } => {}
        }
    })
}

/// What the line editor asks while a cell is written.
#[derive(Helper, Hinter, Highlighter)]
struct Assistant {
    session: Arc<Session>,
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let code = context.input();
        // An empty line ends a cell that seems to want more: the compiler will say what is missing.
        if code.ends_with('\n') {
            return Ok(ValidationResult::Valid(None));
        }
        Ok(match completeness::judge(code) {
            Completeness::Incomplete { .. } => ValidationResult::Incomplete,
            Completeness::Complete | Completeness::Invalid => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let found = self
            .session
            .complete(line.to_owned(), position)
            .blocking_recv()
            // A session that could not start has nothing to offer.
            .unwrap_or_default();
        Ok((found.start, found.matches))
    }
}
