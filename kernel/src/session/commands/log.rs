//! The cells that defined things, so that they can be run again when a process was lost.

use ra_ap_syntax::{AstNode, ast};

use super::say_text;
use crate::session::evaluator::Evaluator;
use crate::session::{Outcome, Sink, rewrite};

/// Cells in the order in which they were run last.
#[derive(Debug, Default)]
pub struct Log(Vec<String>);

impl Log {
    /// Keeps a cell that succeeded, where it defined a variable, an item or an import.
    pub fn keep(&mut self, code: &str) {
        let defines = |code: &str| {
            let nodes = rewrite::statements(&rewrite::without_commands(code));
            nodes
                .iter()
                .any(|node| ast::LetStmt::can_cast(node.kind()) || ast::Item::can_cast(node.kind()))
        };
        if defines(code) {
            self.0.retain(|kept| kept != code);
            self.0.push(code.to_owned());
        }
    }
}

/// Runs the kept cells again, up to the first that fails.
pub fn replay(evaluator: &mut Evaluator, sink: &Sink) -> Outcome {
    let cells = std::mem::take(&mut evaluator.log).0;
    if cells.is_empty() {
        say_text(sink, "No cell has defined anything yet.");
        return Outcome::default();
    }
    let mut pages = Vec::new();
    for (index, code) in cells.iter().enumerate() {
        let mut outcome = evaluator.cell(code, sink);
        pages.append(&mut outcome.pages);
        if outcome.error.is_some() {
            // What was not run again may be wanted once more.
            for kept in &cells[index..] {
                evaluator.log.keep(kept);
            }
            say_text(
                sink,
                &format!(
                    "{index} of {} cells were run again; this one failed:\n{}",
                    cells.len(),
                    first_line(code)
                ),
            );
            return Outcome { pages, ..outcome };
        }
    }
    let count = match cells.len() {
        1 => "1 cell was".to_owned(),
        count => format!("{count} cells were"),
    };
    say_text(sink, &format!("{count} run again."));
    Outcome { error: None, pages }
}

fn first_line(code: &str) -> &str {
    code.trim().lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_defines_something_is_kept_and_once() {
        let mut log = Log::default();
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
            log.keep(code);
        }
        let kept = [
            "use std::fmt;",
            "fn f() {}",
            "let a = 1;",
            "f();\nlet b = 2;\nb",
        ];
        assert_eq!(log.0, kept);
    }
}
