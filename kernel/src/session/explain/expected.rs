//! Values of another type than expected: numbers, `Option` and `Result`, lists, missing traits.

use super::{Diagnostic, Explanation, types};

/// The types of numbers.
pub const NUMBERS: [&str; 12] =
    ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "usize", "isize", "f32", "f64"];

/// Explains a trait that a type lacks (E0277).
pub fn bound(diagnostic: &Diagnostic) -> Option<Explanation> {
    let message = diagnostic.message.as_str();
    if message.contains("`?` operator can only be used on `Result`s") {
        return Some(
            Explanation::sentence("`?` in a cell takes a `Result`, and this is an `Option`")
                .and_hint("write `.ok_or(\"why it is missing\")?`, or `.unwrap()`"),
        );
    }
    if let Some(rest) = message.strip_prefix("`?` couldn't convert the error") {
        return Some(Explanation::hint(conversion(diagnostic, rest)));
    }
    if let Some((of, by)) = message.split_once("` cannot be indexed by `") {
        return index(of, by.trim_end_matches('`')).map(Explanation::hint);
    }
    let hint = if message.starts_with("the `?` operator can only be used in a function") {
        "a cell may use `?` by itself; a function must return a `Result` for it"
    } else if message.contains("doesn't implement `std::fmt::Display`") {
        "print it with `{:?}`, or end the cell with its name"
    } else if message.contains("doesn't implement `Debug`") {
        "write `#[derive(Debug)]` above the type and run its cell again"
    } else {
        return arithmetic(message);
    };
    Some(Explanation::hint(hint))
}

/// Returns the hint for a `?` whose error has another type.
fn conversion(diagnostic: &Diagnostic, message: &str) -> String {
    let whole = types::quoted(message).next().unwrap_or_default();
    // In evcxr's code rustc gives the whole path, which nobody writes.
    let expected = match whole.contains('<') {
        true => whole,
        false => whole.rsplit("::").next().unwrap_or(whole),
    };
    match expected {
        "String" => {
            "the function returns its error as a `String`: write `.map_err(|e| e.to_string())?`"
                .to_owned()
        }
        own if !own.is_empty() && diagnostic.cell.contains(own) => {
            format!("write `.map_err(|e| …)?`, which makes a `{own}` of the error `e`")
        }
        _ => "`?` prints the error, so its type needs `Display` and `Debug`; `.unwrap()` needs \
              `#[derive(Debug)]` only"
            .to_owned(),
    }
}

fn index(of: &str, by: &str) -> Option<&'static str> {
    match of.trim_start_matches("the type `") {
        "str" | "String" => Some(
            "the characters of a string take one byte or more, so they have no positions: \
             `.chars().nth(i)` gives one as an `Option`",
        ),
        _ if by == "&usize" => {
            Some("positions are `usize`, and this is a reference to one: write `[*i]`")
        }
        _ if NUMBERS.contains(&by) => Some("positions are `usize`: write `[i as usize]`"),
        _ => None,
    }
}

/// Explains "cannot add `usize` to `i32`" and the like.
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
    // An integer literal takes the other's type; a literal with a decimal point is no integer.
    let to = match (left, right) {
        ("f64", _) | (_, "f64") => "f64",
        ("f32", _) | (_, "f32") => "f32",
        ("float", _) | (_, "float") => "f64",
        ("integer", other) => other,
        _ => left,
    };
    let point = match to.starts_with('f') {
        true => ", and `3.0` is a number with a decimal point",
        false => "",
    };
    Some(Explanation::hint(format!("both numbers must have one type: `n as {to}` converts{point}")))
}

/// Explains a value of a wrong type (E0308).
pub fn mismatch(diagnostic: &Diagnostic) -> Option<Explanation> {
    let label = diagnostic.primary()?.label.as_str();
    let (expected, found) = label.strip_prefix("expected `")?.split_once("`, found ")?;
    if expected.contains("...") || found.contains("...") {
        return None;
    }
    // rustc names some types in words: integer, reference, fn item.
    let article = match found.chars().next() {
        Some('`') | None => "",
        Some('a' | 'e' | 'i' | 'o' | 'u') => "an ",
        Some(_) => "a ",
    };
    let mut explanation = Explanation::sentence(format!(
        "`{expected}` is expected here, and this is {article}{found}"
    ));
    explanation.hint = mismatch_hint(expected, found.trim_matches('`'));
    Some(explanation)
}

fn mismatch_hint(expected: &str, found: &str) -> Option<String> {
    let is_number = NUMBERS.contains(&expected);
    let is_option = |of: &str| of.starts_with("Option<");
    // A size in a shape.
    let constant = |of: &str| of.strip_prefix("Const<")?.strip_suffix('>').map(str::to_owned);
    if let (Some(size), "usize" | "integer") = (constant(expected), found) {
        return Some(format!("a size that the compiler knows is written `Const::<{size}>`"));
    }
    if let ("usize", Some(size)) = (expected, constant(found)) {
        return Some(format!(
            "a size known only at run time is a number: `{size}`; `Const::<{size}>` needs `Const<{size}>` in the \
             type of the shape"
        ));
    }
    let is_result = |of: &str| of.starts_with("Result<");
    let hint = if is_option(expected) && is_result(found) {
        "`.ok()` makes an `Option` of a `Result`"
    } else if is_result(expected) && is_option(found) {
        "`.ok_or(…)` makes a `Result` of an `Option`, with the given error"
    } else if is_option(expected) || is_result(expected) {
        // Both are of one kind, and their contents differ.
        return None;
    } else if is_option(found) {
        "it may be missing: `.unwrap()` takes it out, `.unwrap_or(…)` replaces a missing one"
    } else if is_result(found) {
        "it may have failed: `?` takes it out, and ends the cell on an error"
    } else if is_number && found.starts_with("Tensor<") {
        "`.array()` of a tensor with one number (`Rank0`) is that number"
    } else if let Some((expected, found)) = entry(expected).zip(entry(found))
        && expected != found
        && NUMBERS.contains(&expected)
        && NUMBERS.contains(&found)
    {
        return Some(format!(
            "the numbers of a list are converted one by one: \
             `list.iter().map(|&n| n as {expected}).collect::<Vec<{expected}>>()`"
        ));
    } else if entry(expected).is_some() && found.starts_with("Tensor<") {
        let borrow = if expected.starts_with('&') { "&" } else { "" };
        return Some(format!("`{borrow}x.as_vec()` gives the numbers of a tensor `x` as a list"));
    } else if is_number && NUMBERS.contains(&found) {
        return Some(format!("`as {expected}` converts a number"));
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// Returns the type of a list's entries: of `Vec<T>`, `[T]`, `[T; 3]`, and of references to them.
pub fn entry(list: &str) -> Option<&str> {
    let list = list.trim_start_matches('&').trim_start_matches("mut ");
    let inner = list
        .strip_prefix("Vec<")
        .and_then(|rest| rest.strip_suffix('>'))
        .or_else(|| list.strip_prefix('[')?.strip_suffix(']'))?;
    Some(inner.split(';').next().unwrap_or(inner).trim())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, rows, text};
    use super::*;

    #[test]
    fn two_numbers_are_made_one_type() {
        for [message, to] in rows(
            "cannot add `usize` to `i32` | i32
             cannot subtract `usize` from `i64` | i64
             cannot multiply `u16` by `usize` | u16
             cannot divide `f64` by `usize` | f64
             cannot multiply `usize` by `f32` | f32
             cannot add `f64` to `f32` | f64
             cannot multiply `{float}` by `usize` | f64
             cannot add `{integer}` to `f32` | f32",
        ) {
            let hint = text(arithmetic(message));
            assert!(hint.contains(&format!("`n as {to}` converts")), "{hint}");
            assert_eq!(hint.contains("decimal point"), to.starts_with('f'), "{hint}");
        }
        assert_eq!(arithmetic("cannot add `String` to `i32`"), None);
    }

    #[test]
    fn an_option_is_unwrapped_only_if_its_content_is_expected() {
        for (expected, found, hint) in [
            ("usize", "Option<&usize>", "`.unwrap()` takes it out"),
            ("usize", "Result<usize, E>", "`?` takes it out"),
            ("Option<usize>", "Result<usize, E>", "`.ok()`"),
            ("Result<usize, E>", "Option<usize>", "`.ok_or(…)`"),
            ("Option<usize>", "Option<&usize>", ""),
            ("Result<usize, E>", "Result<usize, F>", ""),
            ("Const<A>", "usize", "is written `Const::<A>`"),
            ("usize", "Const<A>", "needs `Const<A>` in the type"),
        ] {
            let mut error = diagnostic("E0308", "mismatched types", "x", &[]);
            error.marks[0].label = format!("expected `{expected}`, found `{found}`");
            let found_hint = mismatch(&error).unwrap().hint.unwrap_or_default();
            assert_eq!(found_hint.is_empty(), hint.is_empty(), "{expected} {found}");
            assert!(found_hint.contains(hint));
        }
    }

    #[test]
    fn advice_is_given_only_if_it_applies() {
        let explained = |message: &str, cell: &str| {
            let mut error = diagnostic("E0277", message, "x", &[]);
            error.cell = cell.to_owned();
            text(bound(&error))
        };
        for [message, part] in rows(
            "the type `str` cannot be indexed by `{integer}` | .chars().nth(i)
             the type `[f32]` cannot be indexed by `i32` | [i as usize]
             the type `[f32]` cannot be indexed by `&usize` | [*i]
             `?` couldn't convert the error to `String` | e.to_string())?
             `?` couldn't convert the error to `std::string::String` | e.to_string())?
             `?` couldn't convert the error to `Other` | `Display` and `Debug`",
        ) {
            let hint = explained(message, "");
            assert!(hint.contains(part), "{message}: {hint}");
        }
        let message = "the type `[f32]` cannot be indexed by `String`";
        assert_eq!(explained(message, ""), "");
        let cell = "fn f() -> Result<u8, Mine> { Ok(g()?) }";
        let hint = explained("`?` couldn't convert the error to `Mine`", cell);
        assert!(hint.contains("makes a `Mine`"), "{hint}");
    }
}
