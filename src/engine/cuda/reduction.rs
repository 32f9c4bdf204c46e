//! Sums gradients over the ranks of a run in the memory of their GPUs, in buckets: each sum begins when the backward
//! pass has come to the point behind which its gradients do not change, and runs beside the rest of that pass.

use std::ops::Range;

use crate::engine::reduction::buckets;
use crate::error::Result;
use crate::ranks::Ranks;

use super::device::{Address, Device};
use super::state::{ALIGNMENT, Offsets};

/// The gradients of one rank on their way to the sums over all.
#[derive(Default)]
pub struct Reduction {
    ranks: Ranks,
    /// For each point of the backward pass, the ranges of the flat gradients that are complete there.
    buckets: Vec<Vec<Range<usize>>>,
    last_part: bool,
    /// Whether the sums of this step have been started.
    started: bool,
}

impl Reduction {
    /// Returns the reduction of gradients at these offsets. The zeros between parameters are added up too, which makes
    /// fewer sums.
    pub fn new(ranks: &Ranks, offsets: &Offsets) -> Self {
        let buckets = buckets(offsets.iter(), ALIGNMENT);
        Self { ranks: ranks.clone(), buckets, last_part: false, started: false }
    }

    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Returns whether there are other ranks.
    pub fn is_shared(&self) -> bool {
        self.ranks.size() > 1
    }

    /// Announces that the next backward pass finishes the gradients of a step.
    pub fn last_part(&mut self) {
        self.last_part = self.is_shared();
    }

    /// Starts the sums, unless other parts of the batch follow the backward pass that has just been launched. It must
    /// have marked all points.
    pub fn launched(&mut self, device: &mut dyn Device, gradients: Address) -> Result<()> {
        match std::mem::take(&mut self.last_part) {
            true => self.start(device, gradients),
            false => Ok(()),
        }
    }

    fn start(&mut self, device: &mut dyn Device, gradients: Address) -> Result<()> {
        for (point, bucket) in self.buckets.iter().enumerate() {
            let event = device.event(point)?;
            for range in bucket {
                let Address(at) = gradients.offset(4 * range.start as u64);
                self.ranks.start_sum_on_gpu(at, range.len(), event)?;
            }
        }
        self.started = true;
        Ok(())
    }

    /// Starts the sums if they have not been started: a rank without a share of the batch had no backward pass.
    pub fn start_rest(&mut self, device: &mut dyn Device, gradients: Address) -> Result<()> {
        self.last_part = false;
        if self.is_shared() && !self.started {
            (0..self.buckets.len()).try_for_each(|point| device.point(point))?;
            self.start(device, gradients)?;
        }
        Ok(())
    }

    /// Waits until the gradients are sums over all ranks.
    pub fn complete(&mut self, device: &mut dyn Device, gradients: Address) -> Result<()> {
        self.start_rest(device, gradients)?;
        if !std::mem::take(&mut self.started) {
            return Ok(());
        }
        self.ranks.finish_sums_on_gpu()
    }
}

#[cfg(test)]
mod tests;
