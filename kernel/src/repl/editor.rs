//! A cell in the user's own editor.

use std::io::Write;
use std::process::Command;

use cloze::{Error, Result};

/// What opens where the user has named no editor.
const COMMON: &str = "vi";

/// Opens `$VISUAL`, `$EDITOR` or vi on `code` and gives back what it was made.
pub fn edit(code: &str) -> Result<String> {
    let named = |variable| {
        std::env::var(variable)
            .ok()
            .filter(|name| !name.trim().is_empty())
    };
    let editor = named("VISUAL").or_else(|| named("EDITOR"));
    edit_with(editor.as_deref().unwrap_or(COMMON), code)
}

fn edit_with(editor: &str, code: &str) -> Result<String> {
    let failed = |source| Error::io("the text for the editor", source);
    let mut file = tempfile::Builder::new()
        .prefix("cell-")
        .suffix(".rs")
        .tempfile()
        .map_err(failed)?;
    file.write_all(code.as_bytes()).map_err(failed)?;
    // The variable is a shell's command: `code --wait`.
    let ended = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file.path())
        .status()
        .map_err(|source| Error::io(editor, source))?;
    if !ended.success() {
        return Err(Error::Failed(format!(
            "the editor `{editor}` ended with {ended}: the text is as it was"
        )));
    }
    // By its path: editors write another file in its place.
    let text = std::fs::read_to_string(file.path()).map_err(failed)?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_editor_gets_the_text_and_gives_another_back() {
        assert_eq!(
            edit_with("sed -i s/a/b/", "let a = 1;\n").unwrap(),
            "let b = 1;"
        );
        let told = edit_with("false", "x").unwrap_err().to_string();
        assert!(told.contains("`false`"), "{told}");
    }
}
