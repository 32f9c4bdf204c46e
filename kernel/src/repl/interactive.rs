//! The REPL at a terminal: prompt, history, Ctrl-C.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cloze::{Error, Result};
use rustyline::error::ReadlineError;
use rustyline::history::{DefaultHistory, History, SearchDirection};
use rustyline::{CompletionType, Config, Editor, ExternalPrinter};

use super::assistant::Assistant;
use super::interrupts::Interrupts;
use super::keys::{self, Leaving, Left, Rewriting};
use super::picture::Known;
use super::screen::{self, Screen};
use super::{editor, wait};
use crate::mutex::lock;
use crate::paths;
use crate::session::{Event, LINE_INTERVAL, SessionFolder, Sink};

const PROMPT: &str = ">> ";
const HISTORY: usize = 10_000;

type LineEditor = Editor<Assistant, DefaultHistory>;

/// Reads and runs cells until the user leaves.
pub fn run(folder: SessionFolder) -> Result<()> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .completion_show_all_if_ambiguous(true)
        .max_history_size(HISTORY)
        .map_err(failed)?
        // Entries are added explicitly, because `:quit` is not one.
        .auto_add_history(false)
        .build();
    let (pictures, typed) = Known::standard().or_ask();
    let mut editor: LineEditor = Editor::with_config(config).map_err(failed)?;
    println!(
        "Cloze {}. Begin with `use cloze::prelude::*;` · `:help` helps, Ctrl-D exits.",
        env!("CARGO_PKG_VERSION")
    );
    let above = editor.create_external_printer().map_err(failed)?;
    let session = super::start(folder, true, above_the_prompt(above))?;
    let (leaving, rewriting) = (Leaving::default(), Rewriting::default());
    keys::bind(&mut editor, &leaving, &rewriting);
    editor.set_helper(Some(Assistant::new(Arc::clone(&session), rewriting, !screen::no_colour())));
    let screen = Screen::standard(pictures);
    let interrupts = Interrupts::pass_on(&session, &screen, false)?;
    let mut prompt = Prompt { past: Past::open(&mut editor)?, editor, leaving, typed };
    while let Some(code) = prompt.next()? {
        wait(&session, &screen, &interrupts, &code, true);
    }
    // The helper holds the session too.
    drop(prompt);
    super::end(session);
    Ok(())
}

fn failed(error: ReadlineError) -> Error {
    Error::Failed(format!("the terminal: {error}"))
}

/// Prints the session's messages above the line that the user types.
fn above_the_prompt(printer: impl ExternalPrinter + Send + 'static) -> Sink {
    let state = Mutex::new((printer, None::<Instant>));
    Arc::new(move |event| {
        let (printer, shown) = &mut *lock(&state);
        let text = match event {
            Event::Stream { text, .. } => text,
            Event::Display { content, id: None } => format!("{}\n", content.plain()),
            // A line above the prompt cannot be replaced.
            Event::Display { content, .. } | Event::Update { content, .. }
                if shown.is_none_or(|shown| shown.elapsed() >= LINE_INTERVAL) =>
            {
                *shown = Some(Instant::now());
                format!("{}\n", content.plain())
            }
            _ => return,
        };
        // A closed terminal is noticed when the next line is read.
        let _ = printer.print(text);
    })
}

struct Prompt {
    editor: LineEditor,
    past: Past,
    leaving: Leaving,
    /// What was typed before the first prompt.
    typed: String,
}

impl Prompt {
    /// Returns the next cell, or `None` if the user exits.
    fn next(&mut self) -> Result<Option<String>> {
        let mut begun = std::mem::take(&mut self.typed);
        let mut rest = String::new();
        let mut asked = false;
        loop {
            let after = std::mem::take(&mut rest);
            match self.editor.readline_with_initial(PROMPT, (&begun, &after)) {
                Ok(code) => {
                    begun.clear();
                    asked = false;
                    match code.trim() {
                        "" => {}
                        ":quit" => return Ok(None),
                        ":edit" => begun = edited(&self.past.last(&self.editor)),
                        _ => {
                            let code = code.trim_end().to_owned();
                            self.past.add(&mut self.editor, &code)?;
                            return Ok(Some(code));
                        }
                    }
                }
                Err(ReadlineError::Interrupted) => match self.leaving.take() {
                    Left::ForEditor(code) => begun = edited(&code),
                    Left::ForHelp(before, after) => {
                        let helper = self.editor.helper();
                        let help = helper.map(|helper| helper.help(&before, &after));
                        println!("{}", help.unwrap_or_default());
                        begun = before;
                        rest = after;
                    }
                    Left::Nothing if asked => {
                        println!("Ctrl-D or `:quit` exits.");
                        begun.clear();
                    }
                    left => {
                        asked = left == Left::Nothing;
                        begun.clear();
                    }
                },
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Returns `code` after the user has edited it, or unchanged if that fails.
fn edited(code: &str) -> String {
    editor::edit(code).unwrap_or_else(|error| {
        cloze::note!("{error}");
        code.to_owned()
    })
}

/// Earlier cells, in a file that every REPL of the user appends to.
struct Past {
    file: PathBuf,
    /// Whether writing the file has failed, which is reported once.
    broken: bool,
}

impl Past {
    fn open(editor: &mut LineEditor) -> Result<Self> {
        let file = paths::history()?;
        if let Some(folder) = file.parent() {
            paths::create(folder)?;
        }
        let mut past = Self { broken: false, file };
        // The first time it does not exist.
        if past.file.exists() {
            let loaded = editor.load_history(&past.file);
            past.check(loaded);
        }
        Ok(past)
    }

    fn check(&mut self, result: rustyline::Result<()>) {
        if let Err(error) = result
            && !std::mem::replace(&mut self.broken, true)
        {
            let file = self.file.display();
            cloze::note!("{file}: {error}: this session's cells are not saved");
        }
    }

    /// Adds a cell, and writes it at once, so that a killed session loses nothing.
    fn add(&mut self, editor: &mut LineEditor, code: &str) -> Result<()> {
        let new = editor.add_history_entry(code).map_err(failed)?;
        if new && !self.broken {
            let appended = editor.append_history(&self.file);
            self.check(appended);
        }
        Ok(())
    }

    fn last(&self, editor: &LineEditor) -> String {
        let history = editor.history();
        let last = history.len().checked_sub(1);
        let entry = last.and_then(|index| history.get(index, SearchDirection::Reverse).ok()?);
        entry.map(|found| found.entry.into_owned()).unwrap_or_default()
    }
}
