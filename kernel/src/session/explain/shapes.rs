//! Operations whose shapes do not fit, recognised by the missing trait (E0277), and the constant
//! reshape that fails after type checking (E0080).

use super::axes;
use super::types::{self, Dim, Shape, Tensor};
use super::{Diagnostic, Explanation};

/// Explains a missing trait of an operation, or a failed constant.
pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    if diagnostic.is_instantiation() {
        return reshape(diagnostic).or_else(|| constant(diagnostic));
    }
    let (of, wanted) = diagnostic.missing()?;
    let (name, arguments) = types::generic(wanted).unwrap_or((wanted, Vec::new()));
    let operation = diagnostic.operation();
    match name {
        "TryAdd" | "TrySub" | "TryMul" | "TryDiv" => {
            element_wise(operation, of, arguments.first()?).map(Explanation::sentence)
        }
        "Merge" => Some(Explanation::sentence(format!(
            "{operation}: the right side carries the gradient tape and the left does not: put the \
             traced tensor on the left"
        ))),
        "ReduceShapeTo" | "ReduceShape" | "HasAxes" => {
            let of = types::shape(of)?;
            let axes = types::axes(arguments.last()?);
            let to = arguments.first().and_then(|to| types::shape(to));
            reduced(operation, &of, to.as_ref(), axes.as_deref()).map(Explanation::sentence)
        }
        "PermuteShapeTo" => {
            let of = types::shape(of)?;
            let axes = types::axes(arguments.last()?);
            let to = arguments.first().and_then(|to| types::shape(to));
            permuted(operation, &of, to.as_ref(), axes.as_deref()).map(Explanation::sentence)
        }
        "RemoveDimTo" | "ReplaceDimTo" => {
            let of = types::shape(of)?;
            indexed(operation, &of, &types::shape(arguments.last()?)?).map(Explanation::sentence)
        }
        "Module" | "ModuleMut" => module(operation, of, arguments.first()?),
        "ConstDim" | "ConstShape" => Some(run_time(operation)),
        _ => None,
    }
}

fn element_wise(operation: &str, left: &str, right: &str) -> Option<String> {
    let left = types::tensor(left)?;
    let Some(right) = types::tensor(right) else {
        let dtype = left.dtype;
        return Some(match right {
            "{integer}" if dtype.starts_with('f') => format!(
                "{operation}: the tensor holds {dtype} and the number is an integer: write it \
                 with a decimal point, `1.0`"
            ),
            _ => format!(
                "{operation}: the tensor holds {dtype} and the right side is `{right}`; a tensor \
                 of the same shape or one {dtype} would fit"
            ),
        });
    };
    if let Some(sentence) = unlike(operation, &left, &right) {
        return Some(sentence);
    }
    let (a, b) = (left.shape?, right.shape?);
    let both = format!("{operation}: the left is {a} and the right is {b}");
    if a.rank() != b.rank() {
        let spread = |small: &Shape, large: &Shape, side: &str| {
            let how = repeated(small, large)?;
            Some(format!("{both}: make the {side} {large} first, with {how}"))
        };
        return spread(&b, &a, "right")
            .or_else(|| spread(&a, &b, "left"))
            .or_else(|| Some(format!("{both}: both sides must have one shape")));
    }
    let clashes: Vec<_> = a.0.iter().zip(&b.0).filter(|(x, y)| x.clashes(**y)).collect();
    let known = |pair: &&(&Dim, &Dim)| pair.0.is_constant() && pair.1.is_constant();
    let differing: Vec<_> =
        clashes.iter().filter(known).map(|(x, y)| format!("{x} and {y}")).collect();
    if operation == "*" && chains(&a, &b) {
        return Some(format!(
            "{both}, and `*` multiplies number by number: the product of matrices is \
             `left.matmul(right)`"
        ));
    }
    if differing.is_empty() {
        return Some(format!(
            "{both}: a size that only one side's type knows cannot be compared; {}",
            realize(&a, &b)
        ));
    }
    Some(format!(
        "{both}: the sizes {} differ; a right side of {a} would fit",
        differing.join(", and ")
    ))
}

/// Returns the sentence for two tensors that differ not only in their shapes: a borrowed right side, or
/// numbers of another type.
pub fn unlike(operation: &str, left: &Tensor, right: &Tensor) -> Option<String> {
    if right.borrowed {
        return Some(format!(
            "{operation}: the right side is borrowed, and dfdx takes tensors by value: remove `&`, \
             and write `.clone()` to keep the tensor"
        ));
    }
    // `_` is a type that rustc does not know yet.
    let known = ![left.dtype, right.dtype].contains(&"_");
    (known && left.dtype != right.dtype).then(|| {
        format!(
            "{operation}: the left holds {} and the right {}; `.to_dtype::<{}>()` converts",
            left.dtype, right.dtype, left.dtype
        )
    })
}

/// Returns whether the inner sizes of `a` and `b`, of one rank, fit a matrix product.
fn chains(a: &Shape, b: &Shape) -> bool {
    let inner = a.0.last().zip(b.0.iter().rev().nth(1));
    inner.is_some_and(|(left, right)| !left.clashes(*right))
}

/// Suggests how to give one of two tensors the other's kind of shape.
fn realize(a: &Shape, b: &Shape) -> String {
    let (side, to) = if b.has_runtime() && !a.has_runtime() {
        ("right", a)
    } else if a.has_runtime() && !b.has_runtime() {
        ("left", b)
    } else {
        ("right", a)
    };
    let to = to.code().unwrap_or_else(|| "…".to_owned());
    format!("`.realize::<{to}>()` on the {side} makes them alike")
}

/// Suggests the call that broadcasts `small` to `large`.
fn repeated(small: &Shape, large: &Shape) -> Option<String> {
    let known = !large.has_runtime();
    let call = |to: &str, of_which: &str| match known {
        true => format!("`.broadcast::<{to}, {of_which}>()`"),
        false => format!("`.broadcast_like::<_, {of_which}>(&shape)`"),
    };
    let to = large.code()?;
    let mut text = match axes::added(small, large).as_slice() {
        [] => return None,
        [_] if known => call(&to, "_"),
        [which] => call(&to, &axes::code(which)?),
        [first, ..] => {
            let names = axes::names(first.len())?;
            let meant = match names {
                [rest @ .., last] if !rest.is_empty() => {
                    format!("{} and {last} are the axes", rest.join(", "))
                }
                _ => format!("{} is the axis", names.concat()),
            };
            let call = call(&to, &axes::code(names)?);
            format!("{call}, where {meant} along which it is repeated")
        }
    };
    if !known {
        text += " (`shape` is `*x.shape()` of the other, `x`)";
    }
    Some(text)
}

/// Returns the sentence for a reduction, or for a broadcast, which dfdx declares as the reverse reduction.
fn reduced(
    operation: &str,
    of: &Shape,
    to: Option<&Shape>,
    axes: Option<&[isize]>,
) -> Option<String> {
    if operation.starts_with("broadcast") {
        let (from, to) = (to?, of);
        let fits = if from.rank() == 1 && to.rank() == 2 {
            let sizes: Vec<_> = to.0.iter().map(|size| format!("{size}×{}", from.0[0])).collect();
            format!("; {} would fit", sizes[0])
        } else {
            String::new()
        };
        let why = match axes::added(from, to).first().map(|new| axes::code(new)) {
            Some(Some(new)) => format!("the axes named are not the new ones; `{new}` would fit"),
            Some(None) => "it has that shape already".to_owned(),
            None => format!("the old sizes must occur, in order, among the new ones{fits}"),
        };
        return Some(format!("{operation}: {from} cannot become {to}: {why}"));
    }
    if let Some(axes) = axes {
        let rank = of.rank() as isize;
        if let Some(axis) = axes.iter().find(|axis| **axis >= rank || **axis < 0) {
            return Some(format!(
                "{operation}: the tensor is {of}, whose {}; there is no axis {axis}",
                axes_of(of)
            ));
        }
    }
    let to = to?;
    let candidates: Vec<_> = (0..of.rank())
        .map(|axis| format!("without axis {axis} it is {}", of.without(axis)))
        .collect();
    Some(format!("{operation}: {of} cannot be reduced to {to}: {}", candidates.join(", ")))
}

fn axes_of(shape: &Shape) -> String {
    match shape.rank() {
        0 => "shape has no axes".to_owned(),
        1 => "one axis is 0".to_owned(),
        2 => "axes are 0 and 1".to_owned(),
        rank => format!("axes are 0 to {}", rank - 1),
    }
}

fn permuted(
    operation: &str,
    of: &Shape,
    to: Option<&Shape>,
    axes: Option<&[isize]>,
) -> Option<String> {
    if let Some(axes) = axes
        && axes.len() != of.rank()
    {
        return Some(format!(
            "{operation}: the tensor is {of}, which has {} axes, and {} are named",
            of.rank(),
            axes.len()
        ));
    }
    if let Some(axes) = axes {
        let named = |axes: &[isize]| axes::code(axes).unwrap_or_default();
        let all: Vec<isize> = (0..).take(of.rank()).collect();
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if sorted != all {
            return Some(format!(
                "{operation}: the tensor is {of}, whose {}; `{}` must name each of them once",
                axes_of(of),
                named(axes)
            ));
        }
        if axes == all && axes.len() > 1 {
            let turned: Vec<isize> =
                axes::last_two_exchanged(of.rank()).iter().map(|axis| *axis as isize).collect();
            return Some(format!(
                "{operation}: `{}` is the order that the axes of {of} have already; `{}` exchanges the last two",
                named(axes),
                named(&turned)
            ));
        }
    }
    let to = to?;
    let mut new: Vec<Dim> = to.0.clone();
    for size in &of.0 {
        if let Some(at) = new.iter().position(|other| other == size) {
            new.remove(at);
        }
    }
    let new: Vec<_> = new.iter().map(Dim::to_string).collect();
    let why = match new.as_slice() {
        [] if to.rank() == of.rank() => "the axes named give another order".to_owned(),
        [] => "no size may be omitted".to_owned(),
        [one] => format!("it has no size {one}"),
        more => format!("it has no sizes {}", more.join(" and ")),
    };
    let transposed = (of.rank() == 2).then(|| Shape(of.0.iter().rev().copied().collect()));
    let fits = transposed.map_or(String::new(), |transposed| format!("; {transposed} would fit"));
    Some(format!(
        "{operation}: only the order of the sizes can change, so {of} cannot become {to}: {why}{fits}"
    ))
}

fn indexed(operation: &str, of: &Shape, index: &Shape) -> Option<String> {
    let first = of.0.first()?;
    let expected = match operation {
        "select" if of.rank() > 1 => {
            format!("one index (a scalar), or one for each row (a vector of {first})")
        }
        "select" => "one index (a scalar)".to_owned(),
        _ => "a vector of indices".to_owned(),
    };
    let other = if operation == "select" { "; `gather` takes any number of rows" } else { "" };
    Some(format!(
        "{operation}: the tensor is {of} and the index is {index}; it expects {expected}{other}"
    ))
}

fn module(operation: &str, of: &str, input: &str) -> Option<Explanation> {
    let input = types::tensor(input)?;
    let shape = input.shape?;
    let (name, sizes) = types::generic(of)?;
    let sizes: Vec<_> = sizes
        .iter()
        .take_while(|size| size.starts_with(|c: char| c.is_ascii_digit()))
        .copied()
        .collect();
    let layer = format!("{name}<{}>", sizes.join(", "));
    let last = shape.0.last();
    Some(Explanation::sentence(match (name, sizes.as_slice()) {
        ("LayerNorm1D", [size]) => format!(
            "{operation}: `{layer}` expects {size} as the last size and it is given {shape}: the \
             sizes {size} and {} differ",
            last?
        ),
        ("Embedding", [words, _]) if input.dtype != "usize" => format!(
            "{operation}: `{layer}` expects token ids, a tensor of usize below {words}, and it is \
             given {shape} of {}",
            input.dtype
        ),
        ("Tensor", _) => return None,
        _ if sizes.is_empty() => {
            format!("{operation}: `{name}` does not take {shape} of {}", input.dtype)
        }
        _ => format!("{operation}: `{layer}` does not take {shape} of {}", input.dtype),
    }))
}

/// Explains a shape with run-time sizes, if the type must contain all sizes.
fn run_time(operation: &str) -> Explanation {
    let instead = match operation {
        "reshape" => "`reshape_like(&(n, Const::<3>))`",
        "zeros" => "`zeros_like(&(n, Const::<3>))`",
        "ones" => "`ones_like(&(n, Const::<3>))`",
        "sample_normal" | "sample_uniform" | "sample" => "`sample_like(&(n, Const::<3>), …)`",
        _ => "the method's `…_like(&shape)` form",
    };
    Explanation::sentence(format!(
        "{operation}: a size is known only at run time (`usize`), so the shape must be given as a \
         value: {instead}"
    ))
}

fn reshape(diagnostic: &Diagnostic) -> Option<Explanation> {
    let (_, of) = diagnostic.message.split_once("instantiating `")?;
    let of = of.trim_start_matches("fn ").strip_prefix('<')?;
    let (from, to) = of.split_once(" as ReshapeTo>::reshape::<")?;
    let from = types::tensor(from)?.shape?;
    let numbers = from.numbers()?;
    let to = to.trim_end_matches(['`', '.']);
    let to = to.strip_suffix('>').and_then(types::shape);
    let Some((to, other)) =
        to.and_then(|to| Some((to.numbers()?, to))).map(|(numbers, to)| (to, numbers))
    else {
        return Some(Explanation::sentence(format!(
            "reshape: {from} holds {numbers} numbers, and the new shape another count"
        )));
    };
    Some(Explanation::sentence(format!(
        "reshape: {from} holds {numbers} numbers and {to} holds {other}: the sizes must multiply \
         to {numbers}{}",
        suggestion(&to, numbers)
    )))
}

/// Explains another failed constant: evcxr passes on only the name of its function.
fn constant(diagnostic: &Diagnostic) -> Option<Explanation> {
    let function = types::quoted(&diagnostic.message).next()?;
    Some(Explanation::sentence(format!(
        "a check that `{}` makes while the cell is compiled does not hold",
        function.trim_start_matches("fn ")
    )))
}

/// Suggests the requested shape with one size corrected, the last one that can be.
fn suggestion(to: &Shape, numbers: usize) -> String {
    let corrected = (0..to.rank()).rev().find_map(|axis| {
        let others = to.without(axis).numbers().filter(|others| *others > 0)?;
        let mut sizes = to.0.clone();
        *sizes.get_mut(axis)? = Dim::Known(numbers.checked_div(others)?);
        numbers.is_multiple_of(others).then_some(Shape(sizes))
    });
    corrected.map_or(String::new(), |shape| format!("; {shape} would fit"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, rows, text};
    use super::*;

    #[test]
    fn each_operation_names_its_shapes_and_sizes() {
        for [written, of, wanted, part] in rows(
            "+ | A | TryAdd<Tensor<(Const<4>, Const<5>), f32, Cpu>> | sizes 2 and 4, and 3 and 5 differ; a right side of 2×3
             - | A | TrySub<Tensor<(Const<3>,), f32, Cpu>> | make the right 2×3 first, with `.broadcast::<Rank2<2, 3>, _>()`
             * | A | TryMul<Tensor<(Const<9>,), f32, Cpu>> | both sides must have one shape
             + | A | TryAdd<Tensor<(usize, Const<3>), f32, Cpu>> | `.realize::<Rank2<2, 3>>()` on the right
             + | A | TryAdd<{integer}> | with a decimal point
             + | A | TryAdd<f64> | one f32 would fit
             / | A | TryDiv<Tensor<(Const<2>, Const<3>), f64, Cpu>> | the left holds f32 and the right f64
             sum | S | ReduceShapeTo<_, Axis<2>> | whose axes are 0 and 1; there is no axis 2
             sum | S | ReduceShapeTo<(Const<4>,), _> | without axis 0 it is a vector of 3, without axis 1 it is a vector of 2
             softmax | S | ReduceShape<Axis<2>> | there is no axis 2
             broadcast | (Const<5>, Const<4>) | ReduceShapeTo<(Const<3>,), _> | a vector of 3 cannot become 5×4: the old sizes must occur, in order, among the new ones; 5×3 would fit
             broadcast | (Const<3>, Const<5>) | ReduceShapeTo<(Const<3>,), Axis<0>> | a vector of 3 cannot become 3×5: the axes named are not the new ones; `Axis<1>` would fit
             broadcast | S | ReduceShapeTo<(Const<2>, Const<3>), _> | 2×3 cannot become 2×3: it has that shape already
             + | Tensor<(Const<3>, Const<3>), f32, Cpu> | TryAdd<Tensor<(Const<3>,), f32, Cpu>> | `.broadcast::<Rank2<3, 3>, Axis<i>>()`, where i is the axis along which
             + | Tensor<(usize, usize, usize, usize), f32, Cpu> | TryAdd<Tensor<(usize,), f32, Cpu>> | `.broadcast_like::<_, Axes3<i, j, k>>(&shape)`, where i, j and k are the axes along
             permute | S | PermuteShapeTo<(Const<4>, Const<2>), _> | 2×3 cannot become 4×2: it has no size 4; 3×2 would fit
             permute | S | PermuteShapeTo<_, Axes3<0, 2, 1>> | has 2 axes, and 3 are named
             permute | S | PermuteShapeTo<_, Axes2<0, 1>> | `Axes2<0, 1>` is the order that the axes of 2×3 have already; `Axes2<1, 0>` exchanges
             permute | S | PermuteShapeTo<(Const<3>, Const<2>), Axes2<0, 1>> | have already
             permute | S | PermuteShapeTo<_, Axes2<0, 0>> | whose axes are 0 and 1; `Axes2<0, 0>` must name each
             select | S | RemoveDimTo<_, (Const<3>,)> | one for each row (a vector of 2)
             forward | LayerNorm1D<4, f32, Cpu> | Module<Tensor<(Const<2>, Const<3>), f32, Cpu>> | the sizes 4 and 3 differ
             forward | Embedding<10, 4, f32, Cpu> | Module<Tensor<(Const<2>,), f32, Cpu>> | token ids, a tensor of usize below 10
             zeros | usize | ConstDim | `zeros_like(&(n, Const::<3>))`
             + | NoneTape | Merge<OwnedTape<f32, Cpu>> | put the traced tensor on the left",
        ) {
            let of = match of {
                "A" => "Tensor<(Const<2>, Const<3>), f32, Cpu>",
                "S" => "(Const<2>, Const<3>)",
                other => other,
            };
            let message = format!("the trait bound `{of}: {wanted}` is not satisfied");
            let sentence = text(explain(&diagnostic("E0277", &message, written, &[])));
            assert!(sentence.starts_with(&format!("{written}: ")), "{sentence}");
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn a_reshape_counts_the_numbers() {
        let failed = |function: &str| {
            let message =
                format!("the above error was encountered while instantiating `{function}`");
            text(explain(&diagnostic("", &message, "a", &[])))
        };
        let reshape = |to: &str| {
            let of = "Tensor<(Const<2>, Const<3>), f32, Cpu>";
            failed(&format!("fn <{of} as ReshapeTo>::reshape::<{to}>"))
        };
        let sentence = reshape("(Const<3>, Const<4>)");
        assert!(sentence.contains("2×3 holds 6 numbers and 3×4 holds 12"), "{sentence}");
        assert!(sentence.ends_with("3×2 would fit"), "{sentence}");
        assert!(reshape("...").ends_with("another count"));
        assert!(failed("fn heads::<3>").contains("`heads::<3>`"));
        assert!(reshape("(Const<4>, Const<2>)").ends_with("; 3×2 would fit"));
        assert!(reshape("(Const<4>, Const<4>)").ends_with("multiply to 6"));
    }
}
