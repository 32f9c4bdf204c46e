//! The progress bar of a training run: loss, tokens a second, time left.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::note;
use crate::notes::{is_silent, visible};
use crate::train::{EvalReport, Report, StepReport};

/// How often a run without a terminal prints a line.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Shows a run on stderr: a bar on a terminal, else a line now and then.
pub(crate) struct TrainingBar {
    bar: ProgressBar,
    total: u64,
    last_line: Instant,
    smooth: Option<f64>,
}

impl TrainingBar {
    /// Returns a bar over `total` steps, `done` of which an earlier run did.
    pub(crate) fn new(total: u64, done: u64) -> Self {
        // The template is a constant: it parses, or every run of the tests fails.
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {msg}, {eta} left")
            .expect("a valid template");
        let bar = match is_silent() {
            true => ProgressBar::hidden(),
            false => ProgressBar::new(total).with_style(style),
        };
        bar.set_position(done);
        bar.reset_eta();
        Self { bar, total, last_line: Instant::now(), smooth: None }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            note!("{line}");
        } else {
            self.bar.println(visible(line));
        }
    }

    /// Shows a finished step.
    pub(crate) fn advance(&mut self, step: u64, loss: f64, tokens_per_s: f64) {
        let smooth = self.smooth.map_or(loss, |old| 0.9 * old + 0.1 * loss);
        self.smooth = Some(smooth);
        let message = format!("loss {smooth:.3}, {tokens_per_s:.0} tokens/s");
        if self.bar.is_hidden() && self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            note!("step {step}/{}: {message}", self.total);
        }
        self.bar.set_message(message);
        self.bar.set_position(step);
    }
}

/// Formats a measurement.
pub(crate) fn measured(report: &EvalReport) -> String {
    let mut line = format!(
        "loss {:.3}, perplexity {:.1}, accuracy {:.1} %",
        report.mlm_loss,
        report.perplexity(),
        100.0 * report.mlm_accuracy,
    );
    if let (Some(loss), Some(accuracy)) = (report.nsp_loss, report.nsp_accuracy) {
        let accuracy = 100.0 * accuracy;
        line += &format!("; next sentence loss {loss:.3}, accuracy {accuracy:.1} %");
    }
    line
}

impl Report for TrainingBar {
    fn step(&mut self, report: &StepReport) {
        self.advance(report.step, report.loss, report.tokens_per_s);
    }

    fn evaluated(&mut self, report: &EvalReport) {
        let step = report.step;
        self.say(&format!("step {step}: held out: {}", measured(report)));
    }

    fn saved(&mut self, step: u64) {
        self.say(&format!("step {step}: checkpoint written"));
    }

    fn skipped(&mut self, step: u64, why: &str) {
        self.say(&format!("step {step} left out: {why}"));
    }
}
