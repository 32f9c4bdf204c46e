//! Where Cloze keeps what it builds for the user: `$CLOZE_DATA`, or `cloze` in the user's data
//! folder (`$XDG_DATA_HOME`, usually `~/.local/share`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use cloze::files::DATA_VARIABLE;
use cloze::{Error, Result};

/// Overrides the file of [`history`].
pub const HISTORY_VARIABLE: &str = "CLOZE_HISTORY";
/// Overrides the folder of [`sources`].
pub const SOURCE_VARIABLE: &str = "CLOZE_SOURCE";

/// Returns the folder that contains everything below.
pub fn data() -> Result<PathBuf> {
    let folder = cloze::files::data_folder().ok_or_else(|| {
        Error::Failed(format!(
            "there is no user data folder: set {DATA_VARIABLE} to a folder of your own"
        ))
    })?;
    let folder = std::path::absolute(&folder).map_err(|source| Error::io(folder, source))?;
    outside_any_crate(&folder)?;
    Ok(folder)
}

/// Refuses a folder below a `Cargo.toml`: cargo would take the sessions' crates for members of that
/// workspace and refuse them.
fn outside_any_crate(folder: &Path) -> Result<()> {
    let mut manifests = folder.ancestors().map(|above| above.join("Cargo.toml"));
    match manifests.find(|manifest| manifest.is_file()) {
        None => Ok(()),
        Some(manifest) => Err(Error::Failed(format!(
            "{}: Cloze can't keep its data below {}, because cargo would count the sessions there \
             as part of that crate: set {DATA_VARIABLE} to a folder elsewhere",
            folder.display(),
            manifest.display()
        ))),
    }
}

/// Returns where Jupyter keeps the user's data: `$JUPYTER_DATA_DIR`, or its usual place.
pub fn jupyter() -> Result<PathBuf> {
    match std::env::var_os("JUPYTER_DATA_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => Ok(folder.into()),
        None => jupyter_zmq_client::user_data_dir().map_err(|error| {
            Error::Failed(format!(
                "Jupyter's data folder is not known ({error}): name one with --prefix"
            ))
        }),
    }
}

/// Session templates, one for each version of this program and the compiler.
pub fn templates() -> Result<PathBuf> {
    Ok(data()?.join("templates"))
}

/// Below the prefix of `install --system`: the templates of all users, each with its program.
pub const SYSTEM: &str = "lib/cloze";
/// Below that prefix, the script that runs one of these programs; and the program in its template.
pub const PROGRAM: &str = "bin/cloze-kernel";

/// Returns that folder if this program is one of those in it.
pub fn system() -> Option<PathBuf> {
    let program = this_program().ok()?.canonicalize().ok()?;
    // `<prefix>/lib/cloze/<template>/bin/cloze-kernel`
    let folder = program.ancestors().nth(3)?;
    folder.ends_with(SYSTEM).then(|| folder.to_owned())
}

/// Returns the script that runs the newest of those programs, if this program is one of them.
pub fn launcher() -> Option<PathBuf> {
    system()?.ancestors().nth(2).map(|prefix| prefix.join(PROGRAM))
}

/// Folders of running sessions.
pub fn sessions() -> Result<PathBuf> {
    Ok(data()?.join("sessions"))
}

/// The sockets of warmed sessions that wait for the next kernel.
pub fn spares() -> Result<PathBuf> {
    Ok(data()?.join("spares"))
}

/// The private Python environment with JupyterLab.
pub fn environment() -> Result<PathBuf> {
    Ok(data()?.join("python"))
}

/// The copy of this program that the kernelspec names, which survives `cargo clean`.
pub fn installed_binary() -> Result<PathBuf> {
    Ok(data()?.join("bin").join("cloze-kernel"))
}

/// The cells typed in the REPL.
pub fn history() -> Result<PathBuf> {
    match std::env::var_os(HISTORY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(file) => Ok(file.into()),
        None => Ok(data()?.join("history.txt")),
    }
}

/// The inputs of notebooks' cells.
pub fn notebook_history() -> Result<PathBuf> {
    Ok(data()?.join("notebook-history.jsonl"))
}

/// The lessons' notebooks: in the checkout, or in the data folder if there is none.
pub fn notebooks() -> Result<PathBuf> {
    let checkout = sources_folder();
    // A checkout from which the administrator has installed the kernel is not the user's.
    if system().is_none() && checkout.join("kernel").join("Cargo.toml").is_file() {
        return Ok(checkout.join("notebooks"));
    }
    Ok(data()?.join("notebooks"))
}

/// Returns the folder of Cloze's sources: the one that the user has named, one beside this program, or the
/// one from which cargo built it, which is a checkout or a folder of cargo's registry.
pub fn sources() -> Result<PathBuf> {
    let folder = sources_folder();
    if folder.join("src").join("lib.rs").is_file() && folder.join("Cargo.lock").is_file() {
        return Ok(folder);
    }
    Err(Error::Failed(format!(
        "{}: the sources of Cloze are no longer there: install cloze-kernel again, run `cargo lab` in \
         a clone of its repository, or set {SOURCE_VARIABLE} to one",
        folder.display()
    )))
}

/// Returns that folder, whether or not it exists.
pub fn sources_folder() -> PathBuf {
    choose(std::env::var_os(SOURCE_VARIABLE), sources_beside())
}

fn choose(named: Option<OsString>, beside: Option<PathBuf>) -> PathBuf {
    let folder = named.map(PathBuf::from).or(beside);
    let folder = folder.unwrap_or_else(|| PathBuf::from(cloze::files::SOURCES));
    folder.canonicalize().unwrap_or(folder)
}

/// Returns the sources that an archive or a wheel has put beside this program, if it came with one.
pub fn sources_beside() -> Option<PathBuf> {
    beside(&this_program().ok()?)
}

fn beside(program: &Path) -> Option<PathBuf> {
    // `<prefix>/bin/cloze-kernel`
    let folder = program.canonicalize().ok()?.ancestors().nth(2)?.join("share/cloze/source");
    folder.is_dir().then_some(folder)
}

/// Returns the file of this program.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|error| Error::Failed(format!("cannot find this program's file: {error}")))
}

/// Creates a folder with all its parents.
pub fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))
}

/// Makes a folder accessible to the user only.
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
        let error = outside_any_crate(&data).unwrap_err().to_string();
        assert!(error.contains("Cargo.toml") && error.contains(DATA_VARIABLE));
    }

    #[test]
    fn named_sources_come_before_those_beside_the_program_and_these_before_those_it_was_built_from()
    {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().canonicalize().unwrap();
        let program = prefix.join("bin/cloze-kernel");
        create(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        assert_eq!(beside(&program), None);
        let source = prefix.join("share/cloze/source");
        create(&source).unwrap();
        // A link elsewhere, as in `~/bin`, leads to the program's own prefix.
        let link = prefix.join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        for program in [&program, &link] {
            assert_eq!(beside(program), Some(source.clone()));
        }
        assert_eq!(choose(Some("/named".into()), Some(source.clone())), Path::new("/named"));
        assert_eq!(choose(None, Some(source.clone())), source);
        assert!(choose(None, None).join("kernel/Cargo.toml").is_file());
    }
}
