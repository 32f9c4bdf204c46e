//! The learning rate over a run: linear warm-up, then linear decay to zero (Devlin et al.,
//! appendix A.2).

use serde::{Deserialize, Serialize};

/// A schedule over `total` steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The highest learning rate, reached after the warm-up.
    pub peak: f64,
    /// Steps of warm-up.
    pub warmup: u64,
    /// Steps of the whole run; the rate after the last is 0.
    pub total: u64,
}

impl Schedule {
    /// Returns the learning rate of a step, counted from 1.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * step as f64 / self.warmup as f64;
        }
        let left = self.total.saturating_sub(step) as f64 + 1.0;
        let decay = (self.total - self.warmup.min(self.total)) as f64 + 1.0;
        self.peak * (left / decay).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_to_the_peak_and_falls_to_almost_nothing() {
        let schedule = Schedule { peak: 1.0, warmup: 10, total: 110 };
        assert!((schedule.rate(1) - 0.1).abs() < 1e-12);
        assert!((schedule.rate(10) - 1.0).abs() < 1e-12);
        assert!((schedule.rate(60) - 51.0 / 101.0).abs() < 1e-12);
        assert!((schedule.rate(110) - 1.0 / 101.0).abs() < 1e-12);
        let rates: Vec<f64> = (1..=110).map(|s| schedule.rate(s)).collect();
        assert!(rates[..10].is_sorted() && rates[9..].is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn a_run_without_warm_up_starts_at_the_peak() {
        let schedule = Schedule { peak: 2.0, warmup: 0, total: 5 };
        assert!((schedule.rate(1) - 5.0 / 6.0 * 2.0).abs() < 1e-12);
    }
}
