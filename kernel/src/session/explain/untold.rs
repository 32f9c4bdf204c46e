//! Shapes and axes that nothing tells, of an operation that may mean several (E0283), and those left
//! out of a call that takes both (E0107).

use super::axes;
use super::types::Shape;
use super::{Diagnostic, Explanation};

/// What takes the shape that is to be left and the axes that are to go.
const REDUCTIONS: [&str; 7] = ["sum", "mean", "max", "min", "var", "stddev", "logsumexp"];

pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    let sentence = match diagnostic.code.as_str() {
        "E0282" | "E0283" => untold(diagnostic),
        "E0107" => left_out(diagnostic),
        _ => None,
    };
    sentence.map(Explanation::sentence)
}

fn untold(diagnostic: &Diagnostic) -> Option<String> {
    let label = &diagnostic.labelled("type parameter `")?.label;
    let parameter = label.split_once("type parameter `")?.1.split('`').next()?;
    let operation = diagnostic.operation();
    match (parameter, operation) {
        ("Dst" | "Ax", "permute") => Some(order(diagnostic)),
        ("Dst", _) => shape(operation),
        ("Ax", _) => Some(which(diagnostic, operation)),
        ("S", "zeros" | "ones" | "sample_normal" | "sample_uniform") => Some(format!(
            "{operation}: nothing tells the shape: write \
             `let x: Tensor<Rank2<2, 3>, f32, _> = dev.{operation}();`"
        )),
        _ => None,
    }
}

/// `permute` takes every axis in its new place; dfdx knows no shorter form.
fn order(diagnostic: &Diagnostic) -> String {
    let several = diagnostic.several();
    let turned = match &several {
        Some((of, Some(to))) => axes::exchanged(of, to),
        _ => None,
    };
    // Any number of axes will do as an example.
    let rank = several.as_ref().map_or(3, |(of, _)| of.rank());
    let turned = turned.unwrap_or_else(|| axes::last_two_turned(rank));
    let code = axes::code(&turned).unwrap_or_default();
    let makes = match &several {
        Some((of, _)) => {
            let made = Shape(turned.iter().map(|&axis| of.0[axis]).collect());
            format!("makes {made} of {of}")
        }
        None => "turns the last two of three".to_owned(),
    };
    format!(
        "permute: the sizes do not tell the new order of the axes: name them all, \
         `.permute::<_, {code}>()` {makes}"
    )
}

fn shape(operation: &str) -> Option<String> {
    let arguments = arguments(operation);
    Some(match operation {
        "broadcast" => "broadcast: say what shape is to come of it: \
                        `.broadcast::<Rank2<5, 3>, _>()` repeats a vector of 3 five times"
            .to_owned(),
        "reshape" | "realize" => format!(
            "{operation}: say what shape is to come of it: `.{operation}::<Rank2<2, 3>>()` gives 2×3"
        ),
        _ if REDUCTIONS.contains(&operation) => format!(
            "{operation}: say what shape is to be left: `.{operation}::<Rank0, _>({arguments})` for \
             one number, or `.{operation}::<_, Axis<1>>({arguments})` for one axis"
        ),
        _ => return None,
    })
}

fn which(diagnostic: &Diagnostic, operation: &str) -> String {
    let arguments = arguments(operation);
    let broadcasts = operation.starts_with("broadcast");
    if let Some((large, Some(small))) = diagnostic.several() {
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
                "{operation}: the sizes do not tell which axes of {large} are meant: name them, {}",
                calls.join(" or ")
            );
        }
    }
    let shape = if broadcasts || REDUCTIONS.contains(&operation) {
        "_, "
    } else {
        ""
    };
    format!(
        "{operation}: say along which axis: `.{operation}::<{shape}Axis<0>>({arguments})` is along \
         the first, `Axis<1>` along the second"
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
        // The value that it takes tells the shape.
        "broadcast_like" => ("_, _".to_owned(), "axes"),
        _ => (format!("{given}, _"), "axes"),
    };
    Some(format!(
        "{operation}: it takes a shape and the axes, and `_` lets the compiler find the {found}: \
         `.{operation}::<{both}>({})`",
        arguments(operation)
    ))
}

/// What stands between the round brackets of a call.
fn arguments(operation: &str) -> &'static str {
    match operation {
        "stddev" | "normalize" => "1e-5",
        "roll" => "1",
        "broadcast_like" => "&shape",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::super::tests::diagnostic;
    use super::*;

    fn said(operation: &str, parameter: &str, bound: &str) -> String {
        let note = format!("multiple `impl`s satisfying `{bound}` found in the `dfdx` crate:");
        let mut of = diagnostic("E0283", "type annotations needed", operation, &[&note]);
        of.marks[0].label = format!(
            "cannot infer type of the type parameter `{parameter}` declared on the method `{operation}`"
        );
        explain(&of)
            .and_then(|said| said.sentence)
            .unwrap_or_default()
    }

    #[test]
    fn what_is_not_told_is_named_as_the_operation_takes_it() {
        for (operation, parameter, bound, part) in [
            (
                "permute",
                "Dst",
                "(Const<2>, Const<3>, Const<4>): PermuteShapeTo<_, _>",
                "name them all, `.permute::<_, Axes3<0, 2, 1>>()` makes 2×4×3 of 2×3×4",
            ),
            (
                "permute",
                "Ax",
                "(usize, usize, Const<64>): PermuteShapeTo<(usize, Const<64>, usize), _>",
                "`.permute::<_, Axes3<0, 2, 1>>()` makes ?×64×? of ?×?×64",
            ),
            (
                "permute",
                "Ax",
                "(Const<2>, Const<2>, Const<4>): PermuteShapeTo<(Const<4>, Const<2>, Const<2>), _>",
                "`.permute::<_, Axes3<2, 1, 0>>()` makes 4×2×2",
            ),
            (
                "permute",
                "Ax",
                "_: Axes",
                "`.permute::<_, Axes3<0, 2, 1>>()` turns the last two of three",
            ),
            (
                "sum",
                "Ax",
                "(Const<3>, Const<3>): ReduceShapeTo<(Const<3>,), _>",
                "of 3×3 are meant: name them, `.sum::<Rank1<3>, Axis<0>>()` or `.sum::<Rank1<3>, Axis<1>>()`",
            ),
            (
                "sum",
                "Ax",
                "(Const<2>, Const<3>, Const<3>): ReduceShapeTo<(Const<2>, Const<3>), _>",
                "`.sum::<Rank2<2, 3>, Axis<1>>()` or `.sum::<Rank2<2, 3>, Axis<2>>()`",
            ),
            (
                "broadcast",
                "Ax",
                "(Const<3>, Const<3>): ReduceShapeTo<(Const<3>,), _>",
                "`.broadcast::<Rank2<3, 3>, Axis<0>>()` or `",
            ),
            (
                "broadcast_like",
                "Ax",
                "(usize, usize): ReduceShapeTo<(usize,), _>",
                "`.broadcast_like::<_, Axis<0>>(&shape)` or `",
            ),
            (
                "broadcast",
                "Dst",
                "_: ConstShape",
                "`.broadcast::<Rank2<5, 3>, _>()`",
            ),
            (
                "reshape",
                "Dst",
                "_: ConstShape",
                "`.reshape::<Rank2<2, 3>>()`",
            ),
            ("realize", "Dst", "_: Shape", "`.realize::<Rank2<2, 3>>()`"),
            (
                "mean",
                "Dst",
                "_: Shape",
                "what shape is to be left: `.mean::<Rank0, _>()`",
            ),
            ("stddev", "Dst", "_: Shape", "`.stddev::<_, Axis<1>>(1e-5)`"),
            ("max", "Ax", "_: Axes", "`.max::<_, Axis<0>>()`"),
            (
                "softmax",
                "Ax",
                "(Const<2>, Const<3>): ReduceShape<_>",
                "say along which axis: `.softmax::<Axis<0>>()` is along the first",
            ),
            (
                "normalize",
                "Ax",
                "_: Axes",
                "`.normalize::<Axis<0>>(1e-5)`",
            ),
            ("zeros", "S", "_: ConstShape", "= dev.zeros();`"),
        ] {
            let got = said(operation, parameter, bound);
            assert!(
                got.starts_with(&format!("{operation}: ")) && got.contains(part),
                "{got}"
            );
        }
        assert_eq!(said("select", "Dst", "_: Shape"), "");
        assert_eq!(said("build_module", "S", "_: ConstShape"), "");
    }

    #[test]
    fn what_is_left_out_is_added_to_what_is_given() {
        for (operation, given, part) in [
            (
                "broadcast",
                "Rank2<5, 3>",
                "find the axes: `.broadcast::<Rank2<5, 3>, _>()`",
            ),
            (
                "permute",
                "Axes2<1, 0>",
                "find the shape: `.permute::<_, Axes2<1, 0>>()`",
            ),
            ("stddev", "Rank0", "`.stddev::<Rank0, _>(1e-5)`"),
            (
                "broadcast_like",
                "Rank2<5, 3>",
                "`.broadcast_like::<_, _>(&shape)`",
            ),
            (
                "broadcast_like",
                "Axis<0>",
                "`.broadcast_like::<_, Axis<0>>(&shape)`",
            ),
        ] {
            let message = "method takes 2 generic arguments but 1 generic argument was supplied";
            let mut of = diagnostic("E0107", message, operation, &[]);
            of.marks.push(Mark {
                line: 1,
                text: given.to_owned(),
                label: "supplied 1 generic argument".to_owned(),
                primary: false,
            });
            let got = explain(&of).and_then(|said| said.sentence).unwrap();
            assert!(got.contains(part), "{got}");
        }
    }

    #[test]
    fn of_two_messages_about_a_place_the_one_with_the_shapes_counts() {
        let bare = diagnostic("E0283", "", "sum", &["cannot satisfy `_: Axes`"]);
        let note = "multiple `impl`s satisfying `(Const<3>, Const<3>): ReduceShapeTo<(Const<3>,), _>` found";
        let full = diagnostic("E0283", "", "sum", &[note]);
        assert!(bare.is_told_by(&full) && !full.is_told_by(&bare));
        assert!(!bare.is_told_by(&bare) && !full.is_told_by(&full));
        let elsewhere = diagnostic("E0283", "", "mean", &[note]);
        assert!(!bare.is_told_by(&elsewhere));
    }
}
