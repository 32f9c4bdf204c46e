//! Buffers of f32 that start with a cache line.
//!
//! The system's allocator aligns large buffers to 16 bytes only. Every second or every access with a vector of 32 or 64
//! bytes would then touch two cache lines.

use std::ops::{Deref, DerefMut};

use crate::engine::simd::LANES;

/// A cache line, and an AVX-512 register.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

/// A growing buffer of f32 values.
#[derive(Default)]
pub struct Floats {
    lines: Vec<Line>,
    len: usize,
}

impl Floats {
    /// Grows to at least `len` values; new ones are zero.
    pub fn grow(&mut self, len: usize) {
        if self.len < len {
            self.lines.resize(len.div_ceil(LANES), Line::default());
            self.len = len;
        }
    }

    /// Sets the first `len` values to zero, and grows if there are fewer.
    pub fn zero(&mut self, len: usize) {
        self.grow(len);
        self[..len].fill(0.0);
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the lines are initialised, they consist of f32 values without padding, and there are `len` or more.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above; the lines are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_keep_their_values_and_grow_with_zeros() {
        let mut floats = Floats::default();
        assert!(floats.is_empty());
        for len in [1, 15, 16, 17, 1000] {
            floats.grow(len);
            assert_eq!((floats.len(), floats.as_ptr().addr() % 64), (len, 0));
            assert_eq!(floats[len - 1], 0.0);
            floats[len - 1] = len as f32;
            floats.grow(3);
            assert_eq!((floats.len(), floats[0]), (len.max(3), 1.0));
        }
        assert_eq!((floats[14], floats[15], floats[16], floats[999]), (15.0, 16.0, 17.0, 1000.0));
        floats.zero(16);
        assert_eq!((floats[15], floats[16]), (0.0, 17.0));
    }
}
