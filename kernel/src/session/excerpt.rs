//! Lines of a cell with marks below them, in the columns in which a terminal shows them; colours.

use unicode_width::UnicodeWidthStr;

pub const RED: &str = "\x1b[1;31m";
pub const GREEN: &str = "\x1b[1;32m";
pub const BLUE: &str = "\x1b[1;34m";
pub const BOLD: &str = "\x1b[1m";
pub const OFF: &str = "\x1b[0m";

/// Replaces a tab, whose width would depend on where the line begins.
const TAB: &str = "    ";

/// Returns the heading of an excerpt.
pub fn place(line: usize) -> String {
    format!("{BLUE}  -->{OFF} this cell, line {line}")
}

/// Returns a line with its number.
pub fn numbered(line: usize, text: &str) -> String {
    format!("{BLUE}{line:>4} |{OFF} {}", text.replace('\t', TAB))
}

/// Returns marks below the characters `from..to` of `text`, counted from 0, and then a label.
pub fn marks(text: &str, from: usize, to: usize, mark: &str, colour: &str, label: &str) -> String {
    let columns = |characters: usize| {
        let before: String = text.chars().take(characters).collect();
        let missing = characters.saturating_sub(before.chars().count());
        before.replace('\t', TAB).width() + missing
    };
    let start = columns(from);
    let length = columns(to).saturating_sub(start).max(1);
    let line =
        format!("     {BLUE}|{OFF} {}{colour}{} {label}", " ".repeat(start), mark.repeat(length),);
    format!("{}{OFF}", line.trim_end())
}

/// Returns the line with `from..to` replaced, and marks below the new text, or `None` if nothing changes
/// or the change is not in one line.
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
        vec![numbered(line, &fixed), marks(&fixed, from, end, mark, GREEN, "")]
    })
}

/// Returns the text without ANSI colours.
pub fn without_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(text: &str, from: usize, to: usize) -> String {
        without_colours(&marks(text, from, to, "^", RED, "here"))
    }

    #[test]
    fn marks_align_with_wide_combining_and_tabbed_text() {
        assert_eq!(below("let x = y;", 8, 9), "     |         ^ here");
        assert_eq!(below("日本 x", 3, 4), "     |      ^ here");
        assert_eq!(below("x日本", 1, 3), "     |  ^^^^ here");
        assert_eq!(below("e\u{301}e\u{301} x", 5, 6), "     |    ^ here");
        assert_eq!(below("\tx", 1, 2), "     |     ^ here");
        assert_eq!(without_colours(&numbered(2, "\tx")), "   2 |     x");
    }

    #[test]
    fn marks_after_the_line_s_end_are_kept() {
        assert_eq!(below("ab", 2, 3), "     |   ^ here");
        assert_eq!(below("", 7, 3), "     |        ^ here");
    }

    #[test]
    fn a_suggestion_is_shown_in_its_line() {
        let shown = changed(1, "f(x);", 3, 3, ".clone()").unwrap().join("\n");
        assert_eq!(without_colours(&shown), "   1 | f(x.clone());\n     |    ++++++++");
        let shown = changed(1, "f(x);", 4, 5, "").unwrap().join("\n");
        assert_eq!(without_colours(&shown), "   1 | f(x)");
        assert_eq!(changed(1, "f(x);", 4, 4, ""), None);
        assert_eq!(changed(1, "f(x);", 9, 9, "y"), None);
        assert_eq!(changed(1, "f(x);", 0, 0, "use a;\nuse b;"), None);
    }

    #[test]
    fn colours_can_be_removed() {
        assert_eq!(without_colours(&format!("{RED}a{OFF}b")), "ab");
    }
}
