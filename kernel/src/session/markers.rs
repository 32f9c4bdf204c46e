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
//! of their types.

use std::collections::HashSet;
use std::path::Path;

use cloze::display::wire::OPENING;

use super::rustc::RUNS;
use super::tree::write_private;

/// The beginning of every marker.
pub const MARKER: &str = "EVCXR_";
/// The cell panicked.
pub const PANIC: &str = "EVCXR_PANIC_NOTIFICATION";
/// `?` ended the cell with an error.
pub const USER_ERROR: &str = "EVCXR_ERROR_OCCURRED";
/// Before the name of a variable whose type has changed, so that it is lost.
pub const TYPE_CHANGED: &str = "EVCXR_VARIABLE_CHANGED_TYPE:";
/// Stand before and after the text of a value that evcxr shows.
pub const TEXT_BEGIN: &str = "EVCXR_BEGIN_CONTENT text/plain";
pub const TEXT_END: &str = "EVCXR_END_CONTENT";

/// evcxr's runtime: its first line, the line of it that stays, and its end.
const RUNTIME: &str = "mod evcxr_internal_runtime {\n";
const REPORTS_ERRORS: &str = r#"pub const USER_ERROR_OCCURRED: &str = "EVCXR_ERROR_OCCURRED";"#;
const RUNTIME_END: &str = "\n}\n}\n";
/// Stands for the rest, see `dylib_root.rs`.
const SHARED_RUNTIME: &str = "pub use ::cloze::evcxr_runtime::*;";
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
/// from the library, and leaves variables alone that it does not mention.
pub fn prepare_cell(bin: &Path) -> std::io::Result<()> {
    let token = std::fs::read_to_string(bin.join(TOKEN))?;
    let cell = Path::new("src/lib.rs");
    let code = std::fs::read_to_string(cell)?;
    let smaller = with_shared_runtime(&without_unused_variables(&code));
    std::fs::write(cell, signed(&smaller, &token))
}

/// Replaces evcxr's runtime by that of the library. The number of each line stays.
fn with_shared_runtime(code: &str) -> String {
    let parts = code.split_once(RUNTIME);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(RUNTIME_END)?)));
    let Some((before, (runtime, after))) = parts else {
        return code.to_owned();
    };
    let lines = runtime.split('\n').enumerate().map(|(index, line)| match (index, line) {
        (0, _) => SHARED_RUNTIME,
        (_, REPORTS_ERRORS) => line,
        _ => "",
    });
    let lines: Vec<_> = lines.collect();
    format!("{before}{RUNTIME}{}\n\n}}\n{after}", lines.join("\n"))
}

/// evcxr's line before those that take the variables out of the store; the cell's own code follows them.
const STORE: &str = "let evcxr_variable_store = unsafe {&mut *evcxr_variable_store};";
/// Keywords that define a type.
const DEFINES: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// Empties evcxr's lines for each variable whose name the cell does not contain, not even in a string
/// (`{x}` is a mention). A variable with a type of the user's own keeps them: evcxr must notice if that type
/// has changed. A cell that is compiled only for its error messages keeps them all, so that rustc finds
/// similar names. The number of each line stays.
fn without_unused_variables(code: &str) -> String {
    let Some(begin) = code.find(STORE).filter(|_| code.contains(RUNS)) else {
        return code.to_owned();
    };
    let (items, body) = code.split_at(begin);
    let after_keyword = words(items).zip(words(items).skip(1));
    let own_types: HashSet<_> = after_keyword
        .filter(|(keyword, _)| DEFINES.contains(keyword))
        .map(|(_, name)| name)
        .collect();
    let mut used = HashSet::new();
    for line in body.lines() {
        match variable(line) {
            None => used.extend(words(line)),
            Some(name) if words(line).any(|word| own_types.contains(word)) => {
                used.insert(name);
            }
            Some(_) => {}
        }
    }
    let mut kept = items.to_owned();
    for line in body.split_inclusive('\n') {
        match variable(line.trim_end_matches('\n')) {
            Some(name) if !used.contains(name) => kept.push('\n'),
            _ => kept += line,
        }
    }
    kept
}

/// Returns the variable for which evcxr has generated this line: whether its type is still the same, the
/// way out of the store, or the way back.
fn variable(line: &str) -> Option<&str> {
    let (before, call) = line.split_once("evcxr_variable_store.")?;
    let (call, name) = call.rsplit_once(">(stringify!(")?;
    let (name, rest) = name.split_once(')')?;
    let generated = match call.split_once("::<")?.0 {
        "check_variable" => before == "vars_ok &= " && rest == ");",
        "take_variable" => before.starts_with("let ") && rest == ");",
        "put_variable" => before.is_empty() && rest == format!(", {name});"),
        _ => false,
    };
    generated.then_some(name)
}

fn words(text: &str) -> impl Iterator<Item = &str> + Clone {
    let parts = text.split(|it: char| !it.is_alphanumeric() && it != '_');
    parts.filter(|word| !word.is_empty())
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
        let generated =
            shows || bare == REPORTS_ERRORS || (bare == REPORTS && CAUGHT.contains(&before));
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
            "pub const USER_ERROR_OCCURRED: &str = \"@EVCXR_ERROR_OCCURRED\";",
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
            "// pub const USER_ERROR_OCCURRED: &str = \"EVCXR_ERROR_OCCURRED\";",
        ];
        let code = |mark: &str| [&generated[..], &own].concat().join("\n").replace('@', mark);
        assert_eq!(signed(&code(""), "t"), code("\\x1et "));
        assert_eq!(signed("", "t"), "");
    }

    #[test]
    fn the_store_of_variables_is_the_library_s_and_the_lines_keep_their_numbers() {
        let own = "fn own() {\n}\n";
        let code = |module: &str| format!("{own}{RUNTIME}{module}{own}{own}");
        let evcxr = format!(
            "// first\n{REPORTS_ERRORS}\nimpl A {{\n    pub fn b() {{\n    }}\n}}\npub fn c() {{\n}}\n}}\n"
        );
        let shared = format!("{SHARED_RUNTIME}\n{REPORTS_ERRORS}\n\n\n\n\n\n\n}}\n");
        assert_eq!(with_shared_runtime(&code(&evcxr)), code(&shared));
        assert_eq!(with_shared_runtime(own), own);
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
        let code = |keep: &dyn Fn(&str) -> bool| {
            let mut code = format!("struct Point<T>(T); fn idle() {{}}\n{STORE}\n");
            for step in 0..3 {
                if step == 2 {
                    code += RUNS;
                    code += "\nlet new = used + 1;\nprintln!(\"{printed}\");\n";
                }
                for (name, of) in all {
                    if name != "new" || step == 2 {
                        if keep(name) {
                            code += &lines(name, of)[step];
                        }
                        code += "\n";
                    }
                }
            }
            code
        };
        let kept = without_unused_variables(&code(&|_| true));
        assert_eq!(kept, code(&|name| name != "idle"));
        let for_messages = code(&|_| true).replace(RUNS, "");
        for whole in ["fn run() {}", for_messages.as_str()] {
            assert_eq!(without_unused_variables(whole), whole);
        }
    }
}
