//! Memory of the emulated device: allocations between guard zones, NaN throughout when new.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;

use crate::engine::cuda::device::Address;
use crate::error::{Error, Result};

/// Bytes before and behind each allocation that nothing may write.
const GUARD: usize = 4096;
const ALIGNMENT: usize = 256;
/// As f32, bf16 and f16 alike it is not a number, so that what was never written shows.
const POISON: u8 = 0xFF;

/// All live allocations, by their addresses.
#[derive(Default)]
pub struct Memory {
    sizes: BTreeMap<u64, u64>,
}

// Guards stand around every allocation; what is released in a bad state is said at the next check.
impl Memory {
    /// Bytes allocated.
    pub fn used(&self) -> u64 {
        self.sizes.values().sum()
    }

    pub fn allocate(&mut self, bytes: u64) -> Address {
        let layout = layout(bytes);
        // SAFETY: the layout has the guards' size at least.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: these are the bytes just allocated.
        unsafe { start.write_bytes(POISON, layout.size()) };
        let at = start as u64 + GUARD as u64;
        self.sizes.insert(at, bytes);
        Address(at)
    }

    /// Gives an allocation back; panics where it was written beside it.
    pub fn release(&mut self, at: Address) {
        let size = self.sizes.remove(&at.0);
        let bytes = size.unwrap_or_else(|| panic!("released what was not allocated: {at:?}"));
        let sound = sound(at.0, bytes);
        // SAFETY: it was allocated so, and is no longer known.
        unsafe { dealloc((at.0 as usize - GUARD) as *mut u8, layout(bytes)) };
        assert!(sound || std::thread::panicking(), "{}", complaint(bytes));
    }

    /// The host's view of a place; fails where `bytes` from it on are not inside one allocation.
    pub fn at(&self, place: Address, bytes: u64) -> Result<*mut u8> {
        let inside = self
            .sizes
            .range(..=place.0)
            .next_back()
            .is_some_and(|(start, size)| place.0 + bytes <= start + size);
        if !inside {
            return Err(Error::Failed(format!(
                "{bytes} bytes at {:#x} are not in the device's memory",
                place.0
            )));
        }
        Ok(place.0 as *mut u8)
    }

    /// Fails where something was written beside an allocation.
    pub fn check(&self) -> Result<()> {
        match self.sizes.iter().find(|(at, bytes)| !sound(**at, **bytes)) {
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
    // `Device::allocate` refuses more than a few GiB.
    Layout::from_size_align(bytes as usize + 2 * GUARD, ALIGNMENT).expect("a size below isize::MAX")
}

fn complaint(bytes: u64) -> String {
    format!("a kernel wrote beside an allocation of {bytes} bytes")
}

/// Whether the guards of a live allocation are as they were.
fn sound(at: u64, bytes: u64) -> bool {
    [at - GUARD as u64, at + bytes].iter().all(|&guard| {
        // SAFETY: guards lie before and behind every live allocation.
        let guard = unsafe { std::slice::from_raw_parts(guard as *const u8, GUARD) };
        guard.iter().all(|&byte| byte == POISON)
    })
}
