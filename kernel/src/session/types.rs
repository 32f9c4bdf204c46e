//! Types as people read them: a tensor by its sizes, everything else by its last name.
//!
//! What rustc and rust-analyzer print of a tensor is a line long (`dfdx::tensor::Tensor<(Const<2>,
//! Const<3>), f32, Cpu, NoneTape>`); what one wants to know is `(2, 3) f32 cpu`.

/// Shortens the text of a type. What does not read as a type comes back as it was.
pub fn short(text: &str) -> String {
    let text = text.trim();
    let mut reader = Reader::new(text);
    match reader.ty() {
        Some(ty) if reader.rest().is_empty() => ty.to_string(),
        _ => text.to_owned(),
    }
}

/// The parts of a tuple type, each shortened.
pub fn parts(tuple: &str) -> Option<Vec<String>> {
    let argument = Reader::new(tuple.trim()).argument()?;
    Some(argument.parts?.iter().map(shown).collect())
}

/// Shortens every tensor type that stands somewhere in `text`, and leaves the rest alone.
pub fn short_tensors(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(TENSOR) {
        let before = &rest[..start];
        // The path before the name goes with it.
        let path = before
            .char_indices()
            .rev()
            .take_while(|(_, character)| is_name(*character) || *character == ':')
            .last()
            .map_or(start, |(index, _)| index);
        let mut reader = Reader::new(&rest[path..]);
        match reader.ty() {
            Some(ty @ Type::Tensor { .. }) => {
                out += &rest[..path];
                out += &ty.to_string();
                let after = reader.rest().len();
                rest = &rest[rest.len() - after..];
            }
            _ => {
                let after = start + TENSOR.len();
                out += &rest[..after];
                rest = &rest[after..];
            }
        }
    }
    out + rest
}

/// A type that is not known.
pub const UNKNOWN: &str = "_";
const TENSOR: &str = "Tensor<";
/// Nested deeper than this is no type that anybody reads, and must not overflow the stack.
const DEEPEST: usize = 40;

enum Type {
    Tensor {
        shape: String,
        dtype: String,
        device: String,
        tape: Tape,
    },
    /// Anything else, shortened.
    Other(String),
}

enum Tape {
    None,
    Owned,
    /// A parameter of the function that one reads.
    Named(String),
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Other(text) => f.write_str(text),
            Self::Tensor {
                shape,
                dtype,
                device,
                tape,
            } => {
                write!(f, "{shape} {dtype} {device}")?;
                match tape {
                    Tape::None => Ok(()),
                    Tape::Owned => f.write_str(", taped"),
                    Tape::Named(name) => write!(f, ", tape {name}"),
                }
            }
        }
    }
}

/// A part of a generic type's brackets.
struct Argument {
    /// Where the argument is a tuple, its parts.
    parts: Option<Vec<Argument>>,
    /// The last name of a path, and what stands in its brackets.
    name: String,
    inner: Vec<Argument>,
    short: String,
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

struct Reader<'a> {
    text: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, depth: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text
    }

    fn blanks(&mut self) {
        self.text = self.text.trim_start();
    }

    /// Takes `token` where it comes next.
    fn takes(&mut self, token: &str) -> bool {
        let trimmed = self.text.trim_start();
        match trimmed.strip_prefix(token) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    /// Takes the word `word` where it comes next as a whole word.
    fn takes_word(&mut self, word: &str) -> bool {
        let trimmed = self.text.trim_start();
        match trimmed.strip_prefix(word) {
            Some(rest) if !rest.starts_with(is_name) => {
                self.text = rest;
                true
            }
            _ => false,
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        self.blanks();
        let text = self.text.strip_prefix("r#").unwrap_or(self.text);
        let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        self.text = rest;
        (!name.is_empty()).then_some(name)
    }

    fn ty(&mut self) -> Option<Type> {
        let argument = self.argument()?;
        Some(as_tensor(&argument).unwrap_or(Type::Other(argument.short)))
    }

    fn argument(&mut self) -> Option<Argument> {
        self.depth += 1;
        let argument = (self.depth <= DEEPEST).then(|| self.one()).flatten();
        self.depth -= 1;
        argument
    }

    /// An argument as text, where a tensor is written as one.
    fn shortened(&mut self) -> Option<String> {
        let argument = self.argument()?;
        Some(as_tensor(&argument).map_or(argument.short, |tensor| tensor.to_string()))
    }

    fn one(&mut self) -> Option<Argument> {
        if self.takes("&") {
            let lifetime = self.lifetime();
            let mutable = if self.takes_word("mut") { "mut " } else { "" };
            let inner = self.shortened()?;
            return Some(text(format!("&{lifetime}{mutable}{inner}")));
        }
        for pointer in ["*const ", "*mut "] {
            if self.takes(pointer) {
                return Some(text(format!("{pointer}{}", self.shortened()?)));
            }
        }
        if self.takes("(") {
            return self.tuple();
        }
        if self.takes("[") {
            let inner = self.shortened()?;
            if self.takes(";") {
                let length = self.until_bracket(']')?;
                return Some(text(format!("[{inner}; {length}]")));
            }
            return self.takes("]").then(|| text(format!("[{inner}]")));
        }
        if self.takes("{") {
            // rust-analyzer's word for what it has not inferred is shorter in Rust's own.
            return Some(text(match self.until_bracket('}')?.as_str() {
                "unknown" => UNKNOWN.to_owned(),
                value => value.to_owned(),
            }));
        }
        for word in ["impl", "dyn"] {
            if self.takes_word(word) {
                return Some(text(format!("{word} {}", self.bounds()?)));
            }
        }
        for mark in ["…", "...", "?", "!"] {
            if self.takes(mark) {
                return Some(text(mark.to_owned()));
            }
        }
        let lifetime = self.lifetime();
        if !lifetime.is_empty() {
            return Some(text(lifetime.trim_end().to_owned()));
        }
        // A closure or a projection is not told shorter than it is.
        if self.takes("<") {
            let inner = self.until_bracket('>')?;
            let mut out = format!("<{inner}>");
            while self.takes("::") {
                out = format!("{out}::{}", self.name()?);
            }
            return Some(text(out));
        }
        self.path()
    }

    /// `'a ` or nothing.
    fn lifetime(&mut self) -> String {
        if !self.takes("'") {
            return String::new();
        }
        self.name()
            .map(|name| format!("'{name} "))
            .unwrap_or_default()
    }

    fn tuple(&mut self) -> Option<Argument> {
        let mut parts = Vec::new();
        let mut comma = false;
        while !self.takes(")") {
            parts.push(self.argument()?);
            comma = self.takes(",");
            if !comma && !self.text.trim_start().starts_with(')') {
                return None;
            }
        }
        let inner: Vec<String> = parts.iter().map(shown).collect();
        let short = match inner.as_slice() {
            [one] if comma => format!("({one},)"),
            all => format!("({})", all.join(", ")),
        };
        Some(Argument {
            parts: Some(parts),
            ..text(short)
        })
    }

    fn bounds(&mut self) -> Option<String> {
        let mut bounds = vec![self.shortened()?];
        while self.takes("+") {
            bounds.push(self.shortened()?);
        }
        Some(bounds.join(" + "))
    }

    fn path(&mut self) -> Option<Argument> {
        let mut name = self.name()?;
        loop {
            let before = self.text;
            // `Vec::<u8>` is written in expressions.
            if self.takes("::") && !self.text.trim_start().starts_with('<') {
                match self.name() {
                    Some(next) => name = next,
                    None => {
                        self.text = before;
                        break;
                    }
                }
            } else {
                break;
            }
        }
        if matches!(name, "fn" | "Fn" | "FnMut" | "FnOnce") && self.takes("(") {
            let inputs = self.tuple()?;
            let output = self.output()?;
            return Some(text(format!("{name}{}{output}", inputs.short)));
        }
        let mut inner = Vec::new();
        if self.takes("<") {
            while !self.takes(">") {
                inner.push(self.generic()?);
                if !self.takes(",") && !self.text.trim_start().starts_with('>') {
                    return None;
                }
            }
        }
        let short = match inner.as_slice() {
            [] => name.to_owned(),
            inner => {
                let inner: Vec<String> = inner.iter().map(shown).collect();
                format!("{name}<{}>", inner.join(", "))
            }
        };
        Some(Argument {
            parts: None,
            name: name.to_owned(),
            inner,
            short,
        })
    }

    fn output(&mut self) -> Option<String> {
        if !self.takes("->") {
            return Some(String::new());
        }
        Some(format!(" -> {}", self.shortened()?))
    }

    /// One of the things between angle brackets: a type, a number, `Item = T`.
    fn generic(&mut self) -> Option<Argument> {
        if self.takes("-") {
            return Some(text(format!("-{}", self.name()?)));
        }
        let argument = self.argument()?;
        if self.takes("=") {
            return Some(text(format!("{} = {}", argument.short, self.shortened()?)));
        }
        Some(argument)
    }

    /// What stands before the bracket that closes the one just taken.
    fn until_bracket(&mut self, close: char) -> Option<String> {
        let mut open = 0;
        for (index, character) in self.text.char_indices() {
            match character {
                _ if open == 0 && character == close => {
                    let inner = self.text[..index].trim().to_owned();
                    self.text = &self.text[index + character.len_utf8()..];
                    return Some(inner);
                }
                '(' | '[' | '{' | '<' => open += 1,
                // The arrow of a function is no bracket.
                '>' if self.text[..index].ends_with('-') => {}
                ')' | ']' | '}' | '>' => open = usize::checked_sub(open, 1)?,
                _ => {}
            }
        }
        None
    }
}

fn text(short: String) -> Argument {
    Argument {
        parts: None,
        name: String::new(),
        inner: Vec::new(),
        short,
    }
}

fn shown(argument: &Argument) -> String {
    as_tensor(argument).map_or_else(|| argument.short.clone(), |tensor| tensor.to_string())
}

fn as_tensor(argument: &Argument) -> Option<Type> {
    let [shape, dtype, device, tape @ ..] = argument.inner.as_slice() else {
        return None;
    };
    if argument.name != "Tensor" || tape.len() > 1 {
        return None;
    }
    let tape = match tape.first() {
        None => Tape::None,
        Some(tape) => match tape.name.as_str() {
            "NoneTape" => Tape::None,
            "OwnedTape" => Tape::Owned,
            _ => Tape::Named(tape.short.clone()),
        },
    };
    Some(Type::Tensor {
        shape: sizes(shape),
        dtype: dtype.short.clone(),
        device: match device.short.as_str() {
            known @ ("Cpu" | "Cuda" | "AutoDevice") => known.to_lowercase(),
            other => other.to_owned(),
        },
        tape,
    })
}

/// A shape by its sizes: `(2, ?)`; one that is a parameter stays what it is called.
fn sizes(shape: &Argument) -> String {
    let ranked = shape
        .name
        .strip_prefix("Rank")
        .is_some_and(|rank| rank.parse::<u8>().is_ok());
    let sizes: Vec<String> = match &shape.parts {
        Some(parts) => parts.iter().map(size).collect(),
        None if ranked => shape.inner.iter().map(|size| number(&size.short)).collect(),
        None => return shape.short.clone(),
    };
    format!("({})", sizes.join(", "))
}

fn size(part: &Argument) -> String {
    match (part.name.as_str(), part.inner.as_slice()) {
        ("usize", []) => "?".to_owned(),
        ("Const", [value]) => number(&value.short),
        _ => part.short.clone(),
    }
}

/// rustc writes some numbers with their type.
fn number(value: &str) -> String {
    let bare = value.strip_suffix("usize").unwrap_or(value);
    let bare = bare.strip_suffix('_').unwrap_or(bare);
    match bare.is_empty() {
        true => value.to_owned(),
        false => bare.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_its_sizes_number_type_and_device() {
        for (long, expected) in [
            ("Tensor<Rank2<2, 3>, f32, Cpu>", "(2, 3) f32 cpu"),
            (
                "Tensor<(usize, Const<3>), f32, Cpu, OwnedTape<f32, Cpu>>",
                "(?, 3) f32 cpu, taped",
            ),
            (
                "dfdx::tensor::Tensor<(dfdx::shapes::Const<2>, dfdx::shapes::Const<3usize>), f32, \
                 dfdx::tensor::Cpu, dfdx::tensor::NoneTape>",
                "(2, 3) f32 cpu",
            ),
            ("Tensor<(Const<5>,), f64, Cpu>", "(5) f64 cpu"),
            ("Tensor<Rank0, f32, Cpu>", "() f32 cpu"),
            ("Tensor<(), f32, Cpu>", "() f32 cpu"),
            (
                "Tensor<(B, S, Const<64>), E, D, T>",
                "(B, S, 64) E D, tape T",
            ),
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
            (
                "<T as std::ops::Add>::Output",
                "<T as std::ops::Add>::Output",
            ),
            ("Ref<'_, T>", "Ref<'_, T>"),
            ("*const u8", "*const u8"),
            ("Tensor", "Tensor"),
            ("Tensor<f32>", "Tensor<f32>"),
        ] {
            assert_eq!(short(long), expected, "{long}");
        }
    }

    #[test]
    fn what_is_no_type_stays_and_nothing_panics() {
        for odd in [
            "",
            "<",
            ">",
            "Tensor<",
            "Tensor<(",
            "Tensor<,,,>",
            "((((",
            "Vec<u8",
            "Vec<u8>>",
            "ü<é>",
            "&",
            "& 'a",
            "'",
            "[",
            "[u8;",
            "a::",
            "::a",
            "dyn",
            "impl +",
            "{",
            "fn(",
            "fn() ->",
            "…",
            "Tensor<…>",
            "{closure@src/lib.rs:3:5}",
            "é",
            "r#type",
            "1 + 1",
            "let x = 3;",
            "<T as X",
            "Const<>",
            "Tensor<Const<>, f32, Cpu>",
            "Tensor<Rank999999<1>, f32, Cpu>",
        ] {
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
    fn a_tuple_is_taken_apart() {
        assert_eq!(
            parts("(usize, Option<&{unknown}>, {unknown}, Tensor<Rank1<3>, f32, Cpu>, ())")
                .unwrap(),
            ["usize", "Option<&_>", UNKNOWN, "(3) f32 cpu", "()"]
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
        assert_eq!(short_tensors("no tensor"), "no tensor");
    }
}
