//! The workload for timing models: that of the usual PyTorch benchmark of a BERT with a SQuAD head.
//! Uniform random ids at full length; in training dropout 0.1, cross-entropy of start and end,
//! AdamW over all parameters, no clipping. Also the median, the figure reported for several times.

use std::time::Instant;

use super::optimizer::{Optimizer, Update};
use crate::data::Packed;
use crate::engine::TaskEngine;
use crate::engine::objective::Labels;
use crate::error::Result;
use crate::model::Dropout;
use crate::random::{Site, Stream};

/// The pass that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Forward, backward, update.
    Train,
    /// Forward only.
    Infer,
}

/// Returns the seconds of each of `steps` passes over (sequences, tokens per sequence), after
/// `warm_up` passes that are not timed. The engine's model must have a span head.
pub fn pass_seconds(
    engine: &mut dyn TaskEngine,
    pass: Pass,
    (sequences, length): (usize, usize),
    warm_up: u64,
    steps: u64,
) -> Result<Vec<f64>> {
    let vocabulary = engine.config().vocab_size as u32;
    let mut draws = Stream::new(0, 0, Site::Other(5), 0).draws();
    let mut batch = Packed::default();
    for example in 0..sequences as u64 {
        let ids: Vec<u32> = (0..length).map(|_| draws.below(vocabulary)).collect();
        batch.push(example, &ids, &vec![0; length]);
    }
    let spans: Vec<[u32; 2]> =
        (0..sequences).map(|_| [0; 2].map(|_| draws.below(length as u32))).collect();
    let mut seconds = Vec::new();
    for step in 1..=warm_up + steps {
        let started = Instant::now();
        match pass {
            Pass::Train => train(engine, &batch, &spans, step)?,
            Pass::Infer => {
                engine.task_logits(&batch)?;
            }
        }
        if step > warm_up {
            seconds.push(started.elapsed().as_secs_f64());
        }
    }
    Ok(seconds)
}

/// Returns the median, which one disturbed run does not change; of an even number of values the
/// mean of the middle two, NaN of none. Sorts `values`.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Measures the bytes a second that memory delivers, read and written: the best of several changes of 256 MiB, much
/// more than the caches hold, on `threads` threads. In place, because a copy would also read what it overwrites; four
/// values at a time, as far apart as those of AdamW.
pub fn measured_bandwidth(threads: usize) -> f64 {
    let mut values: Vec<f32> = vec![1.0; 64 << 20];
    let part = values.len().div_ceil(threads.max(1));
    let mut best: f64 = 0.0;
    for _ in 0..8 {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for part in values.chunks_mut(part) {
                scope.spawn(move || {
                    let (left, right) = part.split_at_mut(part.len() / 2);
                    let (a, b) = left.split_at_mut(left.len() / 2);
                    let (c, d) = right.split_at_mut(right.len() / 2);
                    for ((a, b), (c, d)) in a.iter_mut().zip(b).zip(c.iter_mut().zip(d)) {
                        *a += 1.0;
                        *b += 1.0;
                        *c += 1.0;
                        *d += 1.0;
                    }
                });
            }
        });
        let bytes = (2 * size_of_val(&values[..])) as f64;
        best = best.max(bytes / begun.elapsed().as_secs_f64());
    }
    best
}

/// Runs one training step.
fn train(engine: &mut dyn TaskEngine, batch: &Packed, spans: &[[u32; 2]], step: u64) -> Result<()> {
    let dropout = Dropout { seed: 0, step: step as u32 };
    let weight = 1.0 / spans.len() as f32;
    engine.labelled_gradients(batch, dropout, Labels::Spans(spans), weight)?;
    engine.update(&Update {
        optimizer: Optimizer::default(),
        learning_rate: 1e-5,
        step,
        max_norm: f64::INFINITY,
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut [5.0]), 5.0);
        assert!(median(&mut []).is_nan());
    }
}
