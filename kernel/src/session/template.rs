//! The session template: everything that a session compiles before its first cell, compiled once.
//!
//! A template is a folder named by hashes of where Cloze's sources are, of the compiler, and of the
//! sources themselves:
//!
//! ```text
//! source/              a copy of Cloze, so that a session never sees it change
//! dylib-root/          the library that cells know as `cloze` (crate type dylib)
//! .cargo/config.toml   optimised dependencies, over evcxr's own settings
//! Cargo.lock           the versions of Cloze's lock file, completed
//! ctx/                 evcxr's crate with its target folder
//! ```
//!
//! A session gets a folder of its own with copies of `ctx`, `Cargo.lock` and `.cargo`; `source` and
//! `dylib-root` stay where they are, because cargo knows a path dependency by its absolute path.
//!
//! The sources are those from which cargo built this program: a checkout, or the folder in cargo's
//! registry. Cargo removes what nobody has used for a month from its registry; then the copy in the
//! newest template takes their place.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cloze::{Error, Result};

use super::layout::{CRATE, LOCK, TEMPLATE, rust_libraries};
use super::tree::{copy_dependencies, copy_tree, hash_tree, remove, sorted, write};
use super::{channel, folder, input};
use crate::paths;

/// The features of Cloze that cells use: all but the command.
const FEATURES: [&str; 3] = ["charts", "cuda", "hub"];
/// The parts of Cloze's sources that a session needs.
const SOURCES: [&str; 5] = ["Cargo.toml", LOCK, "README.md", "src", "lessons"];
/// Raised when the layout of a template changes.
const FORMAT: u32 = 2;
/// Written last: a template without it was interrupted while it was built.
const FINISHED: &str = "finished";
const SOURCE: &str = "source";
const DYLIB_ROOT: &str = "dylib-root";
const DYLIB_ROOT_SOURCE: &str = include_str!("dylib_root.rs");

/// A template that is ready for use.
#[derive(Debug, Clone, Hash)]
pub struct Template {
    folder: PathBuf,
}

/// The folder in which a session or a template under construction compiles.
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
        format!(
            ":offline 1\n:linker system\n:opt 1\n:dep cloze = {{ package = \"cloze-session\", path = {:?} }}\n",
            self.dylib_root.display().to_string()
        )
    }
}

/// Returns where cargo puts the libraries of a session in `folder`.
pub fn libraries(folder: &Path) -> PathBuf {
    let target = folder.join(CRATE).join("target");
    // The one folder below `target` with libraries is named by the target triple.
    sorted(&target)
        .unwrap_or_default()
        .into_iter()
        .find(|path| path.join("debug").join("deps").is_dir())
        .unwrap_or(target)
        .join("debug")
        .join("deps")
}

impl Template {
    /// Returns the template of these sources and this compiler, if it is built.
    pub fn find() -> Result<Option<Self>> {
        let folder = Self::place()?;
        Ok(is_finished(&folder).then_some(Self { folder }))
    }

    /// Returns the template, and builds it first if it is missing; `say` gets a line if that takes time.
    /// The build runs with the variables of `environment`: those of the user, not those that give a
    /// session its own toolchain.
    pub fn find_or_build(
        environment: &[(OsString, OsString)],
        say: impl FnMut(&str),
    ) -> Result<Self> {
        built(Self::find, || Self::build_in_subprocess(environment), say)
    }

    /// Builds in a process of its own, because evcxr reads its folder from the environment, once.
    fn build_in_subprocess(environment: &[(OsString, OsString)]) -> Result<()> {
        let binary = paths::this_program()?;
        let status = Command::new(&binary)
            .arg("build-template")
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .env(LIBRARY_PATH, library_path()?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|source| Error::io(&binary, source))?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Failed(
            "the session template could not be built; see the error above, in the log of this program"
                .to_owned(),
        ))
    }

    /// Returns the folder for these sources and this compiler.
    fn place() -> Result<PathBuf> {
        let sources = sources()?;
        let mut hasher = DefaultHasher::new();
        (FORMAT, DYLIB_ROOT_SOURCE, FEATURES, cargo_settings(&sources)?, compiler()?)
            .hash(&mut hasher);
        for name in SOURCES {
            hash_tree(&sources.join(name), &mut hasher)?;
        }
        let name = format!("{}-{:016x}", origin(), hasher.finish());
        Ok(paths::templates()?.join(name))
    }

    /// Prepares a folder for building the template, runs `build` in it, and removes templates that
    /// are no longer needed. One process builds at a time; a second one waits and finds it done.
    pub fn build(build: impl FnOnce(&Workshop) -> Result<()>) -> Result<()> {
        let folder = Self::place()?;
        let templates = paths::templates()?;
        paths::create(&templates)?;
        let lock_path = templates.join("lock");
        let lock = File::create(&lock_path).map_err(|source| Error::io(&lock_path, source))?;
        lock.lock().map_err(|source| Error::io(&lock_path, source))?;
        if is_finished(&folder) {
            return Ok(());
        }
        remove(&folder)?;
        let sources = sources()?;
        fetch(&sources)?;
        let workshop = lay_out(&sources, &folder)?;
        if let Some(earlier) = newest(&templates, "") {
            let target = Path::new(CRATE).join("target");
            copy_dependencies(&earlier.join(&target), &folder.join(&target))?;
        }
        build(&workshop)?;
        let completed = folder.join(CRATE).join(LOCK);
        std::fs::copy(&completed, folder.join(LOCK))
            .map_err(|source| Error::io(&completed, source))?;
        for pipe in [channel::STDOUT, channel::STDERR, channel::CONTROL, input::STDIN] {
            remove(&folder.join(pipe))?;
        }
        write(&folder.join(FINISHED), "")?;
        remove_others(&templates, &folder);
        Ok(())
    }

    /// Fills a session's own folder from the template.
    pub fn open(&self, session: &Path) -> Result<Workshop> {
        // Written before anything is copied: a template that no session names may be removed.
        write(&session.join(TEMPLATE), &self.folder.display().to_string())?;
        for name in [CRATE, ".cargo", LOCK] {
            copy_tree(&self.folder.join(name), &session.join(name))?;
        }
        Ok(Workshop { folder: session.to_path_buf(), dylib_root: self.folder.join(DYLIB_ROOT) })
    }
}

/// The system's loader searches these folders for libraries.
const LIBRARY_PATH: &str =
    if cfg!(target_os = "macos") { "DYLD_FALLBACK_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };

/// Returns the value of [`LIBRARY_PATH`] with the folder of Rust's own libraries. evcxr's first cell
/// has no other way to the standard library: it is compiled with a path relative to one folder, and
/// loaded from the folder above. Later cells find it loaded.
fn library_path() -> Result<OsString> {
    let before = std::env::var_os(LIBRARY_PATH).unwrap_or_default();
    let folders = std::env::split_paths(&before).filter(|folder| !folder.as_os_str().is_empty());
    let folders: Vec<_> = [rust_libraries()?].into_iter().chain(folders).collect();
    std::env::join_paths(folders).map_err(|error| Error::Failed(error.to_string()))
}

/// Returns what `find` finds, after `build` if it finds nothing. A build takes minutes; if sources
/// change meanwhile, it builds again.
fn built<T>(
    find: impl Fn() -> Result<Option<T>>,
    build: impl Fn() -> Result<()>,
    mut say: impl FnMut(&str),
) -> Result<T> {
    const BUILDS: usize = 3;
    for turn in 0..BUILDS {
        if let Some(found) = find()? {
            return Ok(found);
        }
        say(if turn == 0 {
            "Building what every session shares (Cloze and its tensors, optimised). This happens once \
             per version of Cloze and takes some minutes."
        } else {
            "Cloze's sources have changed meanwhile: building once more."
        });
        build()?;
    }
    find()?.ok_or_else(|| {
        Error::Failed(format!(
            "Cloze's sources have changed during each of {BUILDS} builds of the session template: \
             start the session again when they no longer change"
        ))
    })
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

/// Downloads the crates of the lock file for every platform, because cargo reads all of their
/// manifests and a session never uses the network.
fn fetch(sources: &Path) -> Result<()> {
    let manifest = sources.join("Cargo.toml");
    let output = Command::new("cargo")
        .args(["fetch", "--locked", "--quiet", "--manifest-path"])
        .arg(&manifest)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::Failed(format!("cannot run `cargo` ({error})")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "cargo could not download the crates in {} (is the network reachable?):\n{}",
        manifest.with_file_name(LOCK).display(),
        String::from_utf8_lossy(&output.stderr).trim_end()
    )))
}

/// Writes a template's folder up to the point where cargo comes in.
fn lay_out(sources: &Path, folder: &Path) -> Result<Workshop> {
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
    write(&dylib_root.join("Cargo.toml"), &dylib_root_manifest(&source)?)?;
    write(&folder.join(".cargo/config.toml"), &cargo_settings(sources)?)?;
    paths::create(&folder.join(CRATE))?;
    Ok(Workshop { folder: folder.to_path_buf(), dylib_root })
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

/// Returns the dylib root's manifest: Cloze by its path, and dfdx exactly as Cloze asks for it.
fn dylib_root_manifest(sources: &Path) -> Result<String> {
    let dfdx = manifest_value(sources, &["dependencies", "dfdx"])?;
    Ok(format!(
        "[package]\n\
         name = \"cloze-session\"\n\
         version = \"0.0.0\"\n\
         edition = \"2024\"\n\
         publish = false\n\
         \n\
         [lib]\n\
         crate-type = [\"dylib\"]\n\
         \n\
         [dependencies]\n\
         cloze_impl = {{ package = \"cloze\", path = {:?}, default-features = false, features = {:?} }}\n\
         dfdx = {dfdx}\n",
        sources.display().to_string(),
        FEATURES,
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
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| {
        Error::Failed(format!(
            "cannot run `rustc` ({error}): cells are compiled, so Rust must be installed and on PATH"
        ))
    })?;
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

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Removes other templates of this origin that no running session uses. A template that cannot be
/// removed only takes space.
fn remove_others(templates: &Path, keep: &Path) {
    let used = folder::templates_in_use();
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
    fn a_new_template_reuses_the_dependencies_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let templates = folder.path().join("templates");
        let deps = Path::new("ctx/target/x/debug/deps");
        for (name, file) in [("a", "libdfdx-1.rlib"), ("a", "libcloze-1.rlib"), ("b", "new")] {
            write(&templates.join(name).join(deps).join(file), "x").unwrap();
        }
        assert_eq!(newest(&templates, ""), None);
        write(&templates.join("a").join(FINISHED), "").unwrap();
        let found = newest(&templates, "").unwrap();
        assert_eq!(found, templates.join("a"));
        let to = folder.path().join("c");
        copy_dependencies(&found.join("ctx/target"), &to.join("ctx/target")).unwrap();
        assert!(to.join(deps).join("libdfdx-1.rlib").is_file());
        assert!(!to.join(deps).join("libcloze-1.rlib").exists());
    }

    #[test]
    fn sources_that_change_during_a_build_are_built_again() {
        let versions = std::cell::Cell::new(0);
        // Finds the last build once the sources no longer change.
        let settles_after = |last: i32| {
            versions.set(0);
            let mut said = Vec::new();
            let found = built(
                || Ok((versions.get() >= last).then(|| versions.get())),
                || {
                    versions.set(versions.get() + 1);
                    Ok(())
                },
                |line| said.push(line.to_owned()),
            );
            (found, said)
        };
        let (found, said) = settles_after(0);
        assert_eq!((found.unwrap(), said.len()), (0, 0));
        let (found, said) = settles_after(1);
        assert_eq!((found.unwrap(), said.len()), (1, 1));
        let (found, said) = settles_after(3);
        assert_eq!((found.unwrap(), said.len()), (3, 3));
        assert!(said[0].starts_with("Building") && said[1].contains("once more"));
        let (found, _) = settles_after(4);
        assert!(found.unwrap_err().to_string().contains("changed during"));
        assert_eq!(versions.get(), 3);

        let failed = || Err(Error::Failed("no compiler".to_owned()));
        let found = built(|| Ok(None::<()>), failed, |_| {});
        assert!(found.unwrap_err().to_string().contains("no compiler"));
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

    #[test]
    fn the_dylib_root_asks_for_dfdx_as_the_crate_does() {
        let manifest = dylib_root_manifest(&paths::sources().unwrap()).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        assert_eq!(manifest["lib"]["crate-type"][0].as_str(), Some("dylib"));
        let dfdx = &manifest["dependencies"]["dfdx"];
        assert_eq!(dfdx["version"].as_str(), Some("=0.13.0"));
        assert_eq!(dfdx["default-features"].as_bool(), Some(false));
    }
}
