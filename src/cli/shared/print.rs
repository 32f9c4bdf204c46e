//! What commands print on stdout. A failed write is an error, not a panic.

use std::fmt::Arguments;
use std::io::{self, Write};

use crate::error::{Error, Result};

/// Prints a line, as `println!` does; returns a result.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::shared::print::line(format_args!($($text)*))
    };
}
pub(in crate::cli) use say;

/// Prints a line.
pub(crate) fn line(text: Arguments<'_>) -> Result<()> {
    still_read(writeln!(io::stdout().lock(), "{text}")).map(|_| ())
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
