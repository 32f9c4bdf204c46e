//! The parameters of a run's best epoch, kept in a file beside its checkpoint until the run ends.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::error::Result;
use crate::files::{Staged, remove_if_there};

use super::stored::{self, Stored};

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Number of the epoch, from 1.
    pub epoch: u32,
    /// Its score.
    pub score: f64,
}

const HEADER: &str = "best";
const PARAMETERS: &str = "parameters";

fn path(folder: &Path) -> PathBuf {
    folder.join("trainer").join("best.safetensors")
}

fn stored(folder: &Path) -> Result<Option<Stored>> {
    Stored::open(path(folder), "holds no parameters of an epoch")
}

impl Best {
    /// Reads the best epoch so far of the run in `folder`, if there is one.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let stored = stored(folder)?;
        stored.map(|stored| stored.header(HEADER)).transpose()
    }

    /// Writes the engine's parameters, in place of an earlier epoch's.
    pub fn write(self, folder: &Path, engine: &dyn Engine) -> Result<()> {
        let snapshot = engine.snapshot()?;
        let values = snapshot.parameters.as_ref();
        // It has only numbers, which always serialise.
        let header = serde_json::to_string(&self).expect("plain data");
        let buffers = [(PARAMETERS, values)];
        Staged::place(vec![stored::stage(&path(folder), &buffers, vec![(HEADER, header)])?])
    }

    /// Removes the file of the run in `folder`.
    pub fn remove(folder: &Path) -> Result<()> {
        remove_if_there(&path(folder))
    }

    /// Sets the engine's parameters to those of the best epoch, if they were kept.
    pub fn restore(folder: &Path, engine: &mut dyn Engine) -> Result<()> {
        match stored(folder)? {
            Some(stored) => engine.set_parameters(&stored.buffer(PARAMETERS)?),
            None => Ok(()),
        }
    }
}
