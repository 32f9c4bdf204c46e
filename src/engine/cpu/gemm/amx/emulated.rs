//! The tile instructions in software, as Intel's manual (volume 2, TDPBF16PS and related
//! instructions) defines them; whatever raises an exception on the processor panics here.

use super::super::Matrix;
use super::super::avx512::Avx512;
use super::super::blocked::{Kernel, Step};
use super::super::pack::{Side, Tile, reference};
use super::{CONFIGURATION, PANELS, Tiles, step};

/// Emulates a processor with AMX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulated;

impl Kernel for Emulated {
    const ROW_PANELS: usize = PANELS;
    const COLUMN_PANELS: usize = PANELS;
    // Small, so that small test sizes have several blocks of everything.
    const STEP_DEPTH: usize = 2;
    const OWN_BYTES: usize = 8 << 10;
    const RIGHT_BYTES: usize = 8 << 10;

    type Session = Registers;

    fn pack(self, side: Side, from: Matrix<'_>, parts: usize, tiles: &mut [Tile]) {
        match Avx512::detect() {
            Some(avx512) => avx512.pack(side, from, parts, tiles),
            None => reference(side, from, parts, tiles),
        }
    }

    fn start(self) -> Registers {
        Registers::configured(&CONFIGURATION.0)
    }

    unsafe fn step(registers: &mut Registers, work: Step<'_>) {
        // SAFETY: guaranteed by the caller.
        unsafe { step(registers, work) };
    }
}

/// A tile register and its shape.
#[derive(Clone, Copy, Default)]
struct Register {
    rows: usize,
    /// Bytes of a row.
    colsb: usize,
    data: [[u32; 16]; 16],
}

pub struct Registers([Register; 8]);

impl Registers {
    /// LDTILECFG.
    pub fn configured(memory: &[u8; 64]) -> Self {
        assert_eq!(memory[0], 1, "the only palette");
        assert_eq!(memory[1], 0, "row to start at");
        let reserved = memory[2..16].iter().chain(&memory[32..48]).chain(&memory[56..]);
        assert!(reserved.into_iter().all(|&b| b == 0), "reserved bytes");
        Self(std::array::from_fn(|tile| {
            let colsb = [memory[16 + 2 * tile], memory[17 + 2 * tile]];
            let colsb = usize::from(u16::from_le_bytes(colsb));
            let rows = usize::from(memory[48 + tile]);
            assert!(rows <= 16 && colsb <= 64, "larger than the palette's tiles");
            assert_eq!(rows == 0, colsb == 0, "half a shape");
            Register { rows, colsb, ..Register::default() }
        }))
    }

    fn shape(&self, tile: usize) -> (usize, usize) {
        let Register { rows, colsb, .. } = self.0[tile];
        assert!(rows > 0, "tile {tile} is not configured");
        (rows, colsb)
    }

    /// TILEZERO.
    pub fn clear(&mut self, to: usize) {
        self.shape(to);
        self.0[to].data = Default::default();
    }

    /// TILELOADD: what lies beyond the tile's shape becomes zero.
    ///
    /// # Safety
    /// As many rows as the register has must be readable, `stride` bytes apart.
    pub unsafe fn read(&mut self, to: usize, from: *const u8, stride: usize) {
        let (rows, colsb) = self.shape(to);
        let mut data = [[0; 16]; 16];
        for (row, values) in data.iter_mut().enumerate().take(rows) {
            // SAFETY: guaranteed by the caller; the row has room for 64 bytes.
            unsafe {
                let from = from.wrapping_add(row.wrapping_mul(stride));
                std::ptr::copy_nonoverlapping(from, values.as_mut_ptr().cast(), colsb);
            }
        }
        self.0[to].data = data;
    }

    /// TILESTORED.
    ///
    /// # Safety
    /// As many rows as the register has must be writable, `stride` bytes apart.
    pub unsafe fn write(&self, from: usize, to: *mut u8, stride: usize) {
        let (rows, colsb) = self.shape(from);
        for (row, values) in self.0[from].data.iter().enumerate().take(rows) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let to = to.wrapping_add(row.wrapping_mul(stride));
                std::ptr::copy_nonoverlapping(values.as_ptr().cast(), to, colsb);
            }
        }
    }

    /// TDPBF16PS.
    pub fn multiply(&mut self, sums: usize, a: usize, b: usize) {
        assert!(sums != a && sums != b && a != b, "the same register twice");
        let ((rows, colsb), a_shape, b_shape) = (self.shape(sums), self.shape(a), self.shape(b));
        assert!(colsb % 4 == 0 && a_shape.1 % 4 == 0 && b_shape.1 % 4 == 0);
        assert_eq!((rows, colsb), (a_shape.0, b_shape.1), "shape of the sums");
        assert_eq!(a_shape.1 / 4, b_shape.0, "inner sizes");
        let (pairs, columns) = (a_shape.1 / 4, colsb / 4);
        let [a, b] = [a, b].map(|register| self.0[register].data.map(|row| row.map(halves)));
        let sums = &mut self.0[sums].data;
        let old = std::mem::take(sums);
        for row in 0..rows {
            for column in 0..columns {
                // Even and odd elements of the pairs have separate sums.
                let (mut lower, mut upper) = (0.0f32, 0.0f32);
                for pair in 0..pairs {
                    let (a, b) = (a[row][pair], b[pair][column]);
                    lower = flush(a[0].mul_add(b[0], lower));
                    upper = flush(a[1].mul_add(b[1], upper));
                }
                let old = flush(f32::from_bits(old[row][column]));
                sums[row][column] = flush(old + flush(lower + upper)).to_bits();
            }
        }
    }
}

/// Treats subnormal operands and results as zero.
fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(x) } else { x }
}

/// Returns the lower and the upper bf16 number of a pair as f32.
fn halves(pair: u32) -> [f32; 2] {
    [pair << 16, pair & 0xffff_0000].map(|bits| flush(f32::from_bits(bits)))
}

impl Tiles for Registers {
    fn zero<const TO: usize>(&mut self) {
        self.clear(TO);
    }

    fn load<const TO: usize>(&mut self, tile: &Tile) {
        // SAFETY: 16 rows of 64 bytes.
        unsafe { self.read(TO, tile.0.as_ptr().cast(), 64) };
    }

    unsafe fn load_sums<const TO: usize>(&mut self, from: *const f32, stride: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.read(TO, from.cast(), stride * size_of::<f32>()) };
    }

    fn add_products<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
        self.multiply(SUMS, A, B);
    }

    unsafe fn store_sums<const FROM: usize>(&mut self, to: *mut f32, stride: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.write(FROM, to.cast(), stride * size_of::<f32>()) };
    }
}
