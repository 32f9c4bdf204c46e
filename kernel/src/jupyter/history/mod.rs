//! The inputs of this session and of earlier ones, with their values, for `history_request`.

mod file;

use std::path::{Path, PathBuf};

use jupyter_protocol::{HistoryEntry, HistoryReply, HistoryRequest};

/// A cell that was run.
#[derive(Debug, Clone)]
pub struct Entry {
    session: usize,
    count: usize,
    code: String,
    value: String,
}

/// Cells, oldest first.
#[derive(Debug)]
pub struct History {
    entries: Vec<Entry>,
    /// This session's number.
    session: usize,
    /// The file that keeps it.
    path: Option<PathBuf>,
}

impl Default for History {
    fn default() -> Self {
        Self { entries: Vec::new(), session: 1, path: None }
    }
}

impl History {
    /// Opens the history in the file `path`, and begins a new session in it. If the file can't be read or
    /// written, the history lasts as long as this session.
    pub fn open(path: &Path) -> Self {
        match file::open(path) {
            Ok((entries, session)) => Self { entries, session, path: Some(path.to_owned()) },
            Err(error) => {
                let path = path.display();
                cloze::note!("cloze-kernel: {path}: history is not kept: {error}");
                Self::default()
            }
        }
    }

    /// Adds the input of the cell numbered `count`.
    pub fn push(&mut self, count: usize, code: &str) {
        let entry =
            Entry { session: self.session, count, code: code.to_owned(), value: String::new() };
        // A full disk must not stop a cell.
        let _ = self.path.as_deref().map(|path| file::add(path, &entry));
        self.entries.push(entry);
    }

    /// Adds the text of the value of the cell numbered `count`.
    pub fn set_value(&mut self, count: usize, value: &str) {
        let ours = (self.session, count);
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.rfind(|entry| (entry.session, entry.count) == ours) {
            value.clone_into(&mut entry.value);
            // As above.
            let _ = self.path.as_deref().map(|path| file::add_value(path, entry));
        }
    }

    /// Returns the session of a request. A number that is not positive counts back from this session.
    fn requested_session(&self, session: Option<i32>) -> i64 {
        match i64::from(session.unwrap_or(0)) {
            back @ ..=0 => self.session as i64 + back,
            number => number,
        }
    }

    /// Answers a request.
    pub fn answer(&self, request: &HistoryRequest) -> HistoryReply {
        let (found, with_values): (Vec<&Entry>, bool) = match request {
            HistoryRequest::Tail { n, output, .. } => {
                (last(self.entries.iter().collect(), *n), *output)
            }
            HistoryRequest::Range { session, start, stop, output, .. } => {
                let requested = self.requested_session(*session);
                let within = |entry: &&Entry| {
                    let count = entry.count as i32;
                    entry.session as i64 == requested
                        && count >= *start
                        && (*stop == 0 || count < *stop)
                };
                (self.entries.iter().filter(within).collect(), *output)
            }
            HistoryRequest::Search { pattern, unique, n, output, .. } => {
                let pattern: Vec<char> = pattern.chars().collect();
                let mut found: Vec<_> = self
                    .entries
                    .iter()
                    .filter(|entry| matches(&pattern, &entry.code.chars().collect::<Vec<_>>()))
                    .collect();
                if *unique {
                    let mut seen = std::collections::HashSet::new();
                    found.reverse();
                    found.retain(|entry| seen.insert(&entry.code));
                    found.reverse();
                }
                (last(found, *n), *output)
            }
        };
        HistoryReply::new(
            found
                .into_iter()
                .map(|entry| {
                    let code = entry.code.clone();
                    if with_values {
                        let both = (code, entry.value.clone());
                        HistoryEntry::InputOutput(entry.session, entry.count, both)
                    } else {
                        HistoryEntry::Input(entry.session, entry.count, code)
                    }
                })
                .collect(),
        )
    }
}

/// Returns the last `n` entries, or all if the front end gives no number.
fn last(mut found: Vec<&Entry>, n: i32) -> Vec<&Entry> {
    let n = if n > 0 { n as usize } else { found.len() };
    found.split_off(found.len().saturating_sub(n))
}

/// Returns whether `text` matches `pattern`, in which `*` stands for any text and `?` for a character.
fn matches(pattern: &[char], text: &[char]) -> bool {
    // The position of the last `*`, and the end of the text that it matches so far.
    let (mut at, mut position, mut star) = (0, 0, None);
    while position < text.len() {
        if at < pattern.len() && pattern[at] == '*' {
            star = Some((at, position));
            at += 1;
        } else if at < pattern.len() && (pattern[at] == '?' || pattern[at] == text[position]) {
            at += 1;
            position += 1;
        } else if let Some((star_at, taken)) = star {
            star = Some((star_at, taken + 1));
            at = star_at + 1;
            position = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&character| character == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(request: &HistoryRequest) -> Vec<(usize, String)> {
        let mut history = History::default();
        for (index, code) in ["let a = 1;", "a", "let b = a;", "a"].iter().enumerate() {
            history.push(index + 1, code);
            if *code == "a" {
                history.set_value(index + 1, "1");
            }
        }
        history
            .answer(request)
            .history
            .into_iter()
            .map(|entry| match entry {
                HistoryEntry::Input(_, count, code) => (count, code),
                HistoryEntry::InputOutput(_, count, (code, value)) => {
                    assert_eq!(value, if code == "a" { "1" } else { "" });
                    (count, code)
                }
            })
            .collect()
    }

    #[test]
    fn the_tail_is_the_newest_inputs_in_order() {
        let request = HistoryRequest::Tail { n: 2, output: false, raw: true };
        assert_eq!(inputs(&request), [(3, "let b = a;".into()), (4, "a".into())]);
    }

    #[test]
    fn a_range_includes_its_start_and_not_its_stop() {
        let request =
            HistoryRequest::Range { session: Some(0), start: 2, stop: 4, output: true, raw: true };
        assert_eq!(inputs(&request), [(2, "a".into()), (3, "let b = a;".into())]);
    }

    #[test]
    fn earlier_sessions_are_found_by_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        History::open(&path).push(1, "let old = 1;");
        let mut history = History::open(&path);
        history.push(1, "let new = 1;");
        let found = |request| -> Vec<(usize, String)> {
            let entries = history.answer(&request).history.into_iter();
            entries
                .map(|entry| match entry {
                    HistoryEntry::Input(session, _, code) => (session, code),
                    HistoryEntry::InputOutput(..) => panic!("not asked for"),
                })
                .collect()
        };
        let (old, new) = ((1, "let old = 1;".into()), (2, "let new = 1;".into()));
        let range = |session| HistoryRequest::Range {
            session: Some(session),
            start: 0,
            stop: 0,
            output: false,
            raw: true,
        };
        assert_eq!(found(range(0)), std::slice::from_ref(&new));
        assert_eq!(found(range(-1)), std::slice::from_ref(&old));
        assert_eq!(found(range(1)), std::slice::from_ref(&old));
        let tail = HistoryRequest::Tail { n: 9, output: false, raw: true };
        assert_eq!(found(tail), [old, new]);
    }

    #[test]
    fn a_search_takes_wildcards_and_drops_repetitions() {
        let search = |pattern: &str, unique| {
            inputs(&HistoryRequest::Search {
                pattern: pattern.into(),
                unique,
                output: false,
                raw: true,
                n: 10,
            })
        };
        assert_eq!(search("let ? =*", false).len(), 2);
        assert_eq!(search("a", true), [(4, "a".into())]);
        assert_eq!(search("*c*", false), []);
    }
}
