//! Tensors and shapes as the explanations compare and name them. rustc may print anything: the result is
//! `None` for other text, never a panic.

use std::fmt;

use crate::session::types::{self, Form, Size, Tape, Type, read, sizes};

/// The name of a generic parameter, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name([u8; 16]);

impl Name {
    /// Returns `None` for text that is no name, or too long.
    fn of(text: &str) -> Option<Self> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut bytes = [0; 16];
        bytes
            .get_mut(..text.len())
            .filter(|_| text.chars().all(is_name))?
            .copy_from_slice(text.as_bytes());
        Some(Self(bytes))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.iter().take_while(|byte| **byte != 0);
        bytes.map(|byte| char::from(*byte)).try_for_each(|c| write!(f, "{c}"))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// One size of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// `Const<3>`.
    Known(usize),
    /// `Const<R>`, in a function that is generic over `R`.
    Named(Name),
    /// `usize`: known only when the cell runs.
    Runtime,
    /// `_`: rustc omits it, mostly because both sides agree.
    Hidden,
}

impl Dim {
    /// Returns whether the size is part of the type.
    pub fn is_constant(self) -> bool {
        matches!(self, Self::Known(_) | Self::Named(_))
    }

    /// Returns whether two sizes cannot be the same type.
    pub fn clashes(self, other: Self) -> bool {
        self != other && self != Self::Hidden && other != Self::Hidden
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(size) => write!(f, "{size}"),
            Self::Named(name) => write!(f, "{name}"),
            Self::Runtime | Self::Hidden => f.write_str("?"),
        }
    }
}

/// The sizes of a tensor, `2×3` in sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    fn of(ty: &Type) -> Option<Self> {
        let dim = |size: &Size| match size {
            Size::Runtime => Some(Dim::Runtime),
            Size::Constant(value) => Some(match (value.parse(), Name::of(value)) {
                (Ok(size), _) => Dim::Known(size),
                (_, Some(name)) if value != "_" => Dim::Named(name),
                _ => Dim::Hidden,
            }),
            Size::Other(of) => (of.written == "_").then_some(Dim::Hidden),
        };
        sizes(ty)?.iter().map(dim).collect::<Option<_>>().map(Self)
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns how many numbers it holds, if that is known.
    pub fn numbers(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |all, dim| match dim {
            Dim::Known(size) => all.checked_mul(*size),
            _ => None,
        })
    }

    pub fn has_runtime(&self) -> bool {
        self.0.contains(&Dim::Runtime)
    }

    /// Returns the shape without one axis.
    pub fn without(&self, axis: usize) -> Self {
        let kept = self.0.iter().enumerate().filter(|(at, _)| *at != axis);
        Self(kept.map(|(_, dim)| *dim).collect())
    }

    /// Returns the type as a learner writes it: `Rank2<2, 3>` or `(usize, Const<3>)`.
    pub fn code(&self) -> Option<String> {
        let sizes: Option<Vec<String>> =
            self.0.iter().map(|dim| dim.is_constant().then(|| dim.to_string())).collect();
        match sizes {
            Some(sizes) if sizes.is_empty() => Some("Rank0".to_owned()),
            Some(sizes) => Some(format!("Rank{}<{}>", sizes.len(), sizes.join(", "))),
            None if self.0.contains(&Dim::Hidden) => None,
            None => {
                let sizes = self.0.iter().map(|dim| match dim.is_constant() {
                    true => format!("Const<{dim}>"),
                    false => "usize".to_owned(),
                });
                let sizes: Vec<_> = sizes.collect();
                let end = if sizes.len() == 1 { "," } else { "" };
                Some(format!("({}{end})", sizes.join(", ")))
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("a scalar"),
            [one] => write!(f, "a vector of {one}"),
            sizes => {
                let sizes: Vec<_> = sizes.iter().map(Dim::to_string).collect();
                f.write_str(&sizes.join("×"))
            }
        }
    }
}

/// A tensor's type. Texts are as rustc prints them, `_` for unknown parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor<'a> {
    pub shape: Option<Shape>,
    pub dtype: &'a str,
    pub taped: bool,
    /// Whether it has a tape, or may have one: a type parameter.
    pub may_record: bool,
    pub borrowed: bool,
}

/// Parses the type of a tensor.
pub fn tensor(text: &str) -> Option<Tensor<'_>> {
    let mut of = read(text)?;
    let mut borrowed = false;
    while let Form::Reference(_, to) = of.form {
        (of, borrowed) = (*to, true);
    }
    let tensor = types::Tensor::of(&of)?;
    Some(Tensor {
        shape: Shape::of(tensor.shape),
        dtype: tensor.dtype.written,
        taped: matches!(tensor.tape, Tape::Owned),
        may_record: !matches!(tensor.tape, Tape::None),
        borrowed,
    })
}

/// Parses a shape: a tuple of sizes, or `Rank2<2, 3>`.
pub fn shape(text: &str) -> Option<Shape> {
    Shape::of(&read(text)?)
}

/// Parses several shapes, in a tuple of tuples.
pub fn shapes(text: &str) -> Option<Vec<Shape>> {
    match read(text)?.form {
        Form::Tuple { parts, .. } => parts.iter().map(Shape::of).collect(),
        _ => None,
    }
}

/// Parses the axes in `Axis<1>` or `Axes2<0, 1>`.
pub fn axes(text: &str) -> Option<Vec<isize>> {
    let (name, axes) = generic(text)?;
    if !name.starts_with("Axis") && !name.starts_with("Axes") {
        return None;
    }
    axes.iter().map(|axis| axis.parse().ok()).collect()
}

/// Returns the name and the arguments of `path::Name<A, B>`.
pub fn generic(text: &str) -> Option<(&str, Vec<&str>)> {
    let ty = read(text)?;
    let (name, arguments) = ty.named().filter(|(_, arguments)| !arguments.is_empty())?;
    Some((name, arguments.iter().map(|of| of.written).collect()))
}

/// Returns the texts between backticks.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Splits `Left: Right`, at the colon that is not part of a path.
pub fn bound(text: &str) -> Option<(&str, &str)> {
    text.split_once(": ").map(|(left, right)| (left.trim(), right.trim()))
}

/// Removes the paths of the session's own crates from types: learners import these with
/// `use cloze::prelude::*`.
pub fn short(text: &str) -> String {
    const OURS: [&str; 5] = ["cloze_session", "cloze_impl", "dfdx", "modules", "tensor_ops"];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
            .unwrap_or(rest.len());
        let (path, after) = rest.split_at(end);
        // A colon at the end is part of the sentence.
        let trimmed = path.trim_end_matches(':');
        let mut parts = trimmed.split("::");
        let (first, last) = (parts.next().unwrap_or(""), parts.last());
        match last {
            Some(last) if OURS.contains(&first) => {
                if last.starts_with(char::is_uppercase) {
                    out.push_str(last);
                } else {
                    out.push_str(
                        &trimmed.replace("cloze_session", "cloze").replace("cloze_impl", "cloze"),
                    );
                }
            }
            _ => out.push_str(trimmed),
        }
        out.push_str(&path[trimmed.len()..]);
        let mut characters = after.chars();
        out.extend(characters.next());
        rest = characters.as_str();
    }
    // evcxr's type for a `?` in a cell.
    out.replace("Result<(), EvcxrUserCodeError>", "Result<_, _>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_parsed_and_displayed() {
        for (text, displayed) in [
            ("(Const<2>, Const<3>)", "2×3"),
            ("(Const<3>,)", "a vector of 3"),
            ("()", "a scalar"),
            ("(usize, dfdx::shapes::Const<3>)", "?×3"),
            ("(Const<_>, Const<10>)", "?×10"),
            ("Rank3<1, 2, 4>", "1×2×4"),
            ("(Const<2usize>, Const<{ 3 }>, _)", "2×3×?"),
        ] {
            assert_eq!(shape(text).unwrap().to_string(), displayed, "{text}");
        }
        for text in "|(|(...)|(..., ...)|Rank2<1>|[usize; 2]|_|Rank9|×".split('|') {
            assert_eq!(shape(text), None, "{text}");
        }
    }

    #[test]
    fn a_shape_is_written_as_code_if_all_of_it_is_known() {
        let code = |text| shape(text).unwrap().code();
        assert_eq!(code("(Const<2>, Const<3>)").unwrap(), "Rank2<2, 3>");
        assert_eq!(code("(usize, Const<3>)").unwrap(), "(usize, Const<3>)");
        assert_eq!(code("(usize,)").unwrap(), "(usize,)");
        assert_eq!(code("(Const<_>, Const<3>)"), None);
    }

    #[test]
    fn tensors_are_parsed_with_tape_and_reference() {
        let text = "&cloze::prelude::Tensor<(Const<2>,), f32, Cpu, OwnedTape<f32, Cpu>>";
        let read = tensor(text).unwrap();
        assert_eq!((read.dtype, read.taped, read.borrowed), ("f32", true, true));
        assert_eq!(tensor("Vec<Tensor<(), f32, Cpu>>"), None);
        assert_eq!(tensor("Tensor<...>"), None);
        assert_eq!(tensor("Tensor<(..., ...), f32, ...>").unwrap().shape, None);
    }

    #[test]
    fn odd_texts_are_no_types() {
        for text in "|<|>|<>|a<>>|`|fn(A) -> B<C, D>|日本<語>|((((|&&&".split('|') {
            let _ = (tensor(text), shape(text), axes(text), generic(text));
            let _ = (shapes(text), short(text), bound(text), quoted(text).count());
        }
    }

    #[test]
    fn paths_of_the_session_are_removed_from_types_only() {
        let text = "the trait `cloze_session::prelude::TryMatMul<dfdx::shapes::Const<4>>` is not: std::fmt::Display";
        assert_eq!(short(text), "the trait `TryMatMul<Const<4>>` is not: std::fmt::Display");
        assert_eq!(short("`cloze_session::prelude`"), "`cloze::prelude`");
    }

    #[test]
    fn a_huge_shape_does_not_overflow() {
        let most = usize::MAX;
        assert_eq!(shape(&format!("Rank2<{most}, 2>")).unwrap().numbers(), None);
    }
}
