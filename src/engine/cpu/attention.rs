//! Self-attention over packed sequences, without padding and without stored probabilities.
//!
//! Queries, keys and values are adjacent in a sequence's rows, (length, 3 × hidden). Each head of
//! each sequence is a task. It processes queries in blocks, so that the scores of a block stay in
//! the cache; the backward pass recomputes the probabilities from the scores and the log-sum-exp of
//! each row (as in Dao et al., arXiv 2205.14135).
//!
//! With causal attention a block of queries reads only the keys up to its own end, which saves half
//! of the work in long sequences.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::data::Packed;
use crate::engine::Precision;
use crate::engine::simd::{LANES, Simd, exp, max, sum};
use crate::model::ATTENTION_STRIDE;
use crate::random::Stream;

use super::dropout::Mask;
use super::floats::Floats;
use super::gemm::{Matrix, MatrixMut, Output, Threads, Unit, product};
use super::kernel_times::Kernel;
use super::selection::Selection;

/// Queries per block. Each block packs the keys and values again.
pub const BLOCK: usize = 128;
/// How many random values one call generates.
const GROUP: usize = 64;

/// The sizes of the heads, and the dropout on their probabilities.
#[derive(Clone, Copy)]
pub struct Heads {
    pub count: usize,
    pub size: usize,
    /// Whether a query attends only to keys up to its own position.
    pub causal: bool,
    pub dropout: Option<Mask>,
    pub precision: Precision,
}

/// The sequences whose rows are keys and values, and the queries among these rows.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    pub batch: &'a Packed,
    /// None if all rows are queries.
    pub selection: Option<&'a Selection>,
}

/// The scratch of one task.
#[derive(Default)]
struct Buffers {
    /// The queries of a block, if not all rows are queries: (BLOCK, head size)
    queries: Floats,
    /// Two blocks of scores, (BLOCK, padded length).
    p: Floats,
    d: Floats,
    /// (BLOCK, head size)
    block: Floats,
    /// (length, head size)
    d_keys: Floats,
    d_values: Floats,
}

/// Scratch for the tasks, one piece per thread of the pool.
#[derive(Default)]
pub struct Scratch(Vec<Mutex<Buffers>>);

impl Scratch {
    fn reserve(&mut self, longest: usize, size: usize) {
        let threads = rayon::current_num_threads();
        if self.0.len() < threads {
            self.0.resize_with(threads, Mutex::default);
        }
        for buffers in &mut self.0 {
            let b = buffers.get_mut().unwrap_or_else(PoisonError::into_inner);
            b.p.grow(BLOCK * padded(longest));
            b.d.grow(BLOCK * padded(longest));
            b.queries.grow(BLOCK * size);
            b.block.grow(BLOCK * size);
            b.d_keys.grow(longest * size);
            b.d_values.grow(longest * size);
        }
    }

    /// Returns how many f32 values [`Scratch`] holds for sequences of up to `longest` tokens.
    pub fn len(longest: usize, size: usize) -> usize {
        let one = 2 * BLOCK * padded(longest) + 2 * BLOCK * size + 2 * longest * size;
        rayon::current_num_threads() * one
    }

    /// Runs `work` for every head of every sequence, on all threads.
    fn for_each(
        &mut self,
        Queries { batch, selection }: Queries<'_>,
        heads: &Heads,
        work: impl Fn(Task<'_>, &mut Buffers) + Sync,
    ) {
        self.reserve(batch.longest(), heads.size);
        let scratch = &self.0;
        (0..batch.sequences() * heads.count).into_par_iter().for_each(|index| {
            let (sequence, head) = (index / heads.count, index % heads.count);
            let rows = batch.rows_of(sequence);
            let selected =
                selection.map(|selection| selection.within(rows.start as u32..rows.end as u32));
            let (first, selected) = match selected {
                Some((first, selected)) => (first, Some(selected)),
                None => (rows.start, None),
            };
            let task =
                Task { heads, rows, first, selected, example: batch.examples[sequence], head };
            // Each thread has its own lock, so it never waits.
            let thread = rayon::current_thread_index().unwrap_or(0);
            let mut buffers = scratch[thread].lock().unwrap_or_else(PoisonError::into_inner);
            work(task, &mut buffers);
        });
    }
}

/// Returns the length of a row of scores: a whole number of vectors.
fn padded(length: usize) -> usize {
    length.next_multiple_of(LANES)
}

/// A buffer whose rows tasks write in parallel.
struct Shared<'a> {
    start: *mut f32,
    len: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: it hands out parts only through an unsafe function, whose callers keep them apart.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn new(values: &'a mut [f32]) -> Self {
        Self { start: values.as_mut_ptr(), len: values.len(), borrowed: PhantomData }
    }

    /// Copies rows of `width` values to `first`, `first + stride`, …
    ///
    /// # Safety
    /// No other thread may use these rows at the same time.
    unsafe fn write(&self, first: usize, stride: usize, width: usize, rows: &[f32]) {
        let count = rows.len() / width;
        assert!(count == 0 || first + (count - 1) * stride + width <= self.len);
        for (index, row) in rows.chunks_exact(width).enumerate() {
            // SAFETY: the assertion keeps the row within the buffer, which is borrowed mutably for
            // 'a; the caller keeps other threads away from it.
            let to = unsafe {
                std::slice::from_raw_parts_mut(self.start.add(first + index * stride), width)
            };
            to.copy_from_slice(row);
        }
    }
}

/// One head of one sequence.
struct Task<'a> {
    heads: &'a Heads,
    rows: Range<usize>,
    /// The place of the sequence's first query among those of the batch.
    first: usize,
    /// The rows of the sequence's queries, if not all are queries.
    selected: Option<&'a [u32]>,
    example: u64,
    head: usize,
}

impl Task<'_> {
    fn length(&self) -> usize {
        self.rows.len()
    }

    /// Rounding the factors of small products takes longer than it saves.
    fn precision(&self) -> Precision {
        let unit = Unit::detect();
        match self.heads.precision {
            Precision::Bf16 if self.length() >= unit.shortest_attention() => Precision::Bf16,
            // Only linear layers have 8 bits. Attention takes bf16 where the processor multiplies it.
            Precision::Int8 if self.length() >= unit.shortest_attention() && unit != Unit::F32 => {
                Precision::Bf16
            }
            _ => Precision::F32,
        }
    }

    /// Returns the blocks of queries, numbered from 0 in the sequence.
    fn blocks(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let count = self.selected.map_or(self.length(), <[u32]>::len);
        (0..count).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(count))
    }

    /// Returns the position of a query in the sequence.
    #[inline(always)]
    fn position(&self, query: usize) -> usize {
        self.selected.map_or(query, |selected| selected[query] as usize - self.rows.start)
    }

    /// Returns how many keys, from the first, a block of queries reads.
    fn keys(&self, block: &Range<usize>) -> usize {
        if self.heads.causal { self.seen(block.end - 1) } else { self.length() }
    }

    /// Returns how many keys, from the first, a query attends to.
    fn seen(&self, query: usize) -> usize {
        if self.heads.causal { self.position(query) + 1 } else { self.length() }
    }

    /// Returns the offset of queries (0), keys (1) or values (2) of row `row` of the sequence.
    fn at(&self, which: usize, row: usize) -> usize {
        let hidden = self.heads.hidden();
        (self.rows.start + row) * 3 * hidden + which * hidden + self.head * self.heads.size
    }

    /// Returns queries (0), keys (1) or values (2) of some rows.
    fn part<'q>(&self, qkv: &'q [f32], which: usize, rows: Range<usize>) -> Matrix<'q> {
        let values = &qkv[self.at(which, rows.start)..];
        Matrix::strided(values, rows.len(), self.heads.size, 3 * self.heads.hidden())
    }

    /// Returns a block of queries; they are copied to `copies` if they are not adjacent.
    fn queries<'q>(
        &self,
        qkv: &'q [f32],
        block: Range<usize>,
        copies: &'q mut [f32],
    ) -> Matrix<'q> {
        if self.selected.is_none() {
            return self.part(qkv, 0, block);
        }
        let (n, size) = (block.len(), self.heads.size);
        let copies = &mut copies[..n * size];
        for (query, copy) in block.zip(copies.chunks_exact_mut(size)) {
            let at = self.at(0, self.position(query));
            copy.copy_from_slice(&qkv[at..at + size]);
        }
        Matrix::new(copies, n, size)
    }

    /// Returns a block of a matrix (queries, hidden), limited to this head's columns.
    fn columns<'q>(&self, values: &'q [f32], block: Range<usize>) -> Matrix<'q> {
        let hidden = self.heads.hidden();
        let first = (self.first + block.start) * hidden + self.head * self.heads.size;
        Matrix::strided(&values[first..], block.len(), self.heads.size, hidden)
    }

    /// Computes the scaled scores of a block of queries, (queries, padded number of keys); masked
    /// ones are negative infinity.
    fn scores(&self, queries: Matrix<'_>, qkv: &[f32], block: &Range<usize>, scores: &mut [f32]) {
        let keys = self.keys(block);
        let stride = padded(keys);
        product(
            MatrixMut::strided(scores, block.len(), keys, stride),
            Output::Overwrite,
            self.heads.scale(),
            queries,
            self.part(qkv, 1, 0..keys).t(),
            Threads::One,
            self.precision(),
        );
        for (query, row) in block.clone().zip(scores.chunks_exact_mut(stride)) {
            row[self.seen(query)..].fill(f32::NEG_INFINITY);
        }
    }

    /// Returns the dropout of a query's probabilities.
    #[inline(always)]
    fn dropout(&self, query: usize) -> RowMask {
        let mask = self.heads.dropout;
        RowMask {
            mask: mask.map(|mask| (mask, mask.stream(self.example))),
            first: (self.head as u32 * ATTENTION_STRIDE + self.position(query) as u32)
                * (ATTENTION_STRIDE / GROUP as u32),
            bits: 0,
        }
    }
}

/// The dropout of one row of probabilities, 16 at a time in order.
struct RowMask {
    mask: Option<(Mask, Stream)>,
    /// The row's first group in the random stream.
    first: u32,
    /// The bits of the current group.
    bits: u64,
}

impl RowMask {
    /// Returns the factors of the `index`-th 16 probabilities.
    #[inline(always)]
    fn factors(&mut self, simd: Simd, index: usize) -> [f32; LANES] {
        let Some((mask, stream)) = &self.mask else {
            return [1.0; LANES];
        };
        const PARTS: usize = GROUP / LANES;
        if index.is_multiple_of(PARTS) {
            let group = self.first + (index / PARTS) as u32;
            self.bits = mask.kept_bits(simd, stream, group);
        }
        mask.factors(self.bits, index % PARTS)
    }
}

impl Heads {
    fn hidden(&self) -> usize {
        self.count * self.size
    }

    fn scale(&self) -> f32 {
        (1.0 / (self.size as f64).sqrt()) as f32
    }

    /// Computes `softmax(Q Kᵀ / √size) V` in every head: `qkv` is (rows, 3 × hidden), `context`
    /// (queries, hidden), `log_sums` (queries, heads).
    pub fn forward(
        &self,
        simd: Simd,
        queries: Queries<'_>,
        qkv: &[f32],
        context: &mut [f32],
        log_sums: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (hidden, count, size) = (self.hidden(), self.count, self.size);
        let _timer = Kernel::Attention.on_sequences(queries.batch, hidden, 2, 4);
        let (context, log_sums) = (Shared::new(context), Shared::new(log_sums));
        scratch.for_each(queries, self, |task, b| {
            let mut sums = [0.0; BLOCK];
            for block in task.blocks() {
                let keys = task.keys(&block);
                let stride = padded(keys);
                let p = &mut b.p[..block.len() * stride];
                let queries = task.queries(qkv, block.clone(), &mut b.queries);
                task.scores(queries, qkv, &block, p);
                simd.run(
                    #[inline(always)]
                    || {
                        for (index, row) in p.chunks_exact_mut(stride).enumerate() {
                            let top = max(row);
                            for x in row.iter_mut() {
                                *x = exp(*x - top);
                            }
                            let total = sum([row], |[x]| x);
                            sums[index] = top + total.ln();
                            let scale = 1.0 / total;
                            let mut dropout = task.dropout(block.start + index);
                            let lanes = row.as_chunks_mut::<LANES>().0.iter_mut();
                            for (index, p) in lanes.enumerate() {
                                let factors = dropout.factors(simd, index);
                                for (p, factor) in p.iter_mut().zip(&factors) {
                                    *p *= scale * factor;
                                }
                            }
                            // The exponential of negative infinity is not quite 0.
                            row[task.seen(block.start + index)..].fill(0.0);
                        }
                    },
                );
                let out = &mut b.block[..block.len() * size];
                product(
                    MatrixMut::new(out, block.len(), size),
                    Output::Overwrite,
                    1.0,
                    Matrix::strided(p, block.len(), keys, stride),
                    task.part(qkv, 2, 0..keys),
                    Threads::One,
                    task.precision(),
                );
                let row = task.first + block.start;
                // SAFETY: only this task writes these rows of these columns.
                unsafe {
                    context.write(row * hidden + task.head * size, hidden, size, out);
                    log_sums.write(row * count + task.head, count, 1, &sums[..block.len()]);
                }
            }
        });
    }

    /// Computes the gradient of queries, keys and values, laid out like `qkv`, from that of the
    /// context. The gradient of rows that are not queries is zero.
    #[expect(clippy::too_many_arguments, reason = "each is another buffer of the pass")]
    pub fn backward(
        &self,
        simd: Simd,
        queries: Queries<'_>,
        qkv: &[f32],
        log_sums: &[f32],
        context: &[f32],
        d_context: &[f32],
        d_qkv: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (hidden, size) = (self.hidden(), self.size);
        let _timer = Kernel::AttentionGradient.on_sequences(queries.batch, hidden, 5, 8);
        if queries.selection.is_some() {
            d_qkv.fill(0.0);
        }
        let d_qkv = Shared::new(d_qkv);
        scratch.for_each(queries, self, |task, b| {
            let mut output = Output::Overwrite;
            // The last block comes first: it reads all keys that any does, so it can overwrite their gradients.
            for block in task.blocks().rev() {
                let (n, keys) = (block.len(), task.keys(&block));
                let stride = padded(keys);
                let (p, d) = (&mut b.p[..n * stride], &mut b.d[..n * stride]);
                let above = task.columns(d_context, block.clone());
                let queries = task.queries(qkv, block.clone(), &mut b.queries);
                task.scores(queries, qkv, &block, p);
                // Gradient of the probabilities after dropout.
                product(
                    MatrixMut::strided(d, n, keys, stride),
                    Output::Overwrite,
                    1.0,
                    above,
                    task.part(qkv, 2, 0..keys).t(),
                    Threads::One,
                    task.precision(),
                );
                let first = task.first + block.start;
                simd.run(
                    #[inline(always)]
                    || {
                        let rows = p.chunks_exact_mut(stride).zip(d.chunks_exact_mut(stride));
                        for (index, (p, d)) in rows.enumerate() {
                            let row = first + index;
                            let log_sum = log_sums[row * self.count + task.head];
                            let at = row * hidden + task.head * size;
                            let (out, d_out) = (&context[at..at + size], &d_context[at..at + size]);
                            // Σ p dp over the keys equals Σ out d_out over the head, in another
                            // order.
                            let slope = sum([out, d_out], |[x, d]| x * d);
                            d[keys..].fill(0.0);
                            let mut dropout = task.dropout(block.start + index);
                            let chunks = p.as_chunks_mut::<LANES>().0.iter_mut();
                            let lanes = chunks.zip(d.as_chunks_mut::<LANES>().0);
                            for (index, (p, d)) in lanes.enumerate() {
                                let factors = dropout.factors(simd, index);
                                for ((p, d), factor) in p.iter_mut().zip(d).zip(&factors) {
                                    let probability = exp(*p - log_sum);
                                    *d = probability * (*d * factor - slope);
                                    *p = probability * factor;
                                }
                            }
                            let seen = task.seen(block.start + index);
                            p[seen..].fill(0.0);
                            d[seen..].fill(0.0);
                        }
                    },
                );
                let p = Matrix::strided(p, n, keys, stride);
                let d = Matrix::strided(d, n, keys, stride);
                let (scale, block_of) = (self.scale(), &mut b.block[..n * size]);
                let into = MatrixMut::new(block_of, n, size);
                let their_keys = task.part(qkv, 1, 0..keys);
                let (one, precision) = (Threads::One, task.precision());
                product(into, Output::Overwrite, scale, d, their_keys, one, precision);
                for (query, row) in block.zip(block_of.chunks_exact(size)) {
                    // SAFETY: only this task writes these rows of these columns.
                    unsafe { d_qkv.write(task.at(0, task.position(query)), size, size, row) };
                }
                let into = MatrixMut::new(&mut b.d_keys, keys, size);
                product(into, output, scale, d.t(), queries, one, precision);
                let into = MatrixMut::new(&mut b.d_values, keys, size);
                product(into, output, 1.0, p.t(), above, one, precision);
                output = Output::Accumulate;
            }
            let read = task.blocks().next_back().map_or(0, |last| task.keys(&last));
            // SAFETY: as above.
            unsafe {
                d_qkv.write(task.at(1, 0), 3 * hidden, size, &b.d_keys[..read * size]);
                d_qkv.write(task.at(2, 0), 3 * hidden, size, &b.d_values[..read * size]);
            }
        });
    }
}

#[cfg(test)]
mod tests;
