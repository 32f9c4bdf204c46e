//! Prints on stdout, with an error instead of a panic if a write fails, and answers the lines of stdin.

use std::fmt::Arguments;
use std::io::{self, BufReader, Stdin, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::notes;
use crate::ranks::Ranks;
use crate::text::reader::Lines;

/// Upper limit of the input that is read and answered at once, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Prints a line, as `println!` does; returns a result.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::shared::stdio::line(format_args!($($text)*))
    };
}
pub(in crate::cli) use say;

/// Returns where answers go: stdout on the first rank. The other ranks have the same answers and drop them, as does a
/// test that runs commands in its own process.
pub(crate) fn stdout() -> Box<dyn Write> {
    match Ranks::of_process().is_first() && !notes::are_kept() {
        true => Box::new(io::stdout().lock()),
        false => Box::new(io::sink()),
    }
}

/// Prints a line.
pub(crate) fn line(text: Arguments<'_>) -> Result<()> {
    still_read(writeln!(stdout(), "{text}")).map(|_| ())
}

/// Returns whether anybody still reads stdout. A reader that stops early, as in `cloze … | head`, is no
/// error.
pub(crate) fn still_read(written: io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Error::io("stdout", e)),
    }
}

/// Answers all lines of stdin, each time as many as are available, so that a program can send a line and wait for
/// its answer. Answers the lines before an error in the input, and then returns the error.
pub(crate) fn answer_lines(
    mut answers: impl FnMut(&[String]) -> Result<Vec<String>>,
) -> Result<()> {
    let reader = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
    let mut lines = Lines::new(reader, Path::new("stdin"));
    let mut out = stdout();
    let ranks = Ranks::of_process();
    loop {
        // Only the first rank has the input.
        let (batch, fault) = match ranks.is_first() {
            true => next_batch(&mut lines),
            false => (Vec::new(), None),
        };
        let batch = shared(ranks, batch)?;
        if batch.is_empty() {
            return fault.map_or(Ok(()), Err);
        }
        for answer in answers(&batch)? {
            if !still_read(writeln!(out, "{answer}"))? {
                // The other ranks wait for lines.
                return shared(ranks, Vec::new()).map(drop);
            }
        }
        if let Some(error) = fault {
            return Err(error);
        }
    }
}

/// Returns the first rank's lines on all ranks.
fn shared(ranks: &Ranks, lines: Vec<String>) -> Result<Vec<String>> {
    if ranks.size() == 1 {
        return Ok(lines);
    }
    let all =
        ranks.gather(lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect())?;
    // The first rank's lines are text.
    Ok(String::from_utf8_lossy(&all[0]).lines().map(str::to_owned).collect())
}

/// Returns the available lines, at least one unless the input has ended.
fn next_batch(lines: &mut Lines<BufReader<Stdin>>) -> (Vec<String>, Option<Error>) {
    let mut batch = Vec::new();
    loop {
        match lines.next() {
            None => return (batch, None),
            Some(Err(error)) => return (batch, Some(error)),
            Some(Ok(line)) => batch.push(line),
        }
        if !lines.reader().buffer().contains(&b'\n') {
            return (batch, None);
        }
    }
}
