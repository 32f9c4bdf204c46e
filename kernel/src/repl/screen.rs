//! Shows the output of cells on a terminal or in a file: prints, displays, displays updated in place.
//!
//! A terminal cannot change earlier output, so a display is updated in place only as long as it is the
//! last output. Otherwise its last state is shown once, when the cell has ended.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use cloze::display::Content;
use unicode_width::UnicodeWidthStr;

use super::markdown;
use super::picture::{PNG, Protocol};
use crate::mutex::lock;
use crate::session::{CellError, Event, Outcome, Sink, Stream, without_colours};

const MARKDOWN: &str = "text/markdown";
/// The width of text in a file.
const WIDTH: usize = 80;

/// Columns and rows.
type Size = (usize, usize);

/// A screen that the session's threads share.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<State>>);

impl Screen {
    /// The process's standard output and error. A terminal shows `pictures`.
    pub fn standard(pictures: Option<Protocol>) -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self::new(State {
            out: Box::new(std::io::stdout()),
            err: Box::new(std::io::stderr()),
            colours: std::io::stderr().is_terminal() && !no_colour(),
            size: terminal.then_some(size as fn() -> Size),
            pictures: pictures.filter(|_| terminal),
            fresh: true,
            after_markdown: false,
            last_display: None,
            pending: Vec::new(),
        })
    }

    fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Takes a cell's events.
    pub fn sink(&self) -> Sink {
        let screen = self.clone();
        Arc::new(move |event| screen.state().take(event))
    }

    /// Shows the pages and the error at the end of a cell.
    pub fn end(&self, outcome: &Outcome) {
        let mut state = self.state();
        state.end();
        for page in &outcome.pages {
            state.print(&format!("{}\n", page.trim_end_matches('\n')));
        }
        if let Some(error) = &outcome.error {
            state.show_error(error);
        }
    }

    /// Begins a line for the user's input.
    pub fn begin_line(&self) {
        let mut state = self.state();
        if !state.fresh {
            state.print("\n");
        }
        state.last_display = None;
    }

    /// Begins a line after the terminal itself has written `^C`.
    pub fn echoed(&self) {
        let mut state = self.state();
        if state.size.is_some() {
            state.print("\n");
        }
    }
}

/// Returns whether the user has switched colours off (<https://no-color.org>).
pub fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn size() -> Size {
    terminal_size::terminal_size()
        .map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)))
}

/// The display at the end of the screen.
struct LastDisplay {
    id: String,
    rows: usize,
}

struct State {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    colours: bool,
    /// Returns the size of the terminal; `None` if there is no terminal.
    size: Option<fn() -> Size>,
    pictures: Option<Protocol>,
    /// Whether the next character begins a line.
    fresh: bool,
    /// Whether the last output was Markdown.
    after_markdown: bool,
    last_display: Option<LastDisplay>,
    /// Displays whose last state is not shown yet.
    pending: Vec<(String, Content)>,
}

impl State {
    fn take(&mut self, event: Event) {
        match event {
            Event::Stream { stream, text } => match stream {
                Stream::Stdout => self.print(&text),
                Stream::Stderr => self.print_error(&text),
            },
            Event::Display { content, id: None } | Event::Result(content) => self.show(&content),
            Event::Display { content, id: Some(id) } => match self.size {
                Some(_) => self.show_as(id, &content),
                None => self.postpone(id, content),
            },
            Event::Update { content, id } => {
                match self.last_display.take_if(|last| last.id == id) {
                    Some(last) => {
                        self.print(&format!("\x1b[{}A\r\x1b[J", last.rows));
                        self.fresh = true;
                        self.show_as(id, &content);
                    }
                    None => self.postpone(id, content),
                }
            }
            // A terminal cannot remove what it has shown.
            Event::Clear { .. } => self.pending.clear(),
            // The caller asks for input. A comm is for a page.
            Event::Input { .. } | Event::Comm(_) => {}
        }
    }

    fn print(&mut self, text: &str) {
        // A closed terminal is noticed when the next line is read.
        let _ = self.out.write_all(text.as_bytes());
        let _ = self.out.flush();
        self.printed(text);
    }

    fn print_error(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes());
        let _ = self.err.flush();
        self.printed(text);
    }

    fn printed(&mut self, text: &str) {
        if !text.is_empty() {
            self.fresh = text.ends_with('\n');
            self.last_display = None;
            self.after_markdown = false;
        }
    }

    fn new_line(&mut self) {
        if !self.fresh {
            self.print("\n");
        }
    }

    fn show(&mut self, content: &Content) {
        self.new_line();
        let picture = self.pictures.and_then(|protocol| protocol.draw(content));
        let text = picture.unwrap_or_else(|| self.lines(content));
        let is_markdown = content.get(MARKDOWN).is_some();
        let gap = if self.after_markdown && is_markdown { "\n" } else { "" };
        self.print(&format!("{gap}{text}"));
        self.after_markdown = is_markdown;
    }

    /// Shows a display that may be updated. A picture can't be, because only the terminal knows its height,
    /// nor can a display that is higher than the screen.
    fn show_as(&mut self, id: String, content: &Content) {
        self.show(content);
        let drawn = self.pictures.is_some() && content.get(PNG).is_some();
        let Some(size) = self.size.filter(|_| !drawn) else {
            return;
        };
        let (columns, height) = size();
        let rows = rows(&self.lines(content), columns);
        self.last_display = (rows < height).then_some(LastDisplay { id, rows });
    }

    /// Returns the text of a content as whole lines.
    fn lines(&self, content: &Content) -> String {
        let text = match content.get(MARKDOWN) {
            Some(text) => {
                let width = self.size.map_or(WIDTH, |size| size().0);
                markdown::render(text, width, self.colours)
            }
            None => self.broken(&content.plain()),
        };
        format!("{}\n", text.trim_end_matches('\n'))
    }

    /// Breaks the sentences of a text at the end of the screen.
    fn broken(&self, text: &str) -> String {
        match self.size {
            Some(size) => {
                let columns = size().0;
                let lines = text.split('\n').flat_map(|line| sentence(line, columns));
                lines.collect::<Vec<_>>().join("\n")
            }
            None => text.to_owned(),
        }
    }

    fn postpone(&mut self, id: String, content: Content) {
        match self.pending.iter_mut().find(|(known, _)| *known == id) {
            Some((_, known)) => *known = content,
            None => self.pending.push((id, content)),
        }
    }

    fn end(&mut self) {
        for (_, content) in std::mem::take(&mut self.pending) {
            self.show(&content);
        }
        self.new_line();
        self.last_display = None;
        self.after_markdown = false;
    }

    fn show_error(&mut self, error: &CellError) {
        let text = error.traceback.join("\n");
        let text = self.broken(&text);
        let text = match self.colours {
            true => text,
            false => without_colours(&text),
        };
        self.print_error(&format!("{text}\n"));
    }
}

/// Breaks a sentence at spaces. A line of code or of a table stays as it is.
fn sentence(line: &str, columns: usize) -> Vec<String> {
    let plain = without_colours(line);
    let text = plain.trim_start();
    let is_code =
        text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    if plain.width() <= columns || is_code || text.contains("  ") {
        return vec![line.to_owned()];
    }
    let indent = " ".repeat(plain.len() - text.len());
    let lines = markdown::wrapped(line, columns.saturating_sub(indent.len())).into_iter();
    lines.map(|line| format!("{indent}{line}")).collect()
}

/// Returns how many rows of a terminal a text of whole lines takes.
fn rows(text: &str, columns: usize) -> usize {
    let text = without_colours(text);
    let row = |line: &str| line.width().div_ceil(columns.max(1)).max(1);
    text.lines().map(row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects what is written.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn screen(terminal: bool) -> (Screen, Paper) {
        let paper = Paper::default();
        let screen = Screen::new(State {
            out: Box::new(paper.clone()),
            err: Box::new(paper.clone()),
            colours: false,
            size: terminal.then_some((|| (10, 5)) as fn() -> Size),
            pictures: None,
            fresh: true,
            after_markdown: false,
            last_display: None,
            pending: Vec::new(),
        });
        (screen, paper)
    }

    fn text(paper: &Paper) -> String {
        String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
    }

    fn print(text: &str) -> Event {
        Event::Stream { stream: Stream::Stdout, text: text.into() }
    }

    fn live(text: &str, first: bool) -> Event {
        let (content, id) = (Content::text(text), "live".to_owned());
        match first {
            true => Event::Display { content, id: Some(id) },
            false => Event::Update { content, id },
        }
    }

    fn shown(terminal: bool, events: &[Event]) -> String {
        let (screen, paper) = screen(terminal);
        let sink = screen.sink();
        for event in events {
            sink(event.clone());
        }
        screen.end(&Outcome::default());
        text(&paper)
    }

    #[test]
    fn the_last_display_is_updated_in_place() {
        let events = [live("a\nb", true), live("c", false), live("d", false)];
        assert_eq!(shown(true, &events), "a\nb\n\x1b[2A\r\x1b[Jc\n\x1b[1A\r\x1b[Jd\n");
    }

    #[test]
    fn other_displays_are_shown_in_their_last_state_at_the_end() {
        let events = [live("a", true), print("x"), live("b", false), live("c", false)];
        assert_eq!(shown(true, &events), "a\nx\nc\n");
        assert_eq!(shown(false, &events), "x\nc\n");
        let tall = [live("1\n2\n3\n4\n5", true), live("6", false)];
        assert_eq!(shown(true, &tall), "1\n2\n3\n4\n5\n6\n");
    }

    #[test]
    fn a_display_begins_a_line_and_a_cell_ends_one() {
        let events = [print("x"), Event::Result(Content::text("1"))];
        assert_eq!(shown(false, &events), "x\n1\n");
        assert_eq!(shown(false, &[print("x")]), "x\n");
        assert_eq!(shown(false, &[]), "");
    }

    #[test]
    fn a_cleared_display_that_waited_is_not_shown() {
        let events = [live("a", true), Event::Clear { wait: false }];
        assert_eq!(shown(false, &events), "");
    }

    #[test]
    fn a_sentence_is_broken_at_spaces_and_code_is_not() {
        assert_eq!(sentence("  one two three", 9), ["  one two", "  three"]);
        assert_eq!(sentence("   1 | let a = b;", 9).len(), 1);
    }

    #[test]
    fn rows_are_counted_after_line_breaking() {
        assert_eq!(rows("a\n", 10), 1);
        assert_eq!(rows("0123456789\n", 10), 1);
        assert_eq!(rows("0123456789a\n\n", 10), 3);
        assert_eq!(rows("\x1b[31m0123456789\x1b[0m\n", 10), 1);
        assert_eq!(rows("漢漢漢漢漢漢\n", 10), 2);
    }
}
