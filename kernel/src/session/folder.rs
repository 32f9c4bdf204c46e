//! The folder of one session, named by its process, and the sweeping of those whose process ended
//! without doing so.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cloze::Result;
use nix::sys::signal;
use nix::unistd::Pid;

use super::cargo;
use super::template::USES;
use crate::paths;

/// evcxr reads its folder from this variable and from nowhere else that is ours alone.
const EVCXR_FOLDER: &str = "EVCXR_TMPDIR";
/// evcxr's own settings file could move its folder away: it looks for it here.
const EVCXR_SETTINGS: &str = "EVCXR_CONFIG_DIR";

/// What [`SessionFolder::reserve`] sets for this process; what it starts for others is to have them
/// as they were.
pub const CHANGED_VARIABLES: [&str; 4] = [
    EVCXR_FOLDER,
    EVCXR_SETTINGS,
    cargo::TOOLCHAIN_VARIABLE,
    cargo::CARGO_VARIABLE,
];

/// A folder that is removed with the session.
#[derive(Debug)]
pub struct SessionFolder(PathBuf);

impl SessionFolder {
    /// Names this process's folder and tells evcxr of it.
    ///
    /// # Safety
    ///
    /// Changes the environment: no other thread may run yet.
    pub unsafe fn reserve() -> Result<Self> {
        let sessions = paths::sessions()?;
        paths::create(&sessions)?;
        sweep(&sessions);
        let folder = sessions.join(std::process::id().to_string());
        // A process number comes again after a while; its first owner has ended.
        let _ = std::fs::remove_dir_all(&folder);
        paths::create(&folder)?;
        let toolchain = cargo::stand_in(&folder)?;
        // SAFETY: the caller promises that no other thread runs.
        unsafe {
            point_evcxr_at(&folder);
            for (name, value) in toolchain {
                std::env::set_var(name, value);
            }
        }
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SessionFolder {
    fn drop(&mut self) {
        // What stays behind is swept by the next session.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes evcxr compile in `folder`, whichever program started this one.
///
/// # Safety
///
/// Changes the environment: no other thread may run yet.
pub unsafe fn point_evcxr_at(folder: &Path) {
    let of_a_package: Vec<_> = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_str().is_some_and(is_of_a_package))
        .collect();
    // SAFETY: the caller promises that no other thread runs.
    unsafe {
        for name in of_a_package {
            std::env::remove_var(name);
        }
        std::env::set_var(EVCXR_FOLDER, folder.join("ctx"));
        std::env::set_var(EVCXR_SETTINGS, folder);
    }
}

/// Whether `cargo run` tells a program of its package by this variable. Build scripts look at some of
/// them (ring's does): what `cargo lab` compiles with them would be compiled again, in minutes, in the
/// first cell of a session that an editor starts without them.
fn is_of_a_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// Removes the folders of sessions whose process is gone.
fn sweep(sessions: &Path) {
    for (folder, alive) in list(sessions) {
        if !alive {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The templates that running sessions compile against.
pub fn templates_in_use() -> HashSet<PathBuf> {
    let Ok(sessions) = paths::sessions() else {
        return HashSet::new();
    };
    list(&sessions)
        .into_iter()
        .filter(|(_, alive)| *alive)
        .filter_map(|(folder, _)| std::fs::read_to_string(folder.join(USES)).ok())
        .map(PathBuf::from)
        .collect()
}

fn list(sessions: &Path) -> Vec<(PathBuf, bool)> {
    let Ok(entries) = std::fs::read_dir(sessions) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let process: i32 = path.file_name()?.to_str()?.parse().ok()?;
            // Signal nothing: the call only says whether the process is there.
            let alive = signal::kill(Pid::from_raw(process), None) != Err(nix::Error::ESRCH);
            Some((path, alive))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_processes_are_swept() {
        let sessions = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let gone = sessions.path().join(ended.id().to_string());
        ended.wait().unwrap();
        let mine = sessions.path().join(std::process::id().to_string());
        let other = sessions.path().join("keep-me");
        for folder in [&gone, &mine, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        sweep(sessions.path());
        assert!(!gone.exists());
        assert!(mine.exists());
        assert!(other.exists());
    }
}
