//! Watches over the ranks of a run: each keeps a connection to the first, which notices a rank that failed, died
//! or hangs and ends all others.
//!
//! The messages are lines of JSON. No numbers of the training pass here.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::note;

/// How long the ranks wait for each other at the start.
const START: Duration = Duration::from_secs(60);
/// How often a rank sends a sign of life.
const BEAT: Duration = Duration::from_secs(4);
/// After this time without a sign of life a rank counts as hanging.
const SILENCE: Duration = Duration::from_secs(16);
/// How long the first rank waits for its own error before it reports the same one of another rank, and another
/// rank for the end.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The first message of a rank.
    Hello(Process),
    /// The answer, once all are there.
    Place(Place),
    Alive,
    /// The rank that sends it has failed; from the first rank: all end.
    Failed {
        message: String,
        code: u8,
    },
    /// The rank that sends it has finished.
    Done,
}

/// A process that wants to be a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Process {
    pub rank: usize,
    pub size: usize,
    pub host: String,
    pub process: u32,
    /// The version of Cloze.
    pub version: String,
    /// Distinguishes the ranks of this run from other programs.
    pub key: String,
}

/// The place of a rank among those of its host, and what the first rank hands to all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Number of the rank among those of its host.
    pub rank: usize,
    /// Ranks of this host.
    pub size: usize,
    pub handed: Vec<u8>,
}

impl Process {
    /// Returns this process as `rank` of `size`.
    pub fn this(rank: usize, size: usize, key: String) -> Self {
        Self {
            rank,
            size,
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            key,
        }
    }

    fn name(&self) -> String {
        format!("rank {} (process {} on {})", self.rank, self.process, self.host)
    }

    /// Checks that `other` belongs to the same run.
    fn fits(&self, other: &Self) -> Result<()> {
        let refused = if other.version != self.version {
            format!(
                "{} runs Cloze {}, and rank 0 runs Cloze {}: expected the same version on every host",
                other.name(),
                other.version,
                self.version
            )
        } else if other.size != self.size || other.rank == 0 || other.rank >= self.size {
            let (rank, size) = (other.rank, other.size);
            format!(
                "{} counts as rank {rank} of {size}, and rank 0 counts {} ranks",
                other.name(),
                self.size
            )
        } else {
            return Ok(());
        };
        Err(Error::Usage(refused))
    }
}

/// A rank's connections to the others.
pub(super) struct Control {
    shared: Arc<Shared>,
    pub place: Place,
}

struct Shared {
    this: Process,
    /// The first rank's connections to all others, or another's to the first.
    connections: Mutex<Vec<TcpStream>>,
    /// Whether this rank has finished or failed: what the others do does not matter any more.
    over: AtomicBool,
    /// Is called before the process ends early.
    cleanup: Box<dyn Fn() + Send + Sync>,
}

fn connection_error(e: std::io::Error) -> Error {
    Error::Failed(format!("the connection between the ranks: {e}"))
}

fn send(mut to: &TcpStream, message: &Message) -> std::io::Result<()> {
    // Strings and numbers can always be serialised.
    let mut line = serde_json::to_vec(message).expect("plain data");
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads the next message; None at the end of the connection, or if it is no message.
fn receive(from: &mut BufReader<TcpStream>) -> std::io::Result<Option<Message>> {
    let mut line = String::new();
    Ok(match from.read_line(&mut line)? {
        0 => None,
        _ => serde_json::from_str(&line).ok(),
    })
}

impl Control {
    /// Waits for all other ranks as the first. Hands `handed` to them.
    ///
    /// # Errors
    /// If one does not come within a minute, or does not belong to this run.
    pub fn listen(
        listener: &TcpListener,
        this: Process,
        handed: Vec<u8>,
        cleanup: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut others: Vec<Option<(Process, BufReader<TcpStream>)>> = Vec::new();
        others.resize_with(this.size - 1, || None);
        listener.set_nonblocking(true).map_err(connection_error)?;
        let began = Instant::now();
        while others.iter().any(Option::is_none) {
            if began.elapsed() > START {
                let missing = (1..).zip(&others).filter(|(_, other)| other.is_none());
                let missing: Vec<String> = missing.map(|(rank, _)| rank.to_string()).collect();
                return Err(Error::Failed(format!(
                    "after {} s these ranks have not come: {}",
                    START.as_secs(),
                    missing.join(", ")
                )));
            }
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            stream.set_nonblocking(false).map_err(connection_error)?;
            stream.set_read_timeout(Some(SILENCE)).map_err(connection_error)?;
            let mut reader = BufReader::new(stream);
            // Any program can connect to an open port.
            let Ok(Some(Message::Hello(other))) = receive(&mut reader) else { continue };
            if other.key != this.key {
                continue;
            }
            this.fits(&other)?;
            let rank = other.rank;
            if let Some((first, _)) = &others[rank - 1] {
                let (a, b) = (first.name(), other.name());
                return Err(Error::Usage(format!("two processes have the same rank: {a}, {b}")));
            }
            others[rank - 1] = Some((other, reader));
        }
        let mut hosts = vec![this.host.clone()];
        hosts.extend(others.iter().flatten().map(|(other, _)| other.host.clone()));
        let place = |rank: usize| {
            let same = |part: &[String]| part.iter().filter(|&host| *host == hosts[rank]).count();
            Place { rank: same(&hosts[..rank]), size: same(&hosts), handed: handed.clone() }
        };
        let shared = Shared::new(this, cleanup);
        for (other, reader) in others.into_iter().flatten() {
            send(reader.get_ref(), &Message::Place(place(other.rank))).map_err(connection_error)?;
            shared.keep(reader, move |shared, lost| shared.lost_other(&other, lost))?;
        }
        shared.beat()?;
        Ok(Self { place: place(0), shared })
    }

    /// Connects this rank to the first, at one of these addresses.
    ///
    /// # Errors
    /// If nothing answers within a minute.
    pub fn connect(
        addresses: &[String],
        this: Process,
        cleanup: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        let began = Instant::now();
        let stream = loop {
            let mut streams = addresses.iter().map(TcpStream::connect);
            match streams.find_map(std::result::Result::ok) {
                Some(stream) => break stream,
                None if began.elapsed() < START => std::thread::sleep(Duration::from_millis(50)),
                None => {
                    return Err(Error::Failed(format!(
                        "rank {} can't reach rank 0 at {}",
                        this.rank,
                        addresses.join(" or ")
                    )));
                }
            }
        };
        stream.set_read_timeout(Some(START + SILENCE)).map_err(connection_error)?;
        send(&stream, &Message::Hello(this.clone())).map_err(connection_error)?;
        let mut reader = BufReader::new(stream);
        let place = match receive(&mut reader) {
            Ok(Some(Message::Place(place))) => place,
            _ => {
                // Rank 0 reports why.
                let rank = this.rank;
                return Err(Error::Failed(format!(
                    "rank 0 does not take rank {rank} into its run"
                )));
            }
        };
        reader.get_ref().set_read_timeout(Some(SILENCE)).map_err(connection_error)?;
        let shared = Shared::new(this, cleanup);
        shared.keep(reader, |shared, lost| shared.lost_first(lost))?;
        shared.beat()?;
        Ok(Self { place, shared })
    }

    /// Reports that this rank has finished.
    pub fn finish(self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.send_all(&Message::Done);
    }

    /// Reports that this rank has failed, and ends all others. The first rank prints the others' errors.
    pub fn fail(self, error: &Error) {
        let first = self.shared.this.rank == 0;
        // Whatever another rank reports from here on follows from this.
        let before = first && self.shared.over.swap(true, Ordering::SeqCst);
        self.shared
            .send_all(&Message::Failed { message: error.to_string(), code: error.exit_code() });
        if before || !first {
            // The end comes from another thread.
            std::thread::sleep(3 * GRACE);
        }
    }
}

/// Why a connection brings no more messages.
enum Lost {
    Failed { message: String, code: u8 },
    Silent,
    Ended,
}

impl Shared {
    fn new(this: Process, cleanup: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            this,
            connections: Mutex::new(Vec::new()),
            over: AtomicBool::new(false),
            cleanup: Box::new(cleanup),
        })
    }

    fn send_all(&self, message: &Message) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.iter() {
            // A connection that has ended is reported by the thread that reads it.
            let _ = send(connection, message);
        }
    }

    /// Reads the messages of a connection on another thread, until it ends.
    fn keep(
        self: &Arc<Self>,
        mut reader: BufReader<TcpStream>,
        lost: impl FnOnce(&Self, Lost) + Send + 'static,
    ) -> Result<()> {
        let writer = reader.get_ref().try_clone().map_err(connection_error)?;
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
        let shared = self.clone();
        let watch = move || loop {
            let why = match receive(&mut reader) {
                Ok(Some(Message::Done)) => return,
                Ok(Some(Message::Failed { message, code })) => Lost::Failed { message, code },
                Ok(Some(_)) => continue,
                Ok(None) => Lost::Ended,
                Err(e) => match e.kind() {
                    // By our limit, or by the system's for a machine that answers no more.
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => Lost::Silent,
                    _ => Lost::Ended,
                },
            };
            return lost(&shared, why);
        };
        let thread = std::thread::Builder::new().name("ranks".into()).spawn(watch);
        thread.map(drop).map_err(connection_error)
    }

    /// Sends signs of life from another thread.
    fn beat(self: &Arc<Self>) -> Result<()> {
        let shared = self.clone();
        let beat = move || {
            while !shared.over.load(Ordering::SeqCst) {
                shared.send_all(&Message::Alive);
                std::thread::sleep(BEAT);
            }
        };
        let thread = std::thread::Builder::new().name("signs of life".into()).spawn(beat);
        thread.map(drop).map_err(connection_error)
    }

    /// Ends the run on the first rank, because of another.
    fn lost_other(&self, other: &Process, lost: Lost) {
        let name = other.name();
        let (message, code) = match lost {
            Lost::Failed { message, code } => {
                std::thread::sleep(GRACE);
                (format!("{name}: {message}"), code)
            }
            Lost::Silent => (format!("{name} has not answered for {} s", SILENCE.as_secs()), 1),
            Lost::Ended => {
                (format!("{name} has died; if it was killed, memory may have run out"), 1)
            }
        };
        if !self.over.swap(true, Ordering::SeqCst) {
            note!("error: {message}; all ranks end");
            self.send_all(&Message::Failed { message, code });
            self.exit(code);
        }
    }

    /// Ends this rank, because of the first.
    fn lost_first(&self, lost: Lost) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        match lost {
            // It prints why.
            Lost::Failed { code, .. } => self.exit(code),
            Lost::Silent | Lost::Ended => {
                // Not `note!`, which only the first rank prints.
                let rank = self.this.rank;
                let _ = writeln!(
                    std::io::stderr(),
                    "error: rank {rank}: rank 0 has died or hangs; this rank ends"
                );
                self.exit(1);
            }
        }
    }

    fn exit(&self, code: u8) {
        (self.cleanup)();
        std::process::exit(code.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(rank: usize, host: &str) -> Process {
        Process { host: host.into(), ..Process::this(rank, 4, "key".into()) }
    }

    #[test]
    fn ranks_learn_their_place_on_their_host_and_strangers_are_ignored() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = [listener.local_addr().unwrap().to_string()];
        let stranger = TcpStream::connect(&address[0]).unwrap();
        (&stranger).write_all(b"GET / HTTP/1.0\n").unwrap();
        std::thread::scope(|scope| {
            for (rank, host, place) in [(1, "a", 1), (2, "b", 0), (3, "a", 2)] {
                let address = &address;
                scope.spawn(move || {
                    let control = Control::connect(address, process(rank, host), || {}).unwrap();
                    let size = if host == "a" { 3 } else { 1 };
                    assert_eq!(control.place, Place { rank: place, size, handed: vec![7] });
                    control.finish();
                });
            }
            let control = Control::listen(&listener, process(0, "a"), vec![7], || {}).unwrap();
            assert_eq!(control.place.size, 3);
            control.finish();
        });
    }

    #[test]
    fn a_rank_of_another_run_is_refused_with_both_values() {
        let this = process(0, "a");
        let message = |other: Process| this.fits(&other).unwrap_err().to_string();
        let old = Process { version: "0.0.1".into(), ..process(1, "b") };
        assert!(message(old).contains("on b) runs Cloze 0.0.1, and rank 0 runs Cloze "));
        let other = Process { size: 8, ..process(1, "b") };
        assert!(message(other).ends_with("counts as rank 1 of 8, and rank 0 counts 4 ranks"));
        assert!(this.fits(&process(3, "b")).is_ok());
    }
}
