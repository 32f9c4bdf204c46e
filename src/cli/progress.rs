//! The progress bar of a training run: loss, tokens a second, time left.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::note;
use crate::notes::visible;
use crate::train::{EvalReport, Report, StepReport};

/// How often a run without a terminal writes a line.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Shows a run on stderr: as a bar on a terminal, elsewhere as lines.
pub struct TrainingBar {
    bar: ProgressBar,
    total: u64,
    last_line: Instant,
    smooth: Option<f64>,
}

impl TrainingBar {
    /// Creates a bar over `total` steps, of which an earlier process did `done`.
    pub fn new(total: u64, done: u64) -> Self {
        // The template is a constant, which every test of training parses.
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {msg}, {eta} left")
            .expect("a valid template");
        let bar = ProgressBar::new(total).with_style(style);
        bar.set_position(done);
        bar.reset_eta();
        Self { bar, total, last_line: Instant::now(), smooth: None }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes a line above the bar.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            note!("{line}");
        } else {
            self.bar.println(visible(line));
        }
    }

    /// Shows a step.
    pub fn advance(&mut self, step: u64, loss: f64, tokens_per_s: f64) {
        let smooth = match self.smooth {
            Some(old) => 0.9 * old + 0.1 * loss,
            None => loss,
        };
        self.smooth = Some(smooth);
        let state = format!("loss {smooth:.3}, {tokens_per_s:.0} tokens/s");
        if self.bar.is_hidden() && self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            note!("step {step}/{}: {state}", self.total);
        }
        self.bar.set_message(state);
        self.bar.set_position(step);
    }
}

/// Describes an evaluation.
pub fn measured(report: &EvalReport) -> String {
    let words = format!(
        "loss {:.3}, perplexity {:.1}, accuracy {:.1} %",
        report.mlm_loss,
        report.perplexity(),
        100.0 * report.mlm_accuracy,
    );
    match (report.nsp_loss, report.nsp_accuracy) {
        (Some(loss), Some(accuracy)) => {
            format!("{words}; next sentence loss {loss:.3}, accuracy {:.1} %", 100.0 * accuracy)
        }
        _ => words,
    }
}

impl Report for TrainingBar {
    fn step(&mut self, report: &StepReport) {
        self.advance(report.step, report.loss, report.tokens_per_s);
    }

    fn evaluated(&mut self, report: &EvalReport) {
        self.say(&format!("step {}: held out: {}", report.step, measured(report)));
    }

    fn saved(&mut self, step: u64) {
        self.say(&format!("step {step}: checkpoint written"));
    }

    fn skipped(&mut self, step: u64, why: &str) {
        self.say(&format!("step {step} left out: {why}"));
    }
}
