//! Taking apart what a child writes on standard output: the user's text, the records of
//! `cloze::display`, and the words with which evcxr's generated code speaks to evcxr.
//!
//! A record and a word begin with the session's token; everything else is text, whatever it says.
//! Text is passed on as soon as it is certain to be text, so that a progress line without a line
//! end is seen while it grows.

use cloze::display::wire::{OPENING, Record};
use memchr::memmem;

use super::words::{TEXT_BEGIN, TEXT_END, WORD};

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
    /// A word for evcxr, see [`super::words`].
    Evcxr(String),
    /// evcxr's own way to give a value in some format.
    Content { mime: String, data: String },
}

/// Whose text comes.
#[derive(Default, PartialEq)]
enum Source {
    #[default]
    Cell,
    /// evcxr prints the text of a value.
    Evcxr,
    /// A value displays itself; this many do, one inside the other.
    Value(usize),
}

/// The state between two reads.
pub struct Splitter {
    opening: String,
    pending: Vec<u8>,
    /// How many bytes of `pending` are known not to end the record that it begins with: a large one
    /// comes in many reads and is looked through once.
    searched: usize,
    source: Source,
    /// What has come of a value.
    value: String,
}

impl Splitter {
    /// A splitter for the session whose records carry `token`.
    pub fn new(token: &str) -> Self {
        Self {
            opening: format!("{OPENING}{token} "),
            pending: Vec::new(),
            searched: 0,
            source: Source::Cell,
            value: String::new(),
        }
    }

    /// Takes the next bytes and gives every piece that is complete.
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

    /// Reads what is at the front of `rest`, and how many bytes that takes; `None` asks for more.
    fn step(&mut self, rest: &[u8]) -> Option<(usize, Option<Piece>)> {
        let opening = self.opening.as_bytes();
        let Some(after) = rest.strip_prefix(opening) else {
            let start = find_or_begin(rest, opening);
            let used = whole_characters(&rest[..start], start < rest.len());
            let text = String::from_utf8_lossy(&rest[..used]).into_owned();
            return (used > 0).then_some((used, Some(Piece::Text(text))));
        };
        // Records are written whole and hold no control character, so a record that opens in the
        // midst of another says that the rest of that never comes: its process has died. The end of
        // a cell must not be swallowed by it.
        let marks = [LINE_END.as_bytes(), opening];
        let (end, mark) = find_first(after, &mut self.searched, marks)?;
        if mark == opening {
            return Some((opening.len() + end, None));
        }
        let line = String::from_utf8_lossy(&after[..end]).into_owned();
        let piece = if line.starts_with(WORD) {
            Piece::Evcxr(line)
        } else {
            match serde_json::from_str(&line) {
                Ok(record) => Piece::Record(record),
                // It was not written by us: it is shown as it came.
                Err(_) => Piece::Text(line + LINE_END),
            }
        };
        Some((opening.len() + end + 1, Some(piece)))
    }

    /// Passes a piece on, or keeps it until a value is whole.
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
            Piece::Evcxr(word) if word == TEXT_BEGIN => {
                self.close(pieces);
                self.source = Source::Evcxr;
            }
            Piece::Evcxr(word) if word == TEXT_END => {
                let text = std::mem::take(&mut self.value);
                pieces.push(content("text/plain", &text));
                self.source = Source::Cell;
            }
            // A value that is open at a cell's end is never closed.
            Piece::Record(Record::Begin { .. } | Record::End { .. }) => {
                self.close(pieces);
                pieces.push(piece);
            }
            // What comes in between has its place in it.
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

    /// Passes on what has come of a value: its formats where it displays itself, and text.
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

/// The first format in what a value has printed: the text before it, its MIME type, its data, and
/// what comes after.
fn next_content(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (before, rest) = text.split_once(CONTENT_BEGIN)?;
    let (mime, rest) = rest.split_once('\n')?;
    let (data, after) = rest.split_once(CONTENT_END)?;
    Some((
        before,
        mime,
        data,
        after.strip_prefix('\n').unwrap_or(after),
    ))
}

/// The first of `marks` in `body`, and where it is. Of `body` the first `searched` bytes have been
/// looked through; what is looked through in vain is remembered.
fn find_first<'a, const N: usize>(
    body: &[u8],
    searched: &mut usize,
    marks: [&'a [u8]; N],
) -> Option<(usize, &'a [u8])> {
    let mut first: Option<(usize, &[u8])> = None;
    for mark in marks {
        // Only what comes before the first so far is of interest.
        let end = first.map_or(body.len(), |(at, _)| at);
        // The mark's first bytes may have been there already.
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

/// Where `needle` is in `hay`, or where the end of `hay` may be its beginning, or the end.
fn find_or_begin(hay: &[u8], needle: &[u8]) -> usize {
    memmem::find(hay, needle).unwrap_or_else(|| {
        let longest = needle.len().min(hay.len() + 1) - 1;
        (1..=longest)
            .rev()
            .find(|&length| hay.ends_with(&needle[..length]))
            .map_or(hay.len(), |length| hay.len() - length)
    })
}

/// How much of `bytes` ends at a character's end; where nothing more can follow, all of it.
fn whole_characters(bytes: &[u8], last: bool) -> usize {
    let incomplete = (1..=3.min(bytes.len()))
        .find(|&back| {
            let byte = bytes[bytes.len() - back];
            let needs = match byte {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => 0,
            };
            needs > back
        })
        .unwrap_or(0);
    if last {
        bytes.len()
    } else {
        bytes.len() - incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::PANIC;
    use super::*;
    use cloze::display::Content;
    use cloze::display::wire::Mode;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn word(word: &str) -> String {
        format!("{OPENING}t {word}\n")
    }

    fn own(open: bool) -> String {
        Record::Own { open }.line("t")
    }

    /// The pieces of `bytes`, read in two parts; neighbouring texts are one, because text is passed
    /// on as soon as it is certain.
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
        let record = Record::Display {
            mode: Mode::Result,
            content: Content::html("<b>\nü</b>"),
        };
        let bytes = format!("half ü{}{}end\n", record.line("t"), word(PANIC));
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
    fn what_anybody_may_print_is_text() {
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
    fn the_text_that_evcxr_shows_keeps_its_lines_and_words_in_it() {
        let shown = format!(
            "{}1\nEVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT text/html\n2\n{}after",
            word(TEXT_BEGIN),
            word(TEXT_END)
        );
        for cut in 0..=shown.len() {
            assert_eq!(
                pieces(shown.as_bytes(), cut),
                [
                    content(
                        "text/plain",
                        "1\nEVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT text/html\n2"
                    ),
                    text("after")
                ]
            );
        }
    }

    #[test]
    fn a_value_s_own_formats_are_found_where_it_displays_itself() {
        let format = |mime: &str, data: &str| {
            format!("EVCXR_BEGIN_CONTENT {mime}\n{data}\nEVCXR_END_CONTENT\n")
        };
        let html = format("text/html", "<i>a\nb</i>");
        let page = Record::Page { text: "c".into() };
        let printed = format!(
            "{html}{}said {html}{}{}{}{}EVCXR_BEGIN_CONTENT text/html\nopen{}{html}",
            own(true),
            // A value within it, and its text; then again the outer one.
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
    fn what_is_left_open_ends_with_its_cell() {
        let end = Record::End { child: 7, run: 3 };
        let after = "EVCXR_BEGIN_CONTENT text/html\n<b>\nEVCXR_END_CONTENT\n";
        for (open, shown) in [
            (word(TEXT_BEGIN) + "1\n", "1\n"),
            (
                own(true) + &own(true) + "EVCXR_BEGIN_CONTENT text/html\n<b>",
                "EVCXR_BEGIN_CONTENT text/html\n<b>",
            ),
            (
                "EVCXR_BEGIN_CONTENT text".to_owned(),
                "EVCXR_BEGIN_CONTENT text",
            ),
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
        let mut pieces = splitter.push(word(TEXT_BEGIN).as_bytes());
        let block = [b'x'; 1 << 14];
        for _ in 0..4000 {
            pieces.extend(splitter.push(&block));
        }
        pieces.extend(splitter.push(b"\n"));
        pieces.extend(splitter.push(word(TEXT_END).as_bytes()));
        let [Piece::Content { data, .. }] = &pieces[..] else {
            panic!("{} pieces", pieces.len());
        };
        assert_eq!(data.len(), 4000 << 14);
        let record = Record::Display {
            mode: Mode::New { id: None },
            content: Content::text("x"),
        };
        let many = record.line("t").repeat(100_000);
        let shown: usize = many
            .as_bytes()
            .chunks(1 << 16)
            .map(|chunk| splitter.push(chunk).len())
            .sum();
        assert_eq!(shown, 100_000);
        // It takes a second; looking through everything again at each read takes minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(30));
    }
}
