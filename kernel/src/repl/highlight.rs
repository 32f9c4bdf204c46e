//! Colours Rust code for a terminal, by the tokens of rustc's lexer.
//!
//! It uses only the sixteen colours that every terminal has and whose shades its user has chosen.

use std::ops::Range;

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

use crate::session::completeness::{self, Completeness};
use crate::session::{command_lines, syntax_error};

const KEYWORD: &str = "\x1b[35m";
const TYPE: &str = "\x1b[36m";
const TEXT: &str = "\x1b[32m";
const NUMBER: &str = "\x1b[33m";
const COMMENT: &str = "\x1b[90m";
const MACRO: &str = "\x1b[34m";
const COMMAND: &str = "\x1b[1;34m";
const WRONG: &str = "\x1b[4;31m";
const BRACKET: &str = "\x1b[1;4m";
const DIM: &str = "\x1b[2m";
const PROMPT: &str = "\x1b[1;32m";
const OFF: &str = "\x1b[0m";

const KEYWORDS: [&str; 42] = [
    "Self", "as", "async", "await", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "static", "struct",
    "super", "trait", "true", "type", "unsafe", "use", "where", "while",
];
const PRIMITIVES: [&str; 17] = [
    "bool", "char", "f32", "f64", "i128", "i16", "i32", "i64", "i8", "isize", "str", "u128", "u16",
    "u32", "u64", "u8", "usize",
];

/// A token's range, and its colour if it has one.
struct Piece {
    range: Range<usize>,
    style: Option<&'static str>,
    kind: TokenKind,
}

/// Returns `code` with colours; while it has a `cursor`, the pair of brackets there is highlighted, and so is
/// the first syntax error.
pub fn highlight(code: &str, cursor: Option<usize>) -> String {
    let pieces = pieces(code);
    let pair = cursor.and_then(|cursor| matching(&pieces, cursor));
    let open = matches!(completeness::judge(code), Completeness::Incomplete { .. });
    let wrong = cursor.filter(|_| !open).and_then(|_| syntax_error(code));
    let is_wrong = |piece: &Piece| wrong.as_ref().is_some_and(|it| piece.range.contains(&it.start));
    let mut out = String::with_capacity(code.len() * 2);
    for piece in pieces {
        let text = &code[piece.range.clone()];
        let bracket = pair.is_some_and(|(one, other)| [one, other].contains(&piece.range.start));
        let style = match (is_wrong(&piece), bracket) {
            (true, _) => Some(WRONG),
            (false, true) => Some(BRACKET),
            (false, false) => piece.style,
        };
        match style {
            Some(style) => {
                // Each line separately, because a line editor may repaint from the middle.
                let lines: Vec<String> =
                    text.split('\n').map(|line| format!("{style}{line}{OFF}")).collect();
                out += &lines.join("\n");
            }
            None => out += text,
        }
    }
    out
}

/// Formats a proposed text.
pub fn dim(text: &str) -> String {
    format!("{DIM}{text}{OFF}")
}

pub fn prompt(text: &str) -> String {
    format!("{PROMPT}{text}{OFF}")
}

fn pieces(code: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut position = 0;
    for (start, line) in command_lines(code) {
        rust(code, position..start, &mut pieces);
        position = start + line.len();
        pieces.push(Piece {
            range: start..position,
            style: Some(COMMAND),
            kind: TokenKind::Unknown,
        });
    }
    rust(code, position..code.len(), &mut pieces);
    pieces
}

/// Adds the tokens of a part of the code.
fn rust(code: &str, part: Range<usize>, pieces: &mut Vec<Piece>) {
    let mut position = part.start;
    for token in tokenize(&code[part], FrontmatterAllowed::No) {
        let range = position..position + token.len as usize;
        position = range.end;
        let text = &code[range.clone()];
        let macro_name = token.kind == TokenKind::Ident && is_macro_call(&code[position..]);
        let style = match token.kind {
            TokenKind::Ident if macro_name => Some(MACRO),
            TokenKind::Ident => of_name(text),
            kind => of_token(kind),
        };
        pieces.push(Piece { range, style, kind: token.kind });
    }
}

/// Recognises `name!`, but not `name != other`.
fn is_macro_call(after: &str) -> bool {
    after.starts_with('!') && !after.starts_with("!=")
}

fn of_token(kind: TokenKind) -> Option<&'static str> {
    match kind {
        TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => Some(COMMENT),
        TokenKind::Literal { kind, .. } => Some(match kind {
            LiteralKind::Int { .. } | LiteralKind::Float { .. } => NUMBER,
            _ => TEXT,
        }),
        TokenKind::Lifetime { .. } | TokenKind::RawLifetime => Some(NUMBER),
        _ => None,
    }
}

fn of_name(name: &str) -> Option<&'static str> {
    if KEYWORDS.contains(&name) {
        Some(KEYWORD)
    } else if PRIMITIVES.contains(&name) || is_type(name) {
        Some(TYPE)
    } else {
        None
    }
}

/// Recognises `Vec` and `T`, but not `CONSTANT`.
fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
        && (name.chars().count() == 1 || name.contains(char::is_lowercase))
}

/// Returns the positions of the bracket at or before the cursor and of its counterpart.
fn matching(pieces: &[Piece], cursor: usize) -> Option<(usize, usize)> {
    let touches = |piece: &Piece| piece.range.start == cursor || piece.range.end == cursor;
    // The one under the cursor first.
    let here = (0..pieces.len())
        .rev()
        .find(|&index| touches(&pieces[index]) && depth(pieces[index].kind) != 0)?;
    let opens = depth(pieces[here].kind) > 0;
    let mut open = 0;
    let mut counterpart = |index: &usize| {
        open += depth(pieces[*index].kind);
        open == 0
    };
    let other = match opens {
        true => (here..pieces.len()).find(|index| counterpart(index)),
        false => (0..=here).rev().find(|index| counterpart(index)),
    }?;
    Some((pieces[here].range.start, pieces[other].range.start))
}

fn depth(kind: TokenKind) -> i32 {
    match kind {
        TokenKind::OpenParen | TokenKind::OpenBracket | TokenKind::OpenBrace => 1,
        TokenKind::CloseParen | TokenKind::CloseBracket | TokenKind::CloseBrace => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styled(style: &str, text: &str) -> String {
        format!("{style}{text}{OFF}")
    }

    #[test]
    fn every_kind_of_token_has_its_colour() {
        for (code, style, text) in [
            ("let x = 1;", KEYWORD, "let"),
            ("let x = 1.5;", NUMBER, "1.5"),
            ("f(\"a\")", TEXT, "\"a\""),
            ("'c'", TEXT, "'c'"),
            ("x // why", COMMENT, "// why"),
            ("fn f<'a>() {}", NUMBER, "'a"),
            ("println!(x)", MACRO, "println"),
            ("Vec::new()", TYPE, "Vec"),
            ("x as f32", TYPE, "f32"),
            (":vars", COMMAND, ":vars"),
            ("!ls -l", COMMAND, "!ls -l"),
        ] {
            let out = highlight(code, None);
            assert!(out.contains(&styled(style, text)), "{code}: {out:?}");
        }
        assert_eq!(highlight("a != MAX", None), "a != MAX");
    }

    #[test]
    fn without_its_colours_the_text_is_what_it_was() {
        for code in [
            "",
            ":vars\n\n!ls\nlet s = \"one\n:two\n\"; // ü\nfn f() {\n    1\n}",
            "\"open\nstring",
            "/* open",
            "\n\n  x\n",
            "é😀 'b \\ # @",
            "r#\"raw",
        ] {
            for cursor in (0..=code.len()).map(Some).chain([None]) {
                let out = highlight(code, cursor);
                let plain = crate::session::without_colours(&out);
                assert_eq!(plain, code);
            }
        }
    }

    #[test]
    fn commands_do_not_follow_rust_code() {
        let out = highlight("let both =\n!a && !b;\n:c", None);
        assert!(!out.contains(COMMAND), "{out:?}");
    }

    #[test]
    fn a_string_of_several_lines_is_no_command_and_keeps_its_colour() {
        let out = highlight("\"one\n:two\"", None);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines, [styled(TEXT, "\"one"), styled(TEXT, ":two\"")]);
    }

    #[test]
    fn pairs_of_brackets_are_found() {
        let pair = |code, cursor| matching(&pieces(code), cursor);
        assert_eq!(pair("f(a[0])", 7), Some((6, 1)));
        assert_eq!(pair("f(a[0])", 1), Some((1, 6)));
        assert_eq!(pair("f(a[0])", 4), Some((3, 5)));
        assert_eq!(pair("f(\")\")", 1), Some((1, 5)));
        assert_eq!(pair("f(", 2), None);
        assert_eq!(pair("abc", 1), None);
    }
}
