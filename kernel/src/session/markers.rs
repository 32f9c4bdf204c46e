//! The markers that evcxr's generated code prints for evcxr.
//!
//! They are lines on standard output, and a file that a cell prints may contain them too; one of them
//! would make evcxr forget a variable and run the cell again. So before a cell is compiled, the
//! stand-in for cargo (see [`super::cargo`]) puts the session's token in front of every marker in the
//! code that evcxr has generated, and the session ignores markers without it.
//!
//! It also makes cells smaller. The store of variables, a hash map that evcxr writes into every cell, is taken
//! from the cells' library: rustc spent half of a small cell on it. And the variables that a cell does not mention stay
//! where they are: evcxr takes every variable out of its store and puts it back, and rustc compiles both for each
//! of their types. A variable with a type of the user's own is stored with the definitions behind it.
//!
//! And `?` sends its error in place of printing it: the session shows it once, as the cell's error.

use std::collections::HashSet;
use std::path::Path;

use cloze::display::wire::OPENING;

use super::own_types::{OwnTypes, words};
use super::rustc::RUNS;
use super::stream::MARKER;
use super::tree::write_private;

/// The cell panicked.
pub const PANIC: &str = "EVCXR_PANIC_NOTIFICATION";
/// Before the name of a variable whose type has changed, so that it is lost.
pub const TYPE_CHANGED: &str = "EVCXR_VARIABLE_CHANGED_TYPE:";

/// evcxr's runtime: its first line and its end.
const RUNTIME: &str = "mod evcxr_internal_runtime {\n";
const RUNTIME_END: &str = "\n}\n}\n";
/// Stands for the rest, see `dylib_root.rs`.
const SHARED_RUNTIME: &str = "pub use ::cloze::evcxr_runtime::*;";
/// evcxr's type for the error that ends a cell, and the lines that report it.
const ERROR_TYPE: &str = "            struct EvcxrUserCodeError {}\n";
const PRINTS_ERROR: &str = "                    eprintln!(";
const REPORTS_ERROR: &str = ", error);
                    println!(\"{}\", evcxr_internal_runtime::USER_ERROR_OCCURRED);\n";
/// The first and the last line of the function that shows a value.
const SHOWS: &str = "fn evcxr_send_text_plain(text: &str)";
const END: &str = "}";
/// The line that reports a panic, and the lines before it.
const REPORTS: &str = r#"    println!("EVCXR_PANIC_NOTIFICATION");"#;
const CAUGHT: [&str; 2] = ["  Err(_) => {", "}).is_err() {"];

/// The file beside the stand-in that holds the session's token.
const TOKEN: &str = "token";

/// Writes the token for the stand-in in `bin`.
pub fn keep_token(bin: &Path, token: &str) -> std::io::Result<()> {
    write_private(&bin.join(TOKEN), token.as_bytes())
}

/// Prepares the cell that the stand-in in `bin` is about to compile: signs its markers, takes the store of variables
/// from the library, leaves variables alone that it does not mention, and lets `?` send its error.
pub fn prepare_cell(bin: &Path) -> std::io::Result<()> {
    let token = std::fs::read_to_string(bin.join(TOKEN))?;
    let cell = Path::new("src/lib.rs");
    let code = std::fs::read_to_string(cell)?;
    let smaller = without_unused_variables(&with_shared_runtime(&code));
    std::fs::write(cell, signed(&with_errors_sent(&smaller), &token))
}

/// Sends the error that ends a cell in place of printing it. The number of each line stays.
fn with_errors_sent(code: &str) -> String {
    let Some(after_type) = code.find(ERROR_TYPE).map(|place| place + ERROR_TYPE.len()) else {
        return code.to_owned();
    };
    let (before, rest) = code.split_at(after_type);
    let parts = rest.split_once(PRINTS_ERROR);
    let parts = parts.and_then(|(head, rest)| Some((head, rest.split_once(REPORTS_ERROR)?)));
    match parts {
        Some((head, (format, rest))) => {
            format!(
                "{before}{head}evcxr_internal_runtime::fail(format!({format}, error));\n\n{rest}"
            )
        }
        None => code.to_owned(),
    }
}

/// Replaces evcxr's runtime by that of the library. The number of each line stays.
fn with_shared_runtime(code: &str) -> String {
    let parts = code.split_once(RUNTIME);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(RUNTIME_END)?)));
    let Some((before, (runtime, after))) = parts else {
        return code.to_owned();
    };
    let lines = "\n".repeat(runtime.matches('\n').count());
    format!("{before}{RUNTIME}{SHARED_RUNTIME}{lines}\n\n}}\n{after}")
}

/// evcxr's line before those that take the variables out of the store; the cell's own code follows them.
const STORE: &str = "let evcxr_variable_store = unsafe {&mut *evcxr_variable_store};";
/// Empties evcxr's lines for each variable whose name the cell does not contain, not even in a string
/// (`{x}` is a mention). A variable with a type of the user's own keeps them, with the definitions behind the type:
/// if these have changed, the variable is lost. A cell that is compiled only for its error messages keeps them all, so
/// that rustc finds similar names. The number of each line stays.
fn without_unused_variables(code: &str) -> String {
    let Some(begin) = code.find(STORE).filter(|_| code.contains(RUNS)) else {
        return code.to_owned();
    };
    let (items, body) = code.split_at(begin);
    let own_types = OwnTypes::of(items);
    let mut used = HashSet::new();
    for line in body.lines() {
        match Generated::parse(line) {
            None => used.extend(words(line)),
            Some(it) if !own_types.behind(it.of).is_empty() => {
                used.insert(it.name);
            }
            Some(_) => {}
        }
    }
    let mut kept = items.to_owned();
    for line in body.split('\n') {
        match Generated::parse(line) {
            Some(it) if !used.contains(it.name) => {}
            Some(it) => kept += &it.with_definitions(&own_types.behind(it.of)),
            None => kept += line,
        }
        kept.push('\n');
    }
    // The last line has no end.
    kept.pop();
    kept
}

/// A line that evcxr has generated for a variable: whether its type is still the same, the way out of the store, or
/// the way back.
struct Generated<'l> {
    line: &'l str,
    before: &'l str,
    call: &'l str,
    of: &'l str,
    name: &'l str,
}

impl<'l> Generated<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let (before, call) = line.split_once("evcxr_variable_store.")?;
        let (call, name) = call.rsplit_once(">(stringify!(")?;
        let (name, rest) = name.split_once(')')?;
        let (call, of) = call.split_once("::<")?;
        let generated = match call {
            "check_variable" => before == "vars_ok &= " && rest == ");",
            "take_variable" => before.starts_with("let ") && rest == ");",
            "put_variable" => before.is_empty() && rest == format!(", {name});"),
            _ => false,
        };
        generated.then_some(Self { line, before, call, of, name })
    }

    /// Lets the store keep and compare the definitions behind the variable's type.
    fn with_definitions(&self, definitions: &str) -> String {
        let Self { line, before, of, name, .. } = self;
        match self.call {
            _ if definitions.is_empty() => (*line).to_owned(),
            "check_variable" => format!(
                "{before}evcxr_variable_store.check_own::<{of}>(stringify!({name}), {definitions:?});"
            ),
            "put_variable" => format!(
                "evcxr_variable_store.put_own::<{of}>(stringify!({name}), {name}, {definitions:?});"
            ),
            _ => (*line).to_owned(),
        }
    }
}

/// Puts the token in front of evcxr's markers in a cell's code. The user's own code stays as it is, and
/// so does the number of each line.
fn signed(code: &str, token: &str) -> String {
    let marker = format!("\\x{:02x}{token} {MARKER}", u32::from(OPENING));
    let mut signed = String::with_capacity(code.len() + 256);
    let mut before = "";
    let mut shows = false;
    for line in code.split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        shows = (shows || bare == SHOWS) && bare != END;
        let generated = shows || (bare == REPORTS && CAUGHT.contains(&before));
        if generated {
            signed += &line.replace(MARKER, &marker);
        } else {
            signed += line;
        }
        before = bare;
    }
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evcxr_s_markers_are_signed_and_the_user_s_text_is_not() {
        let generated = [
            "}).is_err() {",
            "    println!(\"@EVCXR_PANIC_NOTIFICATION\");",
            "  Err(_) => {",
            "    println!(\"@EVCXR_PANIC_NOTIFICATION\");",
            "fn evcxr_send_text_plain(text: &str)",
            "{",
            "    output.write_all(b\"@EVCXR_BEGIN_CONTENT text/plain\\n\")?;",
            "    output.write_all(b\"\\n@EVCXR_END_CONTENT\\n\")?; Ok(())",
            "}",
        ];
        let own = [
            "println!(\"EVCXR_PANIC_NOTIFICATION\");",
            "    println!(\"EVCXR_PANIC_NOTIFICATION\");",
            "println!(\"EVCXR_BEGIN_CONTENT text/html\\n<i>\\nEVCXR_END_CONTENT\");",
        ];
        let code = |mark: &str| [&generated[..], &own].concat().join("\n").replace('@', mark);
        assert_eq!(signed(&code(""), "t"), code("\\x1et "));
        assert_eq!(signed("", "t"), "");
    }

    #[test]
    fn the_store_of_variables_is_the_library_s_and_the_lines_keep_their_numbers() {
        let own = "fn own() {\n}\n";
        let code = |module: &str| format!("{own}{RUNTIME}{module}{own}{own}");
        let evcxr = "// first\nimpl A {\n    pub fn b() {\n    }\n}\npub fn c() {\n}\n}\n";
        let shared = format!("{SHARED_RUNTIME}\n\n\n\n\n\n\n}}\n");
        assert_eq!(with_shared_runtime(&code(evcxr)), code(&shared));
        assert_eq!(with_shared_runtime(own), own);
    }

    #[test]
    fn an_error_is_sent_and_the_lines_keep_their_numbers() {
        let code =
            |report: &str| format!("eprintln!(\"{{}}\", error);\n{ERROR_TYPE}{report}\n}}\n");
        let evcxr = format!("{PRINTS_ERROR}\"{{:?}}\"{REPORTS_ERROR}");
        let sent = "evcxr_internal_runtime::fail(format!(\"{:?}\", error));\n\n";
        assert_eq!(with_errors_sent(&code(&evcxr)), code(sent));
        assert_eq!(with_errors_sent(ERROR_TYPE), ERROR_TYPE);
    }

    #[test]
    fn variables_that_a_cell_does_not_mention_stay_in_the_store() {
        let lines = |name: &str, of: &str| {
            [
                format!(
                    "vars_ok &= evcxr_variable_store.check_variable::<{of}>(stringify!({name}));"
                ),
                format!(
                    "let mut {name} = evcxr_variable_store.take_variable::<{of}>(stringify!({name}));"
                ),
                format!("evcxr_variable_store.put_variable::<{of}>(stringify!({name}), {name});"),
            ]
        };
        let all = [
            ("used", "i32"),
            ("printed", "Vec<Vec<f32>>"),
            ("idle", "Tensor<(Const<2>, usize), f32, Cpu>"),
            ("own", "Vec<Point<f32>>"),
            ("new", "String"),
        ];
        let own = OwnTypes::of("struct Point<T>(T);").behind("Vec<Point<f32>>");
        let code = |keep: &dyn Fn(&str) -> bool, own: &str| {
            let mut code = format!("struct Point<T>(T); fn idle() {{}}\n{STORE}\n");
            for step in 0..3 {
                if step == 2 {
                    code += RUNS;
                    code += "\nlet new = used + 1;\nprintln!(\"{printed}\");\n";
                }
                for (name, of) in all {
                    if name != "new" || step == 2 {
                        let line = &lines(name, of)[step];
                        if keep(name) {
                            let own = if name == "own" { own } else { "" };
                            // Each of the lines is a generated one.
                            code += &Generated::parse(line).unwrap().with_definitions(own);
                        }
                        code += "\n";
                    }
                }
            }
            code
        };
        let kept = without_unused_variables(&code(&|_| true, ""));
        assert_eq!(kept, code(&|name| name != "idle", &own));
        assert_eq!(kept.matches(&format!(", {own:?});")).count(), 2, "{kept}");
        let for_messages = code(&|_| true, "").replace(RUNS, "");
        for whole in ["fn run() {}", for_messages.as_str()] {
            assert_eq!(without_unused_variables(whole), whole);
        }
    }
}
