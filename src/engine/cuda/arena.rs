//! One block of the device's memory for all activations. Their addresses are planned for each batch
//! size before any launch, and the block is allocated once; it grows if a larger batch comes.

use crate::error::Result;

use super::device::{Address, Device};

/// Every buffer starts at a multiple of this many bytes, which suits matrix products and vector
/// loads.
const ALIGNMENT: u64 = 256;

/// How long a buffer is needed. A step consists of: layers forward, heads forward and backward,
/// layers backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The whole step.
    Step,
    /// While a layer computes; the heads overwrite it.
    Layers,
    /// While the heads compute; the layers overwrite it.
    Heads,
}

/// Assigns addresses. Buffers of the layers and of the heads overlap.
///
/// The same code runs twice: once to measure, once to place.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The start of each span's buffers, and the bytes assigned to it.
    base: [u64; 3],
    used: [u64; 3],
}

impl Plan {
    /// Measures the bytes that `take` needs.
    pub fn measure<T>(take: impl FnOnce(&mut Self) -> T) -> Self {
        let mut plan = Self { base: [0; 3], used: [0; 3] };
        take(&mut plan);
        plan
    }

    /// Runs `take`, which was measured, with addresses from `at` on.
    pub fn place<T>(self, at: Address, take: impl FnOnce(&mut Self) -> T) -> T {
        let shared = at.0 + self.used[Span::Step as usize];
        let mut plan = Self { base: [at.0, shared, shared], used: [0; 3] };
        let taken = take(&mut plan);
        assert_eq!(plan.used, self.used, "sizes as measured");
        taken
    }

    /// Returns an address for `bytes` bytes, or NONE for 0 bytes.
    pub fn take(&mut self, span: Span, bytes: u64) -> Address {
        if bytes == 0 {
            return Address::NONE;
        }
        let (base, used) = (self.base[span as usize], &mut self.used[span as usize]);
        let at = Address(base + *used);
        *used += bytes.next_multiple_of(ALIGNMENT);
        at
    }

    /// Returns the bytes of all buffers together.
    pub fn bytes(&self) -> u64 {
        let [step, layers, heads] = self.used;
        step + layers.max(heads)
    }
}

/// The block of memory.
#[derive(Debug, Default)]
pub struct Arena {
    at: Address,
    bytes: u64,
}

impl Arena {
    /// Returns the start of the block.
    pub fn at(&self) -> Address {
        self.at
    }

    /// Returns the size of the block.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows the block to at least `bytes`. Returns true if it moved, which loses its contents. A
    /// block that grows repeatedly gets an extra eighth if that much memory is free.
    pub fn reserve(&mut self, device: &mut dyn Device, bytes: u64) -> Result<bool> {
        if bytes <= self.bytes {
            return Ok(false);
        }
        let grows = self.bytes > 0;
        self.release(device);
        let more = (bytes + bytes / 8).next_multiple_of(ALIGNMENT);
        let size = if grows && device.free_memory()? > more { more } else { bytes };
        self.at = device.allocate(size)?;
        self.bytes = size;
        Ok(true)
    }

    /// Releases the block.
    pub fn release(&mut self, device: &mut dyn Device) {
        if self.bytes > 0 {
            device.release(self.at);
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Buffers that are needed at the same time don't overlap, and all lie within the measured
        /// size.
        #[test]
        fn buffers_needed_together_do_not_overlap(
            wanted in proptest::collection::vec((0usize..3, 0u64..5000), 1..40),
        ) {
            let spans = [Span::Step, Span::Layers, Span::Heads];
            let take = |plan: &mut Plan| -> Vec<(Span, u64, u64)> {
                let taken = wanted.iter().map(|&(span, bytes)| {
                    (spans[span], plan.take(spans[span], bytes).0, bytes)
                });
                taken.collect()
            };
            let measured = Plan::measure(take);
            let start = 1 << 20;
            let taken = measured.place(Address(start), take);
            let end = start + measured.bytes();
            for (i, &(span, at, bytes)) in taken.iter().enumerate() {
                if bytes == 0 {
                    prop_assert_eq!(at, 0);
                    continue;
                }
                prop_assert!(at >= start && at + bytes <= end && at % ALIGNMENT == 0);
                for &(other, from, len) in &taken[..i] {
                    let apart = at + bytes <= from || from + len <= at;
                    let never_together = [span, other].contains(&Span::Layers)
                        && [span, other].contains(&Span::Heads);
                    prop_assert!(len == 0 || apart || never_together);
                }
            }
            // Only the padding of buffers is wasted.
            let sum = |span: Span| -> u64 {
                let of = taken.iter().filter(|taken| taken.0 == span);
                of.map(|taken| taken.2.next_multiple_of(ALIGNMENT)).sum()
            };
            let shared = sum(Span::Layers).max(sum(Span::Heads));
            prop_assert_eq!(measured.bytes(), sum(Span::Step) + shared);
        }
    }
}
