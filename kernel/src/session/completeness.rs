//! Judges whether a text is a complete cell or needs another line: for the REPL on every Enter, and for
//! front ends with `is_complete_request`.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

use super::source::without_commands;

/// The answer, in the terms of the Jupyter protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    Complete,
    /// With the indentation of the next line.
    Incomplete {
        indent: String,
    },
    Invalid,
}

/// One step of indentation.
pub const INDENT: &str = "    ";

/// Judges `code`.
pub fn judge(code: &str) -> Completeness {
    let code = without_commands(code);
    let mut open = Vec::new();
    let mut last = None;
    let mut unterminated = false;
    let mut position = 0;
    for token in tokenize(&code, FrontmatterAllowed::No) {
        let text = &code[position..position + token.len as usize];
        position += token.len as usize;
        match token.kind {
            TokenKind::OpenParen => open.push(')'),
            TokenKind::OpenBracket => open.push(']'),
            TokenKind::OpenBrace => open.push('}'),
            TokenKind::CloseParen | TokenKind::CloseBracket | TokenKind::CloseBrace => {
                let expected = open.pop();
                if expected.is_none_or(|expected| !text.ends_with(expected)) {
                    return Completeness::Invalid;
                }
            }
            TokenKind::BlockComment { terminated: false, .. } => unterminated = true,
            TokenKind::Literal { kind, .. } => match closed(kind) {
                Some(true) => {}
                Some(false) => unterminated = true,
                None => return Completeness::Invalid,
            },
            TokenKind::Unknown => return Completeness::Invalid,
            _ => {}
        }
        if !matches!(
            token.kind,
            TokenKind::Whitespace | TokenKind::LineComment { .. } | TokenKind::BlockComment { .. }
        ) {
            last = Some((token.kind, text));
        }
    }
    if unterminated {
        return Completeness::Incomplete { indent: String::new() };
    }
    if !open.is_empty() || last.is_some_and(|(kind, text)| needs_more(kind, text, &code)) {
        return Completeness::Incomplete { indent: INDENT.repeat(open.len()) };
    }
    Completeness::Complete
}

/// Returns whether a literal is closed, or `None` if no further line can complete it.
fn closed(kind: LiteralKind) -> Option<bool> {
    match kind {
        LiteralKind::Str { terminated }
        | LiteralKind::ByteStr { terminated }
        | LiteralKind::CStr { terminated } => Some(terminated),
        LiteralKind::RawStr { n_hashes }
        | LiteralKind::RawByteStr { n_hashes }
        | LiteralKind::RawCStr { n_hashes } => Some(n_hashes.is_some()),
        LiteralKind::Char { terminated } | LiteralKind::Byte { terminated } => {
            terminated.then_some(true)
        }
        LiteralKind::Int { .. } | LiteralKind::Float { .. } => Some(true),
    }
}

/// Keywords with which Rust code cannot end.
const UNFINISHED: [&str; 27] = [
    "as", "async", "const", "dyn", "else", "enum", "fn", "for", "if", "impl", "in", "let", "loop",
    "match", "mod", "move", "mut", "pub", "ref", "static", "struct", "trait", "type", "unsafe",
    "use", "where", "while",
];

/// Returns whether Rust code cannot end with this token.
fn needs_more(kind: TokenKind, text: &str, code: &str) -> bool {
    match kind {
        TokenKind::Ident => UNFINISHED.contains(&text),
        // An attribute belongs to the next item.
        TokenKind::CloseBracket => code
            .trim_end()
            .lines()
            .next_back()
            .is_some_and(|line| line.trim_start().starts_with("#[")),
        // `1..` is an expression.
        _ => text.len() == 1 && ",.:=<-&|+*/^%".contains(text) && !code.trim_end().ends_with(".."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indent(depth: usize) -> Completeness {
        Completeness::Incomplete { indent: INDENT.repeat(depth) }
    }

    #[test]
    fn complete_cells_are_recognised() {
        for code in [
            "",
            "1 + 1",
            "let x = 1;",
            "fn f() {}\nf()",
            "for i in 0..3 { println!(\"{i}\"); }",
            "let s = \"}\"; // {",
            "let c = '{';",
            "let r = r#\"(\"#;",
            ":vars",
            ":dep x = { path = \"y\"",
            "!echo (\n// (\n:vars (\n1",
            "let both =\n    !a && !b;",
            "let x\n    : u8 = 1;",
            "let r = 1..",
            "fn f<'a>(x: &'a str) -> &'a str { x }",
            "[1, 2, 3]",
            "#[derive(Debug)] struct A;",
            "/* { */ 1",
        ] {
            assert_eq!(judge(code), Completeness::Complete, "{code}");
        }
    }

    #[test]
    fn open_code_needs_another_line_with_its_indentation() {
        for (code, depth) in [
            ("fn f() {", 1),
            ("fn f() { if true {", 2),
            ("vec![1,", 1),
            ("let x =", 0),
            ("let x = 1 +", 0),
            ("x.", 0),
            ("f(a,", 1),
            ("let s = \"abc", 0),
            ("let s = r#\"abc\"", 0),
            ("/* comment", 0),
            ("if true { 1 } else", 0),
            ("#[derive(Debug)]", 0),
            ("use std::", 0),
            ("let x = a ||", 0),
            ("f(\n!a,", 1),
        ] {
            assert_eq!(judge(code), indent(depth), "{code}");
        }
    }

    #[test]
    fn code_that_no_line_can_complete_is_invalid() {
        for code in ["}", "f(]"] {
            assert_eq!(judge(code), Completeness::Invalid, "{code}");
        }
    }
}
