//! Splits the standard output of a child into the user's text, the records of `cloze::display`, and the
//! markers of evcxr's generated code.
//!
//! Records and markers begin with the session's token; everything else is text, whatever it says. Text
//! is passed on as soon as it is certain to be text, so that a progress line without a line end shows
//! while it grows.

use cloze::display::wire::{OPENING, Record};
use memchr::memmem;

/// The beginning of every marker.
pub const MARKER: &str = "EVCXR_";
/// Stand before and after the text of a value that evcxr shows.
const TEXT_BEGIN: &str = "EVCXR_BEGIN_CONTENT text/plain";
const TEXT_END: &str = "EVCXR_END_CONTENT";
/// Between these a value that displays itself for evcxr prints each of its formats.
const CONTENT_BEGIN: &str = "EVCXR_BEGIN_CONTENT ";
const CONTENT_END: &str = "EVCXR_END_CONTENT";
const LINE_END: &str = "\n";

/// A piece of standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// What the user printed.
    Text(String),
    /// A record of the display protocol.
    Record(Record),
    /// A marker for evcxr, see [`super::markers`].
    Evcxr(String),
    /// A value in one format, as evcxr prints it.
    Content { mime: String, data: String },
}

/// Who prints the text that comes.
#[derive(Default, PartialEq)]
enum Source {
    #[default]
    Cell,
    /// evcxr prints the text of a value.
    Evcxr,
    /// Values display themselves; the number is their nesting depth.
    Value(usize),
}

/// The state between two reads.
pub struct Splitter {
    opening: String,
    pending: Vec<u8>,
    /// How many bytes of `pending` are known not to end its first record. A large record comes in many
    /// reads and is searched once.
    searched: usize,
    source: Source,
    /// The part of a value that has come.
    value: String,
}

impl Splitter {
    /// Returns a splitter for the session whose records carry `token`.
    pub fn new(token: &str) -> Self {
        Self {
            opening: format!("{OPENING}{token} "),
            pending: Vec::new(),
            searched: 0,
            source: Source::Cell,
            value: String::new(),
        }
    }

    /// Takes the next bytes and returns every complete piece.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut pieces = Vec::new();
        let mut done = 0;
        while let Some((used, piece)) = self.step(&pending[done..]) {
            done += used;
            self.searched = 0;
            if let Some(piece) = piece {
                self.pass(piece, &mut pieces);
            }
        }
        self.pending = pending;
        self.pending.drain(..done);
        pieces
    }

    /// Reads a piece from the beginning of `rest`, and returns its length too. `None` asks for more.
    fn step(&mut self, rest: &[u8]) -> Option<(usize, Option<Piece>)> {
        let opening = self.opening.as_bytes();
        let Some(after) = rest.strip_prefix(opening) else {
            let start = find_or_begin(rest, opening);
            let used = whole_characters(&rest[..start], start < rest.len());
            let text = String::from_utf8_lossy(&rest[..used]).into_owned();
            return (used > 0).then_some((used, Some(Piece::Text(text))));
        };
        // Records are written at once and contain no control character. So if a record begins inside
        // another, the process that wrote the first has died, and its rest never comes. It must not
        // swallow the end of a cell.
        let marks = [LINE_END.as_bytes(), opening];
        let (end, mark) = find_first(after, &mut self.searched, marks)?;
        if mark == opening {
            return Some((opening.len() + end, None));
        }
        let line = String::from_utf8_lossy(&after[..end]).into_owned();
        let piece = if line.starts_with(MARKER) {
            Piece::Evcxr(line)
        } else {
            match serde_json::from_str(&line) {
                Ok(record) => Piece::Record(record),
                // We did not write it, so it is text.
                Err(_) => Piece::Text(line + LINE_END),
            }
        };
        Some((opening.len() + end + 1, Some(piece)))
    }

    /// Passes a piece on, or keeps it until a value is complete.
    fn pass(&mut self, piece: Piece, pieces: &mut Vec<Piece>) {
        match piece {
            Piece::Text(text) if self.source != Source::Cell => self.value += &text,
            Piece::Record(Record::Own { open: true }) => match &mut self.source {
                Source::Value(depth) => *depth += 1,
                _ => {
                    self.close(pieces);
                    self.source = Source::Value(1);
                }
            },
            Piece::Record(Record::Own { open: false }) => match &mut self.source {
                Source::Value(depth @ 2..) => *depth -= 1,
                _ => self.close(pieces),
            },
            Piece::Evcxr(marker) if marker == TEXT_BEGIN => {
                self.close(pieces);
                self.source = Source::Evcxr;
            }
            Piece::Evcxr(marker) if marker == TEXT_END => {
                let text = std::mem::take(&mut self.value);
                pieces.push(content("text/plain", &text));
                self.source = Source::Cell;
            }
            // A value that is open at the end of a cell will never be closed.
            Piece::Record(Record::Begin { .. } | Record::End { .. }) => {
                self.close(pieces);
                pieces.push(piece);
            }
            // Other pieces keep their place inside a value.
            other => {
                self.release(pieces);
                pieces.push(other);
            }
        }
    }

    fn close(&mut self, pieces: &mut Vec<Piece>) {
        self.release(pieces);
        self.source = Source::Cell;
    }

    /// Passes on the part of a value that has come: its formats if it displays itself, and text.
    fn release(&mut self, pieces: &mut Vec<Piece>) {
        let value = std::mem::take(&mut self.value);
        let mut rest = value.as_str();
        if matches!(self.source, Source::Value(_)) {
            while let Some((before, mime, data, after)) = next_content(rest) {
                if !before.is_empty() {
                    pieces.push(Piece::Text(before.to_owned()));
                }
                pieces.push(content(mime, data));
                rest = after;
            }
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
    }
}

fn content(mime: &str, data: &str) -> Piece {
    Piece::Content {
        mime: mime.to_owned(),
        data: data.strip_suffix('\n').unwrap_or(data).to_owned(),
    }
}

/// Splits the output of a value at its first format: the text before it, its MIME type, its data, and
/// the text after it.
fn next_content(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (before, rest) = text.split_once(CONTENT_BEGIN)?;
    let (mime, rest) = rest.split_once('\n')?;
    let (data, after) = rest.split_once(CONTENT_END)?;
    Some((before, mime, data, after.strip_prefix('\n').unwrap_or(after)))
}

/// Finds the first of `marks` in `body`, and its position. The first `searched` bytes of `body` have been
/// searched before; if nothing is found, `searched` is updated.
fn find_first<'a, const N: usize>(
    body: &[u8],
    searched: &mut usize,
    marks: [&'a [u8]; N],
) -> Option<(usize, &'a [u8])> {
    let mut first: Option<(usize, &[u8])> = None;
    for mark in marks {
        let end = first.map_or(body.len(), |(at, _)| at);
        // The mark's first bytes may have come earlier.
        let from = searched.saturating_sub(mark.len()).min(end);
        if let Some(at) = memmem::find(&body[from..end], mark) {
            first = Some((from + at, mark));
        }
    }
    if first.is_none() {
        *searched = body.len();
    }
    first
}

/// Returns the position of `needle` in `hay`, or of its beginning at the end of `hay`, or the length of
/// `hay`.
fn find_or_begin(hay: &[u8], needle: &[u8]) -> usize {
    memmem::find(hay, needle).unwrap_or_else(|| {
        let longest = needle.len().min(hay.len() + 1) - 1;
        (1..=longest)
            .rev()
            .find(|&length| hay.ends_with(&needle[..length]))
            .map_or(hay.len(), |length| hay.len() - length)
    })
}

/// Returns how many of the `bytes` form complete characters, or all of them if `last` says that nothing
/// more follows.
fn whole_characters(bytes: &[u8], last: bool) -> usize {
    let needs = |byte: u8| match byte {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 0,
    };
    let incomplete = (1..=3.min(bytes.len())).find(|&back| needs(bytes[bytes.len() - back]) > back);
    bytes.len() - incomplete.filter(|_| !last).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::markers::PANIC;
    use super::*;
    use cloze::display::Content;
    use cloze::display::wire::Mode;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn marker(marker: &str) -> String {
        format!("{OPENING}t {marker}\n")
    }

    fn own(open: bool) -> String {
        Record::Own { open }.line("t")
    }

    /// Splits `bytes`, read in two parts. Joins neighbouring texts, because text is passed on as soon as
    /// it is certain.
    fn pieces(bytes: &[u8], cut: usize) -> Vec<Piece> {
        let mut splitter = Splitter::new("t");
        let mut joined: Vec<Piece> = Vec::new();
        let first = splitter.push(&bytes[..cut]);
        for piece in first.into_iter().chain(splitter.push(&bytes[cut..])) {
            match (joined.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(text)) => *before += &text,
                (_, piece) => joined.push(piece),
            }
        }
        joined
    }

    #[test]
    fn partial_lines_pass_at_once() {
        let mut splitter = Splitter::new("t");
        assert_eq!(splitter.push(b"\r50 %"), [text("\r50 %")]);
        assert_eq!(splitter.push(b"\r51 %"), [text("\r51 %")]);
    }

    #[test]
    fn records_are_found_in_any_split_and_after_a_partial_line() {
        let record = Record::Display { mode: Mode::Result, content: Content::html("<b>\nü</b>") };
        let bytes = format!("half ü{}{}end\n", record.line("t"), marker(PANIC));
        for cut in 0..=bytes.len() {
            assert_eq!(
                pieces(bytes.as_bytes(), cut),
                [
                    text("half ü"),
                    Piece::Record(record.clone()),
                    Piece::Evcxr(PANIC.into()),
                    text("end\n"),
                ],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn another_session_s_record_is_text() {
        let mut splitter = Splitter::new("t");
        let line = Record::Clear { wait: true }.line("other");
        assert_eq!(splitter.push(line.as_bytes()), [text(&line)]);
    }

    #[test]
    fn printed_markers_are_text() {
        let printed = "EVCXR_BEGIN_CONTENT text/html\n<img src=x onerror=\"alert(1)\">\n\
                       EVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT application/javascript\nalert(1)\n\
                       EVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT text/plain\n1\nEVCXR_END_CONTENT\n\
                       EVCXR_VARIABLE_CHANGED_TYPE:x\nEVCXR_PANIC_NOTIFICATION\n\
                       EVCXR_ERROR_OCCURRED\nEVCXR_EXECUTION_COMPLETE\nEVCXR_SOMETHING\n";
        let foreign = format!("{OPENING}other EVCXR_PANIC_NOTIFICATION\n");
        for printed in [printed, &foreign] {
            for cut in 0..=printed.len() {
                assert_eq!(pieces(printed.as_bytes(), cut), [text(printed)]);
            }
        }
    }

    #[test]
    fn the_text_that_evcxr_shows_keeps_its_lines_and_markers() {
        let shown = format!(
            "{}1\nEVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT text/html\n2\n{}after",
            marker(TEXT_BEGIN),
            marker(TEXT_END)
        );
        for cut in 0..=shown.len() {
            assert_eq!(
                pieces(shown.as_bytes(), cut),
                [
                    content("text/plain", "1\nEVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT text/html\n2"),
                    text("after")
                ]
            );
        }
    }

    #[test]
    fn a_value_s_own_formats_are_found_if_it_displays_itself() {
        let format = |mime: &str, data: &str| {
            format!("EVCXR_BEGIN_CONTENT {mime}\n{data}\nEVCXR_END_CONTENT\n")
        };
        let html = format("text/html", "<i>a\nb</i>");
        let page = Record::Page { text: "c".into() };
        let printed = format!(
            "{html}{}said {html}{}{}{}{}EVCXR_BEGIN_CONTENT text/html\nopen{}{html}",
            own(true),
            // A value inside it, and its text; then again the outer one.
            own(true) + &format("text/plain", "a") + &own(false),
            format("image/svg+xml", "<svg/>"),
            page.line("t"),
            html,
            own(false),
        );
        let as_html = content("text/html", "<i>a\nb</i>");
        for cut in 0..=printed.len() {
            assert_eq!(
                pieces(printed.as_bytes(), cut),
                [
                    text(&(html.clone() + "said ")),
                    as_html.clone(),
                    content("text/plain", "a"),
                    content("image/svg+xml", "<svg/>"),
                    Piece::Record(page.clone()),
                    as_html.clone(),
                    text(&format!("EVCXR_BEGIN_CONTENT text/html\nopen{html}")),
                ]
            );
        }
    }

    #[test]
    fn unfinished_output_ends_with_its_cell() {
        let end = Record::End { child: 7, run: 3 };
        let after = "EVCXR_BEGIN_CONTENT text/html\n<b>\nEVCXR_END_CONTENT\n";
        for (open, shown) in [
            (marker(TEXT_BEGIN) + "1\n", "1\n"),
            (
                own(true) + &own(true) + "EVCXR_BEGIN_CONTENT text/html\n<b>",
                "EVCXR_BEGIN_CONTENT text/html\n<b>",
            ),
            ("EVCXR_BEGIN_CONTENT text".to_owned(), "EVCXR_BEGIN_CONTENT text"),
            ("\u{1e}t {\"html\": \"<b".to_owned(), ""),
            ("\u{1e}t EVCXR_".to_owned(), ""),
        ] {
            let bytes = format!("{open}{}{after}", end.line("t")).into_bytes();
            let mut expected = vec![text(shown), Piece::Record(end.clone()), text(after)];
            expected.retain(|piece| *piece != text(""));
            for cut in 0..=bytes.len() {
                assert_eq!(pieces(&bytes, cut), expected, "{open} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_character_cut_in_two_is_not_broken() {
        let mut splitter = Splitter::new("t");
        let bytes = "añ€😀".as_bytes();
        let mut whole = String::new();
        for byte in bytes {
            for piece in splitter.push(&[*byte]) {
                let Piece::Text(text) = piece else { panic!() };
                whole.push_str(&text);
            }
        }
        assert_eq!(whole, "añ€😀");
    }

    #[test]
    fn a_large_value_and_many_small_displays_take_time_in_proportion() {
        let started = std::time::Instant::now();
        let mut splitter = Splitter::new("t");
        let mut pieces = splitter.push(marker(TEXT_BEGIN).as_bytes());
        let block = [b'x'; 1 << 14];
        for _ in 0..4000 {
            pieces.extend(splitter.push(&block));
        }
        pieces.extend(splitter.push(b"\n"));
        pieces.extend(splitter.push(marker(TEXT_END).as_bytes()));
        let [Piece::Content { data, .. }] = &pieces[..] else {
            panic!("{} pieces", pieces.len());
        };
        assert_eq!(data.len(), 4000 << 14);
        let record = Record::Display { mode: Mode::New { id: None }, content: Content::text("x") };
        let many = record.line("t").repeat(100_000);
        let shown: usize =
            many.as_bytes().chunks(1 << 16).map(|chunk| splitter.push(chunk).len()).sum();
        assert_eq!(shown, 100_000);
        // It takes a second; searching everything again at each read takes minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(30));
    }
}
