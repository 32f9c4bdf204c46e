//! The session template: everything that a session compiles before its first cell, compiled once.
//!
//! A template is a folder named by a hash of Cloze's sources, its lock file and the compiler:
//!
//! ```text
//! source/              a copy of the crate, so that a session never sees it change
//! umbrella/            the library that cells know as `cloze` (crate type dylib)
//! .cargo/config.toml   optimised dependencies, over evcxr's own settings
//! Cargo.lock           the workspace's versions, completed
//! ctx/                 evcxr's crate with its target folder
//! ```
//!
//! A session gets a folder of its own with `ctx`, `Cargo.lock` and `.cargo` copied; `source` and
//! `umbrella` stay where they are, because cargo knows a path dependency by its absolute path.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cloze::{Error, Result};

use super::tree::{copy_tree, hash_tree, remove, sorted, take_over, write};
use crate::paths;

/// The features of Cloze that cells use: all but the command.
const FEATURES: [&str; 3] = ["charts", "cuda", "hub"];
/// What of the repository a session needs.
const SOURCES: [&str; 4] = ["Cargo.toml", "README.md", "src", "lessons"];
/// Raised when the layout of a template changes.
const FORMAT: u32 = 1;
/// Written last: a template without it was interrupted while it was made.
const FINISHED: &str = "finished";
/// evcxr's crate, in templates and sessions alike.
pub const CRATE: &str = "ctx";
const LOCK: &str = "Cargo.lock";
/// In a session's folder: the path of its template.
pub const USES: &str = "template";

const UMBRELLA_SOURCE: &str = include_str!("umbrella.rs");

/// A template that is ready for use.
#[derive(Debug, Clone, Hash)]
pub struct Template {
    folder: PathBuf,
}

/// The folder in which a session or a template under construction compiles.
#[derive(Debug, Clone)]
pub struct Workshop {
    /// With the pipes, `.cargo` and `Cargo.lock`.
    pub folder: PathBuf,
    umbrella: PathBuf,
}

impl Workshop {
    /// evcxr's crate.
    pub fn crate_folder(&self) -> PathBuf {
        self.folder.join(CRATE)
    }

    /// Puts the lock file back: evcxr's own first cell has no dependencies and empties it.
    pub fn restore_lock(&self) -> Result<()> {
        let from = self.folder.join(LOCK);
        std::fs::copy(&from, self.crate_folder().join(LOCK))
            .map(drop)
            .map_err(|source| Error::io(from, source))
    }

    /// The commands that give a session its dependencies and settings, one a line.
    pub fn settings(&self) -> String {
        format!(
            ":offline 1\n:linker system\n:opt 1\n:dep cloze = {{ package = \"cloze-session\", path = {:?} }}\n",
            self.umbrella.display().to_string()
        )
    }
}

/// Where cargo puts the libraries of a session in `folder`.
pub fn libraries(folder: &Path) -> PathBuf {
    let target = folder.join(CRATE).join("target");
    // The one folder below `target` that is named by a target triple is the one built for.
    let built = |path: &PathBuf| path.join("debug").join("deps").is_dir();
    std::fs::read_dir(&target)
        .ok()
        .and_then(|entries| {
            entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .find(built)
        })
        .unwrap_or(target)
        .join("debug")
        .join("deps")
}

impl Template {
    /// The template of the sources and compiler at hand, where it is built.
    pub fn find() -> Result<Option<Self>> {
        let folder = Self::place()?;
        Ok(folder.join(FINISHED).is_file().then_some(Self { folder }))
    }

    /// The template, built now where it is missing; `say` gets a line when that takes time.
    pub fn find_or_build(say: impl FnMut(&str)) -> Result<Self> {
        built(Self::find, Self::build_apart, say)
    }

    /// Builds in a process of its own: evcxr reads its folder from the environment, once.
    fn build_apart() -> Result<()> {
        let binary = std::env::current_exe()
            .map_err(|error| Error::Failed(format!("cannot find this program's file: {error}")))?;
        let status = Command::new(&binary)
            .arg("build-template")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|source| Error::io(&binary, source))?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Failed(
            "the session template could not be built; the reason stands above, in the log of this \
             program"
                .to_owned(),
        ))
    }

    /// The folder for the sources and compiler at hand.
    fn place() -> Result<PathBuf> {
        let repository = paths::repository()?;
        // Not for secrets and read back by the same program only: the standard hasher will do.
        let mut hasher = DefaultHasher::new();
        repository.hash(&mut hasher);
        let clone = hasher.finish() as u32;
        let settings = cargo_settings(&repository)?;
        (FORMAT, UMBRELLA_SOURCE, FEATURES, settings, compiler()?).hash(&mut hasher);
        for name in SOURCES.into_iter().chain([LOCK]) {
            hash_tree(&repository.join(name), &mut hasher)?;
        }
        let name = format!("{clone:08x}-{:016x}", hasher.finish());
        Ok(paths::templates()?.join(name))
    }

    /// Prepares a folder for building the template, runs `build` in it, and removes templates that
    /// no longer serve. One process builds at a time; a second one waits and finds it done.
    pub fn build(build: impl FnOnce(&Workshop) -> Result<()>) -> Result<()> {
        let folder = Self::place()?;
        let templates = paths::templates()?;
        paths::create(&templates)?;
        let lock_path = templates.join("lock");
        let lock = File::create(&lock_path).map_err(|source| Error::io(&lock_path, source))?;
        lock.lock()
            .map_err(|source| Error::io(&lock_path, source))?;
        if folder.join(FINISHED).is_file() {
            return Ok(());
        }
        remove(&folder)?;
        fetch(&paths::repository()?)?;
        let workshop = lay_out(&folder)?;
        if let Some(earlier) = newest(&templates) {
            let target = Path::new(CRATE).join("target");
            take_over(&earlier.join(&target), &folder.join(&target))?;
        }
        build(&workshop)?;
        let completed = workshop.crate_folder().join(LOCK);
        std::fs::copy(&completed, folder.join(LOCK))
            .map_err(|source| Error::io(&completed, source))?;
        for name in [
            super::channel::STDOUT,
            super::channel::STDERR,
            super::channel::CONTROL,
            super::input::STDIN,
        ] {
            remove(&folder.join(name))?;
        }
        write(&folder.join(FINISHED), "")?;
        remove_others(&templates, &folder);
        Ok(())
    }

    /// A session's own folder, made from the template.
    pub fn open(&self, session: &Path) -> Result<Workshop> {
        // First of all: a template that no session says it uses may be removed while it is copied.
        write(&session.join(USES), &self.folder.display().to_string())?;
        for name in [CRATE, ".cargo", LOCK] {
            copy_tree(&self.folder.join(name), &session.join(name))?;
        }
        Ok(Workshop {
            folder: session.to_path_buf(),
            umbrella: self.folder.join("umbrella"),
        })
    }
}

/// What `find` finds, after `build` where it finds nothing. Sources that are changed during a build, which
/// takes minutes, need another one.
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
            "Building what every session shares (Cloze and its tensors, optimised). This is done once \
             for a version of Cloze and takes some minutes."
        } else {
            "Cloze's sources were changed meanwhile: building once more."
        });
        build()?;
    }
    find()?.ok_or_else(|| {
        Error::Failed(format!(
            "Cloze's sources were changed during each of {BUILDS} builds of the session template: \
             start the session again when they stay as they are"
        ))
    })
}

/// Downloads what the lock file names, for every platform: cargo reads the manifests of all of it,
/// building Cloze has downloaded this platform's only, and a session never asks the network.
fn fetch(repository: &Path) -> Result<()> {
    let manifest = repository.join("Cargo.toml");
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
        "cargo could not download the crates that {} names (is the network reachable?):\n{}",
        manifest.with_file_name(LOCK).display(),
        String::from_utf8_lossy(&output.stderr).trim_end()
    )))
}

/// Writes a template's folder up to the point where cargo comes in.
fn lay_out(folder: &Path) -> Result<Workshop> {
    let repository = paths::repository()?;
    let source = folder.join("source");
    for name in SOURCES {
        let from = repository.join(name);
        if from.exists() {
            copy_tree(&from, &source.join(name))?;
        }
    }
    copy_tree(&repository.join(LOCK), &folder.join(LOCK))?;
    let umbrella = folder.join("umbrella");
    write(&umbrella.join("src").join("lib.rs"), UMBRELLA_SOURCE)?;
    write(
        &umbrella.join("Cargo.toml"),
        &umbrella_manifest(&repository, &source)?,
    )?;
    write(
        &folder.join(".cargo").join("config.toml"),
        &cargo_settings(&repository)?,
    )?;
    paths::create(&folder.join(CRATE))?;
    Ok(Workshop {
        folder: folder.to_path_buf(),
        umbrella,
    })
}

/// The umbrella's manifest: the crate by its path, and dfdx exactly as the crate asks for it.
fn umbrella_manifest(repository: &Path, source: &Path) -> Result<String> {
    let path = repository.join("Cargo.toml");
    let manifest = std::fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
    let dfdx = manifest
        .lines()
        .find(|line| line.starts_with("dfdx = "))
        .ok_or_else(|| Error::file(&path, "expected a line `dfdx = …` among the dependencies"))?;
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
         {dfdx}\n",
        source.display().to_string(),
        FEATURES,
    ))
}

/// The workspace's settings for dependencies, which Cloze is too here: without checks of overflow, which
/// cost the products of dfdx half of their speed, and what computes at level 3. What is generic is compiled
/// in the cells, at evcxr's own settings.
fn cargo_settings(repository: &Path) -> Result<String> {
    let path = repository.join("Cargo.toml");
    let manifest = std::fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
    let manifest: toml::Table = manifest
        .parse()
        .map_err(|error: toml::de::Error| Error::file(&path, error.message()))?;
    let mut packages = ["profile", "dev", "package"]
        .into_iter()
        .try_fold(&manifest, |table, name| table.get(name)?.as_table())
        .ok_or_else(|| Error::file(&path, "expected a table `profile.dev.package`"))?
        .clone();
    // The other levels are for what the kernel runs itself, or never.
    packages.retain(|name, settings| {
        let level = settings.get("opt-level").and_then(toml::Value::as_integer);
        name == "*" || level == Some(3)
    });
    let settings = ["package", "dev", "profile"]
        .into_iter()
        .fold(packages, |inner, name| {
            toml::Table::from_iter([(name.to_owned(), inner.into())])
        });
    Ok(settings.to_string())
}

/// The compiler's full version: its libraries fit no other.
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
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(FOUND.get_or_init(|| told))
}

/// The version of the compiler that compiles cells, where it is known.
pub fn compiler_version() -> Option<&'static str> {
    release(compiler().ok()?)
}

fn release(told: &str) -> Option<&str> {
    told.lines().find_map(|line| line.strip_prefix("release: "))
}

/// The folder of the toolchain that compiles cells.
pub fn sysroot() -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let output = output.map_err(|error| Error::Failed(format!("cannot run `rustc`: {error}")))?;
    Ok(PathBuf::from(
        String::from_utf8_lossy(&output.stdout).trim(),
    ))
}

/// The template that was finished last.
fn newest(templates: &Path) -> Option<PathBuf> {
    let finished = |folder: &PathBuf| {
        std::fs::metadata(folder.join(FINISHED))
            .and_then(|file| file.modified())
            .ok()
    };
    let all = sorted(templates).ok()?;
    all.into_iter()
        .filter(|folder| finished(folder).is_some())
        .max_by_key(finished)
}

/// Removes the templates of earlier versions of this clone that no running session uses; one that
/// cannot be removed costs only its space.
fn remove_others(templates: &Path, keep: &Path) {
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let clone = |path: &Path| name(path).and_then(|name| Some(name.split_once('-')?.0.to_owned()));
    let used = super::folder::templates_in_use();
    for other in sorted(templates).unwrap_or_default() {
        if other != keep && clone(&other) == clone(keep) && !used.contains(&other) {
            let _ = remove(&other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_says_its_version() {
        let told = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nrelease: 1.95.0\nLLVM version: 20\n";
        assert_eq!(release(told), Some("1.95.0"));
        assert_eq!(release("rustc 1.95.0"), None);
        let version = compiler_version().unwrap();
        assert!(
            compiler()
                .unwrap()
                .starts_with(&format!("rustc {version} ("))
        );
    }

    #[test]
    fn a_new_template_takes_over_what_is_not_cloze_s_own() {
        let folder = tempfile::tempdir().unwrap();
        let templates = folder.path().join("templates");
        let deps = Path::new("ctx/target/x/debug/deps");
        for (name, file) in [
            ("a", "libdfdx-1.rlib"),
            ("a", "libcloze-1.rlib"),
            ("b", "new"),
        ] {
            write(&templates.join(name).join(deps).join(file), "x").unwrap();
        }
        assert_eq!(newest(&templates), None);
        write(&templates.join("a").join(FINISHED), "").unwrap();
        let found = newest(&templates).unwrap();
        assert_eq!(found, templates.join("a"));
        let to = folder.path().join("c");
        take_over(&found.join("ctx/target"), &to.join("ctx/target")).unwrap();
        assert!(to.join(deps).join("libdfdx-1.rlib").is_file());
        assert!(!to.join(deps).join("libcloze-1.rlib").exists());
    }

    #[test]
    fn sources_that_change_during_a_build_are_built_again() {
        let versions = std::cell::Cell::new(0);
        // Found is what was built last, once the sources no longer change.
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
        let settings = cargo_settings(&paths::repository().unwrap()).unwrap();
        let settings: toml::Table = settings.parse().unwrap();
        let packages = settings["profile"]["dev"]["package"].as_table().unwrap();
        assert_eq!(packages["dfdx"]["opt-level"].as_integer(), Some(3));
        assert_eq!(packages["cloze"]["opt-level"].as_integer(), Some(3));
        assert_eq!(packages["*"]["overflow-checks"].as_bool(), Some(false));
        assert!(!packages.contains_key("ra_ap_hir"));
    }

    #[test]
    fn the_umbrella_asks_for_dfdx_as_the_crate_does() {
        let repository = paths::repository().unwrap();
        let manifest = umbrella_manifest(&repository, Path::new("/s")).unwrap();
        assert!(manifest.contains("crate-type = [\"dylib\"]"));
        assert!(manifest.contains("dfdx = { version = \"=0.13.0\""));
    }
}
