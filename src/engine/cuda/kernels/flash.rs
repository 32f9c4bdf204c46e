//! Which kernel of flash attention (`flash.cuh`, in f32 `flash32.cuh`) serves which heads, and what it needs.

/// A kernel over blocks of rows of each head of each sequence.
pub struct Blocks {
    pub name: &'static str,
    /// Rows per block.
    pub rows: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

/// The factors of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factors {
    /// bf16 or f16.
    Short,
    /// f32 rounded to TF32.
    Tf32,
    /// f32 as a sum of two TF32 numbers.
    Exact,
}

/// The kernels for one head size.
#[derive(Debug, Clone, Copy)]
pub struct Flash {
    /// 32 or 64.
    pub size: u32,
    pub dropout: bool,
    pub factors: Factors,
}

/// Returns the name of `$flash`'s kernel for `$part`.
macro_rules! name {
    ($flash:expr, $part:literal) => {
        match ($flash.factors, $flash.size, $flash.dropout) {
            (Factors::Short, 64, false) => concat!("flash_", $part, "_64"),
            (Factors::Short, 64, true) => concat!("flash_", $part, "_64_dropout"),
            (Factors::Short, _, false) => concat!("flash_", $part, "_32"),
            (Factors::Short, _, true) => concat!("flash_", $part, "_32_dropout"),
            (Factors::Tf32, 64, false) => concat!("flash_tf32_", $part, "_64"),
            (Factors::Tf32, 64, true) => concat!("flash_tf32_", $part, "_64_dropout"),
            (Factors::Tf32, _, false) => concat!("flash_tf32_", $part, "_32"),
            (Factors::Tf32, _, true) => concat!("flash_tf32_", $part, "_32_dropout"),
            (Factors::Exact, 64, false) => concat!("flash_exact_", $part, "_64"),
            (Factors::Exact, 64, true) => concat!("flash_exact_", $part, "_64_dropout"),
            (Factors::Exact, _, false) => concat!("flash_exact_", $part, "_32"),
            (Factors::Exact, _, true) => concat!("flash_exact_", $part, "_32_dropout"),
        }
    };
}

impl Flash {
    /// Returns the bytes of a number, and the rows of a tile.
    fn layout(self) -> (u32, u32) {
        if self.factors == Factors::Short { (2, 64) } else { (4, 32) }
    }

    /// Returns the bytes of `rows` rows and of four tiles.
    fn bytes(self, rows: u32) -> u32 {
        let (bytes, tile) = self.layout();
        bytes * self.size * (rows + 4 * tile)
    }

    /// Returns the bytes of what was kept in two tiles; in f32 the random numbers are drawn again.
    fn kept(self) -> u32 {
        if self.dropout && self.factors == Factors::Short { 2 * 64 * 64 / 8 } else { 0 }
    }

    /// 128 queries, and two tiles of keys and values.
    pub fn forward(self) -> Blocks {
        Blocks { name: name!(self, "forward"), rows: 128, shared: self.bytes(128) }
    }

    /// 64 queries and their gradients, with two numbers per query, and two tiles of keys and values.
    pub fn d_queries(self) -> Blocks {
        let shared = self.bytes(2 * 64) + 64 * 8 + self.kept();
        Blocks { name: name!(self, "d_queries"), rows: 64, shared }
    }

    /// 64 keys and values, and two tiles of queries and their gradients, with two numbers per query.
    pub fn d_keys(self) -> Blocks {
        let (_, tile) = self.layout();
        let shared = self.bytes(2 * 64) + 2 * tile * 8 + self.kept();
        Blocks { name: name!(self, "d_keys"), rows: 64, shared }
    }
}
