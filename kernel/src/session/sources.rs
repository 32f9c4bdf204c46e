//! Where the sources of Cloze are that a session template is built from.

use std::path::{Path, PathBuf};

use cloze::{Error, Result};

use super::library::{self, Environment};
use super::tree::write;
use crate::paths;

/// The package of the cells' library.
pub const SESSION_CRATE: &str = "cloze-session";
pub const SESSION_VERSION: &str = "0.0.0";

/// Returns the folder of Cloze's sources, or their `copy` in an older template if they are gone, or where cargo puts what
/// it downloads: a program that was installed alone, as cargo-binstall does, has no others. `work` is a folder for cargo.
pub fn find(
    copy: impl FnOnce() -> Option<PathBuf>,
    work: &Path,
    environment: &Environment,
) -> Result<PathBuf> {
    paths::sources().or_else(|missing| match copy() {
        Some(copy) => Ok(copy),
        None => download(work, environment)
            .map_err(|error| Error::Failed(format!("{missing} ({error})"))),
    })
}

/// Makes cargo download this version of Cloze, and returns its folder.
fn download(work: &Path, environment: &Environment) -> Result<PathBuf> {
    let folder = tempfile::tempdir_in(work).map_err(|source| Error::io(work, source))?;
    let folder = folder.path();
    write(&folder.join("src/lib.rs"), "")?;
    let cloze = format!("cloze = \"={}\"", env!("CARGO_PKG_VERSION"));
    write(&folder.join("Cargo.toml"), &package(&cloze))?;
    let metadata = library::packages(folder, &[], environment)?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .find(|package| package["name"] == "cloze")
        .and_then(|package| Some(Path::new(package["manifest_path"].as_str()?).parent()?.into()))
        .ok_or_else(|| Error::Failed("`cargo metadata` does not describe cloze".to_owned()))
}

/// Returns the manifest of a package with one dependency.
pub fn package(dependency: &str) -> String {
    format!(
        "[package]\n\
         name = \"{SESSION_CRATE}\"\n\
         version = \"{SESSION_VERSION}\"\n\
         edition = \"2024\"\n\
         publish = false\n\
         \n\
         [dependencies]\n\
         {dependency}\n"
    )
}
