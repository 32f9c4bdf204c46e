//! The signature of a function, with the types that rust-analyzer knows, such as the receiver's shape.

use std::collections::BTreeMap;
use std::fmt;

use cloze::display::Content;
use evcxr::CommandContext;
use ra_ap_syntax::ast::{self, HasGenericParams, HasName};
use ra_ap_syntax::{AstNode, Edition, SourceFile, SyntaxKind, T};

use super::completion::{self, Place};
use super::{source, types};

/// A function's signature in parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Signature {
    /// `fn name<T>`.
    name: String,
    /// Each with its type; a method's first one is `self`.
    parameters: Vec<String>,
    /// ` -> T`, or nothing.
    returns: String,
    /// Whether it has types that the declaration lacks.
    pub is_specific: bool,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}){}", self.name, self.parameters.join(", "), self.returns)
    }
}

/// Reads the signature in a documentation of rust-analyzer's: the declaration, the `impl` or trait above it,
/// and below it the known types (`S = (Const<2>,), E = f32`). Returns `None` if it is not a function's.
pub fn read(text: &str) -> Option<Signature> {
    let is_declaration = |line: &str| {
        let mut words = line.split(' ');
        let before = |word: &&str| {
            word.starts_with("pub")
                || word.starts_with('"')
                || matches!(*word, "const" | "async" | "unsafe" | "safe" | "extern" | "default")
        };
        words.find(|word| !before(word)) == Some("fn")
    };
    let mut start = 0;
    let line = text.split_inclusive('\n').find(|line| {
        start += line.len();
        is_declaration(line)
    })?;
    let (above, declared) = text.split_at(start - line.len());
    let parsed = SourceFile::parse(declared, Edition::CURRENT).tree();
    let function = parsed.syntax().children().find_map(ast::Fn::cast)?;
    let mut known = declared.lines().find_map(assignments).unwrap_or_default();
    if !known.contains_key("Self")
        && !known.is_empty()
        && let Some(of) = above.lines().rev().find_map(implementor)
    {
        let of = filled(&of, &known);
        known.insert("Self".to_owned(), of);
    }
    let shown = |node: &dyn ToString| {
        let words = node.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        types::short_tensors(&filled(&words, &known)).replace(", Global>", ">")
    };
    let list = function.param_list()?;
    let receiver = list.self_param().map(|it| match known.get("Self") {
        Some(of) if it.ty().is_none() => {
            let reference = match (it.amp_token(), it.mut_token()) {
                (None, _) => "",
                (Some(_), None) => "&",
                (Some(_), Some(_)) => "&mut ",
            };
            format!("self: {reference}{}", shown(of))
        }
        _ => shown(it.syntax()),
    });
    let generics = function.generic_param_list().map(|it| it.syntax().to_string());
    Some(Signature {
        name: format!("fn {}{}", function.name()?.text(), generics.unwrap_or_default()),
        parameters: receiver
            .into_iter()
            .chain(list.params().map(|it| shown(it.syntax())))
            .collect(),
        returns: function
            .ret_type()
            .map(|it| format!(" {}", shown(it.syntax())))
            .unwrap_or_default(),
        is_specific: !known.is_empty(),
    })
}

/// Reads `S = (Const<2>,), E = f32`.
fn assignments(line: &str) -> Option<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut rest = line;
    loop {
        let (name, after) = rest.split_once(" = ")?;
        if name.is_empty() || !name.chars().all(types::is_name) {
            return None;
        }
        let (ty, after) = types::read_first(after)?;
        all.insert(name.to_owned(), ty.written.to_owned());
        match after.strip_prefix(", ") {
            Some(more) => rest = more,
            None => return after.is_empty().then_some(all),
        }
    }
}

/// Returns the type in `impl<…> Type<…>` or `impl<…> Trait for Type<…>`.
fn implementor(line: &str) -> Option<String> {
    if !line.starts_with("impl") {
        return None;
    }
    let parsed = SourceFile::parse(&format!("{line} {{}}"), Edition::CURRENT).tree();
    let item = parsed.syntax().children().find_map(ast::Impl::cast)?;
    Some(item.self_ty()?.syntax().text().to_string())
}

/// Replaces the names of known types in `text`, but not where a path begins, as in `Self::Output`.
fn filled(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(types::is_name) {
        let end =
            rest[start..].find(|next| !types::is_name(next)).map_or(rest.len(), |at| start + at);
        let (before, word) = (&rest[..start], &rest[start..end]);
        out += before;
        rest = &rest[end..];
        let known = known.get(word).filter(|_| !rest.starts_with("::") && !out.ends_with("::"));
        out += known.map_or(word, String::as_str);
    }
    out + rest
}

/// The call whose arguments are typed at the end of the code.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    /// Where the expression of the call begins, and where the function's name ends.
    start: usize,
    name_end: usize,
    is_method: bool,
    /// Those that are typed so far.
    arguments: Vec<String>,
    /// The number of the current one, from 0.
    current: usize,
}

impl Call {
    fn before(code: &str) -> Option<Self> {
        let rust = source::without_commands(code);
        // Inside a macro's brackets there are only tokens. Without its `!` it reads as a call.
        let mut calls = rust.clone();
        for group in source::tokens(&rust).windows(3) {
            if let [name, bang, open] = group
                && name.kind() == SyntaxKind::IDENT
                && bang.kind() == T![!]
                && matches!(open.kind(), T!['('] | T!['['])
            {
                calls.replace_range(source::range(bang.text_range()), " ");
            }
        }
        let last = source::tokens(&calls).into_iter().rfind(|token| !token.kind().is_trivia())?;
        let list = last
            .parent_ancestors()
            .take_while(|node| node.kind() != SyntaxKind::STMT_LIST)
            .filter_map(ast::ArgList::cast)
            .find(|list| list.r_paren_token().is_none())?;
        let call = list.syntax().parent()?;
        let method = ast::MethodCallExpr::cast(call.clone());
        let name = match &method {
            Some(method) => method.name_ref()?.syntax().text_range(),
            None => ast::CallExpr::cast(call.clone())?.expr()?.syntax().text_range(),
        };
        let name_end = source::range(name).end;
        let children = list.syntax().children_with_tokens();
        (!rust[name_end..].starts_with('!')).then(|| Self {
            start: source::range(call.text_range()).start,
            name_end,
            is_method: method.is_some(),
            current: children.filter(|child| child.kind() == T![,]).count(),
            arguments: list
                .args()
                .map(|it| rust[source::range(it.syntax().text_range())].to_owned())
                .collect(),
        })
    }
}

/// Returns the signature of the function whose arguments are typed at the end of the code, with the current
/// parameter marked and the types of the arguments.
pub fn of_call(context: &mut CommandContext, code: &str) -> Option<Content> {
    let call = Call::before(code)?;
    let named = code.get(..call.name_end)?;
    let place = Place::before(&code[..call.start]);
    let alone = format!("{}\n{}(", place.statements, &code[call.start..call.name_end]);
    let found = completion::hover(context, &format!("{named}("));
    let (text, html) = found.or_else(|| completion::hover(context, &alone))?;
    let Some(signature) = read(&text) else {
        return Some(Content::html(html).with_text(text));
    };
    let types = completion::types_of(context, place.statements, &call.arguments);
    let mut title = marked(&signature, call.current + usize::from(call.is_method));
    for (argument, ty) in call.arguments.iter().zip(types.into_iter().flatten()) {
        // The type of a number alone says nothing.
        let is_plain = argument.chars().count() <= LONGEST
            && !argument.contains('\n')
            && !argument.starts_with(|first: char| first.is_ascii_digit());
        if is_plain && !ty.contains(types::UNKNOWN) {
            title += &format!("\n{argument}: {ty}");
        }
    }
    Some(completion::titled(&title, &text, &html))
}

/// Arguments of at most this many characters are repeated with their types.
const LONGEST: usize = 40;

/// Returns the signature with marks below one of the parameters.
fn marked(signature: &Signature, current: usize) -> String {
    let shown = signature.to_string();
    let Some(parameter) = signature.parameters.get(current) else {
        return shown;
    };
    let width = |text: &str| text.chars().count();
    let before: usize = signature.parameters[..current].iter().map(|it| width(it) + 2).sum();
    let before = " ".repeat(width(&signature.name) + 1 + before);
    format!("{shown}\n{before}{}", "^".repeat(width(parameter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_s_shape_stands_in_the_signature() {
        for (text, expected) in [
            (
                "dfdx::tensor_ops::matmul::TryMatMul\n\npub trait TryMatMul<Rhs>\n\
                 pub fn matmul(self, rhs: Rhs) -> Self::Output\nwhere\n    // Bounds from trait:\n    \
                 Self: HasErr,\n\n\nSelf = Tensor<(Const<4>, Const<8>), f32, Cpu>",
                "fn matmul(self: (4, 8) f32 cpu, rhs: Rhs) -> Self::Output",
            ),
            (
                "a\n\nimpl<S, E, D, T> Tensor<S, E, D, T>\npub fn sqrt(self) -> Self\nwhere\n    S: Shape,\n\n\n\
                 S = (Const<4>, Const<8>), E = f32, D = Cpu, T = NoneTape\n\n\nSee sqrt",
                "fn sqrt(self: (4, 8) f32 cpu) -> (4, 8) f32 cpu",
            ),
            (
                "alloc::vec::Vec\n\nimpl<T, A> Vec<T, A>\npub fn push(&mut self, value: T)\nwhere\n    \
                 A: Allocator,\n\n\nT = u8, A = Global\n\n\nAppends",
                "fn push(self: &mut Vec<u8>, value: u8)",
            ),
            (
                "ctx\n\nfn foo(\n    a: usize,\n    b: &str\n) -> String",
                "fn foo(a: usize, b: &str) -> String",
            ),
            (
                "a\n\nimpl<T> A for B<T>\nunsafe extern \"C\" fn get<I>(&self, i: I) -> Option<T>",
                "fn get<I>(&self, i: I) -> Option<T>",
            ),
        ] {
            assert_eq!(read(text).unwrap().to_string(), expected);
        }
        for text in ["", "fn", "let f: fn(u8)", "pub struct A", "fn f", "fn f(", "fn (", "fn é("] {
            // Must not panic.
            let _ = read(text);
        }
    }

    #[test]
    fn the_call_around_the_cursor_is_found() {
        let call = |code: &str| {
            let call = Call::before(code)?;
            let named = &code[call.start..call.name_end];
            Some(format!("{named} {} {}", call.current, call.arguments.join("|")))
        };
        for (code, expected) in [
            ("q.matmul(", "q.matmul 0 "),
            ("foo(1, ", "foo 1 1"),
            ("let a = 1; x.y(a).z(b, f(2), c", "x.y(a).z 2 b|f(2)|c"),
            ("println!(\"{}\", q.matmul(k, ", "q.matmul 1 k"),
            ("Vec::<(u8, u8)>::from(", "Vec::<(u8, u8)>::from 0 "),
            ("x.fold::<A, B>(0, |a, b| a + b, ", "x.fold 2 0||a, b| a + b"),
            (":vars\ngröße(é, ", "größe 1 é"),
            ("fn f() { g(1, ", "g 1 1"),
        ] {
            assert_eq!(call(code).as_deref(), Some(expected), "{code}");
        }
        for code in
            ["", "f(1)", "println!(", "vec![1, ", "x.map(|a| { let b = 1; ", "(1, ", "fn f("]
        {
            assert_eq!(call(code), None, "{code}");
        }
    }

    #[test]
    fn the_current_parameter_is_marked() {
        let signature = read("fn foo(a: usize, b: &str) -> String").unwrap();
        assert_eq!(
            marked(&signature, 1),
            "fn foo(a: usize, b: &str) -> String\n                 ^^^^^^^"
        );
        assert_eq!(marked(&signature, 2), signature.to_string());
    }
}
