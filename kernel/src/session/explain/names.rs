//! Names that the compiler does not find: variables, types, crates.

use super::{Diagnostic, Explanation, Gone};
use crate::session::source;

pub const CAPTURED: &str = "a `fn` sees no variables of cells, so no `{name}`";
pub const PASS: &str = "pass `{name}` to it as an argument";

/// The parts of a model that learners' functions take, with their fields.
const FIELDS: [(&str, &[&str]); 5] = [
    ("Embeddings", &["words", "positions", "segments", "norm"]),
    ("Layer", &["attention", "attention_norm", "intermediate", "output", "output_norm"]),
    ("Attention", &["query", "key", "value", "output"]),
    ("LayerNorm1D", &["gamma", "beta", "epsilon"]),
    ("Linear", &["weight", "bias"]),
];

/// Explains a missing value, type or function.
pub fn missing_value(diagnostic: &Diagnostic, name: &str) -> Option<Explanation> {
    let noted = |text: &str| diagnostic.notes.iter().any(|note| note.contains(text));
    let (_, what) = diagnostic.message.split_once("cannot find ")?;
    if let Some(gone) = &diagnostic.gone
        && function(diagnostic, name).is_none()
    {
        return Some(lost(name, gone));
    }
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
        "value" if let Some(function) = function(diagnostic, name) => Some(captured(function, name)),
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

/// Explains why a variable is no longer there.
fn lost(name: &str, gone: &Gone) -> Explanation {
    let again = format!("run the cell that defines `{name}` again");
    let (why, hint) = match gone {
        Gone::Moved(cell) => (
            format!("the cell `{cell}` moved its value away"),
            format!("{again}, and pass `{name}.clone()` or `&{name}` to the code that takes it"),
        ),
        Gone::Redefined => ("its type was defined anew".to_owned(), again),
    };
    let sentence = format!("`{name}` is no longer there: {why}");
    // The compiler would advise a variable with a similar name.
    Explanation { complete: true, ..Explanation::sentence(sentence).and_hint(hint) }
}

/// Explains a variable of the notebook, or a field without its owner, in a `fn`.
fn captured(function: &str, name: &str) -> Explanation {
    let explanation = if let Some(owner) = owner(function, name) {
        Explanation::sentence(format!("`{name}` is a field of `{owner}`: write `{owner}.{name}`"))
    } else if ["dev", "device"].contains(&name) {
        let hint = format!("write `let {name} = Cpu::default();` in it, or {PASS}");
        Explanation::filled(CAPTURED, &hint, name)
    } else {
        return Explanation::filled(CAPTURED, PASS, name);
    };
    // rustc proposes functions with similar names.
    Explanation { complete: true, ..explanation }
}

/// Returns the parameter of `function` that has the field `name`.
fn owner<'a>(function: &'a str, name: &str) -> Option<&'a str> {
    let (signature, _) = function.split_once('{')?;
    signature.split(['(', ',']).find_map(|part| {
        let (parameter, of) = part.split_once(": ")?;
        let of = of.trim_start_matches('&').trim_start_matches("mut ").split(['<', ')']).next()?;
        let of = of.rsplit("::").next()?;
        FIELDS
            .iter()
            .any(|(owner, fields)| *owner == of && fields.contains(&name))
            .then(|| parameter.trim())
    })
}

/// Returns the `fn` of the cell in which the compiler points at `name`.
fn function<'a>(diagnostic: &'a Diagnostic, name: &str) -> Option<&'a str> {
    let line = diagnostic.marked_line()?;
    let cell = diagnostic.cell.as_str();
    let lines = cell.split_inclusive('\n');
    let begin: usize = lines.clone().take(line - 1).map(str::len).sum();
    let end = begin + lines.clone().nth(line - 1).map_or(0, str::len);
    source::functions(cell).into_iter().find_map(|function| {
        let part = function.start.max(begin)..function.end.min(end);
        cell.get(part)?.contains(name).then(|| cell.get(function))?
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
    fn a_field_is_recognised_by_the_type_of_a_parameter() {
        let function = |of: &str| {
            format!(
                "fn f<T: Tape<f32, Cpu>>(\n    x: Batch<T>,\n    layer: {of}) -> Batch<T> {{ x }}"
            )
        };
        for of in ["&Layer<H, A, K, I, f32, Cpu>", "cloze::model::Layer<H>", "&mut Layer<H>"] {
            assert_eq!(owner(&function(of), "attention_norm"), Some("layer"), "{of}");
        }
        for of in ["&Linear<H, H, f32, Cpu>", "Players", "f32"] {
            assert_eq!(owner(&function(of), "attention_norm"), None, "{of}");
        }
    }

    #[test]
    fn a_moved_variable_is_called_moved_even_if_there_is_a_similar_name() {
        let similar = "a local variable with a similar name exists";
        let message = "cannot find value `q` in this scope";
        let mut error = diagnostic("E0425", message, "q", &[similar]);
        error.gone = Some(Gone::Moved("let r = q;".to_owned()));
        let said = text(missing_value(&error, "q"));
        assert!(said.contains("the cell `let r = q;` moved its value away"), "{said}");
        error.gone = Some(Gone::Redefined);
        let said = text(missing_value(&error, "q"));
        assert!(said.contains("its type was defined anew"), "{said}");
        error.notes.clear();
        error.cell = "fn f() { q; }".to_owned();
        error.marks[0].line = 1;
        assert!(text(missing_value(&error, "q")).contains("a `fn` sees no variables"));
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
        let device = "fn f() -> Cpu { dev.clone() }";
        let mut error = diagnostic("E0425", "cannot find value `dev` in this scope", "dev", &[]);
        error.cell = device.to_owned();
        assert!(
            text(missing_value(&error, "dev"))
                .contains("`let dev = Cpu::default();` in it, or pass")
        );
        let similar = "a local variable with a similar name exists";
        assert!(explained(function, 2, &[similar]).contains("but one with a similar name"));
    }
}
