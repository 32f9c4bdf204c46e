//! The folder of one session, named by its process, and the removal of folders that ended processes
//! have left behind.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use cloze::{Error, Result};

use super::cargo;
use super::layout::{
    CARGO_VARIABLE, CRATE, PATH_VARIABLE, STANDARD_OUTLINE, STANDARD_SOURCES_VARIABLE,
    TOOLCHAIN_VARIABLE,
};
use crate::paths;

/// evcxr reads the path of its folder from this variable.
const EVCXR_FOLDER: &str = "EVCXR_TMPDIR";
/// evcxr looks here for its own settings file, which could name another folder.
const EVCXR_SETTINGS: &str = "EVCXR_CONFIG_DIR";

/// The variables that [`SessionFolder::reserve`] sets for this process. Programs that the user starts
/// get the values from before.
pub const CHANGED_VARIABLES: [&str; 6] = [
    EVCXR_FOLDER,
    EVCXR_SETTINGS,
    STANDARD_SOURCES_VARIABLE,
    TOOLCHAIN_VARIABLE,
    CARGO_VARIABLE,
    PATH_VARIABLE,
];

/// The file that a session keeps locked as long as it lives. A process number alone is not enough:
/// containers that share a home directory each have their own processes 1, 2, 3.
const ALIVE: &str = "alive";

/// A folder that is removed with the session.
#[derive(Debug)]
pub struct SessionFolder {
    path: PathBuf,
    /// Why no session can start here: Rust is missing, for example. The first cell reports it.
    pub problem: Option<String>,
    /// The changed variables with their earlier values.
    before: [(&'static str, Option<OsString>); 6],
    /// Shows that the session lives.
    _lock: File,
}

impl SessionFolder {
    /// Creates this process's folder and makes evcxr use it.
    ///
    /// # Safety
    ///
    /// Changes the environment: no other thread may run yet.
    pub unsafe fn reserve() -> Result<Self> {
        let sessions = paths::sessions()?;
        paths::create(&sessions)?;
        sweep(&sessions);
        let (folder, lock) = claim(&sessions, std::process::id())?;
        let toolchain = cargo::stand_in(&folder);
        let before = CHANGED_VARIABLES.map(|name| (name, std::env::var_os(name)));
        // SAFETY: the caller promises that no other thread runs.
        unsafe {
            std::env::set_var(EVCXR_FOLDER, folder.join(CRATE));
            std::env::set_var(EVCXR_SETTINGS, &folder);
            std::env::set_var(STANDARD_SOURCES_VARIABLE, folder.join(STANDARD_OUTLINE));
            for (name, value) in toolchain.iter().flatten() {
                std::env::set_var(name, value);
            }
        }
        let problem = toolchain.err().map(|error| error.to_string());
        Ok(Self { path: folder, problem, before, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the variables of this process as its user set them.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let changed = |name: &OsString| self.before.iter().any(|(of, _)| name == of);
        let kept = std::env::vars_os().filter(|(name, _)| !changed(name));
        let before = self.before.iter();
        kept.chain(before.filter_map(|(name, value)| Some((name.into(), value.clone()?)))).collect()
    }
}

impl Drop for SessionFolder {
    fn drop(&mut self) {
        // The next session removes what stays behind.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Creates the folder of this process's session, and locks it before others can find it.
fn claim(sessions: &Path, process: u32) -> Result<(PathBuf, File)> {
    let in_sessions = |source| Error::io(sessions, source);
    let made = tempfile::Builder::new().prefix("new-").tempdir_in(sessions);
    let made = made.map_err(in_sessions)?;
    // The folder will contain the calls of rustc with all variables, some of which are secrets.
    paths::make_private(made.path())?;
    let file = made.path().join(ALIVE);
    let lock = File::create(&file).map_err(|source| Error::io(&file, source))?;
    lock.lock().map_err(|source| Error::io(&file, source))?;
    // The system reuses process numbers, and another container may have the same one.
    let mut folder = sessions.join(process.to_string());
    let mut turn = 0;
    while let Err(error) = std::fs::rename(made.path(), &folder) {
        if !folder.exists() {
            return Err(in_sessions(error));
        }
        turn += 1;
        folder = sessions.join(format!("{process}-{turn}"));
    }
    // The folder no longer has the name under which `tempfile` would remove it.
    let _ = made.keep();
    Ok((folder, lock))
}

/// Removes the folders of sessions whose process has ended.
fn sweep(sessions: &Path) {
    for (folder, alive) in list(sessions) {
        if !alive {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Returns the folders of sessions, and whether each session lives.
fn list(sessions: &Path) -> Vec<(PathBuf, bool)> {
    let Ok(entries) = std::fs::read_dir(sessions) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            name.split('-').next()?.parse::<u32>().ok()?;
            let alive = match File::options().write(true).open(path.join(ALIVE)) {
                Ok(lock) => lock.try_lock().is_err(),
                Err(error) => error.kind() != std::io::ErrorKind::NotFound,
            };
            Some((path, alive))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_user_get_the_variables_from_before() {
        let folder = SessionFolder {
            path: tempfile::tempdir().unwrap().keep(),
            problem: None,
            before: [
                (PATH_VARIABLE, Some("/as/it/was".into())),
                ("HOME", None),
                (EVCXR_FOLDER, None),
                (EVCXR_SETTINGS, None),
                (CARGO_VARIABLE, None),
                (TOOLCHAIN_VARIABLE, None),
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
        let unset = ["HOME", EVCXR_FOLDER, EVCXR_SETTINGS, CARGO_VARIABLE, TOOLCHAIN_VARIABLE];
        let names = |all: &OsString| !unset.iter().any(|of| all == of);
        let expected = std::env::vars_os().filter(|(name, _)| names(name)).count();
        assert_eq!(found.len(), expected);
    }

    #[test]
    fn only_folders_of_ended_sessions_are_swept() {
        let sessions = tempfile::tempdir().unwrap();
        let other = sessions.path().join("keep-me");
        std::fs::create_dir(&other).unwrap();
        // A process with this number lives, but it is not the session's.
        let (dead, lock) = claim(sessions.path(), std::process::id()).unwrap();
        // A program that another test is starting may have a copy of the file for an instant.
        lock.unlock().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        // In another container a process with this number may live.
        let (elsewhere, _lock) = claim(sessions.path(), ended.id()).unwrap();
        sweep(sessions.path());
        assert!(!dead.exists() && elsewhere.exists() && other.exists());
    }

    #[test]
    fn sessions_with_the_same_process_number_get_different_folders() {
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
        // As above.
        lock.unlock().unwrap();
        sweep(sessions.path());
        assert!(!first.exists() && second.exists());
    }
}
