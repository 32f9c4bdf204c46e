//! What commands print on stdout: an error there is told as any other, and is no panic.

use std::fmt::Arguments;
use std::io::{self, Write};

use crate::error::{Error, Result};

/// Prints a line, as `println!` does; gives a result.
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

/// Whether somebody still reads what is written to stdout. A reader that has enough, as in
/// `cloze … | head`, is no error.
pub fn still_read(written: io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Error::io("stdout", e)),
    }
}
