//! Inference in parts: each thread runs all layers over some of a batch's sequences, alone.
//!
//! Threads that share each product wait for the slowest of them after every product; here they wait once a batch.
//! The activations of a part also stay in the caches.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::data::Packed;
use crate::engine::simd::Simd;
use crate::engine::{INFERENCE_TOKENS, Precision};
use crate::error::{Error, Result};

use super::gemm::Unit;
use super::network::{Activations, Network};
use super::selection::Selection;

/// The tokens of a part, if the sequences allow it.
const TOKENS: usize = 512;
/// The fewest tokens for which a part is worth a thread: below, packing the weights takes too much of the time.
const FEWEST: usize = 256;
/// The fewest tokens of any part: the `gemm` crate computes smaller products in other ways, with other last bits.
const LEAST: u32 = 128;

/// Threads for parts, each with its own buffers.
#[derive(Default)]
pub struct Workers(Vec<Worker>);

struct Worker {
    /// A pool of one thread, so that nothing in it is shared with other threads.
    pool: ThreadPool,
    activations: Activations,
}

/// A part of a batch, and where its results go.
struct Part<'a> {
    batch: Packed,
    /// Its rows among those of the batch.
    rows: Range<u32>,
    hidden: &'a mut [f32],
    copies: &'a mut Vec<Vec<f32>>,
}

/// Returns the tokens of a batch in which every thread has several parts to compute, so that one that was interrupted
/// does not keep the others waiting.
pub fn batch_tokens() -> usize {
    (4 * TOKENS * rayon::current_num_threads()).max(INFERENCE_TOKENS)
}

/// Returns whether inference gains from parts: if its weights are `packed` once. Otherwise each part packs all weights
/// for its products, which pays only where these take longest: without AVX-512 and units for bf16.
pub fn gain(simd: Simd, precision: Precision, packed: bool) -> bool {
    packed || (!simd.is_avx512() && Unit::detect().of(precision) == Unit::F32)
}

/// Divides a batch into ranges of sequences with about equally many tokens. Returns None if all threads should share
/// each product: if some of them would get no sequences, or too few tokens.
pub fn divide(batch: &Packed) -> Option<Vec<Range<usize>>> {
    let threads = rayon::current_num_threads();
    if batch.rows() < FEWEST * threads {
        return None;
    }
    // As many parts for each thread.
    let parts = batch.balanced(threads * batch.rows().div_ceil(TOKENS * threads));
    let tokens = |part: &Range<usize>| batch.cu_seqlens[part.end] - batch.cu_seqlens[part.start];
    let worthwhile = parts.len() >= threads && parts.iter().all(|part| tokens(part) >= LEAST);
    worthwhile.then_some(parts)
}

impl Workers {
    /// Runs the encoder over the `parts` of a batch, for the selected rows. Writes the last hidden states to `hidden`,
    /// and returns copies of those after the layers in `copied`.
    pub fn forward(
        &mut self,
        network: Network<'_>,
        batch: &Packed,
        selection: &Selection,
        parts: Vec<Range<usize>>,
        hidden: &mut [f32],
        copied: Range<usize>,
    ) -> Result<Vec<Vec<f32>>> {
        let threads = rayon::current_num_threads();
        while self.0.len() < threads {
            let pool = ThreadPoolBuilder::new().num_threads(1).build();
            let pool =
                pool.map_err(|e| Error::Failed(format!("no thread could be started: {e}")))?;
            self.0.push(Worker { pool, activations: Activations::new(1) });
        }
        let mut copies: Vec<Vec<Vec<f32>>> = vec![Vec::new(); parts.len()];
        let (mut rest, mut queue) = (hidden, Vec::with_capacity(parts.len()));
        for (sequences, copies) in parts.into_iter().zip(&mut copies) {
            let rows = batch.cu_seqlens[sequences.start]..batch.cu_seqlens[sequences.end];
            let batch = batch.slice(sequences);
            let (hidden, others) = rest.split_at_mut(batch.rows() * network.config.hidden_size);
            queue.push(Part { batch, rows, hidden, copies });
            rest = others;
        }
        let queue = Mutex::new(queue.into_iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        rayon::scope(|scope| {
            for worker in &mut self.0[..threads] {
                let (next, copied) = (&next, &copied);
                scope.spawn(move |_| {
                    let Worker { pool, activations } = worker;
                    pool.install(|| {
                        while let Some(part) = next() {
                            let copied = copied.clone();
                            activations.selection.set_part(selection, part.rows);
                            let (last, copies) =
                                network.forward(&part.batch, None, activations, copied);
                            let len = part.hidden.len();
                            part.hidden.copy_from_slice(&activations.hidden[last][..len]);
                            *part.copies = copies;
                        }
                    });
                });
            }
        });
        let layers = copies.first().map_or(0, Vec::len);
        let layer = |at: usize| copies.iter().flat_map(|part| &part[at]).copied().collect();
        Ok((0..layers).map(layer).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;
    use crate::model::{Config, Layout, Part as ModelPart};

    fn batch(lengths: impl IntoIterator<Item = usize>) -> Packed {
        let mut batch = Packed::default();
        for (index, length) in lengths.into_iter().enumerate() {
            let ids: Vec<u32> = (0..length).map(|at| ((index * 31 + at * 7) % 50) as u32).collect();
            batch.push(index as u64, &ids, &vec![0; length]);
        }
        batch
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let config = Config::new(3, 128, 2, 512, 50);
        let layout = Layout::new(&config, &[ModelPart::Encoder]);
        let batch = batch((0..60).map(|index| 1 + index * 13 % 64));
        for precision in [Precision::F32, Precision::Bf16, Precision::Bf16x3, Precision::Int8] {
            let engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
            let mut engine = engine.with_precision(precision);
            engine.pack_weights();
            let network = Network {
                config: &config,
                model: &engine.model,
                values: &engine.state.values,
                simd: engine.simd,
                precision,
                recompute: false,
            };
            let mut whole = Activations::new(1);
            let (last, expected) = network.forward(&batch, None, &mut whole, 1..4);
            let len = batch.rows() * 128;
            assert!(expected.len() == 3 && expected.iter().all(|layer| layer.len() == len));
            for threads in [1, 2, 3, 5] {
                let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut hidden = vec![0.0; len];
                let run = |selection: &Selection, hidden: &mut [f32], copied: Range<usize>| {
                    pool.install(|| {
                        let parts = divide(&batch).expect("enough tokens");
                        assert!(parts.len() >= threads.max(2));
                        let workers = &mut Workers::default();
                        workers.forward(network, &batch, selection, parts, hidden, copied).unwrap()
                    })
                };
                let copies = run(&Selection::default(), &mut hidden, 1..4);
                assert_eq!(copies, expected, "{threads} threads, {precision}");
                assert_eq!(hidden, whole.hidden[last][..len], "{threads} threads, {precision}");
                // The first row of each sequence in the second half of the batch, so that some parts select none.
                let mut selection = Selection::default();
                let half = batch.rows() as u32 / 2;
                let firsts: Vec<u32> = batch.pooled_rows(false).filter(|&row| row > half).collect();
                selection.set(firsts.iter().copied(), batch.rows());
                run(&selection, &mut hidden, 0..0);
                for row in firsts.into_iter().map(|row| row as usize * 128) {
                    let (a, b) = (&hidden[row..row + 128], &whole.hidden[last][row..row + 128]);
                    // Small f32 products have other last bits.
                    let close = a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
                    assert!(close, "{threads} threads, {precision}");
                }
            }
        }
    }

    #[test]
    fn every_thread_gets_as_many_parts_and_small_batches_are_not_divided() {
        let parts = |lengths: &[usize], threads: usize| {
            let batch = batch(lengths.iter().copied());
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let parts = pool.install(|| divide(&batch));
            parts.map(|parts| parts.into_iter().map(|part| part.len()).collect::<Vec<_>>())
        };
        let short = [64; 20];
        assert_eq!(parts(&short[..7], 2), None);
        assert_eq!(parts(&short[..8], 2), Some(vec![4, 4]));
        assert_eq!(parts(&short, 2), Some(vec![5, 5, 5, 5]));
        assert_eq!(parts(&short, 4), Some(vec![5, 5, 5, 5]));
        assert_eq!(parts(&short, 6), None);
        assert_eq!(parts(&short, 1), Some(vec![7, 7, 6]));
        assert_eq!(parts(&[600], 2), None);
        assert_eq!(parts(&[520, 1], 2), None);
        assert_eq!(parts(&[600], 1), Some(vec![1]));
        assert_eq!(parts(&[], 1), None);
    }
}
