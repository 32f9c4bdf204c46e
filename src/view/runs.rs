//! The runs of `:time 10 CODE` in a session: a loop that measures its body.

use std::time::{Duration, Instant};

/// Counts the runs of a loop's body. After the last one it prints their number and the median, the minimum and the
/// maximum of their times.
#[derive(Debug)]
pub struct Runs {
    left: u32,
    begun: Option<Instant>,
    times: Vec<Duration>,
}

impl Runs {
    /// Returns an iterator for a loop of `count` runs.
    pub fn new(count: u32) -> Self {
        Self { left: count, begun: None, times: Vec::new() }
    }

    /// Returns the line that is printed; `None` without a run.
    fn summary(&mut self) -> Option<String> {
        self.times.sort_unstable();
        let (least, most) = (self.times.first()?, self.times.last()?);
        let (count, median) = (self.times.len(), self.times[self.times.len() / 2]);
        Some(format!("{count} runs: median {median:.3?}, minimum {least:.3?}, maximum {most:.3?}"))
    }
}

impl Iterator for Runs {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        self.times.extend(self.begun.take().map(|begun| begun.elapsed()));
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.begun = Some(Instant::now());
                Some(())
            }
            None => {
                if let Some(summary) = self.summary() {
                    println!("{summary}");
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_measured_and_described() {
        let mut runs = Runs::new(3);
        let waits = [3, 1, 2].map(|wait| Duration::from_millis(20 * wait));
        for (_, wait) in runs.by_ref().zip(waits) {
            std::thread::sleep(wait);
        }
        assert_eq!((runs.next(), runs.times.len()), (None, 3));
        assert!(runs.times.iter().zip([1, 2, 3]).all(|(ran, wait)| ran.as_millis() >= 20 * wait));
        runs.times = [1, 2, 4].map(Duration::from_secs).to_vec();
        let summary = "3 runs: median 2.000s, minimum 1.000s, maximum 4.000s";
        assert_eq!(runs.summary().as_deref(), Some(summary));
        assert_eq!(Runs::new(0).summary(), None);
    }
}
