//! The library that cells know as `cloze`: the crate, and functions through which the session's child
//! reaches the cells' copy of the standard library. The session template compiles it, not the kernel.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;

pub use cloze::*;

/// Flushes an unfinished line.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_flush() {
    // If the reader has gone, nobody needs the output.
    let _ = std::io::stdout().flush();
}

/// Flushes an unfinished line and then writes the cell's end mark into `pipe`. Meanwhile no thread of
/// the cells can write, so that the mark does not split a long record. A cell may have redirected
/// standard output, hence the `pipe`. Returns false if the session has gone.
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
    // As above.
    let _ = out.flush();
    let pipe = pipe.try_clone_to_owned().map(File::from);
    pipe.and_then(|mut pipe| pipe.write_all(mark)).is_ok()
}

/// Sets or clears the flag that `cloze::interrupt::poll` checks.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_interrupt(on: bool) {
    if on {
        cloze::interrupt::request();
    } else {
        cloze::interrupt::clear();
    }
}

/// Turns panics on this thread, which will run the cells, into errors of the cell. Called once.
#[unsafe(no_mangle)]
pub extern "C" fn cloze_session_start() {
    let cells = std::thread::current().id();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != cells {
            default(info);
            return;
        }
        let message = info.payload_as_str().unwrap_or("a panic without a message");
        let (file, line) =
            info.location().map_or((String::new(), 0), |at| (at.file().to_owned(), at.line()));
        report(message.to_owned(), file, line);
    }));
}

/// Writes around the lock of standard output, which the panicking code may hold.
fn report(message: String, file: String, line: u32) {
    use cloze::display::wire::{self, Record};
    let record = Record::Panic { message, file, line };
    if let Some(token) = wire::token()
        && let Ok(mut pipe) = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/1")
    {
        let _ = pipe.write_all(record.line(token).as_bytes());
    }
}
