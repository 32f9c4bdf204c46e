//! The names that a session uses, so that completion offers those first that it uses most and most recently.

use std::collections::HashMap;

use super::source;

/// What a use still counts after each later cell.
const LASTING: f64 = 0.9;

/// How much each name is used.
#[derive(Debug, Clone, Default)]
pub struct Usage(HashMap<String, f64>);

impl Usage {
    /// Notes the names in a cell, once each.
    pub fn note(&mut self, code: &str) {
        self.0.values_mut().for_each(|score| *score *= LASTING);
        for name in source::names(&source::without_commands(code)) {
            *self.0.entry(name).or_default() += 1.0;
        }
    }

    /// Sorts a list, of members or of other names, from the most used name to the least used one. Names that are
    /// used equally stay in order.
    pub fn sort<T>(&self, list: &mut [T], members: bool, name: impl Fn(&T) -> &str) {
        let dot = if members { "." } else { "" };
        let score = |item: &T| {
            // A macro is used without its `!`.
            let used = format!("{dot}{}", name(item).trim_end_matches('!'));
            self.0.get(&used).copied().unwrap_or_default()
        };
        list.sort_by(|one, other| score(other).total_cmp(&score(one)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_used_most_and_most_recently_come_first() {
        let mut usage = Usage::default();
        for code in [
            "a.max(b)",
            "a.max(b)",
            "a.min(b); println!()",
            ":vars",
            "let mean = x.mean() + y.mean();",
        ] {
            usage.note(code);
        }
        let mut names = ["abs", "max", "mean", "min", "mod"];
        usage.sort(&mut names, true, |name| name);
        assert_eq!(names, ["max", "mean", "min", "abs", "mod"]);
        let mut others = ["a", "b", "max", "mean", "println!"];
        usage.sort(&mut others, false, |name| name);
        assert_eq!(others, ["a", "b", "mean", "println!", "max"]);
        for _ in 0..9 {
            usage.note("x.min()");
        }
        usage.sort(&mut names, true, |name| name);
        assert_eq!(names[0], "min");
    }
}
