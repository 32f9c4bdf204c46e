//! The spare itself: warms a session up, waits, and becomes a kernel.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use cloze::{Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Keeper, Link, Order, Place, minutes};
use crate::jupyter;
use crate::session::{Session, SessionFolder, Sink};

/// How often a spare looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Warms a session up in `folder` and serves the first kernel that asks; ends where there is a
/// spare already, or where nobody came in time.
pub fn stand_by(keeper: Keeper, folder: SessionFolder) -> Result<()> {
    let Some(place) = keeper.place() else {
        return Ok(());
    };
    let path = place.lock();
    let lock = File::create(&path).map_err(|source| Error::io(&path, source))?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    let silent: Sink = Arc::new(|_| ());
    let session = Session::start(folder, Arc::clone(&silent))
        .map_err(|error| Error::Failed(format!("cannot start a session: {error}")))?;
    let warm = session.execute(String::new(), silent).blocking_recv();
    if !warm.is_ok_and(|outcome| outcome.error.is_none()) {
        return Err(Error::Failed("the spare session did not start".to_owned()));
    }
    // The lock says that whoever made this socket has ended.
    let _ = std::fs::remove_file(&place.socket);
    let listener =
        UnixListener::bind(&place.socket).map_err(|source| Error::io(&place.socket, source))?;
    let found = wait(place, &listener);
    // The next spare may come; this one is a kernel from here on, or ends.
    let _ = std::fs::remove_file(&place.socket);
    drop(lock);
    let Some((mut link, order)) = found else {
        session.shut_down();
        return Ok(());
    };
    let Order {
        connection_file,
        folder,
        environment,
        launcher,
    } = order;
    // The log goes where the kernel's own would; where that can't be opened there is none.
    if let Ok(log) = File::options()
        .append(true)
        .open(format!("/proc/{launcher}/fd/2"))
    {
        let _ = nix::unistd::dup2_stderr(&log);
    }
    session.move_to(folder, environment);
    link.take()
        .map_err(|source| Error::io("the launcher", source))?;
    jupyter::run_spare(&connection_file, session, link, keeper)
}

/// Waits for an order as long as the lease is good.
fn wait(place: &Place, listener: &UnixListener) -> Option<(Link, Order)> {
    let minutes = minutes()?;
    place.extend();
    while place.unused_for() < Duration::from_secs(60 * minutes) {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        // Five seconds fit; anything else would wait for ever.
        let timeout = PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::MAX);
        if poll(&mut polled, timeout).is_ok_and(|ready| ready > 0)
            && let Ok((stream, _)) = listener.accept()
            && let Some(accepted) = Link::accept(stream)
        {
            return Some(accepted);
        }
    }
    None
}
