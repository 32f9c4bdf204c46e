//! Messages on standard error.
//!
//! A reader that has gone (`cloze pretrain … 2>&1 | head`) must not end a run that has trained for
//! hours, as `eprintln!` would. Text from files and servers must not steer the reader's terminal, so
//! control characters are written as their escapes.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::Write;

/// Writes a line to standard error, as `eprintln!` does; a line that cannot be written is lost.
#[macro_export]
#[doc(hidden)]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::notes::line(format_args!($($text)*))
    };
}

/// Writes one message and a line end to standard error.
pub fn line(text: Arguments<'_>) {
    let text = text.to_string();
    // If standard error cannot be written, there is nowhere to report that.
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(&text));
}

/// Returns `text` with its control characters, all but line ends and tabs, as escapes such as
/// `\u{1b}`. So are the characters that change the direction of the text around them.
pub fn visible(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (c.is_control() && !matches!(c, '\n' | '\t')) || turns
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        let plain = "größe\tof\n日本";
        assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(
            visible("a\u{1b}[2Jb\u{9b}c\rd\u{202e}e\u{7f}"),
            "a\\u{1b}[2Jb\\u{9b}c\\u{d}d\\u{202e}e\\u{7f}"
        );
    }
}
