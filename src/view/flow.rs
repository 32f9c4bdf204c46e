//! Flow pictures: what is done to a tensor, one step below the other, with ways around.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::picture::{self, Canvas, Outcome};
use super::style::{self, INK, TEXT_SIZE, WIDTH};

const HEAD: i32 = 40;
const ROW: i32 = 46;
/// The least width of a box, and its height.
const BOX: (i32, i32) = (230, 28);
/// Where the boxes begin: left of them is room for the ways around.
const LEFT: i32 = 110;
/// From one way around to the next.
const LANE: i32 = 26;

/// One row of the picture.
#[derive(Debug, Clone)]
struct Step {
    name: String,
    note: String,
    /// A sum: where the other summand comes from, 0 being the input.
    from: Option<usize>,
}

/// What happens to an input step by step, read downwards, and what goes around some of the steps.
#[derive(Debug, Clone)]
pub struct Flow {
    title: String,
    steps: Vec<Step>,
}

impl Flow {
    /// Begins with what comes in.
    pub fn new(title: impl Into<String>, input: impl Into<String>) -> Self {
        let input = Step {
            name: input.into(),
            note: String::new(),
            from: None,
        };
        Self {
            title: title.into(),
            steps: vec![input],
        }
    }

    /// Adds a step, and a note that stands beside it: the shape that it gives, say.
    pub fn step(mut self, name: impl Into<String>, note: impl Into<String>) -> Self {
        self.steps.push(Step {
            name: name.into(),
            note: note.into(),
            from: None,
        });
        self
    }

    /// Adds a sum: to what comes from above, the result of step `from` is added. Steps and sums count
    /// from 1, the input is 0.
    ///
    /// # Panics
    /// Where `from` is not above the sum.
    pub fn add(mut self, from: usize, note: impl Into<String>) -> Self {
        assert!(
            from < self.steps.len(),
            "step {from} is not above step {}",
            self.steps.len()
        );
        self.steps.push(Step {
            name: "+".into(),
            note: note.into(),
            from: Some(from),
        });
        self
    }

    /// The picture as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let height = HEAD + ROW * self.steps.len() as i32 + 6;
        picture::svg((WIDTH, height as u32), &self.title, |root| self.draw(root))
    }

    /// Wide enough for every name.
    fn box_width(&self) -> i32 {
        let names = self.steps.iter().filter(|step| step.from.is_none());
        let widths = names.map(|step| style::text_width(&step.name, TEXT_SIZE) + 24);
        widths.max().unwrap_or(0).max(BOX.0)
    }

    /// For each step, how far left its way around runs: ways that overlap have lanes of their own.
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
        for (row, (step, lane)) in self.steps.iter().zip(self.lanes()).enumerate() {
            let y = middle(row);
            let half = match step.from {
                Some(_) => 11,
                None => BOX.1 / 2,
            };
            if row > 0 {
                let above = match self.steps[row - 1].from {
                    Some(_) => 11,
                    None => BOX.1 / 2,
                };
                arrow(
                    root,
                    &[(centre, middle(row - 1) + above), (centre, y - half)],
                )?;
            }
            match step.from {
                Some(from) => {
                    // Out of the line below the step that it starts from, down, and in again.
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
                    // The input is no step: it has an outline alone.
                    if row > 0 {
                        let fill = style::series(0).mix(0.16).filled();
                        root.draw(&Rectangle::new(corners, fill))?;
                    }
                    root.draw(&Rectangle::new(corners, line))?;
                }
            }
            root.draw(&Text::new(
                step.name.clone(),
                (centre, y),
                style::text(TEXT_SIZE, INK, HPos::Center, VPos::Center),
            ))?;
            root.draw(&Text::new(
                step.note.clone(),
                (LEFT + width + 16, y),
                style::text(TEXT_SIZE, INK, HPos::Left, VPos::Center),
            ))?;
        }
        Ok(())
    }

    /// What a terminal shows in place of the picture.
    pub fn text(&self) -> String {
        let mut out = self.title.clone();
        let widest = self.steps.iter().map(|s| s.name.chars().count()).max();
        let widest = widest.unwrap_or(0);
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

/// A line through `points` with a head at its end.
fn arrow(root: &Canvas<'_>, points: &[(i32, i32)]) -> Outcome<()> {
    root.draw(&PathElement::new(points.to_vec(), INK.stroke_width(1)))?;
    if let [.., (x0, y0), (x, y)] = *points {
        // The lines are level or upright.
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
        Flow::new("Layer", "x")
            .step("attention", "(B, S, H)")
            .add(0, "")
            .step("norm", "")
    }

    #[test]
    fn steps_stand_in_order_and_sums_name_their_source() {
        assert_eq!(
            layer().text(),
            "Layer\n   0  x\n   1  attention  (B, S, H)\n   2  + 0\n   3  norm"
        );
        let svg = layer().svg();
        assert!(svg.contains("attention") && svg.contains("(B, S, H)"));
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn ways_around_that_overlap_keep_apart() {
        let apart = layer().add(2, "").lanes();
        assert_eq!(apart, [0, 0, 0, 0, 0]);
        let crossing = layer().add(1, "").lanes();
        assert_eq!(crossing, [0, 0, 0, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "step 4 is not above step 4")]
    fn a_sum_of_what_is_still_to_come_is_refused() {
        layer().add(4, "");
    }
}
