//! Checksums of files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::error::{Error, Result};

/// A published checksum of a file, in lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digest<'a> {
    /// The SHA-256 of its bytes.
    Sha256(&'a str),
    /// Git's blob hash: the SHA-1 of "blob", the file's length and its bytes.
    GitBlob(&'a str),
}

impl Digest<'_> {
    /// Computes the same kind of checksum of the file at `path`.
    pub fn of(self, path: &Path) -> Result<String> {
        match self {
            Self::Sha256(_) => of_file(path),
            Self::GitBlob(_) => {
                let length = path.metadata().map_err(|e| Error::io(path, e))?.len();
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {length}\0").as_bytes());
                digest(path, context)
            }
        }
    }

    /// Returns the hexadecimal digits.
    pub fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }
}

/// Computes the SHA-256 of a file, in lower-case hexadecimal digits.
pub fn of_file(path: &Path) -> Result<String> {
    digest(path, Context::new(&SHA256))
}

fn digest(path: &Path, mut context: Context) -> Result<String> {
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(|e| Error::io(path, e))? {
            0 => break,
            n => context.update(&buffer[..n]),
        }
    }
    let bytes = context.finish();
    Ok(bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2's first example, and what `git hash-object` prints for it.
    #[test]
    fn digests_are_the_published_ones() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_file(file.path()).unwrap(), expected);
        let expected = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";
        assert_eq!(Digest::GitBlob("").of(file.path()).unwrap(), expected);
    }
}
