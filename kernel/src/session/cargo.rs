//! A stand-in for cargo that shows rust-analyzer fewer dependencies.
//!
//! To infer the types of a cell's variables evcxr's rust-analyzer expands and indexes every crate
//! that `cargo metadata` lists: some 150. Cells cannot name most of them, and some are not even
//! compiled. That is half of a session's start-up time and memory. So a session has a toolchain folder
//! of its own: links to the user's toolchain, except that its `cargo` is this program. It passes
//! everything on to the real cargo, and removes from the answer of `metadata` what cells cannot see.
//!
//! The real cargo compiles the crates that the user has added, and the cell, but not Cloze: it gets a
//! manifest without Cloze, and rustc gets the compiled library of the session template. If only the
//! cell is to be compiled, no cargo is needed at all, see [`super::rustc`].

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use cloze::{Error, Result};
use serde_json::Value;

use super::layout::{self, CARGO_VARIABLE, LOCK, TOOLCHAIN, TOOLCHAIN_VARIABLE, bin, sysroot};
use super::markers;
use super::rustc::{self, Replay};
use crate::paths;

/// The real cargo, beside the link that stands in for it.
const REAL: &str = "cargo-real";

/// The folder, in evcxr's crate, of the package that does not depend on Cloze.
const WITHOUT_CLOZE: &str = "without-cloze";

/// The packages of Cloze that cells see: its own, the tensors, the half-precision types in them, and
/// progress bars.
const VISIBLE: [&str; 5] = ["cloze-session", "cloze", "dfdx", "half", "indicatif"];

/// Acts as cargo, or as rustc's wrapper, if this program was started under such a name.
pub fn run_if_cargo() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = PathBuf::from(arguments.next()?);
    if program.file_name() != Some(OsStr::new("cargo")) {
        return rustc::run_if_recorder();
    }
    let real = program.with_file_name(REAL);
    let arguments: Vec<OsString> = arguments.collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let mut command = Command::new(&real);
    if has("build") {
        if rustc::is_unread(&program) {
            return Some(ExitCode::FAILURE);
        }
        if let Err(error) = markers::prepare_cell(program.parent()?) {
            cloze::note!("the cell's code cannot be prepared: {error}");
            return Some(ExitCode::FAILURE);
        }
    }
    let failed = |error| {
        cloze::note!("cannot run {}: {error}", real.display());
        Some(ExitCode::FAILURE)
    };
    if has("build") || has("check") {
        let prepared = if has("check") { rustc::prepare_check(&program) } else { Ok(()) };
        let status = prepared.and_then(|()| compile(&program, &arguments, &mut command));
        return Some(match status {
            Ok(status) => ExitCode::from(status.code().map_or(1, |code| code as u8)),
            Err(error) => return failed(error),
        });
    }
    command.args(&arguments);
    if !has("metadata") || has("--no-deps") {
        return failed(command.exec());
    }
    let lock = lock_to_keep();
    let output = command.stderr(std::process::Stdio::inherit()).output();
    if let Some(lock) = lock {
        // Without it the next build would compile other versions than the template's.
        let _ = std::fs::write(LOCK, lock);
    }
    let output = match output {
        Ok(output) => output,
        Err(error) => return failed(error),
    };
    let answer = match serde_json::from_slice::<Value>(&output.stdout) {
        Ok(mut metadata) if output.status.success() => {
            prune(&mut metadata);
            let session = program.ancestors().nth(3).unwrap_or(Path::new("."));
            outline(&mut metadata, session);
            metadata.to_string().into_bytes()
        }
        _ => output.stdout,
    };
    use std::io::Write;
    let written = std::io::stdout().write_all(&answer);
    Some(if written.is_ok() && output.status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Compiles a cell: with rustc alone, in which case this does not return, or with `cargo`.
fn compile(
    program: &Path,
    arguments: &[OsString],
    cargo: &mut Command,
) -> std::io::Result<ExitStatus> {
    let bin = program.parent().unwrap_or(Path::new("."));
    // Three levels below the session's folder, see `layout::bin`.
    let session = program.ancestors().nth(3).unwrap_or(Path::new("."));
    let replay = Replay::of(bin, arguments);
    if let Some(replay) = &replay {
        replay.run();
    }
    without_cloze(Path::new(WITHOUT_CLOZE))?;
    // A check is a build too: its crates are compiled already, and those of `cargo check` are not.
    cargo.args(arguments.iter().map(|argument| match argument.to_str() {
        Some("check") => OsStr::new("build"),
        _ => argument,
    }));
    cargo.arg("--manifest-path").arg(Path::new(WITHOUT_CLOZE).join("Cargo.toml"));
    rustc::record(bin, &layout::libraries(session)?, cargo);
    let status = cargo.status()?;
    if let Some(replay) = replay.filter(|_| status.success()) {
        replay.keep();
    }
    Ok(status)
}

/// Writes a package that contains the cell, as evcxr's own does, but does not depend on Cloze.
fn without_cloze(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let manifest = std::fs::read_to_string("Cargo.toml")?;
    let others = manifest.split_inclusive('\n').filter(|line| !line.starts_with("cloze = "));
    std::fs::write(folder.join("Cargo.toml"), others.collect::<String>())?;
    // So that a crate that both use has one version. Without it, cargo chooses the versions.
    let _ = std::fs::copy(LOCK, folder.join(LOCK));
    match symlink("../src", folder.join("src")) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Returns the lock file if evcxr asks about a crate to add. It does so with a manifest that contains
/// only that crate, and cargo then forgets the versions of all others.
fn lock_to_keep() -> Option<Vec<u8>> {
    let manifest = std::fs::read_to_string("Cargo.toml").ok()?;
    if !manifest.contains("evcxr_dummy_validate_dep") {
        return None;
    }
    std::fs::read(LOCK).ok()
}

/// Removes from cargo's answer the crates that only Cloze itself depends on. What the user has added
/// with `:dep` stays, with all of its dependencies.
fn prune(metadata: &mut Value) {
    let names: std::collections::HashMap<String, String> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let text = |key: &str| Some(package[key].as_str()?.to_owned());
            Some((text("id")?, text("name")?))
        })
        .collect();
    let visible = |id: &str| names.get(id).is_some_and(|name| VISIBLE.contains(&&**name));
    let Some(root) = metadata["resolve"]["root"].as_str().map(str::to_owned) else {
        return;
    };
    let Some(nodes) = metadata["resolve"]["nodes"].as_array_mut() else {
        return;
    };
    for node in nodes.iter_mut() {
        if !node["id"].as_str().is_some_and(visible) {
            continue;
        }
        if let Some(dependencies) = node["deps"].as_array_mut() {
            dependencies.retain(|dependency| dependency["pkg"].as_str().is_some_and(visible));
        }
        if let Some(dependencies) = node["dependencies"].as_array_mut() {
            dependencies.retain(|id| id.as_str().is_some_and(visible));
        }
    }
    let mut kept = HashSet::new();
    let mut waiting = vec![root];
    while let Some(id) = waiting.pop() {
        let node = nodes.iter().find(|node| node["id"] == id.as_str());
        if let Some(dependencies) = node.and_then(|node| node["dependencies"].as_array()) {
            let dependencies = dependencies.iter().filter_map(Value::as_str);
            waiting.extend(dependencies.filter(|id| !kept.contains(*id)).map(str::to_owned));
        }
        kept.insert(id);
    }
    let is_kept = |entry: &Value| entry["id"].as_str().is_some_and(|id| kept.contains(id));
    nodes.retain(is_kept);
    if let Some(packages) = metadata["packages"].as_array_mut() {
        packages.retain(is_kept);
    }
}

/// Returns name, version and folder of the packages in cargo's answer that cells can see.
pub fn visible_packages(metadata: &Value) -> impl Iterator<Item = (&str, &str, PathBuf)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter_map(|package| {
        let text = |key: &str| package[key].as_str();
        let (name, version) = (text("name")?, text("version")?);
        let folder = Path::new(text("manifest_path")?).parent()?;
        VISIBLE.contains(&name).then(|| (name, version, folder.to_owned()))
    })
}

/// Points cargo's answer to the template's outlines of the packages that it has.
fn outline(metadata: &mut Value, session: &Path) {
    let found: Vec<_> = visible_packages(metadata)
        .filter_map(|(name, version, folder)| {
            let outline = layout::outline(session, name, version).ok()?;
            outline.exists().then_some((folder, outline))
        })
        .collect();
    let moved = |path: &mut Value| {
        let place = path.as_str().and_then(|path| {
            let place = |(from, to): &(PathBuf, PathBuf)| {
                Some(to.join(Path::new(path).strip_prefix(from).ok()?))
            };
            found.iter().find_map(place)
        });
        if let Some(place) = place {
            *path = place.display().to_string().into();
        }
    };
    for package in metadata["packages"].as_array_mut().into_iter().flatten() {
        moved(&mut package["manifest_path"]);
        for target in package["targets"].as_array_mut().into_iter().flatten() {
            moved(&mut target["src_path"]);
        }
    }
}

/// Creates the toolchain folder in `session` and returns the variables that point to it.
pub fn stand_in(session: &Path) -> Result<[(&'static str, PathBuf); 2]> {
    let sysroot = sysroot()?;
    let folder = session.join(TOOLCHAIN);
    let io = |source| Error::io(&folder, source);
    let bin = bin(session);
    std::fs::create_dir_all(&bin).map_err(io)?;
    link_all(&sysroot, &folder, "bin").map_err(io)?;
    link_all(&sysroot.join("bin"), &bin, "cargo").map_err(io)?;
    let cargo = bin.join("cargo");
    symlink(sysroot.join("bin").join("cargo"), bin.join(REAL)).map_err(io)?;
    for program in [&cargo, &bin.join(rustc::RECORDER)] {
        symlink(paths::this_program()?, program).map_err(io)?;
    }
    Ok([(TOOLCHAIN_VARIABLE, folder), (CARGO_VARIABLE, cargo)])
}

/// Links every entry of `from` except `except` into `to`.
fn link_all(from: &Path, to: &Path, except: &str) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() != except {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_cells_see_and_what_the_user_added_is_kept() {
        let graph = [
            ("ctx", vec!["cloze-session", "rand"]),
            ("cloze-session", vec!["cloze", "dfdx"]),
            ("cloze", vec!["dfdx", "tokenizers", "clap"]),
            ("dfdx", vec!["half", "cudarc", "rand"]),
            ("half", vec!["crunchy"]),
            ("tokenizers", vec!["libc"]),
            ("rand", vec!["rand_core"]),
            ("rand_core", vec![]),
            ("cudarc", vec![]),
            ("clap", vec![]),
            ("libc", vec![]),
            ("crunchy", vec![]),
        ];
        let mut metadata = json!({
            "packages": graph
                .iter()
                .map(|(name, _)| json!({"id": name, "name": name}))
                .collect::<Vec<_>>(),
            "resolve": {
                "root": "ctx",
                "nodes": graph
                    .iter()
                    .map(|(name, needs)| json!({
                        "id": name,
                        "dependencies": needs,
                        "deps": needs.iter().map(|need| json!({"pkg": need})).collect::<Vec<_>>(),
                    }))
                    .collect::<Vec<_>>(),
            },
        });
        prune(&mut metadata);
        let mut kept: Vec<_> = metadata["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| package["id"].as_str().unwrap())
            .collect();
        kept.sort();
        assert_eq!(kept, ["cloze", "cloze-session", "ctx", "dfdx", "half", "rand", "rand_core"]);
        assert_eq!(metadata["resolve"]["nodes"].as_array().unwrap().len(), 7);
    }

    #[test]
    fn an_answer_without_a_root_is_left_alone() {
        let mut metadata =
            json!({"packages": [{"id": "a", "name": "a"}], "resolve": {"root": null}});
        let before = metadata.clone();
        prune(&mut metadata);
        assert_eq!(metadata, before);
    }
}
