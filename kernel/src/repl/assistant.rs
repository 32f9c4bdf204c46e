//! Helps the line editor while the user types a cell: colours, completions, hints, completeness.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::history::SearchDirection;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Context, Helper};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::highlight;
use super::keys::{self, Rewriting};
use crate::session::{Completions, Session};

/// How many lines Alt-h shows.
const HELP: usize = 16;
/// How long Tab waits for a session that warms up.
const TIMEOUT: Duration = Duration::from_secs(3);
/// A completion's type is cut to this many characters.
const DETAIL: usize = 56;
/// Between a completion and its type.
const GAP: &str = "  ";

#[derive(Helper)]
pub struct Assistant {
    session: Arc<Session>,
    rewriting: Rewriting,
    colours: bool,
    /// Whether the line has been entered: then no brackets are highlighted.
    entered: Cell<bool>,
}

impl Assistant {
    pub fn new(session: Arc<Session>, rewriting: Rewriting, colours: bool) -> Self {
        Self { session, rewriting, colours, entered: Cell::new(false) }
    }

    fn completions(&self, code: &str, position: usize) -> Completions {
        let found = in_time(self.session.complete(code.to_owned(), position));
        found.unwrap_or_else(|| Completions::none(position))
    }

    /// Returns the first lines about the name at the end of `before`.
    pub fn help(&self, before: &str, after: &str) -> String {
        let found = in_time(self.session.inspect(format!("{before}{after}"), before.len()));
        let Some(content) = found.flatten() else {
            return "Nothing is known about this place.".to_owned();
        };
        let text = content.plain();
        let mut lines: Vec<&str> = text.trim_end().lines().collect();
        if lines.len() > HELP {
            lines.truncate(HELP);
            lines.push("… `:doc` and the name show all.");
        }
        lines.join("\n")
    }
}

/// Waits for the session's answer for a while.
fn in_time<T>(mut answer: Receiver<T>) -> Option<T> {
    let asked = Instant::now();
    while asked.elapsed() < TIMEOUT {
        match answer.try_recv() {
            Ok(found) => return Some(found),
            Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(2)),
            // The session could not start.
            Err(TryRecvError::Closed) => break,
        }
    }
    None
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match keys::wants_line(context.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        if let Some((start, line)) = self.rewriting.take(&line[..position]) {
            let rewritten = Pair { display: line.clone(), replacement: line };
            return Ok((start, vec![rewritten]));
        }
        let found = self.completions(line, position);
        let width = found.matches.iter().map(|name| name.chars().count()).max();
        let candidates = found.matches.iter().zip(&found.details);
        let candidates = candidates
            .map(|(name, detail)| Pair {
                display: display(name, width.unwrap_or(0), &detail.text),
                replacement: name.clone(),
            })
            .collect();
        Ok((found.start, candidates))
    }
}

/// Formats a completion for the list, with its type.
fn display(name: &str, width: usize, detail: &str) -> String {
    if detail.is_empty() {
        return name.to_owned();
    }
    let cut: String = match detail.chars().count() > DETAIL {
        true => detail.chars().take(DETAIL - 1).chain(['…']).collect(),
        false => detail.to_owned(),
    };
    format!("{name:width$}{GAP}{cut}")
}

/// The hint: the rest of an earlier cell, of which the first line is shown.
pub struct Earlier {
    rest: String,
    shown: String,
}

impl Hint for Earlier {
    fn display(&self) -> &str {
        &self.shown
    }

    fn completion(&self) -> Option<&str> {
        Some(&self.rest)
    }
}

impl Earlier {
    fn new(rest: &str) -> Option<Self> {
        let mut lines = rest.lines();
        let first = lines.next()?;
        let shown = match lines.next() {
            Some(_) => format!("{first} …"),
            None => first.to_owned(),
        };
        Some(Self { rest: rest.to_owned(), shown })
    }
}

impl Hinter for Assistant {
    type Hint = Earlier;

    fn hint(&self, line: &str, position: usize, context: &Context<'_>) -> Option<Earlier> {
        // Without colours a hint would look like typed text.
        if !self.colours || line.trim().is_empty() || position < line.len() {
            return None;
        }
        let last = context.history().len().checked_sub(1)?;
        let from = context.history_index().min(last);
        let history = context.history();
        let found = history.starts_with(line, from, SearchDirection::Reverse);
        Earlier::new(found.ok()??.entry.strip_prefix(line)?)
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, position: usize) -> Cow<'l, str> {
        let cursor = (!self.entered.get()).then_some(position);
        Cow::Owned(highlight::highlight(line, cursor))
    }

    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(
        &'s self,
        prompt: &'p str,
        _default: bool,
    ) -> Cow<'b, str> {
        Cow::Owned(highlight::prompt(prompt))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(highlight::dim(hint))
    }

    fn highlight_candidate<'c>(
        &self,
        candidate: &'c str,
        _completion: CompletionType,
    ) -> Cow<'c, str> {
        match candidate.split_once(GAP) {
            Some((name, detail)) => {
                Cow::Owned(format!("{name}{}", highlight::dim(&format!("{GAP}{detail}"))))
            }
            None => Cow::Borrowed(candidate),
        }
    }

    fn highlight_char(&self, line: &str, _position: usize, kind: CmdKind) -> bool {
        self.entered.set(kind == CmdKind::ForcedRefresh);
        // Every character may change the colours of earlier ones: `le`, `let`.
        !line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_follows_its_name_and_is_cut() {
        assert_eq!(display("len", 6, "fn(&self) -> usize"), "len     fn(&self) -> usize");
        assert_eq!(display("len", 6, ""), "len");
        let long = display("x", 1, &"é".repeat(200));
        assert_eq!(long.chars().count(), 1 + GAP.len() + DETAIL);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_hint_shows_the_first_line_and_completes_all_lines() {
        let hint = Earlier::new(" f() {\n    1\n}").unwrap();
        assert_eq!(hint.display(), " f() { …");
        assert_eq!(hint.completion(), Some(" f() {\n    1\n}"));
        assert!(Earlier::new("").is_none());
    }
}
