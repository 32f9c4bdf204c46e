//! Checkpoints: the state that a run needs to continue, beside the model in the Hugging Face layout.
//!
//! The state is one file, parameters included. So a save that is interrupted between two files never
//! leaves a model and an optimizer of different steps.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::optimizer::Moments;
use crate::engine::{Engine, LossScale, Numerics, Snapshot};
use crate::error::{Error, Result};
use crate::files::{Staged, remove_if_there};
use crate::model::weights::{NumberFormat, TensorData, stage_tensors};

use super::guard::{Guard, GuardState};

/// A run at a step boundary. `R` is what its kind of run keeps beside the fields that all have.
#[derive(Debug, Clone, PartialEq)]
pub struct State<R> {
    /// Steps done.
    pub step: u64,
    /// What this kind of run keeps.
    pub run: R,
    /// The engine's parameters, flat.
    pub parameters: Vec<f32>,
    /// The optimizer's state.
    pub moments: Moments,
    /// The loss scale of a run in f16.
    pub loss_scale: Option<LossScale>,
    /// What the guard knows about the steps so far.
    pub guard: GuardState,
    /// What computed the run; None if a state of an earlier version lacks it.
    pub numerics: Option<Numerics>,
}

/// Everything but the numbers, as JSON in the file's header.
#[derive(Serialize, Deserialize)]
struct Header<R> {
    step: u64,
    #[serde(default)]
    loss_scale: Option<LossScale>,
    #[serde(default, rename = "experience")]
    guard: GuardState,
    #[serde(default)]
    numerics: Option<Numerics>,
    #[serde(flatten)]
    run: R,
}

/// Returns the file of a run's state in `folder`.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("trainer").join("state.safetensors")
}

/// Checks that the settings `now`, by name, are those with which the run in `folder` began.
///
/// # Errors
/// If one differs; the error names the first.
pub fn same_run(
    folder: &Path,
    was: &[(&'static str, String)],
    now: &[(&'static str, String)],
) -> Result<()> {
    let mut pairs = was.iter().zip(now);
    let Some(((what, was), (_, now))) = pairs.find(|(was, now)| was != now) else {
        return Ok(());
    };
    Err(Error::Usage(format!(
        "the run in {} can't be continued: {what} was {was} and is now {now}",
        folder.display()
    )))
}

/// Removes the state of a finished run.
pub fn remove(folder: &Path) -> Result<()> {
    remove_if_there(&path(folder))
}

/// Writes a run's state after `step` steps to a temporary file in `folder`. `snapshot` is `engine`'s.
///
/// # Errors
/// If a parameter or a moment is not finite. The state that was saved before stays.
pub fn stage<R: Serialize>(
    folder: &Path,
    step: u64,
    run: &R,
    engine: &dyn Engine,
    snapshot: &Snapshot<'_>,
    guard: &Guard,
    numerics: Option<&Numerics>,
) -> Result<Staged> {
    let header = Header {
        step,
        loss_scale: engine.loss_scale().cloned(),
        guard: guard.state(),
        numerics: numerics.cloned(),
        run,
    };
    stage_state(folder, &header, snapshot)
}

fn stage_state<R: Serialize>(
    folder: &Path,
    header: &Header<R>,
    snapshot: &Snapshot<'_>,
) -> Result<Staged> {
    let step = header.step;
    // It has only numbers, strings and lists, which always serialise.
    let header = serde_json::to_string(header).expect("plain data");
    let moments = snapshot.moments.as_ref();
    let buffers = [
        (PARAMETERS, snapshot.parameters.as_ref()),
        (FIRST_MOMENT, &moments.first),
        (SECOND_MOMENT, &moments.second),
    ];
    for (name, values) in buffers {
        if let Some((at, value)) = not_finite(values) {
            return Err(Error::Failed(format!(
                "after step {step}: value {at} of the {name} is {value}: the run has diverged and is \
                 not saved; a lower learning rate helps"
            )));
        }
    }
    let tensors = buffers.map(|(name, values)| {
        let numbers = TensorData::new(NumberFormat::F32, vec![values.len()], values);
        (name.to_owned(), numbers)
    });
    stage_tensors(&path(folder), tensors.into(), &[("state", header)])
}

/// Returns the first value that is not finite, with its index.
fn not_finite(values: &[f32]) -> Option<(usize, f32)> {
    let at = values.iter().position(|value| !value.is_finite())?;
    Some((at, values[at]))
}

const PARAMETERS: &str = "parameters";
const FIRST_MOMENT: &str = "first_moment";
const SECOND_MOMENT: &str = "second_moment";

impl<R: Serialize + DeserializeOwned> State<R> {
    /// Writes the state; an interruption leaves the old one.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let snapshot = Snapshot {
            parameters: Cow::Borrowed(&self.parameters),
            moments: Cow::Borrowed(&self.moments),
        };
        let header = Header {
            step: self.step,
            loss_scale: self.loss_scale.clone(),
            guard: self.guard,
            numerics: self.numerics.clone(),
            run: &self.run,
        };
        Staged::place(vec![stage_state(folder, &header, &snapshot)?])
    }

    /// Restores the engine's parameters, optimizer state and loss scale, and the guard's state. Returns the
    /// number of steps done and what this kind of run keeps.
    pub fn restore(self, engine: &mut dyn Engine, guard: &mut Guard) -> Result<(u64, R)> {
        engine.set_parameters(&self.parameters)?;
        engine.set_moments(self.moments)?;
        if let Some(scale) = self.loss_scale {
            engine.set_loss_scale(scale);
        }
        guard.resume(self.guard);
        Ok((self.step, self.run))
    }

    /// Describes how what computes now differs from what computed the run so far.
    pub fn numerics_changes(&self, now: Option<&Numerics>) -> Vec<String> {
        match (now, &self.numerics) {
            (Some(now), Some(before)) => now.changes(before),
            _ => Vec::new(),
        }
    }

    /// Reads the state of the run in `folder`, if there is one.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let Some(file) = Stored::open(path(folder), "is no trainer state")? else {
            return Ok(None);
        };
        let header: Header<R> = file.header("state")?;
        Ok(Some(Self {
            step: header.step,
            run: header.run,
            parameters: file.buffer(PARAMETERS)?,
            moments: Moments {
                first: file.buffer(FIRST_MOMENT)?,
                second: file.buffer(SECOND_MOMENT)?,
            },
            loss_scale: header.loss_scale,
            guard: header.guard,
            numerics: header.numerics,
        }))
    }
}

/// A safetensors file with f32 buffers and a JSON entry in its header.
pub(super) struct Stored {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Begins the error message about a file that can't be read.
    damaged: &'static str,
}

impl Stored {
    /// Reads the file; None if there is no such file.
    pub fn open(path: PathBuf, damaged: &'static str) -> Result<Option<Self>> {
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(Self { path, bytes, damaged })),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(&path, e)),
        }
    }

    fn damaged(&self, why: impl std::fmt::Display) -> Error {
        Error::file(&self.path, format!("{}: {why}", self.damaged))
    }

    pub fn header<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).map_err(|e| self.damaged(e))?;
        let entries = metadata.metadata().as_ref();
        let entry = entries
            .and_then(|entries| entries.get(name))
            .ok_or_else(|| self.damaged(format!("its header has no entry {name:?}")))?;
        serde_json::from_str(entry).map_err(|e| self.damaged(e))
    }

    pub fn buffer(&self, name: &str) -> Result<Vec<f32>> {
        let file = SafeTensors::deserialize(&self.bytes).map_err(|e| self.damaged(e))?;
        let tensor = file.tensor(name).map_err(|e| self.damaged(e))?;
        if tensor.dtype() != Dtype::F32 {
            let found = tensor.dtype();
            return Err(self.damaged(format!("{name} is {found:?}, but F32 is expected")));
        }
        let (values, _) = tensor.data().as_chunks::<4>();
        let values: Vec<f32> = values.iter().map(|v| f32::from_le_bytes(*v)).collect();
        match not_finite(&values) {
            Some((at, value)) => Err(self.damaged(format!("value {at} of the {name} is {value}"))),
            None => Ok(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Packing;
    use crate::engine::Precision;
    use crate::engine::optimizer::{Optimizer, Rule};
    use crate::model::Config;
    use crate::train::guard::GuardSettings;
    use crate::train::identity::{Architecture, ORDER, PretrainingIdentity, Recipe};
    use crate::train::pretrain::PretrainingRun;
    use crate::train::{EvalReport, History, Schedule, StepReport};

    fn state(step: u64) -> State<PretrainingRun> {
        let identity = PretrainingIdentity {
            seed: 1,
            batch: 2,
            max_len: 3,
            first_max_len: 3,
            whole_word: false,
            mask_probability: 0.15,
            short_probability: 0.1,
            packing: Packing::Pairs,
            left_to_right: false,
            distilled: None,
            vocab_size: 4,
            model: Some(Architecture::from(&Config::new(1, 8, 2, 16, 4))),
            tokens: 5,
            checksum: Some(6),
            optimizer: Rule::Adamw,
            order: ORDER,
        };
        let history = History::default();
        State {
            step,
            run: PretrainingRun {
                identity,
                recipe: Some(Recipe {
                    schedule: Schedule::linear(0.1, 2, 9),
                    first_until: 4,
                    optimizer: Optimizer::default(),
                    max_norm: 1.0,
                    guard: GuardSettings::default(),
                    dropout: 0.1,
                    precision: Some(Precision::Bf16x3),
                }),
                history,
            },
            parameters: vec![1.0, -2.5, step as f32],
            moments: Moments { first: vec![0.5; 3], second: vec![0.25; 3] },
            loss_scale: Some(LossScale::default()),
            guard: GuardState::default(),
            numerics: None,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(State::<PretrainingRun>::read(folder.path()).unwrap(), None);
        state(7).write(folder.path()).unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), Some(state(7)));
    }

    /// The paper's million steps: safetensors limits the header, so it can't hold all of them.
    #[test]
    fn a_long_run_is_saved_in_little_space() {
        let folder = tempfile::tempdir().unwrap();
        let mut long = state(1_000_000);
        long.run.history.steps = (1..=1_000_000)
            .map(|step| StepReport {
                step,
                loss: 1.0 / step as f64,
                mlm_loss: 0.1,
                nsp_loss: 0.2,
                learning_rate: 1e-4,
                norm: 0.3,
                tokens_per_s: 1234.5,
            })
            .collect();
        long.write(folder.path()).unwrap();
        let length = std::fs::metadata(path(folder.path())).unwrap().len();
        assert!(length < 3_000_000, "{length} bytes");
        let read: State<PretrainingRun> = State::read(folder.path()).unwrap().unwrap();
        let steps = &read.run.history.steps;
        assert_eq!(steps.len(), 1_000_000);
        assert_eq!(steps.first().unwrap().step, 1);
        assert_eq!(steps.iter().last().unwrap().step, 1_000_000);
    }

    #[test]
    fn a_save_that_fails_leaves_the_old_state_whole() {
        let folder = tempfile::tempdir().unwrap();
        state(1).write(folder.path()).unwrap();
        // What an interrupted save leaves: part of the new file, beside the old one.
        let half = folder.path().join("trainer").join(".cloze-half");
        std::fs::write(half, b"\x10\0\0\0").unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), Some(state(1)));
    }

    #[test]
    fn a_state_with_what_is_no_number_is_neither_written_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        state(1).write(folder.path()).unwrap();
        let mut spoilt = state(2);
        spoilt.moments.second[1] = f32::INFINITY;
        let message = spoilt.write(folder.path()).unwrap_err().to_string();
        let expected = "after step 2: value 1 of the second_moment is inf";
        assert!(message.contains(expected), "{message}");
        assert_eq!(State::read(folder.path()).unwrap(), Some(state(1)));

        let whole = std::fs::read(path(folder.path())).unwrap();
        let last = whole.len() - 4;
        let other = [&whole[..last], &f32::NAN.to_le_bytes()].concat();
        std::fs::write(path(folder.path()), other).unwrap();
        let message = State::<PretrainingRun>::read(folder.path()).unwrap_err();
        let message = message.to_string();
        assert!(message.contains("value 2 of the second_moment is NaN"), "{message}");

        // Values of another type would be read as wrong numbers.
        let at = whole.windows(3).position(|bytes| bytes == b"F32").unwrap();
        let other = [&whole[..at], b"I32", &whole[at + 3..]].concat();
        std::fs::write(path(folder.path()), other).unwrap();
        let message = State::<PretrainingRun>::read(folder.path()).unwrap_err();
        assert!(message.to_string().contains("but F32 is expected"), "{message}");
    }

    /// Earlier versions wrote NaN as null.
    #[test]
    fn a_measurement_that_is_no_number_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut with = state(3);
        with.run.history.evaluations.push(EvalReport {
            step: 3,
            mlm_loss: f64::NAN,
            mlm_accuracy: 0.5,
            nsp_loss: None,
            nsp_accuracy: None,
        });
        with.write(folder.path()).unwrap();
        let read: State<PretrainingRun> = State::read(folder.path()).unwrap().unwrap();
        assert!(read.run.history.evaluations[0].mlm_loss.is_nan());
    }

    #[test]
    fn a_damaged_state_is_named() {
        let folder = tempfile::tempdir().unwrap();
        state(1).write(folder.path()).unwrap();
        let whole = std::fs::read(path(folder.path())).unwrap();
        std::fs::write(path(folder.path()), &whole[..whole.len() - 5]).unwrap();
        let message = State::<PretrainingRun>::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("state.safetensors: is no trainer state"), "{message}");
    }
}
