//! Showing pictures, tables and text where the reader is.
//!
//! In a cell of a notebook or of the REPL a display travels to the session as one line of JSON on
//! standard output, marked by a prefix that only this session knows; the session turns it into the
//! front end's own messages. Anywhere else (`cargo run --example`, a test) it degrades to a short
//! line of text, never to markup.
//!
//! ```
//! use cloze::display::{self, Content};
//! display::svg("<svg xmlns='http://www.w3.org/2000/svg'/>");
//! for step in 0..3 {
//!     display::live("loss", Content::html(format!("<b>{step}</b>")).with_text(format!("{step}")));
//! }
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use serde::{Deserialize, Serialize};

use super::png;
use crate::error::{Error, Result};

const HTML: &str = "text/html";
const SVG: &str = "image/svg+xml";
const PNG: &str = "image/png";
const TEXT: &str = "text/plain";

/// One thing to show, in as many formats as it has: the front end takes the richest that it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Content(BTreeMap<String, String>);

impl Content {
    /// A fragment of HTML.
    pub fn html(html: impl Into<String>) -> Self {
        Self::default().with(HTML, html)
    }

    /// An SVG picture.
    pub fn svg(svg: impl Into<String>) -> Self {
        Self::default().with(SVG, svg)
    }

    /// A PNG picture, as the bytes of its file.
    pub fn png(bytes: &[u8]) -> Self {
        Self::default().with(PNG, base64::prelude::BASE64_STANDARD.encode(bytes))
    }

    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().with(TEXT, text)
    }

    /// Adds what a terminal shows in place of markup.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        self.with(TEXT, text)
    }

    /// Adds the same thing in another format, named by its MIME type.
    #[must_use]
    pub fn with(mut self, mime: impl Into<String>, data: impl Into<String>) -> Self {
        self.0.insert(mime.into(), data.into());
        self
    }

    /// The data in the format `mime`, where it is there.
    pub fn get(&self, mime: &str) -> Option<&str> {
        self.0.get(mime).map(String::as_str)
    }

    /// Every format with its data, ordered by MIME type.
    pub fn formats(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(mime, data)| (&**mime, &**data))
    }

    /// Width and height that its PNG has on a page, where it is finer than that: a front end would
    /// show every pixel, and the picture as many times too large.
    pub fn png_size(&self) -> Option<(u32, u32)> {
        let file = base64::prelude::BASE64_STANDARD.decode(self.get(PNG)?);
        png::size_on_page(&file.ok()?)
    }

    /// What a terminal can show of it: its text, or a line that says what cannot be seen there.
    pub fn plain(&self) -> String {
        if let Some(text) = self.get(TEXT) {
            text.to_owned()
        } else if self.formats().any(|(mime, _)| mime.starts_with("image/")) {
            "[a picture: it is drawn in the notebook]".to_owned()
        } else {
            "[a view: it is drawn in the notebook]".to_owned()
        }
    }
}

/// A value that has a view of its own: a tensor, a chart, a table.
///
/// With the trait in scope (it is in the prelude) such a value as the last expression of a cell is
/// shown by its view, not by its `Debug` text.
pub trait Show {
    /// The view.
    fn content(&self) -> Content;

    /// Called by the session for a cell's last expression; the name is evcxr's.
    #[doc(hidden)]
    fn evcxr_display(&self) {
        result(self.content());
    }
}

/// Shows a content as the value that the cell stands for.
pub(super) fn result(content: Content) {
    emit(wire::Mode::Result, content);
}

/// Shows a value by its view.
pub fn show(value: &(impl Show + ?Sized)) {
    put(value.content());
}

/// Shows a fragment of HTML.
pub fn html(html: impl Into<String>) {
    put(Content::html(html));
}

/// Shows an SVG picture.
pub fn svg(svg: impl Into<String>) {
    put(Content::svg(svg));
}

/// Shows a PNG picture, given as the bytes of its file.
pub fn png(bytes: &[u8]) {
    put(Content::png(bytes));
}

/// Shows a picture file: SVG, PNG, JPEG or GIF, known by its name's ending.
///
/// # Errors
/// Where the file can't be read, or is none of these.
pub fn image(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let mime = match ending.to_ascii_lowercase().as_str() {
        "png" => PNG,
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => {
            put(Content::svg(String::from_utf8_lossy(&bytes)));
            return Ok(());
        }
        _ => {
            return Err(Error::file(
                path,
                "expected a picture: .svg, .png, .jpg or .gif",
            ));
        }
    };
    put(Content::default().with(mime, base64::prelude::BASE64_STANDARD.encode(bytes)));
    Ok(())
}

/// Shows plain text as a display of its own, apart from what is printed.
pub fn text(text: impl Into<String>) {
    put(Content::text(text));
}

/// Shows a content.
pub fn put(content: Content) {
    emit(wire::Mode::New { id: None }, content);
}

/// Shows a content under a name, so that [`update`] can replace it later, from any cell.
pub fn put_as(id: impl Into<String>, content: Content) {
    emit(
        wire::Mode::New {
            id: Some(id.into()),
        },
        content,
    );
}

/// Replaces what is shown under a name, everywhere it is shown; outside a session nothing happens.
pub fn update(id: impl Into<String>, content: Content) {
    emit(wire::Mode::Update { id: id.into() }, content);
}

/// Shows a content the first time that a cell names `id` and replaces it from then on: a chart or
/// a counter that moves while a loop runs. Outside a session nothing happens after the first time.
pub fn live(id: impl Into<String>, content: Content) {
    emit(wire::Mode::Live { id: id.into() }, content);
}

/// A name for [`live`] that nothing else has: the process number keeps two sessions' displays in one
/// notebook apart.
pub(super) fn new_id(kind: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("cloze-{kind}-{}-{count}", std::process::id())
}

/// Clears the cell's output, with `wait` only when the next output comes (no flicker).
pub fn clear_output(wait: bool) {
    wire::send(&wire::Record::Clear { wait });
}

/// Shows a long text beside the notebook; a terminal prints it.
pub fn page(text: impl Into<String>) {
    let text = text.into();
    if !wire::send(&wire::Record::Page { text: text.clone() }) {
        println!("{text}");
    }
}

fn emit(mode: wire::Mode, content: Content) {
    let first = match &mode {
        wire::Mode::New { .. } | wire::Mode::Result => true,
        wire::Mode::Update { .. } => false,
        wire::Mode::Live { id } => outside::first_time(id),
    };
    let plain = content.plain();
    if !wire::send(&wire::Record::Display { mode, content }) && first {
        println!("{plain}");
    }
}

/// What is remembered where no session keeps the names of live displays.
mod outside {
    use std::collections::HashSet;
    use std::sync::{LazyLock, Mutex, PoisonError};

    static SEEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

    pub fn first_time(id: &str) -> bool {
        SEEN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.to_owned())
    }
}

/// The lines between a cell and its session; the kernel reads them with the same declarations.
#[doc(hidden)]
pub mod wire {
    use std::io::Write;
    use std::sync::LazyLock;

    use serde::{Deserialize, Serialize};

    use super::Content;

    /// The environment variable that holds the session's secret prefix.
    pub const TOKEN_VARIABLE: &str = "CLOZE_SESSION";

    /// The control character that opens a record; nobody prints it by hand.
    pub const OPENING: char = '\u{1e}';

    /// How a display relates to those before it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Mode {
        /// A display of its own, under a name where it has one.
        New { id: Option<String> },
        /// Replaces every display of that name.
        Update { id: String },
        /// `New` the first time in a cell, `Update` from then on.
        Live { id: String },
        /// The value of the cell.
        Result,
    }

    /// One record on standard output.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Record {
        /// Something to show.
        Display { mode: Mode, content: Content },
        /// Clear the cell's output.
        Clear { wait: bool },
        /// A text for the pager.
        Page { text: String },
        /// An exercise's check was run.
        Checked { id: String, passed: bool },
        /// The cell waits for a line on standard input.
        Input { prompt: String },
        /// A panic on the cell's thread: it is the cell's error unless the cell caught it.
        Panic {
            message: String,
            file: String,
            line: u32,
        },
        /// A value begins to display itself by `evcxr_display`, or has done so: what it prints
        /// between evcxr's marks in the meantime is its display, and nowhere else is.
        Own { open: bool },
        /// The cell's code begins to run.
        Begin { child: u32 },
        /// Everything that the cell printed has been written.
        End { child: u32, run: u64 },
    }

    impl Record {
        /// The record as its line, with the line end.
        pub fn line(&self, token: &str) -> String {
            // No map with keys other than strings and no fallible `Serialize` is in a record, so
            // the conversion cannot fail; an empty line would be skipped by the reader.
            let json = serde_json::to_string(self).unwrap_or_default();
            format!("{OPENING}{token} {json}\n")
        }
    }

    static TOKEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(TOKEN_VARIABLE).ok());

    /// The session's prefix, where the process runs a session's cells.
    pub fn token() -> Option<&'static str> {
        TOKEN.as_deref()
    }

    /// Writes a record to standard output; false where there is no session to read it.
    pub fn send(record: &Record) -> bool {
        let Some(token) = token() else {
            return false;
        };
        let mut out = std::io::stdout().lock();
        // A session that has gone reads nothing more: there is nobody to tell.
        let _ = out.write_all(record.line(token).as_bytes());
        let _ = out.flush();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::wire::{Mode, Record};
    use super::*;

    #[test]
    fn a_record_is_one_line_whatever_it_holds() {
        let record = Record::Display {
            mode: Mode::Live { id: "loss".into() },
            content: Content::html("a\nb\u{1e}c").with_text("ü"),
        };
        let line = record.line("secret");
        let json = line
            .strip_prefix("\u{1e}secret ")
            .and_then(|rest| rest.strip_suffix('\n'))
            .unwrap();
        assert!(!json.contains(['\n', '\u{1e}']));
        assert_eq!(serde_json::from_str::<Record>(json).unwrap(), record);
    }

    #[test]
    fn a_picture_travels_as_text_and_its_kind_is_told_by_its_ending() {
        assert_eq!(Content::png(b"\x89PNG").get("image/png"), Some("iVBORw=="));
        assert!(Content::png(b"").plain().contains("picture"));
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "x").unwrap();
            path
        };
        for name in ["a.PNG", "a.jpeg", "a.gif", "a.svg"] {
            assert!(image(file(name)).is_ok(), "{name}");
        }
        let told = image(file("a.txt")).unwrap_err().to_string();
        assert!(told.contains("a.txt") && told.contains(".png"), "{told}");
        assert!(image(folder.path().join("none.png")).is_err());
    }

    #[test]
    fn no_two_displays_have_one_name() {
        let names = ["chart", "chart", "progress"].map(new_id);
        assert!(names[0].starts_with("cloze-chart-"), "{names:?}");
        assert!(names[0] != names[1] && names[2].starts_with("cloze-progress-"));
    }

    #[test]
    fn a_terminal_never_sees_markup() {
        assert_eq!(Content::html("<b>1</b>").with_text("1").plain(), "1");
        assert!(!Content::svg("<svg/>").plain().contains('<'));
        assert!(!Content::html("<b/>").plain().contains('<'));
    }

    #[test]
    fn outside_a_session_records_are_not_written() {
        if wire::token().is_none() {
            assert!(!wire::send(&Record::Clear { wait: false }));
        }
    }
}
