//! A chart that grows while a loop runs.

use std::time::{Duration, Instant};

use super::chart::LineChart;
use super::display::{self, Show};
use super::style::number;

/// How often the picture is redrawn at most: a redraw costs a few milliseconds of the loop's time
/// and some ten kilobytes on the wire.
const EVERY: Duration = Duration::from_millis(400);
/// Outside a session a line of text is enough now and then.
const EVERY_LINE: Duration = Duration::from_secs(5);

/// A [`LineChart`] on display: points are pushed, the picture follows.
///
/// In a notebook one display is updated in place; in a terminal the newest values are printed every
/// few seconds and the whole chart at the end. Dropping it draws the last state.
pub struct LiveChart {
    chart: LineChart,
    id: String,
    session: bool,
    drawn: Option<Instant>,
    latest: Vec<(String, f64, f64)>,
    pending: bool,
}

impl LiveChart {
    /// Puts `chart` on display; it is drawn with its first point.
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

    /// Appends a point to the series called `name` and redraws where it is time.
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

    /// The chart as it stands.
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
