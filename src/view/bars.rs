//! Horizontal bar charts: counts and scores by name.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::picture::{self, Canvas, Outcome};
use super::style::{self, INK, TEXT_SIZE, WIDTH};

const ROW: i32 = 24;
const HEAD: i32 = 40;

/// Named values as bars from zero, one a row, in the order given; the value stands at the end.
///
/// Values are expected to be finite and not negative; others are drawn as zero.
#[derive(Debug, Clone, Default)]
pub struct BarChart {
    title: String,
    unit: String,
    bars: Vec<Bar>,
}

#[derive(Debug, Clone)]
struct Bar {
    name: String,
    value: f64,
    /// Whether it is to be compared with the one above it.
    beside: bool,
}

impl BarChart {
    /// An empty chart.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// What the values count, written behind each of them ("%", "tokens").
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Adds one bar.
    pub fn bar(self, name: impl Into<String>, value: f64) -> Self {
        self.with(name.into(), value, false)
    }

    /// Adds a bar that is to be compared with the one above it: in the second colour.
    pub fn beside(self, name: impl Into<String>, value: f64) -> Self {
        self.with(name.into(), value, true)
    }

    /// Adds a bar for each pair.
    pub fn bars<N: Into<String>>(self, bars: impl IntoIterator<Item = (N, f64)>) -> Self {
        let bars = bars.into_iter();
        bars.fold(self, |chart, (name, value)| chart.bar(name, value))
    }

    fn with(mut self, name: String, value: f64, beside: bool) -> Self {
        self.bars.push(Bar {
            name,
            value,
            beside,
        });
        self
    }

    fn longest(&self) -> f64 {
        let lengths = self.bars.iter().map(|bar| length(bar.value));
        lengths.fold(0.0, f64::max)
    }

    /// What stands at the end of each bar.
    fn value_labels(&self) -> Vec<String> {
        let values: Vec<f64> = self.bars.iter().map(|bar| bar.value).collect();
        let mut labels = style::numbers(&values);
        if !self.unit.is_empty() {
            labels
                .iter_mut()
                .for_each(|l| *l += &format!(" {}", self.unit));
        }
        labels
    }

    /// The chart as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let height = HEAD + ROW * self.bars.len() as i32 + 8;
        picture::svg((WIDTH, height as u32), &self.title, |root| self.draw(root))
    }

    fn draw(&self, root: &Canvas<'_>) -> Outcome<()> {
        let labels = self.value_labels();
        let widest = |texts: &mut dyn Iterator<Item = &String>| {
            let widths = texts.map(|text| style::text_width(text, TEXT_SIZE));
            widths.max().unwrap_or(0)
        };
        let names = 14 + widest(&mut self.bars.iter().map(|bar| &bar.name));
        let values = 16 + widest(&mut labels.iter());
        let room = f64::from((WIDTH as i32 - names - 8 - values).max(40));
        let longest = self.longest();
        picture::title(root, &self.title)?;
        for (row, (bar, label)) in self.bars.iter().zip(&labels).enumerate() {
            let middle = HEAD + ROW * row as i32 + ROW / 2;
            let width = match longest {
                0.0 => 0,
                longest => (room * length(bar.value) / longest).round() as i32,
            };
            let left = names + 8;
            root.draw(&Text::new(
                bar.name.clone(),
                (names, middle),
                style::text(TEXT_SIZE, INK, HPos::Right, VPos::Center),
            ))?;
            root.draw(&Rectangle::new(
                [(left, middle - 8), (left + width.max(1), middle + 8)],
                style::series(usize::from(bar.beside)).filled(),
            ))?;
            root.draw(&Text::new(
                label.clone(),
                (left + width + 7, middle),
                style::text(TEXT_SIZE, INK, HPos::Left, VPos::Center),
            ))?;
        }
        Ok(())
    }
}

/// How long a bar is drawn: nothing below zero or beyond numbers.
fn length(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}

/// Bars end in eighths of a character.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

impl BarChart {
    /// What a terminal shows in place of the picture.
    pub fn text(&self) -> String {
        let names = self.bars.iter().map(|bar| bar.name.chars().count());
        let names = names.max().unwrap_or(0);
        let longest = self.longest();
        let mut out = self.title.clone();
        for (Bar { name, value, .. }, label) in self.bars.iter().zip(self.value_labels()) {
            let eighths = match longest {
                0.0 => 0,
                longest => (8.0 * 40.0 * length(*value) / longest).round() as usize,
            };
            let bar = "█".repeat(eighths / 8) + PARTS[eighths % 8];
            out += &format!("\n  {name:>names$} {bar} {label}");
        }
        out
    }
}

picture::shown_and_saved!(BarChart);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let text = BarChart::new("Pieces")
            .bar("the", 40.0)
            .bar("##s", 10.5)
            .text();
        let lengths: Vec<usize> = text
            .lines()
            .skip(1)
            .map(|l| l.matches('█').count())
            .collect();
        assert_eq!(lengths, [40, 10]);
        assert!(text.ends_with("▌ 10.5"), "{text}");
    }

    #[test]
    fn a_bar_beside_another_has_a_colour_of_its_own() {
        let svg = BarChart::new("x").bar("a", 1.0).beside("b", 2.0).svg();
        for (index, count) in [(0, 1), (1, 1), (2, 0)] {
            let RGBColor(red, green, blue) = style::series(index);
            let colour = format!("#{red:02X}{green:02X}{blue:02X}");
            assert_eq!(svg.matches(&colour).count(), count, "{colour}");
        }
    }

    #[test]
    fn values_that_cannot_be_drawn_do_not_break_the_chart() {
        let chart = BarChart::new("odd").bars([("nan", f64::NAN), ("minus", -1.0), ("none", 0.0)]);
        assert!(chart.svg().contains("NaN"));
    }
}
