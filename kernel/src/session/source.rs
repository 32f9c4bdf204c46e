//! The text of a cell: its lines for the session, and its statements.

use std::collections::HashSet;
use std::ops::Range;

use ra_ap_syntax::ast::{self, HasName};
use ra_ap_syntax::{
    AstNode, Edition, NodeOrToken, Parse, SourceFile, SyntaxKind, SyntaxNode, SyntaxToken,
    TextRange,
};

/// Returns the lines for the session itself (`:dep`, `!ls`), which come before all Rust code, and where
/// each begins. evcxr finds them in the same way, except that `!(` is Rust here.
pub fn command_lines(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut begin = 0;
    let lines = code.split_inclusive('\n').map(move |line| {
        let start = begin;
        begin += line.len();
        (start, line.trim_end_matches(['\n', '\r']))
    });
    let before_rust = lines.take_while(|(_, line)| {
        is_command(line) || line.trim().is_empty() || line.starts_with("//")
    });
    before_rust.filter(|(_, line)| is_command(line))
}

fn is_command(line: &str) -> bool {
    is_for_shell(line) || line.trim_start_matches(' ').starts_with(':')
}

/// Returns whether a line is a shell command.
pub fn is_for_shell(line: &str) -> bool {
    line.starts_with('!') && !line.starts_with("!(")
}

/// Replaces the lines for the session itself by spaces, so that positions in the Rust code stay the same.
pub fn without_commands(code: &str) -> String {
    blanked(code, command_lines(code))
}

/// Replaces these lines of `code` by spaces.
pub fn blanked<'a>(code: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> String {
    let mut out = String::with_capacity(code.len());
    for (start, line) in lines {
        out += &code[out.len()..start];
        out += &" ".repeat(line.len());
    }
    let rest = code.get(out.len()..).unwrap_or_default();
    out + rest
}

const PRELUDE: &str = "fn f(){";

/// Parses a cell as the body of a function.
fn parse(rust: &str) -> Parse<SourceFile> {
    SourceFile::parse(&format!("{PRELUDE}{rust}\n}}"), Edition::CURRENT)
}

/// Parses the statements and items of a cell. Returns none if the cell has a syntax error.
pub fn statements(rust: &str) -> Vec<SyntaxNode> {
    let parsed = parse(rust);
    if !parsed.errors().is_empty() {
        return Vec::new();
    }
    let function = parsed.tree().syntax().children().find_map(ast::Fn::cast);
    let list = function.and_then(|function| function.body()?.stmt_list());
    list.map(|list| list.syntax().children().collect()).unwrap_or_default()
}

/// Returns the cell's last expression, if it ends in one.
pub fn value(rust: &str) -> Option<SyntaxNode> {
    statements(rust).pop().filter(|node| ast::Expr::can_cast(node.kind()))
}

/// Returns the tokens of a cell, which need not be complete.
pub fn tokens(rust: &str) -> Vec<SyntaxToken> {
    let tree = parse(rust).tree();
    let tokens = tree.syntax().descendants_with_tokens().filter_map(NodeOrToken::into_token);
    let end = PRELUDE.len() + rust.len();
    let of_cell = PRELUDE.len()..=end;
    tokens
        .filter(|token| {
            of_cell.contains(&token.text_range().start().into())
                && usize::from(token.text_range().end()) <= end
        })
        .collect()
}

/// Returns the names in a cell; those of members begin with a dot.
pub fn names(rust: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut before = None;
    for token in tokens(rust).into_iter().filter(|token| !token.kind().is_trivia()) {
        if token.kind() == SyntaxKind::IDENT {
            let dot = if before == Some(SyntaxKind::DOT) { "." } else { "" };
            names.insert(format!("{dot}{}", token.text()));
        }
        before = Some(token.kind());
    }
    names
}

/// Returns the line, from 1, of a `return` that belongs to no function or closure of the cell. It would
/// leave evcxr's function around the cell before the variables are stored, and the next cell would abort
/// because they are missing.
pub fn stray_return(code: &str) -> Option<usize> {
    let rust = without_commands(code);
    let mut nodes = statements(&rust).into_iter().flat_map(|node| node.descendants());
    let stray = nodes.find(|node| {
        node.kind() == SyntaxKind::RETURN_EXPR
            && !node.ancestors().skip(1).any(|node| takes_return(&node))
    })?;
    Some(rust[..place(&stray).start].matches('\n').count() + 1)
}

/// Returns whether a `return` inside this node returns from it: a function (except the one that
/// [`statements`] adds), a closure, an async block.
fn takes_return(node: &SyntaxNode) -> bool {
    match node.kind() {
        SyntaxKind::FN => node.text_range().start() != 0.into(),
        SyntaxKind::CLOSURE_EXPR => true,
        SyntaxKind::BLOCK_EXPR => node.first_token().is_some_and(|word| word.text() == "async"),
        _ => false,
    }
}

/// Returns the bracket with which the cell's code begins, if it closes one. evcxr takes a cell that is
/// nothing else for an empty one.
pub fn stray_closer(code: &str) -> Option<char> {
    without_commands(code).trim_start().chars().next().filter(|first| "})]".contains(*first))
}

/// Returns the names that a cell's own `let` statements bind, not those in its blocks and functions.
pub fn let_names(code: &str) -> Vec<String> {
    let statements = statements(&without_commands(code)).into_iter();
    let patterns = statements.filter_map(ast::LetStmt::cast).filter_map(|it| it.pat());
    let names = patterns
        .flat_map(|it| it.syntax().descendants().collect::<Vec<_>>())
        .filter_map(ast::IdentPat::cast)
        .filter_map(|it| it.name());
    names.map(|name| name.text().to_string()).collect()
}

/// Returns the place of the first syntax error in a cell, unless it may go when the user types on.
pub fn syntax_error(code: &str) -> Option<Range<usize>> {
    let rust = without_commands(code);
    let parsed = parse(&rust);
    let errors = parsed.errors();
    let first = errors.iter().map(|error| usize::from(error.range().start())).min()?;
    let first = first.checked_sub(PRELUDE.len())?;
    // The parser names the end of the token before.
    let start = first + rust.get(first..)?.find(|next: char| !next.is_whitespace())?;
    let is_word = |next: char| next.is_alphanumeric() || next == '_';
    let word = rust[start..].find(|next| !is_word(next)).unwrap_or(rust.len() - start);
    let end = start + word.max(rust[start..].chars().next()?.len_utf8());
    // The last token may still grow: `x a` becomes `x as f32`.
    (end < code.len()).then_some(start..end)
}

const OF_RESULT: &str = r#"main().map_err(|error| format!("{error:?}"))?;"#;

/// Returns the statement that runs a program: a text of items only, with a function `main`.
pub fn call_of_main(code: &str) -> Option<&'static str> {
    let items = statements(&without_commands(code)).into_iter().map(ast::Item::cast);
    let items = items.collect::<Option<Vec<_>>>()?;
    let main = items.into_iter().find_map(|item| match item {
        ast::Item::Fn(function) => Some(function).filter(|it| {
            let alone = it.param_list().is_none_or(|list| list.params().next().is_none());
            alone && it.name().is_some_and(|name| name.text() == "main")
        }),
        _ => None,
    })?;
    let returns = main.ret_type().map(|it| it.syntax().text().to_string());
    Some(match returns {
        // Rust reports such an error by its `Debug` text too.
        Some(kind) if kind.contains("Result") => OF_RESULT,
        _ => "main();",
    })
}

/// Returns the byte ranges of the functions in a cell.
pub fn functions(code: &str) -> Vec<Range<usize>> {
    let items = statements(&without_commands(code));
    let nodes = items.iter().flat_map(SyntaxNode::descendants);
    let functions = nodes.filter(|node| node.kind() == SyntaxKind::FN);
    functions.map(|function| place(&function)).collect()
}

/// Returns the byte range of a node of [`statements`] in the cell.
pub fn place(node: &SyntaxNode) -> Range<usize> {
    range(node.text_range())
}

/// Returns the byte range in the cell of a range in [`tokens`].
pub fn range(range: TextRange) -> Range<usize> {
    let place = |offset| usize::from(offset).saturating_sub(PRELUDE.len());
    place(range.start())..place(range.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_is_found_while_the_user_types_but_not_at_the_end() {
        let wrong = |code: &str| syntax_error(code).map(|place| code[place].to_owned());
        assert_eq!(wrong("let x 5 = 3;").as_deref(), Some("5"));
        assert_eq!(wrong(":vars\nlet = 3;").as_deref(), Some("="));
        assert_eq!(wrong("f(1 2);").as_deref(), Some("2"));
        for code in
            ["", "let x", "let x =", "x a", "f(a,", "fn f() {", "let x = 1", "1 + 1", "x.", ":vars"]
        {
            assert_eq!(wrong(code), None, "{code}");
        }
    }

    #[test]
    fn a_program_has_a_main_and_no_statements_of_its_own() {
        for (code, call) in [
            ("fn main() { a(); }\nfn a() {}", Some("main();")),
            ("use a::b;\nfn main() -> Result<(), E> { Ok(()) }", Some(OF_RESULT)),
            (":dep a = \"1\"\nfn main() -> LessonResult { Ok(()) }", Some(OF_RESULT)),
            ("fn main() {}\nmain();", None),
            ("fn main() {}\nlet a = 1;", None),
            ("fn main(a: u8) {}", None),
            ("fn f() {}", None),
            ("fn main() {", None),
            ("", None),
        ] {
            assert_eq!(call_of_main(code), call, "{code}");
        }
    }

    #[test]
    fn a_cell_that_begins_with_a_closing_bracket_is_noticed() {
        assert_eq!(stray_closer(":vars\n  } let a = 1;"), Some('}'));
        assert_eq!(stray_closer("{ }"), None);
        assert_eq!(stray_closer(""), None);
    }

    #[test]
    fn the_names_of_a_cell_are_those_of_its_own_statements() {
        let names = |code| let_names(code).join(" ");
        assert_eq!(
            names("let a = 1; let (mut b, [c, ..]): (u8, T) = f(); { let d = 1; }"),
            "a b c"
        );
        assert_eq!(names(":dep x = \"1\"\nlet P { x, y: z } = p; fn f() { let e = 1; }"), "x z");
        assert_eq!(names("let a = ;"), "");
    }

    #[test]
    fn lines_for_the_session_come_before_all_rust() {
        for (code, rust) in [
            (":vars\n!ls\r\n// why\n\n  :dep é\nf()", "     \n   \r\n// why\n\n         \nf()"),
            ("let both =\n    !a && !b;", "let both =\n    !a && !b;"),
            ("let x\n    : u8 = 1;\n:vars\n!ls", "let x\n    : u8 = 1;\n:vars\n!ls"),
            ("/* a */\n!ls", "/* a */\n!ls"),
            ("  !ls", "  !ls"),
            ("!(a || b)\n:vars", "!(a || b)\n:vars"),
            (":vars", "     "),
            ("", ""),
        ] {
            assert_eq!(without_commands(code), rust);
        }
    }

    #[test]
    fn names_are_found_in_incomplete_code_and_in_macros() {
        let mut found: Vec<_> =
            names("let a = b.c(1); println!(\"{}\", d.e(").into_iter().collect();
        found.sort();
        assert_eq!(found, [".c", ".e", "a", "b", "d", "println"]);
        assert!(names("").is_empty());
    }

    #[test]
    fn functions_are_found() {
        let code = ":vars\nfn a() {\n}\nlet b = || 1;\nimpl C { fn d() {} }";
        let found: Vec<_> = functions(code).into_iter().map(|at| &code[at]).collect();
        assert_eq!(found, ["fn a() {\n}", "fn d() {}"]);
        assert!(functions("fn a( {").is_empty());
    }

    #[test]
    fn a_return_outside_functions_is_stray() {
        assert_eq!(stray_return("let a = 1;\nreturn a"), Some(2));
        assert_eq!(stray_return(":vars\nlet a = 1;\nreturn a"), Some(3));
        assert_eq!(stray_return("for i in 0..3 {\n  if i > 1 { return; }\n}"), Some(2));
        for code in [
            "fn f() -> u8 { return 1; }",
            "let f = |x: u8| { if x > 1 { return 2; } x };",
            "(|| { return 1; })()",
            "impl A { fn f() { return; } }",
            "let later = async { return 1; };",
            "\"return\" // return",
            "a",
            "return (",
        ] {
            assert_eq!(stray_return(code), None, "{code}");
        }
    }
}
