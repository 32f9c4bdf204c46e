//! Requests with a body, and the transfer of files to a server.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use ureq::SendBody;
use ureq::http::header::CONTENT_LENGTH;
use ureq::http::request::Builder;
use ureq::http::{HeaderMap, StatusCode};

use crate::error::{Error, Result};
use crate::note;

use super::bar::TransferBar;
use super::describe;
use super::http::{STALL, Steady, agent};

/// Attempts after which a transfer is given up.
const ATTEMPTS: u64 = 3;
/// Largest text of an answer that is read, in bytes.
const ANSWER: u64 = 4 << 20;

/// A server's answer to a request with a body, whether it is good or not.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its text; what is not UTF-8 in it is replaced.
    pub text: String,
}

/// Sends a request with `length` bytes of `body`. Redirects are not followed.
pub fn upload(
    request: Builder,
    body: &mut dyn Read,
    length: u64,
) -> std::result::Result<Answer, ureq::Error> {
    // A storage server needs the length in advance.
    let request = request.header(CONTENT_LENGTH, length).body(SendBody::from_reader(body))?;
    let request = agent().configure_request(request).http_status_as_error(false).build();
    let (parts, body) = agent().run(request)?.into_parts();
    let mut text = Vec::new();
    Steady::new(body, STALL)?.take(ANSWER).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Answer { status: parts.status, headers: parts.headers, text })
}

/// Sends a part of a file by the request that `request` makes, again if the server fails at first.
/// Returns the headers of the answer.
///
/// # Errors
/// If the file can't be read, or the server refuses it or fails [`ATTEMPTS`] times.
pub fn upload_part(
    request: impl Fn() -> Builder,
    path: &Path,
    part: Range<u64>,
    bar: &mut TransferBar,
) -> Result<HeaderMap> {
    let mut attempt = 1;
    loop {
        let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
        file.seek(SeekFrom::Start(part.start)).map_err(|e| Error::io(path, e))?;
        let length = part.end - part.start;
        let mut body = Counted { file: file.take(length), at: part.start, bar };
        let why = match upload(request(), &mut body, length) {
            Ok(answer) if answer.status.is_success() => return Ok(answer.headers),
            Ok(answer) => {
                let why = describe(&ureq::Error::StatusCode(answer.status.as_u16()));
                if !answer.status.is_server_error() {
                    return Err(Error::file(path, why));
                }
                why
            }
            Err(error) => describe(&error),
        };
        if attempt == ATTEMPTS {
            return Err(Error::file(path, why));
        }
        note!("{}: {why}; trying again", path.display());
        std::thread::sleep(Duration::from_millis(200 * attempt));
        attempt += 1;
    }
}

/// A part of a file whose progress is shown.
struct Counted<'b> {
    file: io::Take<File>,
    at: u64,
    bar: &'b mut TransferBar,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.at += read as u64;
        self.bar.at(self.at);
        Ok(read)
    }
}
