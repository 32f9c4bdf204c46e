//! The session template: what every session shares, made once.
//!
//! A template is a folder named by a hash of this program's file and of the compiler:
//!
//! ```text
//! lib/                 the library that cells know as `cloze`, and the metadata of the crates in it
//! source/              a copy of Cloze, which must not change
//! dylib-root/          that library's own crate
//! outline/             the packages on which a session's crate depends, as rust-analyzer reads them
//! outline-std/         and of the standard library
//! .cargo/config.toml   settings for the crates that a user adds
//! finished             locked by each session that uses the template
//! ```
//!
//! Sessions only read it. So all users of a machine can share one that `install --system` has made; it also
//! contains the program, in `bin`.
//!
//! The sources lie beside this program, if it came in an archive or a wheel. Otherwise they are those from which
//! cargo built it: a checkout, or the folder in cargo's registry. Cargo removes what nobody has used for a month
//! from its registry; then the copy in the newest template takes their place. Without such a template, cargo
//! downloads this version of Cloze.
//!
//! Building one takes minutes. If it is interrupted, the next attempt continues with the crates that were compiled.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Instant, UNIX_EPOCH};

use cloze::{Error, Result};
use serde_json::Value;

use super::layout::{
    self, CRATE, DYLIB_ROOT, LOCK, OUTLINE, STANDARD_OUTLINE, TEMPLATE, rust_sources,
};
use super::library::{self, Environment};
use super::outline;
use super::rustc::USER_WRAPPER_VARIABLE;
use super::sources::{self, SESSION_CRATE, SESSION_VERSION};
use super::tree::{copy_tree, name, remove, sorted, write};
use super::visible;
use super::watch::{self, Watch};
use crate::paths;

/// The features of Cloze that cells use: all but the command.
const FEATURES: [&str; 3] = ["charts", "cuda", "hub"];
/// The parts of Cloze's sources that a session needs.
const SOURCES: [&str; 5] = ["Cargo.toml", LOCK, "README.md", "src", "lessons"];
/// Raised when the layout of a template changes.
const FORMAT: u32 = 5;
/// Written last: a template without it was interrupted while it was built.
const FINISHED: &str = "finished";
const SOURCE: &str = "source";
const DYLIB_ROOT_SOURCE: &str = include_str!("dylib_root.rs");

/// A template that is ready for use.
#[derive(Debug, Clone, Hash)]
pub struct Template {
    folder: PathBuf,
}

/// The folder in which a session compiles.
#[derive(Debug)]
pub struct Workshop {
    /// Contains the pipes and `.cargo`.
    pub folder: PathBuf,
    /// The package that cells know as `cloze`.
    visible: PathBuf,
    /// Keeps the template from being removed.
    pub lock: File,
}

impl Workshop {
    /// Returns the commands that give a session its dependencies and settings, one on each line.
    pub fn settings(&self) -> String {
        // evcxr keeps the crates that sessions have added, in megabytes. A wrapper of the user's may do so too,
        // and there can be only one.
        let cache = match std::env::var_os(USER_WRAPPER_VARIABLE) {
            None => ":cache 1024\n",
            Some(_) => "",
        };
        format!(":offline 1\n:linker system\n:opt 1\n{cache}{}", self.dependency())
    }

    /// Returns the command that adds Cloze.
    pub fn dependency(&self) -> String {
        let path = self.visible.display().to_string();
        format!(":dep cloze = {{ package = \"cloze-session\", path = {path:?} }}\n")
    }
}

impl Template {
    /// Returns the template of this program and this compiler, if it is built.
    pub fn find() -> Result<Option<Self>> {
        let program = paths::this_program()?;
        let mut places = vec![Self::place_for(&program)?];
        if let Some(system) = paths::system() {
            places.push(Self::system_place(&system, &program)?);
        }
        Ok(places.into_iter().find(|folder| is_finished(folder)).map(|folder| Self { folder }))
    }

    /// Returns the template, and makes it first if it is missing, which takes time. One process makes it at a time; a
    /// second one waits and finds it done.
    pub fn find_or_build(environment: &Environment, watch: &mut dyn Watch) -> Result<Self> {
        if let Some(found) = Self::find()? {
            return Ok(found);
        }
        if let Some(system) = paths::system() {
            return Err(Error::Failed(format!(
                "{}: no session template fits the compiler on PATH (rustc {}): the administrator must run \
                 `cloze-kernel install --system` again",
                system.display(),
                compiler_version().unwrap_or("of an unknown version"),
            )));
        }
        let folder = Self::place_for(&paths::this_program()?)?;
        Self::build(folder, &paths::templates()?, &origin(), environment, watch)
    }

    /// Makes the template that all users share, below the folder `system`, if it is missing.
    pub fn build_for_system(
        system: &Path,
        environment: &Environment,
        watch: &mut dyn Watch,
    ) -> Result<Self> {
        let folder = Self::system_place(system, &paths::this_program()?)?;
        Self::build(folder, system, "", environment, watch)
    }

    /// Makes the template in `folder`, which is in `templates`, and removes older ones whose names begin with
    /// `origin`.
    fn build(
        folder: PathBuf,
        templates: &Path,
        origin: &str,
        environment: &Environment,
        watch: &mut dyn Watch,
    ) -> Result<Self> {
        paths::create(templates)?;
        let lock = lock(&templates.join("lock"), watch)?;
        if !is_finished(&folder) {
            // Of an interrupted attempt, only what cargo has compiled can be used.
            for part in sorted(&folder).unwrap_or_default() {
                if name(&part) != library::TARGET {
                    remove(&part)?;
                }
            }
            let copy = || Some(newest(templates, origin)?.join(SOURCE));
            let sources = sources::find(copy, templates, environment)?;
            fill(&folder, &sources, environment, lock, watch)?;
            write(&folder.join(FINISHED), "")?;
        }
        remove_others(templates, &folder, origin);
        Ok(Self { folder })
    }

    /// Returns the user's folder for `program`, or an installed copy of it, and this compiler.
    fn place_for(program: &Path) -> Result<PathBuf> {
        let source = std::env::var_os(paths::SOURCE_VARIABLE);
        let name = format!("{}-{}", origin(), fingerprint(program, source)?);
        Ok(paths::templates()?.join(name))
    }

    /// Returns the folder that all users share for `program` and this compiler.
    fn system_place(system: &Path, program: &Path) -> Result<PathBuf> {
        Ok(system.join(fingerprint(program, None)?))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fills a session's own folder from the template.
    pub fn open(&self, session: &Path) -> Result<Workshop> {
        let finished = self.folder.join(FINISHED);
        let lock = File::open(&finished).map_err(|source| Error::io(&finished, source))?;
        // A shared disk may have no locks: then it is the administrator who must not remove the template in use.
        let _ = lock.lock_shared();
        if !is_finished(&self.folder) {
            return Err(Error::Failed(format!(
                "{}: this session template was removed just now: start the session again",
                self.folder.display()
            )));
        }
        write(&session.join(TEMPLATE), &self.folder.display().to_string())?;
        copy_tree(&self.folder.join(".cargo"), &session.join(".cargo"))?;
        let standard = self.folder.join(STANDARD_OUTLINE);
        if standard.exists() {
            let link = session.join(STANDARD_OUTLINE);
            std::os::unix::fs::symlink(standard, &link)
                .map_err(|source| Error::io(link, source))?;
        }
        paths::create(&session.join(CRATE))?;
        let visible =
            self.folder.join(OUTLINE).join(layout::package(SESSION_CRATE, SESSION_VERSION));
        Ok(Workshop { folder: session.to_path_buf(), visible, lock })
    }
}

/// Waits until no other process makes a template.
fn lock(path: &Path, watch: &mut dyn Watch) -> Result<File> {
    let lock = File::create(path).map_err(|source| Error::io(path, source))?;
    let began = Instant::now();
    let mut reported = None;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if watch.is_over() => return Err(library::stopped()),
            Err(TryLockError::WouldBlock) => {
                let state =
                    "another process prepares the library that all sessions share: waiting for it";
                let line = watch::since(began, state);
                // It changes every second.
                if reported.as_ref() != Some(&line) {
                    watch.progress(&line);
                    reported = Some(line);
                }
                std::thread::sleep(watch::INTERVAL);
            }
            Err(TryLockError::Error(source)) => return Err(Error::io(path, source)),
        }
    }
}

/// Makes everything in a template's folder. `lock` stays locked until that is done.
fn fill(
    folder: &Path,
    sources: &Path,
    environment: &Environment,
    lock: File,
    watch: &mut dyn Watch,
) -> Result<()> {
    let began = Instant::now();
    ensure_rust_sources(environment, watch);
    lay_out(sources, folder)?;
    if library::link_beside(folder, sources, environment)? {
        return write_outlines(folder, environment).map(drop);
    }
    watch.say(
        "Preparing the library that all sessions share: cargo downloads and compiles Cloze and its tensors. This happens once per \
         version of Cloze and takes some minutes; cells wait for it.",
    );
    library::fetch(folder, environment, began, watch)?;
    let metadata = write_outlines(folder, environment)?;
    library::build(folder, &metadata, environment, lock, began, watch)?;
    watch.progress(&watch::since(began, "ready"));
    Ok(())
}

/// Installs the standard library's sources, which rust-analyzer needs to infer the types of variables.
/// Without them variables that outlive their cell need written types; everything else works.
fn ensure_rust_sources(environment: &Environment, watch: &mut dyn Watch) {
    if layout::has_rust_sources() {
        return;
    }
    watch.say("Getting the standard library's sources (rustup component add rust-src) …");
    let mut rustup = library::with(environment, "rustup");
    let added = rustup.args(["component", "add", "rust-src"]).output();
    if !added.is_ok_and(|output| output.status.success()) {
        watch.say(
            "The standard library's sources could not be added: variables that live on in later cells need written \
             types (`let v: Vec<i32> = vec![1];`).",
        );
    }
}

/// Writes what rust-analyzer reads of the standard library, if the toolchain has its sources, and of the
/// packages that cells see. Returns cargo's metadata of all packages.
fn write_outlines(folder: &Path, environment: &Environment) -> Result<Value> {
    let standard = rust_sources()?;
    if standard.exists() {
        outline::write_standard_library(&standard, &folder.join(STANDARD_OUTLINE))?;
    }
    // Its lock file, a copy of Cloze's, lacks the package itself.
    let packages = library::packages(&folder.join(DYLIB_ROOT), &[], environment)?;
    visible::write_packages(&packages, &folder.join(OUTLINE))?;
    Ok(packages)
}

/// Returns a hash of where the sources are. All versions in cargo's registry share one origin: their
/// folders differ in the version at the end.
fn origin() -> String {
    let folder = paths::sources_folder();
    let folder = folder.to_string_lossy();
    // The standard hasher will do: only this program reads the hashes, and they protect no secret.
    let mut hasher = DefaultHasher::new();
    folder.trim_end_matches(env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    format!("{:08x}", hasher.finish() as u32)
}

/// Writes what a template has beside its compiled libraries.
fn lay_out(sources: &Path, folder: &Path) -> Result<()> {
    let source = folder.join(SOURCE);
    for name in SOURCES {
        let from = sources.join(name);
        if from.exists() {
            copy_tree(&from, &source.join(name))?;
        }
    }
    let dylib_root = folder.join(DYLIB_ROOT);
    write(&dylib_root.join("src/lib.rs"), DYLIB_ROOT_SOURCE)?;
    write(&dylib_root.join("Cargo.toml"), &dylib_root_manifest(&source))?;
    copy_tree(&sources.join(LOCK), &dylib_root.join(LOCK))?;
    write(&folder.join(".cargo/config.toml"), &cargo_settings(sources)?)
}

/// Returns a value of Cloze's own manifest.
fn manifest_value(sources: &Path, keys: &[&str]) -> Result<toml::Value> {
    let path = sources.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
    let manifest: toml::Table =
        text.parse().map_err(|error: toml::de::Error| Error::file(&path, error.message()))?;
    let value =
        keys.iter().try_fold(&toml::Value::Table(manifest), |value, key| value.get(key)).cloned();
    value.ok_or_else(|| Error::file(&path, format!("expected `{}`", keys.join("."))))
}

/// Returns the dylib root's manifest, with Cloze by its path.
fn dylib_root_manifest(source: &Path) -> String {
    let source = source.display().to_string();
    sources::package(&format!(
        "cloze = {{ path = {source:?}, default-features = false, features = {FEATURES:?} }}"
    ))
}

/// Returns the settings of Cloze's profile for its dependencies and for Cloze itself: no overflow
/// checks, which cost half of the speed of dfdx's products, and opt-level 3 for code that computes.
/// Generic code is compiled in the cells, with evcxr's own settings.
fn cargo_settings(sources: &Path) -> Result<String> {
    let packages = manifest_value(sources, &["profile", "dev", "package"])?;
    let mut packages = packages.as_table().cloned().unwrap_or_default();
    // The other levels are for code that only the kernel runs, or nobody.
    packages.retain(|name, settings| {
        let level = settings.get("opt-level").and_then(toml::Value::as_integer);
        name == "*" || level == Some(3)
    });
    let nest =
        |inner: toml::Table, name: &str| toml::Table::from_iter([(name.to_owned(), inner.into())]);
    let settings = ["package", "dev", "profile"].into_iter().fold(packages, nest);
    Ok(settings.to_string())
}

/// Returns the compiler's full version: a library fits only the compiler that made it.
fn compiler() -> Result<&'static str> {
    static FOUND: OnceLock<String> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let output = Command::new("rustc").arg("-vV").output().map_err(layout::cannot_run("rustc"))?;
    Ok(FOUND.get_or_init(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Returns the version of the compiler that compiles cells, if it is known.
pub fn compiler_version() -> Option<&'static str> {
    release(compiler().ok()?)
}

fn release(description: &str) -> Option<&str> {
    description.lines().find_map(|line| line.strip_prefix("release: "))
}

/// Returns a hash of a program's file, the compiler, and the folder of sources that the user has named.
fn fingerprint(program: &Path, source: Option<OsString>) -> Result<String> {
    let file = std::fs::metadata(program).and_then(|file| Ok((file.len(), file.modified()?)));
    let (size, changed) = file.map_err(|source| Error::io(program, source))?;
    // Archives and images of containers keep whole seconds.
    let changed = changed.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut hasher = DefaultHasher::new();
    (FORMAT, size, changed, compiler()?, source).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

fn is_finished(template: &Path) -> bool {
    template.join(FINISHED).is_file()
}

/// Returns the template that was finished last, of those whose name begins with `prefix`.
fn newest(templates: &Path, prefix: &str) -> Option<PathBuf> {
    let finished = |folder: &PathBuf| {
        let file = std::fs::metadata(folder.join(FINISHED));
        file.and_then(|file| file.modified()).ok()
    };
    let all = sorted(templates).ok()?.into_iter();
    all.filter(|folder| name(folder).starts_with(prefix) && is_finished(folder))
        .max_by_key(finished)
}

/// Removes other templates of this origin that neither a running session nor the installed kernel
/// uses. A template that cannot be removed only takes space.
fn remove_others(templates: &Path, keep: &Path, origin: &str) {
    let installed = paths::installed_binary().and_then(|program| Template::place_for(&program));
    let kept = |folder: &PathBuf| folder == keep || installed.as_ref().is_ok_and(|it| it == folder);
    let mut others = sorted(templates).unwrap_or_default();
    others.retain(|folder| folder.is_dir() && name(folder).starts_with(origin) && !kept(folder));
    for other in others {
        // An interrupted one has no such file. The lock is held while the template is removed.
        let lock = File::options().write(true).open(other.join(FINISHED));
        if lock.as_ref().is_ok_and(|file| file.try_lock().is_err()) {
            continue;
        }
        let _ = remove(&other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_compiler_reports_its_version() {
        let description = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nrelease: 1.95.0\nLLVM version: 20\n";
        assert_eq!(release(description), Some("1.95.0"));
        assert_eq!(release("rustc 1.95.0"), None);
        let version = compiler_version().unwrap();
        assert!(compiler().unwrap().starts_with(&format!("rustc {version} (")));
    }

    #[test]
    fn a_template_fits_a_program_that_was_unpacked_with_times_in_whole_seconds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let at = |time: Duration| {
            file.as_file().set_modified(UNIX_EPOCH + time).unwrap();
            fingerprint(file.path(), None).unwrap()
        };
        let packed = at(Duration::from_millis(1_800_000_000_700));
        assert_eq!(at(Duration::from_secs(1_800_000_000)), packed);
        assert_ne!(at(Duration::from_secs(1_800_000_001)), packed);
    }

    #[test]
    fn a_session_optimises_what_the_workspace_does() {
        let settings = cargo_settings(&paths::sources().unwrap()).unwrap();
        let settings: toml::Table = settings.parse().unwrap();
        let packages = settings["profile"]["dev"]["package"].as_table().unwrap();
        assert_eq!(packages["dfdx"]["opt-level"].as_integer(), Some(3));
        assert_eq!(packages["cloze"]["opt-level"].as_integer(), Some(3));
        assert_eq!(packages["*"]["overflow-checks"].as_bool(), Some(false));
        assert!(!packages.contains_key("ra_ap_hir"));
    }
}
