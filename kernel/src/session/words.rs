//! The words with which evcxr's generated code speaks to evcxr.
//!
//! They are lines on standard output, so a file that a cell prints may hold them too: one of them
//! would make evcxr forget a variable and run the cell again. So before a cell is compiled the
//! stand-in for cargo (see [`super::cargo`]) puts the session's token in front of every word in the
//! code that evcxr has generated, and the session hears only words with it.

use std::path::Path;

use cloze::display::wire::OPENING;

/// Every word begins so.
pub const WORD: &str = "EVCXR_";
/// A panic reached the cell's edge.
pub const PANIC: &str = "EVCXR_PANIC_NOTIFICATION";
/// `?` left the cell with an error.
pub const USER_ERROR: &str = "EVCXR_ERROR_OCCURRED";
/// Around the text of a value that evcxr shows.
pub const TEXT_BEGIN: &str = "EVCXR_BEGIN_CONTENT text/plain";
pub const TEXT_END: &str = "EVCXR_END_CONTENT";

/// Lines of evcxr's runtime.
const RUNTIME: [&str; 2] = [
    r#"pub const VARIABLE_CHANGED_TYPE: &str = "EVCXR_VARIABLE_CHANGED_TYPE:";"#,
    r#"pub const USER_ERROR_OCCURRED: &str = "EVCXR_ERROR_OCCURRED";"#,
];
/// The function that shows a value begins and ends so.
const SHOWS: &str = "fn evcxr_send_text_plain(text: &str)";
const END: &str = "}";
/// The line that reports a panic, and those after which evcxr writes it.
const REPORTS: &str = r#"    println!("EVCXR_PANIC_NOTIFICATION");"#;
const CAUGHT: [&str; 2] = ["  Err(_) => {", "}).is_err() {"];

/// The file beside the stand-in that holds the session's token.
const TOKEN: &str = "token";

/// Writes the token for the stand-in in `bin`.
pub fn keep_token(bin: &Path, token: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(bin.join(TOKEN))?;
    std::io::Write::write_all(&mut file, token.as_bytes())
}

/// Signs the words in the cell that the stand-in in `bin` is about to have compiled.
pub fn sign_cell(bin: &Path) -> std::io::Result<()> {
    let token = std::fs::read_to_string(bin.join(TOKEN))?;
    let cell = Path::new("src/lib.rs");
    let code = std::fs::read_to_string(cell)?;
    std::fs::write(cell, signed(&code, &token))
}

/// A cell's code with the token in front of evcxr's words. What the user has written stays, and
/// every line stays where it is.
fn signed(code: &str, token: &str) -> String {
    let word = format!("\\x{:02x}{token} {WORD}", u32::from(OPENING));
    let mut signed = String::with_capacity(code.len() + 256);
    let mut before = "";
    let mut shows = false;
    for line in code.split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        shows = (shows || bare == SHOWS) && bare != END;
        let generated =
            shows || RUNTIME.contains(&bare) || (bare == REPORTS && CAUGHT.contains(&before));
        if generated {
            signed += &line.replace(WORD, &word);
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
    fn evcxr_s_words_are_signed_and_the_user_s_are_not() {
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
        let code = |mark: &str| {
            [&generated[..], &own]
                .concat()
                .join("\n")
                .replace('@', mark)
        };
        assert_eq!(signed(&code(""), "t"), code("\\x1et "));
        assert_eq!(signed("", "t"), "");
    }
}
