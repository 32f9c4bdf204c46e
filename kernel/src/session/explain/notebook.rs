//! What to do in a notebook, where variables live on from cell to cell: moved values, borrows, missing
//! `mut`, syntax.

use super::{Diagnostic, Explanation, ambiguous, expected, last_name, names, types};

/// A code of rustc (empty for syntax errors and evcxr's own), a part of the message, a sentence, and a
/// hint. `{name}` stands for the first name in the message.
const TEXTS: &[(&str, &str, &str, &str)] = &[
    ("E0384", "cannot assign twice to immutable variable", UNCHANGEABLE, MAKE_CHANGEABLE),
    ("E0596", "it is not declared as mutable", UNCHANGEABLE, MAKE_CHANGEABLE),
    ("E0597", "", "", OWN),
    ("E0716", "", "", OWN),
    ("E0521", "", "", OWN),
    (
        "E0373",
        "",
        "",
        "write `move` before the bars of the closure, and give it a `.clone()` of what later cells need",
    ),
    ("E0499", "", "", END_BORROW),
    ("E0502", "", "", END_BORROW),
    ("E0505", "", "", END_BORROW),
    (
        "E0599",
        "no method named `clone`",
        "",
        "write `#[derive(Clone)]` above the type and run its cell again",
    ),
    ("E0603", "", "", PRIVATE),
    ("E0616", "", "", PRIVATE),
    ("E0624", "", "", PRIVATE),
    ("E0728", "", "", "a cell itself may `.await`; a function must be `async fn`"),
    (
        "E0106",
        "",
        "",
        "the simplest solution in a notebook is an owned result: `String` for `&str`, `Vec<T>` for `&[T]`",
    ),
    (
        "E0133",
        "mutable static",
        "",
        "variables outlive their cell: with `let mut x = 0;` in one cell, the next can change `x`",
    ),
    ("E0434", "", names::CAPTURED, names::PASS),
    ("E0765", "", "a string is not closed: a `\"` is missing", ""),
    (
        "",
        "contains a reference with a non-static lifetime",
        "`{name}` borrows from another variable, and a variable that outlives its cell cannot",
        OWN,
    ),
    ("", "unclosed delimiter", BRACKET, ""),
    ("", "closing delimiter", BRACKET, ""),
    (
        "",
        "cannot find macro",
        "",
        "macros of Cloze (`show!`, `check!`, `hint!`) come with `use cloze::prelude::*;`",
    ),
];

const UNCHANGEABLE: &str = "`{name}` cannot be changed: it was defined without `mut`";
const MAKE_CHANGEABLE: &str = "write `let mut {name} = …` in its definition; if an earlier cell defines \
    it, `let mut {name} = {name};` once is enough";
const OWN: &str = "variables outlive their cell, and one cannot borrow from another: keep an owned value \
    (`.clone()`, `.to_owned()`, `.collect::<Vec<_>>()`), or do it all in one cell between `{` and `}`";
const END_BORROW: &str = "`{name}` is borrowed while it is changed or moved: end the borrow first, or \
    work on a `.clone()`";
const PRIVATE: &str = "`{name}` is private to its module: use one of its `pub` functions, or write `pub` \
    before `{name}` if the type is yours, and run that cell again";
const BRACKET: &str = "a bracket is opened and not closed, or closed by one of another kind";

/// Explains an error of the compiler that is not about tensors.
pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    let message = diagnostic.message.as_str();
    let name = types::quoted(message).next().unwrap_or_default();
    let special = match diagnostic.code.as_str() {
        "E0382" => return moved(diagnostic, name),
        "E0425" => return names::missing_value(diagnostic, name),
        "E0432" | "E0433" => return Some(names::unresolved(diagnostic, name)),
        "E0405" | "E0412" => return Some(names::prelude(name)),
        "E0282" | "E0283" | "E0284" => return ambiguous::unknown_type(diagnostic),
        "E0277" => return expected::bound(diagnostic),
        "E0308" => return expected::mismatch(diagnostic),
        "E0597" => thread(diagnostic, name),
        "E0599" => import(diagnostic),
        "" => syntax(diagnostic),
        _ => None,
    };
    special.or_else(|| {
        let found = |(code, part, ..): &&(&str, &str, &str, &str)| {
            *code == diagnostic.code && message.contains(part)
        };
        let (.., sentence, hint) = TEXTS.iter().find(found)?;
        Some(Explanation::filled(sentence, hint, name))
    })
}

/// The methods that take the tape, so that a copy with an empty one must not take their place.
const TAKES_TAPE: [&str; 2] = ["backward", "split_tape"];

fn moved(diagnostic: &Diagnostic, name: &str) -> Option<Explanation> {
    let taken = diagnostic
        .labelled("value moved here")
        .or_else(|| diagnostic.labelled("` moved due to"))
        .or_else(|| diagnostic.labelled("value moved into closure here"))?;
    let of = diagnostic.labelled("has type `Tensor<").map(|mark| types::quoted(&mark.label));
    let tensor = of.and_then(|mut of| of.find_map(types::tensor));
    let records = tensor.as_ref().is_some_and(|tensor| tensor.may_record);
    let line = taken.line;
    let how = if taken.label.contains("implicit call to `.into_iter()`") {
        format!("loop over `&{name}` to keep it")
    } else if taken.label.contains("in previous iteration") {
        let next = match tensor {
            Some(_) => format!("`{name} = …` if the result is the next `{name}`, or else "),
            None => String::new(),
        };
        let copy = if records { "with_empty_tape" } else { "clone" };
        format!("the loop needs it in every iteration: write {next}`{name}.{copy}()`")
    } else if records && TAKES_TAPE.contains(&last_name(&taken.text)) {
        format!("copy it before that: `let copy = {name}.with_empty_tape();`")
    } else if records {
        format!(
            "dfdx takes tensors by value; write `{name}.with_empty_tape()` there (a tensor that has a tape, or \
             may have one, has no `.clone()`)"
        )
    } else if tensor.is_some() {
        format!(
            "dfdx takes tensors by value; write `{name}.clone()` there, which copies no numbers"
        )
    } else {
        format!("write `{name}.clone()` there to keep it, or lend it as `&{name}`")
    };
    let sentence = format!("`{name}` was moved in line {line}: {how}");
    let explanation = Explanation::sentence(sentence)
        .and_hint("the cell did not run, so the variables of earlier cells are unchanged");
    // rustc proposes `.clone()`, which does not compile.
    Some(Explanation { complete: records, ..explanation })
}

fn thread(diagnostic: &Diagnostic, name: &str) -> Option<Explanation> {
    diagnostic.labelled("borrowed for `'static`")?;
    diagnostic.cell.contains("spawn").then(|| {
        Explanation::hint(format!(
            "a thread may live longer than `{name}`: give it its own, with `move` before the bars and \
             a `.clone()` made before"
        ))
    })
}

fn import(diagnostic: &Diagnostic) -> Option<Explanation> {
    let known = |note: &String| note.contains("perhaps you want to import it");
    let hint = "add that `use` line to the cell; it holds for later cells too";
    let known = diagnostic.notes.iter().any(known);
    known.then(|| Explanation::hint(hint))
}

/// Explains Python's syntax, which the compiler would correct in the wrong place, and a missing `;`.
fn syntax(diagnostic: &Diagnostic) -> Option<Explanation> {
    let message = diagnostic.message.as_str();
    let python = if diagnostic.line().trim_start().starts_with("def ") {
        "a function is `fn f(x: f32) -> f32 { … }` in Rust, not `def`"
    } else if message.starts_with("expected `{`, found `:`") {
        "a block is between `{` and `}` in Rust, not after a `:`"
    } else if message.starts_with("expected `;`") {
        let line = diagnostic.primary()?.line;
        return Some(Explanation::sentence(format!("a `;` is missing at the end of line {line}")));
    } else {
        return None;
    };
    Some(Explanation { complete: true, ..Explanation::sentence(python) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, text};
    use super::*;

    fn explained(code: &str, message: &str) -> String {
        text(explain(&diagnostic(code, message, "x", &[])))
    }

    #[test]
    fn a_moved_value_is_explained_with_the_line_that_took_it() {
        let mut error = diagnostic("E0382", "borrow of moved value: `x`", "x", &[]);
        assert_eq!(explain(&error), None);
        error.marks[0].label = "value moved here, in previous iteration of loop".to_owned();
        let text = text(explain(&error));
        assert!(text.starts_with("`x` was moved in line 1") && text.contains("every iteration"));
    }

    #[test]
    fn a_moved_tensor_with_a_tape_is_not_cloned() {
        const LOOP: &str = "`x` moved due to this method call, in previous iteration of loop";
        const CALL: &str = "`x` moved due to this method call";
        for (tape, written, label, part) in [
            ("", "exp()", CALL, "write `x.clone()` there"),
            (", T", "exp()", CALL, "write `x.with_empty_tape()` there"),
            (
                ", OwnedTape<f32, Cpu>",
                "backward()",
                CALL,
                "copy it before that: `let copy = x.with_empty_tape();`",
            ),
            ("", "exp()", LOOP, "write `x = …` if the result is the next `x`, or else `x.clone()`"),
            (", T", "exp()", LOOP, "or else `x.with_empty_tape()`"),
        ] {
            let mut error = diagnostic("E0382", "use of moved value: `x`", written, &[]);
            error.marks[0].label = label.to_owned();
            let mut of = error.marks[0].clone();
            of.label = format!(
                "move occurs because `x` has type `Tensor<(usize,), f32, Cpu{tape}>`, which"
            );
            error.marks.push(of);
            let explanation = explain(&error).unwrap();
            assert_eq!(explanation.complete, !tape.is_empty());
            let text = text(Some(explanation));
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_borrow_for_a_thread_is_explained_differently() {
        let mut error = diagnostic("E0597", "`s` does not live long enough", "s", &[]);
        error.marks[0].label = "argument requires that `s` is borrowed for `'static`".to_owned();
        for (cell, part) in [("thread::spawn(|| s)", "a thread may"), ("f(&s)", "outlive")] {
            error.cell = cell.to_owned();
            let text = text(explain(&error));
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn advice_is_given_only_if_it_applies() {
        let own = "cannot borrow `x` as mutable, as it is not declared as mutable";
        assert!(explained("E0596", own).contains("`let mut x = x;`"));
        let borrowed = "cannot borrow `*x` as mutable, as it is behind a `&` reference";
        assert_eq!(explained("E0596", borrowed), "");
        let variable = "use of mutable static is unsafe and requires unsafe block";
        assert!(explained("E0133", variable).contains("let mut x"));
        assert_eq!(explained("E0133", "call to unsafe function `f` is unsafe"), "");
    }
}
