//! The state of the running cell, and what it leaves behind.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use cloze::display::Content;
use cloze::display::wire::{Mode, Record};

use crate::session::{Event, Sink};

/// A panic that reached the hook on the cell's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    pub message: String,
    pub file: String,
    pub line: u32,
}

/// What a cell left behind besides the events already sent.
#[derive(Debug, Default)]
pub struct Collected {
    /// The last panic of the cell's thread.
    pub panic: Option<Panic>,
    /// Whether a panic (or an interrupt's unwinding) ended the cell.
    pub unwound: bool,
    /// The error with which `?` ended the cell.
    pub user_error: Option<String>,
    /// Variables whose types have changed: the cell's code has not run, because they are lost.
    pub changed: Vec<String>,
    /// The end of the text on standard error.
    pub error_tail: String,
    /// The value of the last expression.
    pub value: Option<Content>,
    /// Texts for the pager.
    pub pages: Vec<String>,
    /// The exercises that were checked, and whether they passed.
    pub checked: Vec<(String, bool)>,
    /// How long the cell's code ran, if it came to its end.
    pub ran: Option<Duration>,
    /// Whether the user interrupted the cell.
    pub interrupted: bool,
}

/// How much of standard error is kept, in bytes.
const TAIL: usize = 16 << 10;

impl Collected {
    pub fn keep_error(&mut self, text: &str) {
        self.error_tail.push_str(text);
        let surplus = self.error_tail.len().saturating_sub(TAIL);
        let cut = (surplus..=self.error_tail.len())
            .find(|&place| self.error_tail.is_char_boundary(place));
        self.error_tail.drain(..cut.unwrap_or(0));
    }
}

/// The running cell, and what came on its pipes so far.
#[derive(Default)]
pub struct State {
    /// Whether a cell has begun and not ended.
    pub active: bool,
    /// Where its events go.
    pub sink: Option<Sink>,
    pub collected: Collected,
    /// The live displays shown so far.
    pub live: HashSet<String>,
    /// Variables that evcxr knows but that no longer exist. It forgets them when it runs the next cell.
    pub lost: Vec<String>,
    /// The cell (child and run) that was last allowed to run.
    pub begun: Option<(u32, u64)>,
    /// The last end mark (child and run) on standard output and on standard error.
    pub ends: [Option<(u32, u64)>; 2],
    /// The child whose code runs, and since when.
    pub running: Option<(u32, Instant)>,
    /// Whether the user interrupted the cell.
    pub interrupted: bool,
    /// Whether the cell waits for input and the front end knows it.
    pub asking: bool,
    /// How often the cell has asked for input.
    pub questions: u64,
}

impl State {
    pub fn send(&self, event: Event) {
        if let Some(sink) = &self.sink {
            sink(event);
        }
    }

    pub fn ask(&mut self, prompt: String) {
        self.asking = true;
        self.questions += 1;
        self.send(Event::Input { prompt });
    }

    /// Turns a value into a display, because more output follows it.
    pub fn release_value(&mut self) {
        if let Some(content) = self.collected.value.take() {
            self.send(Event::Display { content, id: None });
        }
    }

    /// Adds one format of a value; a format that the value already has begins the next value.
    pub fn add_content(&mut self, mime: String, data: String) {
        let fits = |value: &Content| value.get(&mime).is_none();
        if !self.collected.value.as_ref().is_none_or(fits) {
            self.release_value();
        }
        let value = self.collected.value.take().unwrap_or_default();
        self.collected.value = Some(value.with(mime, data));
    }

    pub fn show(&mut self, record: Record) {
        match record {
            Record::Display { mode, content } => {
                self.release_value();
                match mode {
                    Mode::Result => self.collected.value = Some(content),
                    Mode::New { id } => self.send(Event::Display { content, id }),
                    Mode::Update { id } => self.send(Event::Update { content, id }),
                    Mode::Live { id } if self.live.insert(id.clone()) => {
                        self.send(Event::Display { content, id: Some(id) });
                    }
                    Mode::Live { id } => self.send(Event::Update { content, id }),
                }
            }
            Record::Clear { wait } => self.send(Event::Clear { wait }),
            Record::Page { text } => self.collected.pages.push(text),
            Record::Comm(comm) => self.send(Event::Comm(comm)),
            Record::Checked { id, passed } => self.collected.checked.push((id, passed)),
            Record::Panic { message, file, line } => {
                self.collected.panic = Some(Panic { message, file, line });
            }
            Record::Failed { message } => self.collected.user_error = Some(message),
            // The channel and the splitter handle these.
            Record::Begin { .. }
            | Record::End { .. }
            | Record::Input { .. }
            | Record::Own { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_standard_error_is_kept() {
        let mut collected = Collected::default();
        for _ in 0..2 * TAIL / 3 {
            collected.keep_error("größe");
        }
        collected.keep_error("\nlast\n\n");
        assert!((TAIL - 4..=TAIL).contains(&collected.error_tail.len()));
        assert!(collected.error_tail.ends_with("größe\nlast\n\n"));
    }
}
