//! The inputs of this session and their values, for `history_request`.

use jupyter_protocol::{HistoryEntry, HistoryReply, HistoryRequest};

/// This session's number in the protocol: counting is by kernel, so there is one.
const SESSION: usize = 1;

/// A cell that was run.
#[derive(Debug, Clone)]
struct Entry {
    count: usize,
    code: String,
    value: String,
}

/// Cells, oldest first.
#[derive(Debug, Default)]
pub struct History(Vec<Entry>);

impl History {
    /// Adds the input of the cell numbered `count`.
    pub fn push(&mut self, count: usize, code: &str) {
        self.0.push(Entry {
            count,
            code: code.to_owned(),
            value: String::new(),
        });
    }

    /// Adds the text of the value of the cell numbered `count`.
    pub fn set_value(&mut self, count: usize, value: &str) {
        if let Some(entry) = self.0.iter_mut().rfind(|entry| entry.count == count) {
            value.clone_into(&mut entry.value);
        }
    }

    /// Answers a request.
    pub fn answer(&self, request: &HistoryRequest) -> HistoryReply {
        let (found, with_values): (Vec<&Entry>, bool) = match request {
            HistoryRequest::Tail { n, output, .. } => (last(self.0.iter().collect(), *n), *output),
            HistoryRequest::Range {
                session,
                start,
                stop,
                output,
                ..
            } => {
                // 0 is the session that runs; others are not kept.
                let ours = session.is_none_or(|session| session == 0 || session == SESSION as i32);
                let within = |entry: &&Entry| {
                    let count = entry.count as i32;
                    ours && count >= *start && (*stop == 0 || count < *stop)
                };
                (self.0.iter().filter(within).collect(), *output)
            }
            HistoryRequest::Search {
                pattern,
                unique,
                n,
                output,
                ..
            } => {
                let pattern: Vec<char> = pattern.chars().collect();
                let mut found: Vec<_> = self
                    .0
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
                        HistoryEntry::InputOutput(SESSION, entry.count, both)
                    } else {
                        HistoryEntry::Input(SESSION, entry.count, code)
                    }
                })
                .collect(),
        )
    }
}

/// The last `n` entries; all of them where the front end sets no number.
fn last(mut found: Vec<&Entry>, n: i32) -> Vec<&Entry> {
    let n = if n > 0 { n as usize } else { found.len() };
    found.split_off(found.len().saturating_sub(n))
}

/// Whether `text` is of the form `pattern`, in which `*` stands for anything and `?` for a
/// character.
fn matches(pattern: &[char], text: &[char]) -> bool {
    // Where the last `*` was and how much of the text it has taken so far.
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
        let request = HistoryRequest::Tail {
            n: 2,
            output: false,
            raw: true,
        };
        assert_eq!(
            inputs(&request),
            [(3, "let b = a;".into()), (4, "a".into())]
        );
    }

    #[test]
    fn a_range_has_its_start_and_not_its_stop() {
        let request = HistoryRequest::Range {
            session: Some(0),
            start: 2,
            stop: 4,
            output: true,
            raw: true,
        };
        assert_eq!(
            inputs(&request),
            [(2, "a".into()), (3, "let b = a;".into())]
        );
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
