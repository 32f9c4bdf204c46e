//! What the session inserts into a cell before it is compiled: polls into its loops, so that they can
//! be stopped, a call around its last expression, which shows the value, and new bindings of variables that
//! evcxr would overlook.
//!
//! evcxr would compile a guess how to show a value, and compile the cell a second time if the guess was
//! wrong, as it is for every number and string. The call inserted here is right at once for every type
//! that has a view or a `Debug` text. No insertion contains a line end, so line numbers stay the same.
//! If the compiler refuses the result (a poll is not `const`, a type has no `Debug`), the session
//! compiles the cell as the user wrote it.

use std::borrow::Cow;

use ra_ap_syntax::ast::HasName;
use ra_ap_syntax::{AstNode, SyntaxKind, SyntaxNode, ast};

use super::source::{place, statements, value, without_commands};

const POLL: &str = " ::cloze::interrupt::poll();";

const VALUE_BEGIN: &str = "{ use ::cloze::view::show::{ShowDebug as _, ShowView as _}; \
                           (&::cloze::view::show::Shown(&(";
const VALUE_END: &str = "))).value() };";

/// evcxr's name of the method by which a value displays itself.
pub const OWN_DISPLAY: &str = "evcxr_display";
/// These go around a value that may have that method: the records before and after identify its
/// display. (A line that began with a colon would be a command of evcxr's.)
const OWN_BEGIN: &str = "(::cloze::view::show::own(&(";
const OWN_END: &str = " )))";

type Insertion = (usize, Cow<'static, str>);

/// Returns the cell with all insertions, or `None` if there are none. `own_displays` is set if the value
/// of the last expression may display itself; then evcxr finds out.
pub fn rewrite(code: &str, own_displays: bool) -> Option<String> {
    let rust = without_commands(code);
    let mut insertions = Vec::new();
    add_polls(&rust, 0, &mut insertions);
    insertions.extend(bindings(&rust));
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
        rewritten += &text;
        done = place;
    }
    Some(rewritten + &code[done..])
}

/// Adds a poll at the beginning of every loop's body, also in the arguments of macros, if they read as
/// expressions. `offset` is the position of `rust` in the cell.
fn add_polls(rust: &str, offset: usize, insertions: &mut Vec<Insertion>) {
    for node in statements(rust).iter().flat_map(SyntaxNode::descendants) {
        match node.kind() {
            SyntaxKind::LOOP_EXPR | SyntaxKind::WHILE_EXPR | SyntaxKind::FOR_EXPR => {
                if let Some(body) = node.last_child() {
                    insertions.push((offset + place(&body).start + 1, POLL.into()));
                }
            }
            SyntaxKind::MACRO_CALL if !node.text().to_string().starts_with("stringify!") => {
                if let Some(arguments) = node.last_child() {
                    let text = arguments.text().to_string();
                    add_polls(&text, offset + place(&arguments).start, insertions);
                }
            }
            _ => {}
        }
    }
}

/// Returns new bindings of the variables that the cell's own `let` statements bind in patterns into which evcxr
/// does not look, such as `[a, b]`. Without them, it would keep the value and type of an earlier variable of the
/// same name.
fn bindings(rust: &str) -> impl Iterator<Item = Insertion> {
    let lets = statements(rust).into_iter().filter_map(ast::LetStmt::cast);
    lets.filter(|it| it.semicolon_token().is_some()).filter_map(|it| {
        let pattern = it.pat().filter(is_overlooked)?;
        let mut names = Vec::new();
        for one in pattern.syntax().descendants().filter_map(ast::IdentPat::cast) {
            // A pattern such as `None` looks the same as a variable.
            let name = one.name()?.text().to_string();
            if !name.starts_with(char::is_uppercase) {
                let mutable = if one.mut_token().is_some() { "mut " } else { "" };
                names.push(format!(" let {mutable}{name} = {name};"));
            }
        }
        // Both sides of `|` bind the same names.
        names.sort();
        names.dedup();
        Some((place(it.syntax()).end, names.concat().into()))
    })
}

/// Returns whether evcxr overlooks a variable in a pattern.
fn is_overlooked(pattern: &ast::Pat) -> bool {
    match pattern {
        ast::Pat::IdentPat(it) => it.pat().is_some(),
        ast::Pat::TuplePat(it) => it.fields().any(|it| is_overlooked(&it)),
        ast::Pat::TupleStructPat(it) => it.fields().any(|it| is_overlooked(&it)),
        ast::Pat::RecordPat(it) => {
            let fields = it.record_pat_field_list().into_iter().flat_map(|it| it.fields());
            fields.filter_map(|it| it.pat()).any(|it| is_overlooked(&it))
        }
        other => other.syntax().descendants().any(|it| it.kind() == SyntaxKind::IDENT_PAT),
    }
}

/// Returns what goes around the values on which the cell itself calls [`OWN_DISPLAY`].
fn around_receivers(rust: &str) -> impl Iterator<Item = Insertion> {
    let nodes = statements(rust).into_iter();
    let calls =
        nodes.flat_map(|statement| statement.descendants().filter_map(ast::MethodCallExpr::cast));
    let own = calls.filter(|call| call.name_ref().is_some_and(|name| name.text() == OWN_DISPLAY));
    own.filter_map(|call| call.receiver()).flat_map(|value| {
        let at = place(value.syntax());
        [(at.start, OWN_BEGIN.into()), (at.end, OWN_END.into())]
    })
}

/// Returns what goes around the cell's last expression, if it ends in one: `before` and `after` if it has
/// a value.
fn around_value(rust: &str, [before, after]: [&'static str; 2]) -> Vec<Insertion> {
    let Some(node) = value(rust) else {
        return Vec::new();
    };
    let at = place(&node);
    match node.kind() {
        // These have no value.
        SyntaxKind::FOR_EXPR | SyntaxKind::WHILE_EXPR => vec![(at.end, ";".into())],
        // Attributes of expressions are not allowed inside brackets.
        _ if rust[at.start..].starts_with('#') => Vec::new(),
        _ => vec![(at.start, before.into()), (at.end, after.into())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `«` and `»` go around a value, `‹` and `›` around one that may display itself; `@` is a poll.
    #[track_caller]
    fn check(marked: &str, code: &str) {
        let marks = |text: &str| {
            text.replace(VALUE_BEGIN, "«")
                .replace(VALUE_END, "»")
                .replace(OWN_BEGIN, "‹")
                .replace(OWN_END, "›")
                .replace(POLL, "@")
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
    fn variables_that_evcxr_would_overlook_are_bound_again() {
        check("let [a, mut b] = x; let a = a; let mut b = b;\n«a»", "let [a, mut b] = x;\na");
        check("let [a] = x; let a = a;«a»", "let [a] = x;a");
        check("let a @ b = x; let a = a; let b = b;", "let a @ b = x;");
        check("let (a, [.., b]): T = x; let a = a; let b = b;", "let (a, [.., b]): T = x;");
        check("let P { at: &a, .. } = x; let a = a;", "let P { at: &a, .. } = x;");
        check("let (Ok(a) | Err(a)) = x; let a = a;", "let (Ok(a) | Err(a)) = x;");
        let refutable = "let [Some(a), None] = x else { return };";
        check(&format!("{refutable} let a = a;"), refutable);
        for code in [
            "let (a, mut b) = x;",
            "let Some(a) = x else { return };",
            "let P { x, y: (z, _) } = x;",
            "let [..] = x;",
            "let [a] = x",
            "fn f() { let [a] = x; }",
            "{ let [a] = x; };",
        ] {
            check(code, code);
        }
    }

    #[test]
    fn a_trailing_loop_has_no_value() {
        check("for i in 0..3 {@};", "for i in 0..3 {}");
        check("while a {@ b(); };", "while a { b(); }");
    }

    #[test]
    fn a_cell_without_a_last_expression_stays_as_it_is() {
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
    fn a_value_that_displays_itself_is_marked() {
        let definition = "impl A { fn evcxr_display(&self) {} }";
        check(definition, definition);
        check(&format!("{definition}\n‹A›"), &format!("{definition}\nA"));
        check("‹a›.evcxr_display();", "a.evcxr_display();");
        check("for a in &all {@ ‹a›.evcxr_display() };", "for a in &all { a.evcxr_display() }");
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
    /// `@` is a poll.
    #[track_caller]
    fn check_polls(marked: &str) {
        let mut code = without_commands(&marked.replace('@', ""));
        let mut polls = Vec::new();
        add_polls(&code, 0, &mut polls);
        polls.sort_unstable();
        for (place, _) in polls.into_iter().rev() {
            code.insert(place, '@');
        }
        assert_eq!(code, without_commands(marked));
    }

    #[test]
    fn every_kind_of_loop_is_found() {
        check_polls("loop {@ n += 1; }");
        check_polls("'outer: loop {@ while n < 3 {@ n += 1; }\n break 'outer; }");
        check_polls("for i in 0..10 {@\n    println!(\"{i}\");\n}");
        check_polls("for (i, x) in v.iter().enumerate() {@}");
        check_polls("for Point { x, y } in points {@ sum += x * y; }");
        check_polls("for &(a, ref b) in &pairs {@}");
        check_polls("for i in 0.. {@ if i > 3 { break; } }");
        check_polls("while let Some(x) = stack.pop() {@ f(x); }");
        check_polls("while let Point { x, .. } = next() {@}");
        check_polls("while let Some(1..=9) = next() && let P { y: 0..=3 } = { other() } {@}");
        check_polls("fn f() -> u32 { let mut n = 0; loop {@ n += 1; if n > 3 { return n; } } }");
        check_polls(
            "let v: Vec<u32> = (0..3).map(|x| { let mut y = x; while y > 1 {@ y /= 2; } y }).collect();",
        );
        check_polls("for x in xs.iter().map(|x| { x + 1 }) {@}");
        check_polls("for x in [1, 2, 3] {@ for y in { vec![x] } {@ f(y); } }");
        check_polls("while { let x = f(); x > 3 } {@ g(); }");
        check_polls("while match x { Some(_) => true, None => false } {@ x = f(); }");
        check_polls("println!(\"{}\", { loop {@ break 1; } }); vec![{ for _ in x {@} }; 3];");
        check_polls("thread::spawn(move || loop {@ work(); });");
        check_polls("while n /* how many { */ < 3 // and { so\n{@ n += 1; }");
    }

    #[test]
    fn code_that_is_no_loop_has_no_poll() {
        check_polls("impl Trait for Type { fn f(&self) {} }");
        check_polls(
            "impl<T> Trait for Vec<T> where T: for<'a> Fn(&'a str) { fn f(&self) { loop {@} } }",
        );
        check_polls("fn f(g: impl for<'a> Fn(&'a str) -> &'a str) {}");
        check_polls("let text = \"for x in y { loop { } }\"; // while true {");
        check_polls("let r = r#\"loop {\"#; let c = '{';");
        check_polls("macro_rules! forever { ($b:block) => { loop { $b } } }");
        check_polls("macro_rules! m { () => { for i in 0..3 {} } }\nloop {@ break; }");
        check_polls("println!(\"{}\", stringify!(loop {}));");
        check_polls("let raw = r#loop; let field = x.r#for;");
        check_polls(":dep x = \"for y in z { loop {\nlet a = 1;");
        check_polls("!echo don't for x in y {\nfor x in 0..3 {@}");
        check_polls("let x = 3;");
        check_polls("");
        check_polls("for");
        check_polls("for x in");
        check_polls("while {");
        check_polls("loop");
    }
}
