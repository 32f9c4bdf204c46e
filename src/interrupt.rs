//! Stopping a long computation in a cell without losing the session's variables.
//!
//! The session raises a flag; loops that call [`poll`] see it within one turn and unwind to the
//! cell's edge, where variables are kept. Outside a session nobody raises the flag and a poll costs
//! one relaxed load.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// What [`poll`] unwinds with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// Asks whatever runs in this process to stop at its next poll.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Withdraws a request that nothing has answered.
pub fn clear() {
    REQUESTED.store(false, Ordering::Relaxed);
}

/// Whether a stop is asked for, for loops that end by returning.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Leaves the computation by unwinding with [`Interrupted`] where a stop is asked for.
///
/// No panic message is printed: being stopped is not a fault. Call it on the thread that the cell
/// runs on; a worker thread should look at [`requested`] and return.
#[inline]
pub fn poll() {
    if requested() {
        stop();
    }
}

#[cold]
fn stop() -> ! {
    clear();
    std::panic::resume_unwind(Box::new(Interrupted))
}
