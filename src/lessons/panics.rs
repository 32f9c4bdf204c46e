//! Panics whose message needs a word more: dfdx's, which tell sizes and no shapes, and the common
//! ones of the standard library. Checks say it of a learner's function, the kernel of a cell.

use std::path::Path;

/// What a panic means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// What is wrong, in place of the panic's own words.
    Sentence(String),
    /// What to do about it, besides the panic's own words, which tell what is wrong.
    Hint(String),
}

/// What a panic means, by its message and the file and line that it happened at; `None` where its own
/// words say all there is to say.
pub fn meaning(message: &str, file: &str, line: u32) -> Option<Meaning> {
    dfdx(message, file, line)
        .map(Meaning::Sentence)
        .or_else(|| common(message).map(Meaning::Hint))
}

/// The folder or file of dfdx's source that is named after the operation.
fn operation(file: &str) -> Option<&str> {
    let (_, inside) = file.split_once("/dfdx-")?;
    let parts: Vec<_> = Path::new(inside).components().skip(2).collect();
    let text = |at: usize| parts.get(at)?.as_os_str().to_str();
    let name = if text(0) == Some("tensor_ops") {
        text(1)
    } else {
        text(0)
    };
    // A folder, or a file of its own.
    name.map(|name| name.trim_end_matches(".rs"))
}

/// How a cell calls what panicked in that file; empty where it may be anything.
pub fn callers(file: &str) -> &'static [&'static str] {
    match operation(file) {
        Some("reshape_to") => &[".reshape"],
        Some("matmul") => &[".matmul(", ".forward"],
        Some("concat_along" | "concat") => &[".concat"],
        Some("stack") => &[".stack("],
        Some("realize_to") => &[".realize"],
        Some("utilities") => &[" + ", " - ", " * ", " / "],
        Some("tensor") if file.ends_with("index.rs") => &[".select(", ".gather(", "[["],
        Some("tensor") if file.ends_with("storage_traits.rs") => &[".tensor"],
        _ => &[],
    }
}

/// Whether an assertion of dfdx's compares one axis of both tensors, as in
/// `assert_eq!(self.shape.0, rhs.shape.0)`, and so the sizes of batches. Where the source cannot be
/// read it is taken for the inner sizes, which is the more common mistake.
fn compares_batches(file: &str, line: u32) -> bool {
    let source = std::fs::read_to_string(file).unwrap_or_default();
    let line = (line as usize).checked_sub(1);
    let line = line.and_then(|line| source.lines().nth(line));
    line.is_some_and(|text| {
        let mut axes = text.split("shape.").skip(1).map(|rest| rest.chars().next());
        axes.next().is_some_and(|left| axes.next() == Some(left))
    })
}

fn dfdx(message: &str, file: &str, line: u32) -> Option<String> {
    let operation = operation(file)?;
    let sides = sides(message);
    Some(match (operation, sides) {
        ("reshape_to", Some((left, right))) => format!(
            "reshape: the tensor holds {left} numbers and the new shape {right}: the sizes must \
             multiply to {left}"
        ),
        ("matmul", Some((left, right))) if compares_batches(file, line) => {
            format!("matmul: the batch sizes {left} and {right} differ")
        }
        ("matmul", Some((left, right))) => format!(
            "matmul: the inner sizes {left} and {right} differ: a right side with {left} rows would \
             fit"
        ),
        ("utilities" | "cmp" | "boolean" | "choose", Some((left, right))) => format!(
            "the two tensors of an operation by elements (`+`, `*`, …) differ in shape: the left \
             is {} and the right is {}{}",
            shape(left),
            shape(right),
            differing(left, right)
        ),
        ("concat_along" | "concat", Some((left, right))) => format!(
            "concat: only the joined axis may differ, and the sizes {} and {} of another one do",
            shape(left),
            shape(right)
        ),
        ("realize_to", _) => {
            "realize: the tensor's sizes are not those of the new shape; it only tells the compiler \
             what the sizes are: `permute` turns axes, `reshape` makes others"
                .to_owned()
        }
        ("stack", Some((left, right))) => format!(
            "stack: all tensors must have one shape, and {} and {} differ",
            shape(left),
            shape(right)
        ),
        _ if message.starts_with("Index out of bounds: index=") => {
            let (_, index) = message.split_once("index=")?;
            let index = index.split_once("shape=").map_or(index, |(index, _)| index);
            format!(
                "the index {} is outside the tensor: positions count from 0 to one less than the size",
                index.trim()
            )
        }
        _ if message.ends_with("WrongNumElements") => {
            "the list has another count of numbers than the shape: the sizes must multiply to the \
             list's length"
                .to_owned()
        }
        _ => return None,
    })
}

/// The two values of an `assert_eq!`.
fn sides(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("\n  left: ")?;
    let (left, right) = rest.split_once("\n right: ")?;
    Some((left.trim(), right.lines().next()?.trim()))
}

/// A shape by its `Debug` form, in which a constant size does not tell itself.
fn shape(text: &str) -> String {
    let inside = text.trim_matches(['(', ')', '[', ']']);
    let sizes = inside
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty());
    let sizes: Vec<_> = sizes
        .map(|size| if size == "Const" { "?" } else { size })
        .collect();
    sizes.join("×")
}

fn differing(left: &str, right: &str) -> String {
    let (left, right) = (shape(left), shape(right));
    let pairs = left
        .split('×')
        .zip(right.split('×'))
        .filter(|(a, b)| a != b);
    let pairs: Vec<_> = pairs.map(|(a, b)| format!("{a} and {b}")).collect();
    if pairs.is_empty() {
        return String::new();
    }
    format!(": the sizes {} differ", pairs.join(", and "))
}

fn common(message: &str) -> Option<String> {
    Some(if message.starts_with("index out of bounds: the len is ") {
        let length = message.strip_prefix("index out of bounds: the len is ")?;
        let length: usize = length.split(' ').next()?.parse().ok()?;
        match length.checked_sub(1) {
            Some(last) => format!(
                "positions go from 0 to {last}; `.get(i)` gives an `Option` instead of a panic"
            ),
            None => "the list is empty".to_owned(),
        }
    } else if message.starts_with("called `Option::unwrap()` on a `None` value") {
        "there was no value: `if let Some(x) = …` or `.unwrap_or(…)` deals with both cases"
            .to_owned()
    } else if message.starts_with("called `Result::unwrap()` on an `Err` value") {
        "the call failed for the reason given; `?` ends the cell with it and `match` deals with it"
            .to_owned()
    } else if message.contains("not a char boundary") {
        "positions in a `str` count bytes, and a letter may have several: `.chars().take(n)` counts \
         letters"
            .to_owned()
    } else if message.starts_with("attempt to subtract with overflow") {
        "unsigned numbers such as `usize` have nothing below 0: `.saturating_sub(…)` stops there, \
         `as i64` before it allows it"
            .to_owned()
    } else if message.ends_with(" with overflow") {
        "the number does not fit its type: use a larger one (`as u64`), or `.wrapping_add(…)` and its \
         like where it is meant"
            .to_owned()
    } else if message.contains("attempt to divide by zero")
        || message.contains("with a divisor of zero")
    {
        "whole numbers cannot be divided by 0: test for it first, or use `.checked_div(…)`"
            .to_owned()
    } else if message.contains("already borrowed") || message.contains("already mutably borrowed") {
        "a `RefCell` lends to one writer or to readers: end the first borrow (a block, `drop`) before \
         the next"
            .to_owned()
    } else if message.contains("range end index")
        || message.contains("range start index")
        || message.contains("slice index starts at")
    {
        "a range must lie within the length, its start not after its end; `.get(a..b)` gives an \
         `Option` instead of a panic"
            .to_owned()
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(message: &str, file: &str) -> String {
        match meaning(message, file, 1) {
            Some(Meaning::Sentence(said)) => said,
            other => panic!("{message}: {other:?}"),
        }
    }

    const OPS: &str = "/root/.cargo/registry/src/index/dfdx-0.13.0/src/tensor_ops";

    #[test]
    fn panics_of_dfdx_are_told_in_shapes() {
        let equal = |left: &str, right: &str| {
            format!("assertion `left == right` failed\n  left: {left}\n right: {right}")
        };
        for (message, file, part) in [
            (
                equal("7680", "6400"),
                "reshape_to/mod.rs",
                "holds 7680 numbers and the new shape 6400",
            ),
            (
                equal("3", "4"),
                "matmul/mod.rs",
                "inner sizes 3 and 4 differ: a right side with 3 rows",
            ),
            (
                equal("(2, Const)", "(4, Const)"),
                "utilities/ops.rs",
                "2×? and the right is 4×?: the sizes 2 and 4 differ",
            ),
            (
                equal("3", "5"),
                "concat_along/mod.rs",
                "the sizes 3 and 5 of another one",
            ),
            (
                "called `Result::unwrap()` on an `Err` value: Tensor { id: 1, data: [0.5"
                    .to_owned(),
                "realize_to.rs",
                "realize: the tensor's sizes are not those of the new shape; it only",
            ),
            (
                "Index out of bounds: index=[7, 0] shape=(Const, Const)".to_owned(),
                "../tensor/cpu/index.rs",
                "index [7, 0] is outside",
            ),
        ] {
            let said = sentence(&message, &format!("{OPS}/{file}"));
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_batch_is_told_from_an_inner_size_by_dfdx_s_own_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder
            .path()
            .join("dfdx-0.13.0/src/tensor_ops/matmul/mod.rs");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let message = "assertion `left == right` failed\n  left: 2\n right: 5";
        for (line, part) in [
            (
                "assert_eq!(self.shape.0, rhs.shape.0);",
                "batch sizes 2 and 5",
            ),
            (
                "assert_eq!(self.shape.2, rhs.shape.1);",
                "inner sizes 2 and 5",
            ),
            ("assert_eq!(k1, k2);", "inner sizes 2 and 5"),
        ] {
            std::fs::write(&file, line).unwrap();
            let said = sentence(message, file.to_str().unwrap());
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_learner_s_own_assertion_is_left_as_it_is() {
        let message = "assertion `left == right` failed\n  left: 2\n right: 3";
        assert_eq!(meaning(message, "src/lib.rs", 1), None);
        assert_eq!(meaning("need more numbers", "", 1), None);
    }

    #[test]
    fn odd_panics_never_panic() {
        for message in [
            "",
            "\n  left: ",
            "\n  left: \n right: ",
            "index out of bounds: the len is 0 but",
            "index out of bounds: the len is ",
            "Index out of bounds: index=",
            "日本",
        ] {
            for file in [
                "",
                "/dfdx-",
                "/dfdx-0/src",
                &format!("{OPS}/matmul/mod.rs"),
                &format!("{OPS}/utilities/日"),
            ] {
                let _ = (meaning(message, file, 1), callers(file));
            }
        }
        assert_eq!(
            common("index out of bounds: the len is 0 but the index is 0").unwrap(),
            "the list is empty"
        );
    }
}
