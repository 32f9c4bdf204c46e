//! Interrupts a long computation in a notebook cell without losing the session's variables.
//!
//! The session sets a flag; loops that call [`poll`] notice it within one iteration and unwind out of
//! the cell, which keeps the variables. Outside a session nobody sets the flag, and a poll costs one
//! relaxed load.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static SHARES: Cell<bool> = const { Cell::new(false) };
}

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The panic payload of [`poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// Asks the computations of this process to stop at their next poll.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Withdraws a request.
pub fn clear() {
    REQUESTED.store(false, Ordering::Relaxed);
}

/// Makes polls on this thread leave a request in place: it is for the thread of the cell too.
pub fn share_on_this_thread() {
    SHARES.set(true);
}

/// Returns whether a stop is requested, for loops that end by returning.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Unwinds with [`Interrupted`] if a stop is requested.
///
/// No panic message is printed, because an interruption is no error. Call it on the cell's thread; a worker
/// thread should check [`requested`] and return.
#[inline]
pub fn poll() {
    if requested() {
        if !SHARES.get() {
            clear();
        }
        std::panic::resume_unwind(Box::new(Interrupted))
    }
}
