//! HTTP requests. Redirects never pass a token to another server and never leave https; a response body
//! that stalls is aborted.

use std::io::{self, Cursor, Read};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ureq::http::header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION};
use ureq::http::request::Builder;
use ureq::http::uri::Scheme;
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use ureq::{Agent, Body};

/// A body is aborted if it brings fewer than [`LEAST`] bytes in this time.
pub const STALL: Duration = Duration::from_secs(60);
/// Bytes that a transfer must bring to count as progress.
pub const LEAST: u64 = 1024;
/// Most redirects that are followed in a row.
const REDIRECTS: usize = 10;

static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    Agent::config_builder()
        .user_agent(concat!("cloze/", env!("CARGO_PKG_VERSION")))
        // `send` follows redirects.
        .max_redirects(0)
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        // Ends the thread of an abandoned body.
        .timeout_per_read(Some(2 * STALL))
        .build()
        .into()
});

/// Builds a request to `address`, with the token for its server.
pub fn ask(method: Method, address: &str, token: Option<&str>) -> Builder {
    let request = Request::builder()
        .method(method)
        .uri(address)
        // Uncompressed: a part of a compressed body can't be continued.
        .header(ACCEPT_ENCODING, "identity");
    match token {
        Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    }
}

/// Sends a request and follows redirects, up to one whose headers are `enough`. The token is dropped at
/// the first redirect to another scheme, host or port: ureq itself would keep it for another port.
pub fn send(
    request: Builder,
    enough: impl Fn(&HeaderMap) -> bool,
) -> Result<Response<Body>, ureq::Error> {
    let mut request = request.body(())?;
    for _ in 0..=REDIRECTS {
        let response = AGENT.run(request.clone())?;
        if !response.status().is_redirection() || enough(response.headers()) {
            return Ok(response);
        }
        let location = response.headers().get(LOCATION);
        let location = location.map_or(b"".as_slice(), HeaderValue::as_bytes);
        let next = target(request.uri(), &String::from_utf8_lossy(location))?;
        if origin(&next) != origin(request.uri()) {
            request.headers_mut().remove(AUTHORIZATION);
        }
        *request.uri_mut() = next;
    }
    Err(ureq::Error::TooManyRedirects)
}

/// Resolves the address of a redirect.
fn target(from: &Uri, location: &str) -> Result<Uri, ureq::Error> {
    let scheme = from.scheme_str().unwrap_or_default();
    let host = from.authority().map_or("", |host| host.as_str());
    let folder = from.path().rsplit_once('/');
    let folder = folder.map_or("", |(folder, _)| folder);
    let first = location.split(['/', '?', '#']).next().unwrap_or_default();
    let whole = match location {
        // Rejected below.
        "" => String::new(),
        _ if first.contains(':') => location.to_owned(),
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{host}{location}"),
        _ => format!("{scheme}://{host}{folder}/{location}"),
    };
    match whole.parse::<Uri>() {
        Ok(to) if to.scheme() == Some(&Scheme::HTTPS) => Ok(to),
        Ok(to) if to.scheme() == Some(&Scheme::HTTP) => match from.scheme() == to.scheme() {
            true => Ok(to),
            false => Err(ureq::Error::RequireHttpsOnly(whole)),
        },
        _ => Err(ureq::Error::BadUri(format!("a redirect to {location:?}"))),
    }
}

/// Returns whether two addresses have the same scheme, host and port.
pub fn same_server(one: &str, other: &str) -> bool {
    match (one.parse::<Uri>(), other.parse::<Uri>()) {
        (Ok(one), Ok(other)) => origin(&one) == origin(&other),
        _ => false,
    }
}

/// Returns the agent of all requests, which follows no redirects.
pub(super) fn agent() -> &'static Agent {
    &AGENT
}

/// Returns the scheme, host and port that a token is for.
fn origin(uri: &Uri) -> (Option<&Scheme>, Option<String>, u16) {
    let usual = match uri.scheme() == Some(&Scheme::HTTPS) {
        true => 443,
        false => 80,
    };
    let host = uri.host().map(str::to_ascii_lowercase);
    (uri.scheme(), host, uri.port_u16().unwrap_or(usual))
}

/// Returns the number in a header.
pub fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// A response body that fails if it stalls: if fewer than [`LEAST`] bytes arrive within a given time. A
/// separate thread reads it, because a time limit on single reads misses a server that trickles bytes.
pub struct Steady {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
    stall: Duration,
    since: Instant,
    /// Bytes received since then.
    brought: u64,
}

impl Steady {
    /// Starts reading `body`; `stall` is the time limit.
    pub fn new(body: Body, stall: Duration) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(4);
        let read = move || forward(body.into_reader(), &sender);
        std::thread::Builder::new().spawn(read)?;
        Ok(Self { chunks, chunk: Cursor::default(), stall, since: Instant::now(), brought: 0 })
    }
}

/// Forwards a body in chunks, with an empty one at its end.
fn forward(mut body: impl Read, to: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; 1 << 16];
        let read = body.read(&mut chunk);
        let last = matches!(read, Ok(0) | Err(_));
        let read = read.map(|n| {
            chunk.truncate(n);
            chunk
        });
        if to.send(read).is_err() || last {
            return;
        }
    }
}

impl Read for Steady {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.position() == self.chunk.get_ref().len() as u64 {
            let left = self.stall.saturating_sub(self.since.elapsed());
            let chunk = match self.chunks.recv_timeout(left) {
                Ok(chunk) => chunk?,
                Err(RecvTimeoutError::Timeout) => {
                    let time = self.stall.as_secs_f32();
                    let message = format!("fewer than {LEAST} bytes came in {time} s");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            };
            self.brought += chunk.len() as u64;
            if self.brought >= LEAST {
                (self.since, self.brought) = (Instant::now(), 0);
            }
            self.chunk = Cursor::new(chunk);
        }
        self.chunk.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn redirects_are_resolved_and_never_leave_https() {
        let to = |from: &str, location| target(&uri(from), location).map(|to| to.to_string());
        let from = "https://a.example:8443/x/y?q=1";
        let other = "https://b.example/z?q=http://c/";
        for (location, expected) in [
            (other, other),
            ("//b.example/z", "https://b.example/z"),
            ("/z?q=http://c/", "https://a.example:8443/z?q=http://c/"),
            ("z", "https://a.example:8443/x/z"),
        ] {
            assert_eq!(to(from, location).unwrap(), expected);
        }
        assert_eq!(to("http://a/x", "https://a/x").unwrap(), "https://a/x");
        assert_eq!(to("http://a/x", "http://b/x").unwrap(), "http://b/x");
        for location in ["http://a.example:8443/z", "HTTP://b.example/"] {
            let error = to(from, location).unwrap_err();
            assert!(matches!(error, ureq::Error::RequireHttpsOnly(_)), "{error}");
        }
        for location in ",ftp://b.example/z,file:///etc/passwd,x:y,//,/ /".split(',') {
            let error = to(from, location).unwrap_err();
            let bad = matches!(error, ureq::Error::BadUri(_));
            assert!(bad, "{location}: {error}");
        }
    }

    #[test]
    fn a_token_belongs_to_a_scheme_a_host_and_a_port() {
        let home = uri("https://hub.example/a");
        for same in ["https://HUB.example/b", "https://hub.example:443/"] {
            assert_eq!(origin(&home), origin(&uri(same)), "{same}");
        }
        for other in [
            "http://hub.example/a",
            "https://hub.example:8443/a",
            "https://cdn.hub.example/a",
            "https://hub.example@evil.example/a",
        ] {
            assert_ne!(origin(&home), origin(&uri(other)), "{other}");
        }
    }
}
