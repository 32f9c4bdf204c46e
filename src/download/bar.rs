//! The progress bar of a file's transfer, on standard error.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::note;
use crate::notes::{is_silent, visible};

/// Time between two lines of output without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// A progress bar on a terminal; elsewhere a line every 15 seconds and one at the end.
pub struct TransferBar {
    bar: ProgressBar,
    name: String,
    last_line: Instant,
}

impl TransferBar {
    /// Creates a bar for the file `name`, whose length may be unknown.
    pub fn new(name: &str, length: Option<u64>) -> Self {
        let bar = match length {
            _ if is_silent() => ProgressBar::hidden(),
            Some(length) => ProgressBar::new(length),
            None => ProgressBar::no_length(),
        };
        let template = "{msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
        // The template is a constant; every test of a transfer would fail if it didn't parse.
        let style = ProgressStyle::with_template(template).expect("a valid template");
        Self {
            bar: bar.with_style(style).with_message(visible(name).into_owned()),
            name: name.to_owned(),
            last_line: Instant::now(),
        }
    }

    /// Shows the number of bytes so far, including those of an earlier run.
    pub fn at(&mut self, bytes: u64) {
        self.bar.set_position(bytes);
        if self.bar.is_hidden() && self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            let of = self.bar.length().map(|n| format!(" of {}", HumanBytes(n)));
            let of = of.unwrap_or_default();
            note!("{}: {}{of}", self.name, HumanBytes(bytes));
        }
    }

    /// Reports that the file is complete.
    pub fn done(&self) {
        let bytes = self.bar.position();
        self.bar.finish_and_clear();
        note!("{}: {}", self.name, HumanBytes(bytes));
    }
}
