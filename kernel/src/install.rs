//! Installs the kernel for Jupyter, and removes it again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cloze::{Error, Result};
use jupyter_protocol::JupyterKernelspec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::paths;
use crate::session::{LINE_INTERVAL, Template, Watch};

/// The kernelspec's name, fixed by Cloze's contract.
pub const NAME: &str = "cloze";

/// Installs the kernelspec for the user, or below `prefix`, and everything that a session needs.
pub fn install(prefix: Option<&Path>) -> Result<()> {
    let own: Vec<_> = std::env::vars_os().collect();
    Template::find_or_build(&own, &mut Printed::new()?)?;
    let binary = install_binary()?;
    let folder = kernelspec_folder(prefix)?;
    write_kernelspec(&folder, &binary, environment()?)?;
    cloze::note!("The kernel `{NAME}` is installed in {}.", folder.display());
    Ok(())
}

/// Prints how far a session template is.
pub struct Printed {
    /// Whether a signal has come: cargo would continue without this program.
    ended: Arc<AtomicBool>,
    shown: Option<Instant>,
}

impl Printed {
    pub fn new() -> Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ended))
                .map_err(|error| Error::Failed(format!("cannot wait for signals: {error}")))?;
        }
        Ok(Self { ended, shown: None })
    }
}

impl Watch for Printed {
    fn say(&mut self, line: &str) {
        cloze::note!("{line}");
    }

    fn progress(&mut self, line: &str) {
        if self.shown.is_none_or(|shown| shown.elapsed() >= LINE_INTERVAL) {
            self.shown = Some(Instant::now());
            cloze::note!("{line}");
        }
    }

    fn is_over(&mut self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Removes the kernelspec and everything that was built for it, except the history and the notebooks.
/// Below a `prefix` only the kernelspec is removed: all installations of the user share the rest.
pub fn uninstall(prefix: Option<&Path>) -> Result<()> {
    let kernelspec = kernelspec_folder(prefix)?;
    if prefix.is_some() {
        remove([kernelspec])?;
        cloze::note!("What was built for it stays; `cloze-kernel uninstall` removes that.");
        return Ok(());
    }
    remove([
        kernelspec,
        paths::templates()?,
        paths::sessions()?,
        // A spare ends when its lease is gone.
        paths::spares()?,
        paths::environment()?,
        paths::installed_binary()?,
    ])
}

pub fn remove(paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    for path in paths {
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else if path.exists() {
            std::fs::remove_file(&path)
        } else {
            continue;
        };
        removed.map_err(|source| Error::io(&path, source))?;
        cloze::note!("Removed {}.", path.display());
    }
    Ok(())
}

/// Returns the folder in which Jupyter looks for this kernel.
pub fn kernelspec_folder(prefix: Option<&Path>) -> Result<PathBuf> {
    let jupyter = match prefix {
        Some(prefix) => std::path::absolute(prefix)
            .map_err(|source| Error::io(prefix, source))?
            .join("share")
            .join("jupyter"),
        None => paths::jupyter()?,
    };
    Ok(jupyter.join("kernels").join(NAME))
}

/// Returns the variables that Jupyter adds for the kernel; `${PATH}` stands for Jupyter's PATH.
fn environment() -> Result<HashMap<String, String>> {
    let mut env = HashMap::new();
    for name in [paths::DATA_VARIABLE, paths::SOURCE_VARIABLE] {
        if let Some(folder) = std::env::var_os(name) {
            let folder = std::path::absolute(&folder).map_err(|error| Error::io(&folder, error))?;
            env.insert(name.to_owned(), folder.display().to_string());
        }
    }
    if let Some(tools) = folder_of("rustc") {
        // A Jupyter started from a menu may not have Rust on its PATH.
        let path = format!("{}:${{PATH}}", tools.display());
        env.insert("PATH".to_owned(), path);
    }
    Ok(env)
}

/// Starts a spare session for the first notebook of the Jupyter that is about to start.
pub fn start_spare() -> Result<()> {
    let own = std::env::var("PATH").unwrap_or_default();
    let variables = environment()?
        .into_iter()
        .map(|(name, value)| (name.into(), Some(value.replace("${PATH}", &own).into())));
    // Without it the first notebook waits some seconds longer.
    let _ = crate::spare::start(&install_binary()?, variables);
    Ok(())
}

/// Writes the kernelspec in `folder`; Jupyter adds the variables `env` for the kernel.
pub fn write_kernelspec(folder: &Path, binary: &Path, env: HashMap<String, String>) -> Result<()> {
    let spec = JupyterKernelspec {
        argv: vec![
            binary.display().to_string(),
            "jupyter".to_owned(),
            "{connection_file}".to_owned(),
        ],
        display_name: "Rust (Cloze)".to_owned(),
        language: "rust".to_owned(),
        // Jupyter ignores a kernelspec whose metadata is null.
        metadata: Some(HashMap::new()),
        interrupt_mode: Some("message".to_owned()),
        env: Some(env),
    };
    let text = serde_json::to_string_pretty(&spec)
        .map_err(|error| Error::Failed(format!("writing the kernelspec: {error}")))?;
    paths::create(folder)?;
    let path = folder.join("kernel.json");
    std::fs::write(&path, text + "\n").map_err(|source| Error::io(&path, source))
}

/// Returns the program that Jupyter starts: a copy of this one, which survives `cargo clean`, unless it stays.
fn install_binary() -> Result<PathBuf> {
    // It stays in its place when a new version is installed for all users.
    if let Some(launcher) = paths::launcher() {
        return Ok(launcher);
    }
    let own = paths::this_program()?;
    // A copy would lie apart from the sources that came with this program.
    if paths::sources_beside().is_some() {
        return Ok(own);
    }
    let target = paths::installed_binary()?;
    if own == target {
        return Ok(target);
    }
    copy_atomically(&own, &target)?;
    Ok(target)
}

/// Copies a file so that the old or the new version exists at all times, even if two processes do this at
/// once.
pub fn copy_atomically(from: &Path, to: &Path) -> Result<()> {
    let beside = new_beside(to)?;
    // Copies the permissions too. The session template is found by the program's time.
    let copied = std::fs::copy(from, beside.path())
        .and_then(|_| beside.as_file().set_modified(std::fs::metadata(from)?.modified()?));
    copied.map_err(|source| Error::io(from, source))?;
    persist(beside, to)
}

/// Writes a file in the same way, with these permissions.
pub fn write_atomically(to: &Path, text: &str, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut beside = new_beside(to)?;
    let written = std::io::Write::write_all(&mut beside, text.as_bytes())
        .and_then(|()| beside.as_file().set_permissions(std::fs::Permissions::from_mode(mode)));
    written.map_err(|source| Error::io(to, source))?;
    persist(beside, to)
}

/// Creates a temporary file beside `to`.
fn new_beside(to: &Path) -> Result<tempfile::NamedTempFile> {
    let folder = to.parent().unwrap_or(Path::new("."));
    paths::create(folder)?;
    tempfile::NamedTempFile::new_in(folder).map_err(|source| Error::io(folder, source))
}

fn persist(file: tempfile::NamedTempFile, to: &Path) -> Result<()> {
    let written = file.persist(to);
    written.map(drop).map_err(|failed| Error::io(to, failed.error))
}

/// Returns the folder on PATH that contains `program`.
pub fn folder_of(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).find(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninstalling_below_a_prefix_removes_the_kernelspec_and_nothing_else() {
        let prefix = tempfile::tempdir().unwrap();
        let folder = kernelspec_folder(Some(prefix.path())).unwrap();
        write_kernelspec(&folder, Path::new("/x/cloze-kernel"), HashMap::new()).unwrap();
        let other = folder.with_file_name("other");
        std::fs::create_dir(&other).unwrap();
        for _ in 0..2 {
            uninstall(Some(prefix.path())).unwrap();
            assert!(!folder.exists() && other.exists());
        }
    }

    #[test]
    fn a_program_is_replaced_atomically_with_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, "new").unwrap();
        std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(&to, "old").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| copy_atomically(&from, &to).unwrap());
            }
        });
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "new");
        let modified = |file: &Path| std::fs::metadata(file).unwrap().modified().unwrap();
        assert_eq!(modified(&from), modified(&to));
        let mode = std::fs::metadata(&to).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_kernelspec_below_a_prefix_is_named_by_the_contract() {
        let prefix = tempfile::tempdir().unwrap();
        let folder = kernelspec_folder(Some(prefix.path())).unwrap();
        assert_eq!(folder, prefix.path().join("share/jupyter/kernels/cloze"));
        write_kernelspec(&folder, Path::new("/x/cloze-kernel"), HashMap::new()).unwrap();
        let text = std::fs::read_to_string(folder.join("kernel.json")).unwrap();
        let spec: JupyterKernelspec = serde_json::from_str(&text).unwrap();
        assert_eq!(spec.language, "rust");
        assert_eq!(spec.argv, ["/x/cloze-kernel", "jupyter", "{connection_file}"]);
        assert_eq!(spec.interrupt_mode.as_deref(), Some("message"));
        assert!(spec.metadata.is_some());
    }
}
