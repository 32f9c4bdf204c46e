//! One file from a server into a folder: continued where it broke off, checked, and put in place as
//! a whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::HeaderMap;

use crate::error::{Error, Result};
use crate::note;

use super::{FRUITLESS, TransferBar, of_file, told};

/// One file that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// An address with `http://` or `https://`, or a path on this machine.
    pub from: &'a str,
    /// Where it is wanted. Until it is complete it stands beside that as `NAME.part`.
    pub to: &'a Path,
    /// Its number of bytes, where that is known.
    pub size: Option<u64>,
    /// Its SHA-256 in lower-case hexadecimal digits, and who says so; without, what comes is taken.
    pub sha256: Option<(&'a str, &'a str)>,
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

/// Sees to it that the file is there and is the right one; gives its SHA-256.
pub fn fetch(wanted: &Wanted) -> Result<String> {
    if wanted.to.exists() {
        let found = of_file(wanted.to)?;
        if wanted.sha256.is_none_or(|(expected, _)| expected == found) {
            return Ok(found);
        }
    }
    let part = Part::beside(wanted.to);
    // A file that has to be begun anew gets on only where it gets beyond what was there.
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
        fruitless = if part.length() > best {
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

/// Brings what is lacking; tells whether a part was continued.
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
    if let (Some(total), Some(size)) = (coming.total, wanted.size)
        && total != size
    {
        let message = format!(
            "{} has {total} bytes, but {size} are published",
            wanted.from
        );
        return Err(Error::Failed(message).into());
    }
    let name = wanted.to.file_name().unwrap_or_default().to_string_lossy();
    let mut bar = TransferBar::new(&name, coming.total);
    let mut file = part.open(coming.from, coming.version.as_deref())?;
    let (mut body, mut there) = (coming.body, coming.from);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => break,
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
    if let Some(total) = coming.total.filter(|&total| total != there) {
        let why = format!("broke off at byte {there} of {total}");
        return Err(Broken::Passing(why));
    }
    bar.done();
    Ok(coming.from > 0)
}

/// Compares the complete part with what is known of the file, and puts it in place.
fn check(wanted: &Wanted, part: &Part, resumed: bool) -> std::result::Result<String, Broken> {
    let found = of_file(&part.path)?;
    if let Some((expected, who)) = wanted.sha256
        && expected != found
    {
        part.remove()?;
        if resumed {
            let why = "the parts of the download don't belong together".into();
            return Err(Broken::Passing(why));
        }
        let message = format!(
            "{} came with SHA-256 {found}, but {expected} is {who}: it was thrown away",
            wanted.from
        );
        return Err(Error::Failed(message).into());
    }
    std::fs::rename(&part.path, wanted.to).map_err(|e| Error::io(wanted.to, e))?;
    part.remove()?;
    Ok(found)
}

/// Whether a source is an address, and not a path.
pub fn is_address(from: &str) -> bool {
    from.starts_with("http://") || from.starts_with("https://")
}

/// Asks for the file, or for what is lacking of it.
fn request(wanted: &Wanted, part: &Part) -> std::result::Result<Coming, Broken> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .user_agent(concat!("cloze/", env!("CARGO_PKG_VERSION")))
        .https_only(wanted.from.starts_with("https://"))
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .build()
        .into();
    let version_before = part.version();
    // Parts of which neither a checksum nor the server tells whether they belong together don't.
    if version_before.is_none() && wanted.sha256.is_none() {
        part.remove()?;
    }
    let there = part.length();
    // The bytes as they are: a part of something compressed on the way would be of no use.
    let mut get = agent.get(wanted.from).header("Accept-Encoding", "identity");
    if there > 0 {
        get = get.header("Range", format!("bytes={there}-"));
        // Servers compare strong versions only (RFC 9110, section 13.1.5).
        if let Some(version) = version_before.as_deref().filter(|v| !v.starts_with("W/")) {
            get = get.header("If-Range", version);
        }
    }
    let response = match get.call() {
        Ok(response) => response,
        Err(ureq::Error::StatusCode(416)) => {
            part.remove()?;
            return Err(Broken::Passing(
                "the file is not as long as the part here".into(),
            ));
        }
        Err(ureq::Error::StatusCode(code @ 400..500)) => {
            let message = format!(
                "{}: the server answered with status {code}; if the file has moved, --mirror takes another address",
                wanted.from
            );
            return Err(Error::Failed(message).into());
        }
        Err(error) => return Err(Broken::Passing(told(&error))),
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
    Ok(Coming {
        from,
        total,
        version,
        body: Box::new(response.into_body().into_reader()),
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

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The first byte and the total of `Content-Range: bytes FIRST-LAST/TOTAL`.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get("content-range")?.to_str().ok()?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}
