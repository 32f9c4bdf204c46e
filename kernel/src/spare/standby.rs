//! The spare itself: warms a session up, and waits for a kernel's order.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cloze::{Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Keeper, Link, Order, Place, minutes};
use crate::session::{Session, SessionFolder, Sink};

/// How often a spare checks that it is still needed.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Warms a session up in `folder` and waits for the first kernel that asks for it. Returns the session,
/// the connection to the launcher and the connection file, or `None` if there is another spare, or nobody
/// has asked in time.
pub fn stand_by(
    keeper: &Keeper,
    folder: SessionFolder,
) -> Result<Option<(Session, Link, PathBuf)>> {
    let Some(place) = keeper.place() else {
        return Ok(None);
    };
    let path = place.lock();
    let lock = File::create(&path).map_err(|source| Error::io(&path, source))?;
    if lock.try_lock().is_err() {
        return Ok(None);
    }
    let silent: Sink = Arc::new(|_| ());
    let session = Session::start(folder, true, Arc::clone(&silent))
        .map_err(|error| Error::Failed(format!("cannot start a session: {error}")))?;
    let warm = session.execute(String::new(), silent).blocking_recv();
    if !warm.is_ok_and(|outcome| outcome.error.is_none()) {
        return Err(Error::Failed("the spare session did not start".to_owned()));
    }
    // The lock shows that the creator of this socket has ended.
    let _ = std::fs::remove_file(&place.socket);
    let listener =
        UnixListener::bind(&place.socket).map_err(|source| Error::io(&place.socket, source))?;
    let found = wait(place, &listener);
    // The next spare may start: this one becomes a kernel, or ends.
    let _ = std::fs::remove_file(&place.socket);
    // Closing the file would leave the lock with a program that this process is just starting.
    let _ = lock.unlock();
    let Some((mut link, log, order)) = found else {
        session.shut_down();
        return Ok(None);
    };
    let Order { connection_file, folder, environment } = order;
    // Without it the log is lost.
    let _ = nix::unistd::dup2_stderr(&log);
    session.move_to(folder, environment);
    link.take().map_err(|source| Error::io("the launcher", source))?;
    Ok(Some((session, link, connection_file)))
}

/// Waits for an order until the lease ends.
fn wait(place: &Place, listener: &UnixListener) -> Option<(Link, OwnedFd, Order)> {
    let minutes = minutes()?;
    place.extend();
    while place.unused_for() < Duration::from_secs(60 * minutes) {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        // Five seconds are a valid timeout.
        let timeout = PollTimeout::try_from(CHECK_INTERVAL).unwrap_or(PollTimeout::MAX);
        if poll(&mut polled, timeout).is_ok_and(|ready| ready > 0)
            && let Ok((stream, _)) = listener.accept()
            && let Some(accepted) = Link::accept(stream)
        {
            return Some(accepted);
        }
    }
    None
}
