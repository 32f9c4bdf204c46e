//! Asks the user of a notebook or a program for input.

use std::io::{self, Write};

use super::display::wire::{self, Record};

/// Asks for a line of text and waits for it; returns it without its line end.
///
/// A notebook shows a field under the cell, a terminal the prompt.
///
/// # Errors
/// If nobody can answer (the notebook is executed by a program, or the input has ended).
pub fn ask(prompt: &str) -> io::Result<String> {
    let record = Record::Input { prompt: prompt.to_owned() };
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
