//! The markers that evcxr's generated code prints for evcxr.
//!
//! They are lines on standard output, and a file that a cell prints may contain them too; one of them
//! would make evcxr forget a variable and run the cell again. So before a cell is compiled, the
//! stand-in for cargo (see [`super::cargo`]) puts the session's token in front of every marker in the
//! code that evcxr has generated, and the session ignores markers without it.

use std::path::Path;

use cloze::display::wire::OPENING;

use super::tree::write_private;

/// The beginning of every marker.
pub const MARKER: &str = "EVCXR_";
/// The cell panicked.
pub const PANIC: &str = "EVCXR_PANIC_NOTIFICATION";
/// `?` ended the cell with an error.
pub const USER_ERROR: &str = "EVCXR_ERROR_OCCURRED";
/// Stand before and after the text of a value that evcxr shows.
pub const TEXT_BEGIN: &str = "EVCXR_BEGIN_CONTENT text/plain";
pub const TEXT_END: &str = "EVCXR_END_CONTENT";

/// Lines of evcxr's runtime.
const RUNTIME: [&str; 2] = [
    r#"pub const VARIABLE_CHANGED_TYPE: &str = "EVCXR_VARIABLE_CHANGED_TYPE:";"#,
    r#"pub const USER_ERROR_OCCURRED: &str = "EVCXR_ERROR_OCCURRED";"#,
];
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

/// Signs the markers in the cell that the stand-in in `bin` is about to compile.
pub fn sign_cell(bin: &Path) -> std::io::Result<()> {
    let token = std::fs::read_to_string(bin.join(TOKEN))?;
    let cell = Path::new("src/lib.rs");
    let code = std::fs::read_to_string(cell)?;
    std::fs::write(cell, signed(&code, &token))
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
            shows || RUNTIME.contains(&bare) || (bare == REPORTS && CAUGHT.contains(&before));
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
            "pub const VARIABLE_CHANGED_TYPE: &str = \"@EVCXR_VARIABLE_CHANGED_TYPE:\";",
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
}
