//! A spare: a warmed session that waits for the next notebook.
//!
//! A session warms up for some seconds, in the compiler and in rust-analyzer. So a kernel in use starts
//! another process that does this in advance and then waits at a socket. The next kernel hands its
//! connection file over and becomes a thin [`launcher`], which passes on what Jupyter does with its
//! process (signals, end).
//!
//! A spare costs the memory of an idle session, some 350 MiB. So a user has one at most, it ends when no
//! cell has run for [`minutes`], and none is started if less than [`MEMORY`] is free.

mod keeper;
mod launcher;
mod standby;

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cloze::{Error, Result};
use serde::{Deserialize, Serialize};

pub use keeper::Keeper;
pub use launcher::{Link, hand_over};
pub use standby::stand_by;

use crate::paths;
use crate::session::Template;

/// `off`, or the minutes without a cell after which a spare ends.
const SWITCH: &str = "CLOZE_SPARE";
const MINUTES: u64 = 10;
/// The bytes of memory that must be free for a spare to start.
const MEMORY: u64 = 3 << 30;

/// Describes to a spare the kernel that it becomes.
#[derive(Serialize, Deserialize)]
struct Order {
    connection_file: PathBuf,
    folder: PathBuf,
    environment: Vec<(String, String)>,
}

/// Returns for how many minutes a spare waits after the last cell, or `None` if spares are off.
pub fn minutes() -> Option<u64> {
    match std::env::var(SWITCH) {
        Err(_) => Some(MINUTES),
        Ok(value) => value.trim().parse().ok().filter(|minutes| *minutes > 0),
    }
}

/// The place of the spare for this process: its socket, with the files that show that it lives.
#[derive(Debug, Clone)]
pub struct Place {
    socket: PathBuf,
}

impl Place {
    /// Returns the place of a spare that can serve this process: it has the same sources, compiler and
    /// program, and the same variables for cargo and rustc.
    pub fn find() -> Result<Option<Self>> {
        let Some(template) = Template::find()? else {
            return Ok(None);
        };
        let mut hasher = DefaultHasher::new();
        template.hash(&mut hasher);
        let binary = std::env::current_exe().and_then(std::fs::metadata);
        let made = binary.and_then(|binary| Ok((binary.len(), binary.modified()?)));
        made.map_err(|source| Error::io("this program", source))?.hash(&mut hasher);
        let mut variables: Vec<_> = std::env::vars_os().filter(|(name, _)| decides(name)).collect();
        variables.sort();
        variables.hash(&mut hasher);
        let spares = paths::spares()?;
        paths::create(&spares)?;
        // Other users must not give orders to a spare.
        paths::make_private(&spares)?;
        let socket = spares.join(format!("{:016x}.socket", hasher.finish()));
        Ok(can_be_bound(&socket).then_some(Self { socket }))
    }

    fn lock(&self) -> PathBuf {
        self.socket.with_extension("lock")
    }

    fn lease(&self) -> PathBuf {
        self.socket.with_extension("lease")
    }

    /// Records that a cell has run, so that the spare waits longer.
    pub fn extend(&self) {
        // If this fails, the lease ends earlier.
        let _ = std::fs::write(self.lease(), "");
    }

    /// Returns for how long no cell has run: for ever if the lease was removed.
    fn unused_for(&self) -> Duration {
        let renewed = std::fs::metadata(self.lease()).and_then(|lease| lease.modified());
        // A time in the future (the clock was set back) counts as now.
        renewed.map_or(Duration::MAX, |at| at.elapsed().unwrap_or_default())
    }
}

/// Returns whether a path is short enough for a socket: most systems allow some 100 bytes. A spare would
/// fail only after it has warmed up.
fn can_be_bound(path: &Path) -> bool {
    SocketAddr::from_pathname(path).is_ok()
}

/// Returns whether a variable influences what is compiled and where things are kept.
fn decides(name: &OsStr) -> bool {
    const NAMES: [&str; 6] = ["PATH", "HOME", "CC", "LD_LIBRARY_PATH", "TMPDIR", "LANG"];
    const BEGINNINGS: [&str; 6] = ["CARGO", "RUST", "CLOZE", "EVCXR", "XDG_DATA", "XDG_CONFIG"];
    let name = name.to_string_lossy();
    NAMES.contains(&&*name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Starts a spare of `program` in the background, with the variables of `environment`, in which future
/// kernels differ from this process. The spare ends at once if there is another one.
pub fn start(
    program: &Path,
    environment: impl IntoIterator<Item = (OsString, Option<OsString>)>,
) -> std::io::Result<Option<Child>> {
    if minutes().is_none() || cloze::memory::free().is_some_and(|free| free < MEMORY) {
        return Ok(None);
    }
    let mut command = Command::new(program);
    command
        .arg("spare")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in the terminal must not reach it.
        .process_group(0);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.spawn().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_refused() {
        assert!(can_be_bound(Path::new("/tmp/a.socket")));
        assert!(!can_be_bound(Path::new(&"/long".repeat(40))));
    }

    #[test]
    fn the_compiler_s_variables_decide_and_a_notebook_s_name_does_not() {
        for name in ["PATH", "RUSTFLAGS", "CARGO_HOME", "CLOZE_DATA"] {
            assert!(decides(OsStr::new(name)), "{name}");
        }
        for name in ["JPY_SESSION_NAME", "PWD", "TERM", "PATHS"] {
            assert!(!decides(OsStr::new(name)), "{name}");
        }
    }
}
