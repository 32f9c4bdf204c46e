//! Compiles cells without cargo.
//!
//! For every cell evcxr runs `cargo build`, which checks every finished crate and then runs rustc
//! once, with the same arguments as for the cell before. So the session's stand-in for cargo (see
//! [`super::cargo`]) records that call of rustc, and repeats it as long as nothing has changed that
//! cargo would check. Cargo's own share was 0.10 of the 0.24 s of CPU time that a warm cell takes to
//! compile. A check is the same call that stops before it generates code.
//!
//! The recorder also adds the compiled Cloze, which cargo does not know, to the call, and the linker.

use std::env::consts::DLL_SUFFIX;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use super::layout::{self, CRATE};
use super::linker;

/// The name under which this program stands between cargo and rustc.
pub const RECORDER: &str = "record-rustc";
/// The file, beside the stand-in for cargo, with the recorded call.
const RECIPE: &str = "rustc.json";
/// The file in which the recorder writes the call.
const RECORD_VARIABLE: &str = "CLOZE_RECORD_RUSTC";
/// The folder of the libraries that the recorder adds to the call.
const LIBRARIES_VARIABLE: &str = "CLOZE_SESSION_LIBRARIES";
/// Variables that a repeated call must not have; the last one names cargo's job server, which has ended by then.
const OF_THIS_CALL: [&str; 3] = [RECORD_VARIABLE, LIBRARIES_VARIABLE, "CARGO_MAKEFLAGS"];
/// Cargo runs the program that this variable names in place of rustc, for the cell alone.
const WRAPPER_VARIABLE: &str = "RUSTC_WORKSPACE_WRAPPER";
/// Names the program that runs rustc for all crates.
pub const USER_WRAPPER_VARIABLE: &str = "RUSTC_WRAPPER";
/// The file in which evcxr expects the path of the compiled library.
const LIBRARY_VARIABLE: &str = "EVCXR_EXECUTION_SO_PATH";
/// With link-time optimisation across a cell's codegen units, softmax and GELU of 256×768 and a triple
/// loop ran no faster, and a small tensor cell took 0.30 s instead of 0.24 to compile.
const WITHOUT_LTO: &str = "-Clto=off";
/// evcxr takes warnings for the reason when it cannot name a variable's type, and hides its own message.
const WITHOUT_WARNINGS: &str = "-Awarnings";
/// A check has warnings: also about results that need not be used, of which the session shows tensors, but not
/// about the spelling of names.
/// Nothing is said about assignments either, because a later cell may read the variable.
const OF_CHECK: [&str; 4] =
    ["-Wunused-results", "-Anonstandard-style", "-Aunused-assignments", "-Clink-dead-code"];

/// One call of rustc, and a hash of the state in which it is valid.
#[derive(Serialize, Deserialize)]
struct Recipe {
    state: u64,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// Acts as rustc's wrapper if this program was started under that name.
pub fn run_if_recorder() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    if Path::new(&arguments.next()?).file_name() != Some(OsStr::new(RECORDER)) {
        return None;
    }
    let program = PathBuf::from(arguments.next()?);
    let mut arguments: Vec<OsString> = arguments.collect();
    if is_cell(&arguments)
        && let Some(libraries) = std::env::var_os(LIBRARIES_VARIABLE)
    {
        let linker = linker::direct(&program, &arguments);
        // If it is missing, the child may find the standard library all the same, which it has loaded.
        arguments.extend(linker::run_path().ok().flatten());
        arguments.extend(layout::cells_library(Path::new(&libraries)));
        arguments.extend(linker);
        arguments.push(WITHOUT_WARNINGS.into());
        // Without a recipe the next cell only takes longer.
        let _ = write_recipe(&program, &arguments);
    }
    let error = Command::new(&program)
        .args(&arguments)
        .env_remove(RECORD_VARIABLE)
        .env_remove(LIBRARIES_VARIABLE)
        .exec();
    cloze::note!("cannot run {}: {error}", program.display());
    Some(ExitCode::FAILURE)
}

/// Returns whether rustc compiles a cell, and not only reports its version.
fn is_cell(arguments: &[OsString]) -> bool {
    arguments.windows(2).any(|pair| pair[0] == "--crate-name" && pair[1] == CRATE)
}

fn write_recipe(program: &Path, arguments: &[OsString]) -> Option<()> {
    let path = std::env::var_os(RECORD_VARIABLE)?;
    let text = |text: &OsStr| text.to_str().map(str::to_owned);
    let recipe = Recipe {
        // Set by `keep`, once cargo has succeeded.
        state: 0,
        program: program.to_owned(),
        arguments: arguments.iter().map(|argument| text(argument)).collect::<Option<_>>()?,
        environment: std::env::vars_os()
            .filter(|(name, _)| !OF_THIS_CALL.iter().any(|of_call| name == of_call))
            .map(|(name, value)| Some((text(&name)?, text(&value)?)))
            .collect::<Option<_>>()?,
    };
    std::fs::write(path, serde_json::to_vec(&recipe).ok()?).ok()
}

/// Makes `cargo` compile the cell with the compiled Cloze in `libraries`, and record how it calls rustc
/// in `bin`.
pub fn record(bin: &Path, libraries: &Path, cargo: &mut Command) {
    let recipe = bin.join(RECIPE);
    // If cargo has nothing to compile, the recipe of another state must not remain.
    let _ = std::fs::remove_file(&recipe);
    cargo
        .env(WRAPPER_VARIABLE, bin.join(RECORDER))
        .env(LIBRARIES_VARIABLE, libraries)
        .env(RECORD_VARIABLE, recipe);
}

/// A command of cargo in a session whose call of rustc can be repeated.
pub struct Replay {
    recipe: PathBuf,
    /// Whether no code is wanted.
    checks: bool,
    /// Whether a check's warnings are.
    warns: bool,
    state: u64,
}

impl Replay {
    /// Returns the replay of `cargo <arguments>` for the stand-in in `bin`, or `None` if cargo is needed.
    pub fn of(bin: &Path, arguments: &[OsString]) -> Option<Self> {
        // The user's own wrapper does more than run rustc. evcxr's, which is this program, keeps crates only.
        let wrapper = std::env::var_os(USER_WRAPPER_VARIABLE);
        let program = std::fs::canonicalize(bin.join("cargo")).ok();
        if wrapper.is_some_and(|wrapper| std::fs::canonicalize(wrapper).ok() != program) {
            return None;
        }
        let checks = arguments.iter().any(|argument| argument == "check");
        let warns = checks && bin.join(WARNS).exists();
        Some(Self { recipe: bin.join(RECIPE), checks, warns, state: state()? })
    }

    fn recipe(&self) -> Option<Recipe> {
        serde_json::from_slice(&std::fs::read(&self.recipe).ok()?).ok()
    }

    /// Becomes rustc if the recipe is still valid, and returns otherwise.
    pub fn run(&self) {
        let Some(recipe) = self.recipe().filter(|recipe| recipe.state == self.state) else {
            return;
        };
        if let Some(answer) = std::env::var_os(LIBRARY_VARIABLE) {
            let library = recipe.arguments.windows(2).find_map(|pair| {
                (pair[0] == "--out-dir")
                    .then(|| Path::new(&pair[1]).join(format!("lib{CRATE}{DLL_SUFFIX}")))
            });
            // evcxr reads the file only if rustc succeeds.
            let written = library.map(|path| std::fs::write(answer, path.as_os_str().as_bytes()));
            if !matches!(written, Some(Ok(()))) {
                return;
            }
        }
        let mut arguments = recipe.arguments;
        without_cache(&mut arguments);
        if self.checks {
            only_check(&mut arguments, self.warns);
        }
        // If this fails, cargo does the work.
        let _ = Command::new(&recipe.program)
            .args(arguments)
            .arg(WITHOUT_LTO)
            .env_clear()
            .envs(recipe.environment)
            .exec();
    }

    /// Validates the recorded call: cargo has succeeded, so all other crates are compiled. A check with warnings then runs it.
    pub fn keep(&self) {
        let (Some(mut recipe), Some(state)) = (self.recipe(), state()) else {
            return;
        };
        recipe.state = state;
        if let Ok(text) = serde_json::to_vec(&recipe) {
            // Without a recipe the next cell only takes longer.
            let _ = std::fs::write(&self.recipe, text);
        }
        if self.warns {
            // Cargo has compiled without warnings.
            self.run();
        }
    }
}

/// Makes a call of rustc stop before it generates code. If it warns, it goes further: constants that depend on type
/// parameters, in which dfdx compares sizes, are evaluated after the type check, but only for functions that are
/// called; nothing calls a check's. With `link-dead-code` all count as called.
fn only_check(arguments: &mut Vec<String>, warns: bool) {
    let emit = if warns { "--emit=dep-info,mir" } else { "--emit=dep-info,metadata" };
    for argument in &mut *arguments {
        if argument.starts_with("--emit=") {
            *argument = emit.to_owned();
        }
    }
    if warns {
        arguments.retain(|argument| argument != WITHOUT_WARNINGS);
        arguments.extend(OF_CHECK.map(str::to_owned));
    }
}

/// Removes rustc's cache between calls. It holds the parts of the last cell, but the next cell has other parts:
/// different tensor cells took 0.29 s (median) with the cache, and 0.25 s without it.
fn without_cache(arguments: &mut Vec<String>) {
    if let Some(at) = arguments.iter().position(|argument| argument.starts_with("incremental=")) {
        // With the `-C` before it.
        arguments.drain(at.saturating_sub(1)..=at);
    }
}

/// Returns a hash of everything that decides how cargo calls rustc, or `None` if cargo must check a
/// crate of the user's own (`:dep` with a path) for changes each time.
fn state() -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let manifest = std::fs::read_to_string("Cargo.toml").ok()?;
    let (_, dependencies) = manifest.split_once("[dependencies]")?;
    let own_crates =
        dependencies.lines().any(|line| line.contains("path") && !line.starts_with("cloze = "));
    if own_crates {
        return None;
    }
    manifest.hash(&mut hasher);
    for name in ["Cargo.lock", ".cargo/config.toml"] {
        std::fs::read(name).unwrap_or_default().hash(&mut hasher);
    }
    let mut environment: Vec<_> =
        std::env::vars_os().filter(|(name, _)| name != LIBRARY_VARIABLE).collect();
    environment.sort();
    environment.hash(&mut hasher);
    Some(hasher.finish())
}

/// While this file lies beside the stand-in for cargo, nobody reads the errors of the compiled cell:
/// the session will check the cell as the user wrote it.
const UNREAD: &str = "errors-unread";
/// evcxr's code around a cell that will run contains this. If a cell has failed, evcxr compiles it once
/// more for better error messages, and then its code does not.
pub const RUNS: &str = "std::panic::catch_unwind(";
/// A cell that consists of items contains this instead.
const RUNS_NOTHING: &str = "mut x: *mut std::os::raw::c_void";
/// evcxr reads this as an error of rustc.
const SOME_ERROR: &str =
    r#"{"message":"not compiled again","code":null,"level":"error","spans":[],"children":[]}"#;

/// Returns whether this compilation only serves error messages that nobody reads; it then fails at once.
pub fn is_unread(program: &Path) -> bool {
    let unread = program.with_file_name(UNREAD).exists()
        && std::fs::read_to_string("src/lib.rs")
            .is_ok_and(|code| ![RUNS, RUNS_NOTHING].iter().any(|mark| code.contains(mark)));
    if unread {
        // If evcxr has gone, nobody needs the answer.
        let _ = writeln!(std::io::stderr(), "{SOME_ERROR}");
    }
    unread
}

/// Sets whether somebody reads the errors of what a session compiles next; `session` is its folder.
pub fn read_errors(session: &Path, read: bool) {
    mark(session, UNREAD, !read);
}

/// While this file lies beside the stand-in for cargo, the session reads the warnings of checks. evcxr's own checks
/// have none: it would take them for errors.
const WARNS: &str = "warnings-read";

/// Sets whether the session reads the warnings of what it checks next.
pub fn read_warnings(session: &Path, read: bool) {
    mark(session, WARNS, read);
}

/// While this file lies beside the stand-in for cargo, a check stores no variables at the end of its cell.
const UNSTORED: &str = "variables-unstored";
/// The beginning of evcxr's lines that store a variable in a check.
const STORE: &str = "evcxr_variable_store(";

/// Sets whether the next checks of a session store the variables. A run does not store one that the cell has moved
/// away, but in a check that is an error, after which rustc neither warns nor evaluates constants.
pub fn store_variables(session: &Path, stored: bool) {
    mark(session, UNSTORED, !stored);
}

/// Removes what the session does not want from the code that is to be checked; its lines keep their numbers.
pub fn prepare_check(program: &Path) -> std::io::Result<()> {
    const CODE: &str = "src/lib.rs";
    if !program.with_file_name(UNSTORED).exists() {
        return Ok(());
    }
    std::fs::write(CODE, without_stores(&std::fs::read_to_string(CODE)?))
}

fn without_stores(code: &str) -> String {
    let lines = code.split('\n').map(|line| if line.starts_with(STORE) { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

fn mark(session: &Path, name: &str, set: bool) {
    let mark = layout::bin(session).join(name);
    // Without the file a wrong cell takes a little longer, or a check says less; one that remains is removed later.
    let _ = match set {
        true => std::fs::write(mark, ""),
        false => std::fs::remove_file(mark),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_stops_before_the_code_and_no_call_uses_a_cache() {
        let call = [
            "--crate-name",
            "ctx",
            "--emit=dep-info,link",
            "-C",
            "incremental=/t/i",
            "-Copt",
            WITHOUT_WARNINGS,
        ];
        let mut arguments = call.map(str::to_owned).to_vec();
        let mut silent = arguments.clone();
        only_check(&mut silent, false);
        assert_eq!(silent[2], "--emit=dep-info,metadata");
        assert_eq!((&silent[..2], &silent[3..]), (&arguments[..2], &arguments[3..]));
        only_check(&mut arguments, true);
        without_cache(&mut arguments);
        let expected = ["--crate-name", "ctx", "--emit=dep-info,mir", "-Copt"];
        assert_eq!(arguments, [&expected[..], &OF_CHECK].concat());
        without_cache(&mut arguments);
        assert_eq!(arguments.len(), 8);
    }

    #[test]
    fn a_check_without_stores_keeps_its_lines() {
        let code = "fn f() {\nlet a = 1;\nevcxr_variable_store(a);\nOk(())\n}\n";
        let expected = "fn f() {\nlet a = 1;\n\nOk(())\n}\n";
        assert_eq!(without_stores(code), expected);
    }

    #[test]
    fn the_cell_is_told_from_other_calls_of_rustc() {
        let calls = |words: &[&str]| is_cell(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(calls(&["--crate-name", "ctx", "src/lib.rs"]));
        assert!(!calls(&["--crate-name", "rand", "src/lib.rs"]));
        assert!(!calls(&["-vV"]));
    }
}
