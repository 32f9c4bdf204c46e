//! Heat maps: attention weights, tensors, any table of numbers.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::picture::{self, Canvas, Outcome};
use super::style::{self, INK, TEXT_SIZE, WIDTH};

const HEAD: i32 = 40;
/// Smallest height of rows with names below each other.
const ROW: i32 = 17;
/// Height of the colour scale.
const SCALE: i32 = 26;
/// The size of the numbers in the cells.
const CELL_SIZE: u32 = TEXT_SIZE - 2;

/// A table of values as coloured cells: blue above zero, orange below, stronger further from zero. Weak cells
/// are transparent, so the map is legible on light and dark pages.
#[derive(Debug, Clone)]
pub struct HeatMap {
    title: String,
    rows: Vec<String>,
    columns: Vec<String>,
    values: Vec<f64>,
    width: usize,
}

impl HeatMap {
    /// Creates a map of `values`, row by row, each row `width` long.
    ///
    /// # Panics
    /// If the values do not fill whole rows.
    pub fn new(title: impl Into<String>, values: &[f32], width: usize) -> Self {
        assert!(
            width > 0 && values.len().is_multiple_of(width),
            "{} values do not fill rows of {width}",
            values.len()
        );
        Self {
            title: title.into(),
            rows: Vec::new(),
            columns: Vec::new(),
            values: values.iter().map(|&v| f64::from(v)).collect(),
            width,
        }
    }

    /// Sets the names of rows and columns, such as tokens; missing names stay empty.
    pub fn labels<S: ToString>(mut self, rows: &[S], columns: &[S]) -> Self {
        self.rows = rows.iter().map(S::to_string).collect();
        self.columns = columns.iter().map(S::to_string).collect();
        self
    }

    fn height(&self) -> usize {
        self.values.len() / self.width
    }

    fn strongest(&self) -> f64 {
        let finite = self.values.iter().filter(|v| v.is_finite());
        finite.map(|v| v.abs()).fold(0.0, f64::max)
    }

    /// Returns the map as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let room = |names: &[String]| match names {
            [] => 0,
            names => style::widest(names.iter(), TEXT_SIZE) + 10,
        };
        let (left, above) = (14 + room(&self.rows), room(&self.columns));
        // Cells shrink until the map fits the page; they are square unless names need more height.
        let wide = ((WIDTH as i32 - left - 14) / self.width as i32).clamp(2, 34);
        let named = |pair: &[String]| pair.iter().all(|name| !name.is_empty());
        let close = self.rows.windows(2).any(named);
        let high = if close { wide.max(ROW) } else { wide };
        let cell = (wide, high);
        // Room for the title, if there is one.
        let head = if self.title.is_empty() { 8 } else { HEAD };
        let scale = if self.is_written(wide) { 0 } else { SCALE };
        let height = head + above + high * self.height() as i32 + scale + 12;
        picture::svg((WIDTH, height as u32), &self.title, |root| {
            self.draw(root, (left, head + above), cell)
        })
    }

    fn draw(
        &self,
        root: &Canvas<'_>,
        (left, top): (i32, i32),
        (wide, high): (i32, i32),
    ) -> Outcome<()> {
        picture::title(root, &self.title)?;
        let strongest = self.strongest();
        let written = self.is_written(wide);
        let decimals = self.decimals();
        for (index, &value) in self.values.iter().enumerate() {
            if !value.is_finite() {
                continue;
            }
            let (row, column) = ((index / self.width) as i32, (index % self.width) as i32);
            let (x, y) = (left + column * wide, top + row * high);
            let share = match value / strongest {
                share if share.is_finite() => share,
                _ => 0.0,
            };
            root.draw(&Rectangle::new(
                [(x, y), (x + wide - 1, y + high - 1)],
                tint(share).filled(),
            ))?;
            if written {
                root.draw(&Text::new(
                    in_cell(value, decimals),
                    (x + wide / 2, y + high / 2),
                    style::text(CELL_SIZE, INK, HPos::Center, VPos::Center),
                ))?;
            }
        }
        for (row, name) in self.rows.iter().take(self.height()).enumerate() {
            let at = (left - 6, top + row as i32 * high + high / 2);
            picture::label(root, name, at, HPos::Right)?;
        }
        for (column, name) in self.columns.iter().take(self.width).enumerate() {
            root.draw(&Text::new(
                name.clone(),
                (left + column as i32 * wide + wide / 2, top - 6),
                style::text(TEXT_SIZE, INK, HPos::Left, VPos::Center)
                    .transform(FontTransform::Rotate270),
            ))?;
        }
        if !written {
            let at = (left, top + high * self.height() as i32 + 10);
            self.draw_scale(root, at, strongest)?;
        }
        Ok(())
    }

    /// Returns the decimals of the numbers in the cells: none if all values are whole.
    fn decimals(&self) -> usize {
        let mut finite = self.values.iter().filter(|value| value.is_finite());
        match finite.all(|value| value.fract() == 0.0) {
            true => 0,
            false => 2,
        }
    }

    /// Returns whether numbers are written into the cells: if they fit cells of this width in pixels.
    fn is_written(&self, cell: i32) -> bool {
        let decimals = self.decimals();
        let finite = self.values.iter().filter(|value| value.is_finite());
        let widths = finite.map(|v| style::number_width(&in_cell(*v, decimals), CELL_SIZE));
        cell >= 30 && self.values.len() <= 256 && widths.max().unwrap_or(0) + 2 <= cell
    }

    /// Draws the colour scale.
    fn draw_scale(
        &self,
        root: &Canvas<'_>,
        (left, top): (i32, i32),
        strongest: f64,
    ) -> Outcome<()> {
        const STEPS: i32 = 10;
        const BOX: (i32, i32) = (12, 12);
        let negative = self.values.iter().any(|value| *value < 0.0);
        let first = if negative { -STEPS } else { 0 };
        let mut x = left;
        let number = |x: i32, value: f64| {
            let text = style::number(value);
            let width = style::text_width(&text, TEXT_SIZE - 2);
            let at = (x, top + BOX.1 / 2);
            let style = style::text(TEXT_SIZE - 2, INK, HPos::Left, VPos::Center);
            root.draw(&Text::new(text, at, style)).map(|()| x + width + 6)
        };
        x = number(x, if negative { -strongest } else { 0.0 })?;
        for step in first..=STEPS {
            if step == 0 && negative {
                x = number(x + 6, 0.0)?;
            }
            let corners = [(x, top), (x + BOX.0 - 1, top + BOX.1)];
            let color = tint(f64::from(step) / f64::from(STEPS));
            root.draw(&Rectangle::new(corners, color.filled()))?;
            x += BOX.0;
        }
        number(x + 6, strongest)?;
        Ok(())
    }

    /// Returns the map in characters, for a terminal.
    pub fn text(&self) -> String {
        let strongest = self.strongest();
        let tall = self.height().div_ceil(CELLS).max(1);
        let wide = self.width.div_ceil(CELLS);
        let rows = if tall == 1 { &self.rows[..] } else { &[] };
        let names = style::longest(rows.iter());
        let mut out = self.title.clone();
        if wide == 1 {
            out += &self.column_names(names);
        }
        let mut negative = false;
        for (index, band) in self.values.chunks(self.width * tall).enumerate() {
            let name = rows.get(index).map_or("", String::as_str);
            let mut cells = String::new();
            for column in (0..self.width).step_by(wide) {
                // A cell shows the strongest of its values.
                let value = band
                    .chunks(self.width)
                    .flat_map(|row| &row[column..self.width.min(column + wide)])
                    .copied()
                    .filter(|value| value.is_finite())
                    .fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
                let shade = match (value / strongest).abs() {
                    share if share.is_finite() => (share * 4.0).round() as usize,
                    _ => 0,
                };
                negative |= value < 0.0;
                let shade = if value < 0.0 { BELOW } else { ABOVE }[shade];
                cells.extend([shade, shade]);
            }
            out += &format!("\n  {name:>names$} |{cells}|");
        }
        out += &format!("\n  {:names$}  {}", "", scale(strongest, negative));
        if tall > 1 || wide > 1 {
            out += &format!(" · each cell the strongest of {tall}×{wide}");
        }
        out
    }

    /// Returns the names of the columns, to be read downwards.
    fn column_names(&self, left: usize) -> String {
        let names = self.columns.iter().take(self.width);
        let longest = style::longest(names.clone());
        let names: Vec<Vec<char>> = names.map(|name| name.chars().collect()).collect();
        let mut out = String::new();
        for line in 0..longest {
            // Names end just above their columns.
            let letter = |name: &Vec<char>| match (line + name.len()).checked_sub(longest) {
                Some(at) => name[at],
                None => ' ',
            };
            let letters: String = names.iter().flat_map(|name| [letter(name), ' ']).collect();
            out += format!("\n  {:left$}  {letters}", "").trim_end();
        }
        out
    }
}

/// Formats a value for a cell, without a zero before the point.
fn in_cell(value: f64, decimals: usize) -> String {
    // Adding 0 removes the sign of a negative zero.
    let text = format!("{:.decimals$}", value + 0.0);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    match digits.strip_prefix("0.") {
        Some(fraction) => format!("{sign}.{fraction}"),
        None => text,
    }
}

/// Returns the colour of a value by its share of the strongest one. It is never opaque, so that text is
/// legible on the strongest cell.
fn tint(share: f64) -> RGBAColor {
    style::series(usize::from(share < 0.0)).mix(0.04 + 0.62 * share.abs())
}

/// Most rows and columns in a terminal; of more, neighbours share a cell.
const CELLS: usize = 32;
/// Shades of positive and of negative values, from weak to strong.
const ABOVE: [char; 5] = [' ', '░', '▒', '▓', '█'];
const BELOW: [char; 5] = [' ', '·', '-', '=', '≡'];

/// Returns the legend of the shades.
fn scale(strongest: f64, negative: bool) -> String {
    let shades = |shades: [char; 5]| shades.iter().skip(1).collect::<String>();
    let most = style::number(strongest);
    let above = format!("0 {} {most}", shades(ABOVE));
    match negative {
        false => above,
        true => {
            let below: String = shades(BELOW).chars().rev().collect();
            format!("-{most} {below} {above}")
        }
    }
}

picture::shown_and_saved!(HeatMap);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strong_cells_are_dark_and_negative_ones_have_another_colour() {
        let map = HeatMap::new("map", &[1.0, 0.0, -1.0, 0.5], 2).labels(&["a", "b"], &["x", "y"]);
        let expected = "map\n     x y\n  a |██  |\n  b |≡≡▒▒|\n     -1 ≡=-· 0 ░▒▓█ 1";
        assert_eq!(map.text(), expected);
        let svg = map.svg();
        assert!(svg.contains("#2F86D1") && svg.contains("#E07B1F"));
        assert!(svg.contains("rotate(270") && svg.contains(".50"));
    }

    /// Returns the texts of a picture without a title.
    fn texts(values: &[f32], width: usize) -> Vec<String> {
        let svg = HeatMap::new("", values, width).svg();
        let lines = svg.lines().map(str::trim);
        let texts = lines.filter(|line| !line.is_empty() && !line.starts_with('<'));
        texts.map(str::to_owned).collect()
    }

    #[test]
    fn only_a_leading_zero_is_left_out_of_a_cell() {
        for (value, decimals, text) in [
            (10.25, 2, "10.25"),
            (-20.0, 2, "-20.00"),
            (-0.5, 2, "-.50"),
            (2010.0, 2, "2010.00"),
            (0.126, 2, ".13"),
            (0.999, 2, "1.00"),
            (-0.0, 2, ".00"),
            (2010.0, 0, "2010"),
            (-0.0, 0, "0"),
            (-20.0, 0, "-20"),
        ] {
            assert_eq!(in_cell(value, decimals), text);
        }
    }

    #[test]
    fn cells_hold_whole_numbers_without_decimals() {
        let whole = [10.0, -20.0, f32::NAN, 2010.0];
        assert_eq!(texts(&whole, 2), ["10", "-20", "2010"]);
        let expected = ["1.00", ".00", "-1.00", ".50"];
        assert_eq!(texts(&[1.0, 0.0, -1.0, 0.5], 2), expected);
    }

    #[test]
    fn a_number_that_is_too_wide_for_its_cell_is_replaced_by_the_scale() {
        let scale = ["-2,010", "0", "2,010"];
        assert_eq!(texts(&[10.25, -20.0, -0.5, 2010.0], 2), scale);
        assert_eq!(texts(&[0.5, 20_100.0], 2), ["0", "20,100"]);
        // The same texts in narrower cells.
        assert_eq!(texts(&[-1.5; 20], 20).len(), 20);
        assert_eq!(texts(&[-1.5; 23], 23), ["-1.5", "0", "1.5"]);
    }

    #[test]
    fn a_large_map_fits_a_terminal_and_keeps_its_strongest_cells() {
        let mut values = vec![0.0; 100 * 300];
        values[50 * 300 + 299] = -2.0;
        let text = HeatMap::new("large", &values, 300).labels(&["a"; 100], &["b"; 300]).text();
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
        assert!(text.lines().count() < 40, "{text}");
        assert!(text.contains("≡≡|") && text.contains("4×10"), "{text}");
    }

    #[test]
    fn a_map_of_zeros_or_of_nothing_draws() {
        for values in [&[0.0; 4][..], &[], &[f32::NAN; 2]] {
            let map = HeatMap::new("nothing", values, 2);
            assert!(map.svg().contains("</svg>"));
            assert_eq!(map.text().contains("|    |"), !values.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "3 values do not fill rows of 2")]
    fn a_ragged_table_is_refused() {
        HeatMap::new("ragged", &[0.0; 3], 2);
    }
}
