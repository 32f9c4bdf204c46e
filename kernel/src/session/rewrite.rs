//! What the session puts into a cell before it is compiled: polls into its loops, so that they can
//! be stopped, and a call around its last expression, which shows the value.
//!
//! evcxr would find out how to show a value by compiling a guess, and the cell a second time where
//! the guess was wrong, as it is for every number and string; the call put in here is right for
//! every type that has a view or a `Debug` text, at once. Nothing is put in that has a line end, so
//! that line numbers stay right. Where the compiler refuses the result (a poll is not `const`, a
//! type has no `Debug`), the session compiles the cell as it was written.

use ra_ap_syntax::{AstNode, Edition, SourceFile, SyntaxKind, SyntaxNode, ast};

use super::loops;

const VALUE_BEGIN: &str = "{ use ::cloze::view::show::{ShowDebug as _, ShowView as _}; \
                           (&::cloze::view::show::Shown(&(";
const VALUE_END: &str = "))).value() };";

/// evcxr's name of the method by which a value displays itself.
pub const OWN_DISPLAY: &str = "evcxr_display";
/// These go around a value that may have it, so that the session knows its display by the records
/// before and after. A line that begins with a colon would be a command of evcxr's.
const OWN_BEGIN: &str = "(::cloze::view::show::own(&(";
const OWN_END: &str = " )))";

/// The cell with everything put in; `None` where it stays as it is. `own_displays` says whether the
/// value of the last expression may display itself: then evcxr finds out.
pub fn rewrite(code: &str, own_displays: bool) -> Option<String> {
    let rust = without_commands(code);
    let mut insertions: Vec<(usize, &str)> = loops::polls(&rust)
        .into_iter()
        .map(|place| (place, loops::POLL))
        .collect();
    let around = match own_displays {
        true => [OWN_BEGIN, OWN_END],
        false => [VALUE_BEGIN, VALUE_END],
    };
    insertions.extend(around_value(&rust, around));
    if code.contains(OWN_DISPLAY) {
        insertions.extend(around_receivers(&rust));
    }
    if insertions.is_empty() {
        return None;
    }
    insertions.sort_by_key(|(place, _)| *place);
    let mut rewritten = String::with_capacity(code.len() + 256);
    let mut done = 0;
    for (place, text) in insertions {
        rewritten += &code[done..place];
        rewritten += text;
        done = place;
    }
    Some(rewritten + &code[done..])
}

/// The lines for the session itself (`:dep`, `!ls`), which stand before all Rust: where each begins
/// and what it says. evcxr looks for them in the same way, but for `!(`, which is Rust here.
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

/// Whether a line is for the shell.
pub fn is_for_shell(line: &str) -> bool {
    line.starts_with('!') && !line.starts_with("!(")
}

/// Lines for the session itself are not Rust: spaces, so that places stay.
pub fn without_commands(code: &str) -> String {
    blanked(code, command_lines(code))
}

/// `code` with spaces where these lines of it stand.
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

/// The statements and items of a cell; none where it does not parse.
pub fn statements(rust: &str) -> Vec<SyntaxNode> {
    let parsed = SourceFile::parse(&format!("{PRELUDE}{rust}\n}}"), Edition::CURRENT);
    if !parsed.errors().is_empty() {
        return Vec::new();
    }
    let function = parsed.tree().syntax().children().find_map(ast::Fn::cast);
    function
        .and_then(|function| function.body())
        .and_then(|body| body.stmt_list())
        .map(|list| list.syntax().children().collect())
        .unwrap_or_default()
}

/// The line, from 1, of a `return` that belongs to no function or closure of the cell. It would
/// leave evcxr's function around the cell before the variables are stored, and the next cell would
/// abort because they are missing.
pub fn stray_return(code: &str) -> Option<usize> {
    let rust = without_commands(code);
    let own = |kind| {
        matches!(
            kind,
            SyntaxKind::FN | SyntaxKind::CLOSURE_EXPR | SyntaxKind::MACRO_RULES
        )
    };
    let returns = statements(&rust).into_iter().find_map(|statement| {
        let mut nodes = statement.descendants();
        nodes.find(|node| {
            let mut around = node.ancestors().take_while(|around| *around != statement);
            // An async block is left by its own `return`.
            let leaves = |block: &SyntaxNode| {
                own(block.kind())
                    || block
                        .first_token()
                        .is_some_and(|word| word.text() == "async")
            };
            node.kind() == SyntaxKind::RETURN_EXPR
                && !ast::Item::can_cast(statement.kind())
                && !own(statement.kind())
                && !around.any(|around| leaves(&around))
        })
    })?;
    Some(rust[..place(&returns).start].matches('\n').count() + 1)
}

/// Where the functions of a cell stand in it, in bytes.
pub fn functions(code: &str) -> Vec<std::ops::Range<usize>> {
    let items = statements(&without_commands(code));
    let nodes = items.iter().flat_map(SyntaxNode::descendants);
    let functions = nodes.filter(|node| node.kind() == SyntaxKind::FN);
    functions.map(|function| place(&function)).collect()
}

/// Where a node of [`statements`] stands in the cell, in bytes.
fn place(node: &SyntaxNode) -> std::ops::Range<usize> {
    let range = node.text_range();
    let place = |offset| usize::from(offset) - PRELUDE.len();
    place(range.start())..place(range.end())
}

/// What goes around the values on which the cell itself calls [`OWN_DISPLAY`].
fn around_receivers(rust: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let nodes = statements(rust).into_iter();
    let calls = nodes.flat_map(|statement| {
        statement
            .descendants()
            .filter_map(ast::MethodCallExpr::cast)
    });
    let own = calls.filter(|call| {
        call.name_ref()
            .is_some_and(|name| name.text() == OWN_DISPLAY)
    });
    own.filter_map(|call| call.receiver()).flat_map(|value| {
        let at = place(value.syntax());
        [(at.start, OWN_BEGIN), (at.end, OWN_END)]
    })
}

/// What goes before and after the cell's last expression, where it ends in one: `around`, if it has
/// a value.
fn around_value(rust: &str, [before, after]: [&'static str; 2]) -> Vec<(usize, &'static str)> {
    let last = statements(rust).pop();
    let Some(node) = last.filter(|node| ast::Expr::can_cast(node.kind())) else {
        return Vec::new();
    };
    let at = place(&node);
    match node.kind() {
        // These have no value.
        SyntaxKind::FOR_EXPR | SyntaxKind::WHILE_EXPR => vec![(at.end, ";")],
        // An attribute of an expression can't stand inside of brackets.
        _ if rust[at.start..].starts_with('#') => Vec::new(),
        _ => vec![(at.start, before), (at.end, after)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `«` and `»` stand for what goes around a value, `‹` and `›` around one that may display
    /// itself, `@` for a poll.
    #[track_caller]
    fn check(marked: &str, code: &str) {
        let marks = |text: &str| {
            text.replace(VALUE_BEGIN, "«")
                .replace(VALUE_END, "»")
                .replace(OWN_BEGIN, "‹")
                .replace(OWN_END, "›")
                .replace(loops::POLL, "@")
        };
        let got = rewrite(code, code.contains(OWN_DISPLAY));
        assert_eq!(got.is_none(), marked == code, "{code}");
        let got = got.unwrap_or_else(|| code.to_owned());
        assert_eq!(marks(&got), marked);
        assert_eq!(got.lines().count(), code.lines().count());
    }

    #[test]
    fn the_last_expression_is_shown() {
        check("«1 + 1»", "1 + 1");
        check("let a = 1;\n«a» // größe", "let a = 1;\na // größe");
        check("«if a { 1 } else { 2 }»", "if a { 1 } else { 2 }");
        check("«loop {@ break 3; }»", "loop { break 3; }");
        check(":vars\n«a»", ":vars\na");
        check("«vec![1, 2]»\n", "vec![1, 2]\n");
        check("fn f() {}\n«f()»", "fn f() {}\nf()");
    }

    #[test]
    fn lines_for_the_session_stand_before_all_rust() {
        for (code, rust) in [
            (
                ":vars\n!ls\r\n// why\n\n  :dep é\nf()",
                "     \n   \r\n// why\n\n         \nf()",
            ),
            ("let both =\n    !a && !b;", "let both =\n    !a && !b;"),
            (
                "let x\n    : u8 = 1;\n:vars\n!ls",
                "let x\n    : u8 = 1;\n:vars\n!ls",
            ),
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
    fn functions_are_found_where_they_stand() {
        let code = ":vars\nfn a() {\n}\nlet b = || 1;\nimpl C { fn d() {} }";
        let found: Vec<_> = functions(code).into_iter().map(|at| &code[at]).collect();
        assert_eq!(found, ["fn a() {\n}", "fn d() {}"]);
        assert!(functions("fn a( {").is_empty());
    }

    #[test]
    fn a_return_is_stray_where_no_function_is_left() {
        assert_eq!(stray_return("let a = 1;\nreturn a"), Some(2));
        assert_eq!(stray_return(":vars\nlet a = 1;\nreturn a"), Some(3));
        assert_eq!(
            stray_return("for i in 0..3 {\n  if i > 1 { return; }\n}"),
            Some(2)
        );
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

    #[test]
    fn a_trailing_loop_has_no_value() {
        check("for i in 0..3 {@};", "for i in 0..3 {}");
        check("while a {@ b(); };", "while a { b(); }");
    }

    #[test]
    fn what_has_no_last_expression_is_left_alone() {
        for code in [
            "let a = 1;",
            "a;",
            "fn f() {}",
            "use a::b;",
            "1 +",
            "}",
            "",
            ":vars",
            "struct A;",
            "#[allow(unused)] a",
            "let a = \"",
        ] {
            check(code, code);
        }
    }

    #[test]
    fn what_displays_itself_is_marked() {
        let definition = "impl A { fn evcxr_display(&self) {} }";
        check(definition, definition);
        check(&format!("{definition}\n‹A›"), &format!("{definition}\nA"));
        check("‹a›.evcxr_display();", "a.evcxr_display();");
        check(
            "for a in &all {@ ‹a›.evcxr_display() };",
            "for a in &all { a.evcxr_display() }",
        );
        check("‹‹f(a)?.b›.evcxr_display()›", "f(a)?.b.evcxr_display()");
        check(
            "fn f(a: &A) {\n    ‹a›\n        .evcxr_display()\n}",
            "fn f(a: &A) {\n    a\n        .evcxr_display()\n}",
        );
        for code in ["A::evcxr_display(&a);", "let evcxr_display = 1;"] {
            check(code, code);
        }
        assert_eq!(rewrite("let a = 1;", true), None);
        assert!(rewrite("1 + 1", true).unwrap().contains(OWN_BEGIN));
    }
}
