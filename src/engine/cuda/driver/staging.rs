//! Copies to the device through pinned memory, which the device reads by itself while the processor
//! continues.

use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::CUevent;

use super::context::Context;
use crate::engine::cuda::device::Address;
use crate::error::Result;

/// Bytes of pinned memory and of one copy: four can be in progress while a fifth is written.
const CAPACITY: usize = 32 << 20;
const PIECE: usize = CAPACITY / 4;
/// Alignment of pieces: a cache line.
const ALIGNMENT: usize = 64;

/// An event without a time.
const DISABLE_TIMING: c_uint = 2;

/// A ring buffer of copies in progress, each with an event that ends it.
struct Ring<E> {
    capacity: usize,
    /// Start of the next piece.
    head: usize,
    /// Copies in progress, oldest first; each ends with its event.
    pieces: VecDeque<(usize, usize, E)>,
}

impl<E> Ring<E> {
    fn new(capacity: usize) -> Self {
        Self { capacity, head: 0, pieces: VecDeque::new() }
    }

    /// Reserves space for a piece of at most the capacity. Returns its start and the events of all
    /// pieces that overlap it or are older; after waiting for the last, the caller may write.
    fn reserve(&mut self, length: usize) -> (usize, Vec<E>) {
        let length = length.next_multiple_of(ALIGNMENT);
        if self.head + length > self.capacity {
            self.head = 0;
        }
        let (start, end) = (self.head, self.head + length);
        let overlaps = |&(from, to, _): &(usize, usize, E)| from < end && start < to;
        let done = self.pieces.iter().rposition(overlaps).map_or(0, |last| last + 1);
        let events = self.pieces.drain(..done).map(|(_, _, event)| event);
        self.head = end;
        (start, events.collect())
    }

    /// Adds the piece at `start`, which is in use until `event`.
    fn push(&mut self, start: usize, length: usize, event: E) {
        self.pieces.push_back((start, start + length, event));
    }
}

/// A ring of pinned memory.
pub(super) struct Staging {
    context: Arc<Context>,
    /// Null until the first copy.
    memory: *mut c_void,
    ring: Ring<CUevent>,
    /// Unused events.
    spare: Vec<CUevent>,
}

// SAFETY: pinned memory and events may be used from any thread.
unsafe impl Send for Staging {}

impl Staging {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, memory: ptr::null_mut(), ring: Ring::new(CAPACITY), spare: Vec::new() }
    }

    /// Copies to the device in stream order; the context must be entered. Waits only if the ring is
    /// full.
    pub fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<()> {
        if self.memory.is_null() && !bytes.is_empty() {
            let mut memory = ptr::null_mut();
            // SAFETY: the pointer is valid.
            let status =
                unsafe { (self.context.functions.cuMemHostAlloc)(&mut memory, CAPACITY, 0) };
            self.context.check(status, "pin memory for copies")?;
            self.memory = memory;
        }
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            self.send(to.offset((index * PIECE) as u64), piece)?;
        }
        Ok(())
    }

    fn send(&mut self, to: Address, piece: &[u8]) -> Result<()> {
        let f = &self.context.functions;
        let event = match self.spare.pop() {
            Some(event) => event,
            None => {
                let mut event = ptr::null_mut();
                // SAFETY: the pointer is valid.
                let status = unsafe { (f.cuEventCreate)(&mut event, DISABLE_TIMING) };
                self.context.check(status, "create an event")?;
                event
            }
        };
        let (start, before) = self.ring.reserve(piece.len());
        if let Some(&last) = before.last() {
            // SAFETY: events of the ring are created above and destroyed with the ring.
            let status = unsafe { (f.cuEventSynchronize)(last) };
            self.context.check(status, "copy to its memory")?;
        }
        self.spare.extend(before);
        // SAFETY: the reserved range lies within the pinned memory, and its previous contents have
        // been read: their event has passed, and with it all earlier ones of the one stream. The
        // piece stays until its own event.
        let (copied, recorded) = unsafe {
            let from = self.memory.cast::<u8>().add(start);
            ptr::copy_nonoverlapping(piece.as_ptr(), from, piece.len());
            let stream = self.context.stream;
            let copied = (f.cuMemcpyHtoDAsync_v2)(to.0, from.cast(), piece.len(), stream);
            (copied, (f.cuEventRecord)(event, stream))
        };
        self.ring.push(start, piece.len(), event);
        self.context.check(copied, "copy to its memory")?;
        self.context.check(recorded, "copy to its memory")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        // The device must not read memory that is released.
        let _ = self.context.synchronize();
        let f = &self.context.functions;
        let events = self.ring.pieces.drain(..).map(|(_, _, event)| event);
        for event in events.chain(self.spare.drain(..)) {
            // SAFETY: created here, destroyed once.
            unsafe { (f.cuEventDestroy_v2)(event) };
        }
        if !self.memory.is_null() {
            // SAFETY: allocated here, released once, and no copy is in progress.
            unsafe { (f.cuMemFreeHost)(self.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece never overlaps one in progress, for any sequence of sizes.
    #[test]
    fn no_piece_is_written_over_before_its_event() {
        let mut ring: Ring<usize> = Ring::new(4096);
        // Events pass in order; those up to `come` have.
        let (mut come, mut waits) = (0, 0);
        let mut under_way: Vec<(usize, usize, usize)> = Vec::new();
        let mut random = 12345u32;
        for event in 1..if cfg!(miri) { 200 } else { 5000 } {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = 1 + (random >> 16) as usize % 1024;
            let (start, before) = ring.reserve(length);
            assert!(before.is_sorted(), "events must come oldest first");
            if let Some(&last) = before.last() {
                waits += 1;
                come = come.max(last);
            }
            under_way.retain(|&(_, _, event)| event > come);
            assert!(start + length <= 4096 && start % ALIGNMENT == 0);
            let free =
                |&(from, to, _): &(usize, usize, usize)| to <= start || start + length <= from;
            assert!(under_way.iter().all(free), "{event}: {start} {length} {under_way:?}");
            ring.push(start, length, event);
            under_way.push((start, start + length, event));
        }
        assert!(waits > 0);
        assert!(under_way.len() > 2, "several copies must be under way at once");
    }

    #[test]
    fn small_pieces_do_not_wait_for_each_other() {
        let mut ring: Ring<usize> = Ring::new(CAPACITY);
        for event in 0..1000 {
            assert!(ring.reserve(10_000).1.is_empty());
            ring.push(event, 10_000, event);
        }
    }
}
