//! Buffers that a thread keeps between products.

use std::cell::Cell;
use std::thread::LocalKey;

/// A buffer of a thread.
pub type Buffer<T> = Cell<Vec<T>>;

/// Runs `work` with the first `len` values of a buffer of this thread.
///
/// The buffer is taken out for that time, not borrowed: while `work` waits for other threads, this
/// thread may get another product to compute, which then allocates its own buffer.
pub fn with<T: Clone + Default, R>(
    buffer: &'static LocalKey<Buffer<T>>,
    len: usize,
    work: impl FnOnce(&mut [T]) -> R,
) -> R {
    let mut values = buffer.take();
    if values.len() < len {
        values.resize(len, T::default());
    }
    let result = work(&mut values[..len]);
    buffer.set(values);
    result
}
