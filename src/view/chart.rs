//! Line charts: loss curves with their baselines, schedules, frequency plots.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::{Axis, TICKS};
use super::picture::{self, Canvas, FINE, Outcome};
use super::smooth::smooth;
use super::style::{self, INK, TEXT_SIZE, WIDTH};
use super::text_plot::{Curve, TextPlot};

const HEIGHT: u32 = 360;
/// Pixels of the title and legend rows above the plot.
const HEAD: i32 = 34;
const LEGEND_ROW: i32 = 22;

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stroke {
    /// One line through the points.
    Line,
    /// The points faint, and over them a line that averages the neighbours.
    Smoothed,
    /// That line alone.
    Averaged,
    /// The points faint, and over them a line through the means of those at one x.
    Repeated,
    /// The points alone.
    Points,
}

#[derive(Debug, Clone)]
struct Series {
    name: String,
    stroke: Stroke,
    points: Vec<(f64, f64)>,
}

/// A chart of one or more series over a shared pair of axes, with labelled horizontal lines for
/// values to compare with.
///
/// Points whose coordinates are not finite (or not positive on a logarithmic axis) are left out.
#[derive(Debug, Clone, Default)]
pub struct LineChart {
    title: String,
    x: String,
    y: String,
    series: Vec<Series>,
    references: Vec<(String, f64)>,
    logarithmic: bool,
}

/// The most points that are drawn faintly below a smoothed line; of more, every n-th. A cloud looks
/// the same, and the curve of a long run stays small enough to be sent many times.
const DOTS: usize = 800;

impl LineChart {
    /// An empty chart.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// Titles of the axes, with their units.
    pub fn axes(mut self, x: impl Into<String>, y: impl Into<String>) -> Self {
        (self.x, self.y) = (x.into(), y.into());
        self
    }

    /// Both axes logarithmic (base 10).
    pub fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// Adds a line through `points`.
    pub fn line(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Line, points)
    }

    /// Adds noisy measurements: the points faint, and a smoothed line over them.
    pub fn smoothed(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Smoothed, points)
    }

    /// Adds noisy measurements as a smoothed line alone, where there are many such.
    pub fn averaged(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Averaged, points)
    }

    /// Adds measurements that were repeated (with several seeds, say): each of them faint, and a
    /// line through the means of those at one x.
    pub fn repeated(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Repeated, points)
    }

    /// Adds points that no line connects.
    pub fn points(self, name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        self.with(name, Stroke::Points, points)
    }

    /// Adds a dashed horizontal line at `y`, named at its right end.
    pub fn reference(mut self, name: impl Into<String>, y: f64) -> Self {
        self.references.push((name.into(), y));
        self
    }

    /// Appends a point to the series called `name`, which is begun (smoothed) where it is new.
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
        self.series.push(Series {
            name: name.into(),
            stroke,
            points: points.to_vec(),
        });
        self
    }

    /// The chart as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let drawn: Vec<Drawn> = self.series.iter().map(|s| self.drawn(s)).collect();
        picture::svg_with_fine((WIDTH, HEIGHT), &self.title, |root| {
            let plot = self.draw_frame(root, &drawn)?;
            Ok(move |fine: &Canvas<'_>| draw_series(fine, &plot, &drawn))
        })
    }

    /// A coordinate as it is drawn: itself, or its logarithm.
    fn scaled(&self, value: f64) -> f64 {
        if self.logarithmic {
            value.log10()
        } else {
            value
        }
    }

    fn drawn(&self, series: &Series) -> Drawn {
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|&(x, y)| (self.scaled(x), self.scaled(y)))
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        match series.stroke {
            Stroke::Line => Drawn::line(points),
            Stroke::Averaged => Drawn::line(smooth(&points)),
            Stroke::Smoothed => Drawn {
                line: smooth(&points),
                dots: thinned(points),
                shade: 0.4,
            },
            Stroke::Repeated => Drawn {
                line: means(&points),
                dots: points,
                shade: 0.5,
            },
            Stroke::Points => Drawn {
                line: Vec::new(),
                dots: points,
                shade: 0.8,
            },
        }
    }

    /// Draws all but the series; gives the plot that these belong into.
    fn draw_frame(&self, root: &Canvas<'_>, drawn: &[Drawn]) -> Outcome<Plot> {
        let all = || {
            drawn
                .iter()
                .flat_map(|one| one.line.iter().chain(&one.dots))
        };
        let levels = self.references.iter().map(|r| self.scaled(r.1));
        let x = Axis::over(all().map(|p| p.0), 0.0, self.logarithmic);
        let y = Axis::over(all().map(|p| p.1).chain(levels), 0.06, self.logarithmic);

        picture::title(root, &self.title)?;
        let head = HEAD + self.draw_legend(root)?;
        let names = self.references.iter().map(|r| self.reference_label(r));
        let margin = names.map(|n| style::text_width(&n, TEXT_SIZE)).max();
        // Beside the axis's title, which stands upright.
        let widest = |axis: &Axis| {
            let labels = axis.labels(TICKS).into_iter();
            let widths = labels.map(|label| style::text_width(&label, TEXT_SIZE - 1));
            widths.max().unwrap_or(0)
        };
        let room = (widest(&y) + 32).max(70);
        // Half of a number may stand beyond the end of its axis.
        let beyond = 18.max(widest(&x) / 2 + 6);
        let (x_label, y_label) = (x.formatter(TICKS), y.formatter(TICKS));
        let mut chart = ChartBuilder::on(root)
            .margin_top(head)
            .margin_left(8)
            .margin_bottom(6)
            .margin_right(margin.map_or(beyond, |width| width + 14))
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
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .draw()?;
        let edges = (
            chart.as_coord_spec().get_x_range(),
            chart.plotting_area().get_pixel_range(),
        );
        let mut taken: Vec<i32> = Vec::new();
        for reference in &self.references {
            let level = self.scaled(reference.1);
            if !level.is_finite() {
                continue;
            }
            let ends = [(edges.0.start, level), (edges.0.end, level)];
            chart.draw_series(DashedLineSeries::new(ends, 5, 4, INK.stroke_width(1)))?;
            // Two labels closer than a line of text: the later one moves below.
            let mut at = chart.backend_coord(&ends[1]).1;
            while taken
                .iter()
                .any(|other| (other - at).abs() < TEXT_SIZE as i32 + 1)
            {
                at += 1;
            }
            taken.push(at);
            root.draw(&Text::new(
                self.reference_label(reference),
                (edges.1.0.end + 6, at),
                style::text(TEXT_SIZE, INK, HPos::Left, VPos::Center),
            ))?;
        }
        Ok(Plot {
            x,
            y,
            pixels: edges.1,
        })
    }

    fn reference_label(&self, (name, value): &(String, f64)) -> String {
        format!("{name} = {}", style::number(*value))
    }

    /// Names the series in rows above the plot, where they can't cover data; gives the height taken.
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
            root.draw(&Text::new(
                series.name.clone(),
                (left + 29, top),
                style::text(TEXT_SIZE, INK, HPos::Left, VPos::Center),
            ))?;
            left += width;
        }
        Ok(if self.series.is_empty() {
            0
        } else {
            top - HEAD + 14
        })
    }
}

/// A series as it is drawn, in the coordinates of the axes.
struct Drawn {
    line: Vec<(f64, f64)>,
    dots: Vec<(f64, f64)>,
    /// How strong the dots are.
    shade: f64,
}

impl Drawn {
    fn line(line: Vec<(f64, f64)>) -> Self {
        Self {
            line,
            dots: Vec::new(),
            shade: 0.0,
        }
    }
}

/// The part of the page where the series are drawn.
struct Plot {
    x: Axis,
    y: Axis,
    pixels: (std::ops::Range<i32>, std::ops::Range<i32>),
}

/// Draws the series on a canvas of fine pixels.
fn draw_series(canvas: &Canvas<'_>, plot: &Plot, series: &[Drawn]) -> Outcome<()> {
    let fine = |range: &std::ops::Range<i32>| range.start * FINE..range.end * FINE;
    let (across, down) = (fine(&plot.pixels.0), fine(&plot.pixels.1));
    // Upwards, and one pixel in: as plotters lays its own axes.
    let up = down.end - FINE..down.start - FINE;
    let spec = Cartesian2d::<Axis, Axis>::new(plot.x.clone(), plot.y.clone(), (across, up));
    let area = canvas.clone().apply_coord_spec(spec);
    for (index, one) in series.iter().enumerate() {
        let color = style::series(index);
        for dot in &one.dots {
            area.draw(&Circle::new(*dot, 2 * FINE, color.mix(one.shade).filled()))?;
        }
        let stroke = color.stroke_width(2 * FINE as u32);
        match one.line[..] {
            // A line of one point would not be seen.
            [point] => area.draw(&Circle::new(point, 2 * FINE, color.filled()))?,
            _ => area.draw(&PathElement::new(one.line.clone(), stroke))?,
        }
    }
    Ok(())
}

/// At most [`DOTS`] of the points, evenly chosen.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(DOTS).max(1);
    points.into_iter().step_by(every).collect()
}

/// The mean of the points at each x, in the order of x.
fn means(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    sorted
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| {
            let sum: f64 = same.iter().map(|point| point.1).sum();
            (same[0].0, sum / same.len() as f64)
        })
        .collect()
}

impl LineChart {
    /// What a terminal shows in place of the picture.
    pub fn text(&self) -> String {
        let curves = self.series.iter().map(|series| self.curve(series));
        let level = |reference: &(String, f64)| {
            let label = self.reference_label(reference);
            (label, self.scaled(reference.1))
        };
        TextPlot {
            title: &self.title,
            axes: (&self.x, &self.y),
            curves: curves.collect(),
            levels: self.references.iter().map(level).collect(),
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

picture::shown_and_saved!(LineChart);

#[cfg(test)]
mod tests {
    use super::*;

    fn loss() -> LineChart {
        let points: Vec<(f64, f64)> = (0..200)
            .map(|i| (f64::from(i), 9.0 - f64::from(i).sqrt() / 4.0))
            .collect();
        LineChart::new("Loss")
            .axes("step", "loss")
            .smoothed("training", &points)
            .reference("ln V", 9.0)
            .reference("unigram entropy", 8.95)
    }

    #[test]
    fn everything_named_stands_in_the_picture() {
        let svg = loss().svg();
        for text in [
            "Loss",
            "step",
            "loss",
            "training",
            "ln V = 9",
            "unigram entropy = 8.95",
        ] {
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
    fn a_terminal_gets_the_curve_its_level_and_its_axes() {
        let text = loss().text();
        for part in [
            "Loss · loss",
            "⠒ training",
            "ln V = 9",
            "unigram entropy = 8.95",
            "step",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let logarithmic = LineChart::new("Zipf")
            .logarithmic()
            .points("words", &[(1.0, 1000.0), (10.0, 10.0)]);
        assert!(
            logarithmic.text().contains("1,000 ┤"),
            "{}",
            logarithmic.text()
        );
        assert!(LineChart::new("empty").text().starts_with("empty\n"));
    }
}
