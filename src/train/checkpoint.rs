//! Checkpoints: the state that a run needs to continue, beside the model in the Hugging Face layout.
//!
//! The state is one file, parameters included. So a save that is interrupted between two files never
//! leaves a model and an optimizer of different steps. Its header is the manifest of the save: the step, what computed
//! the run, and the checksums of the state's parts and of the other files that were saved with it.
//!
//! The state before stays as a second generation, which is used, and reported, if the newest one is damaged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::optimizer::Moments;
use crate::engine::{Engine, LossScale, Numerics, Snapshot};
use crate::error::{Error, Result};
use crate::files::{Staged, remove_if_there, rename};
use crate::note;

use super::guard::{Guard, GuardState};
use super::stored::{self, Checksums, Stored, hexadecimal, not_finite};

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
    /// What computed the run, if its settings describe it.
    pub numerics: Option<Numerics>,
    /// The checksums of the files that were saved with it, by name.
    pub files: BTreeMap<String, String>,
}

/// Everything but the numbers, as JSON in the file's header.
#[derive(Serialize, Deserialize)]
struct Header<R> {
    step: u64,
    loss_scale: Option<LossScale>,
    guard: GuardState,
    numerics: Option<Numerics>,
    files: Checksums,
    #[serde(flatten)]
    run: R,
}

/// Returns the file of a run's state in `folder`.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("trainer").join("state.safetensors")
}

/// Returns the file of the state before that.
pub fn previous(folder: &Path) -> PathBuf {
    folder.join("trainer").join("previous.safetensors")
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

/// Removes the states of a finished run.
pub fn remove(folder: &Path) -> Result<()> {
    // First: alone, the older one would be used.
    remove_if_there(&previous(folder))?;
    remove_if_there(&path(folder))
}

/// A run at a step boundary, to be saved.
pub struct Save<'a, R> {
    /// Steps done.
    pub step: u64,
    /// What this kind of run keeps.
    pub run: &'a R,
    /// The engine that trains.
    pub engine: &'a dyn Engine,
    /// Its parameters and moments.
    pub snapshot: &'a Snapshot<'a>,
    /// What the guard knows.
    pub guard: &'a Guard,
    /// What computes the run.
    pub numerics: Option<&'a Numerics>,
}

impl<R: Serialize> Save<'_, R> {
    /// Saves the state in `folder` together with `files`, which are not yet in place.
    ///
    /// # Errors
    /// If a parameter or a moment is not finite, or a file cannot be written. What was saved before stays.
    pub fn place(&self, folder: &Path, mut files: Vec<Staged>) -> Result<()> {
        let header = Header {
            step: self.step,
            loss_scale: self.engine.loss_scale().cloned(),
            guard: self.guard.state(),
            numerics: self.numerics.cloned(),
            files: sums(&files),
            run: self.run,
        };
        // Last, because it names the others.
        files.push(stage_state(folder, &header, self.snapshot)?);
        Staged::place(files)
    }
}

/// Returns the checksums of files by their names.
fn sums(files: &[Staged]) -> Checksums {
    let sum = |file: &Staged| {
        let name = file.path().file_name()?.to_string_lossy().into_owned();
        Some((name, hexadecimal(file.checksum()?)))
    };
    files.iter().filter_map(sum).collect()
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
        (FIRST_MOMENT, &moments.first[..]),
        (SECOND_MOMENT, &moments.second[..]),
    ];
    for (name, values) in buffers {
        if let Some((at, value)) = not_finite(values) {
            return Err(Error::Failed(format!(
                "after step {step}: value {at} of the {name} is {value}: the run has diverged and is \
                 not saved; a lower learning rate helps"
            )));
        }
    }
    let staged = stored::stage(&path(folder), &buffers, vec![("state", header)])?;
    Ok(staged.keeping(previous(folder)))
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
            files: self.files.clone(),
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

    /// Reads the state of the run in `folder`, if there is one: the newest one that is not damaged. A damaged one is
    /// reported, and replaced by the older one that is used.
    ///
    /// # Errors
    /// If there are states, but none can be used.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let (state, damage) = Self::usable(folder)?;
        if let (Some(state), Some(why)) = (&state, damage) {
            let step = state.step;
            note!("{why}: the run is continued from the state before, after step {step}");
        }
        Ok(state)
    }

    /// Returns the state that can be used, and what is wrong with the newest one.
    fn usable(folder: &Path) -> Result<(Option<Self>, Option<String>)> {
        let newest = Self::open(path(folder));
        let why = match &newest {
            Ok(Some(_)) => return Ok((newest?, None)),
            Ok(None) => format!("there is no {}", path(folder).display()),
            Err(error) => error.to_string(),
        };
        // The newest one's error says more than the older one's.
        let Ok(Some(older)) = Self::open(previous(folder)) else {
            return Ok((newest?, None));
        };
        rename(&previous(folder), &path(folder))?;
        Ok((Some(older), Some(why)))
    }

    fn open(path: PathBuf) -> Result<Option<Self>> {
        let Some(file) = Stored::open(path, "is no trainer state")? else {
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
            files: header.files,
        }))
    }

    /// Compares the files in `folder` with those that were saved together with this state. Returns a sentence for each
    /// that differs.
    pub fn other_files(&self, folder: &Path) -> Vec<String> {
        let differs = |(name, saved): (&String, &String)| {
            let found = match std::fs::read(folder.join(name)) {
                Ok(bytes) if hexadecimal(crc32fast::hash(&bytes)) == *saved => return None,
                Ok(_) => "is another one than the state was saved with",
                Err(_) => "is missing",
            };
            Some(format!("{name} {found}: it is written anew with the next save"))
        };
        self.files.iter().filter_map(differs).collect()
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
    use crate::train::identity::{Architecture, Changeable, ORDER, PretrainingIdentity};
    use crate::train::pretrain::PretrainingRun;
    use crate::train::{History, Schedule, StepReport};

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
            model: Architecture::from(&Config::new(1, 8, 2, 16, 4)),
            tokens: 5,
            checksum: 6,
            optimizer: Rule::Adamw,
            order: ORDER,
        };
        let history = History::default();
        State {
            step,
            run: PretrainingRun {
                identity,
                changeable: Changeable {
                    schedule: Schedule::linear(0.1, 2, 9),
                    first_until: 4,
                    optimizer: Optimizer::default(),
                    max_norm: 1.0,
                    guard: GuardSettings::default(),
                    dropout: 0.1,
                    precision: Precision::Bf16x3,
                },
                history,
            },
            parameters: vec![1.0, -2.5, step as f32],
            moments: Moments { first: vec![0.5; 3], second: vec![0.25; 3] },
            loss_scale: Some(LossScale::default()),
            guard: GuardState::default(),
            numerics: None,
            files: Checksums::new(),
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

    #[test]
    fn a_damaged_state_is_named() {
        let folder = tempfile::tempdir().unwrap();
        state(1).write(folder.path()).unwrap();
        let whole = std::fs::read(path(folder.path())).unwrap();
        std::fs::write(path(folder.path()), &whole[..whole.len() - 5]).unwrap();
        let message = State::<PretrainingRun>::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("state.safetensors: is no trainer state"), "{message}");
    }

    /// A flipped bit in each byte, lost ends, and a missing file.
    #[test]
    fn the_state_before_is_used_where_the_newest_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        state(1).write(folder).unwrap();
        state(2).write(folder).unwrap();
        let [newest, older] = [path(folder), previous(folder)].map(|p| std::fs::read(p).unwrap());
        let damaged = |bytes: Option<&[u8]>| {
            std::fs::write(previous(folder), &older).unwrap();
            match bytes {
                Some(bytes) => std::fs::write(path(folder), bytes).unwrap(),
                None => std::fs::remove_file(path(folder)).unwrap(),
            }
            State::usable(folder).unwrap().0
        };
        // The checksum of all tensors together is for models. A state has one of each.
        let entry = b"\"cloze.tensors\":\"1:00000000\"";
        let start = newest.windows(15).position(|bytes| bytes == &entry[..15]).unwrap();
        for at in 0..newest.len() {
            let mut flipped = newest.clone();
            flipped[at] ^= 1 << (at % 8);
            let read = damaged(Some(&flipped));
            let unused = (start..start + entry.len()).contains(&at);
            assert!(read == Some(state(1)) || unused && read == Some(state(2)), "byte {at}");
        }
        for length in [0, 7, 8, 100, newest.len() - 1] {
            assert_eq!(damaged(Some(&newest[..length])), Some(state(1)), "{length} bytes");
        }
        assert_eq!(damaged(None), Some(state(1)));
        assert_eq!(damaged(Some(&newest)), Some(state(2)));
        // The older one has taken its place, and the next save keeps it.
        assert_eq!(damaged(None), Some(state(1)));
        assert!(!previous(folder).exists());
        state(3).write(folder).unwrap();
        assert_eq!(State::open(previous(folder)).unwrap(), Some(state(1)));
        remove(folder).unwrap();
        assert_eq!(State::<PretrainingRun>::read(folder).unwrap(), None);
    }
}
