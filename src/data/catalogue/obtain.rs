//! Obtains a data set: downloads, checks and unpacks its files, unless they are already there.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::download::{Digest, Limits, Wanted, fetch, is_address, of_file, unpack};
use crate::error::{Error, Result};
use crate::files::{create_folder, remove_if_there, write_atomic, write_atomic_with};
use crate::note;

use super::{Form, Set, Source, corpora, mrpc};

/// The file with the checksums of the downloads, in the format of `sha256sum`.
const SUMS: &str = "SHA256SUMS";

/// A data set on the disk.
#[derive(Debug)]
pub struct Obtained {
    /// Its folder.
    pub folder: PathBuf,
    /// Its files with their SHA-256.
    pub files: Vec<(String, String)>,
    /// Whether it has just been downloaded.
    pub fresh: bool,
}

/// Downloads `set` into its folder below `dir`, unless it is there already. `mirror` is an address or a
/// folder with its files, used instead of the official addresses.
pub fn get(set: &Set, dir: &Path, mirror: Option<&str>) -> Result<Obtained> {
    let folder = dir.join(&set.folder);
    let mut sums = Sums::read(&folder.join(SUMS))?;
    if let Some(files) = there(set, &folder, &sums)? {
        let fresh = false;
        return Ok(Obtained { folder, files, fresh });
    }
    if let (Some(why), None) = (&set.closed, mirror) {
        return Err(Error::Failed(format!("{}: {why}", set.name)));
    }
    create_folder(&folder)?;
    for source in &set.sources {
        download(source, &folder, mirror, &mut sums)?;
    }
    let mut names: Vec<&str> = Vec::new();
    for source in &set.sources {
        match source.archive {
            None => names.push(source.name()),
            Some(_) => names.extend(source.members.iter().map(|member| source.name_of(member))),
        }
    }
    if set.name == "mrpc" {
        names.extend(mrpc::assemble(&folder)?);
    }
    let mut files = Vec::new();
    for name in names {
        let sha256 = of_file(&folder.join(name))?;
        sums.set(name, &sha256);
        files.push((name.to_owned(), sha256));
    }
    sums.complete = true;
    sums.write()?;
    let fresh = true;
    Ok(Obtained { folder, files, fresh })
}

/// Returns the set's files if all of them are there; fails if one was changed since its download.
fn there(set: &Set, folder: &Path, sums: &Sums) -> Result<Option<Vec<(String, String)>>> {
    // Archives are deleted after unpacking.
    let archive = |name: &str| {
        let mut sources = set.sources.iter();
        sources.any(|source| source.name() == name && source.archive.is_some())
    };
    let (mut files, mut missing) = (Vec::new(), !sums.complete);
    for (name, expected) in sums.known.iter().filter(|(name, _)| !archive(name)) {
        let path = folder.join(name);
        if !path.exists() {
            missing = true;
            continue;
        }
        if of_file(&path)? != *expected {
            let message =
                format!("was changed since it came (see {SUMS}): delete it to download it again");
            return Err(Error::file(path, message));
        }
        files.push((name.clone(), expected.clone()));
    }
    Ok((!missing).then_some(files))
}

fn download(source: &Source, folder: &Path, mirror: Option<&str>, sums: &mut Sums) -> Result<()> {
    let name = source.name();
    let from = match mirror {
        None => source.address.clone(),
        Some(mirror) if is_address(mirror) => format!("{}/{name}", mirror.trim_end_matches('/')),
        Some(mirror) => Path::new(mirror).join(name).display().to_string(),
    };
    let recorded = sums.known.get(name).cloned();
    let known = match (source.sha256.as_deref(), recorded.as_deref()) {
        (Some(published), _) => Some((published, "published")),
        (None, Some(first)) => Some((
            first,
            "what came the first time (delete its line in SHA256SUMS to accept the new file)",
        )),
        (None, None) => {
            note!(
                "{name}: no published checksum: that of the first download is written to {SUMS} and checked from then on"
            );
            None
        }
    };
    let path = folder.join(name);
    let found = fetch(&Wanted {
        from: &from,
        token: None,
        to: &path,
        size: source.size.map(|size| (size, "are published")),
        digest: known.map(|(sha256, who)| (Digest::Sha256(sha256), who)),
        advice: "; if the file has moved, give the address of a mirror",
        limits: Limits::default(),
    })?;
    sums.set(name, &found);
    sums.write()?;
    if let Some(kind) = source.archive {
        let members: Vec<&str> = source.members.iter().map(String::as_str).collect();
        unpack(&path, kind, &members, &mut |index, content| {
            put(&path, folder, source, members[index], content)
        })?;
        remove_if_there(&path)?;
    }
    Ok(())
}

/// Writes a member of an archive into the set's folder.
fn put(
    archive: &Path,
    folder: &Path,
    source: &Source,
    member: &str,
    content: &mut dyn Read,
) -> Result<()> {
    let path = folder.join(source.name_of(member));
    write_atomic_with(&path, |out| {
        // A failed read means a damaged archive, a failed write a full disk.
        let mut content = Watched { inner: content, failed: false };
        let done = match source.form {
            Form::Same => std::io::copy(&mut content, out).map(|_| ()),
            Form::WikiText => corpora::wikitext(&mut content, out),
            Form::Books => corpora::books(&mut content, out),
        };
        done.map_err(|error| {
            if content.failed || error.kind() == std::io::ErrorKind::InvalidData {
                Error::file(archive, format!("{member} is damaged in it: {error}"))
            } else {
                Error::io(&path, error)
            }
        })
    })
}

/// A reader that records whether it failed.
struct Watched<'a> {
    inner: &'a mut dyn Read,
    failed: bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer);
        self.failed |= read.is_err();
        read
    }
}

/// Checksums by file name, stored in a file that `sha256sum --check --ignore-missing` reads.
struct Sums {
    path: PathBuf,
    known: BTreeMap<String, String>,
    /// Whether the whole set was downloaded.
    complete: bool,
}

/// The line that marks a complete set.
const COMPLETE: &str = "# complete";

impl Sums {
    fn read(path: &Path) -> Result<Self> {
        let mut sums = Self { path: path.to_path_buf(), known: BTreeMap::new(), complete: false };
        if !path.exists() {
            return Ok(sums);
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        for (line, number) in text.lines().zip(1..) {
            if line == COMPLETE {
                sums.complete = true;
                continue;
            }
            let Some((hex, name)) = line.split_once("  ") else {
                let message = "expected a checksum, two blanks and a file's name";
                return Err(Error::line(path, number, message));
            };
            sums.known.insert(name.into(), hex.into());
        }
        Ok(sums)
    }

    fn set(&mut self, name: &str, sha256: &str) {
        self.known.insert(name.into(), sha256.into());
    }

    fn write(&self) -> Result<()> {
        let lines = self.known.iter();
        let mut text: String = lines.map(|(name, hex)| format!("{hex}  {name}\n")).collect();
        if self.complete {
            text.push_str(COMPLETE);
            text.push('\n');
        }
        write_atomic(&self.path, text.as_bytes())
    }
}
