//! The report of a command: its runs as charts, figures and tables.

use std::time::SystemTime;

use crate::view::LineChart;
use crate::view::page::{Page, Table};
use crate::view::style::number;

use super::curve::Curve;
use super::run::{Run, State, TRAIN, numbers};
use super::{Records, duration_text};

/// The numbers of the latest steps that stand at the top of the page.
const FIGURES: [(&str, &str); 2] = [("train/loss", "loss"), ("train/tokens_per_s", "tokens/s")];

/// A chart of the report.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Title of the chart.
    pub title: String,
    /// Label of the vertical axis, with its unit.
    pub unit: String,
    /// Names of curves in the legend, with the group and name of their numbers: `train/loss`.
    pub curves: Vec<(String, String)>,
    /// Values to compare with.
    pub references: Vec<(String, f64)>,
}

impl Chart {
    /// Creates a chart without curves.
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { title: title.into(), unit: unit.into(), ..Self::default() }
    }

    /// Adds a curve.
    pub fn curve(mut self, name: impl Into<String>, key: impl Into<String>) -> Self {
        self.curves.push((name.into(), key.into()));
        self
    }

    /// Adds a value to compare with.
    pub fn reference(mut self, name: impl Into<String>, value: f64) -> Self {
        self.references.push((name.into(), value));
        self
    }

    /// Returns the charts that every run has beside those of its loss and its scores.
    pub fn usual() -> [Self; 3] {
        let one = |title, unit, key| Self::new(title, unit).curve("training steps", key);
        [
            one("Learning rate", "learning rate", "train/learning_rate"),
            one("Gradient norm", "global norm before clipping", "train/gradient_norm"),
            one("Speed", "real tokens a second", "train/tokens_per_s"),
        ]
    }
}

impl Records {
    /// Returns the report of the runs so far.
    pub fn page(&self) -> Page {
        let mut page = Page {
            title: self.about.title.clone(),
            command: self.about.command.clone(),
            charts: self.charts(),
            pictures: self.pictures.clone(),
            ..Page::default()
        };
        if let Some(run) = self.runs.last() {
            page.running = run.state == State::Running;
            page.done = run.done();
            page.status = status(run, self.runs.len());
            page.figures = figures(run);
        }
        page.tables = self.runs.iter().filter_map(scores).collect();
        page.tables.extend(self.about.tables.iter().cloned());
        page
    }

    fn charts(&self) -> Vec<LineChart> {
        let drawn = self.about.charts.iter().filter_map(|chart| {
            let mut picture = LineChart::new(&chart.title).axes("step", &chart.unit);
            let mut empty = true;
            for run in &self.runs {
                for (name, key) in &chart.curves {
                    let Some(curve) = run.curve(key) else {
                        continue;
                    };
                    let name = match (&run.name, chart.curves.len()) {
                        (None, _) => name.clone(),
                        (Some(run), 1) => run.clone(),
                        (Some(run), _) => format!("{run}: {name}"),
                    };
                    let points = curve.points();
                    empty &= points.is_empty();
                    picture = if !key.starts_with(TRAIN) {
                        match points.len() {
                            1 => picture.points(name, &points),
                            _ => picture.line(name, &points),
                        }
                    } else if key.ends_with("learning_rate") {
                        picture.line(name, &points)
                    } else if run.name.is_some() {
                        picture.averaged(name, &points)
                    } else {
                        picture.smoothed(name, &points)
                    };
                }
            }
            let references = chart.references.iter();
            (!empty).then(|| references.fold(picture, |p, (name, y)| p.reference(name, *y)))
        });
        drawn.collect()
    }
}

fn status(run: &Run, number_of_run: usize) -> String {
    let mut text = match &run.name {
        Some(name) => format!("run {number_of_run} ({name}), step "),
        None => "step ".to_owned(),
    };
    text += &format!("{} of {}", number(run.step as f64), number(run.planned as f64));
    if run.resumed > 0 {
        text += &format!(", resumed after {}", number(run.resumed as f64));
    }
    if run.left_out > 0 {
        text += &format!(", {} left out", run.left_out);
    }
    let finished = run.step >= run.planned;
    text += &match (run.state, run.left()) {
        (State::Running, Some(left)) => format!(", about {} left", duration_text(left)),
        (State::Running, None) => String::new(),
        (State::Ended, _) if finished => format!("; finished after {}", duration_text(run.took)),
        (State::Ended, _) => format!("; stopped after {}", duration_text(run.took)),
        (State::BrokenOff, _) => format!("; broken off after {}", duration_text(run.took)),
    };
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    format!("{text} (written {})", time.replace('T', " ").replace('Z', " UTC"))
}

fn figures(run: &Run) -> Vec<(String, String)> {
    let recent = |key: &str| run.curve(key).and_then(Curve::recent);
    let mut figures: Vec<(String, String)> = FIGURES
        .iter()
        .filter_map(|(key, name)| Some(((*name).to_owned(), number(recent(key)?))))
        .collect();
    if run.state == State::Running
        && let Some(left) = run.left()
    {
        figures.push(("left".into(), duration_text(left)));
    }
    for (group, _, scores) in &run.scores {
        let scores = numbers(scores).map(|(name, v)| (format!("{group} {name}"), number(v)));
        figures.extend(scores.take(2));
    }
    figures
}

/// Returns a table of a run's newest scores.
fn scores(run: &Run) -> Option<Table> {
    let heading = match &run.name {
        Some(name) => format!("Results of {name}"),
        None => "Results".into(),
    };
    let mut table = Table::new(heading);
    for (group, step, scores) in &run.scores {
        for (name, value) in numbers(scores) {
            table = table.row(format!("{group} {name}, step {step}"), number(value));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn run(state: State) -> Run {
        changed(state, |_| ())
    }

    /// A run of 100 steps, of which 40 are done.
    fn changed(state: State, change: impl Fn(&mut Run)) -> Run {
        let mut run = Run::new(None, 100, 0);
        run.step = 40;
        run.took = Duration::from_secs(90);
        run.state = state;
        change(&mut run);
        run
    }

    #[test]
    fn the_status_says_how_far_a_run_is_and_how_it_ended() {
        let says = |run: &Run, expected: &str| {
            let text = status(run, 2);
            assert!(text.starts_with(expected), "{text}");
            assert!(text.contains(" (written 20") && text.ends_with(" UTC)"), "{text}");
        };
        says(&run(State::Ended), "step 40 of 100; stopped after 1m 30s (");
        says(&run(State::BrokenOff), "step 40 of 100; broken off after 1m 30s (");
        says(&changed(State::Ended, |run| run.step = 100), "step 100 of 100; finished after ");
        let resumed = changed(State::Ended, |run| (run.left_out, run.resumed) = (3, 20));
        says(&resumed, "step 40 of 100, resumed after 20, 3 left out;");
        let named = changed(State::Ended, |run| run.name = Some("seed 7".into()));
        says(&named, "run 2 (seed 7), step 40 of 100;");
        says(&changed(State::Running, |run| run.step = 0), "step 0 of 100 (");
        says(&run(State::Running), "step 40 of 100, about ");
    }

    #[test]
    fn the_figures_are_the_newest_numbers_and_two_scores_of_each_group() {
        let mut run = run(State::Ended);
        run.push("train/loss".into(), 40, 2.5);
        let scores = json!({"accuracy": 0.75, "f1": 0.5, "loss": 1.25, "classes": [1, 2]});
        run.measured(40, "dev", scores.as_object().unwrap());
        let found = figures(&run);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["loss", "dev accuracy", "dev f1"]);
        assert_eq!(found[0].1, number(2.5));
        assert_eq!(found[1].1, number(0.75));
        run.state = State::Running;
        assert!(figures(&run).iter().any(|(name, _)| name == "left"));
    }
}
