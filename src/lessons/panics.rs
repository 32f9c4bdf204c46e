//! Explains panics: those of dfdx, which show sizes but no shapes, and the common ones of the standard
//! library. Checks use it for a learner's function, the kernel for a cell.

use std::path::Path;

/// The explanation of a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// What is wrong, in place of the panic's message.
    Sentence(String),
    /// What to do about it, in addition to the panic's message.
    Hint(String),
}

/// Explains a panic by its message and location; returns `None` if the message needs no explanation.
pub fn meaning(message: &str, file: &str, line: u32) -> Option<Meaning> {
    dfdx(message, file, line).map(Meaning::Sentence).or_else(|| common(message).map(Meaning::Hint))
}

/// Returns the operation that a file of dfdx's source implements: the name of its folder or of the file.
fn operation(file: &str) -> Option<&str> {
    let (_, inside) = file.split_once("/dfdx-")?;
    let parts: Vec<_> = Path::new(inside).components().skip(2).collect();
    let text = |at: usize| parts.get(at)?.as_os_str().to_str();
    let folder = usize::from(text(0) == Some("tensor_ops"));
    text(folder).map(|name| name.trim_end_matches(".rs"))
}

/// Returns how a cell may call the operation in that file; empty if that is unknown.
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
        Some("tensor") if file.ends_with("gradients.rs") => &[".get("],
        Some("shapes") if file.ends_with("broadcasts.rs") => &[".broadcast"],
        Some("shapes") if file.ends_with("replace_dim.rs") => &[".select(", ".gather("],
        _ => &[],
    }
}

/// Returns whether an assertion of dfdx compares the same axis of both tensors, as in
/// `assert_eq!(self.shape.0, rhs.shape.0)`, and so the sizes of batches. If the source can't be read, it is
/// taken to compare the inner sizes, the more common mistake.
fn compares_batches(file: &str, line: u32) -> bool {
    let source = std::fs::read_to_string(file).unwrap_or_default();
    let line = (line as usize).checked_sub(1);
    let line = line.and_then(|line| source.lines().nth(line));
    line.is_some_and(|text| {
        let mut axes = text.split("shape.").skip(1).map(|rest| rest.chars().next());
        axes.next().is_some_and(|left| axes.next() == Some(left))
    })
}

/// Explains a panic of dfdx.
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
            "realize: the tensor's sizes are not those of the new shape; `realize` only states sizes to \
             the compiler: `permute` turns axes, `reshape` makes others"
                .to_owned()
        }
        ("stack", Some((left, right))) => format!(
            "stack: all tensors must have one shape, and {} and {} differ",
            shape(left),
            shape(right)
        ),
        ("shapes", Some((new, old))) if file.ends_with("broadcasts.rs") => format!(
            "broadcast: the tensor's size {old} meets the size {new} of the new shape, and only the axes named \
             in `Axis<…>` are new: all others must have equal sizes"
        ),
        ("shapes", Some((size, index))) if file.ends_with("replace_dim.rs") => format!(
            "select, gather: the tensor and the index differ in an axis that they share: its sizes are {size} \
             and {index}"
        ),
        ("tensor", None) if file.ends_with("gradients.rs") && message.contains("`None`") => {
            "these gradients contain none of this tensor: it took no part in what was recorded, or it was \
             replaced by another tensor since"
                .to_owned()
        }
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

/// Returns the two values of a failed `assert_eq!`.
fn sides(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("\n  left: ")?;
    let (left, right) = rest.split_once("\n right: ")?;
    Some((left.trim(), right.lines().next()?.trim()))
}

/// Formats a shape from its `Debug` form, which doesn't show constant sizes.
fn shape(text: &str) -> String {
    let sizes = text.trim_matches(['(', ')', '[', ']']).split(',');
    let sizes = sizes.map(str::trim).filter(|size| !size.is_empty());
    let sizes: Vec<_> = sizes.map(|size| if size == "Const" { "?" } else { size }).collect();
    sizes.join("×")
}

/// Lists the sizes that differ.
fn differing(left: &str, right: &str) -> String {
    let (left, right) = (shape(left), shape(right));
    let pairs = left.split('×').zip(right.split('×'));
    let pairs = pairs.filter(|(a, b)| a != b);
    let pairs: Vec<_> = pairs.map(|(a, b)| format!("{a} and {b}")).collect();
    if pairs.is_empty() {
        return String::new();
    }
    format!(": the sizes {} differ", pairs.join(", and "))
}

/// Hints for common panics, each below the texts that show one of them: at its start (`^`), its end (`$`) or
/// anywhere.
const HINTS: &str = include_str!("hints.txt");

/// Returns a hint for a common panic of the standard library.
fn common(message: &str) -> Option<String> {
    if let Some(rest) = message.strip_prefix("index out of bounds: the len is ") {
        let length: usize = rest.split(' ').next()?.parse().ok()?;
        return Some(match length.checked_sub(1) {
            Some(last) => format!(
                "positions go from 0 to {last}; `.get(i)` gives an `Option` instead of a panic"
            ),
            None => "the list is empty".to_owned(),
        });
    }
    let shown = |text: &str| match (text.strip_prefix('^'), text.strip_suffix('$')) {
        (Some(start), _) => message.starts_with(start),
        (None, Some(end)) => message.ends_with(end),
        (None, None) => message.contains(text),
    };
    let lines: Vec<&str> = HINTS.lines().collect();
    let mut hints = lines.chunks(2);
    let hint = hints.find(|hint| hint[0].split('|').any(shown))?;
    Some(hint[1].to_owned())
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
    fn panics_of_dfdx_are_explained_by_shapes() {
        // The message, or the two sides of a failed assertion; the file; and a part of the explanation.
        for case in [
            "7680 ≠ 6400|reshape_to/mod.rs|holds 7680 numbers and the new shape 6400",
            "3 ≠ 4|matmul/mod.rs|inner sizes 3 and 4 differ: a right side with 3 rows",
            "(2, Const) ≠ (4, Const)|utilities/ops.rs|2×? and the right is 4×?: the sizes 2 and 4 differ",
            "3 ≠ 5|concat_along/mod.rs|the sizes 3 and 5 of another one",
            "called `Result::unwrap()` on an `Err` value: Tensor { id: 1|realize_to.rs|sizes are not those of",
            "538 ≠ 1000|../shapes/broadcasts.rs|size 1000 meets the size 538 of the new shape",
            "2 ≠ 5|../shapes/replace_dim.rs|its sizes are 2 and 5",
            "called `Option::unwrap()` on a `None` value|../tensor/gradients.rs|none of this tensor",
            "Index out of bounds: index=[7, 0] shape=(Const, Const)|../tensor/cpu/index.rs|index [7, 0] is outside",
        ] {
            let [message, file, part] = case.split('|').collect::<Vec<_>>()[..] else {
                panic!("{case}")
            };
            let message = match message.split_once(" ≠ ") {
                Some((left, right)) => {
                    format!("assertion `left == right` failed\n  left: {left}\n right: {right}")
                }
                None => message.to_owned(),
            };
            let place = match file.strip_prefix("../") {
                Some(file) => format!("{}/{file}", OPS.trim_end_matches("/tensor_ops")),
                None => format!("{OPS}/{file}"),
            };
            let said = sentence(&message, &place);
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn the_line_of_dfdx_distinguishes_batch_sizes_from_inner_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dfdx-0.13.0/src/tensor_ops/matmul/mod.rs");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let message = "assertion `left == right` failed\n  left: 2\n right: 5";
        for (line, part) in [
            ("(self.shape.0, rhs.shape.0);", "batch sizes 2 and 5"),
            ("(self.shape.2, rhs.shape.1);", "inner sizes 2 and 5"),
            ("(k1, k2);", "inner sizes 2 and 5"),
        ] {
            std::fs::write(&file, line).unwrap();
            let said = sentence(message, file.to_str().unwrap());
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_learner_s_own_assertion_is_not_explained() {
        let message = "assertion `left == right` failed\n  left: 2\n right: 3";
        assert_eq!(meaning(message, "src/lib.rs", 1), None);
        assert_eq!(meaning("need more numbers", "", 1), None);
    }

    #[test]
    fn odd_panics_never_panic() {
        let messages = "|\n  left: |\n  left: \n right: |index out of bounds: the len is 0 but|\
                        index out of bounds: the len is |Index out of bounds: index=|日本";
        let files = format!("|/dfdx-|/dfdx-0/src|{OPS}/matmul/mod.rs|{OPS}/utilities/日");
        for message in messages.split('|') {
            for file in files.split('|') {
                let _ = (meaning(message, file, 1), callers(file));
            }
        }
        let empty = common("index out of bounds: the len is 0 but the index is 0");
        assert_eq!(empty.unwrap(), "the list is empty");
    }
}
