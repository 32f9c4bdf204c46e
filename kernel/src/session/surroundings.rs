//! The variables and the working folder of a child whose session was warmed up elsewhere.
//!
//! The session writes them into its folder. A child reads them when it starts, so a child that
//! takes the place of one that died has them too, and one that runs already starts itself anew.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

const FILE: &str = "surroundings.json";
/// The child's mark that it has read them.
const READ: &str = "surroundings.read";
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Surroundings {
    folder: PathBuf,
    variables: Vec<(String, String)>,
}

/// Writes what children find from now on: `variables`, and this process's working folder.
pub fn write(session: &Path, variables: &[(String, String)]) -> std::io::Result<()> {
    let surroundings = Surroundings {
        folder: std::env::current_dir()?,
        variables: variables.to_vec(),
    };
    let text = serde_json::to_vec(&surroundings)?;
    // Others may not read what a user keeps in variables.
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(session.join(FILE))?;
    std::io::Write::write_all(&mut file, &text)
}

/// Waits until the child has read them.
pub fn wait(session: &Path) -> std::io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !session.join(READ).exists() {
        if Instant::now() > deadline {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Takes over what is written in `session`, where something is, but for the variables in `keep`.
///
/// # Safety
///
/// Changes the environment: no other thread may run yet.
pub unsafe fn take_over(session: &Path, keep: &[&str]) {
    let Some(found) = std::fs::read(session.join(FILE))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Surroundings>(&bytes).ok())
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
    // A folder that is gone is the user's affair; the child runs where it is.
    let _ = std::env::set_current_dir(&found.folder);
    let _ = File::create(session.join(READ));
}

/// Becomes a fresh child, with the pipes from and to evcxr where a child expects them. Comes back
/// where that fails.
pub fn start_anew(
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
        Ok(program) => Command::new(program)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .exec(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_user_reads_the_variables() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("TOKEN".into(), "secret".into())]).unwrap();
        let file = folder.path().join(FILE).metadata().unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}
