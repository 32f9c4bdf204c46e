//! A stand-in for cargo that shows rust-analyzer fewer dependencies.
//!
//! To infer the types of a cell's variables evcxr's rust-analyzer expands and indexes every crate
//! that `cargo metadata` lists: some 150. Cells cannot name most of them, and some are not even
//! compiled. That is half of a session's start-up time and memory. So a session has a toolchain folder
//! of its own: links to the user's toolchain, except that its `cargo` is this program. It passes
//! everything on to the real cargo, and removes from the answer of `metadata` what cells cannot see.
//! If the build of a cell needs no cargo, it runs rustc itself, see [`super::rustc`].

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cloze::{Error, Result};
use serde_json::Value;

use super::layout::{CARGO_VARIABLE, LOCK, TOOLCHAIN, TOOLCHAIN_VARIABLE, bin, sysroot};
use super::markers;
use super::rustc::{self, Replay};
use crate::paths;

/// The real cargo, beside the link that stands in for it.
const REAL: &str = "cargo-real";

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
    command.args(&arguments);
    if has("build") {
        if rustc::is_unread(&program) {
            return Some(ExitCode::FAILURE);
        }
        if let Err(error) = markers::sign_cell(program.parent()?) {
            cloze::note!("the cell's code cannot be prepared: {error}");
            return Some(ExitCode::FAILURE);
        }
    }
    let failed = |error| {
        cloze::note!("cannot run {}: {error}", real.display());
        Some(ExitCode::FAILURE)
    };
    if let Some(replay) = Replay::of(&program, &arguments) {
        replay.run();
        replay.record(&mut command);
        let status = match command.status() {
            Ok(status) => status,
            Err(error) => return failed(error),
        };
        if status.success() {
            replay.keep();
        }
        return Some(ExitCode::from(status.code().map_or(1, |code| code as u8)));
    }
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
