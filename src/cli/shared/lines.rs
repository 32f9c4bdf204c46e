//! The loop of the commands that answer each line of stdin.

use std::io::{self, BufReader, Stdin, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::text::reader::Lines;

use super::print::still_read;

/// Upper limit of the input that is read and answered at once, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Answers all lines of stdin, each time as many as are available, so that a program can send a line and wait for
/// its answer. Answers the lines before an error in the input, and then returns the error.
pub(crate) fn answer(mut answers: impl FnMut(&[String]) -> Result<Vec<String>>) -> Result<()> {
    let reader = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
    let mut lines = Lines::new(reader, Path::new("stdin"));
    let mut out = io::stdout().lock();
    loop {
        let (batch, fault) = next_batch(&mut lines);
        for answer in answers(&batch)? {
            if !still_read(writeln!(out, "{answer}"))? {
                return Ok(());
            }
        }
        if let Some(error) = fault {
            return Err(error);
        }
        if batch.is_empty() {
            return Ok(());
        }
    }
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
