//! What the last bits of a run depend on besides its settings: an engine rounds sums in the order
//! in which it adds, and that order depends on the machine.

use gemm_common::cache::CACHE_INFO;
use serde::{Deserialize, Serialize};

use super::simd::Simd;
use super::{Backend, CpuEngine, Setup, cuda};
use crate::ranks::Ranks;

/// The engine and hardware of a run, as far as its last bits depend on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numerics {
    /// The engine.
    pub backend: String,
    /// What multiplies matrices: a matrix unit, vector instructions, or a GPU.
    pub unit: String,
    /// The processor's vector instructions and first two caches, whose sizes determine the blocks
    /// of f32 products.
    pub processor: String,
    /// Sequences that the model runs at once; 0 for the whole batch.
    pub micro_batch: usize,
    /// Processes that share the work.
    pub ranks: usize,
    /// Whether gradients are added up in an order that does not depend on the ranks.
    pub deterministic: bool,
    /// Threads of the processor. No bit depends on them.
    pub threads: usize,
}

impl Numerics {
    /// Describes what computes with `setup` on this machine.
    pub fn of(setup: Setup, micro_batch: usize) -> Self {
        let (backend, unit) = match setup.backend.resolve().0 {
            Backend::Reference => ("reference", "dfdx".to_owned()),
            Backend::Cuda => ("cuda", cuda::name()),
            Backend::Cpu | Backend::Auto => ("cpu", CpuEngine::unit(setup.precision)),
        };
        let caches = CACHE_INFO[..2].iter().map(|cache| {
            let kibibytes = cache.cache_bytes >> 10;
            format!("{kibibytes} KiB in {} ways", cache.associativity)
        });
        let caches: Vec<String> = caches.collect();
        Self {
            backend: backend.into(),
            unit,
            processor: format!("{} with caches of {}", Simd::detect().name(), caches.join(" and ")),
            micro_batch,
            ranks: Ranks::of_process().size(),
            deterministic: setup.deterministic,
            threads: rayon::current_num_threads(),
        }
    }

    /// Returns a sentence for each setting that differs from `before`.
    pub fn changes(&self, before: &Self) -> Vec<String> {
        let of = |n: &Self| {
            [
                ("the engine", n.backend.clone()),
                ("the unit that multiplies matrices", n.unit.clone()),
                ("the processor", n.processor.clone()),
                ("the number of ranks", n.ranks.to_string()),
                ("--deterministic", n.deterministic.to_string()),
                (
                    "the micro-batch",
                    match n.micro_batch {
                        0 => "the whole batch".to_owned(),
                        some => some.to_string(),
                    },
                ),
            ]
        };
        let pairs = of(before).into_iter().zip(of(self));
        let changed = pairs.filter(|(was, is)| was != is);
        let sentence = |((what, was), (_, is))| {
            format!(
                "{what} was {was} and is {is} from here on: the last bits differ from those of an \
                 unbroken run"
            )
        };
        changed.map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_named_and_nothing_else() {
        let now = Numerics::of(Backend::Cpu.into(), 0);
        assert!(now.changes(&now).is_empty());
        assert!(now.processor.contains("KiB"), "{now:?}");
        let before = Numerics { unit: "AMX".into(), micro_batch: 4, ..now.clone() };
        let changes = now.changes(&before);
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert!(changes[0].contains("was AMX and is f32 from here on"));
        assert!(changes[1].starts_with("the micro-batch was 4 and is the whole batch"));
    }
}
