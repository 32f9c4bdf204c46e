//! What the keys do that a cell needs and a shell's line does not: Enter that goes on in a new line,
//! indentation, the external editor.

use std::sync::{Arc, Mutex};

use rustyline::{
    Cmd, ConditionalEventHandler, Editor, Event, EventContext, EventHandler, Helper, KeyCode,
    KeyEvent, Modifiers, RepeatCount,
};

use crate::mutex::lock;
use crate::session::completeness::{self, Completeness, INDENT};

/// What an interrupted line was left for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Left {
    /// Ctrl-C on a line with text in it.
    #[default]
    Text,
    /// Ctrl-C on an empty line.
    Nothing,
    /// The text is wanted in the external editor.
    ForEditor(String),
}

/// Shared by the keys, which learn why a line is left, and the loop, which acts on it.
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

/// What the line up to the cursor is to be instead. rustyline changes a line so for a completion
/// alone: the key asks for one, and the helper gives this.
#[derive(Debug, Clone, Default)]
pub struct Rewriting(Arc<Mutex<Option<String>>>);

impl Rewriting {
    fn set(&self, line: String) {
        *lock(&self.0) = Some(line);
    }

    /// The new line and where the old one begins.
    pub fn take(&self, before: &str) -> Option<(usize, String)> {
        let line = lock(&self.0).take()?;
        Some((before.len() - last_line(before).len(), line))
    }
}

/// Gives the editor its keys.
pub fn bind<H: Helper, I: rustyline::history::History>(
    editor: &mut Editor<H, I>,
    leaving: &Leaving,
    rewriting: &Rewriting,
) {
    let mut bind = |event: Event, key: Key| {
        editor.bind_sequence(event, EventHandler::Conditional(Box::new(key)));
    };
    bind(KeyEvent(KeyCode::Enter, Modifiers::NONE).into(), Key::Enter);
    // What Enter becomes where it was pressed before the prompt was there.
    bind(KeyEvent::ctrl('J').into(), Key::Enter);
    bind(
        KeyEvent(KeyCode::Enter, Modifiers::ALT).into(),
        Key::NewLine,
    );
    bind(KeyEvent::from('\t').into(), Key::Tab);
    for bracket in ['}', ')', ']'] {
        let key = Key::Close(bracket, rewriting.clone());
        bind(KeyEvent::from(bracket).into(), key);
    }
    bind(KeyEvent::ctrl('C').into(), Key::Interrupt(leaving.clone()));
    bind(
        Event::KeySeq(vec![KeyEvent::ctrl('X'), KeyEvent::ctrl('E')]),
        Key::Edit(leaving.clone()),
    );
}

enum Key {
    Enter,
    NewLine,
    Tab,
    Close(char, Rewriting),
    Interrupt(Leaving),
    Edit(Leaving),
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
            Self::Enter if wants_line(code) => {
                Some(Cmd::Insert(1, format!("\n{}", indent_after(before))))
            }
            Self::Enter => None,
            Self::NewLine => Some(Cmd::Insert(1, format!("\n{}", indent_after(before)))),
            // Where no word stands before the cursor there is nothing to complete.
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
        }
    }
}

/// Whether Enter goes on in a new line. Two empty lines end a cell that seems to want more: the
/// compiler will say what is missing.
pub fn wants_line(code: &str) -> bool {
    let ends_empty = code.rsplit('\n').take(2).all(|line| line.trim().is_empty());
    let given_up = ends_empty && code.matches('\n').count() >= 2;
    !given_up && matches!(completeness::judge(code), Completeness::Incomplete { .. })
}

/// The indentation of the line that follows `before`.
fn indent_after(before: &str) -> String {
    match completeness::judge(before) {
        Completeness::Incomplete { indent } => indent,
        Completeness::Complete | Completeness::Invalid => String::new(),
    }
}

fn last_line(text: &str) -> &str {
    text.rsplit('\n').next().unwrap_or(text)
}

/// What stays of a line's indentation where a closing bracket begins the line.
fn dedented(before: &str) -> Option<&str> {
    let line = last_line(before);
    let blank = !line.is_empty() && line.chars().all(|character| character == ' ');
    blank.then(|| line.strip_prefix(INDENT).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_goes_on_where_something_is_open() {
        assert!(wants_line("fn f() {"));
        assert!(wants_line("fn f() {\n    a();\n    "));
        assert!(!wants_line("fn f() {\n    a();\n    \n    "));
        assert!(!wants_line("1 + 1"));
        assert!(!wants_line("}"));
        assert!(wants_line("let s = \""));
    }

    #[test]
    fn a_new_line_is_indented_and_a_closing_bracket_goes_back() {
        assert_eq!(indent_after("fn f() { if a {"), "        ");
        assert_eq!(indent_after("a"), "");
        assert_eq!(dedented("fn f() {\n    "), Some(""));
        assert_eq!(dedented("{\n{\n        "), Some("    "));
        assert_eq!(dedented("fn f() {\n  "), Some(""));
        assert_eq!(dedented("fn f() {\n"), None);
        assert_eq!(dedented("f("), None);
    }

    #[test]
    fn why_a_line_was_left_is_told_once() {
        let leaving = Leaving::default();
        leaving.set(Left::ForEditor("1".to_owned()));
        assert_eq!(leaving.take(), Left::ForEditor("1".to_owned()));
        assert_eq!(leaving.take(), Left::Text);
    }

    #[test]
    fn a_line_is_rewritten_from_its_beginning_and_once() {
        let rewriting = Rewriting::default();
        rewriting.set("}".to_owned());
        let code = "é {\n    ";
        assert_eq!(rewriting.take(code), Some((5, "}".to_owned())));
        assert_eq!(rewriting.take(code), None);
    }
}
