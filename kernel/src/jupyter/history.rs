//! The inputs of this session, for `history_request`.

use jupyter_protocol::{HistoryEntry, HistoryReply, HistoryRequest};

/// This session's number in the protocol: counting is by kernel, so there is one.
const SESSION: usize = 1;

/// Numbered inputs, oldest first.
#[derive(Debug, Default)]
pub struct History(Vec<(usize, String)>);

impl History {
    /// Adds the input of the cell numbered `count`.
    pub fn push(&mut self, count: usize, code: &str) {
        self.0.push((count, code.to_owned()));
    }

    /// Answers a request; outputs are not kept, so they are left out where they are asked for.
    pub fn answer(&self, request: &HistoryRequest) -> HistoryReply {
        let found: Vec<&(usize, String)> = match request {
            HistoryRequest::Tail { n, .. } => self.last(self.0.iter().collect(), *n),
            HistoryRequest::Range {
                session,
                start,
                stop,
                ..
            } => {
                // 0 is the session that runs; others are not kept.
                let ours = session.is_none_or(|session| session == 0 || session == SESSION as i32);
                self.0
                    .iter()
                    .filter(|(count, _)| {
                        let count = *count as i32;
                        ours && count >= *start && (*stop == 0 || count < *stop)
                    })
                    .collect()
            }
            HistoryRequest::Search {
                pattern, unique, n, ..
            } => {
                let pattern: Vec<char> = pattern.chars().collect();
                let mut found: Vec<_> = self
                    .0
                    .iter()
                    .filter(|(_, code)| matches(&pattern, &code.chars().collect::<Vec<_>>()))
                    .collect();
                if *unique {
                    let mut seen = std::collections::HashSet::new();
                    found.reverse();
                    found.retain(|(_, code)| seen.insert(code));
                    found.reverse();
                }
                self.last(found, *n)
            }
        };
        HistoryReply::new(
            found
                .into_iter()
                .map(|(count, code)| HistoryEntry::Input(SESSION, *count, code.clone()))
                .collect(),
        )
    }

    /// The last `n` entries; all of them where the front end sets no number.
    fn last<'a>(&self, mut found: Vec<&'a (usize, String)>, n: i32) -> Vec<&'a (usize, String)> {
        let n = if n > 0 { n as usize } else { found.len() };
        found.split_off(found.len().saturating_sub(n))
    }
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
        }
        history
            .answer(request)
            .history
            .into_iter()
            .map(|entry| match entry {
                HistoryEntry::Input(_, count, code) => (count, code),
                HistoryEntry::InputOutput(..) => panic!("no outputs are kept"),
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
