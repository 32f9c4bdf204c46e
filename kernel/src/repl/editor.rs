//! Opens a cell in the user's own editor.

use std::io::Write;
use std::process::Command;

use cloze::{Error, Result};

/// The editor if the user has set none.
const DEFAULT: &str = "vi";

/// Opens `code` in `$VISUAL`, `$EDITOR` or vi, and returns the edited text.
pub fn edit(code: &str) -> Result<String> {
    let named = |variable| std::env::var(variable).ok().filter(|name| !name.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR"));
    edit_with(editor.as_deref().unwrap_or(DEFAULT), code)
}

fn edit_with(editor: &str, code: &str) -> Result<String> {
    let failed = |source| Error::io("the text for the editor", source);
    let mut file =
        tempfile::Builder::new().prefix("cell-").suffix(".rs").tempfile().map_err(failed)?;
    file.write_all(code.as_bytes()).map_err(failed)?;
    // The variable is a shell command, such as `code --wait`.
    let ended = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file.path())
        .status()
        .map_err(|source| Error::io(editor, source))?;
    if !ended.success() {
        return Err(Error::Failed(format!(
            "the editor `{editor}` ended with {ended}: the text is unchanged"
        )));
    }
    // By its path: editors may replace the file.
    let text = std::fs::read_to_string(file.path()).map_err(failed)?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_editor_gets_the_text_and_changes_it() {
        let edited = edit_with("sed -i s/a/b/", "let a = 1;\n").unwrap();
        assert_eq!(edited, "let b = 1;");
        let error = edit_with("false", "x").unwrap_err().to_string();
        assert!(error.contains("`false`"), "{error}");
    }
}
