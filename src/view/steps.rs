//! A map of steps that build on each other: one a row, with lines to the steps that need it.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::picture::{self, Canvas, Outcome};
use super::style::{self, INK, TEXT_SIZE, WIDTH};

const HEAD: i32 = 44;
const ROW: i32 = 32;
/// Pixels between two parallel lines.
const LANE: i32 = 13;
/// The radius of a step's mark, of a task's dot, and of a line's bends.
const MARK: i32 = 7;
const DOT: i32 = 4;
const BEND: i32 = 8;
/// Pixels between two dots, and at least of a step's note.
const DOTS: i32 = 12;
const NOTE: i32 = 70;

/// A step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Its number or name, by which others refer to it: `01`.
    pub key: String,
    /// Its title.
    pub title: String,
    /// A short note beside it: `35 min`.
    pub note: String,
    /// How many of its questions are due; the picture shows them in a colour of their own.
    pub due: usize,
    /// The keys of the earlier steps that it builds on.
    pub needs: Vec<String>,
    /// For each task, whether it is done.
    pub tasks: Vec<bool>,
}

/// Steps in order, each in a row: its mark, its title, what is due, a note, and a dot for each task. Lines lead from a
/// step to those that need it, except lines that follow from others. Headings divide the steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepMap {
    title: String,
    steps: Vec<Step>,
    /// Headings, each with the number of the step below it.
    headings: Vec<(usize, String)>,
}

/// A line between two rows; its lane is its distance to the left of the marks, 0 for a straight line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    from: usize,
    to: usize,
    lane: i32,
}

impl StepMap {
    /// Creates a map without steps.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a step at the bottom.
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Adds a heading above the next step.
    pub fn heading(mut self, heading: impl Into<String>) -> Self {
        self.headings.push((self.steps.len(), heading.into()));
        self
    }

    /// Returns the map as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        let height = HEAD + ROW * (self.steps.len() + self.headings.len()) as i32 + 8;
        picture::svg((WIDTH, height as u32), &self.title, |root| self.draw(root))
    }

    /// Returns the rows that each step needs, without those that follow from others.
    fn direct_needs(&self) -> Vec<Vec<usize>> {
        // For each row all rows that it needs, also indirectly; needs only point upwards.
        let mut all: Vec<Vec<bool>> = Vec::new();
        let mut direct = Vec::new();
        for (row, step) in self.steps.iter().enumerate() {
            let above = &self.steps[..row];
            let named: Vec<usize> =
                (0..row).filter(|&i| step.needs.contains(&above[i].key)).collect();
            let by_another =
                |need: usize| named.iter().any(|&other| other != need && all[other][need]);
            let kept: Vec<usize> = named.iter().copied().filter(|&n| !by_another(n)).collect();
            let mut reach = vec![false; self.steps.len()];
            for &need in &named {
                reach[need] = true;
                for (there, through) in reach.iter_mut().zip(&all[need]) {
                    *there |= through;
                }
            }
            all.push(reach);
            direct.push(kept);
        }
        direct
    }

    /// Returns the lines: shorter ones nearer to the marks, without overlaps.
    fn links(&self) -> Vec<Link> {
        let needs = self.direct_needs();
        let mut links: Vec<Link> = needs
            .iter()
            .enumerate()
            .flat_map(|(to, needs)| needs.iter().map(move |&from| Link { from, to, lane: 0 }))
            .collect();
        links.sort_by_key(|link| (link.to - link.from, link.from));
        for index in 0..links.len() {
            let link = links[index];
            if link.to == link.from + 1 {
                continue;
            }
            // Lines from the same step may overlap: they mean the same.
            let free = |lane: i32| {
                links[..index].iter().all(|other| {
                    other.lane != lane
                        || other.from == link.from
                        || other.to <= link.from
                        || link.to <= other.from
                })
            };
            links[index].lane = (1..).find(|&lane| free(lane)).unwrap_or(1);
        }
        links
    }

    fn draw(&self, root: &Canvas<'_>) -> Outcome<()> {
        picture::title(root, &self.title)?;
        let links = self.links();
        let lanes = links.iter().map(|link| link.lane).max().unwrap_or(0);
        let marks = 14 + MARK + lanes * LANE;
        let middle = |row: usize| {
            let above = self.headings.iter().filter(|(step, _)| *step <= row).count();
            HEAD + ROW * (row + above) as i32 + ROW / 2
        };
        for link in &links {
            let path = line(marks, middle(link.from), middle(link.to), link.lane);
            root.draw(&PathElement::new(path, INK.mix(0.6).stroke_width(2)))?;
        }
        let most = self.steps.iter().map(|s| s.tasks.len()).max().unwrap_or(0);
        let dots = WIDTH as i32 - 14 - DOTS * most as i32;
        for (step, heading) in &self.headings {
            // The heading is nearer to the step below it.
            let style = style::text(style::TITLE_SIZE, INK, HPos::Left, VPos::Center);
            let place = (marks + MARK + 9, middle(*step) - ROW + 5);
            root.draw(&Text::new(heading.clone(), place, style))?;
        }
        for (row, step) in self.steps.iter().enumerate() {
            let y = middle(row);
            let done = step.tasks.iter().filter(|done| **done).count();
            let all = done > 0 && done == step.tasks.len();
            let color = if done > 0 { style::series(2) } else { INK };
            let shape = match all {
                true => color.filled(),
                false => color.stroke_width(2),
            };
            root.draw(&Circle::new((marks, y), MARK - 1, shape))?;
            let left = marks + MARK + 9;
            let note = dots - NOTE.max(style::text_width(&step.note, TEXT_SIZE) + 12);
            let due = due(step);
            let end = match &due {
                Some(due) => note - style::text_width(due, TEXT_SIZE),
                None => note,
            };
            let title = format!("{}  {}", step.key, step.title);
            let title = shortened(&title, end - left - 10);
            picture::label(root, &title, (left, y), HPos::Left)?;
            picture::label(root, &step.note, (dots - 12, y), HPos::Right)?;
            if let Some(due) = due {
                let style = style::text(TEXT_SIZE, style::series(1), HPos::Right, VPos::Center);
                root.draw(&Text::new(due, (note, y), style))?;
            }
            for (index, &done) in step.tasks.iter().enumerate() {
                let place = (dots + DOTS * index as i32 + DOTS / 2, y);
                let shape = match done {
                    true => style::series(2).filled(),
                    false => INK.mix(0.8).stroke_width(1),
                };
                root.draw(&Circle::new(place, DOT, shape))?;
            }
        }
        Ok(())
    }

    /// Returns the map in characters, for a terminal.
    pub fn text(&self) -> String {
        let mut out = self.title.clone();
        for (number, step) in self.steps.iter().enumerate() {
            let above = self.headings.iter().filter(|(step, _)| *step == number);
            out.extend(above.map(|(_, heading)| format!("\n\n{heading}")));
            let dots = step.tasks.iter().map(|done| if *done { '●' } else { '○' });
            let dots: String = dots.collect();
            let needs = match step.needs.is_empty() {
                true => String::new(),
                false => format!(", after {}", step.needs.join(" ")),
            };
            let (key, title, note) = (&step.key, &step.title, &step.note);
            let due = due(step).map_or_else(String::new, |due| format!(" {due}"));
            out += &format!("\n{key}  {title} ({note}{needs}) {dots}{due}");
        }
        out
    }
}

/// Returns how many questions of a step are due, if any.
fn due(step: &Step) -> Option<String> {
    (step.due > 0).then(|| format!("{} due", step.due))
}

/// Returns the path from the mark at `(x, from)` to the one at `(x, to)` below it: straight, or out to its
/// lane and back in round bends.
fn line(x: i32, from: i32, to: i32, lane: i32) -> Vec<(i32, i32)> {
    if lane == 0 {
        return vec![(x, from + MARK), (x, to - MARK)];
    }
    let (out, edge) = (x - lane * LANE, x - MARK);
    // A quarter circle in five steps.
    let bend = |step: i32| {
        let angle = f64::from(step) / 5.0 * std::f64::consts::FRAC_PI_2;
        let place = |part: f64| (f64::from(BEND) * (1.0 - part)).round() as i32;
        (place(angle.sin()), place(angle.cos()))
    };
    let mut path = vec![(edge, from)];
    path.extend((0..=5).map(bend).map(|(dx, dy)| (out + dx, from + dy)));
    path.extend((0..=5).rev().map(bend).map(|(dx, dy)| (out + dx, to - dy)));
    path.push((edge, to));
    path
}

/// Shortens a text with an ellipsis if it does not fit `room` pixels.
fn shortened(text: &str, room: i32) -> String {
    if style::text_width(text, TEXT_SIZE) <= room {
        return text.to_owned();
    }
    let mut kept: String = text.to_owned();
    while kept.pop().is_some() && style::text_width(&kept, TEXT_SIZE) + 12 > room {}
    format!("{}…", kept.trim_end())
}

picture::shown_and_saved!(StepMap);

#[cfg(test)]
mod tests {
    use super::*;

    fn step(key: &str, needs: &[&str], tasks: &[bool]) -> Step {
        Step {
            key: key.into(),
            title: format!("Lesson {key}"),
            note: "30 min".into(),
            due: if key == "01" { 3 } else { 0 },
            needs: needs.iter().map(|n| (*n).to_owned()).collect(),
            tasks: tasks.to_vec(),
        }
    }

    fn map() -> StepMap {
        StepMap::new("The course")
            .step(step("00", &[], &[true, true]))
            .step(step("01", &["00"], &[true, false]))
            .heading("The second part")
            .step(step("02", &["00", "01"], &[false]))
            .step(step("03", &["01"], &[]))
            .step(step("04", &["02", "03", "09"], &[false]))
    }

    #[test]
    fn a_need_that_follows_from_another_is_not_drawn() {
        let direct = map().direct_needs();
        assert_eq!(direct, [vec![], vec![0], vec![1], vec![1], vec![2, 3]]);
    }

    #[test]
    fn overlapping_lines_have_different_lanes() {
        let links = map().links();
        let lane = |from, to| {
            let found = links.iter().find(|l| (l.from, l.to) == (from, to));
            found.unwrap().lane
        };
        assert_eq!((lane(0, 1), lane(1, 2), lane(3, 4)), (0, 0, 0));
        assert_eq!((lane(1, 3), lane(2, 4)), (1, 2));
    }

    #[test]
    fn the_picture_has_all_steps_tasks_and_lines() {
        let svg = map().svg();
        for text in ["The course", "The second part", "00  Lesson 00", "04  Lesson 04", "30 min"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches(" due").count(), 1);
        // A mark for each step, and a dot for each task.
        assert_eq!(svg.matches("<circle").count(), 5 + 6);
        assert_eq!(svg.matches("<polyline").count(), 5);
        assert!(!svg.contains("#FFFFFF"), "no background is painted");
    }

    #[test]
    fn a_terminal_gets_a_line_for_each_step() {
        let text = map().text();
        assert!(text.contains("\n00  Lesson 00 (30 min) ●●\n"), "{text}");
        assert!(text.contains("\n01  Lesson 01 (30 min, after 00) ●○ 3 due\n"), "{text}");
        let later = "\n\nThe second part\n02  Lesson 02 (30 min, after 00 01) ○\n";
        assert!(text.contains(later), "{text}");
    }

    #[test]
    fn long_titles_end_in_an_ellipsis() {
        assert_eq!(shortened("short", 100), "short");
        let cut = shortened(&"word ".repeat(40), 200);
        assert!(cut.ends_with('…') && style::text_width(&cut, TEXT_SIZE) <= 200);
    }
}
