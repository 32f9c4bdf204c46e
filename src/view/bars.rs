//! Horizontal bar charts of named values.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::picture::{self, Canvas, Outcome};
use super::style::{self, TEXT_SIZE, WIDTH};

const ROW: i32 = 24;
const HEAD: i32 = 40;

/// A bar from zero for each named value, in the order given, with the value at its end.
///
/// Values that are negative or not finite are drawn as zero.
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
    /// Whether it is compared with the bar above it.
    beside: bool,
}

impl BarChart {
    /// Creates an empty chart.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Sets the unit that is written after each value ("%", "tokens").
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Adds a bar.
    pub fn bar(self, name: impl Into<String>, value: f64) -> Self {
        self.with(name.into(), value, false)
    }

    /// Adds a bar in the second colour, for comparison with the one above it.
    pub fn beside(self, name: impl Into<String>, value: f64) -> Self {
        self.with(name.into(), value, true)
    }

    /// Adds a bar for each pair.
    pub fn bars<N: Into<String>>(self, bars: impl IntoIterator<Item = (N, f64)>) -> Self {
        let bars = bars.into_iter();
        bars.fold(self, |chart, (name, value)| chart.bar(name, value))
    }

    fn with(mut self, name: String, value: f64, beside: bool) -> Self {
        self.bars.push(Bar { name, value, beside });
        self
    }

    fn longest(&self) -> f64 {
        let lengths = self.bars.iter().map(|bar| length(bar.value));
        lengths.fold(0.0, f64::max)
    }

    /// Returns the labels at the ends of the bars.
    fn value_labels(&self) -> Vec<String> {
        let values: Vec<f64> = self.bars.iter().map(|bar| bar.value).collect();
        let mut labels = style::numbers(&values);
        if !self.unit.is_empty() {
            labels.iter_mut().for_each(|label| *label += &format!(" {}", self.unit));
        }
        labels
    }

    /// Returns the chart as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let height = HEAD + ROW * self.bars.len() as i32 + 8;
        picture::svg((WIDTH, height as u32), &self.title, |root| self.draw(root))
    }

    fn draw(&self, root: &Canvas<'_>) -> Outcome<()> {
        let labels = self.value_labels();
        let names = 14 + style::widest(self.bars.iter().map(|bar| &bar.name), TEXT_SIZE);
        let values = 16 + style::widest(labels.iter(), TEXT_SIZE);
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
            picture::label(root, &bar.name, (names, middle), HPos::Right)?;
            root.draw(&Rectangle::new(
                [(left, middle - 8), (left + width.max(1), middle + 8)],
                style::series(usize::from(bar.beside)).filled(),
            ))?;
            picture::label(root, label, (left + width + 7, middle), HPos::Left)?;
        }
        Ok(())
    }

    /// Returns the chart in characters, for a terminal.
    pub fn text(&self) -> String {
        let names = style::longest(self.bars.iter().map(|bar| &bar.name));
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

/// Returns the value that a bar's length stands for.
fn length(value: f64) -> f64 {
    match value.is_finite() {
        true => value.max(0.0),
        false => 0.0,
    }
}

/// Bars end in eighths of a character.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

picture::shown_and_saved!(BarChart);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let chart = BarChart::new("Pieces").bars([("the", 40.0), ("##s", 10.5)]);
        let text = chart.text();
        let lengths = text.lines().skip(1).map(|l| l.matches('█').count());
        assert!(lengths.eq([40, 10]), "{text}");
        assert!(text.ends_with("▌ 10.5"), "{text}");
    }

    #[test]
    fn a_bar_beside_another_has_its_own_colour() {
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
