//! Lines of a cell with marks below them, in the columns in which a terminal shows them.

use unicode_width::UnicodeWidthStr;

pub const RED: &str = "\x1b[1;31m";
pub const GREEN: &str = "\x1b[1;32m";
pub const BLUE: &str = "\x1b[1;34m";
pub const BOLD: &str = "\x1b[1m";
pub const OFF: &str = "\x1b[0m";

/// What a tab is shown as: its own width depends on where the line begins.
const TAB: &str = "    ";

/// Where the excerpt is from.
pub fn place(line: usize) -> String {
    format!("{BLUE}  -->{OFF} this cell, line {line}")
}

/// A line with its number.
pub fn numbered(line: usize, text: &str) -> String {
    format!("{BLUE}{line:>4} |{OFF} {}", text.replace('\t', TAB))
}

/// Marks below the characters `from..to` of `text`, counted from 0, with a label behind them.
pub fn marks(text: &str, from: usize, to: usize, mark: &str, colour: &str, label: &str) -> String {
    let columns = |characters: usize| {
        let before: String = text.chars().take(characters).collect();
        let missing = characters.saturating_sub(before.chars().count());
        before.replace('\t', TAB).width() + missing
    };
    let start = columns(from);
    let length = columns(to).saturating_sub(start).max(1);
    let line = format!(
        "     {BLUE}|{OFF} {}{colour}{} {label}",
        " ".repeat(start),
        mark.repeat(length),
    );
    format!("{}{OFF}", line.trim_end())
}

/// The line with `from..to` replaced, and marks below what is new; `None` where nothing would show.
pub fn changed(line: usize, text: &str, from: usize, to: usize, new: &str) -> Option<Vec<String>> {
    let new = new.trim_end_matches('\n');
    if new.contains('\n') || to < from || to > text.chars().count() {
        return None;
    }
    let before: String = text.chars().take(from).collect();
    let after: String = text.chars().skip(to).collect();
    let fixed = format!("{before}{new}{after}");
    let mark = if from == to { "+" } else { "~" };
    if new.is_empty() {
        return (from < to).then(|| vec![numbered(line, &fixed)]);
    }
    (fixed != text).then(|| {
        let end = from + new.chars().count();
        vec![
            numbered(line, &fixed),
            marks(&fixed, from, end, mark, GREEN, ""),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::super::without_colours;
    use super::*;

    fn below(text: &str, from: usize, to: usize) -> String {
        without_colours(&marks(text, from, to, "^", RED, "here"))
    }

    #[test]
    fn marks_stand_below_wide_combining_and_tabbed_text() {
        assert_eq!(below("let x = y;", 8, 9), "     |         ^ here");
        assert_eq!(below("日本 x", 3, 4), "     |      ^ here");
        assert_eq!(below("x日本", 1, 3), "     |  ^^^^ here");
        assert_eq!(below("e\u{301}e\u{301} x", 5, 6), "     |    ^ here");
        assert_eq!(below("\tx", 1, 2), "     |     ^ here");
        assert_eq!(without_colours(&numbered(2, "\tx")), "   2 |     x");
    }

    #[test]
    fn marks_behind_the_line_s_end_are_kept() {
        assert_eq!(below("ab", 2, 3), "     |   ^ here");
        assert_eq!(below("", 7, 3), "     |        ^ here");
    }

    #[test]
    fn a_suggestion_is_shown_in_its_line() {
        let shown = changed(1, "f(x);", 3, 3, ".clone()").unwrap().join("\n");
        assert_eq!(
            without_colours(&shown),
            "   1 | f(x.clone());\n     |    ++++++++"
        );
        let shown = changed(1, "f(x);", 4, 5, "").unwrap().join("\n");
        assert_eq!(without_colours(&shown), "   1 | f(x)");
        assert_eq!(changed(1, "f(x);", 4, 4, ""), None);
        assert_eq!(changed(1, "f(x);", 9, 9, "y"), None);
        assert_eq!(changed(1, "f(x);", 0, 0, "use a;\nuse b;"), None);
    }
}
