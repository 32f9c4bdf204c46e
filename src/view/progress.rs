//! Progress bars that are seen in a cell too.
//!
//! `indicatif` draws where standard error is a terminal, which a cell's is not. [`target`] gives its
//! bars a place in the notebook: one display that is updated where it stands.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::display::{self, Content};
use super::style::escape;

/// How often a bar is drawn anew, a second.
const RATE: u8 = 8;
/// As wide as a cell's output shows without scrolling.
const WIDTH: u16 = 100;

/// A bar of `length` steps with a name, a count and the time left: `bar.inc(1)` after each step, or
/// `bar.wrap_iter(iterator)`.
pub fn bar(length: u64, name: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), target());
    let template = "{prefix} {bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left {msg}";
    // The template is a constant that `indicatif` accepts, see the test; its own is as good.
    let style = ProgressStyle::with_template(template)
        .map(|style| style.progress_chars("█▉▊▋▌▍▎▏░"))
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(name.to_owned())
}

/// Where bars of `indicatif` draw: the cell in a session, standard error elsewhere. For
/// `ProgressBar::with_draw_target` and `MultiProgress::with_draw_target`.
pub fn target() -> ProgressDrawTarget {
    if display::wire::token().is_some() {
        ProgressDrawTarget::term_like_with_hz(Box::new(Screen::new()), RATE)
    } else {
        ProgressDrawTarget::stderr()
    }
}

/// The lines that bars have drawn so far, as a display.
#[derive(Debug)]
struct Screen {
    id: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    row: usize,
    shown: String,
}

impl Screen {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            // The process number keeps two sessions' bars in one notebook apart.
            id: format!("cloze-progress-{}-{count}", std::process::id()),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn line(&mut self) -> &mut String {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, String::new());
        }
        &mut self.lines[self.row]
    }

    fn text(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(|line| line.trim_end()).collect();
        lines.join("\n").trim_end().to_owned()
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        WIDTH
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        let mut state = self.lock();
        state.row = state.row.saturating_sub(n);
        Ok(())
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.lock().row += n;
        Ok(())
    }

    // Bars are drawn a line at a time, from its beginning.
    fn move_cursor_right(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.lock().row += 1;
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.lock().line().push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.lock().line().clear();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.lock();
        let text = state.text();
        if text != state.shown {
            let html = format!(
                "<pre style=\"margin:0;line-height:1.3\">{}</pre>",
                escape(&text)
            );
            display::live(&self.id, Content::html(html).with_text(text.clone()));
            state.shown = text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_holds_what_was_drawn_last() {
        let screen = std::sync::Arc::new(Screen::new());
        #[derive(Debug)]
        struct Shared(std::sync::Arc<Screen>);
        impl TermLike for Shared {
            fn width(&self) -> u16 {
                self.0.width()
            }
            fn move_cursor_up(&self, n: usize) -> io::Result<()> {
                self.0.move_cursor_up(n)
            }
            fn move_cursor_down(&self, n: usize) -> io::Result<()> {
                self.0.move_cursor_down(n)
            }
            fn move_cursor_right(&self, n: usize) -> io::Result<()> {
                self.0.move_cursor_right(n)
            }
            fn move_cursor_left(&self, n: usize) -> io::Result<()> {
                self.0.move_cursor_left(n)
            }
            fn write_line(&self, text: &str) -> io::Result<()> {
                self.0.write_line(text)
            }
            fn write_str(&self, text: &str) -> io::Result<()> {
                self.0.write_str(text)
            }
            fn clear_line(&self) -> io::Result<()> {
                self.0.clear_line()
            }
            fn flush(&self) -> io::Result<()> {
                Ok(())
            }
        }
        let target = |screen: &std::sync::Arc<Screen>| {
            ProgressDrawTarget::term_like(Box::new(Shared(std::sync::Arc::clone(screen))))
        };
        let several = indicatif::MultiProgress::with_draw_target(target(&screen));
        let [one, two] = ["one", "two"].map(|name| several.add(bar(10, name)));
        for bar in [&one, &two] {
            bar.inc(5);
            bar.tick();
        }
        one.finish();
        two.abandon();
        let text = screen.lock().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].starts_with("one") && lines[0].contains("10 of 10"),
            "{text}"
        );
        assert!(
            lines[1].starts_with("two") && lines[1].contains("5 of 10"),
            "{text}"
        );
        assert!(lines[0].contains(&"█".repeat(40)), "{text}");
    }
}
