//! Compiling a cell without asking cargo again.
//!
//! For every cell evcxr runs `cargo build`, which looks at every finished crate before it runs rustc
//! once, with the same arguments as for the cell before. So the session's stand-in
//! for cargo (see [`super::cargo`]) keeps that one call of rustc, and as long as nothing that cargo
//! would look at has changed, it runs rustc directly. Of 0.24 s of CPU for compiling a warm cell
//! cargo's own share was 0.10.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use super::template::CRATE;

/// The name under which this binary stands between cargo and rustc.
const RECORDER: &str = "record-rustc";
/// Tells the recorder where to put what it sees.
const RECORD_VARIABLE: &str = "CLOZE_RECORD_RUSTC";
/// By it evcxr asks for the path of the library that was built.
const LIBRARY_VARIABLE: &str = "EVCXR_EXECUTION_SO_PATH";
/// rustc would optimise a cell's parts a second time, across their borders. Softmax and GELU of
/// 256×768 and a triple loop ran no faster for it, and a small tensor cell took 0.30 s, not 0.24.
const WITHOUT_LTO: &str = "-Clto=off";

/// One call of rustc, and the state of affairs in which it is right.
#[derive(Serialize, Deserialize)]
struct Recipe {
    state: u64,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// Acts as rustc's wrapper where this binary was started under that name.
pub fn run_if_recorder() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    if Path::new(&arguments.next()?).file_name() != Some(OsStr::new(RECORDER)) {
        return None;
    }
    let program = PathBuf::from(arguments.next()?);
    let arguments: Vec<OsString> = arguments.collect();
    // A recipe that can't be kept costs the next cell some time and nothing else.
    let _ = record(&program, &arguments);
    let error = Command::new(&program)
        .args(&arguments)
        .env_remove(RECORD_VARIABLE)
        .exec();
    cloze::note!("cannot run {}: {error}", program.display());
    Some(ExitCode::FAILURE)
}

fn record(program: &Path, arguments: &[OsString]) -> Option<()> {
    let is_cell = arguments
        .windows(2)
        .any(|pair| pair[0] == "--crate-name" && pair[1] == CRATE);
    let path = std::env::var_os(RECORD_VARIABLE)?;
    if !is_cell {
        return None;
    }
    let text = |text: &OsStr| text.to_str().map(str::to_owned);
    let recipe = Recipe {
        // Set by `keep`, once cargo has said that all is well.
        state: 0,
        program: program.to_owned(),
        arguments: arguments
            .iter()
            .map(|argument| text(argument))
            .collect::<Option<_>>()?,
        environment: std::env::vars_os()
            .filter(|(name, _)| name != RECORD_VARIABLE)
            .map(|(name, value)| Some((text(&name)?, text(&value)?)))
            .collect::<Option<_>>()?,
    };
    std::fs::write(path, serde_json::to_vec(&recipe).ok()?).ok()
}

/// A command of cargo in a session whose call of rustc can be kept.
pub struct Replay {
    recipe: PathBuf,
    recorder: PathBuf,
    state: u64,
}

impl Replay {
    /// The replay of `cargo <arguments>`, started as `program`; `None` where cargo must be asked.
    pub fn of(program: &Path, arguments: &[OsString]) -> Option<Self> {
        let command = ["build", "check"]
            .into_iter()
            .find(|command| arguments.iter().any(|argument| argument == command))?;
        // Somebody else's wrapper does more than run rustc.
        if std::env::var_os("RUSTC_WRAPPER").is_some() {
            return None;
        }
        let bin = program.parent()?;
        Some(Self {
            recipe: bin.join(format!("{command}.json")),
            recorder: bin.join(RECORDER),
            state: state(arguments)?,
        })
    }

    /// Becomes rustc where the recipe still holds; returns where it doesn't.
    pub fn run(&self) {
        let Some(recipe) = std::fs::read(&self.recipe)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Recipe>(&bytes).ok())
            .filter(|recipe| recipe.state == self.state)
        else {
            return;
        };
        if let Some(answer) = std::env::var_os(LIBRARY_VARIABLE) {
            let library = recipe.arguments.windows(2).find_map(|pair| {
                (pair[0] == "--out-dir").then(|| Path::new(&pair[1]).join(format!("lib{CRATE}.so")))
            });
            // Read only where rustc succeeds.
            let written = library.map(|path| std::fs::write(answer, path.as_os_str().as_bytes()));
            if !matches!(written, Some(Ok(()))) {
                return;
            }
        }
        // Where this fails, cargo is still there.
        let _ = Command::new(&recipe.program)
            .args(&recipe.arguments)
            .arg(WITHOUT_LTO)
            .env_clear()
            .envs(recipe.environment)
            .exec();
    }

    /// Has `cargo` tell how it calls rustc.
    pub fn record(&self, cargo: &mut Command) {
        // A recipe of another state must not stay where cargo has nothing to compile.
        let _ = std::fs::remove_file(&self.recipe);
        cargo
            .env("RUSTC_WRAPPER", &self.recorder)
            .env(RECORD_VARIABLE, &self.recipe);
    }

    /// Makes what was recorded valid: cargo succeeded, so all other crates are there.
    pub fn keep(&self) {
        let Some(mut recipe) = std::fs::read(&self.recipe)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Recipe>(&bytes).ok())
        else {
            return;
        };
        recipe.state = self.state;
        if let Ok(text) = serde_json::to_vec(&recipe) {
            // Without it cargo is asked again.
            let _ = std::fs::write(&self.recipe, text);
        }
    }
}

/// A hash of all that decides how cargo calls rustc; `None` where a crate in the making (`:dep`
/// with a path of the user's own) must be looked at for changes each time.
fn state(arguments: &[OsString]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    arguments.hash(&mut hasher);
    let manifest = std::fs::read_to_string("Cargo.toml").ok()?;
    let (_, dependencies) = manifest.split_once("[dependencies]")?;
    let own_crates = dependencies
        .lines()
        .any(|line| line.contains("path") && !line.starts_with("cloze = "));
    if own_crates {
        return None;
    }
    manifest.hash(&mut hasher);
    for name in ["Cargo.lock", ".cargo/config.toml"] {
        std::fs::read(name).unwrap_or_default().hash(&mut hasher);
    }
    let mut environment: Vec<_> = std::env::vars_os().collect();
    environment.sort();
    environment.hash(&mut hasher);
    Some(hasher.finish())
}

/// While this file stands beside the stand-in for cargo, a cell is compiled whose errors nobody
/// reads: those of the cell as it was written are asked for afterwards.
const UNREAD: &str = "errors-unread";
/// evcxr's code around a cell that is to run has this; around one that is compiled once more, for
/// better words in its errors, it has not.
const RUNS: &str = "std::panic::catch_unwind(";
/// A cell of items only has this instead.
const RUNS_NOTHING: &str = "mut x: *mut std::os::raw::c_void";
/// What evcxr takes for an error of rustc.
const SOME_ERROR: &str =
    r#"{"message":"not compiled again","code":null,"level":"error","spans":[],"children":[]}"#;

/// Whether this compilation is for words that nobody reads; then it has failed already.
pub fn is_unread(program: &Path) -> bool {
    let unread = program.with_file_name(UNREAD).exists()
        && std::fs::read_to_string("src/lib.rs")
            .is_ok_and(|code| ![RUNS, RUNS_NOTHING].iter().any(|mark| code.contains(mark)));
    if unread {
        // evcxr reads it; if it is gone there is nobody to answer.
        let _ = writeln!(std::io::stderr(), "{SOME_ERROR}");
    }
    unread
}

/// Says whether anybody reads the errors of what a session compiles next; `session` is its folder.
pub fn read_errors(session: &Path, read: bool) {
    let mark = super::cargo::bin(session).join(UNREAD);
    // Without the mark a wrong cell takes a little longer; one that stays is taken off by the next.
    let _ = match read {
        true => std::fs::remove_file(mark),
        false => std::fs::write(mark, ""),
    };
}

/// Makes the recorder's link beside the stand-in for cargo in `bin`.
pub fn link(bin: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(std::env::current_exe()?, bin.join(RECORDER))
}
