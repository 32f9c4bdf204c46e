//! Keys for cells of several lines: Enter that begins a new line, indentation, the external editor.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustyline::{
    Cmd, ConditionalEventHandler, Editor, Event, EventContext, EventHandler, Helper, KeyCode,
    KeyEvent, Modifiers, RepeatCount,
};

use crate::mutex::lock;
use crate::session::completeness::{self, Completeness, INDENT};

/// Why the user left a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Left {
    /// Ctrl-C on a line with text in it.
    #[default]
    Text,
    /// Ctrl-C on an empty line.
    Nothing,
    /// To edit the text in the external editor.
    ForEditor(String),
    /// To read about the name at the cursor: the text before it and after it.
    ForHelp(String, String),
}

/// Passes the reason for leaving a line from the keys to the main loop.
#[derive(Debug, Clone, Default)]
pub struct Leaving(Arc<Mutex<Left>>);

impl Leaving {
    fn set(&self, left: Left) {
        *lock(&self.0) = left;
    }

    pub fn take(&self) -> Left {
        std::mem::take(&mut lock(&self.0))
    }
}

/// A replacement for the line up to the cursor. rustyline allows that only for completions, so the key
/// requests a completion, and the helper returns this.
#[derive(Debug, Clone, Default)]
pub struct Rewriting(Arc<Mutex<Option<String>>>);

impl Rewriting {
    fn set(&self, line: String) {
        *lock(&self.0) = Some(line);
    }

    /// Returns the new line and where the old one begins.
    pub fn take(&self, before: &str) -> Option<(usize, String)> {
        let line = lock(&self.0).take()?;
        Some((before.len() - last_line(before).len(), line))
    }
}

/// Spaces that follow Enter, and one another, faster than this are pasted, or typed by somebody who expects no
/// indentation. Drawing the cell delays them: with 30 ms in a slow terminal, and with 200 ms on two cores under a load of
/// eight, a pasted line was indented twice.
const PASTED: Duration = Duration::from_secs(1);

/// The indentation that Enter has inserted. A pasted line brings its own, in place of which this one stays.
#[derive(Clone, Default)]
struct Inserted(Arc<Mutex<Option<(Instant, usize)>>>);

impl Inserted {
    fn set(&self, spaces: usize) {
        *lock(&self.0) = Some((Instant::now(), spaces));
    }

    /// Returns whether a space stands for one of those inserted.
    fn replaces(&self) -> bool {
        let mut inserted = lock(&self.0);
        let Some((last, left)) = inserted.take() else {
            return false;
        };
        let replaces = left > 0 && last.elapsed() < PASTED;
        if replaces {
            *inserted = Some((Instant::now(), left - 1));
        }
        replaces
    }
}

/// Binds the keys of the editor.
pub fn bind<H: Helper, I: rustyline::history::History>(
    editor: &mut Editor<H, I>,
    leaving: &Leaving,
    rewriting: &Rewriting,
) {
    let mut bind = |event: Event, key: Key| {
        editor.bind_sequence(event, EventHandler::Conditional(Box::new(key)));
    };
    let inserted = Inserted::default();
    bind(KeyEvent(KeyCode::Enter, Modifiers::NONE).into(), Key::Enter(inserted.clone()));
    // Enter, if it was pressed before the prompt appeared.
    bind(KeyEvent::ctrl('J').into(), Key::Enter(inserted.clone()));
    bind(KeyEvent(KeyCode::Enter, Modifiers::ALT).into(), Key::NewLine);
    bind(KeyEvent::from(' ').into(), Key::Space(inserted));
    bind(KeyEvent::from('\t').into(), Key::Tab);
    for bracket in ['}', ')', ']'] {
        let key = Key::Close(bracket, rewriting.clone());
        bind(KeyEvent::from(bracket).into(), key);
    }
    bind(KeyEvent::ctrl('C').into(), Key::Interrupt(leaving.clone()));
    bind(KeyEvent(KeyCode::Char('h'), Modifiers::ALT).into(), Key::Help(leaving.clone()));
    bind(Event::KeySeq(vec![KeyEvent::ctrl('X'), KeyEvent::ctrl('E')]), Key::Edit(leaving.clone()));
}

enum Key {
    Enter(Inserted),
    NewLine,
    Space(Inserted),
    Tab,
    Close(char, Rewriting),
    Interrupt(Leaving),
    Edit(Leaving),
    Help(Leaving),
}

impl ConditionalEventHandler for Key {
    fn handle(
        &self,
        _event: &Event,
        _count: RepeatCount,
        _positive: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        let (code, position) = (context.line(), context.pos());
        let before = &code[..position];
        match self {
            Self::Enter(inserted) if wants_line(code) => {
                let indent = indent_after(before);
                inserted.set(indent.len());
                Some(Cmd::Insert(1, format!("\n{indent}")))
            }
            Self::Enter(_) => None,
            Self::Space(inserted) => {
                let blank = last_line(before).trim().is_empty();
                (blank && inserted.replaces()).then_some(Cmd::Noop)
            }
            Self::NewLine => Some(Cmd::Insert(1, format!("\n{}", indent_after(before)))),
            // Without a word before the cursor there is nothing to complete.
            Self::Tab if last_line(before).trim().is_empty() => {
                Some(Cmd::Insert(1, INDENT.to_owned()))
            }
            Self::Tab => None,
            Self::Close(bracket, rewriting) => {
                let kept = dedented(before)?;
                rewriting.set(format!("{kept}{bracket}"));
                Some(Cmd::Complete)
            }
            Self::Interrupt(leaving) => {
                leaving.set(match code {
                    "" => Left::Nothing,
                    _ => Left::Text,
                });
                Some(Cmd::Interrupt)
            }
            Self::Edit(leaving) => {
                leaving.set(Left::ForEditor(code.to_owned()));
                Some(Cmd::Interrupt)
            }
            Self::Help(leaving) => {
                leaving.set(Left::ForHelp(before.to_owned(), code[position..].to_owned()));
                Some(Cmd::Interrupt)
            }
        }
    }
}

/// Returns whether Enter begins a new line. Two empty lines end an incomplete cell: the compiler will
/// report what is missing.
pub fn wants_line(code: &str) -> bool {
    let ends_empty = code.rsplit('\n').take(2).all(|line| line.trim().is_empty());
    let given_up = ends_empty && code.matches('\n').count() >= 2;
    !given_up && matches!(completeness::judge(code), Completeness::Incomplete { .. })
}

/// Returns the indentation of the line after `before`.
fn indent_after(before: &str) -> String {
    match completeness::judge(before) {
        Completeness::Incomplete { indent } => indent,
        Completeness::Complete | Completeness::Invalid => String::new(),
    }
}

fn last_line(text: &str) -> &str {
    text.rsplit('\n').next().unwrap_or(text)
}

/// Returns the indentation that remains if a closing bracket begins the line.
fn dedented(before: &str) -> Option<&str> {
    let line = last_line(before);
    let blank = !line.is_empty() && line.chars().all(|character| character == ' ');
    blank.then(|| line.strip_prefix(INDENT).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_begins_a_new_line_in_incomplete_code() {
        assert!(wants_line("fn f() {"));
        assert!(wants_line("fn f() {\n    a();\n    "));
        assert!(!wants_line("fn f() {\n    a();\n    \n    "));
        assert!(!wants_line("1 + 1"));
        assert!(!wants_line("}"));
        assert!(wants_line("let s = \""));
    }

    #[test]
    fn a_new_line_is_indented_and_a_closing_bracket_is_dedented() {
        assert_eq!(indent_after("fn f() { if a {"), "        ");
        assert_eq!(indent_after("a"), "");
        assert_eq!(dedented("fn f() {\n    "), Some(""));
        assert_eq!(dedented("{\n{\n        "), Some("    "));
        assert_eq!(dedented("fn f() {\n  "), Some(""));
        assert_eq!(dedented("fn f() {\n"), None);
        assert_eq!(dedented("f("), None);
    }

    #[test]
    fn the_spaces_of_a_pasted_line_replace_the_inserted_ones() {
        let inserted = Inserted::default();
        assert!(!inserted.replaces());
        inserted.set(2);
        assert_eq!(
            [inserted.replaces(), inserted.replaces(), inserted.replaces()],
            [true, true, false]
        );
        let inserted = Inserted(Arc::new(Mutex::new(Some((Instant::now() - PASTED, 2)))));
        assert!(!inserted.replaces());
    }

    #[test]
    fn the_reason_for_leaving_a_line_is_passed_on_once() {
        let leaving = Leaving::default();
        leaving.set(Left::ForEditor("1".to_owned()));
        assert_eq!(leaving.take(), Left::ForEditor("1".to_owned()));
        assert_eq!(leaving.take(), Left::Text);
    }

    #[test]
    fn a_line_is_rewritten_once_from_its_beginning() {
        let rewriting = Rewriting::default();
        rewriting.set("}".to_owned());
        let code = "é {\n    ";
        assert_eq!(rewriting.take(code), Some((5, "}".to_owned())));
        assert_eq!(rewriting.take(code), None);
    }
}
