//! The launches of flash attention in f32 (`flash32.cuh`).

use super::attention::Blocks;

/// Rows of a tile.
const TILE: u32 = 32;

/// The kernels for one head size.
#[derive(Debug, Clone, Copy)]
pub struct Flash {
    /// 32 or 64.
    pub size: u32,
    pub dropout: bool,
    /// Whether products round their factors to TF32, instead of splitting them into two.
    pub tf32: bool,
}

/// Returns a kernel's name: that of `$part` for `$flash`.
macro_rules! name {
    ($flash:expr, $part:literal) => {
        match ($flash.tf32, $flash.size, $flash.dropout) {
            (true, 64, false) => concat!("flash_tf32_", $part, "_64"),
            (true, 64, true) => concat!("flash_tf32_", $part, "_64_dropout"),
            (true, _, false) => concat!("flash_tf32_", $part, "_32"),
            (true, _, true) => concat!("flash_tf32_", $part, "_32_dropout"),
            (false, 64, false) => concat!("flash_exact_", $part, "_64"),
            (false, 64, true) => concat!("flash_exact_", $part, "_64_dropout"),
            (false, _, false) => concat!("flash_exact_", $part, "_32"),
            (false, _, true) => concat!("flash_exact_", $part, "_32_dropout"),
        }
    };
}

impl Flash {
    /// Returns the bytes of `rows` rows of shared memory.
    fn bytes(self, rows: u32) -> u32 {
        4 * self.size * rows
    }

    /// 128 queries, and two tiles of keys and values.
    pub fn forward(self) -> Blocks {
        let shared = self.bytes(128 + 4 * TILE);
        Blocks { name: name!(self, "forward"), rows: 128, shared }
    }

    /// 64 queries and their gradients, and two tiles of keys and values, with two numbers per query.
    pub fn d_queries(self) -> Blocks {
        let shared = self.bytes(2 * 64 + 4 * TILE) + 64 * 8;
        Blocks { name: name!(self, "d_queries"), rows: 64, shared }
    }

    /// 64 keys and values, and two tiles of queries and their gradients, with two numbers per query.
    pub fn d_keys(self) -> Blocks {
        let shared = self.bytes(2 * 64 + 4 * TILE) + 2 * TILE * 8;
        Blocks { name: name!(self, "d_keys"), rows: 64, shared }
    }
}
