//! The time of a data-parallel training step on many GPUs: computing, summing the gradients over all GPUs, and how
//! much of that the backward pass hides. Nothing here measures.

use std::ops::Range;

use crate::engine::reduction;
use crate::model::{Config, Layout, PRETRAINING};

/// Share of a step's computing that is the backward pass, which has twice the operations of the forward pass.
const BACKWARD: f64 = 2.0 / 3.0;

/// Equal hosts, connected to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cluster {
    /// GPUs of a host.
    pub host_gpus: u64,
    /// Bytes a second, in each direction, between a GPU and the others of its host.
    pub inside: f64,
    /// Bytes a second, in each direction, between a host and the others.
    pub between: f64,
    /// Seconds that a message takes from one GPU to the next, whatever its size.
    pub latency: f64,
}

impl Cluster {
    /// Returns the seconds in which `gpus` GPUs add up `bytes` of each of them: in a ring inside the hosts, then between
    /// the hosts in a ring or a double binary tree, whichever takes less time (the algorithms of NCCL).
    pub fn all_reduce(&self, bytes: f64, gpus: u64) -> f64 {
        let hosts = gpus.div_ceil(self.host_gpus) as f64;
        // n - 1 messages add up the parts and n - 1 distribute them; a part is an n-th of the bytes.
        let ring = |n: f64, speed: f64| 2.0 * (n - 1.0) * (bytes / n / speed + self.latency);
        let tree = 2.0 * (bytes / self.between + hosts.log2().ceil() * self.latency);
        ring(gpus.min(self.host_gpus) as f64, self.inside) + ring(hosts, self.between).min(tree)
    }
}

/// A training step of one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Seconds of computing, without communication.
    pub seconds: f64,
    /// Bytes of gradients that are sent together, in the order in which the backward pass finishes them: one bucket a
    /// layer, then the embeddings.
    pub buckets: Vec<f64>,
    /// Whether a bucket is sent while the backward pass goes on, or only after it.
    pub overlap: bool,
}

impl Step {
    /// Returns the seconds that GPUs wait for gradients after they have computed.
    pub fn exposed(&self, cluster: &Cluster, gpus: u64) -> f64 {
        let layers = self.buckets.len() - 1;
        let mut sent = 0.0f64;
        for (bucket, bytes) in self.buckets.iter().enumerate() {
            let left = (layers - (bucket + 1).min(layers)) as f64 / layers as f64;
            let left = if self.overlap { left * BACKWARD * self.seconds } else { 0.0 };
            sent = sent.max(self.seconds - left) + cluster.all_reduce(*bytes, gpus);
        }
        sent - self.seconds
    }
}

/// Returns the bytes of gradients of each bucket of a model that is pre-trained, with `width` bytes for each number.
pub fn buckets(config: &Config, width: f64) -> Vec<f64> {
    let layout = Layout::new(config, &PRETRAINING);
    let buckets = reduction::buckets(layout.iter(), 0);
    let bytes = |range: &Range<usize>| width * range.len() as f64;
    buckets.iter().map(|ranges| ranges.iter().map(bytes).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Size;

    /// 8 GPUs a host, 400 GB/s inside, 50 GB/s between hosts, 5 µs.
    const CLUSTER: Cluster = Cluster { host_gpus: 8, inside: 400e9, between: 50e9, latency: 5e-6 };

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-12, "{got}, {expected}");
    }

    #[test]
    fn a_sum_inside_a_host_is_a_ring() {
        close(CLUSTER.all_reduce(400e6, 1), 0.0);
        // Twice 1 of 2 parts: 2 × 0.5 ms, 2 messages.
        close(CLUSTER.all_reduce(400e6, 2), 1e-3 + 10e-6);
        // Twice 7 of 8 parts of 1 ms, 14 messages.
        close(CLUSTER.all_reduce(400e6, 8), 1.75e-3 + 70e-6);
    }

    #[test]
    fn a_sum_between_hosts_is_a_ring_or_a_tree() {
        let inside = 1.75e-3 + 70e-6;
        // 400 MB take 8 ms. 4 hosts: twice 3 of 4 parts, 6 messages.
        close(CLUSTER.all_reduce(400e6, 32), inside + 12e-3 + 30e-6);
        // 128 hosts: a ring takes 15.875 ms + 254 messages, a tree 16 ms + 14 messages.
        close(CLUSTER.all_reduce(400e6, 1024), inside + 16e-3 + 70e-6);
    }

    #[test]
    fn the_backward_pass_hides_what_is_sent_before_its_end() {
        // Two layers, ready after 20 and 30 ms, and the embeddings after 30 ms. Two GPUs send 400 MB in 1 ms.
        let cluster = Cluster { latency: 0.0, ..CLUSTER };
        let mut step = Step { seconds: 30e-3, buckets: vec![400e6, 400e6, 800e6], overlap: true };
        close(step.exposed(&cluster, 1), 0.0);
        close(step.exposed(&cluster, 2), 1e-3 + 2e-3);
        // 11 ms are more than the 10 ms until the second layer is ready.
        step.buckets[0] = 4400e6;
        close(step.exposed(&cluster, 2), 1e-3 + 1e-3 + 2e-3);
        step.overlap = false;
        close(step.exposed(&cluster, 2), 11e-3 + 1e-3 + 2e-3);
    }

    /// By hand: a layer has 4 × (768² + 768) + 2 × 768 × 3072 + 3072 + 768 weights and biases and 4 × 768 of norms.
    #[test]
    fn every_parameter_is_in_one_bucket() {
        let base = buckets(&Size::Base.config(30522), 4.0);
        assert_eq!((base.len(), base[1]), (13, 4.0 * 7_087_872.0));
        assert_eq!(base[12], 4.0 * 768.0 * (30_522.0 + 512.0 + 2.0 + 2.0));
        assert_eq!(base.iter().sum::<f64>(), 4.0 * 110_106_428.0);
    }
}
