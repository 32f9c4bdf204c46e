//! Displays pictures, tables and text in a notebook or a terminal.
//!
//! In a cell of a notebook or of the REPL, a display is sent to the session as a line of JSON on standard
//! output, marked by a prefix that only this session knows; the session forwards it to the front end.
//! Elsewhere (`cargo run --example`, a test) it becomes a short text, never markup.
//!
//! ```
//! use cloze::display::{self, Content};
//! display::svg("<svg xmlns='http://www.w3.org/2000/svg'/>");
//! for step in 0..3 {
//!     display::live("loss", Content::html(format!("<b>{step}</b>")).with_text(format!("{step}")));
//! }
//! ```

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use base64::Engine;
use serde::{Deserialize, Serialize};

use super::png;
use crate::error::{Error, Result};

const HTML: &str = "text/html";
const SVG: &str = "image/svg+xml";
const PNG: &str = "image/png";
const TEXT: &str = "text/plain";

/// Something to show in one or more formats, of which the front end takes the richest that it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Content(BTreeMap<String, String>);

impl Content {
    /// Creates a fragment of HTML.
    pub fn html(html: impl Into<String>) -> Self {
        Self::default().with(HTML, html)
    }

    /// Creates an SVG picture.
    pub fn svg(svg: impl Into<String>) -> Self {
        Self::default().with(SVG, svg)
    }

    /// Creates a PNG picture from the bytes of its file.
    pub fn png(bytes: &[u8]) -> Self {
        Self::default().with(PNG, base64::prelude::BASE64_STANDARD.encode(bytes))
    }

    /// Creates a plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().with(TEXT, text)
    }

    /// Adds a text that terminals show instead of markup.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        self.with(TEXT, text)
    }

    /// Adds another format, named by its MIME type.
    #[must_use]
    pub fn with(mut self, mime: impl Into<String>, data: impl Into<String>) -> Self {
        self.0.insert(mime.into(), data.into());
        self
    }

    /// Returns the data in the format `mime`, if it exists.
    pub fn get(&self, mime: &str) -> Option<&str> {
        self.0.get(mime).map(String::as_str)
    }

    /// Iterates over the formats and their data, sorted by MIME type.
    pub fn formats(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(mime, data)| (&**mime, &**data))
    }

    /// Returns width and height of its PNG on a page, if its pixels are finer than the page's: without them a
    /// front end would show the picture too large.
    pub fn png_size(&self) -> Option<(u32, u32)> {
        let file = base64::prelude::BASE64_STANDARD.decode(self.get(PNG)?);
        png::size_on_page(&file.ok()?)
    }

    /// Returns what a terminal shows: its text, or a line about what it can't show.
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

/// A value with its own view: a tensor, a chart, a table.
///
/// With the trait in scope (it is in the prelude), such a value as the last expression of a cell is shown by
/// its view instead of its `Debug` text.
pub trait Show {
    /// Returns the view.
    fn content(&self) -> Content;

    /// Shows a cell's last expression; evcxr requires this name.
    #[doc(hidden)]
    fn evcxr_display(&self) {
        result(self.content());
    }
}

impl Show for Content {
    fn content(&self) -> Content {
        self.clone()
    }
}

/// Shows a content as the value of the cell.
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

/// Shows a picture file: SVG, PNG, JPEG or GIF, according to its extension.
///
/// # Errors
/// If the file can't be read or has another extension.
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
            let message = "expected a picture: .svg, .png, .jpg or .gif";
            return Err(Error::file(path, message));
        }
    };
    put(Content::default().with(mime, base64::prelude::BASE64_STANDARD.encode(bytes)));
    Ok(())
}

/// Shows plain text as a separate display, apart from printed output.
pub fn text(text: impl Into<String>) {
    put(Content::text(text));
}

/// Shows a content.
pub fn put(content: Content) {
    emit(wire::Mode::New { id: None }, content);
}

/// Shows a content under a name, by which [`update`] can replace it later, from any cell.
pub fn put_as(id: impl Into<String>, content: Content) {
    let id = Some(id.into());
    emit(wire::Mode::New { id }, content);
}

/// Replaces every display of that name; does nothing outside a session.
pub fn update(id: impl Into<String>, content: Content) {
    emit(wire::Mode::Update { id: id.into() }, content);
}

/// Shows a content, and replaces it at every further call with the same `id` in the cell: for a chart or a
/// counter that changes while a loop runs. Outside a session only the first call has an effect.
pub fn live(id: impl Into<String>, content: Content) {
    emit(wire::Mode::Live { id: id.into() }, content);
}

/// Returns a unique name for [`live`]; the process number distinguishes the displays of two sessions in one
/// notebook.
pub(super) fn new_id(kind: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("cloze-{kind}-{}-{count}", std::process::id())
}

/// Clears the cell's output; with `wait` only when the next output arrives, which avoids flicker.
pub fn clear_output(wait: bool) {
    wire::send(&wire::Record::Clear { wait });
}

/// Shows a long text in the notebook's pager; prints it in a terminal.
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
        wire::Mode::Live { id } => {
            // Only the session knows the names of earlier cells; this is for programs without one.
            static SEEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
            let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(id.to_owned())
        }
    };
    let plain = content.plain();
    if !wire::send(&wire::Record::Display { mode, content }) && first {
        println!("{plain}");
    }
}

/// The protocol between a cell and its session; the kernel uses the same declarations.
#[doc(hidden)]
pub mod wire {
    use std::io::Write;
    use std::sync::LazyLock;

    use serde::{Deserialize, Serialize};
    use serde_json::Value;

    use super::Content;

    /// The environment variable with the session's secret prefix.
    pub const TOKEN_VARIABLE: &str = "CLOZE_SESSION";

    /// The control character that starts a record.
    pub const OPENING: char = '\u{1e}';

    /// How a display relates to earlier ones.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Mode {
        /// A new display, possibly with a name.
        New { id: Option<String> },
        /// Replaces every display of that name.
        Update { id: String },
        /// `New` the first time in a cell, then `Update`.
        Live { id: String },
        /// The value of the cell.
        Result,
    }

    /// A message of a comm, to the page or from it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Comm {
        pub id: String,
        pub kind: CommKind,
        pub data: Value,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum CommKind {
        Open { target: String, metadata: Value },
        Message,
        Close,
    }

    /// A record on standard output.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Record {
        /// Something to show.
        Display { mode: Mode, content: Content },
        /// Clear the cell's output.
        Clear { wait: bool },
        /// A text for the pager.
        Page { text: String },
        /// A message of a comm to the page.
        Comm(Comm),
        /// The check of an exercise has run.
        Checked { id: String, passed: bool },
        /// The cell waits for a line on standard input.
        Input { prompt: String },
        /// A panic on the cell's thread, which is the cell's error unless it was caught.
        Panic { message: String, file: String, line: u32 },
        /// `?` has ended the cell with an error.
        Failed { message: String },
        /// A value starts or ends displaying itself by `evcxr_display`: only text between evcxr's marks that
        /// is printed in the meantime is a display.
        Own { open: bool },
        /// The cell is loaded; its code starts when the session has answered.
        Begin { child: u32, run: u64 },
        /// The cell's output is complete.
        End { child: u32, run: u64 },
    }

    impl Record {
        /// Formats the record as a line with a line end.
        pub fn line(&self, token: &str) -> String {
            // The conversion can't fail, because a record has no maps with other keys than strings and no
            // fallible `Serialize`; the reader would skip an empty line.
            let json = serde_json::to_string(self).unwrap_or_default();
            format!("{OPENING}{token} {json}\n")
        }
    }

    static TOKEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(TOKEN_VARIABLE).ok());

    /// Returns the session's prefix if the process runs a session's cells.
    pub fn token() -> Option<&'static str> {
        TOKEN.as_deref()
    }

    /// Writes a record to standard output; returns false if there is no session.
    pub fn send(record: &Record) -> bool {
        let Some(token) = token() else {
            return false;
        };
        let mut out = std::io::stdout().lock();
        // Errors mean that the session has exited.
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
    fn a_record_is_one_line_whatever_its_content() {
        let record = Record::Display {
            mode: Mode::Live { id: "loss".into() },
            content: Content::html("a\nb\u{1e}c").with_text("ü"),
        };
        let line = record.line("secret");
        let json =
            line.strip_prefix("\u{1e}secret ").and_then(|rest| rest.strip_suffix('\n')).unwrap();
        assert!(!json.contains(['\n', '\u{1e}']));
        assert_eq!(serde_json::from_str::<Record>(json).unwrap(), record);
    }

    #[test]
    fn a_picture_is_sent_as_text_and_its_extension_decides_its_kind() {
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
        let error = image(file("a.txt")).unwrap_err().to_string();
        assert!(error.contains("a.txt") && error.contains(".png"), "{error}");
        assert!(image(folder.path().join("none.png")).is_err());
    }

    #[test]
    fn displays_have_unique_names() {
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
}
