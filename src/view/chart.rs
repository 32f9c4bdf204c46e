//! Line charts: loss curves with their baselines, schedules, frequency plots.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::Axis;
use super::picture::{self, Canvas, FINE, Outcome};
use super::smooth::smooth;
use super::style::{self, INK, TEXT_SIZE, WIDTH};
use super::text_plot::{Curve, TextPlot};

const HEIGHT: u32 = 360;
/// Pixels of the title, and of each row of the legend, above the plot.
const HEAD: i32 = 34;
const LEGEND_ROW: i32 = 22;

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stroke {
    /// A line through the points.
    Line,
    /// The points faintly, and a smoothed line.
    Smoothed,
    /// Only the smoothed line.
    Averaged,
    /// The points faintly, and a line through the means at each x.
    Repeated,
    /// Only the points.
    Points,
}

#[derive(Debug, Clone)]
struct Series {
    name: String,
    stroke: Stroke,
    points: Vec<(f64, f64)>,
}

/// A chart of one or more series, with labelled horizontal lines for values to compare with.
///
/// Points with coordinates that are not finite, or not positive on a logarithmic axis, are left out.
#[derive(Debug, Clone, Default)]
pub struct LineChart {
    title: String,
    x: String,
    y: String,
    series: Vec<Series>,
    references: Vec<(String, f64)>,
    logarithmic: bool,
}

/// Most points drawn below a smoothed line; of more, every n-th is drawn. The cloud looks the same, and the
/// picture of a long run stays small enough to be sent often.
const DOTS: usize = 800;

impl LineChart {
    /// Creates an empty chart.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Sets the titles of the axes, with their units.
    pub fn axes(mut self, x: impl Into<String>, y: impl Into<String>) -> Self {
        (self.x, self.y) = (x.into(), y.into());
        self
    }

    /// Makes both axes logarithmic (base 10).
    pub fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// Adds a line through `points`.
    pub fn line(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Line, points)
    }

    /// Adds noisy measurements: faint points and a smoothed line.
    pub fn smoothed(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Smoothed, points)
    }

    /// Adds noisy measurements as a smoothed line only, for charts with many of them.
    pub fn averaged(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Averaged, points)
    }

    /// Adds repeated measurements, such as those of several seeds: faint points and a line through the means at
    /// each x.
    pub fn repeated(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Repeated, points)
    }

    /// Adds points without a line.
    pub fn points(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Points, points)
    }

    /// Adds a dashed horizontal line at `y`, labelled at its right end.
    pub fn reference(mut self, name: impl Into<String>, y: f64) -> Self {
        self.references.push((name.into(), y));
        self
    }

    /// Appends a point to the series called `name`, or to a new smoothed series of that name.
    pub fn push(&mut self, name: &str, x: f64, y: f64) {
        match self.series.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push((x, y)),
            None => self.series.push(Series {
                name: name.into(),
                stroke: Stroke::Smoothed,
                points: vec![(x, y)],
            }),
        }
    }

    fn with(mut self, name: impl Into<String>, stroke: Stroke, points: &[(f64, f64)]) -> Self {
        self.series.push(Series { name: name.into(), stroke, points: points.to_vec() });
        self
    }

    /// Returns the chart as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let drawn: Vec<Drawn> = self.series.iter().map(|s| self.drawn(s)).collect();
        picture::svg_with_fine((WIDTH, HEIGHT), &self.title, |root| {
            let plot = self.draw_frame(root, &drawn)?;
            Ok(move |fine: &Canvas<'_>| draw_series(fine, &plot, &drawn))
        })
    }

    /// Returns the coordinate of a value on an axis: itself, or its logarithm.
    fn scaled(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => value.log10(),
            false => value,
        }
    }

    fn drawn(&self, series: &Series) -> Drawn {
        let points = series.points.iter();
        let points: Vec<(f64, f64)> = points
            .map(|&(x, y)| (self.scaled(x), self.scaled(y)))
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        let (line, dots, shade) = match series.stroke {
            Stroke::Line => (points, Vec::new(), 0.0),
            Stroke::Averaged => (smooth(&points), Vec::new(), 0.0),
            Stroke::Smoothed => (smooth(&points), thinned(points), 0.4),
            Stroke::Repeated => (means(&points), points, 0.5),
            Stroke::Points => (Vec::new(), points, 0.8),
        };
        Drawn { line, dots, shade }
    }

    /// Draws everything except the series; returns the area for these.
    fn draw_frame(&self, root: &Canvas<'_>, drawn: &[Drawn]) -> Outcome<Plot> {
        let all = || drawn.iter().flat_map(|one| one.line.iter().chain(&one.dots));
        let levels = self.levels();
        let heights = all().map(|p| p.1).chain(levels.iter().map(|l| l.1));
        let x = Axis::over(all().map(|p| p.0), 0.0, self.logarithmic);
        let y = Axis::over(heights, 0.06, self.logarithmic);

        picture::title(root, &self.title)?;
        let head = HEAD + self.draw_legend(root)?;
        let widest =
            |axis: &Axis| style::widest(axis.ticks().iter().map(|tick| &tick.1), TEXT_SIZE - 1);
        // The labels are beside the upright title of the axis.
        let room = (widest(&y) + 32).max(70);
        // Half of the last label may be beyond the end of its axis.
        let beyond = 18.max(widest(&x) / 2 + 6);
        let margin = match levels.as_slice() {
            [] => beyond,
            levels => style::widest(levels.iter().map(|level| &level.0), TEXT_SIZE) + 14,
        };
        let mut chart = ChartBuilder::on(root)
            .margin_top(head)
            .margin_left(8)
            .margin_bottom(6)
            .margin_right(margin)
            .x_label_area_size(44)
            .y_label_area_size(room)
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.22))
            .axis_style(INK.mix(0.7))
            .x_desc(self.x.clone())
            .y_desc(self.y.clone())
            .axis_desc_style(("sans-serif", TEXT_SIZE).into_font().color(&INK))
            .label_style(("sans-serif", TEXT_SIZE - 1).into_font().color(&INK))
            .draw()?;
        let area = chart.plotting_area();
        let pixels = (area.get_x_axis_pixel_range(), area.get_y_axis_pixel_range());
        let ends = x.range();
        let mut taken: Vec<i32> = Vec::new();
        for (label, level) in levels {
            let ends = [(ends.start, level), (ends.end, level)];
            chart.draw_series(DashedLineSeries::new(ends, 5, 4, INK.stroke_width(1)))?;
            // A label that would overlap an earlier one moves down.
            let mut at = chart.backend_coord(&ends[1]).1;
            let overlaps = |at: i32, other: &i32| (other - at).abs() < TEXT_SIZE as i32 + 1;
            while taken.iter().any(|other| overlaps(at, other)) {
                at += 1;
            }
            taken.push(at);
            picture::label(root, &label, (pixels.0.end + 7, at), HPos::Left)?;
        }
        Ok(Plot { x, y, pixels })
    }

    /// Returns the labels and heights of the references that are on the axis.
    fn levels(&self) -> Vec<(String, f64)> {
        let level = |(name, value): &(String, f64)| {
            let label = format!("{name} = {}", style::number(*value));
            (label, self.scaled(*value))
        };
        let levels = self.references.iter().map(level);
        levels.filter(|(_, height)| height.is_finite()).collect()
    }

    /// Draws the names of the series in rows above the plot; returns the height of these rows.
    fn draw_legend(&self, root: &Canvas<'_>) -> Outcome<i32> {
        let (mut left, mut top) = (14, HEAD + 8);
        for (index, series) in self.series.iter().enumerate() {
            let width = 29 + style::text_width(&series.name, TEXT_SIZE) + 14;
            if left + width > WIDTH as i32 && left > 14 {
                (left, top) = (14, top + LEGEND_ROW);
            }
            let color = style::series(index);
            match series.stroke {
                Stroke::Points => root.draw(&Circle::new((left + 11, top), 4, color.filled()))?,
                _ => root.draw(&PathElement::new(
                    [(left, top), (left + 22, top)],
                    color.stroke_width(3),
                ))?,
            }
            picture::label(root, &series.name, (left + 29, top), HPos::Left)?;
            left += width;
        }
        Ok(match self.series.is_empty() {
            true => 0,
            false => top - HEAD + 14,
        })
    }

    /// Returns the chart in characters, for a terminal.
    pub fn text(&self) -> String {
        let curves = self.series.iter().map(|series| self.curve(series));
        TextPlot {
            title: &self.title,
            axes: (&self.x, &self.y),
            curves: curves.collect(),
            levels: self.levels(),
            logarithmic: self.logarithmic,
        }
        .text()
    }

    fn curve<'a>(&self, series: &'a Series) -> Curve<'a> {
        let drawn = self.drawn(series);
        let connected = series.stroke != Stroke::Points;
        Curve {
            name: &series.name,
            points: if connected { drawn.line } else { drawn.dots },
            connected,
        }
    }
}

/// The lines and dots of a series, in the coordinates of the axes.
struct Drawn {
    line: Vec<(f64, f64)>,
    dots: Vec<(f64, f64)>,
    /// The opacity of the dots.
    shade: f64,
}

/// The area of the series.
struct Plot {
    x: Axis,
    y: Axis,
    /// Its pixels from left to right and from top to bottom.
    pixels: (std::ops::Range<i32>, std::ops::Range<i32>),
}

/// Draws the series on a canvas of fine pixels.
fn draw_series(canvas: &Canvas<'_>, plot: &Plot, series: &[Drawn]) -> Outcome<()> {
    let fine = |range: &std::ops::Range<i32>| range.start * FINE..range.end * FINE;
    let (across, down) = (fine(&plot.pixels.0), fine(&plot.pixels.1));
    let up = down.end..down.start;
    let spec = Cartesian2d::<Axis, Axis>::new(plot.x.clone(), plot.y.clone(), (across, up));
    let area = canvas.clone().apply_coord_spec(spec);
    for (index, one) in series.iter().enumerate() {
        let color = style::series(index);
        // Dots beside a line are its background.
        let radius = if one.line.is_empty() { 3 } else { 2 };
        for dot in &one.dots {
            area.draw(&Circle::new(*dot, radius * FINE, color.mix(one.shade).filled()))?;
        }
        let stroke = color.stroke_width(2 * FINE as u32);
        match one.line[..] {
            // A line of one point would be invisible.
            [point] => area.draw(&Circle::new(point, 2 * FINE, color.filled()))?,
            _ => area.draw(&PathElement::new(one.line.clone(), stroke))?,
        }
    }
    Ok(())
}

/// Returns at most [`DOTS`] of the points, evenly spaced.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(DOTS).max(1);
    points.into_iter().step_by(every).collect()
}

/// Returns the mean of the points at each x, sorted by x.
fn means(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean = |same: &[(f64, f64)]| {
        let sum: f64 = same.iter().map(|point| point.1).sum();
        (same[0].0, sum / same.len() as f64)
    };
    sorted.chunk_by(|a, b| a.0 == b.0).map(mean).collect()
}

picture::shown_and_saved!(LineChart);

#[cfg(test)]
mod tests {
    use super::*;

    fn loss() -> LineChart {
        let points: Vec<(f64, f64)> =
            (0..200).map(|i| (f64::from(i), 9.0 - f64::from(i).sqrt() / 4.0)).collect();
        LineChart::new("Loss")
            .axes("step", "loss")
            .smoothed("training", &points)
            .reference("ln V", 9.0)
            .reference("unigram entropy", 8.95)
    }

    #[test]
    fn the_picture_has_all_names() {
        let svg = loss().svg();
        for text in "Loss|step|loss|training|ln V = 9|unigram entropy = 8.95".split('|') {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("#FFFFFF"), "no background is painted");
    }

    #[test]
    fn labels_of_close_references_do_not_overlap() {
        let svg = loss().svg();
        let height = |label: &str| -> i32 {
            let lines: Vec<&str> = svg.lines().collect();
            let at = lines.iter().position(|l| l.trim() == label).unwrap();
            let tag = lines[at - 1];
            let y = tag.split(" y=\"").nth(1).unwrap();
            y[..y.find('"').unwrap()].parse().unwrap()
        };
        let apart = (height("ln V = 9") - height("unigram entropy = 8.95")).abs();
        assert!(apart >= TEXT_SIZE as i32, "{apart}");
    }

    #[test]
    fn a_long_run_does_not_make_a_large_picture() {
        let points = |n: u32| -> Vec<(f64, f64)> {
            (0..n).map(|i| (f64::from(i), f64::from(i % 7))).collect()
        };
        let dots = |n: u32| {
            let chart = LineChart::new("loss").smoothed("training", &points(n));
            chart.svg().matches("<circle").count()
        };
        assert_eq!(dots(800), 800);
        assert_eq!(dots(100_000), 800);
        assert_eq!(dots(801), 401);
    }

    /// Returns the points of each line in `part` of an SVG whose tag contains `attribute`.
    fn lines(part: &str, attribute: &str) -> Vec<Vec<(f64, f64)>> {
        let found = part.lines().filter(|line| line.starts_with("<polyline"));
        let points = |line: &str| -> Vec<(f64, f64)> {
            let list = line.split("points=\"").nth(1).unwrap();
            let pairs = list.split('"').next().unwrap().split_whitespace();
            pairs
                .map(|pair| pair.split_once(',').unwrap())
                .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
                .collect()
        };
        let found = found.filter(|line| line.contains(attribute));
        found.map(points).collect()
    }

    #[test]
    fn a_curve_fits_the_axes() {
        let chart = LineChart::new("level")
            .line("level", &[(1.0, 9.0), (100.0, 9.0)])
            .line("rising", &[(1.0, 2.0), (100.0, 9.0)])
            .reference("x", 9.0)
            .reference("below", 2.0);
        for chart in [chart.clone(), chart.logarithmic()] {
            let svg = chart.svg();
            let (frame, curves) = svg.split_once("<g transform").unwrap();
            // Only the references are opaque lines of ink, one for each dash.
            let dashes = lines(frame, r#"opacity="1" stroke="currentColor""#).concat();
            let left = dashes[0].0;
            let (high, low) = (dashes[0].1, dashes[dashes.len() - 1].1);
            assert!(low > high + 100.0, "{low} {high}");
            // The axes end where the plot does.
            let axes = lines(frame, r#"opacity="0.7" stroke="currentColor""#).concat();
            let right = axes.iter().map(|point| point.0).fold(0.0, f64::max);
            let near = |(x, y): (f64, f64), place: (f64, f64)| {
                let fine = f64::from(FINE);
                let away = (x / fine - place.0).abs().max((y / fine - place.1).abs());
                assert!(away <= 0.6, "{x}, {y} lies {away} from {place:?}");
            };
            let level = &lines(curves, "#2F86D1")[0];
            near(level[0], (left, high));
            near(level[1], (right, high));
            let rising = &lines(curves, "#E07B1F")[0];
            near(rising[0], (left, low));
            near(rising[1], (right, high));
        }
    }

    #[test]
    fn repeated_measurements_are_dots_and_their_means_a_line_sorted_by_x() {
        let across = [4.0, 1.0, 4.0, 2.0, 1.0, 4.0].into_iter();
        let points: Vec<_> = across.zip([1.0, 3.0, 2.0, 8.0, 5.0, 6.0]).collect();
        assert_eq!(means(&points), [(1.0, 4.0), (2.0, 8.0), (4.0, 3.0)]);
        assert_eq!(means(&[]), []);
        let svg = LineChart::new("seeds").repeated("F1", &points).svg();
        let (_, curves) = svg.split_once("<g transform").unwrap();
        assert_eq!(curves.matches("<circle").count(), 6);
        let line = &lines(curves, "#2F86D1")[0];
        assert_eq!(line.len(), 3);
        assert!(line.is_sorted_by(|a, b| a.0 < b.0), "{line:?}");
        assert!(line[1].1 < line[0].1 && line[0].1 < line[2].1, "{line:?}");
    }

    #[test]
    fn a_reference_that_is_not_on_a_logarithmic_axis_is_left_out() {
        let chart =
            LineChart::new("Zipf").logarithmic().points("words", &[(1.0, 1000.0), (10.0, 10.0)]);
        let with = chart.clone().reference("nothing", 0.0);
        assert!(chart.svg().contains("1,000") && chart.text().contains("1,000 ┤"));
        assert_eq!(with.svg(), chart.svg());
        assert_eq!(with.text(), chart.text());
    }

    #[test]
    fn a_chart_without_points_or_with_one_draws() {
        for logarithmic in [false, true] {
            let mut chart = LineChart::new("empty");
            chart.logarithmic = logarithmic;
            assert!(chart.svg().contains("</svg>"));
            chart.push("one", 3.0, f64::NAN);
            chart.push("one", 3.0, 2.0);
            assert!(chart.svg().contains("<circle"));
        }
    }

    #[test]
    fn a_terminal_gets_the_curve_the_references_and_the_axes() {
        let text = loss().text();
        let parts = "Loss · loss|⠒ training|ln V = 9|unigram entropy = 8.95|step";
        for part in parts.split('|') {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(LineChart::new("empty").text().starts_with("empty\n"));
    }
}
