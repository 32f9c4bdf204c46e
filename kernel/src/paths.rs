//! Where Cloze keeps what it builds for the user: `$CLOZE_DATA`, or `cloze` in the user's data
//! folder (`$XDG_DATA_HOME`, usually `~/.local/share`).

use std::path::{Path, PathBuf};

pub use cloze::files::DATA_VARIABLE;
use cloze::{Error, Result};

/// Overrides the file of [`history`].
pub const HISTORY_VARIABLE: &str = "CLOZE_HISTORY";
/// Overrides the folder of [`repository`].
pub const SOURCE_VARIABLE: &str = "CLOZE_SOURCE";

/// The folder that holds everything below.
pub fn data() -> Result<PathBuf> {
    let folder = data_folder()?;
    outside_any_crate(&folder)?;
    Ok(folder)
}

fn data_folder() -> Result<PathBuf> {
    let folder = cloze::files::data_folder().ok_or_else(|| {
        Error::Failed(format!(
            "there is no user data folder: set {DATA_VARIABLE} to a folder of your own"
        ))
    })?;
    std::path::absolute(&folder).map_err(|source| Error::io(folder, source))
}

/// Refuses a folder below a `Cargo.toml`: cargo would take the sessions' crates for members of that
/// workspace and refuse them.
fn outside_any_crate(folder: &Path) -> Result<()> {
    let manifests = folder.ancestors().map(|above| above.join("Cargo.toml"));
    match manifests.into_iter().find(|manifest| manifest.is_file()) {
        None => Ok(()),
        Some(manifest) => Err(Error::Failed(format!(
            "{}: Cloze can't keep its data below {}, because cargo would count the sessions there \
             as part of that crate: set {DATA_VARIABLE} to a folder elsewhere",
            folder.display(),
            manifest.display()
        ))),
    }
}

/// Where Jupyter keeps what is the user's: `$JUPYTER_DATA_DIR`, or its usual place.
pub fn jupyter() -> Result<PathBuf> {
    match std::env::var_os("JUPYTER_DATA_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => Ok(folder.into()),
        None => jupyter_zmq_client::user_data_dir().map_err(|error| {
            Error::Failed(format!(
                "Jupyter's data folder is not known ({error}): give one with --prefix"
            ))
        }),
    }
}

/// Session templates, one a version of the sources and the compiler.
pub fn templates() -> Result<PathBuf> {
    Ok(data()?.join("templates"))
}

/// Folders of running sessions. At the same depth as templates, so that library search paths
/// relative to a template's folder hold in a session's.
pub fn sessions() -> Result<PathBuf> {
    Ok(data()?.join("sessions"))
}

/// Where a warmed session waits for the next kernel.
pub fn spares() -> Result<PathBuf> {
    Ok(data()?.join("spares"))
}

/// The private Python environment with JupyterLab.
pub fn environment() -> Result<PathBuf> {
    Ok(data()?.join("python"))
}

/// The copy of this binary that the kernelspec names, so that `cargo clean` leaves it working.
pub fn installed_binary() -> Result<PathBuf> {
    Ok(data()?.join("bin").join("cloze-kernel"))
}

/// The cells typed in the REPL.
pub fn history() -> Result<PathBuf> {
    if let Some(file) = std::env::var_os(HISTORY_VARIABLE).filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(file));
    }
    Ok(data()?.join("history.txt"))
}

/// The inputs of notebooks' cells.
pub fn notebook_history() -> Result<PathBuf> {
    Ok(data()?.join("notebook-history.jsonl"))
}

/// The clone of Cloze's repository that this binary was built from.
pub fn repository() -> Result<PathBuf> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = std::env::var_os(SOURCE_VARIABLE).map_or(built_from, PathBuf::from);
    let folder = folder.canonicalize().map_err(|_| missing(&folder))?;
    if folder.join("src").join("lib.rs").is_file() && folder.join("Cargo.lock").is_file() {
        Ok(folder)
    } else {
        Err(missing(&folder))
    }
}

fn missing(folder: &Path) -> Error {
    Error::Failed(format!(
        "{}: the sources of Cloze are not there any more: run `cargo lab` in a clone of its \
         repository, or set CLOZE_SOURCE to one",
        folder.display()
    ))
}

/// Makes a folder with all its parents.
pub fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))
}

/// Lets nobody but the user look into a folder.
pub fn make_private(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
        .map_err(|source| Error::io(folder, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_folder_is_open_to_the_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private");
        create(&path).unwrap();
        make_private(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_data_folder_inside_a_crate_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("deep").join("data");
        assert!(outside_any_crate(&data).is_ok());
        std::fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        let told = outside_any_crate(&data).unwrap_err().to_string();
        assert!(
            told.contains("Cargo.toml") && told.contains(DATA_VARIABLE),
            "{told}"
        );
    }
}
