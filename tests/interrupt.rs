//! The stop flag is global to a process, so its test is a program of its own.

use cloze::interrupt::{self, Interrupted};

#[test]
fn a_request_stops_a_loop_once_and_by_unwinding() {
    interrupt::poll();
    interrupt::request();
    let stopped = std::panic::catch_unwind(|| {
        loop {
            interrupt::poll();
        }
    });
    let payload: Box<dyn std::any::Any + Send> = stopped.unwrap_err();
    assert!(payload.is::<Interrupted>());
    assert!(!interrupt::requested());
    interrupt::poll();
}
