//! The library that cells know as `cloze`: a dylib that contains Cloze and all of its dependencies.
//!
//! This program contains Cloze, so where it lies in cargo's target folder, Cloze and its dependencies
//! lie beside it, compiled, and only the library is to be linked. A program that `cargo install` has
//! put elsewhere compiles them first, and so does one whose compiler was updated.

use std::collections::{HashMap, HashSet};
use std::env::consts::DLL_SUFFIX;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use cloze::{Error, Result};
use serde_json::Value;

use super::layout::{self, DYLIB_ROOT, LIBRARIES, LOCK, cannot_run, rust_libraries};
use super::linker;
use super::tree::{name, remove, sorted, write};
use super::watch::{self, Failure, Watch};
use crate::paths;

/// The variables with which the user's own tools run: not those that give a session its toolchain.
pub type Environment = [(OsString, OsString)];

/// What shortens the compilation of Cloze: nobody compiles it a second time or debugs it, and `lto` is what the workspace
/// sets.
const FAST: [&str; 3] =
    ["profile.dev.lto=\"off\"", "profile.dev.debug=false", "profile.dev.incremental=false"];
/// In an unfinished template: what cargo has compiled.
pub const TARGET: &str = "target";

/// Links the library in a template's folder from what lies beside this program, if that can be done.
pub fn link_beside(template: &Path, sources: &Path, environment: &Environment) -> Result<bool> {
    let Some(compiled) = beside_this_program() else {
        return Ok(false);
    };
    // The whole of Cloze is compiled there, with features that cells do not use.
    let features = if cfg!(feature = "mpi") { "cloze/mpi" } else { "" };
    let packages = packages(sources, &["--locked", "--features", features], environment)?;
    Ok(link(&compiled, template, &needed(&packages, "cloze"), environment).is_ok())
}

/// Downloads the crates that the library needs.
pub fn fetch(
    template: &Path,
    environment: &Environment,
    began: Instant,
    watch: &mut dyn Watch,
) -> Result<()> {
    let mut cargo = with(environment, "cargo");
    cargo.args(["fetch", "--manifest-path"]).arg(template.join(DYLIB_ROOT).join("Cargo.toml"));
    cargo.args(["--target", &layout::host()?]);
    watch::run(cargo, began, watch).map_err(|failure| match failure {
        Failure::Stopped => stopped(),
        Failure::Failed(reason) => cannot_download(template, &reason),
    })
}

/// Compiles the library in a template's folder; cargo's `metadata` describes what it consists of. `lock` stays locked
/// until cargo has ended, even if this program is killed.
pub fn build(
    template: &Path,
    metadata: &Value,
    environment: &Environment,
    lock: File,
    began: Instant,
    watch: &mut dyn Watch,
) -> Result<()> {
    let target = template.join(TARGET);
    let mut cargo = with(environment, "cargo");
    cargo
        .args(["build", "--offline", "--manifest-path", "dylib-root/Cargo.toml", "--target-dir"])
        .arg(&target)
        .args(FAST.iter().flat_map(|setting| ["--config", setting]))
        // In the template, so that cargo finds its settings.
        .current_dir(template)
        // An empty file. The lock ends when the last process that has the file open ends.
        .stdin(lock);
    let built = watch::run(cargo, began, watch).and_then(|()| {
        let names = needed(metadata, "cloze");
        link(&target.join("debug/deps"), template, &names, environment).map_err(Failure::Failed)
    });
    match built {
        Ok(()) => remove(&target),
        // The next start continues with what was compiled.
        Err(Failure::Stopped) => Err(stopped()),
        Err(Failure::Failed(reason)) => {
            // It may be the cause.
            remove(&target)?;
            Err(match with(environment, "cc").arg("--version").output() {
                Ok(_) => {
                    Error::Failed(format!("the session template could not be built: {reason}"))
                }
                Err(error) => Error::Failed(format!(
                    "Rust links cells with a C compiler, which was not found (`cc`: {error}): install one \
                     (Debian: `apt install gcc`), then start the kernel again"
                )),
            })
        }
    }
}

pub fn stopped() -> Error {
    Error::Failed(
        "the library that all sessions share is not finished; the next start continues".to_owned(),
    )
}

fn cannot_download(folder: &Path, reason: &str) -> Error {
    Error::Failed(format!(
        "cargo could not download the crates in {} (is the network reachable?):\n{reason}",
        folder.join(LOCK).display(),
    ))
}

/// Returns a command that runs with these variables only, and reads no input.
pub fn with(environment: &Environment, program: &str) -> Command {
    let mut command = Command::new(program);
    let variables = environment.iter().map(|(name, value)| (name, value));
    command.env_clear().envs(variables).stdin(Stdio::null());
    command
}

/// Returns cargo's folder of compiled libraries beside this program, if there is one.
fn beside_this_program() -> Option<PathBuf> {
    if std::env::var_os(paths::SOURCE_VARIABLE).is_some() {
        return None;
    }
    let folder = paths::this_program().ok()?.parent()?.join("deps");
    folder.is_dir().then_some(folder)
}

/// Links the cells' library from the libraries that cargo has compiled in `from`. Returns the
/// compiler's reason if it cannot: another version of the compiler has made them, for example.
fn link(
    from: &Path,
    template: &Path,
    names: &HashSet<String>,
    environment: &Environment,
) -> std::result::Result<(), String> {
    let libraries = template.join(LIBRARIES);
    let text = |error: Error| error.to_string();
    copy_libraries(from, &libraries, names).map_err(text)?;
    let mut reason = format!("{}: there is no compiled Cloze", from.display());
    for cloze in newest_cloze(from).map_err(text)? {
        let mut rustc = with(environment, "rustc");
        rustc
            .args(["--edition=2024", "--crate-name=cloze_session", "--crate-type=dylib"])
            .args(["-Cprefer-dynamic", "-Copt-level=1", "-Cstrip=debuginfo", "--out-dir"])
            .arg(&libraries)
            .args(linker::run_path().map_err(text)?)
            .arg(template.join(DYLIB_ROOT).join("src/lib.rs"))
            .args(layout::find("cloze", &cloze, from));
        match ended(rustc).and_then(|()| try_out(&libraries, environment)) {
            Ok(()) => return Ok(()),
            Err(error) => reason = error,
        }
    }
    // What fails here must not be taken for a part of a later attempt.
    remove(&libraries).map_err(text)?;
    Err(reason)
}

/// Returns the compiled versions of Cloze in one of cargo's folders, the newest first: they differ in
/// features, and the newest one has the newest sources.
fn newest_cloze(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = sorted(folder)?;
    found.retain(|path| name(path).starts_with("libcloze-") && name(path).ends_with(".rlib"));
    let modified = |path: &PathBuf| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    found.sort_by_key(|path| std::cmp::Reverse(modified(path)));
    Ok(found)
}

/// Compiles a cell that uses what Cloze has only with its features.
fn try_out(libraries: &Path, environment: &Environment) -> std::result::Result<(), String> {
    const CELL: &str = "pub use cloze::{display, download, prelude::*};\n";
    let source = libraries.join("trial.rs");
    write(&source, CELL).map_err(|error| error.to_string())?;
    let mut rustc = with(environment, "rustc");
    rustc
        .args(["--edition=2024", "--crate-type=cdylib", "-Cprefer-dynamic", "-o"])
        .arg(libraries.join("trial"))
        .args(layout::cells_library(libraries))
        .arg(&source);
    let result = ended(rustc);
    for file in [source, libraries.join("trial")] {
        remove(&file).map_err(|error| error.to_string())?;
    }
    result
}

/// Runs rustc. Returns what it printed if it fails.
fn ended(mut rustc: Command) -> std::result::Result<(), String> {
    let output = rustc.output().map_err(|error| cannot_run("rustc")(error).to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()),
    }
}

/// Copies what rustc needs to know of the libraries in `names`, and links to the standard library.
/// Their machine code will be in the cells' library; procedural macros consist of nothing else.
fn copy_libraries(from: &Path, to: &Path, names: &HashSet<String>) -> Result<()> {
    paths::create(to)?;
    for file in sorted(from)? {
        let name = name(&file);
        let stem = name.strip_prefix("lib").and_then(|rest| rest.split(['-', '.']).next());
        let kind = name.ends_with(".rmeta") || name.ends_with(DLL_SUFFIX);
        if kind && stem.is_some_and(|stem| names.contains(stem)) {
            std::fs::copy(&file, to.join(&name)).map_err(|source| Error::io(&file, source))?;
        }
    }
    let of_rust = rust_libraries()?;
    let is_standard = |file: &&PathBuf| {
        let name = name(file);
        name.starts_with("libstd-") && name.ends_with(DLL_SUFFIX)
    };
    let files = sorted(&of_rust)?;
    let standard = files.iter().find(is_standard).ok_or_else(|| {
        Error::file(&of_rust, "expected Rust's standard library as a shared library")
    })?;
    let link = layout::standard_library(to);
    std::os::unix::fs::symlink(standard, &link).map_err(|source| Error::io(link, source))
}

/// Describes the package in `folder` and all that it may depend on, as `cargo metadata` does, with these further
/// `arguments`. Cargo downloads what is missing.
pub fn packages(folder: &Path, arguments: &[&str], environment: &Environment) -> Result<Value> {
    let manifest = folder.join("Cargo.toml");
    let output = with(environment, "cargo")
        .args(["metadata", "--quiet", "--format-version=1", "--manifest-path"])
        .arg(&manifest)
        // Those of other platforms are as large again.
        .args(["--filter-platform", &layout::host()?])
        .args(arguments)
        .output()
        .map_err(cannot_run("cargo"))?;
    match serde_json::from_slice(&output.stdout) {
        Ok(metadata) if output.status.success() => Ok(metadata),
        _ => Err(cannot_download(folder, String::from_utf8_lossy(&output.stderr).trim_end())),
    }
}

/// Returns the names of the libraries of the package `root` and of all that it depends on.
pub fn needed(metadata: &Value, root: &str) -> HashSet<String> {
    let entries = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: HashMap<String, Value> =
        entries(&metadata["packages"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let dependencies: HashMap<String, Vec<String>> = entries(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let normal =
                |it: &&Value| entries(&it["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let of_node = entries(&node["deps"]);
            (text(&node["id"]), of_node.iter().filter(normal).map(|it| text(&it["pkg"])).collect())
        })
        .collect();
    let mut waiting: Vec<&String> =
        packages.iter().filter(|(_, it)| it["name"] == root).map(|(id, _)| id).collect();
    let mut seen = HashSet::new();
    let mut names = HashSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        let targets = packages.get(id).map(|package| entries(&package["targets"]));
        let is_library = |target: &&Value| {
            entries(&target["crate_types"])
                .iter()
                .any(|kind| kind == "lib" || kind == "rlib" || kind == "proc-macro")
        };
        let libraries = targets.iter().flatten().filter(is_library);
        names.extend(libraries.map(|target| text(&target["name"]).replace('-', "_")));
        waiting.extend(dependencies.get(id).into_iter().flatten());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_library_needs_what_cloze_needs_and_nothing_of_the_kernel() {
        let environment: Vec<_> = std::env::vars_os().collect();
        let packages = packages(&paths::sources().unwrap(), &["--locked"], &environment).unwrap();
        let names = needed(&packages, "cloze");
        // A procedural macro, and a library that is not named as its package is.
        for name in ["cloze", "dfdx", "serde_derive", "webpki"] {
            assert!(names.contains(name), "{name}");
        }
        for name in ["evcxr", "zeromq", "criterion", "cc"] {
            assert!(!names.contains(name), "{name}");
        }
    }

    #[test]
    fn libraries_are_copied_by_name_and_must_be_of_this_compiler() {
        let folder = tempfile::tempdir().unwrap();
        let (from, template) = (folder.path().join("deps"), folder.path().join("template"));
        let macros = format!("libpaste-1{DLL_SUFFIX}");
        let compiled =
            ["libcloze-1.rlib", "libcloze-1.rmeta", "libcloze_x-1.rmeta", "cloze-1.d", &macros];
        for file in compiled {
            write(&from.join(file), "not compiled by rustc").unwrap();
        }
        let names = ["cloze", "paste"].map(str::to_owned).into();
        let libraries = template.join(LIBRARIES);
        copy_libraries(&from, &libraries, &names).unwrap();
        assert!(layout::standard_library(&libraries).is_file());
        remove(&layout::standard_library(&libraries)).unwrap();
        let copied: Vec<_> = sorted(&libraries).unwrap().iter().map(|path| name(path)).collect();
        assert_eq!(copied, ["libcloze-1.rmeta", macros.as_str()]);

        remove(&libraries).unwrap();
        write(&template.join("dylib-root/src/lib.rs"), "pub use cloze::*;").unwrap();
        let environment: Vec<_> = std::env::vars_os().collect();
        let reason = link(&from, &template, &names, &environment).unwrap_err();
        assert!(reason.contains("cloze"), "{reason}");
        assert!(!libraries.exists());
        remove(&from.join("libcloze-1.rlib")).unwrap();
        let reason = link(&from, &template, &names, &environment).unwrap_err();
        assert!(reason.contains("no compiled Cloze"), "{reason}");
    }
}
