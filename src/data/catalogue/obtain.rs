//! Getting a data set: downloaded, checked, unpacked, and known again.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::download::{Digest, Limits, Wanted, fetch, is_address, of_file, unpack};
use crate::error::{Error, Result};
use crate::files::{create_folder, write_atomic, write_atomic_with};
use crate::note;

use super::{Form, Holds, Member, Set, Source, corpora};

/// The checksums of what came, in the format of `sha256sum`.
const SUMS: &str = "SHA256SUMS";

/// A set that is there.
#[derive(Debug)]
pub struct Obtained {
    pub folder: PathBuf,
    /// Its files with their SHA-256.
    pub files: Vec<(String, String)>,
    /// Whether it came now, and was not there already.
    pub fresh: bool,
}

/// Sees to it that `set` is in its folder below `dir`. `mirror` is an address or a folder to take
/// its files from in place of the official addresses.
pub fn get(set: &Set, dir: &Path, mirror: Option<&str>) -> Result<Obtained> {
    let folder = dir.join(set.folder);
    let mut sums = Sums::read(&folder.join(SUMS))?;
    if let Some(files) = there(set, &folder, &sums)? {
        return Ok(Obtained {
            folder,
            files,
            fresh: false,
        });
    }
    if let (Some(why), None) = (set.closed, mirror) {
        return Err(Error::Failed(format!("{}: {why}", set.name)));
    }
    create_folder(&folder)?;
    for source in set.sources {
        download(source, &folder, mirror, &mut sums)?;
    }
    let mut names = plain_names(set);
    if let Some(assemble) = set.assemble {
        names.extend(assemble(&folder)?);
    }
    let mut files = Vec::new();
    for name in names {
        let sha256 = of_file(&folder.join(name))?;
        sums.set(name, &sha256);
        files.push((name.to_owned(), sha256));
    }
    sums.complete = true;
    sums.write()?;
    Ok(Obtained {
        folder,
        files,
        fresh: true,
    })
}

/// The files that come out of the sources.
fn plain_names(set: &Set) -> Vec<&'static str> {
    let mut names = Vec::new();
    for source in set.sources {
        match source.holds {
            Holds::Itself => names.push(source.name()),
            Holds::Members(_, members) => names.extend(members.iter().map(|m| m.name)),
        }
    }
    names
}

/// The set's files where all are there. Refuses one that was changed since it came.
fn there(set: &Set, folder: &Path, sums: &Sums) -> Result<Option<Vec<(String, String)>>> {
    // An archive is taken away once its files are out.
    let archive = |name: &str| {
        let mut sources = set.sources.iter();
        sources.any(|s| s.name() == name && matches!(s.holds, Holds::Members(..)))
    };
    let (mut files, mut missing) = (Vec::new(), !sums.complete);
    for (name, expected) in sums.known.iter().filter(|(name, _)| !archive(name)) {
        let path = folder.join(name);
        if !path.exists() {
            missing = true;
            continue;
        }
        if of_file(&path)? != *expected {
            let message = format!(
                "was changed since it came ({SUMS} says otherwise): take it away, and it is downloaded again"
            );
            return Err(Error::file(path, message));
        }
        files.push((name.clone(), expected.clone()));
    }
    Ok((!missing).then_some(files))
}

fn download(source: &Source, folder: &Path, mirror: Option<&str>, sums: &mut Sums) -> Result<()> {
    let name = source.name();
    let from = match mirror {
        None => source.address.to_owned(),
        Some(mirror) if is_address(mirror) => format!("{}/{name}", mirror.trim_end_matches('/')),
        Some(mirror) => Path::new(mirror).join(name).display().to_string(),
    };
    let recorded = sums.known.get(name).cloned();
    let known = match (source.sha256, &recorded) {
        (Some(published), _) => Some((published, "published")),
        (None, Some(first)) => Some((
            first.as_str(),
            "what came the first time (take its line out of SHA256SUMS to take the new file)",
        )),
        (None, None) => {
            note!(
                "{name}: no published checksum: the first download's is written to {SUMS} beside it and checked from then on"
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
        advice: "; if the file has moved, --mirror takes another address",
        limits: Limits::default(),
    })?;
    sums.set(name, &found);
    sums.write()?;
    if let Holds::Members(kind, members) = &source.holds {
        let inside: Vec<&str> = members.iter().map(|member| member.inside).collect();
        unpack(&path, *kind, &inside, &mut |index, content| {
            put(&path, folder, &members[index], content)
        })?;
        std::fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
    }
    Ok(())
}

/// Writes a member of an archive into the set's folder.
fn put(archive: &Path, folder: &Path, member: &Member, content: &mut dyn Read) -> Result<()> {
    let path = folder.join(member.name);
    write_atomic_with(&path, |out| {
        // A reader tells of damage, a writer of a full disk: which it was the error says.
        let mut content = Watched {
            inner: content,
            failed: false,
        };
        let done = match member.form {
            Form::Same => std::io::copy(&mut content, out).map(|_| ()),
            Form::WikiText => corpora::wikitext(&mut content, out),
            Form::Books => corpora::books(&mut content, out),
        };
        done.map_err(|error| {
            if content.failed || error.kind() == std::io::ErrorKind::InvalidData {
                Error::file(
                    archive,
                    format!("{} is damaged in it: {error}", member.inside),
                )
            } else {
                Error::io(&path, error)
            }
        })
    })
}

/// A reader that remembers whether it failed.
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

/// Checksums by name, kept in a file that `sha256sum --check --ignore-missing` reads.
struct Sums {
    path: PathBuf,
    known: BTreeMap<String, String>,
    /// Whether all of the set came.
    complete: bool,
}

/// Says that all of the set is there.
const COMPLETE: &str = "# complete";

impl Sums {
    fn read(path: &Path) -> Result<Self> {
        let mut sums = Self {
            path: path.to_path_buf(),
            known: BTreeMap::new(),
            complete: false,
        };
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
        let mut text: String = self
            .known
            .iter()
            .map(|(name, hex)| format!("{hex}  {name}\n"))
            .collect();
        if self.complete {
            text.push_str(COMPLETE);
            text.push('\n');
        }
        write_atomic(&self.path, text.as_bytes())
    }
}
