//! Makes every loop of a cell stoppable: `::cloze::interrupt::poll();` goes first into the body of
//! each `loop`, `while` and `for`, on the line of its brace, so that line numbers stay right.
//!
//! This works on rustc's tokens, without a grammar. Where it can't be sure it leaves a loop alone.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

pub const POLL: &str = " ::cloze::interrupt::poll();";

/// Macros whose arguments are text or patterns rather than code that runs.
const NOT_CODE: [&str; 4] = ["macro_rules", "stringify", "concat", "asm"];

/// A token that is neither a space nor a comment, and where it ends.
struct Token<'a> {
    kind: TokenKind,
    text: &'a str,
    end: usize,
}

/// Where polls go into `rust`, a cell without its lines for the session, in order.
pub fn polls(rust: &str) -> Vec<usize> {
    let tokens = significant(rust);
    let mut polls: Vec<usize> = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if is_not_code(&tokens[i..]) {
            // Over the `!` and a macro's own name, to the end of what it is given.
            let open = (i + 2..tokens.len().min(i + 4)).find(|&at| opens(&tokens[at]));
            i = open.map_or(i + 2, |open| closing(&tokens, open) + 1);
            continue;
        }
        let previous = i.checked_sub(1).map(|before| tokens[before].text);
        if let Some(body) = body(&tokens, i).filter(|_| !matches!(previous, Some("." | "::"))) {
            polls.push(tokens[body].end);
        }
        i += 1;
    }
    polls.sort_unstable();
    polls
}

fn significant(code: &str) -> Vec<Token<'_>> {
    let mut end = 0;
    tokenize(code, FrontmatterAllowed::No)
        .map(|token| {
            let start = end;
            end += token.len as usize;
            Token {
                kind: token.kind,
                text: &code[start..end],
                end,
            }
        })
        .filter(|token| {
            !matches!(
                token.kind,
                TokenKind::Whitespace
                    | TokenKind::LineComment { .. }
                    | TokenKind::BlockComment { .. }
            )
        })
        .collect()
}

fn is_not_code(tokens: &[Token<'_>]) -> bool {
    matches!(tokens, [name, bang, ..] if bang.text == "!" && NOT_CODE.contains(&name.text))
}

fn opens(token: &Token<'_>) -> bool {
    matches!(
        token.kind,
        TokenKind::OpenBrace | TokenKind::OpenParen | TokenKind::OpenBracket
    )
}

fn closes(token: &Token<'_>) -> bool {
    matches!(
        token.kind,
        TokenKind::CloseBrace | TokenKind::CloseParen | TokenKind::CloseBracket
    )
}

/// The token that closes the bracket at `open`; the last one where none does.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth += i32::from(opens(token)) - i32::from(closes(token));
        if depth == 0 {
            return at;
        }
    }
    tokens.len() - 1
}

/// The brace that opens the body of the loop whose keyword is at `keyword`.
fn body(tokens: &[Token<'_>], keyword: usize) -> Option<usize> {
    let first = keyword + 1;
    match tokens[keyword].text {
        "loop" => (tokens.get(first)?.kind == TokenKind::OpenBrace).then_some(first),
        "while" => after_header(tokens, first),
        "for" => {
            // `impl Trait for Type { … }` and `for<'a> Fn(&'a str)` have no `in`.
            let mut at = first;
            while tokens.get(at)?.text != "in" {
                let token = &tokens[at];
                let skipped = if opens(token) {
                    closing(tokens, at)
                } else {
                    at
                };
                let ends = token.kind == TokenKind::OpenBrace
                    && tokens.get(skipped + 1).is_none_or(|next| next.text != "in");
                if ends || closes(token) || matches!(token.text, ";" | "=") {
                    return None;
                }
                at = skipped + 1;
            }
            after_header(tokens, at + 1)
        }
        _ => None,
    }
}

/// The first brace from `at` that ends the header of a loop: one that can't be a block or a closure
/// inside its condition.
fn after_header(tokens: &[Token<'_>], mut at: usize) -> Option<usize> {
    let start = at;
    loop {
        let token = tokens.get(at)?;
        match token.kind {
            TokenKind::OpenBrace => {
                let before = &tokens[at - 1];
                // After an operator a value must follow: this brace opens a block expression. A
                // range without an end (`0..`) is the one operator that a body may follow.
                let value_expected = at == start
                    || matches!(
                        before.text,
                        "=" | "&" | "|" | "!" | "+" | "-" | "*" | "/" | "%"
                    )
                    || matches!(
                        before.text,
                        "<" | ">" | "^" | "," | "=>" | "unsafe" | "else"
                    );
                if !value_expected {
                    return Some(at);
                }
                at = closing(tokens, at) + 1;
            }
            TokenKind::OpenParen | TokenKind::OpenBracket => at = closing(tokens, at) + 1,
            // Their own braces come first; too rare to be worth a grammar.
            _ if matches!(token.text, "match" | "if" | "loop" | "while" | "for" | ";") => {
                return None;
            }
            // A pattern may have braces of its own; the value after it begins as a header does.
            _ if token.text == "let" => {
                while tokens.get(at)?.text != "=" || tokens[at - 1].text == "." {
                    at = 1 + if opens(&tokens[at]) {
                        closing(tokens, at)
                    } else {
                        at
                    };
                }
                at += 1;
            }
            _ if closes(token) => return None,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rewrite::without_commands;
    use super::*;

    /// `@` marks where a poll is to go.
    #[track_caller]
    fn check(marked: &str) {
        let mut code = without_commands(&marked.replace('@', ""));
        for place in polls(&code).into_iter().rev() {
            code.insert(place, '@');
        }
        assert_eq!(code, without_commands(marked));
    }

    #[test]
    fn every_kind_of_loop_is_found() {
        check("loop {@ n += 1; }");
        check("'outer: loop {@ while n < 3 {@ n += 1; }\n break 'outer; }");
        check("for i in 0..10 {@\n    println!(\"{i}\");\n}");
        check("for (i, x) in v.iter().enumerate() {@}");
        check("for Point { x, y } in points {@ sum += x * y; }");
        check("for &(a, ref b) in &pairs {@}");
        check("for i in 0.. {@ if i > 3 { break; } }");
        check("while let Some(x) = stack.pop() {@ f(x); }");
        check("while let Point { x, .. } = next() {@}");
        check("while let Some(1..=9) = next() && let P { y: 0..=3 } = { other() } {@}");
        check("fn f() -> u32 { let mut n = 0; loop {@ n += 1; if n > 3 { return n; } } }");
        check(
            "let v: Vec<u32> = (0..3).map(|x| { let mut y = x; while y > 1 {@ y /= 2; } y }).collect();",
        );
        check("for x in xs.iter().map(|x| { x + 1 }) {@}");
        check("for x in [1, 2, 3] {@ for y in { vec![x] } {@ f(y); } }");
        check("while { let x = f(); x > 3 } {@ g(); }");
        check("thread::spawn(move || loop {@ work(); });");
        check("while n /* how many { */ < 3 // and { so\n{@ n += 1; }");
    }

    #[test]
    fn what_only_looks_like_a_loop_is_left_alone() {
        check("impl Trait for Type { fn f(&self) {} }");
        check("impl<T> Trait for Vec<T> where T: for<'a> Fn(&'a str) { fn f(&self) { loop {@} } }");
        check("fn f(g: impl for<'a> Fn(&'a str) -> &'a str) {}");
        check("let text = \"for x in y { loop { } }\"; // while true {");
        check("let r = r#\"loop {\"#; let c = '{';");
        check("macro_rules! forever { ($b:block) => { loop { $b } } }");
        check("macro_rules! m { () => { for i in 0..3 {} } }\nloop {@ break; }");
        check("println!(\"{}\", stringify!(loop {}));");
        check("let raw = r#loop; let field = x.r#for;");
        check("while match x { Some(_) => true, None => false } { x = f(); }");
        check(":dep x = \"for y in z { loop {\nlet a = 1;");
        check("!echo don't for x in y {\nfor x in 0..3 {@}");
        check("let x = 3;");
        check("");
        check("for");
        check("for x in");
        check("while {");
        check("loop");
    }
}
