//! Sums gradients over the ranks of a run, in buckets: the sum of a bucket starts as soon as the backward pass has
//! finished its parameters, and the backward pass goes on meanwhile.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::model::{Layout, Parameter};
use crate::ranks::{Pending, Ranks};

/// The gradients of one rank on their way to the sums over all.
#[derive(Default)]
pub struct Reduction {
    ranks: Ranks,
    /// See [`buckets`].
    buckets: Vec<Vec<Range<usize>>>,
    /// The sums that have been started, one for each of the first buckets.
    started: Vec<Pending>,
    /// The memory of the last step's sums, one for each bucket: fresh memory would take as long as the sums.
    memory: Vec<Vec<f32>>,
    last_part: bool,
}

/// Returns the ranges of the trained parameters' gradients, in the order in which the backward pass finishes them:
/// heads and last layer, the other layers backwards, the embeddings. Ranges that are at most `gap` apart become one.
pub fn buckets<'a>(
    parameters: impl Iterator<Item = (&'a Parameter, Range<usize>)>,
    gap: usize,
) -> Vec<Vec<Range<usize>>> {
    let layer = |name: &str| name.strip_prefix("encoder.layer.")?.split('.').next()?.parse().ok();
    let parameters: Vec<_> = parameters.collect();
    let layers = parameters
        .iter()
        .filter_map(|(p, _)| layer(&p.name))
        .max()
        .map_or(0, |last: usize| last + 1);
    let mut buckets = vec![Vec::<Range<usize>>::new(); layers + 1];
    for (parameter, range) in parameters.into_iter().filter(|(parameter, _)| parameter.rate > 0.0) {
        let bucket = match layer(&parameter.name) {
            Some(layer) => layers - 1 - layer,
            None if parameter.name.starts_with("embeddings") => layers,
            None => 0,
        };
        match buckets[bucket].last_mut() {
            Some(last) if (last.end..=last.end + gap).contains(&range.start) => {
                last.end = range.end
            }
            _ => buckets[bucket].push(range),
        }
    }
    buckets
}

impl Reduction {
    /// Returns the reduction of the gradients of a model with this layout. Frozen parameters have none.
    pub fn new(ranks: &Ranks, layout: &Layout) -> Self {
        let buckets = buckets(layout.iter(), 0);
        let memory = vec![Vec::new(); buckets.len()];
        Self { ranks: ranks.clone(), buckets, started: Vec::new(), memory, last_part: false }
    }

    /// Returns the ranks.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Announces that the next backward pass finishes the gradients of a step.
    pub fn last_part(&mut self) {
        self.last_part = self.ranks.size() > 1;
    }

    /// Starts the sums of the first `count` buckets, which the backward pass has finished, unless other parts of the
    /// batch follow. Counts from the last layer: 1 when that is done.
    pub fn finished(&mut self, count: usize, gradients: &[f32]) {
        if self.last_part {
            self.start(count, gradients);
        }
    }

    fn start(&mut self, count: usize, gradients: &[f32]) {
        for index in self.started.len()..count.min(self.buckets.len()) {
            let bucket = &self.buckets[index];
            let mut values = std::mem::take(&mut self.memory[index]);
            values.clear();
            values.reserve_exact(bucket.iter().map(Range::len).sum());
            bucket.iter().for_each(|range| values.extend_from_slice(&gradients[range.clone()]));
            self.started.push(self.ranks.start_sum(values));
        }
    }

    /// Starts the sums of all buckets that have not started.
    pub fn start_rest(&mut self, gradients: &[f32]) {
        self.last_part = false;
        if self.ranks.size() > 1 {
            self.start(self.buckets.len(), gradients);
        }
    }

    /// Replaces the gradients by the sums over all ranks.
    pub fn complete(&mut self, gradients: &mut [f32]) -> Result<()> {
        self.start_rest(gradients);
        let started = self.started.drain(..).zip(&mut self.memory);
        for (bucket, (sum, memory)) in self.buckets.iter().zip(started) {
            let ended = |_| Error::Failed("the connection to the other ranks has ended".into());
            let sums = sum.recv().map_err(ended)??;
            let mut rest = &sums[..];
            for range in bucket {
                let (own, others) = rest.split_at(range.len());
                gradients[range.clone()].copy_from_slice(own);
                rest = others;
            }
            *memory = sums;
        }
        Ok(())
    }

    /// Lets no sum start before [`complete`](Self::complete).
    pub fn hold(&mut self) {
        self.last_part = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, PRETRAINING, Tuning};
    use crate::ranks::threads;

    #[test]
    fn every_trained_parameter_is_in_one_bucket_and_the_embeddings_come_last() {
        let layout = Layout::new(&Config::new(3, 8, 2, 12, 20), &PRETRAINING);
        let reduction = Reduction::new(Ranks::ALONE, &layout);
        let mut all: Vec<_> = reduction.buckets.iter().flatten().cloned().collect();
        all.sort_by_key(|range| range.start);
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
        assert_eq!(all.iter().map(Range::len).sum::<usize>(), layout.total());
        let (_, words) = layout.find("embeddings.word_embeddings.weight").unwrap();
        assert!(reduction.buckets[3].iter().any(|range| range.contains(&words.start)));

        let frozen = layout.tuned(Tuning { freeze: Some(1), ..Tuning::default() }, 3);
        let reduction = Reduction::new(Ranks::ALONE, &frozen);
        assert!(reduction.buckets[3].is_empty() && reduction.buckets[2].is_empty());
        assert!(!reduction.buckets[1].is_empty());
    }

    #[test]
    fn gradients_become_sums_whether_or_not_buckets_were_started_before() {
        let layout = Layout::new(&Config::new(2, 8, 2, 12, 20), &PRETRAINING);
        let expected: Vec<f32> = (0..layout.total()).map(|i| (2 * i + 1) as f32).collect();
        std::thread::scope(|scope| {
            for ranks in threads::group(2) {
                let (layout, expected) = (&layout, &expected);
                scope.spawn(move || {
                    let mut reduction = Reduction::new(&ranks, layout);
                    for early in [0, 2, 3] {
                        let mut own: Vec<f32> =
                            (0..layout.total()).map(|i| (i + ranks.rank()) as f32).collect();
                        reduction.last_part();
                        reduction.finished(early, &own);
                        reduction.complete(&mut own).unwrap();
                        assert!(own == *expected, "{early}");
                        reduction.finished(1, &own);
                        assert!(reduction.started.is_empty());
                    }
                });
            }
        });
    }
}
