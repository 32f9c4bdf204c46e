//! Matrix products whose sizes do not fit, also inside a `Linear` layer.

use super::axes;
use super::shapes::unlike;
use super::types::{self, Dim, Shape, Tensor};
use super::{Diagnostic, Explanation};

/// Explains a missing `TryMatMul`.
pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    let (left, wanted) = diagnostic.missing()?;
    let (name, right) = types::generic(wanted)?;
    if name != "TryMatMul" {
        return None;
    }
    let left = types::tensor(left)?;
    let [right] = right.as_slice() else {
        return None;
    };
    let operation = diagnostic.operation();
    if let Some(sentence) = layer(diagnostic, operation, &left) {
        return Some(Explanation::sentence(sentence));
    }
    let Some(right) = types::tensor(right) else {
        return Some(Explanation::sentence(format!(
            "{operation}: the right side must be a tensor and is `{right}`; `x * 2.0` scales a tensor"
        )));
    };
    sentence(operation, &left, &right).map(Explanation::sentence)
}

/// Returns the sentence for a `Linear` whose weight does not fit; the notes name it.
fn layer(diagnostic: &Diagnostic, operation: &str, given: &Tensor) -> Option<String> {
    let mut users = diagnostic.notes.iter().filter_map(|note| {
        let (_, rest) = note.split_once("required for `")?;
        let (module, rest) = rest.split_once("` to implement `")?;
        let (_, input) = types::generic(rest.split_once('`')?.0)?;
        Some((module, types::tensor(input.first()?)?.shape?))
    });
    let (module, _) = users.next()?;
    let ("Linear", sizes) = types::generic(module)? else {
        return None;
    };
    let [input, output, ..] = sizes.as_slice() else {
        return None;
    };
    let shape = given.shape.as_ref()?;
    let last = shape.0.last()?;
    let first = users.next_back().map(|(_, first)| first);
    let source = match &first {
        Some(first) if first != shape => "the layer before it gives",
        _ => "it is given",
    };
    Some(format!(
        "{operation}: `Linear<{input}, {output}>` expects {input} as the last size and {source} {shape}: \
         the sizes {input} and {last} differ; a `Linear<{last}, {output}>` would fit"
    ))
}

fn sentence(operation: &str, left: &Tensor, right: &Tensor) -> Option<String> {
    if let Some(sentence) = unlike(operation, left, right) {
        return Some(sentence);
    }
    let (a, b) = (left.shape.as_ref()?, right.shape.as_ref()?);
    let both = format!("{operation}: the left is {a} and the right is {b}");
    let inner = |shape: &Shape| match shape.rank() {
        0 => None,
        1 => shape.0.first().copied(),
        rank => shape.0.get(rank - 2).copied(),
    };
    let (Some(k), Some(l)) = (a.0.last().copied(), inner(b)) else {
        return Some(format!("{both}: a scalar has no sizes to multiply; `*` scales"));
    };
    if k.clashes(l) {
        if k.is_constant() && l.is_constant() {
            return Some(format!("{both}: the inner sizes {k} and {l} differ; {}", fitting(a, b)));
        }
        let known = if k == Dim::Runtime { l } else { k };
        let advice = turned(a, b).unwrap_or_else(|| {
            "`.realize::<…>()` gives a tensor the other kind of shape".to_owned()
        });
        return Some(format!(
            "{both}: one inner size is {known} and the other is known only at run time; {advice}"
        ));
    }
    let (m, n) = (a.rank(), b.rank());
    let mut batch = a.0.iter().zip(&b.0).take(m.saturating_sub(2));
    match batch.find(|(x, y)| x.clashes(**y)) {
        Some((x, y)) if m == n && m > 2 => Some(match x.is_constant() && y.is_constant() {
            true => format!(
                "{both}: the batch sizes {x} and {y} differ{}",
                if m == 3 {
                    "; equal ones, or a single matrix on the right, would fit"
                } else {
                    ""
                }
            ),
            false => format!(
                "{both}: the batch size is known to the compiler on one side only; \
                 `.realize::<…>()` gives a tensor the other kind of shape"
            ),
        }),
        _ => Some(format!(
            "{both}: a product takes two matrices, a batch and a matrix, or two batches of equal \
             rank"
        )),
    }
}

/// Returns whether dfdx multiplies `a` by `b`.
fn multiply(a: &Shape, b: &Shape) -> bool {
    let (m, n) = (a.rank(), b.rank());
    let kinds = matches!((m, n), (1 | 2, 2) | (2, 1) | (3, 2) | (3, 3) | (4, 4));
    let batch = |shape: &Shape| shape.0[..shape.rank().saturating_sub(2)].to_vec();
    let inner = if n == 1 { b.0.first() } else { b.0.iter().rev().nth(1) };
    kinds && (m != n || batch(a) == batch(b)) && a.0.last() == inner
}

/// Suggests the sides exchanged, if that fits. Sizes that are known only at run time may differ.
fn exchanged(a: &Shape, b: &Shape) -> Option<String> {
    let constant = b.0.last().is_some_and(|size| size.is_constant());
    (constant && multiply(b, a))
        .then(|| "the sides exchanged, `right.matmul(left)`, would fit".to_owned())
}

/// Suggests the right side transposed, if that fits.
fn transposed(a: &Shape, b: &Shape) -> Option<String> {
    let mut transposed = b.clone();
    let n = b.rank();
    transposed.0.swap(n.checked_sub(2)?, n - 1);
    if !multiply(a, &transposed) {
        return None;
    }
    // The axes are named, because sizes like ?×?×64 do not determine them.
    let order = axes::code(&axes::last_two_exchanged(n))?;
    Some(format!("the right transposed to {transposed}, `.permute::<_, {order}>()`, would fit"))
}

/// Suggests the sides exchanged or the right one transposed, or both.
fn turned(a: &Shape, b: &Shape) -> Option<String> {
    let ways: Vec<String> = [exchanged(a, b), transposed(a, b)].into_iter().flatten().collect();
    (!ways.is_empty()).then(|| ways.join("; "))
}

/// Suggests how `a` and `b` fit, or else another right side.
fn fitting(a: &Shape, b: &Shape) -> String {
    if let Some(turned) = turned(a, b) {
        return turned;
    }
    // The caller has checked that `a` has sizes.
    let k = a.0.last().copied().unwrap_or(Dim::Hidden);
    let (m, n) = (a.rank(), b.rank());
    let batched = m == n && m > 2;
    if (m, n) == (2, 1) {
        return format!("a vector of {k} on the right would fit");
    }
    let batch = if batched || m > 3 { m - 2 } else { 0 };
    let mut sizes: Vec<String> = a.0.iter().take(batch).map(Dim::to_string).collect();
    sizes.extend([k.to_string(), "N".to_owned()]);
    format!("a right side of {} would fit", sizes.join("×"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, rows, text};
    use super::*;

    fn explained(left: &str, right: &str) -> String {
        let note = format!("the trait `TryMatMul<{right}>` is not implemented for `{left}`");
        text(explain(&diagnostic("E0277", "", "matmul", &[&note])))
    }

    fn tensor(shape: &str) -> String {
        format!("Tensor<{shape}, f32, Cpu>")
    }

    #[test]
    fn differing_sizes_and_fitting_shapes_are_named() {
        for [left, right, part] in rows(
            "(Const<2>, Const<3>) | (Const<4>, Const<5>) | inner sizes 3 and 4 differ; a right side of 3×N would fit
             (Const<2>, Const<3>) | (Const<2>, Const<3>) | the right transposed to 3×2, `.permute::<_, Axes2<1, 0>>()`, would fit
             (Const<3>,) | (Const<4>, Const<5>) | the left is a vector of 3 and the right is 4×5
             (usize, usize, Const<384>) | (Const<768>, Const<10>) | the left is ?×?×384 and the right is 768×10: the inner sizes 384 and 768
             (usize, usize) | (Const<768>, Const<10>) | known only at run time; `.realize
             (usize, Const<64>) | (usize, Const<64>) | the right transposed to 64×?, `.permute::<_, Axes2<1, 0>>()`, would fit
             (usize, usize, Const<64>) | (usize, usize, Const<64>) | the right transposed to ?×64×?, `.permute::<_, Axes3<0, 2, 1>>()`, would fit
             (Const<R>, Const<C>) | (Const<R>, Const<C>) | the left is R×C and the right is R×C: the inner sizes C and R differ; the right transposed to C×R, `.permute::<_, Axes2<1, 0>>()`, would fit
             (Const<2>, Const<3>, Const<4>) | (Const<5>, Const<4>, Const<2>) | batch sizes 2 and 5 differ
             (Const<3>, Const<5>) | (usize, Const<3>) | known only at run time; the sides exchanged, `right.matmul(left)`, would fit
             (Const<D>, Const<D>) | (usize, Const<D>) | `right.matmul(left)`, would fit; the right transposed to D×?
             (Const<5>, Const<2>) | (Const<3>, Const<5>) | the inner sizes 2 and 3 differ; the sides exchanged
             (usize, Const<3>) | (Const<4>, usize) | a right side of 3×N would fit
             (Const<2>, Const<3>) | (Const<5>, Const<3>, Const<2>) | a product takes
             () | (Const<5>,) | a scalar has no sizes",
        ) {
            let sentence = explained(&tensor(left), &tensor(right));
            assert!(sentence.contains(part), "{sentence}");
        }
        assert!(explained(&tensor("()"), "{float}").contains("must be a tensor"));
        for (right, part) in [
            ("&Tensor<(Const<2>,), f32, Cpu>", "borrowed"),
            ("Tensor<(Const<2>,), f64, Cpu>", "to_dtype::<f32>"),
            // A type that rustc does not know yet is no other type.
            ("Tensor<(Const<3>,), _, Cpu>", "the inner sizes 2 and 3 differ"),
        ] {
            let sentence = explained(&tensor("(Const<2>,)"), right);
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn a_layer_is_named() {
        let notes = [
            "the trait `TryMatMul<Tensor<(Const<7>, Const<2>), f32, Cpu>>` is not implemented for `Tensor<(Const<2>, Const<8>), f32, Cpu>`",
            "required for `Linear<7, 2, f32, Cpu>` to implement `Module<Tensor<(Const<2>, Const<8>), f32, Cpu>>`",
            "required for `(Linear<3, 8, f32, Cpu>, ReLU, Linear<7, 2, f32, Cpu>)` to implement `Module<Tensor<(Const<2>, Const<3>), f32, Cpu>>`",
        ];
        let sentence = text(explain(&diagnostic("E0277", "", "forward", &notes)));
        let part = "`Linear<7, 2>` expects 7 as the last size and the layer before it gives 2×8";
        assert!(sentence.contains(part), "{sentence}");
    }
}
