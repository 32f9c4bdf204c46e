//! Parts of text files that hold whole documents.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// A file, or a part of it that starts and ends between two documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The file.
    pub path: PathBuf,
    /// Its bytes, packed or not.
    pub bytes: Range<u64>,
    /// Whether the file is one of WikiExtractor, in which a document begins with `<doc`.
    pub wiki: bool,
}

impl Section {
    /// Opens the file at the start of the section; the reader ends with the section, and adds the bytes that
    /// it reads to `count`.
    pub(super) fn open(&self, count: Arc<AtomicU64>) -> Result<impl Read + Send + use<>> {
        let fault = |e| Error::io(&self.path, e);
        let mut file = File::open(&self.path).map_err(fault)?;
        if self.bytes.start > 0 {
            file.seek(SeekFrom::Start(self.bytes.start)).map_err(fault)?;
        }
        Ok(Counted { inner: file.take(self.bytes.end - self.bytes.start), count })
    }

    /// Returns the number of lines before the section.
    pub(super) fn lines_before(&self) -> Result<usize> {
        let before = Self { bytes: 0..self.bytes.start, ..self.clone() };
        let mut reader = BufReader::with_capacity(1 << 16, before.open(Arc::default())?);
        let mut lines = 0;
        loop {
            let bytes = reader.fill_buf().map_err(|e| Error::io(&self.path, e))?;
            if bytes.is_empty() {
                return Ok(lines);
            }
            lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
            let read = bytes.len();
            reader.consume(read);
        }
    }
}

struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.count.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// Returns the CRC-32 of the bytes of sections, one after the other.
pub fn checksum(sections: &[Section]) -> Result<u32> {
    let mut crc = flate2::Crc::new();
    let mut buffer = vec![0; 1 << 18];
    for section in sections {
        let mut reader = section.open(Arc::default())?;
        loop {
            let read = reader.read(&mut buffer).map_err(|e| Error::io(&section.path, e))?;
            if read == 0 {
                break;
            }
            crc.update(&buffer[..read]);
        }
    }
    Ok(crc.sum())
}
