//! Installs the kernel for all users of a machine, and removes it again.
//!
//! Below a prefix, which only the administrator may write to:
//!
//! ```text
//! lib/cloze/<hash>/              a session template, which all users share, with its program in `bin`
//! bin/cloze-kernel               runs that program, with the Rust that the template was built with
//! share/jupyter/kernels/cloze    the kernelspec
//! ```
//!
//! An update adds another template and replaces the files in `bin` and `share`, so running sessions keep their
//! program and their template. Everything else that a session needs is in its user's own data folder.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cloze::{Error, Result};
use nix::sys::stat::{Mode, umask};

use crate::install::{self, NAME};
use crate::paths::{self, PROGRAM};
use crate::session::{Template, layout};

/// Where the kernel is installed if no prefix is given.
const PREFIX: &str = "/usr/local";

/// Installs the kernel below `prefix` for all users.
pub fn install(prefix: Option<&Path>) -> Result<()> {
    let prefix = absolute(prefix)?;
    // Other users must be able to read what is made here.
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    paths::create(&prefix)?;
    let rust = layout::sysroot()?;
    let remedy = "install Rust for all users, as a package of your distribution or by rustup with \
                  RUSTUP_HOME=/usr/local/rustup and CARGO_HOME=/usr/local/cargo, and put its rustc first on PATH";
    for part in [rust.join("bin/rustc"), rust.join("bin/cargo"), layout::rust_libraries()?] {
        open_to_others(&part, remedy)?;
    }
    open_to_others(&prefix, "choose another --prefix, or open it with `chmod o+rx`")?;

    let environment: Vec<_> = std::env::vars_os().collect();
    let system = prefix.join(paths::SYSTEM);
    let template =
        Template::build_for_system(&system, &environment, &mut install::Printed::new()?)?;
    let program = template.folder().join(PROGRAM);
    let own = paths::this_program()?;
    if own != program {
        install::copy_atomically(&own, &program)?;
    }
    open_tree(&system)?;
    let launcher = prefix.join(PROGRAM);
    install::write_atomically(&launcher, &script(&rust.join("bin"), &program), 0o755)?;
    let folder = install::kernelspec_folder(Some(&prefix))?;
    install::write_kernelspec(&folder, &launcher, HashMap::new())?;
    open_tree(&folder)?;
    cloze::note!("The kernel `{NAME}` is installed for all users in {}.", folder.display());
    Ok(())
}

/// Removes what [`install`] has made below `prefix`.
pub fn uninstall(prefix: Option<&Path>) -> Result<()> {
    let prefix = absolute(prefix)?;
    let kernelspec = install::kernelspec_folder(Some(&prefix))?;
    install::remove([kernelspec, prefix.join(PROGRAM), prefix.join(paths::SYSTEM)])
}

fn absolute(prefix: Option<&Path>) -> Result<PathBuf> {
    let prefix = prefix.unwrap_or(Path::new(PREFIX));
    std::path::absolute(prefix).map_err(|source| Error::io(prefix, source))
}

/// Returns the script that runs `program` with the Rust in `rust` first on PATH: a user may have none, or another
/// version, for which the template is of no use.
fn script(rust: &Path, program: &Path) -> String {
    format!(
        "#!/bin/sh\n# Written by `cloze-kernel install --system`.\nPATH={}:$PATH\nexport PATH\nexec {} \"$@\"\n",
        quoted(rust.as_os_str()),
        quoted(program.as_os_str())
    )
}

fn quoted(text: &OsStr) -> String {
    format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"))
}

/// Refuses a file or a folder that other users cannot read, or that lies in a folder which they cannot enter.
fn open_to_others(path: &Path, remedy: &str) -> Result<()> {
    let found = path.canonicalize().map_err(|source| Error::io(path, source))?;
    for (above, part) in found.ancestors().enumerate() {
        let needed = if above == 0 { 0o005 } else { 0o001 };
        let mode = part.metadata().map_err(|source| Error::io(part, source))?.permissions().mode();
        if mode & needed != needed {
            return Err(Error::Failed(format!(
                "{}: other users cannot read it, because {} is closed to them: {remedy}",
                path.display(),
                part.display()
            )));
        }
    }
    Ok(())
}

/// Lets all users read what is in a folder, and only its owner write: copied files have the permissions of the
/// originals.
fn open_tree(path: &Path) -> Result<()> {
    let io = |source| Error::io(path, source);
    let file = path.symlink_metadata().map_err(io)?;
    if file.is_symlink() {
        return Ok(());
    }
    let mode = file.permissions().mode();
    let mode = if file.is_dir() || mode & 0o100 != 0 { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io)?;
    if file.is_dir() {
        for entry in std::fs::read_dir(path).map_err(io)? {
            open_tree(&entry.map_err(io)?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_cannot_read_is_refused_and_opened() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("closed");
        let program = closed.join("in/rustc");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        // Made by `tempfile` for the user alone.
        set(folder.path(), 0o755);
        set(&closed, 0o700);
        set(&program, 0o777);
        let error = open_to_others(&program, "do this").unwrap_err().to_string();
        assert!(error.contains(&format!("{} is closed", closed.display())), "{error}");
        assert!(error.ends_with("do this"), "{error}");
        std::os::unix::fs::symlink("/none", closed.join("link")).unwrap();
        open_tree(&closed).unwrap();
        open_to_others(&program, "do this").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&closed), mode(&program)), (0o755, 0o755));
        set(&program, 0o660);
        open_tree(&closed).unwrap();
        assert_eq!(mode(&program), 0o644);
    }

    #[test]
    fn the_script_runs_the_program_with_its_rust_whatever_their_folders_are_called() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("it's $HOME");
        let code = "#!/bin/sh\nprintf '%s|' \"$@\" \"$PATH\"\n";
        install::write_atomically(&program, code, 0o755).unwrap();
        let launcher = folder.path().join("launcher");
        install::write_atomically(&launcher, &script(Path::new("/a b"), &program), 0o755).unwrap();
        let output = std::process::Command::new(&launcher)
            .args(["x y", "*"])
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "x y|*|/a b:/usr/bin:/bin|");
    }
}
