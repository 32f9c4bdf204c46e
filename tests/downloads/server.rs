//! A small HTTP server that misbehaves on request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::cloze;

/// What a client asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// As long as its Content-Length says.
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the first byte of the requested range, and the last one if it is given.
    pub fn range(&self) -> Option<(usize, Option<usize>)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()))
    }
}

/// The answer to a client.
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The connection is closed after this many bytes of the body.
    pub cut: Option<usize>,
    /// This many bytes follow the body again and again, with such pauses, until the client closes the connection.
    pub more: Option<(usize, Duration)>,
}

impl Response {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None, more: None }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }

    /// Continues endlessly after the body, and announces no length.
    pub fn endless(mut self, bytes: usize, pause: Duration) -> Self {
        self.more = Some((bytes, pause));
        self
    }

    /// Returns the requested range of `whole`.
    pub fn ranged(request: &Request, whole: &[u8]) -> Self {
        let total = whole.len();
        match request.range() {
            None => Self::new(200, whole),
            Some((first, _)) if first >= total => {
                Self::new(416, "").with("Content-Range", &format!("bytes */{total}"))
            }
            Some((first, last)) => {
                let last = last.unwrap_or(total - 1).min(total - 1);
                let range = format!("bytes {first}-{last}/{total}");
                Self::new(206, &whole[first..=last]).with("Content-Range", &range)
            }
        }
    }
}

/// A server on a free port of this machine that runs until the tests end.
pub struct Server {
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server that answers every request by `answer`.
    pub fn start(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Self { address, requests }
    }

    /// Returns `cloze` with the environment in which this server is the Hub, and with its cache below `home`.
    pub fn as_hub(&self, home: &Path) -> Command {
        let mut command = cloze();
        for name in [
            "HF_HUB_CACHE",
            "HF_TOKEN",
            "HF_TOKEN_PATH",
            "HF_HUB_OFFLINE",
            "http_proxy",
            "HTTP_PROXY",
            "all_proxy",
            "ALL_PROXY",
        ] {
            command.env_remove(name);
        }
        command.env("HF_ENDPOINT", &self.address).env("HF_HOME", home);
        command
    }

    /// Returns the requests since the last call.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// Answers one request. The client may close the connection early.
fn serve(stream: TcpStream, seen: &Mutex<Vec<Request>>, answer: &dyn Fn(&Request) -> Response) {
    let mut reader = BufReader::new(&stream);
    let mut lines = reader.by_ref().lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next(), words.next());
    let (method, path) = (method.unwrap_or_default(), path.unwrap_or_default());
    let headers = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let head = method == "HEAD";
    let mut request = Request { method, path, headers, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let _ = reader.take(length).read_to_end(&mut request.body);
    seen.lock().unwrap().push(request.clone());
    let response = answer(&request);
    let mut top = format!("HTTP/1.1 {} Status\r\nConnection: close\r\n", response.status);
    let has_length = response.headers.iter().any(|(name, _)| name == "Content-Length");
    if !has_length && response.more.is_none() {
        top += &format!("Content-Length: {}\r\n", response.body.len());
    }
    for (name, value) in &response.headers {
        top += &format!("{name}: {value}\r\n");
    }
    let mut stream = &stream;
    let _ = stream.write_all((top + "\r\n").as_bytes());
    if head {
        return;
    }
    let body = &response.body[..response.cut.unwrap_or(response.body.len())];
    let _ = stream.write_all(body);
    if let Some((bytes, pause)) = response.more {
        while stream.write_all(&vec![b'x'; bytes]).is_ok() {
            std::thread::sleep(pause);
        }
    }
}
