//! Types in short: a tensor by its sizes, everything else by its last name.
//!
//! rustc and rust-analyzer print a whole line for a tensor (`dfdx::tensor::Tensor<(Const<2>, Const<3>),
//! f32, Cpu, NoneTape>`); what one needs to know is `(2, 3) f32 cpu`.

use std::fmt;

use super::reader::{Piece, is_name, read, read_first};
use super::{Form, Size, Tape, Tensor, Type, sizes};

const TENSOR: &str = "Tensor<";

/// Shortens the text of a type. Returns other text unchanged.
pub fn short(text: &str) -> String {
    let text = text.trim();
    read(text).map_or_else(|| text.to_owned(), |ty| ty.to_string())
}

/// Returns the parts of a tuple type, each shortened.
pub fn parts(tuple: &str) -> Option<Vec<String>> {
    match read_first(tuple)?.0.form {
        Form::Tuple { parts, .. } => Some(parts.iter().map(Type::to_string).collect()),
        _ => None,
    }
}

/// Shortens every tensor type in `text` whose shape is known, and keeps the rest.
pub fn short_tensors(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(TENSOR) {
        // The path before the name goes with it.
        let before = rest[..start].trim_end_matches(|c| is_name(c) || c == ':');
        let tensor = read_first(&rest[before.len()..]).and_then(|(ty, after)| {
            let tensor = Tensor::of(&ty).filter(|it| sizes(it.shape).is_some())?;
            Some((tensor.to_string(), after))
        });
        match tensor {
            Some((tensor, after)) => {
                out += before;
                out += &tensor;
                rest = after;
            }
            None => {
                let (kept, after) = rest.split_at(start + TENSOR.len());
                out += kept;
                rest = after;
            }
        }
    }
    out + rest
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tensor) = Tensor::of(self) {
            return tensor.fmt(f);
        }
        match &self.form {
            Form::Named { name, arguments } if arguments.is_empty() => f.write_str(name),
            Form::Named { name, arguments } => write!(f, "{name}<{}>", listed(arguments)),
            Form::Tuple { parts, comma } => match parts.as_slice() {
                [one] if *comma => write!(f, "({one},)"),
                all => write!(f, "({})", listed(all)),
            },
            Form::Reference(before, to) => write!(f, "{before}{to}"),
            Form::Other(pieces) => pieces.iter().try_for_each(|piece| match piece {
                Piece::Word(word) => f.write_str(word),
                Piece::Type(ty) => ty.fmt(f),
            }),
        }
    }
}

impl fmt::Display for Tensor<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match sizes(self.shape) {
            Some(sizes) => write!(f, "({})", listed(&sizes))?,
            // A type parameter keeps its name.
            None => self.shape.fmt(f)?,
        }
        let device = match self.device.to_string().as_str() {
            known @ ("Cpu" | "Cuda" | "AutoDevice") => known.to_lowercase(),
            other => other.to_owned(),
        };
        write!(f, " {} {device}", self.dtype)?;
        match self.tape {
            Tape::None => Ok(()),
            Tape::Owned => f.write_str(", taped"),
            Tape::Other(tape) => write!(f, ", tape {tape}"),
        }
    }
}

impl fmt::Display for Size<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime => f.write_str("?"),
            Self::Constant(value) => f.write_str(value),
            Self::Other(ty) => ty.fmt(f),
        }
    }
}

fn listed(all: &[impl fmt::Display]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_described_by_its_sizes_its_number_type_and_its_device() {
        for (long, expected) in [
            ("Tensor<Rank2<2, 3>, f32, Cpu>", "(2, 3) f32 cpu"),
            ("Tensor<(usize, Const<3>), f32, Cpu, OwnedTape<f32, Cpu>>", "(?, 3) f32 cpu, taped"),
            (
                "dfdx::tensor::Tensor<(dfdx::shapes::Const<2>, dfdx::shapes::Const<3usize>), f32, \
                 dfdx::tensor::Cpu, dfdx::tensor::NoneTape>",
                "(2, 3) f32 cpu",
            ),
            ("Tensor<(Const<5>,), f64, Cpu>", "(5) f64 cpu"),
            ("Tensor<Rank0, f32, Cpu>", "() f32 cpu"),
            ("Tensor<(), f32, Cpu>", "() f32 cpu"),
            ("Tensor<(B, S, Const<64>), E, D, T>", "(B, S, 64) E D, tape T"),
            ("Tensor<S, f32, Cpu>", "S f32 cpu"),
            ("Tensor<Rank2<{ 2 }, N>, f16, Cuda>", "(2, N) f16 cuda"),
            ("&'a mut Tensor<Rank1<3>, f32, Cpu>", "&'a mut (3) f32 cpu"),
            (
                "alloc::vec::Vec<(Tensor<Rank1<3>, f32, Cpu>, core::option::Option<Tensor<Rank0, f32, Cpu>>)>",
                "Vec<((3) f32 cpu, Option<() f32 cpu>)>",
            ),
        ] {
            assert_eq!(short(long), expected, "{long}");
        }
    }

    #[test]
    fn other_types_lose_their_paths() {
        for (long, expected) in [
            ("alloc::string::String", "String"),
            (
                "std::collections::HashMap<alloc::string::String, [u8; 4]>",
                "HashMap<String, [u8; 4]>",
            ),
            ("&'static str", "&'static str"),
            ("(i32,)", "(i32,)"),
            ("()", "()"),
            ("[core::option::Option<u8>]", "[Option<u8>]"),
            (
                "fn(&std::path::Path, usize) -> std::io::Result<()>",
                "fn(&Path, usize) -> Result<()>",
            ),
            (
                "alloc::boxed::Box<dyn core::ops::Fn(i32) -> i32 + core::marker::Send>",
                "Box<dyn Fn(i32) -> i32 + Send>",
            ),
            (
                "impl core::iter::Iterator<Item = alloc::string::String>",
                "impl Iterator<Item = String>",
            ),
            ("<T as std::ops::Add>::Output", "<T as std::ops::Add>::Output"),
            ("Ref<'_, T>", "Ref<'_, T>"),
            ("*const u8", "*const u8"),
            ("Tensor", "Tensor"),
            ("Tensor<f32>", "Tensor<f32>"),
        ] {
            assert_eq!(short(long), expected, "{long}");
        }
    }

    #[test]
    fn text_that_is_no_type_stays_and_never_panics() {
        const ODD: &str = "|<|>|Tensor<|Tensor<(|Tensor<,,,>|((((|Vec<u8|Vec<u8>>|ü<é>|&|& 'a|'|[|[u8;\
                           |a::|::a|dyn|impl +|{|fn(|fn() ->|…|Tensor<…>|{closure@src/lib.rs:3:5}|é\
                           |r#type|1 + 1|let x = 3;|<T as X|Const<>|Tensor<Const<>, f32, Cpu>\
                           |Tensor<Rank999999<1>, f32, Cpu>";
        for odd in ODD.split('|') {
            short(odd);
            short_tensors(odd);
        }
        assert_eq!(short("1 + 1"), "1 + 1");
        assert_eq!(short("Vec<u8"), "Vec<u8");
        let deep = "Vec<".repeat(5000);
        assert_eq!(short(&deep), deep);
        let deep = format!("{}u8{}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(short(&deep), deep);
    }

    #[test]
    fn a_tuple_is_split_into_its_parts() {
        assert_eq!(
            parts("(usize, Option<&{unknown}>, {unknown}, Tensor<Rank1<3>, f32, Cpu>, ())")
                .unwrap(),
            ["usize", "Option<&_>", "_", "(3) f32 cpu", "()"]
        );
        assert_eq!(parts("(u8,)").unwrap(), ["u8"]);
        assert_eq!(parts("u8"), None);
        assert_eq!(parts(""), None);
    }

    #[test]
    fn tensors_inside_other_text_are_shortened_in_place() {
        assert_eq!(
            short_tensors("let x: &dfdx::tensor::Tensor<Rank1<3>, f32, Cpu> // 3 bytes"),
            "let x: &(3) f32 cpu // 3 bytes"
        );
        assert_eq!(
            short_tensors("pub struct Tensor<S: Shape, E, D> {"),
            "pub struct Tensor<S: Shape, E, D> {"
        );
        assert_eq!(short_tensors("-> Tensor<S, E, D>"), "-> Tensor<S, E, D>");
        assert_eq!(short_tensors("no tensor"), "no tensor");
    }
}
