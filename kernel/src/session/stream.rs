//! Taking apart what a child writes on standard output: the user's text, the records of
//! `cloze::display`, and the lines with which evcxr's generated code speaks to evcxr.
//!
//! Text is passed on as soon as it is certain to be text, so that a progress line without a line
//! end is seen while it grows.
//!
//! A record carries the session's token, which nobody else knows. evcxr's lines carry none, and what
//! a cell prints, or `!cat` shows, may come from anywhere. So they count only where evcxr's code may
//! speak, see [`Trust`], and are text everywhere else.

use cloze::display::wire::{OPENING, Record};
use memchr::memmem;

/// evcxr's generated code marks its lines with this.
const EVCXR: &str = "EVCXR_";
const CONTENT_BEGIN: &str = "EVCXR_BEGIN_CONTENT ";
const CONTENT_END: &str = "EVCXR_END_CONTENT\n";
const LINE_END: &str = "\n";
/// The format that is harmless wherever it is shown.
const PLAIN: &str = "text/plain";

/// What generated code says when a panic reached the cell's edge.
pub const PANIC: &str = "EVCXR_PANIC_NOTIFICATION";
/// What it says when `?` left the cell with an error.
pub const USER_ERROR: &str = "EVCXR_ERROR_OCCURRED";
/// What it says when a variable's type was defined anew.
pub const CHANGED_TYPE: &str = "EVCXR_VARIABLE_CHANGED_TYPE:";

/// A piece of standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// What the user printed.
    Text(String),
    /// A record of the display protocol.
    Record(Record),
    /// A line for evcxr, without its line end.
    Evcxr(String),
    /// evcxr's own way to give a value in some format.
    Content { mime: String, data: String },
}

/// Which of evcxr's words count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// None: no cell runs, or this is standard error, where evcxr's code writes nothing.
    Nothing,
    /// All but displays that are more than text: the cell's code has begun and has printed nothing
    /// yet, so that a changed type can only be found by evcxr's own check.
    Start,
    /// How the cell ended, and plain text. A cell that prints these words itself is taken for one
    /// that panicked: the variables that it was to define are forgotten, and nothing else.
    Code,
    /// Displays in any format too: a value shows itself.
    Display,
}

/// The state between two reads.
pub struct Splitter {
    opening: String,
    trust: Trust,
    pending: Vec<u8>,
    /// How many bytes of `pending` are known not to end the record or value that it begins with: a
    /// large one comes in many reads and is looked through once.
    searched: usize,
}

impl Splitter {
    /// A splitter for the session whose records carry `token`.
    pub fn new(token: &str) -> Self {
        Self {
            opening: format!("{OPENING}{token} "),
            trust: Trust::Nothing,
            pending: Vec::new(),
            searched: 0,
        }
    }

    /// Takes the next bytes and gives every piece that is complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut pieces = Vec::new();
        let mut done = 0;
        while let Some(used) = self.step(&pending[done..], &mut pieces) {
            done += used;
            self.searched = 0;
        }
        self.pending = pending;
        self.pending.drain(..done);
        pieces
    }

    /// Reads one piece off the front of `rest`; `None` asks for more bytes.
    fn step(&mut self, rest: &[u8], pieces: &mut Vec<Piece>) -> Option<usize> {
        if rest.is_empty() {
            return None;
        }
        let evcxr = self.trust != Trust::Nothing;
        let marked = rest.starts_with(self.opening.as_bytes())
            || (evcxr && rest.starts_with(EVCXR.as_bytes()));
        let start = if marked { 0 } else { self.text(rest) };
        if start > 0 {
            let used = whole_characters(&rest[..start], start < rest.len());
            if used == 0 {
                return None;
            }
            let text = String::from_utf8_lossy(&rest[..used]).into_owned();
            self.printed();
            pieces.push(Piece::Text(text));
            return Some(used);
        }
        // Records are written whole and hold no control character, so a record that opens in the
        // midst of anything else says that the rest of that never comes: its process has died, or
        // the user printed evcxr's words. The end of a cell must not be swallowed by it.
        let opening = self.opening.as_bytes();
        if let Some(after) = rest.strip_prefix(opening) {
            let marks = [LINE_END.as_bytes(), opening];
            let (end, mark) = find_first(after, &mut self.searched, marks)?;
            if mark == opening {
                return Some(opening.len() + end);
            }
            // A record that does not parse was not written by us: it is shown as it came.
            let piece = match serde_json::from_slice(&after[..end]) {
                Ok(record) => Piece::Record(record),
                Err(_) => Piece::Text(String::from_utf8_lossy(&after[..=end]).into_owned()),
            };
            self.trust = match piece {
                Piece::Record(Record::Begin { .. }) => Trust::Start,
                Piece::Record(Record::End { .. }) => Trust::Nothing,
                Piece::Record(Record::OwnDisplay { open: true }) if evcxr => Trust::Display,
                Piece::Record(Record::OwnDisplay { open: false }) if evcxr => Trust::Code,
                _ => self.trust,
            };
            pieces.push(piece);
            return Some(opening.len() + end + 1);
        }
        if !marked {
            return None;
        }
        // `searched` counts the bytes of a value's body, not of its head.
        let marks = [LINE_END.as_bytes(), opening];
        let (end, mark) = find_first(rest, &mut 0, marks)?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        if mark == opening {
            self.printed();
            pieces.push(Piece::Text(line));
            return Some(end);
        }
        let may_show = |mime: &str| mime == PLAIN || self.trust == Trust::Display;
        if let Some(mime) = line
            .strip_prefix(CONTENT_BEGIN)
            .filter(|mime| may_show(mime))
        {
            let body = &rest[end + 1..];
            let marks = [CONTENT_END.as_bytes(), PANIC.as_bytes(), opening];
            let (at, mark) = find_first(body, &mut self.searched, marks)?;
            // Where the value's own formatting panicked, the notification is left for the next
            // step, and so is a record.
            let closed = mark == CONTENT_END.as_bytes();
            let data = String::from_utf8_lossy(&body[..at]);
            pieces.push(Piece::Content {
                mime: mime.to_owned(),
                data: data.strip_suffix('\n').unwrap_or(&data).to_owned(),
            });
            let used = end + 1 + at + if closed { mark.len() } else { 0 };
            self.printed();
            return Some(used);
        }
        let changed_type = self.trust == Trust::Start && line.starts_with(CHANGED_TYPE);
        if changed_type || line == PANIC || line == USER_ERROR {
            pieces.push(Piece::Evcxr(line));
        } else {
            self.printed();
            pieces.push(Piece::Text(line + "\n"));
        }
        Some(end + 1)
    }

    /// Notes that the cell has printed something.
    fn printed(&mut self) {
        if self.trust == Trust::Start {
            self.trust = Trust::Code;
        }
    }

    /// How far the text at the front of `rest` reaches.
    fn text(&self, rest: &[u8]) -> usize {
        let record = find_or_begin(rest, self.opening.as_bytes());
        if self.trust == Trust::Nothing {
            return record;
        }
        // Only what begins before that is of interest; its marker may reach beyond.
        let before = &rest[..rest.len().min(record + EVCXR.len())];
        record.min(find_or_begin(before, EVCXR.as_bytes()))
    }
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
    use super::*;
    use cloze::display::Content;
    use cloze::display::wire::Mode;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    /// What splits the standard output of a cell that runs.
    fn running() -> Splitter {
        let mut splitter = Splitter::new("t");
        let begin = Record::Begin { child: 7 };
        assert_eq!(
            splitter.push(begin.line("t").as_bytes()),
            [Piece::Record(begin)]
        );
        splitter
    }

    fn own_display(open: bool) -> String {
        Record::OwnDisplay { open }.line("t")
    }

    /// All text of the pieces, and how many are something else.
    fn shown(pieces: Vec<Piece>) -> (String, usize) {
        let (texts, others): (Vec<Piece>, Vec<Piece>) = pieces
            .into_iter()
            .partition(|piece| matches!(piece, Piece::Text(_)));
        let text = texts.into_iter().map(|piece| match piece {
            Piece::Text(text) => text,
            _ => String::new(),
        });
        (text.collect(), others.len())
    }

    const HOSTILE: &str = "EVCXR_BEGIN_CONTENT text/html\n<img src=x onerror=alert(1)>\n\
                           EVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT image/svg+xml\n<svg/>\n\
                           EVCXR_END_CONTENT\nEVCXR_VARIABLE_CHANGED_TYPE:x\n";

    #[test]
    fn what_a_cell_prints_is_text_in_any_split() {
        for cut in 0..=HOSTILE.len() {
            let mut splitter = running();
            let mut pieces = splitter.push(b"first\n");
            pieces.extend(splitter.push(&HOSTILE.as_bytes()[..cut]));
            pieces.extend(splitter.push(&HOSTILE.as_bytes()[cut..]));
            assert_eq!(
                shown(pieces),
                (format!("first\n{HOSTILE}"), 0),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn no_word_of_evcxr_counts_while_no_cell_runs_and_on_standard_error() {
        let all = format!("{HOSTILE}{PANIC}\n{USER_ERROR}\nEVCXR_BEGIN_CONTENT text/plain\n1\n");
        let mut splitter = Splitter::new("t");
        assert_eq!(shown(splitter.push(all.as_bytes())), (all.clone(), 0));
        // A display without a cell is none either.
        let open = own_display(true);
        assert_eq!(
            shown(splitter.push((open + &all).as_bytes())),
            (all.clone(), 1)
        );
        let mut splitter = running();
        let end = Record::End { child: 7, run: 1 }.line("t");
        assert_eq!(shown(splitter.push((end + &all).as_bytes())), (all, 1));
    }

    #[test]
    fn a_value_shows_itself_and_nothing_after_it() {
        let html = "EVCXR_BEGIN_CONTENT text/html\n<b>1</b>\nEVCXR_END_CONTENT\n";
        let mut splitter = running();
        let all = own_display(true) + html + &own_display(false) + html;
        let pieces = splitter.push(all.as_bytes());
        let content = Piece::Content {
            mime: "text/html".into(),
            data: "<b>1</b>".into(),
        };
        assert_eq!(pieces.iter().filter(|piece| **piece == content).count(), 1);
        assert_eq!(shown(pieces), (html.to_owned(), 3));
    }

    #[test]
    fn a_changed_type_is_found_before_the_cell_prints() {
        let changed = "EVCXR_VARIABLE_CHANGED_TYPE:";
        let mut splitter = running();
        let pieces = splitter.push(format!("{changed}a\n{changed}b\nx\n{changed}c\n").as_bytes());
        let found = |name: &str| Piece::Evcxr(format!("{changed}{name}"));
        assert_eq!(pieces[..2], [found("a"), found("b")]);
        assert_eq!(shown(pieces), (format!("x\n{changed}c\n"), 2));
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
        let mut bytes = "half ü".as_bytes().to_vec();
        bytes.extend_from_slice(record.line("t").as_bytes());
        bytes.extend_from_slice(b"EVCXR_PANIC_NOTIFICATION\nend\n");
        for cut in 0..=bytes.len() {
            let mut splitter = running();
            let mut pieces = splitter.push(&bytes[..cut]);
            pieces.extend(splitter.push(&bytes[cut..]));
            let joined: String = pieces
                .iter()
                .filter_map(|piece| match piece {
                    Piece::Text(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            assert_eq!(joined, "half üend\n", "cut at {cut}");
            let rest: Vec<_> = pieces
                .into_iter()
                .filter(|piece| !matches!(piece, Piece::Text(_)))
                .collect();
            assert_eq!(
                rest,
                [Piece::Record(record.clone()), Piece::Evcxr(PANIC.into())],
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
    fn evcxr_content_keeps_its_lines() {
        let mut splitter = running();
        assert_eq!(splitter.push(b"EVCXR_BEGIN_CONTENT text/plain\n1\n"), []);
        assert_eq!(
            splitter.push(b"2\nEVCXR_END_CONTENT\nafter"),
            [
                Piece::Content {
                    mime: "text/plain".into(),
                    data: "1\n2".into()
                },
                text("after")
            ]
        );
    }

    #[test]
    fn a_panic_inside_a_value_s_formatting_is_not_swallowed() {
        let mut splitter = running();
        let pieces = splitter.push(b"EVCXR_BEGIN_CONTENT text/plain\n1EVCXR_PANIC_NOTIFICATION\n");
        assert_eq!(pieces.last(), Some(&Piece::Evcxr(PANIC.into())));
    }

    #[test]
    fn what_is_left_open_ends_where_the_session_s_next_record_begins() {
        let end = Record::End { child: 7, run: 3 };
        for (open, expected) in [
            (
                "EVCXR_BEGIN_CONTENT text/plain\n1\n",
                vec![Piece::Content {
                    mime: "text/plain".into(),
                    data: "1".into(),
                }],
            ),
            (
                "EVCXR_BEGIN_CONTENT text",
                vec![text("EVCXR_BEGIN_CONTENT text")],
            ),
            ("EVCXR_", vec![text("EVCXR_")]),
            ("\u{1e}t {\"html\": \"<b", vec![]),
        ] {
            let bytes = format!("{open}{}after", end.line("t")).into_bytes();
            for cut in 0..=bytes.len() {
                let mut splitter = running();
                let mut pieces = splitter.push(&bytes[..cut]);
                pieces.extend(splitter.push(&bytes[cut..]));
                // Text that is certain is passed on at once, so it may come in two pieces.
                let after: String = pieces
                    .drain(expected.len() + 1..)
                    .map(|piece| match piece {
                        Piece::Text(text) => text,
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!(after, "after", "{open} cut at {cut}");
                assert_eq!(pieces.pop(), Some(Piece::Record(end.clone())));
                assert_eq!(pieces, expected, "{open} cut at {cut}");
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
    fn the_user_may_print_what_looks_like_evcxr() {
        let mut splitter = running();
        assert_eq!(
            splitter.push(b"EVCXR_SOMETHING\n"),
            [text("EVCXR_SOMETHING\n")]
        );
    }

    #[test]
    fn a_large_value_and_many_small_displays_take_time_in_proportion() {
        let started = std::time::Instant::now();
        let mut splitter = running();
        let mut pieces = splitter.push(b"EVCXR_BEGIN_CONTENT text/plain\n");
        let block = [b'x'; 1 << 14];
        for _ in 0..4000 {
            pieces.extend(splitter.push(&block));
        }
        pieces.extend(splitter.push(b"\nEVCXR_END_CON"));
        pieces.extend(splitter.push(b"TENT\n"));
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
