//! bf16 on AMX: products of 2 × 2 tiles in the processor's tile registers.
//!
//! The registers are used through [`Tiles`]: with the processor's instructions ([`hardware`]), or
//! in tests with their definition from Intel's manual (`emulated`), so that everything except the
//! instructions is tested on every machine.

#[cfg(test)]
pub mod emulated;
mod hardware;
#[cfg(all(test, target_os = "linux"))]
mod trap;

use std::mem::MaybeUninit;

use super::blocked::{Block, Step};
use super::pack::{LINES, Tile};
use super::{Output, Update};

pub use self::hardware::Amx;

/// The tile registers, all eight of 16 rows of 64 bytes.
///
/// Register numbers are parameters of the type, because they are part of the instructions.
pub trait Tiles {
    /// Sets a register to zero.
    fn zero<const TO: usize>(&mut self);

    /// Loads a tile of an operand.
    fn load<const TO: usize>(&mut self, tile: &Tile);

    /// Loads 16 × 16 sums whose rows start `stride` f32 apart.
    ///
    /// # Safety
    /// They must be valid for reads.
    unsafe fn load_sums<const TO: usize>(&mut self, from: *const f32, stride: usize);

    /// Adds the products of the rows of tile `A` with the columns of tile `B` to `SUMS`.
    fn add_products<const SUMS: usize, const A: usize, const B: usize>(&mut self);

    /// Stores 16 × 16 sums in rows that start `stride` f32 apart.
    ///
    /// # Safety
    /// They must be valid for writes.
    unsafe fn store_sums<const FROM: usize>(&mut self, to: *mut f32, stride: usize);
}

/// 2 × 2 registers of sums, and 2 of each operand.
const PANELS: usize = 2;

/// Multiplies `R` panels of rows with `C` panels of columns: sums in registers 0 to 3, rows in 4
/// and 5, columns in 6 and 7.
///
/// # Safety
/// See [`step`](super::blocked::Kernel::step).
#[inline(always)]
unsafe fn multiply<T: Tiles, const R: usize, const C: usize>(tiles: &mut T, step: Step<'_>) {
    let Step { rows, columns, depth, c, update } = step;
    let whole = c.rows == R * LINES && c.columns == C * LINES;
    let direct = whole && update.factor == 1.0;
    let corner = |row: usize, column: usize| c.at.wrapping_add((row * c.stride + column) * LINES);
    if direct && update.output == Output::Accumulate {
        // SAFETY: the block is whole, and the caller grants access.
        unsafe {
            tiles.load_sums::<0>(corner(0, 0), c.stride);
            if C == 2 {
                tiles.load_sums::<1>(corner(0, 1), c.stride);
            }
            if R == 2 {
                tiles.load_sums::<2>(corner(1, 0), c.stride);
            }
            if R == 2 && C == 2 {
                tiles.load_sums::<3>(corner(1, 1), c.stride);
            }
        }
    } else {
        tiles.zero::<0>();
        tiles.zero::<1>();
        tiles.zero::<2>();
        tiles.zero::<3>();
    }
    for &(left, right) in rows.terms() {
        let (mut a, mut b): ([&[Tile]; R], [&[Tile]; C]) = ([&[]; R], [&[]; C]);
        for (index, a) in a.iter_mut().enumerate() {
            *a = rows.panel(index, left, depth.clone());
        }
        for (index, b) in b.iter_mut().enumerate() {
            *b = columns.panel(index, right, depth.clone());
        }
        for at in 0..depth.len() {
            tiles.load::<4>(&a[0][at]);
            tiles.load::<6>(&b[0][at]);
            tiles.add_products::<0, 4, 6>();
            if C == 2 {
                tiles.load::<7>(&b[C - 1][at]);
                tiles.add_products::<1, 4, 7>();
            }
            if R == 2 {
                tiles.load::<5>(&a[R - 1][at]);
                tiles.add_products::<2, 5, 6>();
            }
            if R == 2 && C == 2 {
                tiles.add_products::<3, 5, 7>();
            }
        }
    }
    if direct {
        // SAFETY: as above.
        unsafe { store::<T, R, C>(tiles, c.at, c.stride) };
    } else {
        let mut sums = Sums(MaybeUninit::uninit());
        let first = sums.0.as_mut_ptr().cast::<f32>();
        // SAFETY: there is room for 2 × 2 tiles.
        unsafe { store::<T, R, C>(tiles, first, WIDTH) };
        // SAFETY: the panels' tiles, which cover the block, have just been stored; the caller
        // guarantees the rest.
        unsafe { write(first, c, update) };
    }
}

/// Stores the sums of all tiles, the first at `to`.
///
/// # Safety
/// There must be room for `R` × `C` tiles.
#[inline(always)]
unsafe fn store<T: Tiles, const R: usize, const C: usize>(
    tiles: &mut T,
    to: *mut f32,
    stride: usize,
) {
    let corner = |row: usize, column: usize| to.wrapping_add((row * stride + column) * LINES);
    // SAFETY: guaranteed by the caller.
    unsafe {
        tiles.store_sums::<0>(corner(0, 0), stride);
        if C == 2 {
            tiles.store_sums::<1>(corner(0, 1), stride);
        }
        if R == 2 {
            tiles.store_sums::<2>(corner(1, 0), stride);
        }
        if R == 2 && C == 2 {
            tiles.store_sums::<3>(corner(1, 1), stride);
        }
    }
}

/// Maximum columns of a step.
const WIDTH: usize = PANELS * LINES;

/// Buffer for the sums of a step that can't go directly to C.
#[repr(align(64))]
struct Sums(MaybeUninit<[[f32; WIDTH]; WIDTH]>);

/// Writes sums, `WIDTH` per row, to C, which may have fewer rows and columns.
///
/// # Safety
/// There must be as many sums as `c` has rows and columns; also see
/// [`step`](super::blocked::Kernel::step).
#[inline(always)]
unsafe fn write(sums: *const f32, c: Block, update: Update) {
    for row in 0..c.rows {
        // SAFETY: rows of the sums and of the block, to which the caller grants access.
        let (sums, to) = unsafe {
            (
                std::slice::from_raw_parts(sums.add(row * WIDTH), c.columns),
                std::slice::from_raw_parts_mut(c.at.add(row * c.stride), c.columns),
            )
        };
        for (to, sum) in to.iter_mut().zip(sums) {
            let new = sum * update.factor;
            *to = if update.output == Output::Accumulate { *to + new } else { new };
        }
    }
}

/// Runs one step with any implementation of tile registers.
///
/// # Safety
/// See [`step`](super::blocked::Kernel::step).
#[inline(always)]
unsafe fn step<T: Tiles>(tiles: &mut T, step: Step<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (step.rows.count(), step.columns.count()) {
            (1, 1) => multiply::<T, 1, 1>(tiles, step),
            (1, _) => multiply::<T, 1, 2>(tiles, step),
            (_, 1) => multiply::<T, 2, 1>(tiles, step),
            _ => multiply::<T, 2, 2>(tiles, step),
        }
    }
}

/// `ldtilecfg`'s operand: palette 1, eight tiles of 16 rows by 64 bytes.
///
/// Bytes 16 to 31 are the row lengths in bytes, two each; bytes 48 to 55 the numbers of rows.
#[repr(C, align(64))]
struct Configuration([u8; 64]);

const CONFIGURATION: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = 16;
        tile += 1;
    }
    Configuration(bytes)
};
