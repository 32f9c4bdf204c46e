//! Buffers that a thread keeps from one product to the next.

use std::cell::Cell;
use std::thread::LocalKey;

/// A buffer of a thread.
pub type Kept<T> = Cell<Vec<T>>;

/// Runs `work` with the first `len` values of a buffer of this thread.
///
/// The buffer is taken away for that time, not borrowed: where `work` waits for other threads, this
/// one may be given another product to compute, which then makes a buffer of its own.
pub fn with<T: Clone + Default, R>(
    kept: &'static LocalKey<Kept<T>>,
    len: usize,
    work: impl FnOnce(&mut [T]) -> R,
) -> R {
    let mut buffer = kept.take();
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
    let result = work(&mut buffer[..len]);
    kept.set(buffer);
    result
}
