//! Heat maps: attention weights, tensors, any table of numbers.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::display::{Content, Show};
use super::picture;
use super::style::{self, INK, TEXT_SIZE, TITLE_SIZE, WIDTH};
use crate::error::Result;

const HEAD: i32 = 40;

/// A table of values as coloured cells: blue above zero, orange below, the stronger the further
/// from it. Weak cells let the page shine through, so the map reads on light and on dark.
#[derive(Debug, Clone)]
pub struct HeatMap {
    title: String,
    rows: Vec<String>,
    columns: Vec<String>,
    values: Vec<f64>,
    width: usize,
}

impl HeatMap {
    /// A map of `values`, row by row, each row `width` long.
    ///
    /// # Panics
    /// Where the values do not fill whole rows.
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

    /// Names the rows and columns (tokens, say); missing names are left empty.
    pub fn labels<S: ToString>(mut self, rows: &[S], columns: &[S]) -> Self {
        self.rows = rows.iter().map(S::to_string).collect();
        self.columns = columns.iter().map(S::to_string).collect();
        self
    }

    fn height(&self) -> usize {
        self.values.len() / self.width
    }

    fn strongest(&self) -> f64 {
        let sizes = self
            .values
            .iter()
            .filter(|v| v.is_finite())
            .map(|v| v.abs());
        sizes.fold(0.0, f64::max)
    }

    /// The map as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let longest = |names: &[String]| {
            let widths = names.iter().map(|n| style::text_width(n, TEXT_SIZE));
            widths.max().map_or(0, |w| w + 10)
        };
        let (left, above) = (14 + longest(&self.rows), longest(&self.columns));
        // Cells shrink until the map fits the page; they stay square.
        let cell = ((WIDTH as i32 - left - 14) / self.width as i32).clamp(2, 34);
        // Room for a title, where there is one.
        let head = if self.title.is_empty() { 8 } else { HEAD };
        let height = head + above + cell * self.height() as i32 + 12;
        picture::svg((WIDTH, height as u32), &self.title, |root| {
            self.draw(root, (left, head + above), cell)
        })
    }

    /// The map as the bytes of a PNG file: on white, two pixels for each of the SVG's.
    ///
    /// # Errors
    /// Where it is too large to be rendered: many thousands of rows.
    pub fn png(&self) -> Result<Vec<u8>> {
        picture::png(&self.svg())
    }

    /// Writes the map to `path`, whose ending says how: `.svg` or `.png`.
    ///
    /// # Errors
    /// Where the name ends otherwise or the file can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        picture::save(&self.svg(), path.as_ref())
    }

    fn draw<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, plotters::coord::Shift>,
        (left, top): (i32, i32),
        cell: i32,
    ) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        root.draw(&Text::new(
            self.title.clone(),
            (14, 10),
            style::text(TITLE_SIZE, INK, HPos::Left, VPos::Top),
        ))?;
        let strongest = self.strongest();
        // Numbers are written where a cell holds them.
        let written = cell >= 30 && self.values.len() <= 256;
        for (index, &value) in self.values.iter().enumerate() {
            if !value.is_finite() {
                continue;
            }
            let (row, column) = ((index / self.width) as i32, (index % self.width) as i32);
            let (x, y) = (left + column * cell, top + row * cell);
            let share = match value / strongest {
                share if share.is_finite() => share,
                _ => 0.0,
            };
            // Never opaque: the page's text colour must read on the strongest cell.
            let color = style::series(usize::from(share < 0.0)).mix(0.04 + 0.62 * share.abs());
            root.draw(&Rectangle::new(
                [(x, y), (x + cell - 1, y + cell - 1)],
                color.filled(),
            ))?;
            if written {
                root.draw(&Text::new(
                    format!("{value:.2}").replacen("0.", ".", 1),
                    (x + cell / 2, y + cell / 2),
                    style::text(TEXT_SIZE - 2, INK, HPos::Center, VPos::Center),
                ))?;
            }
        }
        for (row, name) in self.rows.iter().take(self.height()).enumerate() {
            root.draw(&Text::new(
                name.clone(),
                (left - 6, top + row as i32 * cell + cell / 2),
                style::text(TEXT_SIZE, INK, HPos::Right, VPos::Center),
            ))?;
        }
        for (column, name) in self.columns.iter().take(self.width).enumerate() {
            root.draw(&Text::new(
                name.clone(),
                (left + column as i32 * cell + cell / 2, top - 6),
                style::text(TEXT_SIZE, INK, HPos::Left, VPos::Center)
                    .transform(FontTransform::Rotate270),
            ))?;
        }
        Ok(())
    }
}

/// Up to this many rows and columns a terminal shows one by one; of more, neighbours share a cell.
const CELLS: usize = 32;
/// Shades of what is above zero and of what is below it, from weak to strong.
const ABOVE: [char; 5] = [' ', '░', '▒', '▓', '█'];
const BELOW: [char; 5] = [' ', '·', '-', '=', '≡'];

impl HeatMap {
    /// What a terminal shows in place of the picture.
    pub fn text(&self) -> String {
        let strongest = self.strongest();
        let tall = self.height().div_ceil(CELLS).max(1);
        let wide = self.width.div_ceil(CELLS);
        let rows = if tall == 1 { &self.rows[..] } else { &[] };
        let names = rows.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        let mut out = self.title.clone();
        if wide == 1 {
            out += &self.column_names(names);
        }
        let mut negative = false;
        for (index, band) in self.values.chunks(self.width * tall).enumerate() {
            let name = rows.get(index).map_or("", String::as_str);
            let mut cells = String::new();
            for column in (0..self.width).step_by(wide) {
                // Of the values that share a cell the strongest is what one would look for.
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

    /// The names of the columns, read downwards.
    fn column_names(&self, left: usize) -> String {
        let names: Vec<Vec<char>> = self
            .columns
            .iter()
            .take(self.width)
            .map(|name| name.chars().collect())
            .collect();
        let longest = names.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = String::new();
        for line in 0..longest {
            // They end above their column.
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

/// What the shades mean.
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

impl Show for HeatMap {
    fn content(&self) -> Content {
        Content::html(style::figure(&self.svg())).with_text(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strong_cells_are_dark_and_negative_ones_have_their_own_colour() {
        let map = HeatMap::new("map", &[1.0, 0.0, -1.0, 0.5], 2).labels(&["a", "b"], &["x", "y"]);
        assert_eq!(
            map.text(),
            "map\n     x y\n  a |██  |\n  b |≡≡▒▒|\n     -1 ≡=-· 0 ░▒▓█ 1"
        );
        let svg = map.svg();
        assert!(svg.contains("#2F86D1") && svg.contains("#E07B1F"));
        assert!(svg.contains("rotate(270") && svg.contains(".50"));
    }

    #[test]
    fn a_large_map_fits_a_terminal_and_keeps_its_strongest_cells() {
        let mut values = vec![0.0; 100 * 300];
        values[50 * 300 + 299] = -2.0;
        let text = HeatMap::new("large", &values, 300)
            .labels(&["a"; 100], &["b"; 300])
            .text();
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
        assert!(text.lines().count() < 40, "{text}");
        assert!(text.contains("≡≡|") && text.contains("4×10"), "{text}");
    }

    #[test]
    fn a_map_of_zeros_or_of_nothing_draws() {
        assert!(HeatMap::new("zeros", &[0.0; 4], 2).svg().contains("</svg>"));
        assert!(HeatMap::new("none", &[], 2).svg().contains("</svg>"));
        assert!(
            HeatMap::new("zeros", &[0.0; 4], 2)
                .text()
                .contains("|    |")
        );
        assert!(
            HeatMap::new("none", &[f32::NAN; 2], 2)
                .text()
                .contains("|    |")
        );
    }

    #[test]
    #[should_panic(expected = "3 values do not fill rows of 2")]
    fn a_ragged_table_is_refused() {
        HeatMap::new("ragged", &[0.0; 3], 2);
    }
}
