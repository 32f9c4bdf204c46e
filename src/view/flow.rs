//! Flow charts: the steps that a tensor goes through, one below the other, with skip connections.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::picture::{self, Canvas, Outcome};
use super::style::{self, INK, TEXT_SIZE, WIDTH};

const HEAD: i32 = 40;
const ROW: i32 = 46;
/// The least width of a box, and its height.
const BOX: (i32, i32) = (230, 28);
/// The left edge of the boxes: the skip connections run left of it.
const LEFT: i32 = 110;
/// Distance of neighbouring skip connections.
const LANE: i32 = 26;

/// A row of the picture.
#[derive(Debug, Clone)]
struct Step {
    name: String,
    note: String,
    /// For a sum the step of the other summand, 0 being the input.
    from: Option<usize>,
}

/// The steps of a computation from top to bottom, with skip connections.
#[derive(Debug, Clone)]
pub struct Flow {
    title: String,
    steps: Vec<Step>,
}

impl Flow {
    /// Creates a chart with only an input.
    pub fn new(title: impl Into<String>, input: impl Into<String>) -> Self {
        let empty = Self { title: title.into(), steps: Vec::new() };
        empty.step(input, "")
    }

    /// Adds a step with a note beside it, such as the shape of its result.
    pub fn step(self, name: impl Into<String>, note: impl Into<String>) -> Self {
        self.with(name.into(), note.into(), None)
    }

    /// Adds a sum of the previous result and that of step `from`, by a skip connection. Steps and sums count
    /// from 1, the input is 0.
    ///
    /// # Panics
    /// If `from` is not above the sum.
    pub fn add(self, from: usize, note: impl Into<String>) -> Self {
        let at = self.steps.len();
        assert!(from < at, "step {from} is not above step {at}");
        self.with("+".into(), note.into(), Some(from))
    }

    fn with(mut self, name: String, note: String, from: Option<usize>) -> Self {
        self.steps.push(Step { name, note, from });
        self
    }

    /// Returns the chart as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let height = HEAD + ROW * self.steps.len() as i32 + 6;
        picture::svg((WIDTH, height as u32), &self.title, |root| self.draw(root))
    }

    /// Returns the width of the boxes, which every name fits.
    fn box_width(&self) -> i32 {
        let boxes = self.steps.iter().filter(|step| step.from.is_none());
        (style::widest(boxes.map(|step| &step.name), TEXT_SIZE) + 24).max(BOX.0)
    }

    /// Returns the lane of each step's skip connection; overlapping connections have different lanes.
    fn lanes(&self) -> Vec<i32> {
        let mut lanes: Vec<i32> = vec![0; self.steps.len()];
        for at in 0..self.steps.len() {
            let Some(from) = self.steps[at].from else {
                continue;
            };
            let crossing = |other: &usize| {
                let begun = self.steps[*other].from;
                begun.is_some_and(|begun| begun < at && *other > from)
            };
            let taken = (0..at).filter(crossing).map(|other| lanes[other]).max();
            lanes[at] = taken.map_or(0, |lane| lane + 1);
        }
        lanes
    }

    fn draw(&self, root: &Canvas<'_>) -> Outcome<()> {
        picture::title(root, &self.title)?;
        let middle = |row: usize| HEAD + ROW * row as i32 + BOX.1 / 2;
        let width = self.box_width();
        let centre = LEFT + width / 2;
        let line = INK.stroke_width(1);
        let half_height = |step: &Step| step.from.map_or(BOX.1 / 2, |_| 11);
        for (row, (step, lane)) in self.steps.iter().zip(self.lanes()).enumerate() {
            let y = middle(row);
            let half = half_height(step);
            if row > 0 {
                let start = middle(row - 1) + half_height(&self.steps[row - 1]);
                arrow(root, &[(centre, start), (centre, y - half)])?;
            }
            match step.from {
                Some(from) => {
                    // From the line below its first step to the left, down, and back.
                    let start = middle(from) + BOX.1 / 2 + 5;
                    let x = LEFT - 22 - LANE * lane;
                    let ends = [(centre, start), (x, start), (x, y), (centre - half, y)];
                    arrow(root, &ends)?;
                    let color = style::series(1);
                    root.draw(&Circle::new((centre, y), half, color.mix(0.18).filled()))?;
                    root.draw(&Circle::new((centre, y), half, color.stroke_width(1)))?;
                }
                None => {
                    let corners = [(LEFT, y - half), (LEFT + width, y + half)];
                    // The input is no step: it has only an outline.
                    if row > 0 {
                        let fill = style::series(0).mix(0.16).filled();
                        root.draw(&Rectangle::new(corners, fill))?;
                    }
                    root.draw(&Rectangle::new(corners, line))?;
                }
            }
            picture::label(root, &step.name, (centre, y), HPos::Center)?;
            picture::label(root, &step.note, (LEFT + width + 16, y), HPos::Left)?;
        }
        Ok(())
    }

    /// Returns the chart in characters, for a terminal.
    pub fn text(&self) -> String {
        let mut out = self.title.clone();
        let widest = style::longest(self.steps.iter().map(|step| &step.name));
        for (number, step) in self.steps.iter().enumerate() {
            let name = match step.from {
                Some(from) => format!("+ {from}"),
                None => step.name.clone(),
            };
            let line = format!("\n  {number:>2}  {name:<widest$}  {}", step.note);
            out += line.trim_end();
        }
        out
    }
}

/// Draws a line through `points` with an arrowhead at its end.
fn arrow(root: &Canvas<'_>, points: &[(i32, i32)]) -> Outcome<()> {
    root.draw(&PathElement::new(points.to_vec(), INK.stroke_width(1)))?;
    if let [.., (x0, y0), (x, y)] = *points {
        // Lines are horizontal or vertical.
        let (dx, dy) = ((x - x0).signum(), (y - y0).signum());
        let head = vec![
            (x, y),
            (x - 6 * dx - 4 * dy, y - 6 * dy - 4 * dx),
            (x - 6 * dx + 4 * dy, y - 6 * dy + 4 * dx),
        ];
        root.draw(&Polygon::new(head, INK.filled()))?;
    }
    Ok(())
}

picture::shown_and_saved!(Flow);

#[cfg(test)]
mod tests {
    use super::*;

    fn layer() -> Flow {
        Flow::new("Layer", "x").step("attention", "(B, S, H)").add(0, "").step("norm", "")
    }

    #[test]
    fn steps_stand_in_order_and_sums_name_their_source() {
        let expected = "Layer\n   0  x\n   1  attention  (B, S, H)\n   2  + 0\n   3  norm";
        assert_eq!(layer().text(), expected);
        let svg = layer().svg();
        assert!(svg.contains("attention") && svg.contains("(B, S, H)"));
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn overlapping_skip_connections_have_different_lanes() {
        let apart = layer().add(2, "").lanes();
        assert_eq!(apart, [0, 0, 0, 0, 0]);
        let crossing = layer().add(1, "").lanes();
        assert_eq!(crossing, [0, 0, 0, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "step 4 is not above step 4")]
    fn a_sum_of_a_later_step_is_refused() {
        layer().add(4, "");
    }
}
