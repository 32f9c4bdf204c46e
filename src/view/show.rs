//! `show!`: a value as a picture in a notebook and as text in a terminal.
//!
//! A type that can draw itself implements [`Show`]; every other value is shown by its `Debug`.
//! The choice is made by method resolution (an implementation for `Shown<T>` is preferred to one
//! for `&Shown<T>`), because Rust has no specialisation on stable.

use std::fmt::{self, Debug};

use super::{display, style};

/// A value with a rich display.
pub trait Show {
    /// What a terminal prints.
    fn text(&self) -> String;
    /// What a notebook shows.
    fn html(&self) -> String;
}

/// A borrowed value on its way to the display; made by [`show!`](crate::show).
pub struct Shown<'a, T: ?Sized>(pub &'a T);

/// How types with a [`Show`] are shown.
pub trait ShowRich {
    /// Displays the value; `label` is the expression as written.
    fn display(&self, label: &str);
}

impl<T: Show + ?Sized> ShowRich for Shown<'_, T> {
    fn display(&self, _label: &str) {
        show(self.0);
    }
}

/// How all other types are shown.
pub trait ShowDebug {
    /// Displays the value; `label` is the expression as written.
    fn display(&self, label: &str);
}

impl<T: Debug + ?Sized> ShowDebug for &Shown<'_, T> {
    fn display(&self, label: &str) {
        println!("{}", Line { label, value: self.0 });
    }
}

/// `label = value`, the value on lines of its own where it is long.
struct Line<'a, T: ?Sized> {
    label: &'a str,
    value: &'a T,
}

impl<T: Debug + ?Sized> fmt::Display for Line<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flat = format!("{:?}", self.value);
        if self.label.chars().count() + flat.chars().count() <= 160 {
            write!(f, "{} = {flat}", self.label)
        } else {
            write!(f, "{} =\n{}", self.label, wrap(&flat, 100))
        }
    }
}

/// Breaks a long one-line `Debug` text after commas, so that it reads without scrolling sideways.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::from("  ");
    let mut column = 2;
    for piece in text.split_inclusive(", ") {
        let length = piece.chars().count();
        if column > 2 && column + length > width {
            out.truncate(out.trim_end().len());
            out.push_str("\n  ");
            column = 2;
        }
        out.push_str(piece);
        column += length;
    }
    out
}

/// Displays a value that can draw itself.
pub fn show<T: Show + ?Sized>(value: &T) {
    if display::is_notebook() {
        display::html(&style::figure(&value.html()));
    } else {
        println!("{}", value.text());
    }
}

/// Shows values: charts, tensors and tokens as pictures in a notebook and as text in a terminal,
/// everything else as `expression = value`.
#[macro_export]
macro_rules! show {
    ($($value:expr),+ $(,)?) => {{
        // Only one of the two traits is used for a given type.
        #[allow(unused_imports)]
        use $crate::view::show::{ShowDebug as _, ShowRich as _};
        $( (&$crate::view::show::Shown(&$value)).display(stringify!($value)); )+
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_stay_on_the_label_s_line_and_long_ones_wrap() {
        let line = |value: &[u32]| Line { label: "ids", value }.to_string();
        assert_eq!(line(&[2, 3]), "ids = [2, 3]");
        let long = line(&[123_456; 40]);
        assert!(long.starts_with("ids =\n  [123456, "));
        assert!(long.lines().all(|l| l.chars().count() <= 100));
        assert_eq!(long.matches("123456").count(), 40);
    }

    #[test]
    fn a_type_with_a_picture_is_not_shown_by_debug() {
        #[derive(Debug)]
        struct Picture(std::cell::Cell<u32>);
        impl Show for Picture {
            fn text(&self) -> String {
                self.0.set(self.0.get() + 1);
                "picture".into()
            }
            fn html(&self) -> String {
                self.0.set(self.0.get() + 1);
                "<b>picture</b>".into()
            }
        }
        let picture = Picture(std::cell::Cell::new(0));
        crate::show!(picture, vec![1, 2]);
        assert_eq!(picture.0.get(), 1);
    }
}
