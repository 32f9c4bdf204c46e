//! The process that Jupyter started, if a spare does the work: it passes signals on and lives as long as
//! the spare, which writes its log to this process's standard error.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cloze::{Error, Result};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use super::{Order, Place};

/// The spare's confirmation that it has taken the order.
const TAKEN: &str = "taken";
/// The message for an interrupt.
const INTERRUPT: u8 = b'i';

/// Hands a kernel's work over to a spare, and returns when it is done. Returns false if there is no spare.
pub fn hand_over(connection_file: &Path) -> Result<bool> {
    if super::minutes().is_none() {
        return Ok(false);
    }
    // Without Rust no spare session can exist; the kernel itself reports what is missing.
    let place = Place::find().ok().flatten();
    let Some(mut stream) = place.and_then(|place| UnixStream::connect(place.socket).ok()) else {
        return Ok(false);
    };
    // Until the spare's confirmation this process can still do the work itself.
    match order(&mut stream, connection_file) {
        Ok(true) => stay(stream)
            .map(|()| true)
            .map_err(|source| Error::Failed(format!("the kernel's launcher: {source}"))),
        _ => Ok(false),
    }
}

fn order(stream: &mut UnixStream, connection_file: &Path) -> std::io::Result<bool> {
    let order = Order {
        connection_file: std::path::absolute(connection_file)?,
        folder: std::env::current_dir()?,
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
    };
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    send_log(stream)?;
    writeln!(stream, "{}", serde_json::to_string(&order)?)?;
    let mut answer = String::new();
    BufReader::new(&mut *stream).read_line(&mut answer)?;
    Ok(answer.trim() == TAKEN)
}

/// Sends this process's standard error, which goes with one byte of data.
fn send_log(stream: &UnixStream) -> std::io::Result<()> {
    let log = [std::io::stderr().as_raw_fd()];
    let (data, log) = ([IoSlice::new(b"l")], [ControlMessage::ScmRights(&log)]);
    sendmsg::<()>(stream.as_raw_fd(), &data, &log, MsgFlags::empty(), None)?;
    Ok(())
}

/// Receives what `send_log` has sent; `None` if it is anything else.
fn receive_log(stream: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let received =
        recvmsg::<()>(stream.as_raw_fd(), &mut data, Some(&mut space), MsgFlags::empty());
    let received = received.ok()?;
    let found = received.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::ScmRights(found) => found.first().copied(),
        _ => None,
    });
    // SAFETY: the system has just made this descriptor for this process, and nothing else has it.
    found.map(|log| unsafe { OwnedFd::from_raw_fd(log) })
}

fn stay(stream: UnixStream) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let parent = std::os::unix::process::parent_id();
        let watched = std::env::var("JPY_PARENT_PID").is_ok_and(|id| id == parent.to_string());
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let mut byte = [0];
        loop {
            tokio::select! {
                // The spare sends nothing any more, so it has ended.
                _ = stream.read(&mut byte) => return Ok(()),
                _ = interrupts.recv() => {
                    tokio::io::AsyncWriteExt::write_all(&mut stream, &[INTERRUPT]).await?;
                }
                // When this process ends, so does the connection, and the spare with it.
                _ = terminations.recv() => return Ok(()),
                _ = tick.tick() => {
                    if watched && std::os::unix::process::parent_id() != parent {
                        return Ok(());
                    }
                }
            }
        }
    })
}

/// A spare's end of the connection with its launcher.
pub struct Link(UnixStream);

impl Link {
    /// Reads the order from a new connection, with the standard error of its sender; `None` if it is no order.
    pub(super) fn accept(stream: UnixStream) -> Option<(Self, OwnedFd, Order)> {
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
        let log = receive_log(&stream)?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        let order = serde_json::from_str(&line).ok()?;
        Some((Self(stream), log, order))
    }

    /// Sends the spare's confirmation.
    pub(super) fn take(&mut self) -> std::io::Result<()> {
        writeln!(self.0, "{TAKEN}")
    }

    /// Calls `interrupt` for every interrupt of the launcher; returns when the launcher has ended.
    pub async fn serve(self, interrupt: impl Fn()) -> std::io::Result<()> {
        self.0.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(self.0)?;
        let mut byte = [0];
        while stream.read(&mut byte).await? > 0 {
            if byte[0] == INTERRUPT {
                interrupt();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, BorrowedFd};

    #[test]
    fn an_order_arrives_complete_and_anything_else_is_refused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let spare = std::thread::spawn(move || {
            let (mut link, log, order) = Link::accept(theirs).unwrap();
            link.take().unwrap();
            (log, order)
        });
        assert!(super::order(&mut ours, Path::new("/tmp/connection.json")).unwrap());
        let (log, order) = spare.join().unwrap();
        let file = |of: BorrowedFd<'_>| {
            let of = nix::sys::stat::fstat(of).unwrap();
            (of.st_dev, of.st_ino)
        };
        assert_eq!(file(log.as_fd()), file(std::io::stderr().as_fd()));
        assert_eq!(order.connection_file, Path::new("/tmp/connection.json"));
        assert!(order.environment.iter().any(|(name, _)| name == "PATH"));

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        send_log(&ours).unwrap();
        ours.write_all(b"{\"connection_file\": 3}\n").unwrap();
        assert!(Link::accept(theirs).is_none());
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"no descriptor\n").unwrap();
        assert!(Link::accept(theirs).is_none());
    }
}
