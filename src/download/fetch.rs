//! Downloads one file into a folder: resumes interrupted transfers, checks the file, and puts it in place
//! completely or not at all.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::{HeaderMap, Method};

use crate::error::{Error, Result};
use crate::files::{Output, remove_if_there, rename};
use crate::note;

use super::bar::TransferBar;
use super::http::{LEAST, STALL, Steady, ask, number, send};
use super::{Digest, describe, of_file};

/// Bytes after which those that came are forced to the disk.
const SYNC_EVERY: u64 = 64 << 20;
/// Attempts in a row without progress after which a transfer is given up.
const FRUITLESS: u64 = 3;

/// A file to download.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// An address with `http://` or `https://`, or a local path.
    pub from: &'a str,
    /// The token for the server of that address; no other server receives it.
    pub token: Option<&'a str>,
    /// The path of the file. Until it is complete, it lies beside this path as `NAME.part`.
    pub to: &'a Path,
    /// Its size in bytes, if known, and the source of that knowledge: "are published".
    pub size: Option<(u64, &'a str)>,
    /// Its checksum and the checksum's source; without one, any content is accepted.
    pub digest: Option<(Digest<'a>, &'a str)>,
    /// The end of the message if the server has no such file.
    pub advice: &'a str,
    /// Limits of the transfer.
    pub limits: Limits,
}

/// Limits of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a transfer may stall before it is aborted.
    pub stall: Duration,
    /// Largest accepted size of a file whose size is neither known nor announced, in bytes.
    pub unannounced: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stall: STALL,
            // Twenty times the largest file of the catalogue whose size nobody published.
            unannounced: 4 << 30,
        }
    }
}

/// Why a transfer failed.
enum Broken {
    /// A further attempt may succeed.
    Passing(String),
    /// No attempt can succeed.
    Final(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Downloads the file unless it is already there with the right size and checksum. Returns its checksum,
/// of the kind given in `wanted`, or its SHA-256.
pub fn fetch(wanted: &Wanted) -> Result<String> {
    if let Ok(there) = wanted.to.metadata()
        && wanted.size.is_none_or(|(size, _)| size == there.len())
    {
        let found = checksum(wanted, wanted.to)?;
        if wanted.digest.is_none_or(|(known, _)| known.hex() == found) {
            return Ok(found);
        }
    }
    let part = Part::beside(wanted.to);
    // Repeating what had been downloaded before is no progress.
    let (mut best, mut fruitless) = (part.length(), 0);
    loop {
        let done = transfer(wanted, &part).and_then(|resumed| check(wanted, &part, resumed));
        let why = match done {
            Ok(found) => return Ok(found),
            Err(Broken::Final(error)) => return Err(error),
            Err(Broken::Passing(why)) => why,
        };
        fruitless = if part.length() >= best + LEAST { 0 } else { fruitless + 1 };
        best = best.max(part.length());
        if fruitless == FRUITLESS {
            if part.length() == 0 {
                part.remove()?;
            }
            return Err(Error::Failed(format!("{}: {why}", wanted.from)));
        }
        note!("{}: {why}; trying again", wanted.from);
        std::thread::sleep(Duration::from_millis(200 * (1 + fruitless)));
    }
}

/// An incomplete file.
struct Part {
    path: PathBuf,
    /// Holds three lines: the server's name of the file's version (see [`version`]), how many bytes are on the disk for
    /// certain, and the CRC-32 of these two, because a crash may leave half of them.
    note: PathBuf,
}

impl Part {
    fn beside(path: &Path) -> Self {
        let named = |end: &str| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(end);
            path.with_file_name(name)
        };
        Self { path: named(".part"), note: named(".part.version") }
    }

    fn length(&self) -> u64 {
        self.path.metadata().map_or(0, |file| file.len())
    }

    /// Returns the version of the part, and how many of its bytes are on the disk for certain.
    fn noted(&self) -> Option<(String, u64)> {
        let text = std::fs::read_to_string(&self.note).ok()?;
        let (noted, sum) = text.rsplit_once('\n')?;
        let (version, synced) = noted.rsplit_once('\n')?;
        let is_whole = format!("{:08x}", crc32fast::hash(noted.as_bytes())) == sum;
        Some((version.to_owned(), synced.parse().ok()?)).filter(|_| is_whole)
    }

    /// Forces the bytes that came to the disk and notes their number.
    fn sync(&self, file: &Output, version: Option<&str>, bytes: u64) -> Result<()> {
        file.sync().map_err(|e| Error::io(&self.path, e))?;
        let Some(version) = version else {
            return Ok(());
        };
        let noted = format!("{version}\n{bytes}");
        let sum = crc32fast::hash(noted.as_bytes());
        let write = || {
            let mut note = Output::open(&self.note)?;
            note.set_len(0)?;
            note.write_all(format!("{noted}\n{sum:08x}").as_bytes())
        };
        write().map_err(|e| Error::io(&self.note, e))
    }

    /// Cuts off what follows the first `bytes` ones.
    fn cut(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return self.remove();
        }
        if self.length() <= bytes {
            return Ok(());
        }
        let cut = Output::open(&self.path).and_then(|file| file.set_len(bytes));
        cut.map_err(|e| Error::io(&self.path, e))
    }

    /// Removes the part.
    fn remove(&self) -> Result<()> {
        [&self.path, &self.note].into_iter().try_for_each(|path| remove_if_there(path))
    }

    /// Opens the part to append to its first `from` bytes.
    fn open(&self, from: u64, version: Option<&str>) -> Result<Output> {
        if from == 0 {
            self.remove()?;
        }
        let file = Output::append(&self.path).map_err(|e| Error::io(&self.path, e))?;
        self.sync(&file, version, from)?;
        Ok(file)
    }
}

/// The answer of a server: the bytes behind the first `from` ones of a file.
struct Coming {
    from: u64,
    total: Option<u64>,
    version: Option<String>,
    body: Box<dyn Read>,
}

/// Downloads the rest of the file; returns whether a part was resumed.
fn transfer(wanted: &Wanted, part: &Part) -> std::result::Result<bool, Broken> {
    let coming = if is_address(wanted.from) {
        request(wanted, part)?
    } else {
        let path = Path::new(wanted.from);
        let open = || Ok((File::open(path)?, path.metadata()?.len()));
        let (file, length) = open().map_err(|e| Error::io(path, e))?;
        Coming { from: 0, total: Some(length), version: None, body: Box::new(file) }
    };
    if let (Some(total), Some((size, known))) = (coming.total, wanted.size)
        && total != size
    {
        let message = format!("{} has {total} bytes, but {size} {known}", wanted.from);
        return Err(Error::Failed(message).into());
    }
    let size = coming.total.or(wanted.size.map(|(size, _)| size));
    let most = size.unwrap_or(wanted.limits.unannounced);
    let name = wanted.from.rsplit('/').next().unwrap_or(wanted.from);
    let mut bar = TransferBar::new(name, size);
    let mut file = part.open(coming.from, coming.version.as_deref())?;
    let (mut body, mut there, mut synced) = (coming.body, coming.from, coming.from);
    let version = coming.version.as_deref();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) if n as u64 > most.saturating_sub(there) => {
                part.remove()?;
                let what = match size {
                    Some(_) => "its size",
                    None => "the most that is taken of a file of unknown size",
                };
                let message = format!(
                    "{} brought more than {most} bytes, {what}: it was thrown away",
                    wanted.from
                );
                return Err(Error::Failed(message).into());
            }
            Ok(n) => {
                if let Err(e) = file.write_all(&buffer[..n]) {
                    // On a full disk this may fail too: then the download begins anew.
                    let _ = part.sync(&file, version, part.length());
                    return Err(Error::io(&part.path, e).into());
                }
                there += n as u64;
                bar.at(there);
                if there - synced >= SYNC_EVERY {
                    part.sync(&file, version, there)?;
                    synced = there;
                }
            }
            Err(error) => {
                part.sync(&file, version, there)?;
                let why = format!("broke off at byte {there} ({error})");
                return Err(Broken::Passing(why));
            }
        }
    }
    part.sync(&file, version, there)?;
    if let Some(total) = size.filter(|&size| size != there) {
        let why = format!("broke off at byte {there} of {total}");
        return Err(Broken::Passing(why));
    }
    bar.done();
    Ok(coming.from > 0)
}

/// Checks the complete part against the known checksum and moves it into place.
fn check(wanted: &Wanted, part: &Part, resumed: bool) -> std::result::Result<String, Broken> {
    let found = checksum(wanted, &part.path)?;
    if let Some((known, who)) = wanted.digest
        && known.hex() != found
    {
        part.remove()?;
        if resumed {
            let why = "the parts of the download don't belong together".into();
            return Err(Broken::Passing(why));
        }
        let message = format!(
            "{} came with checksum {found}, but {} is {who}: it was thrown away",
            wanted.from,
            known.hex()
        );
        return Err(Error::Failed(message).into());
    }
    rename(&part.path, wanted.to)?;
    part.remove()?;
    Ok(found)
}

/// Computes the kind of checksum that is known for the wanted file, else the SHA-256.
fn checksum(wanted: &Wanted, path: &Path) -> Result<String> {
    match wanted.digest {
        Some((known, _)) => known.of(path),
        None => of_file(path),
    }
}

/// Returns whether a source is an address and not a path.
pub fn is_address(from: &str) -> bool {
    from.starts_with("http://") || from.starts_with("https://")
}

/// Requests the file, or the rest of it.
fn request(wanted: &Wanted, part: &Part) -> std::result::Result<Coming, Broken> {
    let noted = part.noted();
    if wanted.digest.is_none() {
        // No checksum would show that parts don't belong together, or that a power cut left holes in one.
        part.cut(noted.as_ref().map_or(0, |(_, synced)| *synced))?;
    }
    let version_before = noted.map(|(version, _)| version);
    let there = part.length();
    let mut get = ask(Method::GET, wanted.from, wanted.token);
    if there > 0 {
        get = get.header("Range", format!("bytes={there}-"));
        // Servers compare only strong ETags (RFC 9110, section 13.1.5).
        if let Some(version) = version_before.as_deref().filter(|v| !v.starts_with("W/")) {
            get = get.header("If-Range", version);
        }
    }
    let response = match send(get, |_| false) {
        Ok(response) => response,
        Err(ureq::Error::StatusCode(416)) => {
            part.remove()?;
            let why = "the file is shorter than the downloaded part";
            return Err(Broken::Passing(why.into()));
        }
        Err(ureq::Error::StatusCode(code @ 400..500)) => {
            let message =
                format!("{}: the server answered with status {code}{}", wanted.from, wanted.advice);
            return Err(Error::Failed(message).into());
        }
        Err(error @ ureq::Error::RequireHttpsOnly(_)) => {
            let message = format!("{}: {}", wanted.from, describe(&error));
            return Err(Error::Failed(message).into());
        }
        Err(error) => return Err(Broken::Passing(describe(&error))),
    };
    let headers = response.headers();
    let version = version(headers);
    let length = number(headers, "content-length");
    let (from, total) = match (response.status().as_u16(), range(headers)) {
        (206, Some((first, total))) if first == there && unchanged(&version_before, &version) => {
            (there, total)
        }
        (206, _) => {
            part.remove()?;
            let why = "the file has changed since a part of it was downloaded";
            return Err(Broken::Passing(why.into()));
        }
        _ => (0, length),
    };
    let body = Steady::new(response.into_body(), wanted.limits.stall)
        .map_err(|e| Broken::Passing(e.to_string()))?;
    Ok(Coming { from, total, version, body: Box::new(body) })
}

/// Returns what identifies a file's version: its ETag, or else its time of modification.
fn version(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    text("etag").or_else(|| text("last-modified"))
}

fn unchanged(before: &Option<String>, now: &Option<String>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before == now,
        _ => true,
    }
}

/// Parses the first byte and the total of `Content-Range: bytes FIRST-LAST/TOTAL`.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get("content-range")?.to_str().ok()?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}
