//! Taking apart what a child writes on standard output: the user's text, the records of
//! `cloze::display`, and the lines with which evcxr's generated code speaks to evcxr.
//!
//! Text is passed on as soon as it is certain to be text, so that a progress line without a line
//! end is seen while it grows.

use cloze::display::wire::{OPENING, Record};

/// evcxr's generated code marks its lines with this.
const EVCXR: &str = "EVCXR_";
const CONTENT_BEGIN: &str = "EVCXR_BEGIN_CONTENT ";
const CONTENT_END: &str = "EVCXR_END_CONTENT\n";

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

/// The state between two reads.
pub struct Splitter {
    opening: String,
    pending: Vec<u8>,
}

impl Splitter {
    /// A splitter for the session whose records carry `token`.
    pub fn new(token: &str) -> Self {
        Self {
            opening: format!("{OPENING}{token} "),
            pending: Vec::new(),
        }
    }

    /// Takes the next bytes and gives every piece that is complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.pending.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        while let Some(used) = self.step(&mut pieces) {
            self.pending.drain(..used);
        }
        pieces
    }

    /// Reads one piece off the front of `pending`; `None` asks for more bytes.
    fn step(&self, pieces: &mut Vec<Piece>) -> Option<usize> {
        if self.pending.is_empty() {
            return None;
        }
        let openings = [self.opening.as_bytes(), EVCXR.as_bytes()];
        let start = openings
            .iter()
            .map(|opening| find_or_begin(&self.pending, opening))
            .min()
            // `openings` has two elements.
            .unwrap_or(self.pending.len());
        if start > 0 {
            let used = whole_characters(&self.pending[..start], start < self.pending.len());
            if used == 0 {
                return None;
            }
            let text = String::from_utf8_lossy(&self.pending[..used]).into_owned();
            pieces.push(Piece::Text(text));
            return Some(used);
        }
        let rest = &self.pending;
        if let Some(after) = rest.strip_prefix(self.opening.as_bytes()) {
            let end = after.iter().position(|&byte| byte == b'\n')?;
            // A record that does not parse was not written by us: it is shown as it came.
            pieces.push(match serde_json::from_slice(&after[..end]) {
                Ok(record) => Piece::Record(record),
                Err(_) => Piece::Text(String::from_utf8_lossy(&after[..=end]).into_owned()),
            });
            return Some(self.opening.len() + end + 1);
        }
        if !rest.starts_with(EVCXR.as_bytes()) {
            return None;
        }
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        if let Some(mime) = line.strip_prefix(CONTENT_BEGIN) {
            let body = &rest[end + 1..];
            let mut stop = find(body, CONTENT_END.as_bytes()).map(|at| (at, CONTENT_END.len()));
            if let Some(at) = find(body, PANIC.as_bytes())
                && stop.is_none_or(|(end, _)| at < end)
            {
                // The value's own formatting panicked: the notification is left for the next step.
                stop = Some((at, 0));
            }
            let (at, length) = stop?;
            let data = String::from_utf8_lossy(&body[..at]);
            pieces.push(Piece::Content {
                mime: mime.to_owned(),
                data: data.strip_suffix('\n').unwrap_or(&data).to_owned(),
            });
            return Some(end + 1 + at + length);
        }
        let known = line == PANIC || line == USER_ERROR || line.starts_with(CHANGED_TYPE);
        pieces.push(if known {
            Piece::Evcxr(line)
        } else {
            Piece::Text(line + "\n")
        });
        Some(end + 1)
    }
}

/// Where `needle` is in `hay`, or where the end of `hay` may be its beginning, or the end.
fn find_or_begin(hay: &[u8], needle: &[u8]) -> usize {
    find(hay, needle).unwrap_or_else(|| {
        let longest = needle.len().min(hay.len() + 1) - 1;
        (1..=longest)
            .rev()
            .find(|&length| hay.ends_with(&needle[..length]))
            .map_or(hay.len(), |length| hay.len() - length)
    })
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len())
        .position(|window| window == needle)
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
            let mut splitter = Splitter::new("t");
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
        let mut splitter = Splitter::new("t");
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
        let mut splitter = Splitter::new("t");
        let pieces = splitter.push(b"EVCXR_BEGIN_CONTENT text/plain\n1EVCXR_PANIC_NOTIFICATION\n");
        assert_eq!(pieces.last(), Some(&Piece::Evcxr(PANIC.into())));
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
        let mut splitter = Splitter::new("t");
        assert_eq!(
            splitter.push(b"EVCXR_SOMETHING\n"),
            [text("EVCXR_SOMETHING\n")]
        );
    }
}
