//! A chart that grows while a loop runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::chart::LineChart;
use super::show::Show;
use super::{display, style};

/// How often the picture is redrawn at most: a redraw costs a few milliseconds of the loop's time
/// and some ten kilobytes on the wire.
const EVERY: Duration = Duration::from_millis(400);
/// In a terminal a line is enough now and then.
const EVERY_LINE: Duration = Duration::from_secs(5);

/// A [`LineChart`] on display: points are pushed, the picture follows.
///
/// In a notebook one display is updated in place; in a terminal the newest values are printed every
/// few seconds and the whole chart at the end. Dropping it draws the last state.
pub struct LiveChart {
    chart: LineChart,
    id: String,
    drawn: Option<Instant>,
    latest: Vec<(String, f64, f64)>,
    pending: bool,
}

impl LiveChart {
    /// Puts `chart` on display.
    pub fn new(chart: LineChart) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // The process number keeps two sessions' charts in one notebook apart.
        let id = format!("cloze-chart-{}-{count}", std::process::id());
        Self {
            chart,
            id,
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
        let wait = match display::is_notebook() {
            true => EVERY,
            false => EVERY_LINE,
        };
        if self.drawn.is_none_or(|at| at.elapsed() >= wait) {
            self.draw();
        }
    }

    fn draw(&mut self) {
        if display::is_notebook() {
            display::update(&self.id, &style::figure(&self.chart.html()));
        } else {
            let values: Vec<String> = self
                .latest
                .iter()
                .map(|(name, x, y)| format!("{name} {} at {}", style::number(*y), style::number(*x)))
                .collect();
            println!("  {}", values.join(", "));
        }
        self.drawn = Some(Instant::now());
        self.pending = false;
    }
}

impl Drop for LiveChart {
    fn drop(&mut self) {
        if !display::is_notebook() {
            println!("{}", self.chart.text());
        } else if self.pending {
            self.draw();
        }
    }
}
