//! Locks mutexes whose data is consistent even if a holder has panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic of an earlier holder does not cause a second one.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_s_panic_does_not_spread() {
        let mutex = Mutex::new(1);
        let held = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let mut number = lock(&mutex);
                    *number = 2;
                    panic!("on purpose");
                })
                .join()
        });
        assert!(held.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
