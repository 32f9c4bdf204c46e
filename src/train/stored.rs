//! Files of f32 buffers with a description: safetensors files whose header also has a checksum of every part, which
//! is compared when the file is read. So a flipped bit is found and never trained on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::files::Staged;
use crate::model::weights::{NumberFormat, TensorData, stage_tensors};

use super::identity;

/// The header entry of the checksums.
const CHECKSUMS: &str = "checksums";

/// The CRC-32 of parts of a file or of files, by name, in hexadecimal digits.
pub(super) type Checksums = BTreeMap<String, String>;

/// Returns a checksum as it is stored.
pub(super) fn hexadecimal(checksum: u32) -> String {
    format!("{checksum:08x}")
}

/// Returns the first value that is not finite, with its index.
pub(super) fn not_finite(values: &[f32]) -> Option<(usize, f32)> {
    let at = values.iter().position(|value| !value.is_finite())?;
    Some((at, values[at]))
}

/// Writes buffers and header entries to a temporary file for `path`, with the checksums of all.
pub(super) fn stage(
    path: &Path,
    buffers: &[(&str, &[f32])],
    mut entries: Vec<(&'static str, String)>,
) -> Result<Staged> {
    let of_entries = entries.iter().map(|(name, text)| (*name, crc32fast::hash(text.as_bytes())));
    let of_buffers = buffers.iter().map(|(name, values)| (*name, identity::checksum(values)));
    let sums = of_entries.chain(of_buffers).map(|(name, sum)| (name.to_owned(), hexadecimal(sum)));
    let sums: Checksums = sums.collect();
    // It has only strings, which always serialise.
    entries.push((CHECKSUMS, serde_json::to_string(&sums).expect("plain data")));
    let tensors = buffers.iter().map(|(name, values)| {
        let numbers = TensorData::new(NumberFormat::F32, vec![values.len()], values);
        ((*name).to_owned(), numbers)
    });
    stage_tensors(path, tensors.collect(), &entries)
}

/// Such a file in memory.
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

    /// Returns the text of a header entry.
    fn entry(&self, name: &str) -> Result<String> {
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).map_err(|e| self.damaged(e))?;
        let entry = metadata.metadata().as_ref().and_then(|entries| entries.get(name)).cloned();
        entry.ok_or_else(|| self.damaged(format!("its header has no entry {name:?}")))
    }

    /// Returns an error if the checksum of a part is not the stored one.
    fn check(&self, name: &str, found: u32) -> Result<()> {
        let sums: Checksums =
            serde_json::from_str(&self.entry(CHECKSUMS)?).map_err(|e| self.damaged(e))?;
        match sums.get(name) {
            Some(sum) if *sum == hexadecimal(found) => Ok(()),
            Some(sum) => {
                let found = hexadecimal(found);
                Err(self.damaged(format!("the checksum of the {name} is {found}, not {sum}")))
            }
            None => Err(self.damaged(format!("there is no checksum of the {name}"))),
        }
    }

    /// Returns a header entry.
    pub fn header<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let entry = self.entry(name)?;
        self.check(name, crc32fast::hash(entry.as_bytes()))?;
        serde_json::from_str(&entry).map_err(|e| self.damaged(e))
    }

    /// Returns a buffer.
    pub fn buffer(&self, name: &str) -> Result<Vec<f32>> {
        let file = SafeTensors::deserialize(&self.bytes).map_err(|e| self.damaged(e))?;
        let tensor = file.tensor(name).map_err(|e| self.damaged(e))?;
        if tensor.dtype() != Dtype::F32 {
            let found = tensor.dtype();
            return Err(self.damaged(format!("{name} is {found:?}, but F32 is expected")));
        }
        let (values, _) = tensor.data().as_chunks::<4>();
        let values: Vec<f32> = values.iter().map(|v| f32::from_le_bytes(*v)).collect();
        if let Some((at, value)) = not_finite(&values) {
            return Err(self.damaged(format!("value {at} of the {name} is {value}")));
        }
        self.check(name, crc32fast::hash(tensor.data()))?;
        Ok(values)
    }
}
