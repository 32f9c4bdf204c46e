//! The progress of one file's transfer, on stderr.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::note;
use crate::notes::visible;

/// How often a transfer without a terminal writes a line.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// A bar on a terminal; elsewhere a line now and then and one at the end.
pub struct TransferBar {
    bar: ProgressBar,
    name: String,
    last_line: Instant,
}

impl TransferBar {
    /// A bar for the file `name`; its length may not be known.
    pub fn new(name: &str, length: Option<u64>) -> Self {
        let bar = match length {
            Some(length) => ProgressBar::new(length),
            None => ProgressBar::no_length(),
        };
        let template = "{msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
        // The template is a constant: it parses or every run of the tests fails.
        let style = ProgressStyle::with_template(template).expect("a valid template");
        Self {
            bar: bar
                .with_style(style)
                .with_message(visible(name).into_owned()),
            name: name.to_owned(),
            last_line: Instant::now(),
        }
    }

    /// Tells how many bytes are there, those of an earlier run included.
    pub fn at(&mut self, bytes: u64) {
        self.bar.set_position(bytes);
        if self.bar.is_hidden() && self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            let of = self.bar.length().map(|n| format!(" of {}", HumanBytes(n)));
            let of = of.unwrap_or_default();
            note!("{}: {}{of}", self.name, HumanBytes(bytes));
        }
    }

    /// Tells that the file is there as a whole.
    pub fn done(&self) {
        let bytes = self.bar.position();
        self.bar.finish_and_clear();
        note!("{}: {}", self.name, HumanBytes(bytes));
    }
}
