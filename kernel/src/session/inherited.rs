//! The environment that a child inherits if its session was warmed up elsewhere: the variables and the
//! working folder of the front end.
//!
//! The session writes them into its folder, and a child reads them when it starts. So a child that
//! replaces one that died has them too; a child that already runs restarts itself.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::tree::write_private;

const FILE: &str = "environment.json";
/// The child creates this file when it has read the other.
const READ: &str = "environment.read";
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Environment {
    folder: PathBuf,
    variables: Vec<(String, String)>,
}

/// Writes what children inherit from now on: `variables`, and this process's working folder.
pub fn write(session: &Path, variables: &[(String, String)]) -> std::io::Result<()> {
    let environment =
        Environment { folder: std::env::current_dir()?, variables: variables.to_vec() };
    write_private(&session.join(FILE), &serde_json::to_vec(&environment)?)
}

/// Waits until the child has read them.
pub fn wait(session: &Path) -> std::io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !session.join(READ).exists() {
        if Instant::now() > deadline {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Applies what is written in `session`, if anything is, except for the variables in `keep`.
///
/// # Safety
///
/// Changes the environment: no other thread may run yet.
pub unsafe fn apply(session: &Path, keep: &[&str]) {
    let Some(found) = std::fs::read(session.join(FILE))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Environment>(&bytes).ok())
    else {
        return;
    };
    let kept = |name: &str| keep.contains(&name);
    let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    // SAFETY: the caller promises that no other thread runs.
    unsafe {
        for name in names.iter().filter(|name| !name.to_str().is_some_and(kept)) {
            std::env::remove_var(name);
        }
        for (name, value) in found.variables.iter().filter(|(name, _)| !kept(name)) {
            std::env::set_var(name, value);
        }
    }
    // If the folder no longer exists, the child runs in the present one.
    let _ = std::env::set_current_dir(&found.folder);
    let _ = File::create(session.join(READ));
}

/// Replaces this process by a new child, which expects the pipes from and to evcxr as its standard
/// input and output. Returns only if that fails.
pub fn restart(
    (commands, answers): &(OwnedFd, OwnedFd),
    variables: &[(&str, String)],
) -> std::io::Error {
    use std::os::unix::process::CommandExt;
    let started =
        nix::unistd::dup2_stdin(commands).and_then(|()| nix::unistd::dup2_stdout(answers));
    if let Err(error) = started {
        return error.into();
    }
    match std::env::current_exe() {
        Ok(program) => {
            Command::new(program).envs(variables.iter().map(|(name, value)| (name, value))).exec()
        }
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_user_can_read_the_variables() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("TOKEN".into(), "secret".into())]).unwrap();
        let file = folder.path().join(FILE).metadata().unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}
