//! AMX's instructions and their detection.
//!
//! The compiler's intrinsics are unstable, hence `asm!`. Register contents survive from one
//! statement to the next: compiled code never touches the tile registers, volatile statements keep
//! their order, and each declares the registers as changed. The Rust reference does not promise this
//! (docs/reliability.md).

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::cell::Cell;
use std::marker::PhantomData;

use super::super::Matrix;
use super::super::avx512::{Avx512, fetch};
use super::super::blocked::{Kernel, Packed, Step, multiply};
use super::super::pack::{Side, Tile};
use super::{CONFIGURATION, Configuration, PANELS, Tiles, step};

/// Proof that this process may use AMX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amx {
    /// Packs the operands.
    avx512: Avx512,
}

impl Amx {
    /// Asks the processor, then the operating system: the tile registers enlarge a thread's state
    /// so much that a process must request them once.
    pub fn detect() -> Option<Self> {
        let avx512 = Avx512::detect()?;
        (processor_has_it() && system_saves_it() && permitted()).then_some(Self { avx512 })
    }

    /// Returns AMX, with its instructions emulated if the processor has none.
    #[cfg(all(test, target_os = "linux"))]
    pub fn trapped() -> Option<Self> {
        let trapped = || {
            super::trap::install();
            Avx512::detect().map(|avx512| Self { avx512 })
        };
        Self::detect().or_else(trapped)
    }
}

fn processor_has_it() -> bool {
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    // Leaf 0 returns the highest leaf.
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BF16_AND_TILE == BF16_AND_TILE
}

/// Returns whether the system saves the tiles' configuration and data when it switches threads.
fn system_saves_it() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const TILES: u64 = 1 << 17 | 1 << 18;
    // SAFETY: OSXSAVE indicates that the instruction exists.
    __cpuid(1).ecx & OSXSAVE != 0 && unsafe { extended_control_register() } & TILES == TILES
}

#[target_feature(enable = "xsave")]
fn extended_control_register() -> u64 {
    // SAFETY: register 0 exists wherever the instruction does.
    unsafe { _xgetbv(0) }
}

#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const TILE_DATA: usize = 18;
    arch_prctl(ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

#[cfg(target_os = "linux")]
fn arch_prctl(code: usize, argument: usize) -> isize {
    const NUMBER: isize = 158;
    let result;
    // SAFETY: with the codes used here the system call changes no memory of the program; it changes
    // rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") NUMBER => result,
            in("rdi") code,
            in("rsi") argument,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

impl Kernel for Amx {
    const ROW_PANELS: usize = PANELS;
    const COLUMN_PANELS: usize = PANELS;
    const STEP_DEPTH: usize = 16;
    const OWN_BYTES: usize = 768 << 10;
    const RIGHT_BYTES: usize = 768 << 10;

    type Session = Configured;

    fn pack(self, side: Side, from: Matrix<'_>, parts: usize, tiles: &mut [Tile]) {
        self.avx512.pack(side, from, parts, tiles);
    }

    fn start(self) -> Configured {
        assert!(!IN_USE.replace(true), "a thread's tile registers have one user at a time");
        // SAFETY: `self` proves that the instruction is there, and its operand is 64 bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURED, options(nostack, preserves_flags));
        }
        Configured(PhantomData)
    }

    unsafe fn multiply(self, work: Packed<'_>) {
        // SAFETY: `self` proves AVX-512; the caller guarantees the rest.
        unsafe { multiply_with_avx512(self, work) };
    }

    #[inline(always)]
    unsafe fn step(session: &mut Configured, work: Step<'_>) {
        fetch(work.c);
        // SAFETY: guaranteed by the caller.
        unsafe { step(session, work) };
    }
}

static CONFIGURED: Configuration = CONFIGURATION;

/// Lets the compiler use wide registers between the tile instructions.
#[target_feature(enable = "avx512f")]
unsafe fn multiply_with_avx512(kernel: Amx, work: Packed<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe { multiply(kernel, work) };
}

thread_local! {
    /// Whether this thread has a [`Configured`]: the end of a second one would release the registers of both.
    static IN_USE: Cell<bool> = const { Cell::new(false) };
}

/// The tile registers of the thread that configured them; released when dropped.
pub struct Configured(PhantomData<*const ()>);

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: this value was created with the instruction available.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
        IN_USE.set(false);
    }
}

/// A statement that changes tile registers.
macro_rules! tiles {
    ($instruction:literal, $($operands:tt)*) => {
        asm!(
            $instruction,
            $($operands)*,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags),
        )
    };
}

impl Tiles for Configured {
    #[inline(always)]
    fn zero<const TO: usize>(&mut self) {
        // SAFETY: the register is configured; no memory is accessed.
        unsafe { tiles!("tilezero tmm{to}", to = const TO) };
    }

    #[inline(always)]
    fn load<const TO: usize>(&mut self, tile: &Tile) {
        // SAFETY: reads 16 rows of 64 bytes, 64 bytes apart, which is the tile.
        unsafe {
            tiles!(
                "tileloadd tmm{to}, [{from} + {stride}*1]",
                to = const TO,
                from = in(reg) tile,
                stride = in(reg) 64usize
            );
        }
    }

    #[inline(always)]
    unsafe fn load_sums<const TO: usize>(&mut self, from: *const f32, stride: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            tiles!(
                "tileloadd tmm{to}, [{from} + {stride}*1]",
                to = const TO,
                from = in(reg) from,
                stride = in(reg) stride * size_of::<f32>()
            );
        }
    }

    #[inline(always)]
    fn add_products<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
        const { assert!(SUMS != A && SUMS != B && A != B) };
        // SAFETY: three different registers with matching shapes; no memory is accessed.
        unsafe {
            tiles!("tdpbf16ps tmm{sums}, tmm{a}, tmm{b}", sums = const SUMS, a = const A, b = const B);
        }
    }

    #[inline(always)]
    unsafe fn store_sums<const FROM: usize>(&mut self, to: *mut f32, stride: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            asm!(
                "tilestored [{to} + {stride}*1], tmm{from}",
                from = const FROM,
                to = in(reg) to,
                stride = in(reg) stride * size_of::<f32>(),
                options(nostack, preserves_flags),
            );
        }
    }
}
