//! Memory of the emulated device: allocations between guard zones, filled with NaN when new.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;

use crate::engine::cuda::device::Address;
use crate::error::{Error, Result};

/// Bytes before and after each allocation that must not be written.
const GUARD: usize = 4096;
const ALIGNMENT: usize = 256;
/// NaN in f32, bf16 and f16, which reveals values that were never written.
const POISON: u8 = 0xFF;

/// All live allocations by address.
#[derive(Default)]
pub struct Memory {
    sizes: BTreeMap<u64, u64>,
}

impl Memory {
    /// Returns the allocated bytes.
    pub fn used(&self) -> u64 {
        self.sizes.values().sum()
    }

    pub fn allocate(&mut self, bytes: u64) -> Address {
        let layout = layout(bytes);
        // SAFETY: the layout has at least the size of the guards.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: these bytes were just allocated.
        unsafe { start.write_bytes(POISON, layout.size()) };
        let at = start as u64 + GUARD as u64;
        self.sizes.insert(at, bytes);
        Address(at)
    }

    /// Releases an allocation; panics if a kernel wrote outside of it.
    pub fn release(&mut self, at: Address) {
        let size = self.sizes.remove(&at.0);
        let bytes = size.unwrap_or_else(|| panic!("released what was not allocated: {at:?}"));
        let intact = intact(at.0, bytes);
        // SAFETY: it was allocated with this layout, and is no longer listed.
        unsafe { dealloc((at.0 as usize - GUARD) as *mut u8, layout(bytes)) };
        assert!(intact || std::thread::panicking(), "{}", complaint(bytes));
    }

    /// Returns the host's pointer to an address; returns an error unless the `bytes` there lie
    /// inside one allocation.
    pub fn at(&self, at: Address, bytes: u64) -> Result<*mut u8> {
        let inside = self
            .sizes
            .range(..=at.0)
            .next_back()
            .is_some_and(|(start, size)| at.0 + bytes <= start + size);
        if !inside {
            return Err(Error::Failed(format!(
                "{bytes} bytes at {:#x} are not in the device's memory",
                at.0
            )));
        }
        Ok(at.0 as *mut u8)
    }

    /// Returns an error if a kernel wrote outside of an allocation.
    pub fn check(&self) -> Result<()> {
        match self.sizes.iter().find(|(at, bytes)| !intact(**at, **bytes)) {
            Some((_, bytes)) => Err(Error::Failed(complaint(*bytes))),
            None => Ok(()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        while let Some((at, _)) = self.sizes.first_key_value() {
            self.release(Address(*at));
        }
    }
}

fn layout(bytes: u64) -> Layout {
    // `Device::allocate` rejects more than a few GiB.
    Layout::from_size_align(bytes as usize + 2 * GUARD, ALIGNMENT).expect("a size below isize::MAX")
}

fn complaint(bytes: u64) -> String {
    format!("a kernel wrote outside of an allocation of {bytes} bytes")
}

/// Returns whether the guards of a live allocation are intact.
fn intact(at: u64, bytes: u64) -> bool {
    [at - GUARD as u64, at + bytes].iter().all(|&guard| {
        // SAFETY: every live allocation has guards before and after it.
        let guard = unsafe { std::slice::from_raw_parts(guard as *const u8, GUARD) };
        guard.iter().all(|&byte| byte == POISON)
    })
}
