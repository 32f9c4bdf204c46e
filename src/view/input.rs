//! Asking the person in front of a cell or a program.

use std::io::{self, Write};

use super::display::wire::{self, Record};

/// Asks for a line of text and waits for it; the line's end is taken off.
///
/// A notebook shows a field under the cell, a terminal the prompt.
///
/// # Errors
/// Where there is nobody to ask (a notebook that is executed by a program, an input at its end),
/// or the question was answered with a stop.
pub fn ask(prompt: &str) -> io::Result<String> {
    let record = Record::Input {
        prompt: prompt.to_owned(),
    };
    if !wire::send(&record) {
        let mut out = io::stdout().lock();
        out.write_all(prompt.as_bytes())?;
        out.flush()?;
    }
    let mut line = String::new();
    let length = io::stdin().read_line(&mut line)?;
    crate::interrupt::poll();
    if length == 0 {
        let reason = "there is nobody to ask: the input has ended";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
    }
    line.truncate(line.trim_end_matches(['\n', '\r']).len());
    Ok(line)
}
