//! Packs operands into bf16 tiles for the blocked product.
//!
//! A tile holds 16 lines of an operand (rows of the left one, columns of the right one) by 32 of
//! the inner index, in pairs of two. It has the layout that both units' instructions expect: the
//! left operand line by line, the right operand pair by pair. Sixteen lines are a panel: its tiles
//! follow each other along the inner index, padded with zeros. If an f32 becomes two bf16 numbers,
//! all high parts of the panel come before all low parts.

use std::ops::Range;

use super::Matrix;

/// Lines of a tile and of a panel.
pub const LINES: usize = 16;
/// Values of the inner index in a tile.
pub const DEPTH: usize = 32;

/// 16 × 16 pairs of bf16 numbers; the lower half holds that of the lower inner index.
#[derive(Clone, Default)]
#[repr(C, align(64))]
pub struct Tile(pub [[u32; 16]; 16]);

/// The operand that a tile belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Left,
    Right,
}

/// A packed operand, or some of its lines.
#[derive(Clone, Copy)]
pub struct Panels<'a> {
    tiles: &'a [Tile],
    /// Tiles of a panel along the inner index.
    depth: usize,
    parts: usize,
}

impl<'a> Panels<'a> {
    /// Returns how many tiles `lines` lines by `inner` take.
    pub fn tiles(lines: usize, inner: usize, parts: usize) -> usize {
        lines.div_ceil(LINES) * inner.div_ceil(DEPTH) * parts
    }

    pub fn new(tiles: &'a [Tile], inner: usize, parts: usize) -> Self {
        let depth = inner.div_ceil(DEPTH);
        Self { tiles, depth, parts }
    }

    /// Returns the number of panels.
    pub fn count(self) -> usize {
        self.tiles.len() / (self.depth * self.parts)
    }

    /// Returns the tiles of a panel along the inner index.
    pub fn depth(self) -> usize {
        self.depth
    }

    /// Returns how many bf16 numbers represent one f32.
    pub fn parts(self) -> usize {
        self.parts
    }

    /// Returns some of the panels.
    #[inline(always)]
    pub fn some(self, panels: Range<usize>) -> Self {
        let each = self.depth * self.parts;
        let tiles = &self.tiles[panels.start * each..panels.end * each];
        Self { tiles, ..self }
    }

    /// Returns one part of one panel's tiles.
    #[inline(always)]
    pub fn panel(self, panel: usize, part: usize, depth: Range<usize>) -> &'a [Tile] {
        let first = (panel * self.parts + part) * self.depth;
        &self.tiles[first..first + self.depth][depth]
    }

    /// Returns the factors of each product to add up, as parts of the left and right operand.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn terms(self) -> &'static [(usize, usize)] {
        match self.parts {
            1 => &[(0, 0)],
            _ => &[(1, 0), (0, 1), (0, 0)],
        }
    }
}

impl Matrix<'_> {
    /// Returns a non-empty part of the matrix.
    #[inline(always)]
    pub fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(rows.end <= self.rows && columns.end <= self.columns);
        assert!(!rows.is_empty() && !columns.is_empty());
        let first = rows.start * self.row_stride + columns.start * self.column_stride;
        Self { values: &self.values[first..], rows: rows.len(), columns: columns.len(), ..self }
    }
}

/// Packs the rows of `from`; `write` packs one part of one tile.
#[inline(always)]
pub fn each_tile(
    from: Matrix<'_>,
    parts: usize,
    tiles: &mut [Tile],
    mut write: impl FnMut(Matrix<'_>, usize, &mut Tile),
) {
    let (panels, depth) = (from.rows.div_ceil(LINES), from.columns.div_ceil(DEPTH));
    assert_eq!(tiles.len(), panels * depth * parts);
    // Memory is read in order; otherwise a line that spans many pages would miss the translation
    // buffer at every step.
    let along = from.column_stride == 1;
    let (outer, inner) = if along { (panels, depth) } else { (depth, panels) };
    // One body, not a closure called from two places: values passed through memory would be read in
    // wider loads than they were written in, which stalls until the previous tile is in the cache.
    for outer in 0..outer {
        for inner in 0..inner {
            let (panel, at) = if along { (outer, inner) } else { (inner, outer) };
            let lines = panel * LINES..from.rows.min((panel + 1) * LINES);
            let within = at * DEPTH..from.columns.min((at + 1) * DEPTH);
            let from = from.part(lines, within);
            for part in 0..parts {
                write(from, part, &mut tiles[(panel * parts + part) * depth + at]);
            }
        }
    }
}

/// Packs without vector instructions, as a reference for tests.
#[cfg(all(test, target_arch = "x86_64"))]
pub fn reference(side: Side, from: Matrix<'_>, parts: usize, tiles: &mut [Tile]) {
    use super::rounding::round;
    each_tile(from, parts, tiles, |from, part, tile| {
        let number = |line: usize, inner: usize| {
            if line >= from.rows || inner >= from.columns {
                return 0;
            }
            let x = from.values[line * from.row_stride + inner * from.column_stride];
            let high = round(x);
            let x = match part {
                0 => x,
                _ if high.is_finite() => x - high,
                _ => 0.0,
            };
            round(x).to_bits() >> 16
        };
        *tile = Tile(std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                let (line, pair) = match side {
                    Side::Left => (i, j),
                    Side::Right => (j, i),
                };
                number(line, 2 * pair) | number(line, 2 * pair + 1) << 16
            })
        }));
    });
}
