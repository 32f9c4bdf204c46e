//! The style of every chart: colours, sizes and fonts that are legible on light and dark pages.
//!
//! No picture has a background. Ink (text, axes, grid) is a medium grey with a contrast of at least 3.5 on
//! white and on near-black; it is written as `currentColor`, so that a picture in a notebook takes the
//! page's text colour and one shown alone keeps the grey.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The style attribute of every chart's SVG.
pub(super) const SVG_STYLE: &str = "max-width:100%;height:auto";

/// The grey of text and axes if the page does not set a colour.
const INK_HEX: &str = "#7A8088";
/// The same grey for plotters. [`finish`] replaces it by `currentColor`.
pub const INK: RGBColor = RGBColor(0x7A, 0x80, 0x88);

/// Colours of series, of medium lightness and distinguishable by the colour-blind (after Okabe and Ito,
/// "Color Universal Design", 2008, darkened or lightened until legible on black and on white).
const SERIES: [RGBColor; 6] = [
    RGBColor(0x2F, 0x86, 0xD1),
    RGBColor(0xE0, 0x7B, 0x1F),
    RGBColor(0x1F, 0x9E, 0x77),
    RGBColor(0xB0, 0x62, 0xB8),
    RGBColor(0xD6, 0x4B, 0x4B),
    RGBColor(0x8A, 0x8F, 0x1F),
];

/// Width of a chart in CSS pixels, which fits the text column of a notebook.
pub const WIDTH: u32 = 720;
/// Size of a title: 15 px, because plotters divides sizes by 1.24.
pub const TITLE_SIZE: u32 = 19;
/// Size of other text: 13 px.
pub const TEXT_SIZE: u32 = 16;

/// Returns the colour of series `index`; colours repeat after six.
pub fn series(index: usize) -> RGBColor {
    SERIES[index % SERIES.len()]
}

/// Returns a text style of that size and colour; `h` and `v` say which point of the text is placed.
pub fn text(size: u32, color: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color).pos(Pos::new(h, v))
}

/// Estimates the width of `text` in pixels: sans-serif letters are a little over half as wide as their size
/// in SVG. Good enough for a layout that clips nothing.
pub fn text_width(text: &str, size: u32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) / 1.24 * 0.6).ceil() as i32
}

/// Returns the smallest and the largest of the values; infinities the wrong way round if there are none.
pub(super) fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    values.fold(none, |(low, high), v| (low.min(v), high.max(v)))
}

/// Returns the [width](text_width) of the widest text; 0 if there is none.
pub(super) fn widest<T: AsRef<str>>(texts: impl Iterator<Item = T>, size: u32) -> i32 {
    let widths = texts.map(|text| text_width(text.as_ref(), size));
    widths.max().unwrap_or(0)
}

/// Returns the number of characters of the longest text; 0 if there is none.
pub(super) fn longest<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> usize {
    let lengths = texts.map(|text| text.as_ref().chars().count());
    lengths.max().unwrap_or(0)
}

/// Estimates the width of a number in plain notation: digits are wider than most letters, points and signs
/// narrower (as in DejaVu Sans, the widest of the usual fonts).
pub(crate) fn number_width(number: &str, size: u32) -> i32 {
    let widths = number.chars().map(|c| match c {
        '0'..='9' => 0.64,
        _ => 0.36,
    });
    (widths.sum::<f64>() * f64::from(size) / 1.24).ceil() as i32
}

/// Adapts an SVG of plotters to its page: ink becomes the page's text colour, the font the page's sans-serif.
/// `label` is the text for screen readers. Characters that XML forbids, which tokens may contain, become
/// U+FFFD.
pub fn finish(svg: &str, label: &str) -> String {
    let root = format!(
        r#"<svg role="img" aria-label="{}" color="{INK_HEX}" style="{SVG_STYLE}" "#,
        escape(label)
    );
    svg.replacen("<svg ", &root, 1)
        .replace(&format!("fill=\"{INK_HEX}\""), "fill=\"currentColor\"")
        .replace(&format!("stroke=\"{INK_HEX}\""), "stroke=\"currentColor\"")
        .replace(|c| !in_xml(c), "\u{fffd}")
        .replace(
            "font-family=\"sans-serif\"",
            "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\"",
        )
}

/// Returns whether XML 1.0 allows the character (section 2.2).
fn in_xml(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        c => c >= ' ',
    }
}

/// Wraps HTML so that it takes the text colour of the notebook's theme.
pub fn figure(inner: &str) -> String {
    format!(
        "<div class=\"cloze-figure\" style=\"color:var(--jp-content-font-color1, inherit)\">\
         <style>.cloze-figure > svg {{ color: var(--jp-content-font-color1, inherit) }}</style>\
         {inner}</div>"
    )
}

/// Escapes a text for HTML and SVG, in content and in attributes.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a number for people: about four significant digits, but all digits before the point, with
/// thousands separated (1,234,567); below 0.0001 and from ten million on with a power of ten (1.23e8).
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let size = value.abs();
    if !is_plain(size) {
        return scientific(value);
    }
    let fixed = grouped(value, decimals(size));
    match fixed.split_once('.') {
        Some((whole, fraction)) if fraction.trim_end_matches('0').is_empty() => whole.to_owned(),
        Some(_) => fixed.trim_end_matches('0').to_owned(),
        None => fixed,
    }
}

/// Formats numbers that are shown together alike: with as many decimals as one of them needs, or all except
/// those near 1 with a power of ten. If that would hide too much of one of them, formats each separately.
pub fn numbers(values: &[f64]) -> Vec<String> {
    let sizes = || values.iter().map(|v| v.abs()).filter(|v| *v > 0.0);
    let largest = sizes().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let each = || values.iter().map(|v| number(*v)).collect::<Vec<_>>();
    if largest == 0.0 || values.iter().any(|v| !v.is_finite()) {
        return each();
    }
    if sizes().any(|size| !is_plain(size)) {
        // Numbers near 1 are easier to read without a power.
        let one = |v: &f64| match v.abs() {
            size if size == 0.0 || (1e-3..1e4).contains(&size) => number(*v),
            _ => scientific(*v),
        };
        return values.iter().map(one).collect();
    }
    let smallest = sizes().fold(largest, f64::min);
    let most = decimals(largest);
    let needed = |text: &String| text.split_once('.').map_or(0, |(_, f)| f.len());
    // The smallest must be shown to within a tenth.
    if smallest < 5.0 * 10f64.powi(-(most as i32)) {
        return each();
    }
    let shown = each().iter().map(needed).max().unwrap_or(0).min(most);
    values.iter().map(|v| grouped(*v, shown)).collect()
}

/// Returns whether a number of this size is formatted without a power of ten.
fn is_plain(size: f64) -> bool {
    size == 0.0 || (1e-4..1e7).contains(&size)
}

/// Formats a number with a power of ten and up to three digits: 2e-5, 1.23e8.
fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, power)) => {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}e{power}")
        }
        None => text,
    }
}

/// Returns the decimals for about four digits of a number of this size.
fn decimals(size: f64) -> usize {
    match size {
        s if s >= 1000.0 => 0,
        s if s >= 100.0 => 1,
        s if s >= 10.0 => 2,
        s if s >= 0.01 => 3,
        _ => 5,
    }
}

/// Formats a number with so many decimals and separated thousands.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        "" => format!("{sign}{grouped}"),
        _ => format!("{sign}{grouped}.{fraction}"),
    }
}

/// Returns round values (1, 2 or 5 times a power of ten) inside `low..=high` that divide it into about
/// `count` steps; none if the range is empty or not finite.
pub fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 || count == 0 {
        return Vec::new();
    }
    let raw = span / count as f64;
    let power = 10f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
    let step = steps.into_iter().find(|&step| step >= raw * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// Returns ticks of an axis over decimal exponents: powers of ten; in a smaller range also 2 and 5 times
/// these; in an even smaller one [ordinary round values](ticks).
pub fn logarithmic_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    if !(high - low).is_finite() {
        return Vec::new();
    }
    let (first, last) = (low.ceil() as i32, high.floor() as i32);
    let powers = u32::try_from(last - first + 1).unwrap_or(0);
    if powers >= 3 {
        let step = powers.div_ceil(count.max(1) as u32) as i32;
        let round = (first..=last).filter(|exponent| exponent % step == 0);
        return round.map(f64::from).collect();
    }
    let between = (low.floor() as i32..=high.floor() as i32)
        .flat_map(|power| [1.0f64, 2.0, 5.0].map(|m| f64::from(power) + m.log10()))
        .filter(|exponent| (low..=high).contains(exponent));
    let between: Vec<f64> = between.collect();
    if between.len() >= 2 {
        return between;
    }
    let values = ticks(10f64.powf(low), 10f64.powf(high), count);
    values.into_iter().map(f64::log10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(3.1, 9.2, 4), [4.0, 6.0, 8.0]);
        assert_eq!(ticks(5.0, 5.0, 3), [] as [f64; 0]);
        assert_eq!(ticks(0.0, f64::NAN, 3), [] as [f64; 0]);
    }

    #[test]
    fn logarithmic_ticks_are_round_values() {
        let shown = |low: f64, high: f64| -> Vec<String> {
            let ticks = logarithmic_ticks(low.log10(), high.log10(), 6);
            ticks.iter().map(|t| number(10f64.powf(*t))).collect()
        };
        assert_eq!(shown(0.5, 2000.0), ["1", "10", "100", "1,000"]);
        assert_eq!(shown(1.5, 40.0), ["2", "5", "10", "20"]);
        let expected = ["1e-8", "1e-6", "0.0001", "0.01", "1", "100"];
        assert_eq!(shown(2e-9, 5e3), expected);
        assert_eq!(shown(1.0, 48.0), ["1", "2", "5", "10", "20"]);
        assert_eq!(shown(310.0, 480.0), ["350", "400", "450"]);
        assert_eq!(shown(1.0, 1.0), [] as [&str; 0]);
        assert_eq!(logarithmic_ticks(0.0, f64::NAN, 3), [] as [f64; 0]);
    }

    #[test]
    fn numbers_read_well() {
        let cases = "0 0  1234567 1,234,567  8000 8,000  -1000 -1,000  8.98720 8.987  12.50 12.5  0.0123 0.012 \
                     0.0015 0.0015  0.0005 0.0005  0.00002 2e-5  -1.2345e9 -1.23e9  1000.4 1,000  NaN NaN";
        for case in cases.split_whitespace().collect::<Vec<_>>().chunks(2) {
            assert_eq!(number(case[0].parse().unwrap()), case[1]);
        }
    }

    #[test]
    fn numbers_that_stand_together_have_one_form() {
        for (values, texts) in [
            ("80.48 9.476 0.89 0.085", "80.48 9.48 0.89 0.09"),
            ("0 0.5 1 1.25", "0.00 0.50 1.00 1.25"),
            ("12 1000", "12 1,000"),
            ("0.25 0.5 1", "0.25 0.50 1.00"),
            ("1.5 1000", "1.5 1,000"),
            ("100 0.0003", "100 0.0003"),
            ("0 2e-5 4e-5 1e-4", "0 2e-5 4e-5 1e-4"),
            ("3.3e-11 0.1002", "3.3e-11 0.1"),
            ("1 1e5 1e10", "1 1e5 1e10"),
            ("1 NaN", "1 NaN"),
            ("0", "0"),
        ] {
            let values = values.split(' ').map(|value| value.parse().unwrap());
            assert_eq!(numbers(&values.collect::<Vec<_>>()).join(" "), texts);
        }
    }

    #[test]
    fn ink_follows_the_page_and_labels_are_escaped() {
        let svg = finish(
            "<svg width=\"1\"><text fill=\"#7A8088\" font-family=\"sans-serif\"/></svg>",
            "a < \"b\"",
        );
        assert!(svg.contains("fill=\"currentColor\""));
        assert!(svg.contains("aria-label=\"a &lt; &quot;b&quot;\""));
        assert!(svg.contains("color=\"#7A8088\""));
    }
}
