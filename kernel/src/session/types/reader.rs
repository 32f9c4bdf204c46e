//! Parses a type. The text may be anything: if it is no type, the result is `None`, never a panic.

use super::UNKNOWN;

/// A type, or another argument of a type: a size, a lifetime, `Item = T`.
#[derive(Debug)]
pub struct Type<'a> {
    /// The text itself.
    pub written: &'a str,
    pub form: Form<'a>,
}

#[derive(Debug)]
pub enum Form<'a> {
    /// `path::Name<A, B>`, with only the last name of the path.
    Named { name: &'a str, arguments: Vec<Type<'a>> },
    /// `(A, B)`; the comma at the end distinguishes `(A,)` from `(A)`.
    Tuple { parts: Vec<Type<'a>>, comma: bool },
    /// `&'a mut T`: the text before `T`, and `T`.
    Reference(String, Box<Type<'a>>),
    /// Anything else: its words and types.
    Other(Vec<Piece<'a>>),
}

#[derive(Debug)]
pub enum Piece<'a> {
    Word(String),
    Type(Type<'a>),
}

impl<'a> Type<'a> {
    /// Returns the name and the arguments of a type that has a name.
    pub fn named(&self) -> Option<(&'a str, &[Type<'a>])> {
        match &self.form {
            Form::Named { name, arguments } => Some((name, arguments)),
            _ => None,
        }
    }
}

/// Parses the whole text as a type.
pub fn read(text: &str) -> Option<Type<'_>> {
    let (ty, rest) = read_first(text.trim())?;
    rest.is_empty().then_some(ty)
}

/// Parses the type at the beginning of the text, and returns the rest too.
pub fn read_first(text: &str) -> Option<(Type<'_>, &str)> {
    let mut reader = Reader { text, depth: 0 };
    let ty = reader.ty()?;
    Some((ty, reader.text))
}

pub fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The nesting limit, which prevents a stack overflow. No type that anybody reads is deeper.
const DEEPEST: usize = 40;

struct Reader<'a> {
    /// The rest of the text.
    text: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// Takes `token` if it comes next.
    fn takes(&mut self, token: &str) -> bool {
        let rest = self.text.trim_start().strip_prefix(token);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    /// Takes `word` if it comes next as a whole word.
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

    /// Parses a type by `form`, and adds the text that it took.
    fn marked(&mut self, form: impl FnOnce(&mut Self) -> Option<Form<'a>>) -> Option<Type<'a>> {
        let text = self.text.trim_start();
        self.depth += 1;
        let form = (self.depth <= DEEPEST).then(|| form(self)).flatten();
        self.depth -= 1;
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
            // rust-analyzer writes `{unknown}` for `_`.
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
        // Projections are not shortened.
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

    /// Parses an argument between angle brackets: a type, a number, `Item = T`.
    fn argument(&mut self) -> Option<Type<'a>> {
        let text = self.text;
        let argument = self.marked(Self::assignment);
        if argument.is_some() && self.sees(&[',', '>']) {
            return argument;
        }
        // `S: Shape` declares a parameter and is no argument.
        if self.takes(":") && !self.takes(":") {
            return None;
        }
        // `for<'a> fn(&'a u8)` and the like are not parsed and keep their text.
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

    /// Takes the text up to the bracket that closes the one just taken, and that bracket.
    fn until(&mut self, close: char) -> Option<&'a str> {
        let inner = self.before(&[close])?;
        self.text = self.text.strip_prefix(close)?;
        Some(inner)
    }

    /// Takes the text before the first of `ends` that is outside of brackets.
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
    fn arguments_keep_their_text() {
        for (text, expected) in [
            ("a::X<A, fn(B) -> C, (D, E)>", "X|A|fn(B) -> C|(D, E)"),
            ("Tensor<_, {integer}, ...>", "Tensor|_|{integer}|..."),
            ("Axes2<-1,0 >", "Axes2|-1|0"),
            (
                "X<for<'a> fn(&'a u8, u8) -> u8, fn(u8) {name}, {closure@a.rs:1:2}>",
                "X|for<'a> fn(&'a u8, u8) -> u8|fn(u8) {name}|{closure@a.rs:1:2}",
            ),
            ("X<Item = a::B, 'a>", "X|Item = a::B|'a"),
            ("X", "X"),
        ] {
            let ty = read(text).unwrap();
            let (name, arguments) = ty.named().unwrap();
            let mut parts = vec![name];
            parts.extend(arguments.iter().map(|argument| argument.written));
            assert_eq!(parts.join("|"), expected, "{text}");
        }
        assert!(read("X<A").is_none() && read("X<A>>").is_none() && read("X<,>").is_none());
        assert!(read("X<A: B>").is_none() && read("X<'a: 'b>").is_none());
    }
}
