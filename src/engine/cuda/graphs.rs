//! Records repeated steps: the first step of a shape is launched kernel by kernel, the second is
//! recorded, and later ones are replayed at the cost of one launch. Everything that changes between
//! steps is in the device's memory; the rest is the [`Key`].

use std::collections::VecDeque;

use crate::error::Result;

use super::device::{Device, Graph};

/// The recorded work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Pretraining,
    Distillation,
    /// With the loss on the device.
    Task,
    TaskForward,
    TaskBackward,
}

/// Everything that a recording depends on, except the addresses of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub work: Work,
    /// Rows, sequences, longest sequence, rows of the masked-LM head, pairs.
    pub sizes: [usize; 5],
    /// The bits of kernel arguments.
    pub numbers: [u32; 4],
}

/// Maximum number of recordings: each holds some hundred launches.
const MAX_RECORDINGS: usize = 32;

/// The state of a key.
#[derive(Debug, Clone, Copy)]
enum Known {
    Seen,
    Recorded(Graph),
}

/// The recordings, the most recently used last.
#[derive(Debug, Default)]
pub struct Graphs {
    known: VecDeque<(Key, Known)>,
    /// Whether the device can't record.
    never: bool,
    replayed: u64,
}

impl Graphs {
    /// Launches `work` or replays its recording.
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
                // Ended in any case: the device must stop recording.
                let graph = device.end_capture();
                if let (Err(_), Ok(graph)) = (&launched, &graph) {
                    device.drop_graph(*graph);
                }
                launched?;
                let graph = graph?;
                device.replay(graph).inspect_err(|_| device.drop_graph(graph))?;
                Known::Recorded(graph)
            }
            Some((_, Known::Recorded(graph))) => {
                self.replayed += 1;
                device.replay(graph).inspect_err(|_| device.drop_graph(graph))?;
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

    /// Drops all recordings: buffers that they use have moved.
    pub fn clear(&mut self, device: &mut dyn Device) {
        for (_, known) in self.known.drain(..) {
            forget(device, Some(known));
        }
    }

    /// Returns how many steps were replayed, not counting a recording's first run.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }
}

fn forget(device: &mut dyn Device, known: Option<Known>) {
    if let Some(Known::Recorded(graph)) = known {
        device.drop_graph(graph);
    }
}
