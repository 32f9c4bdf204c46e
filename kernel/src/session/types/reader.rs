//! Reads a type out of a text.
//!
//! The text may be anything: what does not read as a type is `None`, never a panic.

use super::short::UNKNOWN;

/// A type, or what else stands among a type's arguments: a size, a lifetime, `Item = T`.
#[derive(Debug)]
pub struct Type<'a> {
    /// As it was written.
    pub written: &'a str,
    pub form: Form<'a>,
}

#[derive(Debug)]
pub enum Form<'a> {
    /// `path::Name<A, B>`, of the path only the last name.
    Named {
        name: &'a str,
        arguments: Vec<Type<'a>>,
    },
    /// `(A, B)`; the comma at the end tells `(A,)` from `(A)`.
    Tuple { parts: Vec<Type<'a>>, comma: bool },
    /// `&'a mut T`: what stands before `T`, and `T`.
    Reference(String, Box<Type<'a>>),
    /// Anything else: the words and the types of which it is made.
    Other(Vec<Piece<'a>>),
}

#[derive(Debug)]
pub enum Piece<'a> {
    Word(String),
    Type(Type<'a>),
}

impl<'a> Type<'a> {
    /// The name and the arguments of a type that has a name.
    pub fn named(&self) -> Option<(&'a str, &[Type<'a>])> {
        match &self.form {
            Form::Named { name, arguments } => Some((name, arguments)),
            _ => None,
        }
    }
}

/// The type that the whole text is.
pub fn read(text: &str) -> Option<Type<'_>> {
    let (ty, rest) = read_first(text.trim())?;
    rest.is_empty().then_some(ty)
}

/// The type that the text begins with, and what stands behind it.
pub fn read_first(text: &str) -> Option<(Type<'_>, &str)> {
    let mut reader = Reader { text, depth: 0 };
    let ty = reader.ty()?;
    Some((ty, reader.text))
}

pub fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Nested deeper than this is no type that anybody reads, and must not overflow the stack.
const DEEPEST: usize = 40;

struct Reader<'a> {
    /// What has not been read yet.
    text: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// Takes `token` where it comes next.
    fn takes(&mut self, token: &str) -> bool {
        let rest = self.text.trim_start().strip_prefix(token);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    /// Takes the word `word` where it comes next as a whole word.
    fn takes_word(&mut self, word: &str) -> bool {
        let rest = self.text.trim_start().strip_prefix(word);
        let rest = rest.filter(|rest| !rest.starts_with(is_name));
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    fn sees(&self, one_of: &[char]) -> bool {
        self.text.trim_start().starts_with(one_of)
    }

    fn name(&mut self) -> Option<&'a str> {
        let text = self.text.trim_start();
        let text = text.strip_prefix("r#").unwrap_or(text);
        let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        self.text = rest;
        (!name.is_empty()).then_some(name)
    }

    fn ty(&mut self) -> Option<Type<'a>> {
        self.marked(Self::form)
    }

    /// What `form` reads, with the text that it took.
    fn marked(&mut self, form: impl FnOnce(&mut Self) -> Option<Form<'a>>) -> Option<Type<'a>> {
        let text = self.text.trim_start();
        self.depth += 1;
        let form = (self.depth <= DEEPEST).then(|| form(self)).flatten();
        self.depth -= 1;
        // What is left is the end of what there was.
        let written = text.strip_suffix(self.text)?.trim_end();
        form.map(|form| Type { written, form })
    }

    fn form(&mut self) -> Option<Form<'a>> {
        if self.takes("&") {
            let lifetime = self.lifetime();
            let mutable = if self.takes_word("mut") { "mut " } else { "" };
            let before = format!("&{lifetime}{mutable}");
            return Some(Form::Reference(before, Box::new(self.ty()?)));
        }
        for pointer in ["*const ", "*mut "] {
            if self.takes(pointer) {
                return Some(Form::Other(vec![word(pointer), self.piece()?]));
            }
        }
        if self.takes("(") {
            return self.tuple();
        }
        if self.takes("[") {
            let inner = self.piece()?;
            let end = match self.takes(";") {
                true => format!("; {}]", self.until(']')?),
                false => self.takes("]").then(|| "]".to_owned())?,
            };
            return Some(Form::Other(vec![word("["), inner, Piece::Word(end)]));
        }
        if self.takes("{") {
            // rust-analyzer's word for what it has not inferred is shorter in Rust's own.
            return Some(match self.until('}')? {
                "unknown" => words(UNKNOWN),
                value => words(value),
            });
        }
        for before in ["impl ", "dyn "] {
            if self.takes_word(before.trim_end()) {
                let mut pieces = vec![word(before), self.piece()?];
                while self.takes("+") {
                    pieces.extend([word(" + "), self.piece()?]);
                }
                return Some(Form::Other(pieces));
            }
        }
        for mark in ["…", "...", "?", "!"] {
            if self.takes(mark) {
                return Some(words(mark));
            }
        }
        let lifetime = self.lifetime();
        if !lifetime.is_empty() {
            return Some(words(lifetime.trim_end()));
        }
        // A projection is not told shorter than it is.
        if self.takes("<") {
            let mut out = format!("<{}>", self.until('>')?);
            while self.takes("::") {
                out = format!("{out}::{}", self.name()?);
            }
            return Some(Form::Other(vec![Piece::Word(out)]));
        }
        self.path()
    }

    fn piece(&mut self) -> Option<Piece<'a>> {
        self.ty().map(Piece::Type)
    }

    /// `'a ` or nothing.
    fn lifetime(&mut self) -> String {
        let name = if self.takes("'") { self.name() } else { None };
        name.map(|name| format!("'{name} ")).unwrap_or_default()
    }

    fn tuple(&mut self) -> Option<Form<'a>> {
        let mut parts = Vec::new();
        let mut comma = false;
        while !self.takes(")") {
            parts.push(self.ty()?);
            comma = self.takes(",");
            if !comma && !self.sees(&[')']) {
                return None;
            }
        }
        Some(Form::Tuple { parts, comma })
    }

    fn path(&mut self) -> Option<Form<'a>> {
        let mut name = self.name()?;
        loop {
            let before = self.text;
            // `Vec::<u8>` is written in expressions.
            if !self.takes("::") || self.sees(&['<']) {
                break;
            }
            match self.name() {
                Some(next) => name = next,
                None => {
                    self.text = before;
                    break;
                }
            }
        }
        if matches!(name, "fn" | "Fn" | "FnMut" | "FnOnce") && self.sees(&['(']) {
            let mut pieces = vec![word(name), self.piece()?];
            if self.takes("->") {
                pieces.extend([word(" -> "), self.piece()?]);
            }
            return Some(Form::Other(pieces));
        }
        let mut arguments = Vec::new();
        if self.takes("<") {
            while !self.takes(">") {
                arguments.push(self.argument()?);
                if !self.takes(",") && !self.sees(&['>']) {
                    return None;
                }
            }
        }
        Some(Form::Named { name, arguments })
    }

    /// One of the things between angle brackets: a type, a number, `Item = T`.
    fn argument(&mut self) -> Option<Type<'a>> {
        let text = self.text;
        let argument = self.marked(Self::assignment);
        if argument.is_some() && self.sees(&[',', '>']) {
            return argument;
        }
        // `S: Shape`: no argument, but the declaration of a parameter.
        if self.takes(":") && !self.takes(":") {
            return None;
        }
        // `for<'a> fn(&'a u8)` and the like: not read, and so told as it is.
        self.text = text;
        self.marked(|reader| {
            let text = reader.before(&[',', '>'])?;
            (!text.is_empty()).then(|| words(text))
        })
    }

    fn assignment(&mut self) -> Option<Form<'a>> {
        if self.takes("-") {
            let number = format!("-{}", self.name()?);
            return Some(Form::Other(vec![Piece::Word(number)]));
        }
        let ty = self.ty()?;
        if self.takes("=") {
            let pieces = vec![Piece::Type(ty), word(" = "), self.piece()?];
            return Some(Form::Other(pieces));
        }
        Some(ty.form)
    }

    /// What stands before the bracket that closes the one just taken, which is taken too.
    fn until(&mut self, close: char) -> Option<&'a str> {
        let inner = self.before(&[close])?;
        self.text = self.text.strip_prefix(close)?;
        Some(inner)
    }

    /// What stands before the first of `ends` that is in no bracket of its own.
    fn before(&mut self, ends: &[char]) -> Option<&'a str> {
        let mut open = 0;
        for (index, character) in self.text.char_indices() {
            match character {
                // The arrow of a function is no bracket.
                '>' if self.text[..index].ends_with('-') => {}
                _ if open == 0 && ends.contains(&character) => {
                    let (before, rest) = self.text.split_at(index);
                    self.text = rest;
                    return Some(before.trim());
                }
                '(' | '[' | '{' | '<' => open += 1,
                ')' | ']' | '}' | '>' => open = usize::checked_sub(open, 1)?,
                _ => {}
            }
        }
        None
    }
}

fn word<'a>(text: &str) -> Piece<'a> {
    Piece::Word(text.to_owned())
}

fn words<'a>(text: &str) -> Form<'a> {
    Form::Other(vec![word(text)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_known_as_they_were_written() {
        for (text, name, expected) in [
            (
                "a::X<A, fn(B) -> C, (D, E)>",
                "X",
                &["A", "fn(B) -> C", "(D, E)"][..],
            ),
            (
                "Tensor<_, {integer}, ...>",
                "Tensor",
                &["_", "{integer}", "..."],
            ),
            ("Axes2<-1,0 >", "Axes2", &["-1", "0"]),
            (
                "X<for<'a> fn(&'a u8, u8) -> u8, fn(u8) {name}, {closure@a.rs:1:2}>",
                "X",
                &[
                    "for<'a> fn(&'a u8, u8) -> u8",
                    "fn(u8) {name}",
                    "{closure@a.rs:1:2}",
                ],
            ),
            ("X<Item = a::B, 'a>", "X", &["Item = a::B", "'a"]),
            ("X", "X", &[]),
        ] {
            let ty = read(text).unwrap();
            let (found, arguments) = ty.named().unwrap();
            let arguments: Vec<_> = arguments.iter().map(|of| of.written).collect();
            assert_eq!((found, arguments.as_slice()), (name, expected), "{text}");
        }
        assert!(read("X<A").is_none() && read("X<A>>").is_none() && read("X<,>").is_none());
        assert!(read("X<A: B>").is_none() && read("X<'a: 'b>").is_none());
    }
}
