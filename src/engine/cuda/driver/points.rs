//! Points of the engine's stream that other streams wait for, NCCL's in particular.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::CUevent;

use super::context::Context;
use crate::error::{Error, Result};

/// An event without a time.
const DISABLE_TIMING: u32 = 2;
/// An event in a recording that streams outside of it can wait for (`CU_EVENT_RECORD_EXTERNAL`): each replay records it
/// anew.
const EXTERNAL: u32 = 1;

/// An event for each numbered point.
pub(super) struct Points {
    context: Arc<Context>,
    events: Vec<CUevent>,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Points {}

impl Points {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, events: Vec::new() }
    }

    /// Records the event of a point, in the recording if there is one; the context must be entered.
    pub fn record(&mut self, point: usize, recording: bool) -> Result<()> {
        let (f, stream) = (&self.context.functions, self.context.stream);
        while self.events.len() <= point {
            let mut event = ptr::null_mut();
            // SAFETY: the pointer is valid.
            let status = unsafe { (f.cuEventCreate)(&mut event, DISABLE_TIMING) };
            self.context.check(status, "create an event")?;
            self.events.push(event);
        }
        let event = self.events[point];
        // SAFETY: event and stream are alive.
        let status = unsafe {
            match recording {
                true => (f.cuEventRecordWithFlags)(event, stream, EXTERNAL),
                false => (f.cuEventRecord)(event, stream),
            }
        };
        self.context.check(status, "mark a point")
    }

    /// Returns the event of a point that was recorded.
    pub fn event(&self, point: usize) -> Result<u64> {
        let event = self.events.get(point).map(|&event| event as u64);
        event.ok_or_else(|| Error::Failed(format!("the point {point} was never marked")))
    }
}

impl Drop for Points {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        for &event in &self.events {
            // SAFETY: created here, destroyed once.
            unsafe { (self.context.functions.cuEventDestroy_v2)(event) };
        }
    }
}
