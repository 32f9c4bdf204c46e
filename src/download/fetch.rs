//! One file from a server into a folder: continued where it broke off, checked, and put in place as
//! a whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::{HeaderMap, Method};

use crate::error::{Error, Result};
use crate::files::rename;
use crate::note;

use super::http::{LEAST, STALL, Steady, ask, number, send};
use super::progress::TransferBar;
use super::{Digest, describe, of_file};

/// A transfer is continued as long as it gets on; after so many attempts in a row that did not it is
/// given up.
const FRUITLESS: u64 = 3;

/// One file that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// An address with `http://` or `https://`, or a path on this machine.
    pub from: &'a str,
    /// The token for the server of that address; no other server sees it.
    pub token: Option<&'a str>,
    /// Where it is wanted. Until it is complete it stands beside that as `NAME.part`.
    pub to: &'a Path,
    /// Its number of bytes, where that is known, and how: "are published".
    pub size: Option<(u64, &'a str)>,
    /// Its checksum, and who says so; without, what comes is taken.
    pub digest: Option<(Digest<'a>, &'a str)>,
    /// The end of the message that the server has no such file.
    pub advice: &'a str,
    pub limits: Limits,
}

/// What a server may take of time and disk space.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a transfer may bring next to nothing before it is broken off.
    pub stall: Duration,
    /// Most bytes of a file whose size is neither known nor announced.
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

/// Why a transfer ended before the file was there.
enum Broken {
    /// What a further attempt may mend, in words.
    Passing(String),
    Final(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Fetches the file unless it is there and is the right one. Returns its checksum: of the kind that
/// is known of it, else its SHA-256.
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
    // A file that has to be begun anew gets on only if it gets beyond what was there.
    let (mut best, mut fruitless) = (part.length(), 0);
    loop {
        let why = match transfer(wanted, &part) {
            Ok(resumed) => match check(wanted, &part, resumed) {
                Ok(found) => return Ok(found),
                Err(Broken::Final(error)) => return Err(error),
                Err(Broken::Passing(why)) => why,
            },
            Err(Broken::Final(error)) => return Err(error),
            Err(Broken::Passing(why)) => why,
        };
        fruitless = if part.length() >= best + LEAST {
            0
        } else {
            fruitless + 1
        };
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

/// What is there of an incomplete file.
struct Part {
    path: PathBuf,
    /// What the server calls the version that the part is of: see [`version`].
    version: PathBuf,
}

impl Part {
    fn beside(path: &Path) -> Self {
        let named = |end: &str| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(end);
            path.with_file_name(name)
        };
        Self {
            path: named(".part"),
            version: named(".part.version"),
        }
    }

    fn length(&self) -> u64 {
        self.path.metadata().map_or(0, |file| file.len())
    }

    fn version(&self) -> Option<String> {
        std::fs::read_to_string(&self.version).ok()
    }

    /// Forgets what is there.
    fn remove(&self) -> Result<()> {
        for path in [&self.path, &self.version] {
            if path.exists() {
                std::fs::remove_file(path).map_err(|e| Error::io(path, e))?;
            }
        }
        Ok(())
    }

    /// Opens the part for `from` bytes that are there and more to come.
    fn open(&self, from: u64, version: Option<&str>) -> Result<File> {
        if from == 0 {
            self.remove()?;
        }
        if let Some(version) = version {
            std::fs::write(&self.version, version).map_err(|e| Error::io(&self.version, e))?;
        }
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.path)
            .map_err(|e| Error::io(&self.path, e))
    }
}

/// What comes: how many bytes are there already, how many there will be, and the rest.
struct Coming {
    from: u64,
    total: Option<u64>,
    version: Option<String>,
    body: Box<dyn Read>,
}

/// Brings what is lacking; returns whether a part was continued.
fn transfer(wanted: &Wanted, part: &Part) -> std::result::Result<bool, Broken> {
    let coming = if is_address(wanted.from) {
        request(wanted, part)?
    } else {
        let open = || {
            Ok((
                File::open(wanted.from)?,
                Path::new(wanted.from).metadata()?.len(),
            ))
        };
        let (file, length) = open().map_err(|e| Error::io(wanted.from, e))?;
        Coming {
            from: 0,
            total: Some(length),
            version: None,
            body: Box::new(file),
        }
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
    let (mut body, mut there) = (coming.body, coming.from);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) if n as u64 > most.saturating_sub(there) => {
                part.remove()?;
                let what = match size {
                    Some(_) => "its size",
                    None => "the most that is taken of a file whose size nobody announces",
                };
                let message = format!(
                    "{} brought more than {most} bytes, {what}: it was thrown away",
                    wanted.from
                );
                return Err(Error::Failed(message).into());
            }
            Ok(n) => {
                file.write_all(&buffer[..n])
                    .map_err(|e| Error::io(&part.path, e))?;
                there += n as u64;
                bar.at(there);
            }
            Err(error) => {
                return Err(Broken::Passing(format!(
                    "broke off at byte {there} ({error})"
                )));
            }
        }
    }
    file.sync_all().map_err(|e| Error::io(&part.path, e))?;
    if let Some(total) = size.filter(|&size| size != there) {
        let why = format!("broke off at byte {there} of {total}");
        return Err(Broken::Passing(why));
    }
    bar.done();
    Ok(coming.from > 0)
}

/// Compares the complete part with what is known of the file, and puts it in place.
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

/// Returns the checksum of the kind that is known of the wanted file, else the SHA-256.
fn checksum(wanted: &Wanted, path: &Path) -> Result<String> {
    match wanted.digest {
        Some((known, _)) => known.of(path),
        None => of_file(path),
    }
}

/// Whether a source is an address, and not a path.
pub fn is_address(from: &str) -> bool {
    from.starts_with("http://") || from.starts_with("https://")
}

/// Asks for the file, or for what is lacking of it.
fn request(wanted: &Wanted, part: &Part) -> std::result::Result<Coming, Broken> {
    let version_before = part.version();
    // Without a checksum and without the server's word parts may not belong together.
    if version_before.is_none() && wanted.digest.is_none() {
        part.remove()?;
    }
    let there = part.length();
    let mut get = ask(Method::GET, wanted.from, wanted.token);
    if there > 0 {
        get = get.header("Range", format!("bytes={there}-"));
        // Servers compare strong versions only (RFC 9110, section 13.1.5).
        if let Some(version) = version_before.as_deref().filter(|v| !v.starts_with("W/")) {
            get = get.header("If-Range", version);
        }
    }
    let response = match send(get, |_| false) {
        Ok(response) => response,
        Err(ureq::Error::StatusCode(416)) => {
            part.remove()?;
            return Err(Broken::Passing(
                "the file is not as long as the part here".into(),
            ));
        }
        Err(ureq::Error::StatusCode(code @ 400..500)) => {
            let message = format!(
                "{}: the server answered with status {code}{}",
                wanted.from, wanted.advice
            );
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
            return Err(Broken::Passing(
                "the file has changed since a part of it came".into(),
            ));
        }
        _ => (0, length),
    };
    let body = Steady::new(response.into_body(), wanted.limits.stall)
        .map_err(|e| Broken::Passing(e.to_string()))?;
    Ok(Coming {
        from,
        total,
        version,
        body: Box::new(body),
    })
}

/// What tells one version of a file from another: its ETag, else when it was changed.
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

/// The first byte and the total of `Content-Range: bytes FIRST-LAST/TOTAL`.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get("content-range")?.to_str().ok()?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}
