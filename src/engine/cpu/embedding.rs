//! Token, segment and position embeddings, the LayerNorm of their sum, and the gradients of the
//! tables.

use rayon::prelude::*;

use crate::data::Packed;

use super::dropout::{Mask, Rows};
use super::elementwise::ROWS;
use super::kernel_times::Kernel;
use super::norm::{Norm, Statistics};
use crate::engine::simd::Simd;

/// The three tables, each (entries, width).
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    pub words: &'a [f32],
    pub positions: &'a [f32],
    /// None if the model has no segments.
    pub segments: Option<&'a [f32]>,
}

/// `sum = words[id] + positions[p] + segments[s]`, `y = dropout(LayerNorm(sum))`.
#[expect(clippy::too_many_arguments, reason = "each is another buffer of the pass")]
pub fn forward(
    simd: Simd,
    batch: &Packed,
    tables: Tables<'_>,
    norm: Norm<'_>,
    dropout: Option<(Mask, &Rows)>,
    sums: &mut [f32],
    statistics: &mut [Statistics],
    y: &mut [f32],
) {
    let _timer = Kernel::Embedding.on_values(y.len(), 10, 4);
    let width = norm.weight.len();
    let entry = |index: u32| index as usize * width..(index as usize + 1) * width;
    sums.par_chunks_mut(ROWS * width)
        .zip(statistics.par_chunks_mut(ROWS))
        .zip(y.par_chunks_mut(ROWS * width))
        .enumerate()
        .for_each(|(task, ((sums, statistics), y))| {
            simd.run(
                #[inline(always)]
                || {
                    let rows =
                        sums.chunks_exact_mut(width).zip(statistics).zip(y.chunks_exact_mut(width));
                    for (row, ((sums, statistics), y)) in rows.enumerate() {
                        let row = task * ROWS + row;
                        let word = &tables.words[entry(batch.ids[row])];
                        let position = &tables.positions[entry(batch.positions[row])];
                        match tables.segments {
                            Some(table) => {
                                let segment = &table[entry(batch.segments[row])];
                                for (((sum, w), s), p) in
                                    sums.iter_mut().zip(word).zip(segment).zip(position)
                                {
                                    *sum = w + s + p;
                                }
                            }
                            None => {
                                for ((sum, w), p) in sums.iter_mut().zip(word).zip(position) {
                                    *sum = w + p;
                                }
                            }
                        }
                        *statistics = norm.row(sums, y);
                        if let Some((mask, rows)) = dropout {
                            mask.apply_to_row(simd, rows, row, y);
                        }
                    }
                },
            );
        });
}

/// Computes the gradient of the sum from that of [`forward`]'s output. Applies dropout to `dy`,
/// which becomes the gradient of the LayerNorm's output.
pub fn backward(
    simd: Simd,
    norm: Norm<'_>,
    dropout: Option<(Mask, &Rows)>,
    saved: (&[f32], &[Statistics]),
    dy: &mut [f32],
    d_sums: &mut [f32],
) {
    let _timer = Kernel::Embedding.on_values(dy.len(), 13, 4);
    let width = norm.weight.len();
    let (sums, statistics) = saved;
    dy.par_chunks_mut(ROWS * width)
        .zip(sums.par_chunks(ROWS * width))
        .zip(statistics.par_chunks(ROWS))
        .zip(d_sums.par_chunks_mut(ROWS * width))
        .enumerate()
        .for_each(|(task, (((dy, sums), statistics), d_sums))| {
            simd.run(
                #[inline(always)]
                || {
                    let rows = dy
                        .chunks_exact_mut(width)
                        .zip(sums.chunks_exact(width))
                        .zip(statistics)
                        .zip(d_sums.chunks_exact_mut(width));
                    for (row, (((dy, sums), &s), d_sums)) in rows.enumerate() {
                        if let Some((mask, rows)) = dropout {
                            mask.apply_to_row(simd, rows, task * ROWS + row, dy);
                        }
                        norm.row_backward(sums, s, dy, d_sums);
                    }
                },
            );
        });
}

/// `table[index[row]] += d[row]`. Each task owns a part of the table and adds its rows in order, so
/// that the sums don't depend on the threads.
pub fn add_to_table(simd: Simd, index: &[u32], d: &[f32], width: usize, table: &mut [f32]) {
    let _timer = Kernel::Embedding.on_values(d.len(), 1, 3);
    let entries = table.len() / width;
    let part = entries.div_ceil(4 * rayon::current_num_threads()).max(1);
    table.par_chunks_mut(part * width).enumerate().for_each(|(task, table)| {
        let first = task * part;
        simd.run(
            #[inline(always)]
            || {
                for (&index, d) in index.iter().zip(d.chunks_exact(width)) {
                    // Wraps to a large number for entries before this part.
                    let entry = (index as usize).wrapping_sub(first);
                    if entry < part {
                        let sums = &mut table[entry * width..(entry + 1) * width];
                        for (sum, d) in sums.iter_mut().zip(d) {
                            *sum += d;
                        }
                    }
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_entry_sums_the_rows_that_index_it() {
        for (entries, width) in [(1, 1), (2, 17), (13, 31), (500, 33)] {
            let index: Vec<u32> = (0..127).map(|i| (i * 7 % entries) as u32).collect();
            let d: Vec<f32> = (0..127 * width).map(|i| (i % 11) as f32).collect();
            let mut expected = vec![1.0; entries * width];
            for (row, &index) in index.iter().enumerate() {
                for i in 0..width {
                    expected[index as usize * width + i] += d[row * width + i];
                }
            }
            for (name, simd) in Simd::all() {
                let mut table = vec![1.0; entries * width];
                add_to_table(simd, &index, &d, width, &mut table);
                assert_eq!(table, expected, "{name}");
            }
        }
    }
}
