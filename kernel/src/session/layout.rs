//! Names and places that several files of a session share: in the folders of templates and
//! sessions, and in the toolchain that compiles cells.

use std::path::{Path, PathBuf};
use std::process::Command;

use cloze::{Error, Result};

/// evcxr's crate, in templates and sessions alike.
pub const CRATE: &str = "ctx";
pub const LOCK: &str = "Cargo.lock";
/// In a session's folder: the path of its template.
pub const TEMPLATE: &str = "template";
/// In a session's folder: links to the user's toolchain, with this program in place of cargo.
pub const TOOLCHAIN: &str = "toolchain";

/// Names a toolchain to rustup's proxies, and to evcxr, which asks rustup.
pub const TOOLCHAIN_VARIABLE: &str = "RUSTUP_TOOLCHAIN";
/// Where rust-analyzer looks for cargo if there is no rustup.
pub const CARGO_VARIABLE: &str = "CARGO";

/// Returns the folder of the program that stands in for cargo, in a session's folder.
pub fn bin(session: &Path) -> PathBuf {
    session.join(TOOLCHAIN).join("bin")
}

/// Returns the folder of the toolchain that compiles cells.
pub fn sysroot() -> Result<PathBuf> {
    printed("sysroot")
}

/// Returns the folder of Rust's own libraries.
pub fn rust_libraries() -> Result<PathBuf> {
    printed("target-libdir")
}

/// Returns the folder that rustc prints for this name.
fn printed(name: &str) -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", name]).output();
    let output = output.map_err(|error| Error::Failed(format!("cannot run `rustc`: {error}")))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}
