//! Printing on stdout: a failure is an error, not a panic.

use std::fmt::Arguments;
use std::io::{self, Write};

use crate::error::{Error, Result};

/// Prints a line like `println!`, but returns a result.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::print::line(format_args!($($text)*))
    };
}
pub(super) use say;

/// Prints a line.
pub fn line(text: Arguments<'_>) -> Result<()> {
    still_read(writeln!(io::stdout().lock(), "{text}")).map(|_| ())
}

/// Returns whether stdout is still read. A reader that has closed it, as in `cloze … | head`, is not an
/// error.
pub fn still_read(written: io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Error::io("stdout", e)),
    }
}
