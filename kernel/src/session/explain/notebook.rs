//! What to do in a notebook, where variables live on from cell to cell: values that moved, borrows,
//! types that nothing tells, names that are not there.

use super::types;
use super::{Diagnostic, Explanation};
use crate::session::rewrite;

const NUMBERS: [&str; 12] = [
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "usize", "isize", "f32", "f64",
];

/// Explains an error of the compiler by its code, or by its words where it has none.
pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    let names: Vec<&str> = types::quoted(&diagnostic.message).collect();
    let name = names.first().copied().unwrap_or_default();
    match diagnostic.code.as_str() {
        "E0382" => moved(diagnostic, name),
        "E0425" => missing_value(diagnostic, name),
        "E0384" | "E0596" if unchangeable(&diagnostic.message) => Some(
            Explanation::sentence(format!(
                "`{name}` cannot be changed: it was defined without `mut`"
            ))
            .and_hint(format!(
                "write `let mut {name} = …` where it is defined; if an earlier cell did that, \
                 `let mut {name} = {name};` once is enough"
            )),
        ),
        "E0597"
            if diagnostic.labelled("borrowed for `'static`").is_some()
                && diagnostic.cell.contains("spawn") =>
        {
            Some(Explanation::hint(format!(
                "a thread may live longer than `{name}`: give it its own, with `move` before the \
                 bars and a `.clone()` made before"
            )))
        }
        "E0597" | "E0716" | "E0521" => Some(Explanation::hint(lent())),
        "E0373" => Some(Explanation::hint(
            "write `move` before the bars of the closure, and give it a `.clone()` of what later \
             cells need",
        )),
        "E0502" | "E0499" | "E0505" => Some(Explanation::hint(format!(
            "`{name}` is lent out while it is changed or moved: end the first use before, or work \
             on a `.clone()`"
        ))),
        "E0282" | "E0283" | "E0284" => untold(diagnostic),
        "E0432" | "E0433" => Some(unresolved(diagnostic, name)),
        "E0405" | "E0412" => Some(prelude(name)),
        "E0277" => bounds(diagnostic),
        "E0599" if diagnostic.message.starts_with("no method named `clone`") => Some(
            Explanation::hint("write `#[derive(Clone)]` above the type and run its cell again"),
        ),
        "E0599" => method(diagnostic),
        "E0308" => mismatch(diagnostic),
        "E0603" | "E0616" | "E0624" => Some(Explanation::hint(format!(
            "`{name}` is for its own module only: use one of its `pub` functions, or write `pub` \
             before `{name}` where the type is yours, and run that cell again"
        ))),
        "E0728" => Some(Explanation::hint(
            "a cell itself may `.await`; a function must be `async fn`",
        )),
        "E0106" => Some(Explanation::hint(
            "the simplest way out in a notebook is an owned result: `String` for `&str`, `Vec<T>` \
             for `&[T]`",
        )),
        "E0133" if diagnostic.message.contains("mutable static") => Some(Explanation::hint(
            "a variable lives on by itself: `let mut x = 0;` in one cell can be changed in the next",
        )),
        "E0434" => Some(captured(name)),
        "E0765" => Some(Explanation::sentence(
            "a text is not closed: a `\"` is missing",
        )),
        "" => words(diagnostic, name),
        _ => None,
    }
}

/// Whether a variable, and not what it borrows, lacks `mut`.
fn unchangeable(message: &str) -> bool {
    message.starts_with("cannot assign twice to immutable variable")
        || message.ends_with("it is not declared as mutable")
}

fn moved(diagnostic: &Diagnostic, name: &str) -> Option<Explanation> {
    let taken = diagnostic
        .labelled("value moved here")
        .or_else(|| diagnostic.labelled("` moved due to"))
        .or_else(|| diagnostic.labelled("value moved into closure here"))?;
    let tensor = diagnostic.labelled("has type `Tensor<").is_some();
    let how = if taken.label.contains("implicit call to `.into_iter()`") {
        format!("loop over `&{name}` to keep it")
    } else if taken.label.contains("in previous iteration") {
        format!("the loop wants it every time round: write `{name}.clone()`")
    } else if tensor {
        format!(
            "dfdx takes tensors by value; write `{name}.clone()` there, which copies no numbers"
        )
    } else {
        format!("write `{name}.clone()` there to keep it, or lend it as `&{name}`")
    };
    Some(
        Explanation::sentence(format!(
            "`{name}` was moved away in line {}: {how}",
            taken.line
        ))
        .and_hint("the cell did not run, so the variables of earlier cells are as they were"),
    )
}

fn missing_value(diagnostic: &Diagnostic, name: &str) -> Option<Explanation> {
    let told = |words: &str| diagnostic.notes.iter().any(|note| note.contains(words));
    let what = diagnostic
        .message
        .split_once("cannot find ")?
        .1
        .split(' ')
        .next()?;
    match what {
        "function" if name == "range" => Some(Explanation::hint(
            "Rust counts with `for i in 0..10 { … }`",
        )),
        "function" if name == "print" => Some(Explanation::hint(
            "Rust prints with `println!(\"{}\", x)`",
        )),
        "function" if !told("similar name exists") => Some(Explanation::hint(format!(
            "run the cell that defines `{name}`, or write `use` for it; a new session starts with \
             `use cloze::prelude::*;`"
        ))),
        "type" => Some(prelude(name)),
        "value" if told("new binding") => Some(
            Explanation::sentence(format!("there is no variable `{name}` yet"))
                .and_hint(format!("a new variable begins with `let`: `let {name} = …;`")),
        ),
        "value" if told("local variable with a similar name") => Some(Explanation::sentence(
            format!("there is no variable `{name}`, but one with a similar name"),
        )),
        "value" if in_function(diagnostic, name) => Some(captured(name)),
        "value" => Some(
            Explanation::sentence(format!("there is no variable `{name}` now")).and_hint(format!(
                "its cell has not run in this session, or an earlier cell moved the value away: run \
                 the cell that defines `{name}` again, and give `{name}.clone()` or `&{name}` to \
                 what takes it"
            )),
        ),
        _ => None,
    }
}

/// Whether the `name` that the compiler points at stands in a `fn` of the cell.
fn in_function(diagnostic: &Diagnostic, name: &str) -> bool {
    let Some(line) = diagnostic.marked_line() else {
        return false;
    };
    let cell = diagnostic.cell.as_str();
    let lines = cell.split_inclusive('\n');
    let begin: usize = lines.clone().take(line - 1).map(str::len).sum();
    let end = begin + lines.clone().nth(line - 1).map_or(0, str::len);
    rewrite::functions(cell).into_iter().any(|function| {
        let part = function.start.max(begin)..function.end.min(end);
        cell.get(part).is_some_and(|part| part.contains(name))
    })
}

fn captured(name: &str) -> Explanation {
    Explanation::sentence(format!("a `fn` sees no variables of cells, so no `{name}`"))
        .and_hint(format!("pass `{name}` to it as an argument"))
}

fn prelude(name: &str) -> Explanation {
    Explanation::hint(match name {
        "Cuda" => "a notebook's tensors live on `Cpu`".to_owned(),
        "Tensor" | "Cpu" | "Rank0" | "Rank1" | "Rank2" | "Rank3" | "Rank4" | "Const" | "Axis"
        | "Bert" | "WordPiece" | "Pretrainer" => {
            format!("`{name}` comes with `use cloze::prelude::*;`: run that cell first")
        }
        _ => format!(
            "run the cell that defines `{name}`, or bring it in with `use` (`use cloze::prelude::*;` \
             has tensors and models)"
        ),
    })
}

fn unresolved(diagnostic: &Diagnostic, path: &str) -> Explanation {
    let first = path.split("::").next().unwrap_or(path);
    let known = diagnostic
        .notes
        .iter()
        .any(|note| note.contains("consider importing"));
    if known {
        return Explanation::hint("add the `use` line to the cell; it holds for later cells too");
    }
    if path == "dfdx" {
        return Explanation::hint(
            "`dfdx` comes with `use cloze::prelude::*;`: run that cell first, and then `dfdx::…`",
        );
    }
    if matches!(first, "cloze" | "std") || first != path {
        return Explanation::hint(format!(
            "`{first}` has nothing of this name here; Tab after `{first}::` lists what there is"
        ));
    }
    if first.starts_with(char::is_uppercase) {
        return prelude(first);
    }
    Explanation::sentence(format!(
        "no crate or module `{first}` is known to this session"
    ))
    .and_hint(format!(
        "add the crate before the `use`, with the line `:dep {first} = \"*\"`; or run the cell \
             that defines the module"
    ))
}

fn untold(diagnostic: &Diagnostic) -> Option<Explanation> {
    let variable = diagnostic.notes.iter().find_map(|note| {
        let (_, rest) = note.split_once("consider giving `")?;
        Some(rest.split_once('`')?.0)
    });
    let line = diagnostic.line();
    let tensor = types::quoted(&diagnostic.message).find_map(|of| {
        let tensor = types::tensor(of)?;
        match (tensor.shape, tensor.dtype) {
            (Some(_), "_") => Some(of.replacen('_', "f32", 1)),
            (None, dtype) if dtype != "_" => {
                let rest = of.strip_prefix("Tensor<_, ")?;
                Some(format!("Tensor<Rank0, {rest}"))
            }
            _ => None,
        }
    });
    let named = || types::quoted(&diagnostic.message).find_map(filled);
    let example = tensor.or_else(named).unwrap_or_else(|| {
        let number = line.contains("parse") && !line.contains("collect");
        if number { "f32" } else { "Vec<f32>" }.to_owned()
    });
    Some(match variable {
        Some(variable) => Explanation::sentence(format!(
            "the type of `{variable}` cannot be told from this cell"
        ))
        .and_hint(format!(
            "what later cells do with it does not count: `let {variable}: {example} = …;`"
        )),
        None => Explanation::hint(format!(
            "name the type: `let x: {example} = …;`, or `::<…>` after the method"
        )),
    })
}

/// A type with an example for each part that nothing tells: `HashMap<String, f32>` for
/// `HashMap<_, _>`. `None` where there is no such part, or nobody can write the type.
fn filled(of: &str) -> Option<String> {
    let (name, arguments) = types::generic(of)?;
    let filled = arguments.iter().enumerate().map(|(index, argument)| {
        Some(match (*argument, name, index) {
            // What is found by its hash or its order, and what says what went wrong.
            ("_", "HashMap" | "BTreeMap" | "HashSet" | "BTreeSet", 0) | ("_", "Result", 1) => {
                "String".to_owned()
            }
            ("_", ..) => "f32".to_owned(),
            ("{integer}", ..) => "i32".to_owned(),
            ("{float}", ..) => "f64".to_owned(),
            (known, ..) if !known.contains(['_', '{']) => known.to_owned(),
            (other, ..) => filled(other)?,
        })
    });
    let filled: Vec<String> = filled.collect::<Option<_>>()?;
    let unknown = arguments.iter().any(|argument| argument.contains('_'));
    unknown.then(|| format!("{name}<{}>", filled.join(", ")))
}

fn bounds(diagnostic: &Diagnostic) -> Option<Explanation> {
    let message = diagnostic.message.as_str();
    if message.contains("`?` operator can only be used on `Result`s") {
        return Some(
            Explanation::sentence("`?` in a cell takes a `Result`, and this is an `Option`")
                .and_hint("write `.ok_or(\"why it is missing\")?`, or `.unwrap()`"),
        );
    }
    if message.starts_with("the `?` operator can only be used in a function") {
        return Some(Explanation::hint(
            "a cell may use `?` by itself; a function must return a `Result` for it",
        ));
    }
    if let Some(rest) = message.strip_prefix("`?` couldn't convert the error") {
        // Within evcxr rustc gives the whole path, which nobody writes.
        let last = |whole: &'_ str| match whole.contains('<') {
            true => whole.to_owned(),
            false => whole.rsplit("::").next().unwrap_or(whole).to_owned(),
        };
        let wanted = types::quoted(rest).next().map(last);
        return Some(Explanation::hint(match wanted.as_deref() {
            Some("String") => {
                "the function gives its error as a `String`: write `.map_err(|e| e.to_string())?`"
                    .to_owned()
            }
            Some(own) if diagnostic.cell.contains(own) => {
                format!("write `.map_err(|e| …)?`, which makes a `{own}` of the error `e`")
            }
            _ => {
                "`?` prints the error, so its type needs `Display` and `Debug`; `.unwrap()` needs \
                  `#[derive(Debug)]` only"
                    .to_owned()
            }
        }));
    }
    if message.contains("doesn't implement `std::fmt::Display`") {
        return Some(Explanation::hint(
            "print it with `{:?}`, or end the cell with its name",
        ));
    }
    if message.contains("doesn't implement `Debug`") {
        return Some(Explanation::hint(
            "write `#[derive(Debug)]` above the type and run its cell again",
        ));
    }
    if let Some((of, by)) = message.split_once("` cannot be indexed by `") {
        let by = by.trim_end_matches('`');
        return match of.trim_start_matches("the type `") {
            "str" | "String" => Some(Explanation::hint(
                "the letters of a text take one byte or more, so they have no positions: \
                 `.chars().nth(i)` gives one as an `Option`",
            )),
            _ if by == "&usize" => Some(Explanation::hint(
                "positions are `usize`, and this is a reference to one: write `[*i]`",
            )),
            _ if NUMBERS.contains(&by) => Some(Explanation::hint(
                "positions are `usize`: write `[i as usize]`",
            )),
            _ => None,
        };
    }
    arithmetic(message)
}

/// `cannot add `usize` to `i32``, and the like of two numbers.
fn arithmetic(message: &str) -> Option<Explanation> {
    let (verb, _) = message.split_once(" `")?;
    let numbers: Vec<&str> = types::quoted(message)
        .map(|of| of.trim_matches(['{', '}']))
        .filter(|of| NUMBERS.contains(of) || ["integer", "float"].contains(of))
        .collect();
    let [first, second] = numbers[..] else {
        return None;
    };
    let (left, right) = match verb {
        "cannot add" | "cannot subtract" => (second, first),
        "cannot multiply" | "cannot divide" => (first, second),
        _ => return None,
    };
    // A literal takes the other's type, and a number with a point is no integer.
    let to = match (left, right) {
        ("f64", _) | (_, "f64") => "f64",
        ("f32", _) | (_, "f32") => "f32",
        ("float", _) | (_, "float") => "f64",
        ("integer", other) => other,
        _ => left,
    };
    let point = if to.starts_with('f') {
        ", and `3.0` is a number with a point"
    } else {
        ""
    };
    Some(Explanation::hint(format!(
        "both numbers must have one type: `n as {to}` converts{point}"
    )))
}

fn method(diagnostic: &Diagnostic) -> Option<Explanation> {
    let import = diagnostic
        .notes
        .iter()
        .any(|note| note.contains("perhaps you want to import it"));
    import
        .then(|| Explanation::hint("add that `use` line to the cell; it holds for later cells too"))
}

fn mismatch(diagnostic: &Diagnostic) -> Option<Explanation> {
    let label = diagnostic.primary()?.label.as_str();
    let (wanted, found) = label.strip_prefix("expected `")?.split_once("`, found ")?;
    if wanted.contains("...") || found.contains("...") {
        return None;
    }
    // rustc names some types in words: integer, reference, fn item.
    let article = match found.chars().next() {
        Some('`') | None => "",
        Some('a' | 'e' | 'i' | 'o' | 'u') => "an ",
        Some(_) => "a ",
    };
    let said = Explanation::sentence(format!(
        "`{wanted}` is wanted here, and this is {article}{found}"
    ));
    let found = found.trim_matches('`');
    let wants_number = NUMBERS.contains(&wanted);
    let may_lack = |of: &str| of.starts_with("Option<") || of.starts_with("Result<");
    Some(if may_lack(wanted) && may_lack(found) {
        match (wanted.starts_with("Option<"), found.starts_with("Option<")) {
            (true, false) => said.and_hint("`.ok()` makes an `Option` of a `Result`"),
            (false, true) => {
                said.and_hint("`.ok_or(…)` makes a `Result` of an `Option`, with the error given")
            }
            // They differ in what they hold.
            _ => said,
        }
    } else if found.starts_with("Option<") {
        said.and_hint("it may be missing: `.unwrap()` takes it out, `.unwrap_or(…)` gives another")
    } else if found.starts_with("Result<") {
        said.and_hint("it may have failed: `?` takes it out, and ends the cell on an error")
    } else if wants_number && found.starts_with("Tensor<") {
        said.and_hint("`.array()` of a tensor with one number (`Rank0`) is that number")
    } else if let Some((wanted, found)) = entry(wanted).zip(entry(found))
        && wanted != found
        && NUMBERS.contains(&wanted)
        && NUMBERS.contains(&found)
    {
        said.and_hint(format!(
            "the numbers of a list are converted one by one: `list.iter().map(|&n| n as {wanted}).collect::<Vec<{wanted}>>()`"
        ))
    } else if entry(wanted).is_some() && found.starts_with("Tensor<") {
        let borrow = if wanted.starts_with('&') { "&" } else { "" };
        said.and_hint(format!(
            "`{borrow}x.as_vec()` gives the numbers of a tensor `x` as a list"
        ))
    } else if wants_number && NUMBERS.contains(&found) {
        said.and_hint(format!("`as {wanted}` converts a number"))
    } else {
        said
    })
}

/// The type of a list's entries: of `Vec<T>`, `[T]`, `[T; 3]`, and of references to them.
fn entry(list: &str) -> Option<&str> {
    let list = list.trim_start_matches('&').trim_start_matches("mut ");
    let inner = list
        .strip_prefix("Vec<")
        .and_then(|rest| rest.strip_suffix('>'))
        .or_else(|| list.strip_prefix('[')?.strip_suffix(']'))?;
    Some(inner.split(';').next().unwrap_or(inner).trim())
}

fn words(diagnostic: &Diagnostic, name: &str) -> Option<Explanation> {
    let message = diagnostic.message.as_str();
    if message.contains("contains a reference with a non-static lifetime") {
        return Some(
            Explanation::sentence(format!(
                "`{name}` borrows from another variable, and a variable that lives on cannot"
            ))
            .and_hint(lent()),
        );
    }
    if message.contains("unclosed delimiter") || message.contains("closing delimiter") {
        return Some(Explanation::sentence(
            "a bracket is opened and not closed, or closed by one of another kind",
        ));
    }
    if diagnostic.line().trim_start().starts_with("def ") {
        return Some(python(
            "a function is `fn f(x: f32) -> f32 { … }` in Rust, not `def`",
        ));
    }
    if message.starts_with("expected `{`, found `:`") {
        return Some(python(
            "a block stands between `{` and `}` in Rust, not after a `:`",
        ));
    }
    if message.starts_with("expected `;`") {
        let line = diagnostic.primary()?.line;
        return Some(Explanation::sentence(format!(
            "a `;` is missing at the end of line {line}"
        )));
    }
    if message.starts_with("cannot find macro") {
        return Some(Explanation::hint(
            "macros of Cloze (`show!`, `check!`, `hint!`) come with `use cloze::prelude::*;`",
        ));
    }
    None
}

/// Another language's form, which the compiler's advice would mend in the wrong place.
fn python(sentence: &str) -> Explanation {
    Explanation {
        complete: true,
        ..Explanation::sentence(sentence)
    }
}

fn lent() -> String {
    "variables live on after the cell, and one cannot borrow from another: keep an owned value \
     (`.clone()`, `.to_owned()`, `.collect::<Vec<_>>()`), or do it all in one cell between `{` and `}`"
        .to_owned()
}

/// Explains what evcxr says in its own words.
pub fn message(text: &str) -> Option<Explanation> {
    let name = types::quoted(text).next().unwrap_or_default();
    if text.contains("is a closure, which cannot be persisted") {
        return Some(
            Explanation::sentence(format!(
                "`{name}` is a closure, whose type has no name, so it cannot live on after the cell"
            ))
            .and_hint(format!(
                "write it as a `fn {name}(…) {{ … }}`, or box it: \
                 `let {name}: Box<dyn Fn(i32) -> i32> = Box::new(…);`",
            )),
        );
    }
    if text.contains("which cannot be persisted") {
        let of = types::quoted(text).nth(1).unwrap_or("impl …");
        let how = if of.contains("Future<") {
            "write `.await` to get its value".to_owned()
        } else if of.contains("Iterator<") {
            "collect it: `.collect::<Vec<_>>()`".to_owned()
        } else {
            format!(
                "box it: `let {name}: Box<{}> = Box::new(…);`",
                of.replace("impl ", "dyn ")
            )
        };
        return Some(
            Explanation::sentence(format!(
                "`{name}` is an `{of}`, a type without a name, so it cannot live on after the cell"
            ))
            .and_hint(format!(
                "{how}; or use it within the cell, between `{{` and `}}`"
            )),
        );
    }
    if text.contains("Couldn't automatically determine type") {
        return Some(
            Explanation::sentence(format!(
                "the type of `{name}` could not be told from its cell"
            ))
            .and_hint(format!("name it, as in `let {name}: Vec<f32> = …;`")),
        );
    }
    if text.contains("Failed to determine type of variable") {
        return Some(
            Explanation::sentence(format!("the type of `{name}` is private to its crate"))
                .and_hint(
                    "name a public type for it, or use it within the cell, between `{` and `}`",
                ),
        );
    }
    if text.contains("missing a semicolon") {
        return Some(Explanation::sentence(
            "a `;` is missing, most likely before a `let`",
        ));
    }
    if let Some((_, rest)) = text.split_once("no matching package named `") {
        let name = rest.split_once('`')?.0;
        return Some(
            Explanation::sentence(format!("no crate `{name}` can be had here")).and_hint(
                "check the spelling; a crate that was never downloaded needs the network",
            ),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::diagnostic;
    use super::*;

    fn said(code: &str, text: &str, notes: &[&str]) -> String {
        let said = explain(&diagnostic(code, text, "x", notes)).unwrap_or_default();
        let parts = [said.sentence, said.hint].into_iter().flatten();
        parts.collect::<Vec<_>>().join(" / ")
    }

    #[test]
    fn a_moved_value_is_told_with_the_line_that_took_it() {
        let mut of = diagnostic("E0382", "borrow of moved value: `x`", "x", &[]);
        assert_eq!(explain(&of), None);
        of.marks[0].label = "value moved here, in previous iteration of loop".to_owned();
        let told = explain(&of)
            .and_then(|said| said.sentence)
            .unwrap_or_default();
        assert!(told.starts_with("`x` was moved away in line 1") && told.contains("every time"));
    }

    #[test]
    fn a_missing_name_is_told_apart_by_what_it_may_be() {
        let value = "cannot find value `x` in this scope";
        assert!(said("E0425", value, &[]).contains("an earlier cell moved the value away"));
        let new = "you might have meant to introduce a new binding";
        assert!(said("E0425", value, &[new]).contains("`let x = …;`"));
        let cuda = said("E0425", "cannot find type `Cuda` in this scope", &[]);
        assert!(cuda.contains("live on `Cpu`"), "{cuda}");
        let tensor = said("E0412", "cannot find type `Tensor` in this scope", &[]);
        assert!(tensor.contains("use cloze::prelude::*;"), "{tensor}");
        assert!(said("E0432", "unresolved import `rand`", &[]).contains(":dep rand"));
        assert!(said("E0432", "unresolved import `cloze::x`", &[]).contains("Tab"));
    }

    #[test]
    fn two_numbers_are_made_one_type() {
        for (message, to) in [
            ("cannot add `usize` to `i32`", "i32"),
            ("cannot subtract `usize` from `i64`", "i64"),
            ("cannot multiply `u16` by `usize`", "u16"),
            ("cannot divide `f64` by `usize`", "f64"),
            ("cannot multiply `usize` by `f32`", "f32"),
            ("cannot add `f64` to `f32`", "f64"),
            ("cannot multiply `{float}` by `usize`", "f64"),
            ("cannot add `{integer}` to `f32`", "f32"),
        ] {
            let got = said("E0277", message, &[]);
            assert!(got.contains(&format!("`n as {to}` converts")), "{got}");
            assert_eq!(got.contains("with a point"), to.starts_with('f'), "{got}");
        }
        assert_eq!(said("E0277", "cannot add `String` to `i32`", &[]), "");
    }

    #[test]
    fn a_tensor_that_nothing_tells_is_given_as_a_tensor() {
        for (of, example) in [
            ("Tensor<_, f32, Cpu>", "Tensor<Rank0, f32, Cpu>"),
            ("Tensor<(usize,), _, Cpu>", "Tensor<(usize,), f32, Cpu>"),
            ("Vec<_>", "Vec<f32>"),
            ("HashMap<_, _>", "HashMap<String, f32>"),
            ("Vec<HashSet<_>>", "Vec<HashSet<String>>"),
            ("HashMap<{integer}, _>", "HashMap<i32, f32>"),
            ("Result<i32, _>", "Result<i32, String>"),
            ("Option<_>", "Option<f32>"),
            ("Box<{closure@x}>", "Vec<f32>"),
            ("_", "Vec<f32>"),
        ] {
            let message = format!("type annotations needed for `{of}`");
            let note = "consider giving `x` an explicit type";
            let got = said("E0283", &message, &[note]);
            assert!(got.contains(&format!("`let x: {example} = …;`")), "{got}");
        }
    }

    #[test]
    fn a_function_is_told_apart_from_a_cell_however_many_lines_it_has() {
        let message = "cannot find value `words` in this scope";
        let told = |cell: &str, line: usize, notes: &[&str]| {
            let mut of = diagnostic("E0425", message, "words", notes);
            of.cell = cell.to_owned();
            of.marks[0].line = line;
            explain(&of)
                .and_then(|said| said.sentence)
                .unwrap_or_default()
        };
        let function = "fn f() -> usize {\n    words.len()\n}";
        assert!(told(function, 2, &[]).starts_with("a `fn` sees no variables"));
        let one_line = "// größe\nfn f() -> usize { words.len() }";
        assert!(told(one_line, 2, &[]).starts_with("a `fn` sees no variables"));
        for (cell, line) in [
            ("fn f() -> usize {\n    1\n}\nwords.len()", 4),
            ("fn f() {} words.len()", 1),
            ("// fn \nlet a = words.len();", 2),
            ("words", 7),
        ] {
            assert!(told(cell, line, &[]).starts_with("there is no variable `words` now"));
        }
        let similar = "a local variable with a similar name exists";
        assert!(told(function, 2, &[similar]).contains("but one with a similar name"));
    }

    #[test]
    fn what_may_be_missing_is_taken_out_only_where_that_is_wanted() {
        for (wanted, found, hint) in [
            ("usize", "Option<&usize>", "`.unwrap()` takes it out"),
            ("usize", "Result<usize, E>", "`?` takes it out"),
            ("Option<usize>", "Result<usize, E>", "`.ok()`"),
            ("Result<usize, E>", "Option<usize>", "`.ok_or(…)`"),
            ("Option<usize>", "Option<&usize>", ""),
            ("Result<usize, E>", "Result<usize, F>", ""),
        ] {
            let mut of = diagnostic("E0308", "mismatched types", "x", &[]);
            of.marks[0].label = format!("expected `{wanted}`, found `{found}`");
            let said = explain(&of).unwrap_or_default();
            assert_eq!(said.hint.is_some(), !hint.is_empty(), "{wanted} {found}");
            assert!(said.hint.unwrap_or_default().contains(hint));
        }
    }

    #[test]
    fn advice_is_given_only_where_it_holds() {
        for (code, message, part) in [
            (
                "E0277",
                "the type `str` cannot be indexed by `{integer}`",
                ".chars().nth(i)",
            ),
            (
                "E0277",
                "the type `[f32]` cannot be indexed by `i32`",
                "[i as usize]",
            ),
            (
                "E0277",
                "the type `[f32]` cannot be indexed by `&usize`",
                "[*i]",
            ),
            (
                "E0277",
                "the type `[f32]` cannot be indexed by `String`",
                "",
            ),
            (
                "E0277",
                "`?` couldn't convert the error to `String`",
                "e.to_string())?",
            ),
            (
                "E0277",
                "`?` couldn't convert the error to `std::string::String`",
                "e.to_string())?",
            ),
            (
                "E0277",
                "`?` couldn't convert the error to `Other`",
                "`Display` and `Debug`",
            ),
            (
                "E0133",
                "use of mutable static is unsafe and requires unsafe block",
                "let mut x",
            ),
            ("E0133", "call to unsafe function `f` is unsafe", ""),
        ] {
            let told = said(code, message, &[]);
            assert!(told.contains(part), "{message}: {told}");
            assert_eq!(told.is_empty(), part.is_empty(), "{message}: {told}");
        }
        let mut of = diagnostic("E0277", "`?` couldn't convert the error to `Mine`", "", &[]);
        of.cell = "fn f() -> Result<u8, Mine> { Ok(g()?) }".to_owned();
        let hint = explain(&of).and_then(|said| said.hint).unwrap_or_default();
        assert!(hint.contains("makes a `Mine`"), "{hint}");

        let mut of = diagnostic("E0597", "`s` does not live long enough", "s", &[]);
        of.marks[0].label = "argument requires that `s` is borrowed for `'static`".to_owned();
        for (cell, part) in [
            ("thread::spawn(|| s)", "a thread may"),
            ("f(&s)", "live on"),
        ] {
            of.cell = cell.to_owned();
            let hint = explain(&of).and_then(|said| said.hint).unwrap_or_default();
            assert!(hint.contains(part), "{hint}");
        }
    }

    #[test]
    fn only_a_variable_without_mut_is_told_so() {
        let own = "cannot borrow `x` as mutable, as it is not declared as mutable";
        assert!(said("E0596", own, &[]).contains("`let mut x = x;`"));
        let lent = "cannot borrow `*x` as mutable, as it is behind a `&` reference";
        assert_eq!(said("E0596", lent, &[]), "");
    }

    #[test]
    fn evcxr_s_own_words_are_replaced_and_others_kept() {
        for (text, part) in [
            (
                "The variable `f` is a closure, which cannot be persisted.",
                "`fn f(…) { … }`",
            ),
            (
                "The variable `x` has type `impl Future<Output = i32>` which cannot be persisted.",
                "`.await`",
            ),
            (
                "Couldn't automatically determine type of variable `v`.",
                "`let v: Vec<f32> = …;`",
            ),
            (
                "error: no matching package named `nothere` found",
                "needs the network",
            ),
        ] {
            let hint = message(text).and_then(|said| said.hint).unwrap_or_default();
            assert!(hint.contains(part), "{hint}");
        }
        for text in ["", "`", "no matching package named `", "Something else"] {
            assert_eq!(message(text), None, "{text}");
        }
    }
}
