//! Numbers and lists of them: what only floats can do, what floats cannot, sums, and lists whose type is
//! not named.

use super::expected::{NUMBERS, entry};
use super::{Diagnostic, Explanation, types};

/// The methods that only floats have and learners use, with a sign that stands for their arguments.
const OF_FLOATS: [(&str, &str); 20] = [
    ("sqrt", ""),
    ("cbrt", ""),
    ("recip", ""),
    ("exp", ""),
    ("exp2", ""),
    ("exp_m1", ""),
    ("ln", ""),
    ("ln_1p", ""),
    ("log2", ""),
    ("log10", ""),
    ("log", "…"),
    ("powi", "…"),
    ("powf", "…"),
    ("sin", ""),
    ("cos", ""),
    ("tan", ""),
    ("tanh", ""),
    ("floor", ""),
    ("ceil", ""),
    ("round", ""),
];

/// A function of the standard library that needs an order, and what to write for floats. `{float}` stands for
/// their type and `{copied}` for `.copied()`, if the numbers are borrowed.
const ORDERED: [(&str, &str); 10] = [
    ("Iterator::max", "`{copied}.fold({float}::NEG_INFINITY, {float}::max)`"),
    ("Iterator::min", "`{copied}.fold({float}::INFINITY, {float}::min)`"),
    ("cmp::max", "`a.max(b)`"),
    ("cmp::min", "`a.min(b)`"),
    ("::sort", "`.sort_by({float}::total_cmp)`"),
    ("::sort_unstable", "`.sort_by({float}::total_cmp)`"),
    ("::sort_by_key", "`.sort_by(|a, b| a.0.total_cmp(&b.0))`, with your key in place of `.0`"),
    (
        "::sort_unstable_by_key",
        "`.sort_by(|a, b| a.0.total_cmp(&b.0))`, with your key in place of `.0`",
    ),
    (
        "Iterator::max_by_key",
        "`.max_by(|a, b| a.0.total_cmp(&b.0))`, with your key in place of `.0`",
    ),
    (
        "Iterator::min_by_key",
        "`.min_by(|a, b| a.0.total_cmp(&b.0))`, with your key in place of `.0`",
    ),
];

/// Explains a mistake with numbers.
pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    let sentence = match diagnostic.code.as_str() {
        "E0599" | "E0689" => of_floats(diagnostic).or_else(|| not_iterated(diagnostic)),
        "E0277" => order(diagnostic).or_else(|| sum(diagnostic)).or_else(|| collected(diagnostic)),
        "E0283" => unknown_sum(diagnostic),
        _ => None,
    };
    sentence.map(Explanation::sentence)
}

/// Explains `K.sqrt()` of an integer.
fn of_floats(diagnostic: &Diagnostic) -> Option<String> {
    let mut quoted = types::quoted(&diagnostic.message);
    let (method, of) = (quoted.next()?, quoted.next()?);
    let number = of.trim_start_matches('&');
    if number != "{integer}" && !is_integer(number) {
        return None;
    }
    let (_, arguments) = OF_FLOATS.iter().find(|(name, _)| *name == method)?;
    let stars = "*".repeat(of.len() - number.len());
    let on = diagnostic.receiver().unwrap_or("n");
    Some(format!(
        "{method}: only floats have it, and this is an integer: `({stars}{on} as f32).{method}({arguments})`"
    ))
}

fn is_integer(of: &str) -> bool {
    NUMBERS.contains(&of) && !is_float(of)
}

fn is_float(of: &str) -> bool {
    matches!(of, "f32" | "f64")
}

/// Explains `list.max()` and `list.sum()`.
fn not_iterated(diagnostic: &Diagnostic) -> Option<String> {
    let mut quoted = types::quoted(&diagnostic.message);
    let (method, list) = (quoted.next()?, quoted.next()?);
    let of = entry(list).filter(|of| is_float(of))?;
    let call = match method {
        "max" | "min" => {
            let (_, call) = ORDERED.iter().find(|(name, _)| name.ends_with(method))?;
            call.replace("{copied}", ".iter().copied()").replace("{float}", of)
        }
        "sum" | "product" => format!("`.iter().{method}::<{of}>()`"),
        _ => return None,
    };
    Some(format!("{method}: a list has none, its iterator has: {call}"))
}

/// Explains what needs an order, which floats do not have because of NaN.
fn order(diagnostic: &Diagnostic) -> Option<String> {
    let (of, "Ord") = types::bound(types::quoted(&diagnostic.message).next()?)? else {
        return None;
    };
    let float = if of == "{float}" { "f64" } else { of };
    if !is_float(float) {
        return None;
    }
    let noted = |before: &str, after: &str| {
        let of_note =
            |note: &String| note.strip_prefix(before)?.strip_suffix(after).map(str::to_owned);
        diagnostic.notes.iter().filter_map(of_note).next_back()
    };
    let function = noted("required by a bound in `", "`")?;
    let (name, call) = ORDERED.iter().find(|(name, _)| function.ends_with(name))?;
    // The last note is about the entry as a whole.
    let entry = noted("required for `", "` to implement `Ord`").unwrap_or_default();
    let whole = entry.trim_start_matches('&');
    let copied = if entry.starts_with('&') { ".copied()" } else { "" };
    let call = if whole.is_empty() || whole == of || name.ends_with("_by_key") {
        call.replace("{copied}", copied).replace("{float}", float)
    } else {
        let entries = whole.strip_prefix('(')?.strip_suffix(')')?;
        let at = entries.split(", ").position(|entry| entry == of)?;
        let method = match name.rsplit("::").next()? {
            by @ ("max" | "min") => format!("{by}_by"),
            _ => "sort_by".to_owned(),
        };
        format!("`.{method}(|a, b| a.{at}.total_cmp(&b.{at}))`")
    };
    let method = function.rsplit("::").next()?;
    Some(format!("{method}: `{float}` has no total order, because of NaN: write {call}"))
}

/// Explains a sum of numbers of another type.
fn sum(diagnostic: &Diagnostic) -> Option<String> {
    let message = diagnostic.message.as_str();
    let method = match message.split_once("cannot be made by ")?.1 {
        rest if rest.starts_with("summing") => "sum",
        rest if rest.starts_with("multiplying") => "product",
        _ => return None,
    };
    let mut quoted = types::quoted(message);
    let (wanted, item) = (quoted.next()?, quoted.next()?);
    let of = item.trim_start_matches('&');
    if ![wanted, of].iter().all(|of| NUMBERS.contains(of)) {
        return None;
    }
    Some(format!(
        "{method}: the numbers are {of} and the result is {wanted}: write `.{method}::<{of}>()`, or convert \
         first: `{}.{method}::<{wanted}>()`",
        converted(item, wanted)
    ))
}

/// Returns the call that converts the numbers of an iterator over `item`.
fn converted(item: &str, to: &str) -> String {
    let references = item.len() - item.trim_start_matches('&').len();
    format!(".map(|{}x| x as {to})", "&".repeat(references))
}

/// Explains a sum whose type is not named.
fn unknown_sum(diagnostic: &Diagnostic) -> Option<String> {
    let of = |method: &str, bound: &str| {
        diagnostic.notes.iter().find_map(|note| {
            // In evcxr's code rustc gives the whole path.
            let wanted =
                note.strip_prefix("cannot satisfy `_: ")?.trim_start_matches("std::iter::");
            let item = wanted.strip_prefix(bound)?.strip_suffix(">`")?.trim_start_matches('&');
            NUMBERS.contains(&item).then(|| {
                format!(
                    "{method}: the type of the result is not known: write `.{method}::<{item}>()`"
                )
            })
        })
    };
    of("sum", "Sum<").or_else(|| of("product", "Product<"))
}

/// Explains a `collect()` without a type whose result is lent as `&list`.
fn collected(diagnostic: &Diagnostic) -> Option<String> {
    let message = diagnostic.message.as_str();
    if !message.contains(" cannot be built ") {
        return None;
    }
    let mut quoted = types::quoted(message);
    let (lent, item) = (quoted.next()?, quoted.next().unwrap_or_default());
    let (owned, of) = match (lent, entry(lent)) {
        ("str", _) => ("String".to_owned(), ""),
        (_, Some(of)) if lent.starts_with('[') => (format!("Vec<{of}>"), of),
        _ => return None,
    };
    let name = diagnostic.line().trim_start().strip_prefix("let ").and_then(|rest| {
        let (name, _) = rest.split_once('=')?;
        let name = name.trim().trim_start_matches("mut ");
        name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
    });
    let name = name.unwrap_or("list");
    let other = item.trim_start_matches('&');
    let convert = match NUMBERS.contains(&of) && NUMBERS.contains(&other) && of != other {
        true => format!("{}.collect()", converted(item, of)),
        false => ".collect()".to_owned(),
    };
    Some(format!(
        "collect: the type of the list is not named: `let {name}: {owned} = …{convert};`, and `&{name}` lends it \
         as `&{lent}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, rows, text};
    use super::*;

    #[test]
    fn an_integer_becomes_a_float_first() {
        for [line, method, of, part] in rows(
            "1.0 / K.sqrt() | sqrt | type `usize` | `(K as f32).sqrt()`
             n.ln() | ln | reference `&u64` | `(*n as f32).ln()`
             f(&self.sizes[0].powi(2)) | powi | type `u64` | `(self.sizes[0] as f32).powi(…)`
             (a + b).exp() | exp | type `i32` | `((a + b) as f32).exp()`
             2.sqrt() | sqrt | ambiguous numeric type `{integer}` | `(2 as f32).sqrt()`
             size::<K>().sqrt() | sqrt | type `usize` | `(n as f32).sqrt()`
             a.sqrt() + b.sqrt() | sqrt | type `usize` | `(n as f32).sqrt()`",
        ) {
            let message = format!("no method named `{method}` found for {of} in the current scope");
            let mut error = diagnostic("E0599", &message, method, &[]);
            error.cell = line.to_owned();
            let sentence = text(explain(&error));
            assert!(sentence.contains(part), "{sentence}");
        }
        for (method, of) in [("len", "usize"), ("sqrt", "f16"), ("sqrt", "Vec<usize>")] {
            let message = format!("no method named `{method}` found for type `{of}`");
            assert_eq!(explain(&diagnostic("E0599", &message, method, &[])), None);
        }
    }

    #[test]
    fn floats_are_ordered_by_their_own_functions() {
        for [of, function, entry, part] in rows(
            "f32 | std::iter::Iterator::max | &f32 | `.copied().fold(f32::NEG_INFINITY, f32::max)`
             f64 | std::iter::Iterator::min |  | `.fold(f64::INFINITY, f64::min)`
             {float} | std::iter::Iterator::max |  | f64::max
             f32 | std::cmp::max |  | `a.max(b)`
             f64 | slice::<impl [T]>::sort |  | `.sort_by(f64::total_cmp)`
             f32 | slice::<impl [T]>::sort | (usize, f32) | `.sort_by(|a, b| a.1.total_cmp(&b.1))`
             f32 | std::iter::Iterator::max | &(f32, usize) | `.max_by(|a, b| a.0.total_cmp(&b.0))`
             f32 | slice::<impl [T]>::sort_by_key |  | `.sort_by(|a, b| a.0.total_cmp(&b.0))`
             f32 | std::iter::Iterator::max_by_key | &f32 | `.max_by(|a, b| a.0.total_cmp(&b.0))`",
        ) {
            let message = format!("the trait bound `{of}: Ord` is not satisfied");
            let mut notes = vec![format!("required by a bound in `{function}`")];
            if !entry.is_empty() {
                notes.push(format!("required for `{entry}` to implement `Ord`"));
            }
            let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
            let sentence = text(explain(&diagnostic("E0277", &message, "x", &notes)));
            assert!(sentence.contains(part), "{sentence}");
        }
        let message = "the trait bound `f32: Ord` is not satisfied";
        for notes in [
            ["required by a bound in `BTreeMap::insert`", ""],
            [
                "required by a bound in `slice::<impl [T]>::sort`",
                "required for `Option<f32>` to implement `Ord`",
            ],
        ] {
            assert_eq!(explain(&diagnostic("E0277", message, "x", &notes)), None);
        }
    }

    #[test]
    fn sums_and_lists_have_a_type() {
        for [code, message, note, part] in rows(
            "E0277 | a value of type `f64` cannot be made by summing an iterator over elements of type `&f32` |  | `.sum::<f32>()`, or convert first: `.map(|&x| x as f64).sum::<f64>()`
             E0277 | a value of type `f32` cannot be made by multiplying all elements of type `usize` from an iterator |  | `.map(|x| x as f32).product::<f32>()`
             E0283 | type annotations needed | cannot satisfy `_: Sum<&f32>` | write `.sum::<f32>()`
             E0283 | type annotations needed | cannot satisfy `_: std::iter::Product<f64>` | write `.product::<f64>()`
             E0599 | no method named `max` found for reference `&[f32]` |  | `.iter().copied().fold(f32::NEG_INFINITY, f32::max)`
             E0599 | no method named `sum` found for struct `Vec<f64>` |  | `.iter().sum::<f64>()`
             E0277 | a value of type `[u32]` cannot be built from an iterator over elements of type `&usize` |  | `let which: Vec<u32> = ….map(|&x| x as u32).collect();`, and `&which` lends it as `&[u32]`
             E0277 | a slice of type `[u32]` cannot be built since `[u32]` has no definite size |  | `let which: Vec<u32> = ….collect();`
             E0277 | a value of type `str` cannot be built from an iterator over elements of type `char` |  | `let which: String = ….collect();`",
        ) {
            let mut error = diagnostic(code, message, "collect", &[note]);
            error.cell = "let mut which = numbers.collect();".to_owned();
            let sentence = text(explain(&error));
            assert!(sentence.contains(part), "{sentence}");
        }
        for message in [
            "a value of type `Vec<u8>` cannot be built from an iterator over elements of type `char`",
            "a value of type `Duration` cannot be made by summing an iterator over elements of type `f32`",
        ] {
            assert_eq!(explain(&diagnostic("E0277", message, "x", &[])), None);
        }
    }
}
