//! Progress bars that also work in a cell.
//!
//! `indicatif` draws only if standard error is a terminal, which a cell's is not. [`target`] makes its bars
//! draw to a display of the notebook that is updated in place.

use std::io;
use std::sync::{Mutex, PoisonError};

use indicatif::{InMemoryTerm, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::display::{self, Content};
use super::style::escape;

/// How often a bar is redrawn a second.
const RATE: u8 = 8;
/// Lines and columns that a cell's output shows without scrolling.
const SIZE: (u16, u16) = (40, 100);

/// Creates a bar of `length` steps with a name, a count and the time left. Call `bar.inc(1)` after each step,
/// or use `bar.wrap_iter(iterator)`.
pub fn bar(length: u64, name: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), target());
    let template = "{prefix} {bar:40} {human_pos} of {human_len}, {per_sec:1}, {eta} left {msg}";
    // The template is a constant that `indicatif` accepts, as a test shows.
    let style = ProgressStyle::with_template(template)
        .map(|style| style.progress_chars("█░"))
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(name.to_owned())
}

/// Returns the draw target of `indicatif`'s bars: the cell in a session, else standard error. For
/// `ProgressBar::with_draw_target` and `MultiProgress::with_draw_target`.
pub fn target() -> ProgressDrawTarget {
    if display::wire::token().is_none() {
        return ProgressDrawTarget::stderr();
    }
    let screen = Screen {
        id: display::new_id("progress"),
        terminal: InMemoryTerm::new(SIZE.0, SIZE.1),
        shown: Mutex::default(),
    };
    ProgressDrawTarget::term_like_with_hz(Box::new(screen), RATE)
}

/// A terminal in memory whose text is shown as a display.
#[derive(Debug)]
struct Screen {
    id: String,
    terminal: InMemoryTerm,
    shown: Mutex<String>,
}

/// Implements methods by those of the terminal.
macro_rules! forwarded {
    ($($name:ident($($value:ident: $type:ty)?) -> $result:ty;)*) => {
        $(fn $name(&self, $($value: $type)?) -> $result {
            self.terminal.$name($($value)?)
        })*
    };
}

impl TermLike for Screen {
    forwarded! {
        width() -> u16;
        height() -> u16;
        move_cursor_up(n: usize) -> io::Result<()>;
        move_cursor_down(n: usize) -> io::Result<()>;
        move_cursor_right(n: usize) -> io::Result<()>;
        move_cursor_left(n: usize) -> io::Result<()>;
        write_line(text: &str) -> io::Result<()>;
        write_str(text: &str) -> io::Result<()>;
        clear_line() -> io::Result<()>;
    }

    fn flush(&self) -> io::Result<()> {
        let text = self.terminal.contents();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if text != *shown {
            display::live(&self.id, content(&text));
            *shown = text;
        }
        Ok(())
    }
}

fn content(text: &str) -> Content {
    let html = format!("<pre style=\"margin:0;line-height:1.3\">{}</pre>", escape(text));
    Content::html(html).with_text(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::MultiProgress;

    #[test]
    fn several_bars_are_drawn_below_each_other() {
        // Outside a session a screen writes to standard output, so this uses the terminal itself.
        let terminal = InMemoryTerm::new(SIZE.0, SIZE.1);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let several = MultiProgress::with_draw_target(target);
        let [one, two] = ["one", "two"].map(|name| several.add(bar(10, name)));
        for bar in [&one, &two] {
            bar.inc(5);
            bar.tick();
        }
        one.finish();
        two.abandon();
        let shown = content(&terminal.contents());
        let text = shown.plain();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        let full = format!("one {} 10 of 10", "█".repeat(40));
        assert!(lines[0].starts_with(&full), "{text}");
        assert!(lines[1].starts_with("two █"), "{text}");
        assert!(lines[1].contains("5 of 10"), "{text}");
        assert!(shown.get("text/html").unwrap().contains("10 of 10"));
    }
}
