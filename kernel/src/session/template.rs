//! The session template: what every session shares, made once.
//!
//! A template is a folder named by a hash of this program's file and of the compiler:
//!
//! ```text
//! lib/                 the library that cells know as `cloze`, and the metadata of the crates in it
//! source/              a copy of Cloze, which must not change
//! dylib-root/          that library as rust-analyzer sees it: a crate of its own
//! outline/             what rust-analyzer reads of the crates that cells see
//! outline-std/         and of the standard library
//! .cargo/config.toml   settings for the crates that a user adds
//! Cargo.lock           the versions of Cloze's lock file
//! ```
//!
//! The sources are those from which cargo built this program: a checkout, or the folder in cargo's
//! registry. Cargo removes what nobody has used for a month from its registry; then the copy in the
//! newest template takes their place.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cloze::{Error, Result};
use serde_json::Value;

use super::cargo;
use super::folder;
use super::layout::{
    self, CRATE, DYLIB_ROOT, LOCK, OUTLINE, STANDARD_OUTLINE, TEMPLATE, rust_sources,
};
use super::library::{self, Environment};
use super::outline;
use super::rustc::USER_WRAPPER_VARIABLE;
use super::tree::{copy_tree, name, remove, sorted, write};
use crate::paths;

/// The features of Cloze that cells use: all but the command.
const FEATURES: [&str; 3] = ["charts", "cuda", "hub"];
/// The parts of Cloze's sources that a session needs.
const SOURCES: [&str; 5] = ["Cargo.toml", LOCK, "README.md", "src", "lessons"];
/// Raised when the layout of a template changes.
const FORMAT: u32 = 4;
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
#[derive(Debug, Clone)]
pub struct Workshop {
    /// Contains the pipes, `.cargo` and `Cargo.lock`.
    pub folder: PathBuf,
    dylib_root: PathBuf,
}

impl Workshop {
    /// Restores the lock file in evcxr's crate: evcxr's own first cell has no dependencies and
    /// empties it.
    pub fn restore_lock(&self) -> Result<()> {
        let from = self.folder.join(LOCK);
        std::fs::copy(&from, self.folder.join(CRATE).join(LOCK))
            .map(drop)
            .map_err(|source| Error::io(from, source))
    }

    /// Returns the commands that give a session its dependencies and settings, one on each line.
    pub fn settings(&self) -> String {
        // evcxr keeps the crates that sessions have added, in megabytes. A wrapper of the user's may do so too,
        // and there can be only one.
        let cache = match std::env::var_os(USER_WRAPPER_VARIABLE) {
            None => ":cache 1024\n",
            Some(_) => "",
        };
        format!(
            ":offline 1\n:linker system\n:opt 1\n{cache}:dep cloze = {{ package = \"cloze-session\", path = {:?} }}\n",
            self.dylib_root.display().to_string()
        )
    }
}

impl Template {
    /// Returns the template of this program and this compiler, if it is built.
    pub fn find() -> Result<Option<Self>> {
        let folder = Self::place()?;
        Ok(is_finished(&folder).then_some(Self { folder }))
    }

    /// Returns the template, and makes it first if it is missing; `say` gets a line if that takes
    /// time. One process makes it at a time; a second one waits and finds it done.
    pub fn find_or_build(environment: &Environment, say: impl FnMut(&str)) -> Result<Self> {
        if let Some(found) = Self::find()? {
            return Ok(found);
        }
        let templates = paths::templates()?;
        paths::create(&templates)?;
        let lock_path = templates.join("lock");
        let lock = File::create(&lock_path).map_err(|source| Error::io(&lock_path, source))?;
        lock.lock().map_err(|source| Error::io(&lock_path, source))?;
        let folder = Self::place()?;
        if !is_finished(&folder) {
            remove(&folder)?;
            fill(&folder, environment, say)?;
            write(&folder.join(FINISHED), "")?;
            remove_others(&templates, &folder);
        }
        Ok(Self { folder })
    }

    /// Returns the folder for this program and this compiler.
    fn place() -> Result<PathBuf> {
        Self::place_for(&paths::this_program()?)
    }

    /// Returns the folder for `program`, or an installed copy of it, and this compiler.
    fn place_for(program: &Path) -> Result<PathBuf> {
        let file = std::fs::metadata(program).and_then(|file| Ok((file.len(), file.modified()?)));
        let file = file.map_err(|source| Error::io(program, source))?;
        let mut hasher = DefaultHasher::new();
        (FORMAT, file, compiler()?, std::env::var_os(paths::SOURCE_VARIABLE)).hash(&mut hasher);
        Ok(paths::templates()?.join(format!("{}-{:016x}", origin(), hasher.finish())))
    }

    /// Fills a session's own folder from the template.
    pub fn open(&self, session: &Path) -> Result<Workshop> {
        // Written before anything is copied: a template that no session names may be removed.
        write(&session.join(TEMPLATE), &self.folder.display().to_string())?;
        for name in [".cargo", LOCK] {
            copy_tree(&self.folder.join(name), &session.join(name))?;
        }
        let standard = self.folder.join(STANDARD_OUTLINE);
        if standard.exists() {
            let link = session.join(STANDARD_OUTLINE);
            std::os::unix::fs::symlink(standard, &link)
                .map_err(|source| Error::io(link, source))?;
        }
        paths::create(&session.join(CRATE))?;
        Ok(Workshop { folder: session.to_path_buf(), dylib_root: self.folder.join(DYLIB_ROOT) })
    }
}

/// Makes everything in a template's folder.
fn fill(folder: &Path, environment: &Environment, say: impl FnMut(&str)) -> Result<()> {
    let sources = sources()?;
    let packages = library::packages(&sources, environment)?;
    lay_out(&sources, folder)?;
    outline_packages(&packages, folder)?;
    library::build(folder, &library::needed(&packages, "cloze"), environment, say)
}

/// Writes what rust-analyzer reads of the standard library, if the toolchain has its sources, and of the
/// packages that cells see.
fn outline_packages(packages: &Value, folder: &Path) -> Result<()> {
    let standard = rust_sources()?;
    if standard.exists() {
        outline::write_standard_library(&standard, &folder.join(STANDARD_OUTLINE))?;
    }
    for (name, version, source) in cargo::visible_packages(packages) {
        let to = folder.join(OUTLINE).join(layout::package(name, version));
        outline::write_crate(&source, &to)?;
    }
    Ok(())
}

/// Returns the folder of Cloze's sources, or their copy in the newest template if they are gone.
fn sources() -> Result<PathBuf> {
    paths::sources().or_else(|missing| {
        let newest = newest(&paths::templates()?, &origin()).ok_or(missing)?;
        Ok(newest.join(SOURCE))
    })
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
    copy_tree(&sources.join(LOCK), &folder.join(LOCK))?;
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
    format!(
        "[package]\n\
         name = \"cloze-session\"\n\
         version = \"0.0.0\"\n\
         edition = \"2024\"\n\
         publish = false\n\
         \n\
         [dependencies]\n\
         cloze = {{ path = {:?}, default-features = false, features = {:?} }}\n\
         ",
        source.display().to_string(),
        FEATURES,
    )
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
    let output = Command::new("rustc").arg("-vV").output().map_err(library::cannot_run("rustc"))?;
    Ok(FOUND.get_or_init(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Returns the version of the compiler that compiles cells, if it is known.
pub fn compiler_version() -> Option<&'static str> {
    release(compiler().ok()?)
}

fn release(description: &str) -> Option<&str> {
    description.lines().find_map(|line| line.strip_prefix("release: "))
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
fn remove_others(templates: &Path, keep: &Path) {
    let mut used = folder::templates_in_use();
    used.extend(paths::installed_binary().and_then(|program| Template::place_for(&program)));
    for other in sorted(templates).unwrap_or_default() {
        if other != keep && name(&other).starts_with(&origin()) && !used.contains(&other) {
            let _ = remove(&other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_reports_its_version() {
        let description = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nrelease: 1.95.0\nLLVM version: 20\n";
        assert_eq!(release(description), Some("1.95.0"));
        assert_eq!(release("rustc 1.95.0"), None);
        let version = compiler_version().unwrap();
        assert!(compiler().unwrap().starts_with(&format!("rustc {version} (")));
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
