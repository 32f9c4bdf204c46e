//! The library that cells know as `cloze`: the crate, dfdx, and the handles by which the session's
//! child reaches the cells' side. Compiled in the session template, not in the kernel.

use std::io::Write;

pub use cloze_impl::*;
pub use dfdx;

/// Passes an unfinished line on.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_flush() {
    // A reader that has gone wants no output.
    let _ = std::io::stdout().flush();
}

/// Raises or lowers the flag that `cloze::interrupt::poll` looks at.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_interrupt(on: bool) {
    if on {
        cloze_impl::interrupt::request();
    } else {
        cloze_impl::interrupt::clear();
    }
}

/// Called once, on the thread that will run the cells: their panics become errors of the cell.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_start() {
    let cells = std::thread::current().id();
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != cells {
            otherwise(info);
            return;
        }
        let message = info.payload_as_str().unwrap_or("a panic without a message");
        let (file, line) = info
            .location()
            .map_or((String::new(), 0), |at| (at.file().to_owned(), at.line()));
        report(message.to_owned(), file, line);
    }));
}

/// Writes past the standard output's lock, which the panic may have interrupted.
fn report(message: String, file: String, line: u32) {
    use cloze_impl::display::wire::{self, Record};
    let record = Record::Panic {
        message,
        file,
        line,
    };
    if let Some(token) = wire::token()
        && let Ok(mut pipe) = std::fs::OpenOptions::new()
            .write(true)
            .open("/proc/self/fd/1")
    {
        let _ = pipe.write_all(record.line(token).as_bytes());
    }
}
