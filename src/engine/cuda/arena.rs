//! One piece of the device's memory for all activations: what lies where in it is planned for each
//! size of batch, before anything is launched, and the piece is allocated once. It grows when a
//! larger batch comes.

use crate::error::Result;

use super::device::{Address, Device};

/// Every buffer starts at a multiple of this, in bytes: what matrix products and vector loads like.
const ALIGNMENT: u64 = 256;

/// How long a buffer is needed. A step is: layers forward, heads forward and backward, layers
/// backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// All of it.
    Step,
    /// While a layer computes; what is in it is lost when the heads begin.
    Layers,
    /// While the heads compute; what is in it is lost when a layer begins.
    Heads,
}

/// Hands out places. Buffers of the layers lie where those of the heads lie.
///
/// Made twice by the same code: once to measure, once to place.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Where each span's buffers start, and the bytes handed out to it.
    base: [u64; 3],
    used: [u64; 3],
}

impl Plan {
    /// What `take` takes, and the bytes that it needs, without a place.
    pub fn measure<T>(take: impl FnOnce(&mut Self) -> T) -> Self {
        let mut plan = Self {
            base: [0; 3],
            used: [0; 3],
        };
        take(&mut plan);
        plan
    }

    /// What `take`, which was measured, takes from `at` on.
    pub fn place<T>(self, at: Address, take: impl FnOnce(&mut Self) -> T) -> T {
        let shared = at.0 + self.used[Span::Step as usize];
        let mut plan = Self {
            base: [at.0, shared, shared],
            used: [0; 3],
        };
        let taken = take(&mut plan);
        assert_eq!(plan.used, self.used, "what is placed is what was measured");
        taken
    }

    /// A place for `bytes` bytes; none for none.
    pub fn take(&mut self, span: Span, bytes: u64) -> Address {
        if bytes == 0 {
            return Address::NONE;
        }
        let (base, used) = (self.base[span as usize], &mut self.used[span as usize]);
        let at = Address(base + *used);
        *used += bytes.next_multiple_of(ALIGNMENT);
        at
    }

    /// Bytes of all buffers together.
    pub fn bytes(&self) -> u64 {
        let [step, layers, heads] = self.used;
        step + layers.max(heads)
    }
}

/// The piece of memory.
#[derive(Debug, Default)]
pub struct Arena {
    at: Address,
    bytes: u64,
}

impl Arena {
    /// Where it starts.
    pub fn at(&self) -> Address {
        self.at
    }

    /// How large it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it at least `bytes` large. True where it is another piece than before: what was in it
    /// is lost. A piece that has to grow again gets an eighth more, where there is so much.
    pub fn reserve(&mut self, device: &mut dyn Device, bytes: u64) -> Result<bool> {
        if bytes <= self.bytes {
            return Ok(false);
        }
        let grows = self.bytes > 0;
        self.release(device);
        let more = (bytes + bytes / 8).next_multiple_of(ALIGNMENT);
        let size = if grows && device.free_memory()? > more {
            more
        } else {
            bytes
        };
        self.at = device.allocate(size)?;
        self.bytes = size;
        Ok(true)
    }

    /// Gives it back.
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
        /// Buffers that are needed at the same time share no byte, and all lie in what was measured.
        #[test]
        fn buffers_of_one_time_lie_apart(
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
            // Nothing is wasted but the ends of buffers.
            let sum = |span: Span| -> u64 {
                let of = taken.iter().filter(|taken| taken.0 == span);
                of.map(|taken| taken.2.next_multiple_of(ALIGNMENT)).sum()
            };
            let shared = sum(Span::Layers).max(sum(Span::Heads));
            prop_assert_eq!(measured.bytes(), sum(Span::Step) + shared);
        }
    }
}
