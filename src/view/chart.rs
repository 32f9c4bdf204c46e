//! Line charts: loss curves with their baselines, schedules, frequency plots.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::display::{Content, Show};
use super::picture;
use super::style::{self, INK, TEXT_SIZE, TITLE_SIZE, WIDTH};
use super::text_plot::{Curve, TextPlot};
use crate::error::Result;

const HEIGHT: u32 = 360;
/// Pixels of the title and legend rows above the plot.
const HEAD: i32 = 34;
const LEGEND_ROW: i32 = 22;
/// The most numbers at an axis, about.
const TICKS: usize = 6;

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stroke {
    /// One line through the points.
    Line,
    /// The points faint, and over them a line that averages the neighbours.
    Smoothed,
    /// That line alone.
    Averaged,
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
        picture::svg((WIDTH, HEIGHT), &self.title, |root| self.draw(root))
    }

    /// The chart as the bytes of a PNG file: on white, two pixels for each of the SVG's.
    ///
    /// # Errors
    /// Where it can't be rendered.
    pub fn png(&self) -> Result<Vec<u8>> {
        picture::png(&self.svg())
    }

    /// Writes the chart to `path`, whose ending says how: `.svg` or `.png`.
    ///
    /// # Errors
    /// Where the name ends otherwise or the file can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        picture::save(&self.svg(), path.as_ref())
    }

    /// A coordinate as it is drawn: itself, or its logarithm.
    fn scaled(&self, value: f64) -> f64 {
        if self.logarithmic {
            value.log10()
        } else {
            value
        }
    }

    fn drawn(&self, series: &Series) -> Vec<(f64, f64)> {
        series
            .points
            .iter()
            .map(|&(x, y)| (self.scaled(x), self.scaled(y)))
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect()
    }

    fn draw<B: DrawingBackend>(&self, root: &DrawingArea<B, Shift>) -> Outcome<B> {
        let drawn: Vec<Vec<(f64, f64)>> = self.series.iter().map(|s| self.drawn(s)).collect();
        let all = || drawn.iter().flatten();
        let levels = self.references.iter().map(|r| self.scaled(r.1));
        let x = Axis::over(all().map(|p| p.0), 0.0, self.logarithmic);
        let y = Axis::over(all().map(|p| p.1).chain(levels), 0.06, self.logarithmic);

        root.draw(&Text::new(
            self.title.clone(),
            (14, 10),
            style::text(TITLE_SIZE, INK, HPos::Left, VPos::Top),
        ))?;
        let head = HEAD + self.draw_legend(root)?;
        let names = self.references.iter().map(|r| self.reference_label(r));
        let margin = names.map(|n| style::text_width(&n, TEXT_SIZE)).max();
        let label = |value: &f64| match self.logarithmic {
            true => style::number(10f64.powf(*value)),
            false => style::number(*value),
        };
        // Beside the axis's title, which stands upright.
        let numbers = y.ticks(TICKS).into_iter();
        let numbers = numbers.map(|tick| style::text_width(&label(&tick), TEXT_SIZE - 1));
        let room = numbers.max().map_or(0, |widest| widest + 32).max(70);
        let mut chart = ChartBuilder::on(root)
            .margin_top(head)
            .margin_left(8)
            .margin_bottom(6)
            .margin_right(margin.map_or(18, |width| width + 14))
            .x_label_area_size(44)
            .y_label_area_size(room)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.22))
            .axis_style(INK.mix(0.7))
            .x_desc(self.x.clone())
            .y_desc(self.y.clone())
            .axis_desc_style(("sans-serif", TEXT_SIZE).into_font().color(&INK))
            .label_style(("sans-serif", TEXT_SIZE - 1).into_font().color(&INK))
            .x_label_formatter(&label)
            .y_label_formatter(&label)
            .draw()?;
        let edges = (
            chart.as_coord_spec().get_x_range(),
            chart.plotting_area().get_pixel_range(),
        );
        for (index, (series, points)) in self.series.iter().zip(&drawn).enumerate() {
            let color = style::series(index);
            let dot = |p: &(f64, f64), alpha: f64| Circle::new(*p, 2, color.mix(alpha).filled());
            match series.stroke {
                Stroke::Line => {
                    chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
                }
                Stroke::Smoothed | Stroke::Averaged => {
                    if series.stroke == Stroke::Smoothed {
                        let every = points.len().div_ceil(DOTS).max(1);
                        chart.draw_series(points.iter().step_by(every).map(|p| dot(p, 0.3)))?;
                    }
                    chart.draw_series(LineSeries::new(smooth(points), color.stroke_width(2)))?;
                }
                Stroke::Points => {
                    chart.draw_series(points.iter().map(|p| dot(p, 0.8)))?;
                }
            }
        }
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
        Ok(())
    }

    fn reference_label(&self, (name, value): &(String, f64)) -> String {
        format!("{name} {}", style::number(*value))
    }

    /// Names the series in rows above the plot, where they can't cover data; gives the height taken.
    fn draw_legend<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, Shift>,
    ) -> std::result::Result<i32, Failure<B>> {
        let (mut left, mut top) = (14, HEAD + 8);
        for (index, series) in self.series.iter().enumerate() {
            let width = 29 + style::text_width(&series.name, TEXT_SIZE) + 14;
            if left + width > WIDTH as i32 && left > 14 {
                (left, top) = (14, top + LEGEND_ROW);
            }
            let color = style::series(index);
            root.draw(&PathElement::new(
                [(left, top), (left + 22, top)],
                color.stroke_width(3),
            ))?;
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

type Failure<B> = DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>;
type Outcome<B> = std::result::Result<(), Failure<B>>;

/// A linear axis whose ticks are round; on a logarithmic chart it runs over exponents.
#[derive(Clone)]
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// Covers `values` and a share `padding` of their range on both sides.
    fn over(values: impl Iterator<Item = f64>, padding: f64, logarithmic: bool) -> Self {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let pad = match (high - low) * padding {
            // One value: room around it, so that the axis has a length.
            _ if high == low => (high.abs() * 0.05).max(0.5),
            pad => pad,
        };
        Self {
            low: low - pad,
            high: high + pad,
            logarithmic,
        }
    }

    fn ticks(&self, count: usize) -> Vec<f64> {
        match self.logarithmic {
            true => style::logarithmic_ticks(self.low, self.high, count),
            false => style::ticks(self.low, self.high, count),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let count = hint.max_num_points().clamp(2, TICKS);
        self.ticks(count)
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl plotters::coord::ranged1d::ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        style::number(*value)
    }
}

/// Each point averaged with its neighbours, a twentieth of the series on either side. Towards the
/// start the window narrows, so that the first value (where a loss begins) stays true; at the end
/// it keeps its left half, where one noisy point would look like a trend. At most 150 points are
/// given: more would only make a staircase of pixels.
fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = points.len() / 20;
    let count = points.len().min(150);
    (0..count)
        .map(|n| match count {
            1 => 0,
            _ => n * (points.len() - 1) / (count - 1),
        })
        .map(|i| {
            let reach = reach.min(i);
            let near = &points[i - reach..points.len().min(i + reach + 1)];
            let mean = near.iter().map(|p| p.1).sum::<f64>() / near.len() as f64;
            (points[i].0, mean)
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
        let points = self.drawn(series);
        Curve {
            name: &series.name,
            points: match series.stroke {
                Stroke::Smoothed | Stroke::Averaged => smooth(&points),
                Stroke::Line | Stroke::Points => points,
            },
            connected: series.stroke != Stroke::Points,
        }
    }
}

impl Show for LineChart {
    fn content(&self) -> Content {
        Content::html(style::figure(&self.svg())).with_text(self.text())
    }
}

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
            "ln V 9",
            "unigram entropy 8.95",
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
        let apart = (height("ln V 9") - height("unigram entropy 8.95")).abs();
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
    fn smoothing_keeps_the_start_and_the_level() {
        let points: Vec<(f64, f64)> = (0..1000)
            .map(|i| (f64::from(i), f64::from(i % 2)))
            .collect();
        let smoothed = smooth(&points);
        assert_eq!(smoothed[0], points[0]);
        assert_eq!(smoothed.last().unwrap().0, 999.0);
        assert_eq!(smoothed.len(), 150);
        assert!(smoothed[40..].iter().all(|p| (p.1 - 0.5).abs() < 0.1));
        assert_eq!(smooth(&points[..1]), points[..1]);
    }

    #[test]
    fn a_terminal_gets_the_curve_its_level_and_its_axes() {
        let text = loss().text();
        for part in [
            "Loss · loss",
            "⠒ training",
            "ln V 9",
            "unigram entropy 8.95",
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
