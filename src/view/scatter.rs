//! Scatter plots of labelled points, such as words in two dimensions.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::picture::{self, Canvas, Outcome};
use super::style::{self, INK, TEXT_SIZE, WIDTH};
use super::text_plot::{Curve, TextPlot};

/// Pixels of the plot's area, and of the room above and beside it.
const AREA: i32 = 400;
const HEAD: i32 = 62;
const SIDE: i32 = 16;
/// Room below the area for the title of its axis.
const FOOT: i32 = 30;
/// Half the height of a label, and its distance from its point.
const HALF: i32 = 8;
const GAP: i32 = 6;
/// How many times half its height a label may be moved up or down.
const FURTHEST: i32 = 14;

/// Labelled points in coloured groups, over two axes without numbers: only distances matter.
///
/// Points with coordinates that are not finite are left out.
#[derive(Debug, Clone, Default)]
pub struct Scatter {
    title: String,
    axes: (String, String),
    groups: Vec<(String, Vec<Point>)>,
}

/// A point with its label, which may be empty.
type Point = (String, f64, f64);

/// Left, top, right and bottom.
type Box = (i32, i32, i32, i32);

impl Scatter {
    /// Creates an empty plot.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Sets the titles of the axes.
    pub fn axes(mut self, x: impl Into<String>, y: impl Into<String>) -> Self {
        self.axes = (x.into(), y.into());
        self
    }

    /// Adds a point to a group, which may be new.
    pub fn point(mut self, group: &str, label: impl Into<String>, x: f64, y: f64) -> Self {
        let found = self.groups.iter().position(|(name, _)| name == group);
        let at = found.unwrap_or_else(|| {
            self.groups.push((group.to_owned(), Vec::new()));
            self.groups.len() - 1
        });
        if x.is_finite() && y.is_finite() {
            self.groups[at].1.push((label.into(), x, y));
        }
        self
    }

    /// Returns the plot as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let size = (WIDTH, (HEAD + AREA + FOOT) as u32);
        picture::svg(size, &self.title, |root| self.draw(root))
    }

    /// Returns label, x and y on the page of all points, group by group.
    fn placed(&self) -> Vec<Vec<(String, i32, i32)>> {
        let all = || self.groups.iter().flat_map(|group| &group.1);
        let across = |(low, high): (f64, f64)| (low, if high > low { high - low } else { 1.0 });
        let x = across(style::extent(all().map(|p| p.1)));
        let y = across(style::extent(all().map(|p| p.2)));
        // Labels at the right edge need room.
        let wide = f64::from(WIDTH as i32 - 2 * SIDE - 90);
        let high = f64::from(AREA - 40);
        let place = |(label, px, py): &'_ Point| {
            let across = ((px - x.0) / x.1 * wide).round() as i32;
            let down = ((1.0 - (py - y.0) / y.1) * high).round() as i32;
            (label.clone(), SIDE + 20 + across, HEAD + 20 + down)
        };
        let groups = self.groups.iter();
        groups.map(|(_, points)| points.iter().map(place).collect()).collect()
    }

    fn draw(&self, root: &Canvas<'_>) -> Outcome<()> {
        picture::title(root, &self.title)?;
        let mut left = 14;
        for (index, (name, _)) in self.groups.iter().enumerate() {
            let color = style::series(index);
            root.draw(&Circle::new((left + 5, HEAD - 18), 5, color.filled()))?;
            picture::label(root, name, (left + 15, HEAD - 18), HPos::Left)?;
            left += 15 + style::text_width(name, TEXT_SIZE) + 16;
        }
        let (right, bottom) = (WIDTH as i32 - SIDE, HEAD + AREA);
        root.draw(&Rectangle::new([(SIDE, HEAD), (right, bottom)], INK.mix(0.4)))?;
        let (x, y) = &self.axes;
        for (title, at, h) in
            [(x, (right, bottom + 8), HPos::Right), (y, (SIDE + 6, HEAD + 8), HPos::Left)]
        {
            let style = style::text(TEXT_SIZE, INK, h, VPos::Top);
            root.draw(&Text::new(title.clone(), at, style))?;
        }
        let placed = self.placed();
        // A label covers no other label and no point.
        let all = placed.iter().flatten();
        let mut taken: Vec<Box> = all.map(|&(_, x, y)| dot(x, y)).collect();
        for (index, points) in placed.iter().enumerate() {
            let color = style::series(index);
            for (label, x, y) in points {
                let (x, y) = (*x, *y);
                root.draw(&Circle::new((x, y), 4, color.mix(0.8).filled()))?;
                if label.is_empty() {
                    continue;
                }
                let place = free(label, (x, y), &taken);
                taken.push(place);
                let middle = (place.1 + place.3) / 2;
                // Text is narrower than its estimate, so it is anchored at the side near the point.
                let (end, side) = match place.0 >= x {
                    true => (place.0, HPos::Left),
                    false => (place.2, HPos::Right),
                };
                if middle != y {
                    let thread = [(x, y), (end, middle)];
                    root.draw(&PathElement::new(thread, INK.mix(0.5)))?;
                }
                // A single group needs no colour.
                let color = if placed.len() > 1 { color } else { INK };
                root.draw(&Text::new(
                    label.clone(),
                    (end, middle),
                    style::text(TEXT_SIZE - 2, color, side, VPos::Center),
                ))?;
            }
        }
        Ok(())
    }

    /// Returns the plot in characters, with the labels of each group below, for a terminal.
    pub fn text(&self) -> String {
        let curves = self.groups.iter().map(|(name, points)| Curve {
            name,
            points: points.iter().map(|point| (point.1, point.2)).collect(),
            connected: false,
        });
        let mut out = TextPlot {
            title: &self.title,
            axes: (&self.axes.0, &self.axes.1),
            curves: curves.collect(),
            levels: Vec::new(),
            logarithmic: false,
        }
        .text();
        for (name, points) in &self.groups {
            let labelled = points.iter().filter(|point| !point.0.is_empty());
            let labels: Vec<String> =
                labelled.map(|(label, x, y)| format!("{label} ({x:.1}, {y:.1})")).collect();
            if !labels.is_empty() {
                out += &format!("\n  {name}: {}", labels.join(", "));
            }
        }
        out
    }
}

picture::shown_and_saved!(Scatter);

/// Returns the box of a point.
fn dot(x: i32, y: i32) -> Box {
    (x - 4, y - 4, x + 4, y + 4)
}

/// Returns the nearest free box for a label to the right or left of its point, possibly higher or lower; if
/// none is free, that to the right.
fn free(label: &str, (x, y): (i32, i32), taken: &[Box]) -> Box {
    let width = style::text_width(label, TEXT_SIZE - 2);
    let at = |left: i32, middle: i32| (left, middle - HALF, left + width, middle + HALF);
    let meets = |a: &Box, b: &Box| a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3;
    let right = WIDTH as i32 - SIDE;
    let inside =
        |place: &Box| place.0 > SIDE && place.2 < right && place.1 > HEAD && place.3 < HEAD + AREA;
    let steps = (0..FURTHEST).flat_map(|step| [-step, step]);
    let places = steps.flat_map(|step| {
        // Labels further up or down are further out, so that their threads pass other labels.
        let out = GAP + 2 * step.abs();
        [x + out, x - out - width].map(|left| at(left, y + step * HALF))
    });
    let mut free =
        places.filter(inside).filter(|place| !taken.iter().any(|other| meets(place, other)));
    free.next().unwrap_or(at(x + GAP, y))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Scatter {
        Scatter::new("Words")
            .axes("first", "second")
            .point("days", "monday", 0.0, 1.0)
            .point("days", "friday", 0.1, 1.0)
            .point("towns", "rome <", 5.0, -2.0)
            .point("towns", "nowhere", f64::NAN, 0.0)
    }

    #[test]
    fn every_point_has_its_label_and_every_group_its_colour() {
        let svg = plot().svg();
        for text in "Words|first|second|monday|friday|rome &lt;|days|towns".split('|') {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("nowhere") && !svg.contains("#FFFFFF"));
        assert!(svg.contains("#2F86D1") && svg.contains("#E07B1F"));
        let text = plot().text();
        assert!(text.contains("days: monday (0.0, 1.0), friday"), "{text}");
        assert!(Scatter::new("empty").svg().contains("</svg>"));
    }

    #[test]
    fn labels_of_several_groups_have_their_colours() {
        let fill = |plot: Scatter, label: &str| {
            let svg = plot.svg();
            let lines: Vec<&str> = svg.lines().map(str::trim).collect();
            let at = lines.iter().position(|line| *line == label).unwrap();
            let fill = lines[at - 1].split(" fill=\"").nth(1).unwrap();
            fill[..fill.find('"').unwrap()].to_owned()
        };
        assert_eq!(fill(plot(), "friday"), "#2F86D1");
        assert_eq!(fill(plot(), "rome &lt;"), "#E07B1F");
        assert_eq!(fill(plot(), "days"), "currentColor");
        let one = Scatter::new("Words").point("days", "monday", 0.0, 1.0);
        assert_eq!(fill(one, "monday"), "currentColor");
    }

    #[test]
    fn labels_of_neighbours_do_not_overlap() {
        let mut taken = vec![dot(100, 100), dot(104, 100)];
        for x in [100, 104] {
            let place = free("monday", (x, 100), &taken);
            let meets = |b: &Box| place.0 < b.2 && b.0 < place.2 && place.1 < b.3 && b.1 < place.3;
            assert!(!taken.iter().any(meets), "{place:?} {taken:?}");
            taken.push(place);
        }
    }
}
