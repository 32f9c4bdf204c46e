//! Unpacking of archives. Members are extracted only by their complete names, and the caller decides
//! where to: no name in an archive is ever used as a path.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

use flate2::bufread::GzDecoder;

use crate::error::{Error, Result};

/// The kind of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Archive {
    /// A ZIP archive.
    Zip,
    /// A tar archive compressed by gzip.
    TarGz,
}

/// Passes the index and the content of each of `members` to `take`, in the order of the archive. Fails
/// if one is missing or no plain file.
pub fn unpack(path: &Path, kind: Archive, members: &[&str], take: &mut Take<'_>) -> Result<()> {
    let file = BufReader::new(File::open(path).map_err(|e| Error::io(path, e))?);
    match kind {
        Archive::Zip => zip(path, file, members, take),
        Archive::TarGz => tar_gz(path, file, members, take),
    }
}

/// Receives the index and the content of a member.
type Take<'a> = dyn FnMut(usize, &mut dyn Read) -> Result<()> + 'a;

fn damaged(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::file(path, format!("is damaged or of another kind: {error}"))
}

fn not_plain(path: &Path, member: &str) -> Error {
    Error::file(path, format!("{member} is no plain file in it"))
}

fn zip(
    path: &Path,
    file: impl BufRead + Seek,
    members: &[&str],
    take: &mut Take<'_>,
) -> Result<()> {
    let mut archive = zip::ZipArchive::new(file).map_err(|e| damaged(path, e))?;
    for (index, member) in members.iter().enumerate() {
        let mut entry = match archive.by_name(member) {
            Ok(entry) => entry,
            Err(zip::result::ZipError::FileNotFound) => return Err(missing(path, member)),
            Err(error) => return Err(damaged(path, error)),
        };
        if !entry.is_file() {
            return Err(not_plain(path, member));
        }
        take(index, &mut entry)?;
    }
    Ok(())
}

fn tar_gz(path: &Path, file: impl BufRead, members: &[&str], take: &mut Take<'_>) -> Result<()> {
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let mut lacking: Vec<usize> = (0..members.len()).collect();
    for entry in archive.entries().map_err(|e| damaged(path, e))? {
        let mut entry = entry.map_err(|e| damaged(path, e))?;
        let name = entry.path_bytes().into_owned();
        let Some(at) = lacking.iter().position(|&i| members[i].as_bytes() == name) else {
            continue;
        };
        let index = lacking.remove(at);
        if !entry.header().entry_type().is_file() {
            return Err(not_plain(path, members[index]));
        }
        take(index, &mut entry)?;
        if lacking.is_empty() {
            break;
        }
    }
    match lacking.first() {
        Some(&index) => Err(missing(path, members[index])),
        None => Ok(()),
    }
}

fn missing(path: &Path, member: &str) -> Error {
    Error::file(path, format!("{member} is not in the archive"))
}
