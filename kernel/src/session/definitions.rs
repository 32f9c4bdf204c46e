//! The cells that defined something, so that `:replay` can run them again.

use ra_ap_syntax::{AstNode, SyntaxNode, ast};

use super::source::{statements, without_commands};

/// Cells in the order in which they were run last.
#[derive(Debug, Default)]
pub struct Definitions(pub Vec<String>);

impl Definitions {
    /// Keeps a cell that succeeded, if it defined a variable, an item or an import.
    pub fn keep(&mut self, code: &str) {
        let nodes = statements(&without_commands(code));
        let mut kinds = nodes.iter().map(SyntaxNode::kind);
        if kinds.any(|kind| ast::LetStmt::can_cast(kind) || ast::Item::can_cast(kind)) {
            self.0.retain(|kept| kept != code);
            self.0.push(code.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cells_that_define_something_are_kept_and_once() {
        let mut definitions = Definitions::default();
        for code in [
            "let a = 1;",
            "a + 1",
            "use std::fmt;",
            "println!();",
            "fn f() {}",
            "let a = 1;",
            ":vars",
            "f();\nlet b = 2;\nb",
        ] {
            definitions.keep(code);
        }
        let kept = ["use std::fmt;", "fn f() {}", "let a = 1;", "f();\nlet b = 2;\nb"];
        assert_eq!(definitions.0, kept);
    }
}
