//! A stand-in for cargo that compiles cells without Cloze, and in most cases without cargo.
//!
//! A session has a toolchain folder of its own: links to the user's toolchain, except that its `cargo` is this
//! program. The real cargo compiles the crates that the user has added, and the cell, but not Cloze: it gets a
//! manifest without Cloze, and rustc gets the compiled library of the session template. If only the cell is to be
//! compiled, no cargo is needed at all, see [`super::rustc`].

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use cloze::{Error, Result};

use super::layout::{
    self, CARGO_VARIABLE, LOCK, PATH_VARIABLE, TOOLCHAIN, TOOLCHAIN_VARIABLE, bin, sysroot,
};
use super::markers;
use super::rustc::{self, Replay};
use crate::paths;

/// The real cargo, beside the link that stands in for it.
const REAL: &str = "cargo-real";

/// The folder, in evcxr's crate, of the package that does not depend on Cloze.
const WITHOUT_CLOZE: &str = "without-cloze";

/// Acts as cargo, or as rustc's wrapper, if this program was started under such a name.
pub fn run_if_cargo() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = PathBuf::from(arguments.next()?);
    if program.file_name() != Some(OsStr::new("cargo")) {
        return rustc::run_if_recorder();
    }
    let real = program.with_file_name(REAL);
    let arguments: Vec<OsString> = arguments.collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let mut command = Command::new(&real);
    if has("build") {
        if rustc::is_unread(&program) {
            return Some(ExitCode::FAILURE);
        }
        if let Err(error) = markers::prepare_cell(program.parent()?) {
            cloze::note!("the cell's code cannot be prepared: {error}");
            return Some(ExitCode::FAILURE);
        }
    }
    let failed = |error| {
        cloze::note!("cannot run {}: {error}", real.display());
        Some(ExitCode::FAILURE)
    };
    let ended = |status: std::io::Result<ExitStatus>| match status {
        Ok(status) => Some(ExitCode::from(status.code().map_or(1, |code| code as u8))),
        Err(error) => failed(error),
    };
    if has("build") || has("check") {
        let prepared = if has("check") { rustc::prepare_check(&program) } else { Ok(()) };
        return ended(prepared.and_then(|()| compile(&program, &arguments, &mut command)));
    }
    command.args(&arguments);
    let Some(lock) = lock_to_keep().filter(|_| has("metadata")) else {
        return failed(command.exec());
    };
    let status = command.status();
    // Without it the next build would compile other versions of the crates that were added before.
    let _ = std::fs::write(LOCK, lock);
    ended(status)
}

/// Compiles a cell: with rustc alone, in which case this does not return, or with `cargo`.
fn compile(
    program: &Path,
    arguments: &[OsString],
    cargo: &mut Command,
) -> std::io::Result<ExitStatus> {
    let bin = program.parent().unwrap_or(Path::new("."));
    // Three levels below the session's folder, see `layout::bin`.
    let session = program.ancestors().nth(3).unwrap_or(Path::new("."));
    let replay = Replay::of(bin, arguments);
    if let Some(replay) = &replay {
        replay.run();
    }
    without_cloze(Path::new(WITHOUT_CLOZE))?;
    // A check is a build too: its crates are compiled already, and those of `cargo check` are not.
    cargo.args(arguments.iter().map(|argument| match argument.to_str() {
        Some("check") => OsStr::new("build"),
        _ => argument,
    }));
    cargo.arg("--manifest-path").arg(Path::new(WITHOUT_CLOZE).join("Cargo.toml"));
    // evcxr keeps crates that are compiled without incremental state, and finds them by rustc's arguments alone. If the
    // user's settings forbade that state, it would take an earlier cell for this one.
    cargo.env("CARGO_INCREMENTAL", "1");
    rustc::record(bin, &layout::libraries(session)?, cargo);
    let status = cargo.status()?;
    if status.success() {
        // rust-analyzer and later builds use these versions of the user's crates too. Without the file, cargo chooses.
        let _ = std::fs::copy(Path::new(WITHOUT_CLOZE).join(LOCK), LOCK);
        if let Some(replay) = replay {
            replay.keep();
        }
    }
    Ok(status)
}

/// Writes a package that contains the cell, as evcxr's own does, but does not depend on Cloze.
fn without_cloze(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let manifest = std::fs::read_to_string("Cargo.toml")?;
    let others = manifest.split_inclusive('\n').filter(|line| !line.starts_with("cloze = "));
    std::fs::write(folder.join("Cargo.toml"), others.collect::<String>())?;
    // So that the versions of the user's crates stay. Without the file, cargo chooses.
    let _ = std::fs::copy(LOCK, folder.join(LOCK));
    match symlink("../src", folder.join("src")) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Returns the lock file if evcxr asks about a crate to add. It does so with a manifest that contains
/// only that crate, and cargo then forgets the versions of all others.
fn lock_to_keep() -> Option<Vec<u8>> {
    let manifest = std::fs::read_to_string("Cargo.toml").ok()?;
    if !manifest.contains("evcxr_dummy_validate_dep") {
        return None;
    }
    std::fs::read(LOCK).ok()
}

/// Creates the toolchain folder in `session` and returns the variables that point to it.
pub fn stand_in(session: &Path) -> Result<[(&'static str, OsString); 3]> {
    let sysroot = sysroot()?;
    let folder = session.join(TOOLCHAIN);
    let io = |source| Error::io(&folder, source);
    let bin = bin(session);
    std::fs::create_dir_all(&bin).map_err(io)?;
    link_all(&sysroot, &folder, "bin").map_err(io)?;
    link_all(&sysroot.join("bin"), &bin, "cargo").map_err(io)?;
    let cargo = bin.join("cargo");
    symlink(sysroot.join("bin").join("cargo"), bin.join(REAL)).map_err(io)?;
    for program in [&cargo, &bin.join(rustc::RECORDER)] {
        symlink(paths::this_program()?, program).map_err(io)?;
    }
    let mut path = OsString::from(bin);
    if let Some(before) = std::env::var_os(PATH_VARIABLE) {
        path.push(":");
        path.push(before);
    }
    Ok([(TOOLCHAIN_VARIABLE, folder.into()), (CARGO_VARIABLE, cargo.into()), (PATH_VARIABLE, path)])
}

/// Links every entry of `from` except `except` into `to`.
fn link_all(from: &Path, to: &Path, except: &str) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() != except {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
