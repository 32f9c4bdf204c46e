//! The parts of a tensor's type.

use super::{Form, Type};

/// The arguments of `Tensor<…>`.
pub struct Tensor<'t, 'a> {
    pub shape: &'t Type<'a>,
    pub dtype: &'t Type<'a>,
    pub device: &'t Type<'a>,
    pub tape: Tape<'t, 'a>,
}

pub enum Tape<'t, 'a> {
    None,
    Owned,
    /// A type parameter.
    Other(&'t Type<'a>),
}

impl<'t, 'a> Tensor<'t, 'a> {
    pub fn of(ty: &'t Type<'a>) -> Option<Self> {
        let ("Tensor", [shape, dtype, device, tape @ ..]) = ty.named()? else {
            return None;
        };
        let tape = match tape {
            [] => Tape::None,
            [tape] => match tape.named() {
                Some(("NoneTape", _)) => Tape::None,
                Some(("OwnedTape", _)) => Tape::Owned,
                _ => Tape::Other(tape),
            },
            _ => return None,
        };
        Some(Self { shape, dtype, device, tape })
    }
}

/// One size of a shape.
pub enum Size<'t, 'a> {
    /// `usize`: known only when the cell runs.
    Runtime,
    /// `Const<3>`: a number, or its name.
    Constant(String),
    /// A type parameter, or an unknown type.
    Other(&'t Type<'a>),
}

/// Returns the sizes of a shape, a tuple or `Rank2<2, 3>`, or `None` if it is a type parameter, say.
pub fn sizes<'t, 'a>(shape: &'t Type<'a>) -> Option<Vec<Size<'t, 'a>>> {
    if let Form::Tuple { parts, .. } = &shape.form {
        return Some(parts.iter().map(size).collect());
    }
    let (name, sizes) = shape.named()?;
    let rank: usize = name.strip_prefix("Rank")?.parse().ok()?;
    let sizes: Vec<_> = sizes.iter().map(constant).collect();
    (sizes.len() == rank).then_some(sizes)
}

fn size<'t, 'a>(part: &'t Type<'a>) -> Size<'t, 'a> {
    match part.named() {
        Some(("usize", [])) => Size::Runtime,
        Some(("Const", [value])) => constant(value),
        _ => Size::Other(part),
    }
}

/// Reads a constant; rustc writes some numbers with their type.
fn constant<'t, 'a>(value: &Type) -> Size<'t, 'a> {
    let value = value.to_string();
    let bare = value.strip_suffix("usize").unwrap_or(&value);
    let bare = bare.strip_suffix('_').unwrap_or(bare);
    Size::Constant(match bare.is_empty() {
        true => value,
        false => bare.to_owned(),
    })
}
