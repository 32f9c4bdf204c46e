//! The standard output of a cell's process: text, display records and evcxr's markers, in reads of any length.

#![no_main]

use cloze::display::wire::Record;
use cloze_fuzz::parts;
use libfuzzer_sys::fuzz_target;

#[path = "../../kernel/src/session/stream.rs"]
#[allow(dead_code)]
mod stream;

use stream::{Piece, Splitter};

const TOKEN: &str = "token";

// The parts of an input: the lengths of the reads, one a byte, and the output.
fuzz_target!(|data: &[u8]| {
    let [lengths, output] = parts(data);
    let whole = Splitter::new(TOKEN).push(output);
    let mut splitter = Splitter::new(TOKEN);
    let mut pieces = Vec::new();
    let mut rest = output;
    for &length in lengths.iter().cycle().take(output.len()) {
        let (read, later) =
            rest.split_at(usize::from(length).clamp(1, rest.len().max(1)).min(rest.len()));
        pieces.extend(splitter.push(read));
        rest = later;
    }
    if rest.is_empty() {
        assert_eq!(joined(&pieces), joined(&whole), "whatever the lengths of the reads");
    }
    for piece in whole {
        if let Piece::Record(record) = piece
            && !matches!(record, Record::Own { .. })
        {
            let line = record.line(TOKEN);
            assert_eq!(Splitter::new(TOKEN).push(line.as_bytes()), [Piece::Record(record)]);
        }
    }
});

/// Joins texts that follow one another: they are passed on as they come.
fn joined(pieces: &[Piece]) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => *before += text,
            _ => joined.push(piece.clone()),
        }
    }
    joined
}
