//! A safetensors file of vectors, which is written while they are computed. Without pooling, memory holds four
//! bytes for each token; with it, nothing.

use std::collections::HashMap;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::error::{Error, Result};
use crate::files::{Output, Staged};

/// Bytes before the tensors: the header's length in 8 bytes, and the header, filled up with spaces. It is written
/// last, because it contains the number of rows.
const HEAD: usize = 16 << 10;

/// A file of vectors that is being written: tensor `vectors`, (texts, width) of f32. With a vector for each token
/// it is (tokens, width), and there are also `cu_seqlens`, (texts + 1), and `ids`, (tokens), of i32: the rows of
/// text `i` are those from `cu_seqlens[i]` to `cu_seqlens[i + 1]`.
pub struct Vectors {
    file: BufWriter<Output>,
    staged: Staged,
    path: PathBuf,
    width: usize,
    rows: usize,
    tokens: Option<Tokens>,
    entries: HashMap<String, String>,
}

struct Tokens {
    ends: Vec<u32>,
    ids: Vec<u32>,
}

impl Vectors {
    /// Begins a file, which appears at `path` when it is finished. `entries` go into its header.
    pub fn create(
        path: &Path,
        width: usize,
        tokens: bool,
        entries: &[(&str, String)],
    ) -> Result<Self> {
        let failed = |e| Error::io(path, e);
        let staged = Staged::begin(path)?;
        let mut file = BufWriter::new(staged.file().try_clone().map_err(failed)?);
        file.write_all(&[b' '; HEAD]).map_err(failed)?;
        let mut all = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        all.extend(entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Ok(Self {
            file,
            staged,
            path: path.to_path_buf(),
            width,
            rows: 0,
            tokens: tokens.then(|| Tokens { ends: vec![0], ids: Vec::new() }),
            entries: all,
        })
    }

    /// Adds a text: its vector, or the vectors of its tokens one after the other.
    ///
    /// # Errors
    /// If the file cannot be written, or has more tokens than an i32 can count.
    pub fn write(&mut self, vectors: &[f32], ids: &[u32]) -> Result<()> {
        self.rows += vectors.len() / self.width;
        if let Some(tokens) = &mut self.tokens {
            if self.rows > i32::MAX as usize {
                return Err(Error::file(&self.path, "would hold more than 2^31 tokens"));
            }
            tokens.ids.extend(ids);
            tokens.ends.push(self.rows as u32);
        }
        let bytes: Vec<u8> = vectors.iter().flat_map(|x| x.to_le_bytes()).collect();
        let written = self.file.write_all(&bytes);
        written.map_err(|e| Error::io(&self.path, e))
    }

    /// Writes the header and moves the file to its place.
    pub fn finish(mut self) -> Result<()> {
        let mut tensors = vec![("vectors", Dtype::F32, vec![self.rows, self.width])];
        let mut rest = Vec::new();
        if let Some(Tokens { ends, ids }) = self.tokens.take() {
            tensors.push(("cu_seqlens", Dtype::I32, vec![ends.len()]));
            tensors.push(("ids", Dtype::I32, vec![ids.len()]));
            rest = [ends, ids].concat();
        }
        let mut end = 0;
        let tensors = tensors.into_iter().map(|(name, dtype, shape)| {
            let start = end;
            end += 4 * shape.iter().product::<usize>();
            let data_offsets = (start, end);
            let info = TensorInfo { dtype, shape, data_offsets };
            (name.to_owned(), info)
        });
        let head = head(Metadata::new(Some(self.entries), tensors.collect()), &self.path)?;
        let failed = |e| Error::io(&self.path, e);
        let mut put = || -> std::io::Result<()> {
            for value in &rest {
                self.file.write_all(&value.to_le_bytes())?;
            }
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&head)?;
            self.file.flush()
        };
        put().map_err(failed)?;
        Staged::place(vec![self.staged])
    }
}

/// Returns the first bytes of the file.
fn head(
    metadata: std::result::Result<Metadata, safetensors::SafeTensorError>,
    path: &Path,
) -> Result<Vec<u8>> {
    let failed =
        |e: &dyn std::fmt::Display| Error::file(path, format!("cannot write the header: {e}"));
    let metadata = metadata.map_err(|e| failed(&e))?;
    let mut text = serde_json::to_vec(&metadata).map_err(|e| failed(&e))?;
    if text.len() > HEAD - 8 {
        return Err(failed(&format!("it has {} bytes, which are too many", text.len())));
    }
    text.resize(HEAD - 8, b' ');
    let mut head = ((HEAD - 8) as u64).to_le_bytes().to_vec();
    head.extend(text);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    fn numbers(bytes: &[u8]) -> Vec<i32> {
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| i32::from_le_bytes(*word)).collect()
    }

    #[test]
    fn a_file_that_is_written_piece_by_piece_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.safetensors");
        let entries = [("layers", "-4..-1".to_owned())];
        let mut file = Vectors::create(&path, 2, true, &entries).unwrap();
        file.write(&[1.0, 2.0, 3.0, 4.0], &[7, 8]).unwrap();
        file.write(&[5.0, 6.0], &[9]).unwrap();
        assert!(!path.exists(), "the file is not complete yet");
        file.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        let vectors = read.tensor("vectors").unwrap();
        assert_eq!(vectors.shape(), [3, 2]);
        assert_eq!(numbers(read.tensor("ids").unwrap().data()), [7, 8, 9]);
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(metadata.metadata().as_ref().unwrap()["layers"], "-4..-1");

        let mut pooled = Vectors::create(&path, 2, false, &[]).unwrap();
        pooled.write(&[1.0, 2.0], &[7, 8]).unwrap();
        pooled.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read.tensor("vectors").unwrap().shape(), [1, 2]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
