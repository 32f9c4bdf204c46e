//! What rustc cannot infer: shapes and axes of an operation that may mean several (E0283), shapes or
//! axes left out of a call that takes both (E0107), and the types of variables.

use super::axes;
use super::types::{self, Shape};
use super::{Diagnostic, Explanation};

/// The operations that take the remaining shape and the reduced axes.
const REDUCTIONS: [&str; 7] = ["sum", "mean", "max", "min", "var", "stddev", "logsumexp"];

/// Explains an ambiguous operation on tensors.
pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    let sentence = match diagnostic.code.as_str() {
        "E0282" | "E0283" => unknown_parameter(diagnostic),
        "E0107" => left_out(diagnostic),
        _ => None,
    };
    sentence.map(Explanation::sentence)
}

fn unknown_parameter(diagnostic: &Diagnostic) -> Option<String> {
    let label = &diagnostic.labelled("type parameter `")?.label;
    let parameter = label.split_once("type parameter `")?.1.split('`').next()?;
    let operation = diagnostic.operation();
    match (parameter, operation) {
        ("Dst" | "Ax", "permute") => Some(order(diagnostic)),
        ("Dst", _) => shape(operation),
        ("Ax", _) => Some(which_axes(diagnostic, operation)),
        ("S", "zeros" | "ones" | "sample_normal" | "sample_uniform") => Some(format!(
            "{operation}: the shape is not known: write \
             `let x: Tensor<Rank2<2, 3>, f32, _> = dev.{operation}();`"
        )),
        _ => None,
    }
}

/// Returns the sentence for `permute`, which takes the new order of all axes.
fn order(diagnostic: &Diagnostic) -> String {
    let several = diagnostic.several_axes();
    let order = match &several {
        Some((of, Some(to))) => axes::exchanged(of, to),
        _ => None,
    };
    // Without a shape, three axes are the example.
    let rank = several.as_ref().map_or(3, |(of, _)| of.rank());
    let order = order.unwrap_or_else(|| axes::last_two_exchanged(rank));
    let code = axes::code(&order).unwrap_or_default();
    let makes = match &several {
        Some((of, _)) => {
            let made = Shape(order.iter().map(|&axis| of.0[axis]).collect());
            format!("makes {made} of {of}")
        }
        None => "exchanges the last two of three".to_owned(),
    };
    format!(
        "permute: the sizes do not determine the new order of the axes: name them all, \
         `.permute::<_, {code}>()` {makes}"
    )
}

fn shape(operation: &str) -> Option<String> {
    let arguments = arguments(operation);
    Some(match operation {
        "broadcast" => {
            "broadcast: name the new shape: `.broadcast::<Rank2<5, 3>, _>()` repeats a vector \
                        of 3 five times"
                .to_owned()
        }
        "reshape" | "realize" => {
            format!("{operation}: name the new shape: `.{operation}::<Rank2<2, 3>>()` gives 2×3")
        }
        _ if REDUCTIONS.contains(&operation) => format!(
            "{operation}: name the shape that remains: `.{operation}::<Rank0, _>({arguments})` for \
             one number, or the axis: `.{operation}::<_, Axis<1>>({arguments})`"
        ),
        _ => return None,
    })
}

fn which_axes(diagnostic: &Diagnostic, operation: &str) -> String {
    let arguments = arguments(operation);
    if let Some((large, Some(small))) = diagnostic.several_axes() {
        let result = match operation {
            // It takes the shape, or the tensor that has it, as a value.
            "broadcast_like" => None,
            "broadcast" => large.code(),
            _ => small.code(),
        };
        let result = result.unwrap_or_else(|| "_".to_owned());
        let calls: Vec<String> = axes::added(&small, &large)
            .iter()
            .filter_map(|axes| axes::code(axes))
            .map(|axes| format!("`.{operation}::<{result}, {axes}>({arguments})`"))
            .take(2)
            .collect();
        if !calls.is_empty() {
            return format!(
                "{operation}: the sizes do not determine which axes of {large} are meant: name them, {}",
                calls.join(" or ")
            );
        }
    }
    let takes_shape = operation.starts_with("broadcast") || REDUCTIONS.contains(&operation);
    let shape = if takes_shape { "_, " } else { "" };
    format!(
        "{operation}: name the axis: `.{operation}::<{shape}Axis<0>>({arguments})` is along the first, \
         `Axis<1>` along the second"
    )
}

fn left_out(diagnostic: &Diagnostic) -> Option<String> {
    let operation = diagnostic.operation();
    let takes = ["broadcast", "broadcast_like", "permute"].contains(&operation)
        || REDUCTIONS.contains(&operation);
    if !takes || !diagnostic.message.contains("2 generic arguments") {
        return None;
    }
    let given = diagnostic
        .labelled("supplied 1 generic argument")
        .map_or("Rank2<2, 3>", |mark| mark.text.as_str());
    let (both, found) = match operation {
        _ if given.starts_with("Ax") => (format!("_, {given}"), "shape"),
        // The value that it takes has the shape.
        "broadcast_like" => ("_, _".to_owned(), "axes"),
        _ => (format!("{given}, _"), "axes"),
    };
    Some(format!(
        "{operation}: it takes a shape and the axes, and `_` lets the compiler find the {found}: \
         `.{operation}::<{both}>({})`",
        arguments(operation)
    ))
}

/// Returns the arguments of a call.
fn arguments(operation: &str) -> &'static str {
    match operation {
        "stddev" | "normalize" => "1e-5",
        "roll" => "1",
        "broadcast_like" => "&shape",
        _ => "",
    }
}

/// Explains a type that is not about an operation on tensors: names the variable and an example.
pub fn unknown_type(diagnostic: &Diagnostic) -> Option<Explanation> {
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
            "the type of `{variable}` cannot be inferred from this cell"
        ))
        .and_hint(format!("later cells do not count: write `let {variable}: {example} = …;`")),
        None => Explanation::hint(format!(
            "name the type: `let x: {example} = …;`, or `::<…>` after the method"
        )),
    })
}

/// Returns a type with an example for each unknown part: `HashMap<String, f32>` for `HashMap<_, _>`.
/// `None` if there is no such part, or nobody can write the type.
fn filled(of: &str) -> Option<String> {
    let (name, arguments) = types::generic(of)?;
    let filled = arguments.iter().enumerate().map(|(index, argument)| {
        Some(match (*argument, name, index) {
            // Keys and errors.
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

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::super::tests::{diagnostic, rows, text};
    use super::*;

    #[test]
    fn what_cannot_be_inferred_is_named_as_the_operation_takes_it() {
        let explained = |operation: &str, parameter: &str, bound: &str| {
            let note = format!("multiple `impl`s satisfying `{bound}` found in the `dfdx` crate:");
            let mut error = diagnostic("E0283", "type annotations needed", operation, &[&note]);
            error.marks[0].label = format!(
                "cannot infer type of the type parameter `{parameter}` declared on the method `{operation}`"
            );
            text(explain(&error))
        };
        for [operation, parameter, bound, part] in rows(
            "permute | Dst | (Const<2>, Const<3>, Const<4>): PermuteShapeTo<_, _> | name them all, `.permute::<_, Axes3<0, 2, 1>>()` makes 2×4×3 of 2×3×4
             permute | Ax | (usize, usize, Const<64>): PermuteShapeTo<(usize, Const<64>, usize), _> | `.permute::<_, Axes3<0, 2, 1>>()` makes ?×64×? of ?×?×64
             permute | Ax | (Const<2>, Const<2>, Const<4>): PermuteShapeTo<(Const<4>, Const<2>, Const<2>), _> | `.permute::<_, Axes3<2, 1, 0>>()` makes 4×2×2
             permute | Ax | _: Axes | `.permute::<_, Axes3<0, 2, 1>>()` exchanges the last two of three
             sum | Ax | (Const<3>, Const<3>): ReduceShapeTo<(Const<3>,), _> | of 3×3 are meant: name them, `.sum::<Rank1<3>, Axis<0>>()` or `.sum::<Rank1<3>, Axis<1>>()`
             sum | Ax | (Const<2>, Const<3>, Const<3>): ReduceShapeTo<(Const<2>, Const<3>), _> | `.sum::<Rank2<2, 3>, Axis<1>>()` or `.sum::<Rank2<2, 3>, Axis<2>>()`
             broadcast | Ax | (Const<3>, Const<3>): ReduceShapeTo<(Const<3>,), _> | `.broadcast::<Rank2<3, 3>, Axis<0>>()` or `
             broadcast_like | Ax | (usize, usize): ReduceShapeTo<(usize,), _> | `.broadcast_like::<_, Axis<0>>(&shape)` or `
             broadcast | Dst | _: ConstShape | `.broadcast::<Rank2<5, 3>, _>()`
             reshape | Dst | _: ConstShape | `.reshape::<Rank2<2, 3>>()`
             realize | Dst | _: Shape | `.realize::<Rank2<2, 3>>()`
             mean | Dst | _: Shape | name the shape that remains: `.mean::<Rank0, _>()`
             stddev | Dst | _: Shape | `.stddev::<_, Axis<1>>(1e-5)`
             max | Ax | _: Axes | `.max::<_, Axis<0>>()`
             softmax | Ax | (Const<2>, Const<3>): ReduceShape<_> | name the axis: `.softmax::<Axis<0>>()` is along the first
             normalize | Ax | _: Axes | `.normalize::<Axis<0>>(1e-5)`
             zeros | S | _: ConstShape | = dev.zeros();`",
        ) {
            let sentence = explained(operation, parameter, bound);
            assert!(sentence.starts_with(&format!("{operation}: ")), "{sentence}");
            assert!(sentence.contains(part), "{sentence}");
        }
        assert_eq!(explained("select", "Dst", "_: Shape"), "");
        assert_eq!(explained("build_module", "S", "_: ConstShape"), "");
    }

    #[test]
    fn a_missing_argument_is_added_to_the_given_one() {
        for [operation, given, part] in rows(
            "broadcast | Rank2<5, 3> | find the axes: `.broadcast::<Rank2<5, 3>, _>()`
             permute | Axes2<1, 0> | find the shape: `.permute::<_, Axes2<1, 0>>()`
             stddev | Rank0 | `.stddev::<Rank0, _>(1e-5)`
             broadcast_like | Rank2<5, 3> | `.broadcast_like::<_, _>(&shape)`
             broadcast_like | Axis<0> | `.broadcast_like::<_, Axis<0>>(&shape)`",
        ) {
            let message = "method takes 2 generic arguments but 1 generic argument was supplied";
            let mut error = diagnostic("E0107", message, operation, &[]);
            error.marks.push(Mark {
                line: 1,
                text: given.to_owned(),
                label: "supplied 1 generic argument".to_owned(),
                primary: false,
            });
            let sentence = text(explain(&error));
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn of_two_messages_about_a_place_the_one_with_the_shapes_counts() {
        let bare = diagnostic("E0283", "", "sum", &["cannot satisfy `_: Axes`"]);
        let note = "multiple `impl`s satisfying `(Const<3>, Const<3>): ReduceShapeTo<(Const<3>,), _>` found";
        let full = diagnostic("E0283", "", "sum", &[note]);
        assert!(bare.is_covered_by(&full) && !full.is_covered_by(&bare));
        assert!(!bare.is_covered_by(&bare) && !full.is_covered_by(&full));
        let elsewhere = diagnostic("E0283", "", "mean", &[note]);
        assert!(!bare.is_covered_by(&elsewhere));
    }

    #[test]
    fn an_unknown_type_has_an_example() {
        for [of, example] in rows(
            "Tensor<_, f32, Cpu> | Tensor<Rank0, f32, Cpu>
             Tensor<(usize,), _, Cpu> | Tensor<(usize,), f32, Cpu>
             Vec<_> | Vec<f32>
             HashMap<_, _> | HashMap<String, f32>
             Vec<HashSet<_>> | Vec<HashSet<String>>
             HashMap<{integer}, _> | HashMap<i32, f32>
             Result<i32, _> | Result<i32, String>
             Option<_> | Option<f32>
             Box<{closure@x}> | Vec<f32>
             _ | Vec<f32>",
        ) {
            let message = format!("type annotations needed for `{of}`");
            let note = "consider giving `x` an explicit type";
            let hint = text(unknown_type(&diagnostic("E0283", &message, "x", &[note])));
            assert!(hint.contains(&format!("`let x: {example} = …;`")), "{hint}");
        }
    }
}
