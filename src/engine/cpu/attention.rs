//! Self-attention over packed sequences: no padding, no probabilities kept between forward and
//! backward.
//!
//! A sequence's queries, keys and values stand side by side in its rows, (length, 3 × hidden). Each
//! group of sequences is one task with scratch for one head's scores; the backward pass computes
//! the probabilities again from the scores and the logarithm of each row's sum (as in Dao et al.,
//! arXiv 2205.14135).

use rayon::prelude::*;

use crate::data::Packed;
use crate::model::ATTENTION_STRIDE;

use super::dropout::Mask;
use super::gemm::{Matrix, MatrixMut, Old, Threads, product};
use crate::engine::simd::{Simd, exp, max, sum};

/// The sizes of the heads, and the dropout on their probabilities.
#[derive(Clone, Copy)]
pub struct Heads {
    pub count: usize,
    pub size: usize,
    pub dropout: Option<Mask>,
}

/// Scores of one head, and a second buffer of that size for the backward pass, for each task.
#[derive(Debug, Default)]
pub struct Scratch(Vec<[Vec<f32>; 2]>);

impl Scratch {
    /// Memory for `tasks` tasks of sequences of up to `longest` rows.
    fn reserve(&mut self, tasks: usize, longest: usize) {
        if self.0.len() < tasks {
            self.0.resize_with(tasks, Default::default);
        }
        for buffer in self.0.iter_mut().flatten() {
            if buffer.len() < longest * longest {
                buffer.resize(longest * longest, 0.0);
            }
        }
    }
}

/// Cuts the rows of `values`, each `width` wide, where the groups of sequences end.
fn by_group<'a, T>(
    batch: &Packed,
    groups: &[std::ops::Range<usize>],
    mut values: &'a mut [T],
    width: usize,
) -> Vec<&'a mut [T]> {
    groups
        .iter()
        .map(|group| {
            let rows = batch.cu_seqlens[group.end] - batch.cu_seqlens[group.start];
            let (mine, rest) = std::mem::take(&mut values).split_at_mut(rows as usize * width);
            values = rest;
            mine
        })
        .collect()
}

/// Sequences in groups of about equal work: a few for every thread, so that none waits long.
fn groups(batch: &Packed) -> Vec<std::ops::Range<usize>> {
    batch.balanced(4 * rayon::current_num_threads())
}

/// `c = factor · a b` on the calling thread: the sequences are what the threads share.
fn product_on_one(c: MatrixMut<'_>, factor: f32, a: Matrix<'_>, b: Matrix<'_>) {
    product(c, Old::Overwrite, factor, a, b, Threads::One);
}

impl Heads {
    fn hidden(&self) -> usize {
        self.count * self.size
    }

    /// Head `head`'s queries (0), keys (1) or values (2) of a sequence.
    fn part<'a>(&self, qkv: &'a [f32], length: usize, which: usize, head: usize) -> Matrix<'a> {
        let first = which * self.hidden() + head * self.size;
        Matrix::strided(&qkv[first..], length, self.size, 3 * self.hidden())
    }

    fn part_mut<'a>(
        &self,
        qkv: &'a mut [f32],
        length: usize,
        which: usize,
        head: usize,
    ) -> MatrixMut<'a> {
        let first = which * self.hidden() + head * self.size;
        MatrixMut::strided(&mut qkv[first..], length, self.size, 3 * self.hidden())
    }

    fn scale(&self) -> f32 {
        (1.0 / (self.size as f64).sqrt()) as f32
    }

    /// Drops probabilities of one row.
    #[inline(always)]
    fn drop(&self, example: u64, head: usize, query: usize, row: &mut [f32]) {
        if let Some(mask) = self.dropout {
            let offset = (head as u32 * ATTENTION_STRIDE + query as u32) * ATTENTION_STRIDE;
            mask.apply(example, offset, row);
        }
    }

    /// `softmax(Q Kᵀ / √size) V` in every head: `qkv` is (rows, 3 × hidden), `context` (rows,
    /// hidden), `log_sums` (rows, heads).
    pub fn forward(
        &self,
        simd: Simd,
        batch: &Packed,
        qkv: &[f32],
        context: &mut [f32],
        log_sums: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (hidden, groups) = (self.hidden(), groups(batch));
        scratch.reserve(groups.len(), batch.longest());
        by_group(batch, &groups, context, hidden)
            .into_par_iter()
            .zip(by_group(batch, &groups, log_sums, self.count))
            .zip(&groups)
            .zip(&mut scratch.0)
            .for_each(|(((context, log_sums), group), [scores, _])| {
                let first = batch.cu_seqlens[group.start] as usize;
                for sequence in group.clone() {
                    let rows = batch.rows_of(sequence);
                    let length = rows.len();
                    let from = rows.start - first;
                    let qkv = &qkv[rows.start * 3 * hidden..rows.end * 3 * hidden];
                    let context = &mut context[from * hidden..(from + length) * hidden];
                    let log_sums = &mut log_sums[from * self.count..(from + length) * self.count];
                    let scores = &mut scores[..length * length];
                    for head in 0..self.count {
                        self.scores(qkv, length, head, scores);
                        simd.run(|| {
                            for (query, row) in scores.chunks_exact_mut(length).enumerate() {
                                let top = max(row);
                                for p in row.iter_mut() {
                                    *p = exp(*p - top);
                                }
                                let total = sum(length, |i| row[i]);
                                log_sums[query * self.count + head] = top + total.ln();
                                for p in row.iter_mut() {
                                    *p /= total;
                                }
                                self.drop(batch.examples[sequence], head, query, row);
                            }
                        });
                        let context = &mut context[head * self.size..];
                        product_on_one(
                            MatrixMut::strided(context, length, self.size, hidden),
                            1.0,
                            Matrix::new(scores, length, length),
                            self.part(qkv, length, 2, head),
                        );
                    }
                }
            });
    }

    /// One head's scaled scores (length, length).
    fn scores(&self, qkv: &[f32], length: usize, head: usize, scores: &mut [f32]) {
        product_on_one(
            MatrixMut::new(scores, length, length),
            self.scale(),
            self.part(qkv, length, 0, head),
            self.part(qkv, length, 1, head).t(),
        );
    }

    /// From the gradient of the context, that of queries, keys and values, side by side as `qkv`.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is another buffer of the pass"
    )]
    pub fn backward(
        &self,
        simd: Simd,
        batch: &Packed,
        qkv: &[f32],
        log_sums: &[f32],
        d_context: &[f32],
        d_qkv: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (hidden, groups) = (self.hidden(), groups(batch));
        scratch.reserve(groups.len(), batch.longest());
        by_group(batch, &groups, d_qkv, 3 * hidden)
            .into_par_iter()
            .zip(&groups)
            .zip(&mut scratch.0)
            .for_each(|((d_qkv, group), [p, d])| {
                let first = batch.cu_seqlens[group.start] as usize;
                for sequence in group.clone() {
                    let rows = batch.rows_of(sequence);
                    let length = rows.len();
                    let from = (rows.start - first) * 3 * hidden;
                    let d_qkv = &mut d_qkv[from..from + length * 3 * hidden];
                    let qkv = &qkv[rows.start * 3 * hidden..rows.end * 3 * hidden];
                    let d_context = &d_context[rows.start * hidden..rows.end * hidden];
                    let log_sums = &log_sums[rows.start * self.count..rows.end * self.count];
                    let (p, d) = (&mut p[..length * length], &mut d[..length * length]);
                    for head in 0..self.count {
                        let above = Matrix::strided(
                            &d_context[head * self.size..],
                            length,
                            self.size,
                            hidden,
                        );
                        self.scores(qkv, length, head, p);
                        // d = gradient of the dropped probabilities.
                        product_on_one(
                            MatrixMut::new(d, length, length),
                            1.0,
                            above,
                            self.part(qkv, length, 2, head).t(),
                        );
                        simd.run(|| {
                            let rows = p.chunks_exact_mut(length).zip(d.chunks_exact_mut(length));
                            for (query, (p, d)) in rows.enumerate() {
                                let log_sum = log_sums[query * self.count + head];
                                for p in p.iter_mut() {
                                    *p = exp(*p - log_sum);
                                }
                                let example = batch.examples[sequence];
                                self.drop(example, head, query, d);
                                let slope = sum(length, |i| p[i] * d[i]);
                                for (d, p) in d.iter_mut().zip(&*p) {
                                    *d = p * (*d - slope);
                                }
                                self.drop(example, head, query, p);
                            }
                        });
                        let (p, d) = (
                            Matrix::new(p, length, length),
                            Matrix::new(d, length, length),
                        );
                        let (query, key) = (
                            self.part(qkv, length, 0, head),
                            self.part(qkv, length, 1, head),
                        );
                        product_on_one(self.part_mut(d_qkv, length, 0, head), self.scale(), d, key);
                        product_on_one(
                            self.part_mut(d_qkv, length, 1, head),
                            self.scale(),
                            d.t(),
                            query,
                        );
                        product_on_one(self.part_mut(d_qkv, length, 2, head), 1.0, p.t(), above);
                    }
                }
            });
    }
}
