//! Names that the compiler does not find: variables, types, crates.

use super::{Diagnostic, Explanation};
use crate::session::source;

pub const CAPTURED: &str = "a `fn` sees no variables of cells, so no `{name}`";
pub const PASS: &str = "pass `{name}` to it as an argument";

/// Explains a missing value, type or function.
pub fn missing_value(diagnostic: &Diagnostic, name: &str) -> Option<Explanation> {
    let noted = |text: &str| diagnostic.notes.iter().any(|note| note.contains(text));
    let (_, what) = diagnostic.message.split_once("cannot find ")?;
    match what.split(' ').next()? {
        "function" if name == "range" => {
            Some(Explanation::hint("Rust counts with `for i in 0..10 { … }`"))
        }
        "function" if name == "print" => {
            Some(Explanation::hint("Rust prints with `println!(\"{}\", x)`"))
        }
        "function" if !noted("similar name exists") => Some(Explanation::hint(format!(
            "run the cell that defines `{name}`, or write `use` for it; a new session starts with \
             `use cloze::prelude::*;`"
        ))),
        "type" => Some(prelude(name)),
        "value" if noted("new binding") => Some(
            Explanation::sentence(format!("there is no variable `{name}` yet"))
                .and_hint(format!("a new variable begins with `let`: `let {name} = …;`")),
        ),
        "value" if noted("local variable with a similar name") => Some(Explanation::sentence(
            format!("there is no variable `{name}`, but one with a similar name"),
        )),
        "value" if in_function(diagnostic, name) => Some(Explanation::filled(CAPTURED, PASS, name)),
        "value" => Some(
            Explanation::sentence(format!("there is no variable `{name}` now")).and_hint(format!(
                "its cell has not run in this session, or an earlier cell moved the value away: run \
                 the cell that defines `{name}` again, and pass `{name}.clone()` or `&{name}` to the \
                 code that takes it"
            )),
        ),
        _ => None,
    }
}

/// Returns whether the `name` that the compiler points at is inside a `fn` of the cell.
fn in_function(diagnostic: &Diagnostic, name: &str) -> bool {
    let Some(line) = diagnostic.marked_line() else {
        return false;
    };
    let cell = diagnostic.cell.as_str();
    let lines = cell.split_inclusive('\n');
    let begin: usize = lines.clone().take(line - 1).map(str::len).sum();
    let end = begin + lines.clone().nth(line - 1).map_or(0, str::len);
    source::functions(cell).into_iter().any(|function| {
        let part = function.start.max(begin)..function.end.min(end);
        cell.get(part).is_some_and(|part| part.contains(name))
    })
}

/// Explains where a type comes from.
pub fn prelude(name: &str) -> Explanation {
    Explanation::hint(match name {
        "Cuda" => "a notebook's tensors live on `Cpu`".to_owned(),
        "Tensor" | "Cpu" | "Rank0" | "Rank1" | "Rank2" | "Rank3" | "Rank4" | "Const" | "Axis"
        | "Bert" | "WordPiece" | "Pretrainer" => {
            format!("`{name}` comes with `use cloze::prelude::*;`: run that cell first")
        }
        _ => format!(
            "run the cell that defines `{name}`, or import it with `use` (`use cloze::prelude::*;` \
             has tensors and models)"
        ),
    })
}

/// Explains an unknown crate or module.
pub fn unresolved(diagnostic: &Diagnostic, path: &str) -> Explanation {
    let first = path.split("::").next().unwrap_or(path);
    let known = |note: &String| note.contains("consider importing");
    if diagnostic.notes.iter().any(known) {
        return Explanation::hint("add the `use` line to the cell; it holds for later cells too");
    }
    if path == "dfdx" {
        return Explanation::hint(
            "`dfdx` comes with `use cloze::prelude::*;`: run that cell first, and then `dfdx::…`",
        );
    }
    if matches!(first, "cloze" | "std") || first != path {
        return Explanation::hint(format!(
            "`{first}` has no such name; Tab after `{first}::` lists its names"
        ));
    }
    if first.starts_with(char::is_uppercase) {
        return prelude(first);
    }
    Explanation::sentence(format!("no crate or module `{first}` is known to this session"))
        .and_hint(format!(
            "add the crate before the `use`, with the line `:dep {first} = \"*\"`; or run the cell \
             that defines the module"
        ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, text};
    use super::*;

    #[test]
    fn a_missing_name_is_explained_by_its_kind() {
        let missing = |what: &str, notes: &[&str]| {
            let message = format!("cannot find {what} in this scope");
            text(missing_value(&diagnostic("E0425", &message, "x", notes), "x"))
        };
        assert!(missing("value `x`", &[]).contains("an earlier cell moved the value away"));
        let new = "you might have meant to introduce a new binding";
        assert!(missing("value `x`", &[new]).contains("`let x = …;`"));
        assert!(missing("type `x`", &[]).contains("run the cell that defines `x`"));
        let come_from = |name: &str| text(Some(prelude(name)));
        assert!(come_from("Cuda").contains("live on `Cpu`"));
        assert!(come_from("Tensor").contains("use cloze::prelude::*;"));
        let unknown = |path: &str| text(Some(unresolved(&diagnostic("E0432", "", "x", &[]), path)));
        assert!(unknown("rand").contains(":dep rand"));
        assert!(unknown("cloze::x").contains("Tab"));
    }

    #[test]
    fn a_function_is_distinguished_from_a_cell_however_many_lines_it_has() {
        let message = "cannot find value `words` in this scope";
        let explained = |cell: &str, line: usize, notes: &[&str]| {
            let mut error = diagnostic("E0425", message, "words", notes);
            error.cell = cell.to_owned();
            error.marks[0].line = line;
            text(missing_value(&error, "words"))
        };
        let function = "fn f() -> usize {\n    words.len()\n}";
        let one_line = "// größe\nfn f() -> usize { words.len() }";
        for cell in [function, one_line] {
            assert!(explained(cell, 2, &[]).starts_with("a `fn` sees no variables"));
        }
        for (cell, line) in [
            ("fn f() -> usize {\n    1\n}\nwords.len()", 4),
            ("fn f() {} words.len()", 1),
            ("// fn \nlet a = words.len();", 2),
            ("words", 7),
        ] {
            assert!(explained(cell, line, &[]).starts_with("there is no variable `words` now"));
        }
        let similar = "a local variable with a similar name exists";
        assert!(explained(function, 2, &[similar]).contains("but one with a similar name"));
    }
}
