//! The library that cells know as `cloze`: the crate, dfdx, and the handles by which the session's
//! child reaches the cells' side. Compiled in the session template, not in the kernel.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;

pub use cloze_impl::*;
pub use dfdx;

/// Passes an unfinished line on.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_flush() {
    // A reader that has gone wants no output.
    let _ = std::io::stdout().flush();
}

/// Passes an unfinished line on and then writes the cell's end mark into `pipe`, while no thread of
/// the cells can write: it would stand in the midst of a long record. The pipe is given because a
/// cell may have put something else in standard output's place. False where the session has gone.
///
/// # Safety
///
/// `mark` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloze_session_end(
    pipe: BorrowedFd<'_>,
    mark: *const u8,
    length: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let mark = unsafe { std::slice::from_raw_parts(mark, length) };
    let mut out = std::io::stdout().lock();
    // A reader that has gone wants no output.
    let _ = out.flush();
    let pipe = pipe.try_clone_to_owned().map(File::from);
    pipe.and_then(|mut pipe| pipe.write_all(mark)).is_ok()
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
