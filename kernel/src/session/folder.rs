//! The folder of one session, named by its process, and the sweeping of those whose process ended
//! without doing so.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use cloze::{Error, Result};
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

/// The file that a session holds locked as long as it lives. A process number alone says too
/// little: containers that share a home have each their own processes 1, 2, 3.
const ALIVE: &str = "alive";

/// A folder that is removed with the session.
#[derive(Debug)]
pub struct SessionFolder {
    path: PathBuf,
    /// The variables that were changed for it, as they had been.
    before: [(&'static str, Option<OsString>); 4],
    /// Says that the session lives.
    _lock: File,
}

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
        let (folder, lock) = claim(&sessions, std::process::id())?;
        let toolchain = cargo::stand_in(&folder)?;
        let before = CHANGED_VARIABLES.map(|name| (name, std::env::var_os(name)));
        // SAFETY: the caller promises that no other thread runs.
        unsafe {
            point_evcxr_at(&folder);
            for (name, value) in toolchain {
                std::env::set_var(name, value);
            }
        }
        Ok(Self {
            path: folder,
            before,
            _lock: lock,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The variables of this process as its user gave them.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let changed = |name: &OsString| self.before.iter().any(|(of, _)| name == of);
        let kept = std::env::vars_os().filter(|(name, _)| !changed(name));
        let before = self.before.iter();
        kept.chain(before.filter_map(|(name, value)| Some((name.into(), value.clone()?))))
            .collect()
    }
}

impl Drop for SessionFolder {
    fn drop(&mut self) {
        // What stays behind is swept by the next session.
        let _ = std::fs::remove_dir_all(&self.path);
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

/// Makes the folder of this process's session, locked before others can find it.
fn claim(sessions: &Path, process: u32) -> Result<(PathBuf, File)> {
    let in_sessions = |source| Error::io(sessions, source);
    let made = tempfile::Builder::new().prefix("new-").tempdir_in(sessions);
    let made = made.map_err(in_sessions)?;
    // How rustc is called is kept in it, with all variables, and some of them are secrets.
    paths::make_private(made.path())?;
    let file = made.path().join(ALIVE);
    let lock = File::create(&file).map_err(|source| Error::io(&file, source))?;
    lock.lock().map_err(|source| Error::io(&file, source))?;
    // A process number comes again after a while, and another container may have it too.
    let mut folder = sessions.join(process.to_string());
    let mut turn = 0;
    while let Err(error) = std::fs::rename(made.path(), &folder) {
        if !folder.exists() {
            return Err(in_sessions(error));
        }
        turn += 1;
        folder = sessions.join(format!("{process}-{turn}"));
    }
    // It is not there any more under the name by which it would be removed.
    let _ = made.keep();
    Ok((folder, lock))
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
            let name = path.file_name()?.to_str()?;
            let process: i32 = name.split('-').next()?.parse().ok()?;
            let alive = is_alive(&path, process);
            Some((path, alive))
        })
        .collect()
}

fn is_alive(folder: &Path, process: i32) -> bool {
    let lock = File::options()
        .read(true)
        .write(true)
        .open(folder.join(ALIVE));
    match lock {
        Ok(lock) => lock.try_lock().is_err(),
        // A session of an earlier version has none. Signal nothing: the call only says whether the
        // process is there.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            signal::kill(Pid::from_raw(process), None) != Err(nix::Error::ESRCH)
        }
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_session_starts_has_the_variables_as_they_were() {
        let folder = SessionFolder {
            path: tempfile::tempdir().unwrap().keep(),
            before: [
                ("PATH", Some("/as/it/was".into())),
                ("HOME", None),
                (EVCXR_FOLDER, None),
                (EVCXR_SETTINGS, None),
            ],
            _lock: tempfile::tempfile().unwrap(),
        };
        let found = folder.environment();
        let of = |wanted: &str| {
            let all: Vec<_> = found.iter().filter(|(name, _)| name == wanted).collect();
            assert!(all.len() <= 1, "{all:?}");
            all.first().map(|(_, value)| value.clone())
        };
        assert_eq!(of("PATH"), Some("/as/it/was".into()));
        assert_eq!(of("HOME"), None);
        let names = |all: &OsString| {
            !["HOME", EVCXR_FOLDER, EVCXR_SETTINGS]
                .iter()
                .any(|of| all == of)
        };
        let expected = std::env::vars_os().filter(|(name, _)| names(name)).count();
        assert_eq!(found.len(), expected);
    }

    #[test]
    fn only_folders_of_ended_sessions_are_swept() {
        let sessions = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let gone = ended.id();
        ended.wait().unwrap();
        let own = std::process::id();
        let folder = |name: &str| {
            let folder = sessions.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("file"), "").unwrap();
            folder
        };
        // Of an earlier version, which had no locks.
        let (old_gone, old) = (folder(&gone.to_string()), folder(&own.to_string()));
        let other = folder("keep-me");
        // A process of that number lives, here or in another container, and says nothing.
        let (dead, lock) = claim(sessions.path(), own).unwrap();
        // A program that another test is just starting may have a copy of the file for an instant.
        lock.unlock().unwrap();
        let (elsewhere, _lock) = claim(sessions.path(), gone).unwrap();
        sweep(sessions.path());
        assert!(!old_gone.exists() && !dead.exists());
        assert!(old.exists() && elsewhere.exists() && other.exists());
    }

    #[test]
    fn sessions_with_one_process_number_have_each_their_folder() {
        use std::os::unix::fs::PermissionsExt;
        let sessions = tempfile::tempdir().unwrap();
        let (first, lock) = claim(sessions.path(), 57).unwrap();
        let (second, _lock) = claim(sessions.path(), 57).unwrap();
        assert_eq!(first, sessions.path().join("57"));
        assert_eq!(second, sessions.path().join("57-1"));
        let mode = std::fs::metadata(&first).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(list(sessions.path()).len(), 2);
        assert!(list(sessions.path()).iter().all(|(_, alive)| *alive));
        // A program that another test is just starting may have a copy of the file for an instant.
        lock.unlock().unwrap();
        sweep(sessions.path());
        assert!(!first.exists() && second.exists());
    }
}
