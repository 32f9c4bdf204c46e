//! A warmed session that stands by for the next notebook.
//!
//! Warming a session up takes seconds of compiling and of rust-analyzer. So a kernel in use starts
//! one more process that does this in advance and then waits at a socket. The next kernel hands its
//! connection file over and stays as a thin [`launcher`]: what Jupyter sees of its process (signals,
//! end) it passes on.
//!
//! A spare costs the memory of an idle session, some 550 MiB, so there is one at most for a user
//! and it ends when no cell has run for [`minutes`]; without [`MEMORY`] to spare none is started.

mod keeper;
mod launcher;
mod standby;

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::net::SocketAddr;
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

/// `off`, or for how many minutes without a cell a spare stands by.
const SWITCH: &str = "CLOZE_SPARE";
const MINUTES: u64 = 10;
/// No spare is started where fewer bytes of memory than these are free.
const MEMORY: u64 = 3 << 30;

/// What a spare is told of the kernel that it becomes.
#[derive(Serialize, Deserialize)]
struct Order {
    connection_file: PathBuf,
    folder: PathBuf,
    environment: Vec<(String, String)>,
    /// The launcher's process, whose standard error becomes the spare's.
    launcher: u32,
}

/// For how long a spare stands by after the last cell; `None` where none is wanted.
pub fn minutes() -> Option<u64> {
    match std::env::var(SWITCH) {
        Err(_) => Some(MINUTES),
        Ok(value) => value.trim().parse().ok().filter(|minutes| *minutes > 0),
    }
}

/// Where the spare for this process stands: its socket, and beside it the marks of its life.
#[derive(Debug, Clone)]
pub struct Place {
    socket: PathBuf,
}

impl Place {
    /// The place of a spare that can serve this process: made of the same sources by the same
    /// compiler and program, with the same variables for cargo and rustc.
    pub fn find() -> Result<Option<Self>> {
        let Some(template) = Template::find()? else {
            return Ok(None);
        };
        let mut hasher = DefaultHasher::new();
        template.hash(&mut hasher);
        let binary = std::env::current_exe().and_then(std::fs::metadata);
        let made = binary.and_then(|binary| Ok((binary.len(), binary.modified()?)));
        made.map_err(|source| Error::io("this program", source))?
            .hash(&mut hasher);
        let mut variables: Vec<_> = std::env::vars_os()
            .filter(|(name, _)| decides(name))
            .collect();
        variables.sort();
        variables.hash(&mut hasher);
        let spares = paths::spares()?;
        paths::create(&spares)?;
        // Nobody else may give a spare orders.
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

    /// Notes that a cell has run: the spare stands by for longer.
    pub fn extend(&self) {
        // A lease that can't be renewed ends earlier, that is all.
        let _ = std::fs::write(self.lease(), "");
    }

    /// For how long no cell has run; for ever where the lease was removed.
    fn unused_for(&self) -> Duration {
        let renewed = std::fs::metadata(self.lease()).and_then(|lease| lease.modified());
        // A time to come is a clock that was set: as good as now.
        renewed.map_or(Duration::MAX, |at| at.elapsed().unwrap_or_default())
    }
}

/// Whether a path is short enough for a socket, which most systems end at some 100 bytes: a spare
/// would find out when it is warm, and be for nothing.
fn can_be_bound(path: &Path) -> bool {
    SocketAddr::from_pathname(path).is_ok()
}

/// Whether a variable has a say in what is compiled and where things are kept.
fn decides(name: &OsStr) -> bool {
    const NAMES: [&str; 6] = ["PATH", "HOME", "CC", "LD_LIBRARY_PATH", "TMPDIR", "LANG"];
    const BEGINNINGS: [&str; 6] = ["CARGO", "RUST", "CLOZE", "EVCXR", "XDG_DATA", "XDG_CONFIG"];
    let name = name.to_string_lossy();
    NAMES.contains(&&*name)
        || BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning))
}

/// Starts a spare of `program` in the background; `environment` gives the variables that the kernels to come
/// have otherwise than this process. Nothing happens where a spare is there already.
pub fn start(
    program: &Path,
    environment: impl IntoIterator<Item = (OsString, Option<OsString>)>,
) -> std::io::Result<Option<Child>> {
    use std::os::unix::process::CommandExt;
    if minutes().is_none() || cloze::memory::free().is_some_and(|free| free < MEMORY) {
        return Ok(None);
    }
    let mut command = Command::new(program);
    command
        .arg("spare")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in the terminal of whoever started it is not meant for it.
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
    fn a_spare_wants_a_path_that_its_socket_can_have() {
        assert!(can_be_bound(Path::new("/tmp/a.socket")));
        assert!(!can_be_bound(Path::new(&"/long".repeat(40))));
    }

    #[test]
    fn what_the_compiler_looks_at_decides_and_a_notebook_s_name_does_not() {
        for name in ["PATH", "RUSTFLAGS", "CARGO_HOME", "CLOZE_DATA"] {
            assert!(decides(OsStr::new(name)), "{name}");
        }
        for name in ["JPY_SESSION_NAME", "PWD", "TERM", "PATHS"] {
            assert!(!decides(OsStr::new(name)), "{name}");
        }
    }
}
