//! What is copied to the device goes through pinned memory, where the device fetches it by itself
//! while the processor goes on.

use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::CUevent;

use super::context::Context;
use crate::engine::cuda::device::Address;
use crate::error::Result;

/// Bytes of pinned memory, and of one copy: four can be under way, while a fifth is filled in.
const CAPACITY: usize = 32 << 20;
const PIECE: usize = CAPACITY / 4;
/// What pieces begin at: a cache line.
const ALIGNMENT: usize = 64;

/// An event that tells only whether it has come.
const DISABLE_TIMING: c_uint = 2;

/// The ring of bytes on their way: who may write where, after which event.
struct Ring<E> {
    capacity: usize,
    /// Where the next piece begins.
    head: usize,
    /// Pieces on their way, oldest first; each is done when its event has come.
    pieces: VecDeque<(usize, usize, E)>,
}

impl<E> Ring<E> {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            head: 0,
            pieces: VecDeque::new(),
        }
    }

    /// Room for a piece of at most the capacity: its place, and the events of all pieces that stood
    /// there or are older. Whoever waits for the last may write.
    fn reserve(&mut self, length: usize) -> (usize, Vec<E>) {
        let length = length.next_multiple_of(ALIGNMENT);
        if self.head + length > self.capacity {
            self.head = 0;
        }
        let (start, end) = (self.head, self.head + length);
        let overlaps = |&(from, to, _): &(usize, usize, E)| from < end && start < to;
        let done = self
            .pieces
            .iter()
            .rposition(overlaps)
            .map_or(0, |last| last + 1);
        let events = self.pieces.drain(..done).map(|(_, _, event)| event);
        self.head = end;
        (start, events.collect())
    }

    /// The piece at `start` is on its way until `event`.
    fn sent(&mut self, start: usize, length: usize, event: E) {
        self.pieces.push_back((start, start + length, event));
    }
}

/// Pinned memory as a ring.
pub(super) struct Staging {
    context: Arc<Context>,
    /// Null until something is copied.
    memory: *mut c_void,
    ring: Ring<CUevent>,
    /// Events that no piece needs.
    spare: Vec<CUevent>,
}

// SAFETY: pinned memory and events may be used from any thread.
unsafe impl Send for Staging {}

impl Staging {
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            memory: ptr::null_mut(),
            ring: Ring::new(CAPACITY),
            spare: Vec::new(),
        }
    }

    /// Copies to the device in the order of the stream. The context is entered. Waits only where the
    /// ring is full.
    pub fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<()> {
        if self.memory.is_null() && !bytes.is_empty() {
            let mut memory = ptr::null_mut();
            // SAFETY: the memory has a place.
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
                // SAFETY: the event has a place.
                let status = unsafe { (f.cuEventCreate)(&mut event, DISABLE_TIMING) };
                self.context.check(status, "make an event")?;
                event
            }
        };
        let (start, before) = self.ring.reserve(piece.len());
        if let Some(&last) = before.last() {
            // SAFETY: an event of the ring was made above and is destroyed with the ring.
            let status = unsafe { (f.cuEventSynchronize)(last) };
            self.context.check(status, "copy to its memory")?;
        }
        self.spare.extend(before);
        // SAFETY: the ring's place lies within the pinned memory with room for the piece, and what
        // stood there has been fetched: its event came, and with it all that were recorded earlier
        // in the one stream. The piece stays until its own event has come.
        let (copied, recorded) = unsafe {
            let from = self.memory.cast::<u8>().add(start);
            ptr::copy_nonoverlapping(piece.as_ptr(), from, piece.len());
            let stream = self.context.stream;
            let copied = (f.cuMemcpyHtoDAsync_v2)(to.0, from.cast(), piece.len(), stream);
            (copied, (f.cuEventRecord)(event, stream))
        };
        self.ring.sent(start, piece.len(), event);
        self.context.check(copied, "copy to its memory")?;
        self.context.check(recorded, "copy to its memory")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.context.is_lost() || self.context.enter().is_err() {
            return;
        }
        // The device must not fetch from memory that is given back.
        let _ = self.context.synchronize();
        let f = &self.context.functions;
        let events = self.ring.pieces.drain(..).map(|(_, _, event)| event);
        for event in events.chain(self.spare.drain(..)) {
            // SAFETY: made here, and destroyed once.
            unsafe { (f.cuEventDestroy_v2)(event) };
        }
        if !self.memory.is_null() {
            // SAFETY: allocated here, given back once, and nothing is on its way.
            unsafe { (f.cuMemFreeHost)(self.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece is never given a place that one on its way still needs, in whatever sizes they come.
    #[test]
    fn no_piece_is_written_over_before_its_event() {
        let mut ring: Ring<usize> = Ring::new(4096);
        // Events come in order; those up to `come` have.
        let (mut come, mut waits) = (0, 0);
        let mut under_way: Vec<(usize, usize, usize)> = Vec::new();
        let mut random = 12345u32;
        for event in 1..5000 {
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
            assert!(
                under_way.iter().all(free),
                "{event}: {start} {length} {under_way:?}"
            );
            ring.sent(start, length, event);
            under_way.push((start, start + length, event));
        }
        assert!(waits > 0);
        assert!(
            under_way.len() > 2,
            "several copies must be under way at once"
        );
    }

    #[test]
    fn small_pieces_do_not_wait_for_each_other() {
        let mut ring: Ring<usize> = Ring::new(CAPACITY);
        for event in 0..1000 {
            assert!(ring.reserve(10_000).1.is_empty());
            ring.sent(event, 10_000, event);
        }
    }
}
