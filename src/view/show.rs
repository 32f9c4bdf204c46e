//! `show!`: shows a value by its view if it has one, else by its `Debug` text.
//!
//! Method resolution makes the choice (it prefers an implementation for `Shown<T>` to one for `&Shown<T>`),
//! because stable Rust has no specialisation.

use std::cell::OnceCell;
use std::fmt::{self, Debug};
use std::io::StdoutLock;
use std::ops::Deref;

use super::display::{self, wire};

/// A borrowed value to be shown; made by [`show!`](crate::show).
pub struct Shown<'a, T: ?Sized>(pub &'a T);

/// Shows types with a view.
pub trait ShowView {
    /// Shows the value.
    fn display(&self, label: &str);
    /// Shows it as the value of the cell.
    fn value(&self);
}

impl<T: display::Show + ?Sized> ShowView for Shown<'_, T> {
    fn display(&self, _label: &str) {
        display::show(self.0);
    }

    fn value(&self) {
        self.0.evcxr_display();
    }
}

/// Shows all other types.
pub trait ShowDebug {
    /// Prints `label`, which is the expression, and the value.
    fn display(&self, label: &str);
    /// Shows it as the value of the cell.
    fn value(&self);
}

impl<T: Debug + ?Sized> ShowDebug for &Shown<'_, T> {
    fn display(&self, label: &str) {
        println!("{}", labelled(label, self.0));
    }

    fn value(&self) {
        display::result(display::Content::text(shortened(&format!("{:?}", self.0))));
    }
}

/// A value of the cell is shown in full up to this many characters, and else its beginning and its end.
const MOST: usize = 2000;
const BEGINNING: usize = 1200;
const END: usize = 300;

/// Shortens a long `Debug` text, and says what is left out and how to see it.
fn shortened(text: &str) -> String {
    let length = text.chars().count();
    if length <= MOST {
        return text.to_owned();
    }
    let at = |characters| text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at);
    let (mut begin, mut end) = (at(BEGINNING), at(length - END));
    let places = separators(text);
    let mut left =
        format!("{} of {} characters", grouped(length - BEGINNING - END), grouped(length));
    // A list is cut between two of its elements.
    if let Some(before) = places.iter().rposition(|place| *place < begin)
        && let Some(after) = places.iter().position(|place| *place >= end)
    {
        (begin, end) = (places[before] + 1, places[after] + 1);
        left = format!("{} of {} elements", grouped(after - before), grouped(places.len() + 1));
    }
    let (begin, end) = (text[..begin].trim_end(), text[end..].trim_start());
    format!("{begin} … {end}\n({left} are left out; `println!(\"{{:?}}\", …)` prints all)")
}

/// Returns the positions of the commas between the elements of a list.
fn separators(text: &str) -> Vec<usize> {
    let mut places = Vec::new();
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    if !text.starts_with(['[', '{']) {
        return places;
    }
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'(' | b'{' => depth += 1,
            b']' | b')' | b'}' => depth -= 1,
            b',' if depth == 1 => places.push(at),
            _ => {}
        }
    }
    places
}

/// Writes a number with a comma after every three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats `label = value`, with a long value on separate lines.
fn labelled<T: Debug + ?Sized>(label: &str, value: &T) -> String {
    let flat = format!("{value:?}");
    match label.chars().count() + flat.chars().count() <= 160 {
        true => format!("{label} = {flat}"),
        false => format!("{label} =\n{}", wrap(&flat, 100)),
    }
}

/// Wraps a long `Debug` text after commas, so that it needs no horizontal scrolling.
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

/// Marks the display that a value prints itself for evcxr: `own(&value).evcxr_display()`. Everywhere else the
/// session treats evcxr's marks as text, because any printed file may contain them.
pub fn own<T: ?Sized>(value: &T) -> Own<'_, T> {
    Own { value, mark: OnceCell::new() }
}

/// A borrowed value whose display starts at the first call of one of its methods and ends when this is
/// dropped; made by [`own`].
pub struct Own<'a, T: ?Sized> {
    value: &'a T,
    mark: OnceCell<Mark>,
}

impl<T: ?Sized> Deref for Own<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.mark.get_or_init(Mark::open);
        self.value
    }
}

/// For evcxr, which uses it for values without `evcxr_display`.
impl<T: Debug + ?Sized> Debug for Own<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// Sends the records around such a display, and keeps other threads from printing between them.
struct Mark(#[expect(dead_code, reason = "it is held")] StdoutLock<'static>);

impl Mark {
    fn open() -> Self {
        let lock = std::io::stdout().lock();
        wire::send(&wire::Record::Own { open: true });
        Self(lock)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        wire::send(&wire::Record::Own { open: false });
    }
}

/// Shows values: charts, tensors and tokens by their view, all others as `expression = value`.
#[macro_export]
macro_rules! show {
    ($($value:expr),+ $(,)?) => {{
        // Only one of the two traits is used for a given type.
        #[allow(unused_imports)]
        use $crate::view::show::{ShowDebug as _, ShowView as _};
        $( (&$crate::view::show::Shown(&$value)).display(stringify!($value)); )+
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_stay_on_the_label_s_line_and_long_ones_are_wrapped() {
        let line = |value: &[u32]| labelled("ids", value);
        assert_eq!(line(&[2, 3]), "ids = [2, 3]");
        let long = line(&[123_456; 40]);
        assert!(long.starts_with("ids =\n  [123456, "));
        assert!(long.lines().all(|l| l.chars().count() <= 100));
        assert_eq!(long.matches("123456").count(), 40);
    }

    #[test]
    fn a_long_value_shows_its_ends_and_what_is_left_out() {
        let numbers: Vec<u32> = (0..10_000).collect();
        let text = shortened(&format!("{numbers:?}"));
        assert!(
            text.starts_with("[0, 1, 2, ")
                && text.contains(", … 99")
                && text.contains(", 9999]\n(")
        );
        assert!(text.contains(" of 10,000 elements are left out; `println!"), "{text}");
        assert!(text.chars().count() < MOST);
        let words = vec![["a, \"b", "c]"]; 400];
        assert!(shortened(&format!("{words:?}")).contains(" of 400 elements are left out"));
        let long = "é".repeat(3000);
        assert!(shortened(&long).contains("(1,500 of 3,000 characters are left out"));
        assert_eq!(shortened("[1, 2]"), "[1, 2]");
    }

    #[test]
    fn a_value_s_own_display_is_marked_only_if_it_is_called() {
        struct Picture;
        impl Picture {
            fn evcxr_display(&self) -> &str {
                "picture"
            }
        }
        let borrowed = &Picture;
        for shown in [own(&borrowed), own(&&Picture)] {
            assert!(shown.mark.get().is_none());
            assert_eq!(shown.evcxr_display(), "picture");
            assert!(shown.mark.get().is_some());
        }
        let text = own("größe");
        assert_eq!(format!("{text:?}"), "\"größe\"");
        assert!(text.mark.get().is_none());
    }

    #[test]
    fn a_type_with_a_view_is_not_shown_by_debug() {
        #[derive(Debug)]
        struct Picture(std::cell::Cell<u32>);
        impl display::Show for Picture {
            fn content(&self) -> display::Content {
                self.0.set(self.0.get() + 1);
                display::Content::text("picture")
            }
        }
        let picture = Picture(std::cell::Cell::new(0));
        crate::show!(picture, vec![1, 2]);
        assert_eq!(picture.0.get(), 1);
    }
}
