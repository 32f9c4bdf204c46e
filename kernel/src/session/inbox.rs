//! The requests to the evaluator's thread, which alone reads them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::mpsc;

use super::{Request, Work};

pub struct Inbox {
    pub(super) requests: mpsc::Receiver<Request>,
    /// Reports the end of a cell.
    pub(super) own: mpsc::Sender<Request>,
    /// Cells that were requested while another one ran.
    pub(super) waiting: RefCell<VecDeque<Work>>,
}

impl Inbox {
    pub fn new(requests: mpsc::Receiver<Request>, own: mpsc::Sender<Request>) -> Self {
        Self { requests, own, waiting: RefCell::default() }
    }

    /// Waits for the next request; `None` if the session ends.
    pub fn next(&self) -> Option<Work> {
        if let Some(work) = self.waiting.borrow_mut().pop_front() {
            return Some(work);
        }
        loop {
            match self.requests.recv() {
                Ok(Request::Cell(work) | Request::Question(work)) => return Some(work),
                Ok(Request::Ended) => {}
                Ok(Request::Stop) | Err(_) => return None,
            }
        }
    }

    /// Answers all requests so far with `reason`: there is no evaluator yet.
    pub fn refuse(&self, reason: &str) {
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Cell(work) | Request::Question(work) => work(Err(reason)),
                Request::Ended => {}
                Request::Stop => {
                    // `next` must find it.
                    let _ = self.own.send(Request::Stop);
                    return;
                }
            }
        }
    }
}
