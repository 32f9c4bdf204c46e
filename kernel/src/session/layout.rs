//! Names and places that several files of a session share: in the folders of templates and
//! sessions, and in the toolchain that compiles cells.

use std::env::consts::DLL_SUFFIX;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use cloze::{Error, Result};

/// evcxr's crate, in a session's folder.
pub const CRATE: &str = "ctx";
pub const LOCK: &str = "Cargo.lock";
/// In a session's folder: the path of its template.
pub const TEMPLATE: &str = "template";
/// In a session's folder: links to the user's toolchain, with this program in place of cargo.
pub const TOOLCHAIN: &str = "toolchain";

/// In a template's folder: the library that cells know as `cloze`, and the metadata of the crates in it.
pub const LIBRARIES: &str = "lib";

/// In a template's folder: that library's crate.
pub const DYLIB_ROOT: &str = "dylib-root";

/// In a template's folder: what rust-analyzer reads of the crates that cells see, one folder for each.
pub const OUTLINE: &str = "outline";

/// In a template's and in a session's folder: what rust-analyzer reads of the standard library.
pub const STANDARD_OUTLINE: &str = "outline-std";

/// Where rust-analyzer looks for the sources of the standard library before it asks the toolchain.
pub const STANDARD_SOURCES_VARIABLE: &str = "RUST_SRC_PATH";

/// Names a toolchain to rustup's proxies, and to evcxr, which asks rustup.
pub const TOOLCHAIN_VARIABLE: &str = "RUSTUP_TOOLCHAIN";
/// Where rust-analyzer looks for cargo if there is no rustup.
pub const CARGO_VARIABLE: &str = "CARGO";
/// Where evcxr looks for cargo if there is no rustup.
pub const PATH_VARIABLE: &str = "PATH";

/// Returns the folder of the program that stands in for cargo, in a session's folder.
pub fn bin(session: &Path) -> PathBuf {
    session.join(TOOLCHAIN).join("bin")
}

/// Returns the folder of the compiled libraries for a session in `folder`.
pub fn libraries(folder: &Path) -> std::io::Result<PathBuf> {
    Ok(Path::new(&std::fs::read_to_string(folder.join(TEMPLATE))?).join(LIBRARIES))
}

/// Returns the name of a package's folder.
pub fn package(name: &str, version: &str) -> String {
    format!("{name}-{version}")
}

/// Returns the path of the library that cells know as `cloze`, in the folder `libraries`.
pub fn library(libraries: &Path) -> PathBuf {
    libraries.join(format!("libcloze_session{DLL_SUFFIX}"))
}

/// Returns the path of the cells' standard library, in the folder `libraries`.
pub fn standard_library(libraries: &Path) -> PathBuf {
    libraries.join(format!("libstd{DLL_SUFFIX}"))
}

/// Returns the arguments with which rustc finds the cells' library.
pub fn cells_library(libraries: &Path) -> [OsString; 4] {
    find("cloze", &library(libraries), libraries)
}

/// Returns the arguments with which rustc finds the library of a crate, and in `folder` those that it
/// depends on.
pub fn find(name: &str, library: &Path, folder: &Path) -> [OsString; 4] {
    let with = |beginning: String, path: &Path| {
        let mut text = OsString::from(beginning);
        text.push(path);
        text
    };
    [
        "--extern".into(),
        with(format!("{name}="), library),
        "-L".into(),
        with("dependency=".to_owned(), folder),
    ]
}

/// Returns the folder of the toolchain that compiles cells.
pub fn sysroot() -> Result<PathBuf> {
    printed("sysroot").map(PathBuf::from)
}

/// Returns the folder of Rust's own libraries.
pub fn rust_libraries() -> Result<PathBuf> {
    printed("target-libdir").map(PathBuf::from)
}

/// Returns the folder of the standard library's sources, which a toolchain may lack.
pub fn rust_sources() -> Result<PathBuf> {
    Ok(sysroot()?.join("lib/rustlib/src/rust/library"))
}

/// Returns whether rust-analyzer will find the standard library's sources.
pub fn has_rust_sources() -> bool {
    std::env::var_os(STANDARD_SOURCES_VARIABLE).is_some_and(|path| Path::new(&path).is_dir())
        || rust_sources().is_ok_and(|folder| folder.is_dir())
}

/// Returns the name of the platform for which rustc compiles.
pub fn host() -> Result<String> {
    printed("host-tuple")
}

/// Returns what rustc prints for this name.
fn printed(name: &str) -> Result<String> {
    let output = Command::new("rustc").args(["--print", name]).output();
    let output = output.map_err(cannot_run("rustc"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Failed(format!("`rustc --print {name}` failed: {}", reason.trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the error of a program of the toolchain that does not run.
pub fn cannot_run(program: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| {
        Error::Failed(format!(
            "cannot run `{program}` ({error}): cells are compiled, so install Rust {} or newer from \
             https://rustup.rs, and a C compiler, and put both on PATH",
            env!("CARGO_PKG_RUST_VERSION"),
        ))
    }
}
