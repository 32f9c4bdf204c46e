//! Messages on standard error.
//!
//! If the reader has exited (`cloze pretrain … 2>&1 | head`), `eprintln!` would panic and end a run that
//! has trained for hours. Text from files and servers must not control the terminal, so control
//! characters are escaped.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether this process prints no messages.
static SILENT: AtomicBool = AtomicBool::new(false);

/// The messages of this process so far, if a test keeps them in place of printing.
static KEPT: Mutex<Option<String>> = Mutex::new(None);

/// Writes a line to standard error like `eprintln!`, but ignores errors and escapes control characters.
#[macro_export]
#[doc(hidden)]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::notes::line(format_args!($($text)*))
    };
}

/// From now on, prints no messages: of the ranks of a run, only the first does.
pub fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Returns whether this process prints no messages.
pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// Prints no messages while `work` runs.
pub fn silently<T>(work: impl FnOnce() -> T) -> T {
    let before = SILENT.swap(true, Ordering::Relaxed);
    let result = work();
    SILENT.store(before, Ordering::Relaxed);
    result
}

/// From now on, keeps messages in place of printing them, for tests that run commands in this process. Returns those
/// that were kept so far.
pub fn keep() -> String {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.replace(String::new()).unwrap_or_default()
}

/// Returns whether messages are kept and not printed.
pub fn are_kept() -> bool {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Writes a message and a line end to standard error.
pub fn line(text: Arguments<'_>) {
    if is_silent() {
        return;
    }
    let text = text.to_string();
    if let Some(kept) = KEPT.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        kept.push_str(&visible(&text));
        kept.push('\n');
        return;
    }
    // If standard error cannot be written, there is nowhere to report that.
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(&text));
}

/// Replaces control characters except line ends and tabs, and characters that change the direction of
/// text, by escapes such as `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| {
        let direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (c.is_control() && !matches!(c, '\n' | '\t')) || direction
    };
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
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
    fn control_characters_are_escaped() {
        let plain = "größe\tof\n日本";
        assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(
            visible("a\u{1b}[2Jb\u{9b}c\rd\u{202e}e\u{7f}"),
            "a\\u{1b}[2Jb\\u{9b}c\\u{d}d\\u{202e}e\\u{7f}"
        );
    }
}
