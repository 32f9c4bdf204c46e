//! A chart that grows while a loop runs.

use std::time::{Duration, Instant};

use super::chart::LineChart;
use super::display::{self, Show};
use super::style::number;

/// Shortest time between two drawings: each costs a few milliseconds of the loop's time and some ten
/// kilobytes of output.
const EVERY: Duration = Duration::from_millis(400);
/// Shortest time between two lines of text outside a session.
const EVERY_LINE: Duration = Duration::from_secs(5);

/// A [`LineChart`] that is redrawn while points are added.
///
/// In a notebook the display is updated in place; in a terminal the newest values are printed every few
/// seconds and the whole chart at the end. Dropping it draws the last state.
pub struct LiveChart {
    chart: LineChart,
    id: String,
    session: bool,
    drawn: Option<Instant>,
    latest: Vec<(String, f64, f64)>,
    pending: bool,
}

impl LiveChart {
    /// Creates a live chart, which is first drawn with its first point.
    pub fn new(chart: LineChart) -> Self {
        Self {
            chart,
            id: display::new_id("chart"),
            session: display::wire::token().is_some(),
            drawn: None,
            latest: Vec::new(),
            pending: false,
        }
    }

    /// Appends a point to the series called `name` and redraws the chart if enough time has passed.
    pub fn push(&mut self, name: &str, x: f64, y: f64) {
        self.chart.push(name, x, y);
        match self.latest.iter_mut().find(|l| l.0 == name) {
            Some(latest) => *latest = (name.into(), x, y),
            None => self.latest.push((name.into(), x, y)),
        }
        self.pending = true;
        let wait = if self.session { EVERY } else { EVERY_LINE };
        if self.drawn.is_none_or(|at| at.elapsed() >= wait) {
            self.draw();
        }
    }

    /// Returns the current chart.
    pub fn chart(&self) -> &LineChart {
        &self.chart
    }

    fn draw(&mut self) {
        if self.session {
            display::live(&self.id, self.chart.content());
        } else {
            let value = |(name, x, y): &(String, f64, f64)| {
                format!("{name} {} at {}", number(*y), number(*x))
            };
            let values: Vec<String> = self.latest.iter().map(value).collect();
            println!("  {}", values.join(", "));
        }
        self.drawn = Some(Instant::now());
        self.pending = false;
    }
}

impl Drop for LiveChart {
    fn drop(&mut self) {
        if !self.session {
            display::show(&self.chart);
        } else if self.pending {
            self.draw();
        }
    }
}
