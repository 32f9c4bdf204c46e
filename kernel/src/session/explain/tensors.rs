//! Other mistakes with tensors: a wrong type (E0308), a method that this tensor does not have (E0599),
//! operators.

use super::axes;
use super::types::{self, Dim, Tensor};
use super::{Diagnostic, Explanation};

/// Explains a mistake with a tensor by its code.
pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    match diagnostic.code.as_str() {
        "E0308" => mismatch(diagnostic).or_else(|| index(diagnostic)),
        "E0599" => method(diagnostic),
        "E0369" | "E0277" => operator(diagnostic).or_else(|| shown(diagnostic)),
        "E0368" => in_place(diagnostic),
        "E0061" if diagnostic.message.starts_with("this method") => trace(diagnostic),
        _ => None,
    }
}

/// Explains "expected struct `Tensor<…>`, found struct `Tensor<…>`".
fn mismatch(diagnostic: &Diagnostic) -> Option<Explanation> {
    let pair = diagnostic.notes.iter().find_map(|note| {
        let mut types = types::quoted(note.strip_prefix("expected ")?);
        Some((types::tensor(types.next()?)?, types::tensor(types.next()?)?))
    });
    let (wanted, found) = pair.or_else(|| {
        let label = diagnostic.primary()?.label.as_str();
        let mut types = types::quoted(label);
        Some((types::tensor(types.next()?)?, types::tensor(types.next()?)?))
    })?;
    let annotated = diagnostic.labelled("expected due to this");
    let place =
        diagnostic.labelled("are incorrect").map(|mark| format!("`{}`", mark.text)).unwrap_or_else(
            || if annotated.is_some() { "the annotation" } else { "this place" }.to_owned(),
        );
    let dtypes = [wanted.dtype, found.dtype];
    if !fits(dtypes[0], dtypes[1]) {
        return Some(Explanation::sentence(dtype(&place, dtypes[0], dtypes[1])));
    }
    if wanted.taped != found.taped {
        let (with, without) = if wanted.taped { ("", "out") } else { ("out", "") };
        return Some(Explanation::sentence(format!(
            "{place} expects a tensor with{with} a gradient tape and gets one with{without}: \
             `.leaky_trace()` begins a tape, `.split_tape()` takes it off"
        )));
    }
    sizes(diagnostic, &place, &wanted, &found).map(Explanation::sentence)
}

/// Returns whether a tensor of `found` fits where one of `wanted` is expected. A literal takes any type of
/// its kind.
fn fits(wanted: &str, found: &str) -> bool {
    match found {
        _ if wanted == found || wanted == "_" || found == "_" => true,
        "{float}" => wanted.starts_with('f'),
        "{integer}" => wanted.starts_with(['i', 'u']),
        _ => false,
    }
}

fn dtype(place: &str, wanted: &str, found: &str) -> String {
    match (wanted, found) {
        (_, "{integer}") if wanted.starts_with('f') => format!(
            "{place} expects a tensor of {wanted} and gets integers: write them with a decimal \
             point, `1.0`"
        ),
        ("usize", _) => format!(
            "{place} expects indices, a tensor of usize, and gets one of {found}: write \
             `dev.tensor([0usize, 1])`"
        ),
        _ => format!(
            "{place} expects a tensor of {wanted} and gets one of {found}; `.to_dtype::<{wanted}>()` \
             converts"
        ),
    }
}

fn sizes(diagnostic: &Diagnostic, place: &str, wanted: &Tensor, found: &Tensor) -> Option<String> {
    let mut wanted = wanted.shape.clone()?;
    let mut found = found.shape.clone()?;
    if wanted.rank() == found.rank() {
        // rustc omits what both sides have in common; the cell's annotation may contain it.
        let annotated = diagnostic
            .labelled("expected due to this")
            .and_then(|mark| types::tensor(&mark.text)?.shape);
        if let Some(shape) = annotated.filter(|shape| shape.rank() == wanted.rank()) {
            for (at, size) in shape.0.into_iter().enumerate() {
                if wanted.0[at] == Dim::Hidden {
                    wanted.0[at] = size;
                }
                if found.0[at] == Dim::Hidden {
                    found.0[at] = size;
                }
            }
        }
    }
    let both = format!("{place} expects {wanted} and gets {found}");
    if wanted.rank() != found.rank() {
        return Some(format!(
            "{both}: the tensors have {} and {} axes",
            wanted.rank(),
            found.rank()
        ));
    }
    let clashes = wanted.0.iter().zip(&found.0).filter(|(a, b)| a.clashes(**b));
    let clashes: Vec<_> = clashes.collect();
    let differing: Vec<_> = clashes
        .iter()
        .filter(|(a, b)| a.is_constant() && b.is_constant())
        .map(|(a, b)| format!("{a} and {b}"))
        .collect();
    if clashes.is_empty() {
        return None;
    }
    let size = clashes.iter().find(|(a, b)| a.is_constant() && **b == Dim::Runtime);
    if let (Some((size, _)), true) = (size, diagnostic.operation().ends_with("_like")) {
        return Some(format!(
            "{both}: write `Const::<{size}>` for {size} in the shape that is given"
        ));
    }
    let exchanged = axes::exchanged(&found, &wanted).and_then(|axes| axes::code(&axes));
    if let Some(exchanged) = exchanged {
        return Some(format!(
            "{both}: two axes are exchanged; `.permute::<_, {exchanged}>()` exchanges them back"
        ));
    }
    if differing.is_empty() {
        let call = wanted
            .code()
            .map_or("realize::<…>()".to_owned(), |code| format!("realize::<{code}>()"));
        return Some(format!(
            "{both}: a size known only at run time and one known to the compiler are different \
             types; `.{call}` converts"
        ));
    }
    Some(format!("{both}: the sizes {} differ", differing.join(", and ")))
}

/// Explains `a[0]`: a tensor needs an index for each axis.
fn index(diagnostic: &Diagnostic) -> Option<Explanation> {
    let label = &diagnostic.primary()?.label;
    let rank = label.strip_prefix("expected `[usize; ")?.split_once("]`")?.0;
    let rank: usize = rank.parse().ok()?;
    label.ends_with("found integer").then(|| {
        let names = axes::names(rank).map_or("…".to_owned(), |names| names.join(", "));
        Explanation::sentence(format!(
            "index: a tensor with {rank} axes takes {rank} indices in an array: `x[[{names}]]`"
        ))
    })
}

fn method(diagnostic: &Diagnostic) -> Option<Explanation> {
    let called = diagnostic.primary()?.text.as_str();
    let on = diagnostic.texts().flat_map(types::quoted);
    let on: Option<Tensor> = on.filter_map(types::tensor).max_by_key(|found| found.shape.is_some());
    let sentence = match called {
        "backward" => backward(&on?)?,
        "clone" if on.as_ref()?.may_record => {
            let x = diagnostic.receiver().unwrap_or("x");
            format!(
                "clone: a tensor that has a tape, or may have one (`T`), has no `.clone()`: \
                 `{x}.with_empty_tape()` gives the same numbers, with a tape of their own"
            )
        }
        "array" => {
            let shape = on?.shape?;
            format!(
                "array: {shape} has a size known only at run time, and arrays have none: `.as_vec()` gives the numbers"
            )
        }
        "concat_along" => concat(diagnostic)?,
        "forward" | "forward_mut" => {
            let (_, found) = diagnostic.primary()?.label.split_once("not found in `")?;
            let layer = found.split_once('`')?.0;
            types::generic(layer)?;
            format!(
                "{called}: `{layer}` only describes a layer; `dev.build_module::<{layer}, f32>()` \
                 makes one with weights"
            )
        }
        "add" | "sub" | "mul" | "div" if on.is_some() => {
            let operator = match called {
                "add" => "+",
                "sub" => "-",
                "mul" => "*",
                _ => "/",
            };
            format!("{called}: tensors are combined by the operator, `a {operator} b`")
        }
        _ => return None,
    };
    Some(Explanation::sentence(sentence))
}

fn backward(of: &Tensor) -> Option<String> {
    let shape = of.shape.as_ref()?;
    let untaped = "no tape came with it: begin with `x.leaky_trace()` (or `x.trace(gradients)`) \
                   and use that instead of `x`";
    Some(match (shape.rank(), of.taped) {
        (0, _) => format!("backward: {untaped}"),
        (_, true) => format!(
            "backward: it starts from a scalar and this is {shape}: reduce it first, `.mean::<Rank0, _>()`"
        ),
        (_, false) => {
            format!("backward: it starts from a scalar and this is {shape}, and {untaped}")
        }
    })
}

fn concat(diagnostic: &Diagnostic) -> Option<String> {
    let pair = diagnostic.notes.iter().find_map(|note| {
        let (before, _) = note.split_once(": TryConcatAlong")?;
        types::shapes(before.rsplit_once('`')?.1)
    })?;
    let [a, b] = pair.as_slice() else {
        return None;
    };
    Some(format!(
        "concat_along: {a} and {b} cannot be joined: the joined axis must be a run-time size, as in \
         `(usize, Const<3>)` (`.realize::<(usize, Const<3>)>()` gives that), and all other sizes must be equal"
    ))
}

/// Explains `1.0 + x`, `&a + &b`, `a > b`.
fn operator(diagnostic: &Diagnostic) -> Option<Explanation> {
    let written = diagnostic.primary()?.text.as_str();
    let sides: Vec<_> = types::quoted(&diagnostic.message).collect();
    let tensors: Vec<_> = sides.iter().filter_map(|side| types::tensor(side)).collect();
    let first = tensors.first()?;
    let calculates = ["+", "-", "*", "/"].contains(&written);
    if tensors.iter().any(|side| side.borrowed) && calculates {
        let sides = diagnostic.marks.iter().filter(|mark| !mark.primary);
        let sides = sides.map(|mark| mark.text.trim_start_matches('&').trim());
        let sides: Vec<_> = sides.filter(|text| !text.is_empty()).collect();
        let (a, b) = match sides.as_slice() {
            [a, b] => (*a, *b),
            _ => ("a", "b"),
        };
        return Some(Explanation::sentence(format!(
            "{written}: dfdx takes tensors by value: write `{a}.clone() {written} {b}.clone()`"
        )));
    }
    let numbers = ["{float}", "{integer}", "f32", "f64", "usize"];
    let with_number = sides.iter().any(|side| numbers.contains(side));
    if with_number && calculates {
        return Some(Explanation::sentence(format!(
            "{written}: the tensor must be on the left of the number: `x {written} 1.0`"
        )));
    }
    if with_number {
        // The method belongs to the tensor, so the sides are exchanged.
        let method = match written {
            "<" => "gt",
            ">" => "lt",
            "<=" => "ge",
            ">=" => "le",
            "==" => "eq",
            "!=" => "ne",
            _ => return None,
        };
        return Some(Explanation::sentence(format!(
            "{written}: a tensor is compared with a number by a method, number by number: \
             `x.{method}(1.0)` gives a tensor of `true` and `false`"
        )));
    }
    if ["==", "!=", "<", ">", "<=", ">="].contains(&written) {
        let shape = first.shape.as_ref()?;
        return Some(Explanation::sentence(format!(
            "{written}: tensors ({shape} here) are compared by their numbers: \
             `a.as_vec() {written} b.as_vec()`"
        )));
    }
    None
}

/// Explains `x -= y`.
fn in_place(diagnostic: &Diagnostic) -> Option<Explanation> {
    let mut names = types::quoted(&diagnostic.message);
    let (written, of) = (names.next()?, names.next()?);
    types::tensor(of)?;
    let sign = written.strip_suffix('=')?;
    let name = diagnostic.labelled("cannot use").map(|mark| mark.text.trim());
    let name = name.unwrap_or("x");
    Some(Explanation::sentence(format!(
        "{written}: the numbers of a tensor are not changed in place: write `{name} = {name} {sign} …`"
    )))
}

/// Explains `println!("{}", tensor)`.
fn shown(diagnostic: &Diagnostic) -> Option<Explanation> {
    let (of, rest) = diagnostic.message.split_once("` doesn't implement `")?;
    types::tensor(of.strip_prefix('`')?)?;
    rest.contains("Display").then(|| {
        Explanation::sentence(
            "println: a tensor has no `{}` form: end the cell with the tensor's name, or print \
             `x.array()` or `x.as_vec()` with `{:?}`",
        )
    })
}

fn trace(diagnostic: &Diagnostic) -> Option<Explanation> {
    (diagnostic.operation() == "trace").then(|| {
        Explanation::sentence(
            "trace: it takes the gradients to fill, `x.trace(model.alloc_grads())`; \
             `x.leaky_trace()` needs none",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, rows, text};
    use super::super::{Diagnostic, Mark};
    use super::*;

    fn explained(error: &Diagnostic) -> String {
        text(explain(error))
    }

    #[test]
    fn a_mismatch_is_completed_from_the_annotation() {
        let note = "expected struct `Tensor<(Const<_>, Const<10>), _, _>`\n   found struct `Tensor<(Const<_>, Const<3>), _, _>`";
        let mut error = diagnostic("E0308", "mismatched types", "a.clone()", &[note]);
        let sentence = explained(&error);
        assert!(sentence.contains("expects ?×10 and gets ?×3: the sizes 10 and 3 differ"));
        error.marks.push(Mark {
            line: 1,
            text: "Tensor<Rank2<2, 10>, f32, Cpu>".to_owned(),
            label: "expected due to this".to_owned(),
            primary: false,
        });
        let sentence = explained(&error);
        assert!(sentence.contains("expects 2×10 and gets 2×3"), "{sentence}");
    }

    #[test]
    fn kinds_of_numbers_and_of_shapes_are_distinguished() {
        for [wanted, found, part] in rows(
            "Tensor<_, f32, _> | Tensor<_, {integer}, _> | with a decimal point
             Tensor<_, usize, _> | Tensor<(Const<2>,), i32, _> | [0usize, 1]
             Tensor<_, f64, _> | Tensor<_, f32, _> | to_dtype::<f64>
             Tensor<(usize, Const<3>), _, _> | Tensor<(Const<2>, Const<3>), _, _> | `.realize::<(usize, Const<3>)>()` converts
             Tensor<(Const<2>,), _, _> | Tensor<(Const<2>, Const<3>), _, _> | have 1 and 2 axes
             Tensor<_, _, _, NoneTape> | Tensor<_, _, _, OwnedTape<f32, Cpu>> | without a gradient tape and gets one with:",
        ) {
            let note = format!("expected struct `{wanted}`\n   found struct `{found}`");
            let sentence = explained(&diagnostic("E0308", "mismatched types", "x", &[&note]));
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn a_number_on_the_left_changes_sides_only_if_that_compiles() {
        let of = "Tensor<(Const<3>,), f32, Cpu>";
        let compared = format!("can't compare `{{float}}` with `{of}`");
        for (written, message, part) in [
            (
                "+",
                &format!("cannot add `{of}` to `{{float}}`"),
                "on the left of the number: `x + 1.0`",
            ),
            ("<", &compared, "`x.gt(1.0)`"),
            ("==", &compared, "`x.eq(1.0)`"),
        ] {
            let sentence = explained(&diagnostic("E0277", message, written, &[]));
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn backward_names_what_is_missing() {
        for [of, part] in rows(
            "Tensor<(), f32, Cpu> | no tape came with it
             Tensor<(Const<2>, Const<3>), f32, Cpu, OwnedTape<f32, Cpu>> | from a scalar and this is 2×3: reduce
             Tensor<(Const<2>, Const<3>), f32, Cpu> | this is 2×3, and no tape",
        ) {
            let mut error = diagnostic("E0599", "no method named `backward` found", "backward", &[]);
            error.marks[0].label = format!("method not found in `{of}`");
            let sentence = explained(&error);
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
