//! Steps that repeat are recorded: the first one of a shape is launched kernel by kernel, the second
//! recorded, and from then on the recording is replayed at the cost of one launch. All that changes
//! from step to step lies in the device's memory; what doesn't is the [`Key`].

use std::collections::VecDeque;

use crate::error::Result;

use super::device::{Device, Graph};

/// What is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Pretraining,
    Distillation,
    TaskForward,
    TaskBackward,
    Update,
}

/// All that a recording depends on, beside where buffers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub work: Work,
    /// Rows, sequences, the longest, rows that the masked-LM head reads, pairs.
    pub sizes: [usize; 5],
    /// The bits of numbers that kernels are launched with.
    pub numbers: [u32; 4],
}

/// Recordings that are kept: each holds some hundred launches.
const MAX_RECORDINGS: usize = 32;

/// What is known of a key.
#[derive(Debug, Clone, Copy)]
enum Known {
    Seen,
    Recorded(Graph),
}

/// The recordings, the last used at the end.
#[derive(Debug, Default)]
pub struct Graphs {
    known: VecDeque<(Key, Known)>,
    /// Whether the device said that it can't record.
    never: bool,
    replayed: u64,
}

impl Graphs {
    /// Launches `work`, or replays what it launched before.
    pub fn run(
        &mut self,
        device: &mut dyn Device,
        key: Key,
        work: impl FnOnce(&mut dyn Device) -> Result<()>,
    ) -> Result<()> {
        if self.never {
            return work(device);
        }
        let place = self.known.iter().position(|(known, _)| *known == key);
        let known = match place.and_then(|place| self.known.remove(place)) {
            None => {
                work(device)?;
                Known::Seen
            }
            Some((_, Known::Seen)) => {
                if !device.begin_capture()? {
                    self.never = true;
                    return work(device);
                }
                let launched = work(device);
                // Ended in any case: the device must not go on recording.
                let graph = device.end_capture();
                launched?;
                let graph = graph?;
                device.replay(graph)?;
                Known::Recorded(graph)
            }
            Some((_, Known::Recorded(graph))) => {
                self.replayed += 1;
                device.replay(graph)?;
                Known::Recorded(graph)
            }
        };
        self.known.push_back((key, known));
        if self.known.len() > MAX_RECORDINGS {
            let oldest = self.known.pop_front();
            forget(device, oldest.map(|(_, known)| known));
        }
        Ok(())
    }

    /// Forgets all recordings: buffers that they name have moved.
    pub fn clear(&mut self, device: &mut dyn Device) {
        for (_, known) in self.known.drain(..) {
            forget(device, Some(known));
        }
    }

    /// How often a recording was replayed, its first run not counted.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }
}

fn forget(device: &mut dyn Device, known: Option<Known>) {
    if let Some(Known::Recorded(graph)) = known {
        device.drop_graph(graph);
    }
}
