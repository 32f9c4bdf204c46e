//! Writes safetensors files tensor by tensor, so that a checkpoint needs no second copy of the
//! model in memory.

use std::borrow::Cow;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::{Map, Value};

use crate::bytes::bytes_of;
use crate::error::{Error, Result};
use crate::files::{Staged, stage};

use super::NumberFormat;

/// A tensor to be written: converted to bytes only when it is written.
pub struct TensorData<'a> {
    format: NumberFormat,
    shape: Vec<usize>,
    values: &'a [f32],
}

impl<'a> TensorData<'a> {
    /// Describes `values` of this shape, to be stored in a format that can represent each of them.
    pub fn new(format: NumberFormat, shape: Vec<usize>, values: &'a [f32]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        Self { format, shape, values }
    }

    fn dtype(&self) -> Dtype {
        self.format.dtype()
    }

    /// Returns the tensor's bytes in the file.
    fn data(&self) -> Cow<'_, [u8]> {
        if self.format == NumberFormat::F32 && cfg!(target_endian = "little") {
            return Cow::Borrowed(bytes_of(self.values));
        }
        Cow::Owned(self.format.bytes(self.values))
    }

    fn data_len(&self) -> usize {
        self.values.len() * self.format.size()
    }
}

/// The longest header that readers of the format accept, in bytes.
const MAX_HEADER: usize = 100_000_000;

/// Writes named tensors with header entries to a temporary file for `path`: [`Staged::place`] renames it into place.
///
/// The bytes are those of the safetensors crate, whose own function renames the file without
/// syncing it to disk.
pub fn stage_tensors(
    path: &Path,
    mut tensors: Vec<(String, TensorData<'_>)>,
    entries: &[(&str, String)],
) -> Result<Staged> {
    // Widest types first, so that all tensors are aligned.
    tensors.sort_by(|(a, left), (b, right)| right.dtype().cmp(&left.dtype()).then(a.cmp(b)));
    let refused = |e: &dyn std::fmt::Display| Error::file(path, e.to_string());
    // In the given order: the crate's own map would change the order from run to run.
    let entry = |(name, value): &(&str, String)| ((*name).to_owned(), value.as_str().into());
    let entries: Map<String, Value> = entries.iter().map(entry).collect();
    let mut header = Map::from_iter([("__metadata__".to_owned(), entries.into())]);
    let mut end = 0;
    for (name, numbers) in &tensors {
        let start = end;
        end += numbers.data_len();
        let info = TensorInfo {
            dtype: numbers.dtype(),
            shape: numbers.shape.clone(),
            data_offsets: (start, end),
        };
        let info = serde_json::to_value(info).map_err(|e| refused(&e))?;
        header.insert(name.clone(), info);
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() > MAX_HEADER {
        return Err(refused(&format!(
            "its header has {} bytes, but safetensors allows {MAX_HEADER}",
            header.len()
        )));
    }
    stage(path, |file| {
        let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::io(path, e));
        put(&(header.len() as u64).to_le_bytes())?;
        put(&header)?;
        tensors.iter().try_for_each(|(_, numbers)| put(&numbers.data()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    #[test]
    fn tensors_are_written_in_each_format_with_their_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.safetensors");
        let values = [1.0, -2.5, 0.0, 65_504.0, 3.0, 0.125];
        let formats = [
            ("whole", NumberFormat::F32, 4),
            ("half", NumberFormat::F16, 2),
            ("short", NumberFormat::Bf16, 2),
        ];
        let tensors = formats.map(|(name, format, _)| {
            let shape = vec![2, 3];
            (name.to_owned(), TensorData::new(format, shape, &values))
        });
        let entries = [("format", "pt".to_owned())];
        Staged::place(vec![stage_tensors(&path, tensors.into(), &entries).unwrap()]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        for (name, format, size) in formats {
            let tensor = file.tensor(name).unwrap();
            let expected = (&[2, 3][..], format.dtype());
            assert_eq!((tensor.shape(), tensor.dtype()), expected);
            assert_eq!(tensor.data().len(), 6 * size);
        }
        let (words, _) = file.tensor("whole").unwrap().data().as_chunks::<4>();
        let read: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        assert_eq!(read, values);
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
        let entries = header.metadata().clone();
        let expected = safetensors::serialize(file.tensors(), entries).unwrap();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_header_over_the_format_s_limit_is_an_error_and_writes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.safetensors");
        let entries = [("state", "x".repeat(100_000_001))];
        let message = stage_tensors(&path, Vec::new(), &entries).err().unwrap();
        assert!(message.to_string().contains("t.safetensors"), "{message}");
        assert!(!path.exists());
    }
}
