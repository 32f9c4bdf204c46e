//! Limits how much a cell shows. A front end keeps all output in the notebook and in the page, and a
//! runaway loop prints enough in a second to make it stall. A note reports the amount not shown.
//!
//! Updates of a display do not count, because they replace what is shown; [`super::iopub`] limits those
//! that wait.

use std::sync::Mutex;

use cloze::display::Content;

use crate::mutex::lock;
use crate::session::{Event, Stream};

/// Overrides [`TEXT`]: megabytes that a cell may print.
const VARIABLE: &str = "CLOZE_OUTPUT_LIMIT";
/// Bytes of text that a cell may print.
const TEXT: usize = 10_000_000;
/// Bytes of displays that a cell may show, as a multiple of the text: pictures are large.
const DISPLAYS: usize = 8;

/// The output limit of one cell.
pub struct Limit {
    text: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    text_used: usize,
    text_hidden: usize,
    displays_used: usize,
    displays_hidden: usize,
}

impl Limit {
    /// Returns the user's limit, or the default.
    pub fn of_a_cell() -> Self {
        let set = std::env::var(VARIABLE).ok();
        let set = set.and_then(|megabytes| megabytes.parse::<usize>().ok());
        Self::new(set.map_or(TEXT, |megabytes| megabytes.saturating_mul(1_000_000)))
    }

    fn new(text: usize) -> Self {
        Self { text, state: Mutex::default() }
    }

    /// Passes on the part of an event that the limit allows.
    pub fn pass(&self, event: Event, show: impl Fn(Event)) {
        let mut state = lock(&self.state);
        match event {
            Event::Stream { stream, mut text } => {
                let room = self.text - state.text_used;
                let shown = text.floor_char_boundary(room);
                let first_hidden = state.text_hidden == 0 && shown < text.len();
                state.text_hidden += text.len() - shown;
                state.text_used += shown;
                if first_hidden {
                    // What is left is too small for the next character.
                    state.text_used = self.text;
                }
                text.truncate(shown);
                drop(state);
                if !text.is_empty() {
                    show(Event::Stream { stream, text });
                }
                if first_hidden {
                    show(note(format!(
                        "\n[{} MB shown: further output of this cell is only counted]\n",
                        megabytes(self.text)
                    )));
                }
            }
            Event::Display { content, id } => {
                if state.admits(&content, self.text) {
                    drop(state);
                    show(Event::Display { content, id });
                }
            }
            Event::Result(content) => {
                if state.admits(&content, self.text) {
                    drop(state);
                    show(Event::Result(content));
                }
            }
            Event::Clear { .. } => {
                // What is cleared no longer stands in the page. What was not shown stays reported.
                (state.text_used, state.displays_used) = (0, 0);
                drop(state);
                show(event);
            }
            shown @ (Event::Update { .. } | Event::Input { .. } | Event::Comm(_)) => {
                drop(state);
                show(shown);
            }
        }
    }

    /// Returns a note about the output not shown, when the cell has ended.
    pub fn note(&self) -> Option<Event> {
        let state = lock(&self.state);
        let mut hidden = Vec::new();
        if state.text_hidden > 0 {
            hidden.push(format!("{} MB of text", megabytes(state.text_hidden)));
        }
        if state.displays_hidden > 0 {
            let plural = if state.displays_hidden == 1 { "" } else { "s" };
            hidden.push(format!("{} display{plural}", state.displays_hidden));
        }
        (!hidden.is_empty()).then(|| {
            note(format!(
                "[not shown: {}. A cell shows {} MB of text and {} MB of displays; to see more \
                 start Jupyter with {VARIABLE}=100 (megabytes of text) in its environment]\n",
                hidden.join(" and "),
                megabytes(self.text),
                megabytes(self.text.saturating_mul(DISPLAYS)),
            ))
        })
    }
}

impl State {
    /// Counts a display, and returns whether it may be shown.
    fn admits(&mut self, content: &Content, text: usize) -> bool {
        let size: usize = content.formats().map(|(_, data)| data.len()).sum();
        let used = self.displays_used.saturating_add(size);
        if used > text.saturating_mul(DISPLAYS) {
            self.displays_hidden += 1;
            return false;
        }
        self.displays_used = used;
        true
    }
}

fn note(text: String) -> Event {
    Event::Stream { stream: Stream::Stderr, text }
}

/// Formats bytes as megabytes, with one decimal if they are not a round number.
fn megabytes(bytes: usize) -> String {
    let megabytes = bytes as f64 / 1e6;
    if bytes.is_multiple_of(1_000_000) {
        format!("{megabytes:.0}")
    } else if megabytes >= 0.1 {
        format!("{megabytes:.1}")
    } else {
        "under 0.1".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn shown(limit: &Limit, events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let all = RefCell::new(Vec::new());
        for event in events {
            limit.pass(event, |event| all.borrow_mut().push(event));
        }
        all.into_inner()
    }

    fn print(text: &str) -> Event {
        Event::Stream { stream: Stream::Stdout, text: text.to_owned() }
    }

    fn display(size: usize) -> Event {
        Event::Display { content: Content::text("x".repeat(size)), id: None }
    }

    #[test]
    fn text_is_cut_once_between_characters_and_the_rest_is_counted() {
        let limit = Limit::new(10);
        let seen = shown(&limit, ["12345678", "9€", "more", "and more"].map(print));
        assert_eq!(seen[..2], [print("12345678"), print("9")]);
        assert_eq!(seen.len(), 3, "{seen:?}");
        let limit = Limit::new(1_000_000);
        shown(&limit, [print(&"x".repeat(3_500_000))]);
        let Some(Event::Stream { text, .. }) = limit.note() else {
            panic!();
        };
        assert!(text.contains("2.5 MB of text") && text.contains(VARIABLE), "{text}");
    }

    #[test]
    fn cleared_output_makes_room_for_more() {
        let limit = Limit::new(10);
        let events = || [print("12345678"), display(70), Event::Clear { wait: true }];
        let all: Vec<Event> = events().into_iter().chain(events()).collect();
        assert_eq!(shown(&limit, all.clone()), all);
        assert_eq!(limit.note(), None);
    }

    #[test]
    fn output_within_the_limit_is_shown_without_a_note() {
        let limit = Limit::new(10);
        let events = [print("1234567890"), display(80)];
        assert_eq!(shown(&limit, events.clone()), events);
        assert_eq!(limit.note(), None);
    }

    #[test]
    fn displays_have_a_limit_of_their_own_and_updates_have_none() {
        let limit = Limit::new(10);
        let update = Event::Update { content: Content::text("x".repeat(1000)), id: "a".to_owned() };
        let seen = shown(&limit, [display(50), display(50), update.clone(), display(20)]);
        assert_eq!(seen, [display(50), update, display(20)]);
        let Some(Event::Stream { text, .. }) = limit.note() else {
            panic!();
        };
        assert!(text.contains("not shown: 1 display."), "{text}");
    }
}
