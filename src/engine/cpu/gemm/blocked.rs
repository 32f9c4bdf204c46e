//! A product divided into blocks that fit the caches, packed and multiplied by a [`Kernel`].
//!
//! The threads divide the longer side of C. Each packs its own lines of that operand block by
//! block; the other operand is packed once, by all threads, before. Packing reads the operand once,
//! mostly right before its values are used. The weight of many products is packed once for all of them.

use std::ops::Range;
use std::thread::LocalKey;

use rayon::prelude::*;

use super::pack::{DEPTH, LINES, Panels, Side, Tile};
use super::scratch::{self, Buffer};
use super::{Matrix, MatrixMut, Output, PackedWeight, Precision, Product, Threads, Update};

/// The inner index is divided into chunks of this length, which limits the packed memory. Every
/// chunk costs a pass over C.
const CHUNK: usize = 4096;

/// Multiply-adds below which a second thread costs more than it gains; Miri, which multiplies small matrices only,
/// checks the threads too.
const WORTH_THREADS: usize = if cfg!(miri) { 1 } else { 1 << 20 };

thread_local! {
    /// The operand that all threads read, stored by the thread that requested the product.
    static SHARED: Buffer<Tile> = const { Buffer::new(Vec::new()) };
    /// The lines that a thread has packed for itself.
    static OWN: Buffer<Tile> = const { Buffer::new(Vec::new()) };
}

/// A unit of the processor that multiplies tiles. Having a value proves that the processor has the
/// unit.
pub trait Kernel: Copy + Send + Sync {
    /// Maximum panels of each operand in a step.
    const ROW_PANELS: usize;
    const COLUMN_PANELS: usize;
    /// Maximum tiles of a panel in a step.
    const STEP_DEPTH: usize;
    /// Bytes of a thread's own packed lines.
    const OWN_BYTES: usize;
    /// Bytes of the right operand that stay in a core's cache while the rows pass.
    const RIGHT_BYTES: usize;

    /// A thread's state from its first step to its last. In between, nothing may move to other
    /// threads, and no other session may start.
    type Session;

    /// Packs the rows of `from`.
    fn pack(self, side: Side, from: Matrix<'_>, parts: usize, tiles: &mut [Tile]);

    fn start(self) -> Self::Session;

    /// Multiplies packed operands on this thread: [`multiply`], compiled with the unit's
    /// instructions, so that steps are passed in registers. Passed through memory and read in wider
    /// loads than they were written in, a step would wait until all sums of the previous step are
    /// in the cache.
    ///
    /// # Safety
    /// See [`step`](Self::step).
    unsafe fn multiply(self, work: Packed<'_>) {
        // SAFETY: guaranteed by the caller.
        unsafe { multiply(self, work) };
    }

    /// Multiplies a few panels.
    ///
    /// # Safety
    /// `step.c` must be valid for reads and writes, nothing else may access it meanwhile, and it
    /// must not have more rows or columns than the panels have lines.
    unsafe fn step(session: &mut Self::Session, step: Step<'_>);
}

/// Packed operands and their output.
pub struct Packed<'a> {
    rows: Panels<'a>,
    columns: Panels<'a>,
    c: Block,
    update: Update,
}

/// Some panels of both operands and the part of C that they contribute to.
pub struct Step<'a> {
    pub rows: Panels<'a>,
    pub columns: Panels<'a>,
    /// The tiles to multiply of each panel.
    pub depth: Range<usize>,
    pub c: Block,
    pub update: Update,
}

/// A part of C.
#[derive(Clone, Copy)]
pub struct Block {
    pub at: *mut f32,
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
}

// SAFETY: it is only an address and sizes; reading or writing through it is unsafe anyway.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(c: MatrixMut<'_>) -> Self {
        Self { at: c.values.as_mut_ptr(), rows: c.rows, columns: c.columns, stride: c.stride }
    }

    /// Returns a part of the block.
    #[inline(always)]
    pub fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(rows.start < self.rows && rows.end <= self.rows);
        assert!(columns.start < self.columns && columns.end <= self.columns);
        Self {
            // SAFETY: by the assertions this is the address of one of the block's elements.
            at: unsafe { self.at.add(rows.start * self.stride + columns.start) },
            rows: rows.len(),
            columns: columns.len(),
            ..self
        }
    }
}

/// An operand, its lines as rows.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Matrix(Matrix<'a>),
    /// The chunks of a packed weight, and its number of lines.
    Packed(&'a [Vec<Tile>], usize),
}

/// A piece of the inner index.
struct Chunk {
    index: usize,
    inner: Range<usize>,
    parts: usize,
}

impl Chunk {
    fn panels<'a>(&self, tiles: &'a [Tile]) -> Panels<'a> {
        Panels::new(tiles, self.inner.len(), self.parts)
    }
}

impl Operand<'_> {
    fn lines(self) -> usize {
        match self {
            Self::Matrix(matrix) => matrix.rows,
            Self::Packed(_, lines) => lines,
        }
    }

    /// Runs `work` with some lines of a chunk. Unless they are packed already, `pack` packs them into the buffer.
    fn with_lines(
        self,
        lines: Range<usize>,
        chunk: &Chunk,
        buffer: &'static LocalKey<Buffer<Tile>>,
        pack: impl FnOnce(Matrix<'_>, &mut [Tile]),
        work: impl FnOnce(Panels<'_>),
    ) {
        match self {
            Self::Matrix(matrix) => {
                let len = Panels::tiles(lines.len(), chunk.inner.len(), chunk.parts);
                scratch::with(buffer, len, |tiles| {
                    pack(matrix.part(lines, chunk.inner.clone()), tiles);
                    work(chunk.panels(tiles));
                });
            }
            Self::Packed(chunks, _) => {
                let panels = lines.start / LINES..lines.end.div_ceil(LINES);
                work(chunk.panels(&chunks[chunk.index]).some(panels));
            }
        }
    }
}

/// A weight that was packed once for many products.
pub struct Weight<K> {
    kernel: K,
    /// The tiles of each chunk of the inputs.
    chunks: Vec<Vec<Tile>>,
    inputs: usize,
    outputs: usize,
    parts: usize,
}

impl<K: Kernel> Weight<K> {
    /// Packs a weight, (outputs, inputs).
    pub fn new(kernel: K, weight: Matrix<'_>, precision: Precision) -> Self {
        let (outputs, inputs, parts) = (weight.rows, weight.columns, precision.parts());
        let pack = |inner: Range<usize>| {
            let mut tiles = vec![Tile::default(); Panels::tiles(outputs, inner.len(), parts)];
            let (from, threads) = (weight.part(0..outputs, inner), rayon::current_num_threads());
            pack_lines(kernel, Side::Right, from, parts, threads, &mut tiles);
            tiles
        };
        let chunks = chunks(inputs).iter().map(pack).collect();
        Self { kernel, chunks, inputs, outputs, parts }
    }
}

impl<K: Kernel> PackedWeight for Weight<K> {
    fn multiply(&self, x: &[f32], y: &mut [f32]) {
        let rows = x.len() / self.inputs;
        let (x, y) = (Matrix::new(x, rows, self.inputs), MatrixMut::new(y, rows, self.outputs));
        let update = Update { output: Output::Overwrite, factor: 1.0 };
        let weight = Operand::Packed(&self.chunks, self.outputs);
        multiply_operands(self.kernel, y, update, x, weight, Threads::All, self.parts);
    }
}

/// Computes `work` with `kernel`.
pub fn product<K: Kernel>(kernel: K, work: Product<'_>, threads: Threads, precision: Precision) {
    let Product { c, update, a, b } = work;
    let b = Operand::Matrix(b.t());
    multiply_operands(kernel, c, update, a, b, threads, precision.parts());
}

fn multiply_operands<K: Kernel>(
    kernel: K,
    c: MatrixMut<'_>,
    update: Update,
    a: Matrix<'_>,
    b: Operand<'_>,
    threads: Threads,
    parts: usize,
) {
    let (rows, columns, inner) = (c.rows, c.columns, a.columns);
    if rows == 0 || columns == 0 {
        return;
    }
    if inner == 0 {
        if update.output == Output::Overwrite {
            for row in c.values.chunks_mut(c.stride).take(rows) {
                row[..columns].fill(0.0);
            }
        }
        return;
    }
    let c = Block::new(c);
    let multiply_adds = rows.saturating_mul(columns).saturating_mul(inner);
    let threads = match threads {
        Threads::All if multiply_adds >= WORTH_THREADS => rayon::current_num_threads(),
        _ => 1,
    };
    let a = Operand::Matrix(a);
    let ((own, own_side), (shared, shared_side)) = if rows >= columns {
        ((a, Side::Left), (b, Side::Right))
    } else {
        ((b, Side::Right), (a, Side::Left))
    };
    for (index, inner) in chunks(inner).iter().enumerate() {
        let update = update.of_piece(index);
        let tasks = tasks::<K>(own.lines(), own_side, inner.len() * parts, threads);
        let chunk = Chunk { index, inner, parts };
        let pack_shared = |from: Matrix<'_>, tiles: &mut [Tile]| {
            pack_lines(kernel, shared_side, from, parts, threads, tiles);
        };
        shared.with_lines(0..shared.lines(), &chunk, &SHARED, pack_shared, |shared| {
            let task = |index: usize| {
                let lines = tasks.get(index);
                let pack_own = |from: Matrix<'_>, tiles: &mut [Tile]| {
                    kernel.pack(own_side, from, parts, tiles);
                };
                own.with_lines(lines.clone(), &chunk, &OWN, pack_own, |own| {
                    let (rows, columns, c) = match own_side {
                        Side::Left => (own, shared, c.part(lines, 0..columns)),
                        Side::Right => (shared, own, c.part(0..rows, lines)),
                    };
                    let work = Packed { rows, columns, c, update };
                    // SAFETY: this call borrows `c` mutably, and the tasks' lines don't overlap.
                    unsafe { kernel.multiply(work) };
                });
            };
            if threads == 1 {
                (0..tasks.count).for_each(task);
            } else {
                let tasks = (0..tasks.count).into_par_iter();
                tasks.with_max_len(1).for_each(task);
            }
        });
    }
}

/// Divides the inner index.
fn chunks(inner: usize) -> Pieces {
    Pieces::at_most(CHUNK, inner, DEPTH)
}

/// Packs the rows of `from` on up to `threads` threads.
fn pack_lines<K: Kernel>(
    kernel: K,
    side: Side,
    from: Matrix<'_>,
    parts: usize,
    threads: usize,
    tiles: &mut [Tile],
) {
    let piece = lines_to_pack(from.rows, threads);
    let pack = |(index, tiles): (usize, &mut [Tile])| {
        let lines = index * piece..from.rows.min((index + 1) * piece);
        kernel.pack(side, from.part(lines, 0..from.columns), parts, tiles);
    };
    let each = Panels::tiles(piece, from.columns, parts);
    if threads == 1 {
        tiles.chunks_mut(each).enumerate().for_each(pack);
    } else {
        tiles.par_chunks_mut(each).enumerate().with_max_len(1).for_each(pack);
    }
}

/// Returns how many lines of the shared operand a thread packs at a time: if lines are adjacent in
/// memory, enough for reads of some hundred bytes.
fn lines_to_pack(lines: usize, threads: usize) -> usize {
    let share = lines.div_ceil(2 * threads);
    share.clamp(1, 128).next_multiple_of(LINES)
}

/// Returns the own lines of each task: few enough for the cache, and a few tasks per thread, so
/// that others can take over from a delayed thread.
fn tasks<K: Kernel>(lines: usize, side: Side, inner: usize, threads: usize) -> Pieces {
    let fit = (K::OWN_BYTES / (size_of::<u16>() * inner)).max(1);
    let each = lines.div_ceil(fit).div_ceil(threads);
    let each = if threads == 1 { each } else { each.max(3) };
    let step = match side {
        Side::Left => K::ROW_PANELS * LINES,
        Side::Right => K::COLUMN_PANELS * LINES,
    };
    Pieces::new(lines, each * threads, step)
}

/// Multiplies packed operands on this thread.
///
/// # Safety
/// See [`Kernel::step`].
#[inline(always)]
pub unsafe fn multiply<K: Kernel>(kernel: K, work: Packed<'_>) {
    let Packed { rows, columns, c, update } = work;
    let mut session = kernel.start();
    let panel = columns.depth().min(K::STEP_DEPTH) * columns.parts() * size_of::<Tile>();
    let wide = (K::RIGHT_BYTES / panel).max(1);
    let depths = Pieces::at_most(K::STEP_DEPTH, columns.depth(), 1);
    for right in Pieces::at_most(wide, columns.count(), K::COLUMN_PANELS).iter() {
        let steps = Pieces::at_most(K::COLUMN_PANELS, right.len(), 1);
        for (piece, depth) in depths.iter().enumerate() {
            for top in (0..rows.count()).step_by(K::ROW_PANELS) {
                let top = top..rows.count().min(top + K::ROW_PANELS);
                for left in steps.iter() {
                    let left = right.start + left.start..right.start + left.end;
                    let lines = |panels: &Range<usize>, all: usize| {
                        panels.start * LINES..all.min(panels.end * LINES)
                    };
                    let step = Step {
                        c: c.part(lines(&top, c.rows), lines(&left, c.columns)),
                        rows: rows.some(top.clone()),
                        columns: columns.some(left),
                        depth: depth.clone(),
                        update: update.of_piece(piece),
                    };
                    // SAFETY: guaranteed by the caller.
                    unsafe { K::step(&mut session, step) };
                }
            }
        }
    }
}

impl Precision {
    /// Returns how many bf16 numbers represent one f32.
    fn parts(self) -> usize {
        match self {
            Self::Bf16x3 => 2,
            Self::F32 | Self::Bf16 | Self::F16 | Self::Int8 => 1,
        }
    }
}

impl Update {
    /// Returns how the sum over one piece of the inner index is written: all but the first are
    /// added.
    #[inline(always)]
    fn of_piece(self, index: usize) -> Self {
        Self { output: if index == 0 { self.output } else { Output::Accumulate }, ..self }
    }
}

/// `0..len` in pieces as even as multiples of `unit` allow.
///
/// Uneven pieces would waste time: a last piece of one panel leaves most of a step idle, and a last
/// task of many lines a thread.
#[derive(Clone, Copy)]
struct Pieces {
    len: usize,
    unit: usize,
    count: usize,
    /// Units per piece; the first `longer` pieces have one more.
    units: usize,
    longer: usize,
}

impl Pieces {
    /// Divides `len` into `count` pieces, or fewer if there are fewer units.
    fn new(len: usize, count: usize, unit: usize) -> Self {
        let all = len.div_ceil(unit);
        let count = count.min(all);
        Self { len, unit, count, units: all / count, longer: all % count }
    }

    /// Divides `len` into pieces of at most `most`, if that is a multiple of `unit`.
    fn at_most(most: usize, len: usize, unit: usize) -> Self {
        Self::new(len, len.div_ceil(most), unit)
    }

    #[inline(always)]
    fn get(self, index: usize) -> Range<usize> {
        let units = |index: usize| index * self.units + index.min(self.longer);
        let start = |index: usize| self.len.min(units(index) * self.unit);
        start(index)..start(index + 1)
    }

    fn iter(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(move |index| self.get(index))
    }
}
