//! Charts in characters, for terminals: curves over axes with numbers.
//!
//! The first line of a plot is drawn in braille, with eight dots a character; each further series has its own
//! mark, so that they are distinguishable without colours.

use super::axis::Axis;
use super::style::longest;

/// Columns of the whole plot, which fit an 80-column terminal.
const COLUMNS: usize = 78;
/// Rows of the plot's area, and its least columns beside long labels.
const ROWS: usize = 14;
const NARROWEST: usize = 24;
/// Columns and rows of dots in a braille character.
const DOTS: (usize, usize) = (2, 4);
/// Marks of the series after the first line.
const MARKS: [char; 5] = ['o', '+', 'x', '*', '#'];
const DASH: char = '┄';

/// A series, in the coordinates of the axes.
pub struct Curve<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Whether a line connects the points.
    pub connected: bool,
}

/// A plot.
pub struct TextPlot<'a> {
    /// Its title.
    pub title: &'a str,
    /// Titles of the axes.
    pub axes: (&'a str, &'a str),
    /// The series.
    pub curves: Vec<Curve<'a>>,
    /// Labels and heights of horizontal lines.
    pub levels: Vec<(String, f64)>,
    /// Whether both axes run over decimal exponents.
    pub logarithmic: bool,
}

/// The content of a cell of the area. Later contents replace earlier ones, but dots are added to dots.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Empty,
    Dash,
    Dots(u8),
    Mark(char),
}

impl Cell {
    fn character(self) -> char {
        match self {
            Self::Empty => ' ',
            Self::Dash => DASH,
            // Every byte is a pattern of the braille block.
            Self::Dots(dots) => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
            Self::Mark(mark) => mark,
        }
    }
}

/// Returns the dot of `value` on an axis of so many dots, if it is on the axis.
fn dot_on(axis: &Axis, value: f64, dots: usize) -> Option<usize> {
    let share = axis.share(value);
    // Tolerates rounding of the ends.
    ((-1e-9..=1.0 + 1e-9).contains(&share))
        .then(|| (share.clamp(0.0, 1.0) * (dots - 1) as f64).round() as usize)
}

struct Area<'a> {
    cells: Vec<Cell>,
    columns: usize,
    x: &'a Axis,
    y: &'a Axis,
}

impl Area<'_> {
    /// Returns the dot of a point, counted from the upper left corner.
    fn dot(&self, (x, y): (f64, f64)) -> Option<(usize, usize)> {
        let across = dot_on(self.x, x, self.columns * DOTS.0)?;
        let up = dot_on(self.y, y, ROWS * DOTS.1)?;
        Some((across, ROWS * DOTS.1 - 1 - up))
    }

    fn row(&self, y: f64) -> Option<usize> {
        let up = dot_on(self.y, y, ROWS * DOTS.1)?;
        Some((ROWS * DOTS.1 - 1 - up) / DOTS.1)
    }

    fn set(&mut self, (x, y): (usize, usize), mark: Option<char>) {
        /// The bits of a braille pattern by row and column.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let cell = &mut self.cells[y / DOTS.1 * self.columns + x / DOTS.0];
        let bit = BITS[y % DOTS.1][x % DOTS.0];
        *cell = match (mark, *cell) {
            (Some(mark), _) => Cell::Mark(mark),
            (None, Cell::Dots(dots)) => Cell::Dots(dots | bit),
            (None, _) => Cell::Dots(bit),
        };
    }

    fn draw(&mut self, curve: &Curve, mark: Option<char>) {
        let mut before = None;
        for point in &curve.points {
            let dot = self.dot(*point);
            if let Some(dot) = dot {
                match before {
                    // Marks along a line would run together, so only its points have marks.
                    Some(before) if curve.connected && mark.is_none() => self.line(before, dot),
                    _ => self.set(dot, mark),
                }
            }
            before = dot;
        }
    }

    /// Draws a straight line of dots.
    fn line(&mut self, from: (usize, usize), to: (usize, usize)) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |from: usize, to: usize, step: usize| {
            let share = step as f64 / steps as f64;
            (from as f64 + (to as f64 - from as f64) * share).round() as usize
        };
        for step in 0..=steps {
            let dot = (between(from.0, to.0, step), between(from.1, to.1, step));
            self.set(dot, None);
        }
    }
}

impl TextPlot<'_> {
    /// Returns the plot in lines of at most 78 columns, unless its names are longer.
    pub fn text(&self) -> String {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let levels = self.levels.iter().map(|level| level.1);
        let across = points().map(|point| point.0);
        let up = points().map(|point| point.1).chain(levels);
        let x = Axis::over(across, 0.0, self.logarithmic);
        let y = Axis::over(up, 0.0, self.logarithmic);
        let left = longest(y.ticks().iter().map(|tick| &tick.1));
        let right = longest(self.levels.iter().map(|level| &level.0));
        let columns = COLUMNS.saturating_sub(left + right + 4).max(NARROWEST);

        let mut area = Area { cells: vec![Cell::Empty; columns * ROWS], columns, x: &x, y: &y };
        let mut names = vec![String::new(); ROWS];
        for (name, y) in &self.levels {
            let Some(row) = area.row(*y) else { continue };
            area.cells[row * columns..(row + 1) * columns].fill(Cell::Dash);
            // A label whose row is taken goes to the next free row.
            let mut rows = (row..ROWS).chain((0..row).rev());
            if let Some(free) = rows.find(|&row| names[row].is_empty()) {
                names[free].clone_from(name);
            }
        }
        for (curve, mark) in self.curves.iter().zip(self.marks()) {
            area.draw(curve, mark);
        }

        let mut out = self.head();
        for (row, (cells, name)) in area.cells.chunks(columns).zip(&names).enumerate() {
            let mut ticks = y.ticks().iter();
            let tick = ticks.find(|(value, _)| area.row(*value) == Some(row));
            let (number, edge) = tick.map_or(("", '│'), |(_, number)| (number, '┤'));
            let line: String = cells.iter().map(|cell| cell.character()).collect();
            out += format!("\n{number:>left$} {edge}{line} {name}").trim_end();
        }
        out += &format!("\n{:left$} └{}", "", "─".repeat(columns));
        out + "\n" + &bottom(&x, left + 2, columns, self.axes.0)
    }

    /// Returns the mark of each series; the first line has none, because it is drawn in dots.
    fn marks(&self) -> Vec<Option<char>> {
        let first = self.curves.iter().position(|curve| curve.connected);
        let mut marks = MARKS.iter().cycle();
        let mark = |index| match Some(index) == first {
            true => None,
            false => marks.next().copied(),
        };
        (0..self.curves.len()).map(mark).collect()
    }

    /// Returns the title with that of the vertical axis, and the legend.
    fn head(&self) -> String {
        let mut out = match self.axes.1 {
            "" => self.title.to_owned(),
            y => format!("{} · {y}", self.title),
        };
        let named = self.curves.iter().zip(self.marks());
        let named: Vec<String> =
            named.map(|(curve, mark)| format!("{} {}", mark.unwrap_or('⠒'), curve.name)).collect();
        if !named.is_empty() {
            out += &format!("\n{}", named.join("   "));
        }
        out
    }
}

/// Returns the numbers below the horizontal axis, with its title at the right.
fn bottom(x: &Axis, left: usize, columns: usize, title: &str) -> String {
    let mut line = " ".repeat(left);
    for (value, text) in x.ticks() {
        let Some(dot) = dot_on(x, *value, columns * DOTS.0) else {
            continue;
        };
        let length = text.chars().count();
        let from = (left + dot / DOTS.0).saturating_sub(length / 2);
        let filled = line.chars().count();
        // Numbers don't touch, and stay inside the plot.
        if (from > filled || filled <= left) && from + length <= left + columns {
            line += &" ".repeat(from.saturating_sub(filled));
            line += text;
        }
    }
    if !title.is_empty() {
        let room = (left + columns).saturating_sub(line.chars().count() + title.chars().count());
        line += &" ".repeat(room.max(2));
        line += title;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> TextPlot<'static> {
        TextPlot {
            title: "Loss",
            axes: ("step", "nats"),
            curves: vec![Curve { name: "training", points, connected: true }],
            levels: vec![("guess 9".to_owned(), 9.0)],
            logarithmic: false,
        }
    }

    fn falling() -> Vec<(f64, f64)> {
        (0..=100).map(|i| (f64::from(i), 8.0 - f64::from(i) / 20.0)).collect()
    }

    #[test]
    fn a_falling_line_falls_between_numbered_axes() {
        let text = plot(falling()).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Loss · nats");
        assert_eq!(lines.len(), 2 + ROWS + 2, "{text}");
        assert!(lines[2].contains(DASH) && lines[2].ends_with("guess 9"));
        assert!(text.contains("8 ┤") && text.contains("4 ┤"), "{text}");
        assert!(text.lines().last().unwrap().ends_with("step"), "{text}");
        let braille = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
        let area = lines[2..2 + ROWS].iter();
        let starts = area.filter_map(|line| line.chars().position(braille));
        let starts: Vec<usize> = starts.collect();
        assert!(starts.len() > 8 && starts.is_sorted(), "{text}");
        assert!(longest(text.lines()) <= COLUMNS, "{text}");
    }

    #[test]
    fn further_series_have_marks_and_names() {
        let mut plot = plot(falling());
        plot.curves.push(Curve {
            name: "held out",
            points: vec![(50.0, 6.0), (100.0, 4.0)],
            connected: true,
        });
        let text = plot.text();
        assert!(text.contains("⠒ training   o held out"), "{text}");
        let marks = text.lines().skip(2).flat_map(|line| line.matches('o'));
        assert_eq!(marks.count(), 2, "{text}");
    }

    #[test]
    fn no_point_one_point_and_odd_numbers_do_not_panic() {
        for points in [
            vec![],
            vec![(1.0, 1.0)],
            vec![(0.0, f64::NAN), (f64::INFINITY, 1.0)],
            vec![(1e300, -1e300), (-1e300, 1e300)],
        ] {
            let text = plot(points).text();
            assert!(text.lines().count() >= ROWS, "{text}");
        }
    }

    #[test]
    fn numbers_of_an_axis_have_the_same_format() {
        let text = plot(vec![(0.0, 8.0), (1.2, 9.0)]).text();
        let bottom = text.lines().last().unwrap();
        let numbers: Vec<&str> = bottom.split_whitespace().collect();
        let all = ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "step"];
        assert_eq!(numbers, all, "{text}");
        assert!(text.contains("9.0 ┤") && text.contains("8.2 ┤"), "{text}");
    }

    #[test]
    fn labels_of_close_levels_are_in_different_rows() {
        let mut plot = plot(falling());
        plot.levels.push(("entropy 8.99".to_owned(), 8.99));
        let text = plot.text();
        assert!(text.contains("guess 9\n"), "{text}");
        assert!(text.contains("entropy 8.99\n"), "{text}");
    }
}
