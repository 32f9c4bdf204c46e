//! The learning rate over a run: linear warm-up, then linear decay to zero (Devlin et al.,
//! appendix A.2), decay along a cosine (Loshchilov and Hutter, arXiv 1608.03983), a decay that begins late (Hägele et
//! al., arXiv 2405.18392), or none.

use serde::{Deserialize, Serialize};

/// How the learning rate falls after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Decay {
    /// Along a line to zero, as in the paper.
    #[default]
    Linear,
    /// Along half a cosine to zero.
    Cosine,
    /// It stays at its highest for three fifths of the steps after the warm-up, then falls along a line to zero.
    Trapezoid,
    /// It stays at its highest.
    Constant,
}

/// The last part of the steps after the warm-up, in which [`Decay::Trapezoid`] falls.
const LAST: f64 = 0.4;

/// A schedule over `total` steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The highest learning rate, reached after the warm-up.
    pub peak: f64,
    /// Steps of warm-up.
    pub warmup: u64,
    /// Steps of the whole run; the rate after the last is 0.
    pub total: u64,
    /// How the rate falls.
    pub decay: Decay,
}

impl Schedule {
    /// Returns the paper's schedule: `warmup` steps up to `peak`, then down to zero until the end of `total`
    /// steps.
    pub fn linear(peak: f64, warmup: u64, total: u64) -> Self {
        Self { peak, warmup, total, decay: Decay::Linear }
    }

    /// Returns the learning rate of a step, counted from 1.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * step as f64 / self.warmup as f64;
        }
        let left = self.total.saturating_sub(step) as f64 + 1.0;
        let decay = (self.total - self.warmup.min(self.total)) as f64 + 1.0;
        let left = (left / decay).min(1.0);
        self.peak
            * match self.decay {
                Decay::Linear => left,
                Decay::Cosine => 0.5 - 0.5 * (std::f64::consts::PI * left).cos(),
                Decay::Trapezoid => (left / LAST).min(1.0),
                Decay::Constant => 1.0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(decay: Decay) -> Schedule {
        Schedule { peak: 1.0, warmup: 10, total: 110, decay }
    }

    #[test]
    fn rises_to_the_peak_and_falls_to_almost_nothing() {
        for decay in [Decay::Linear, Decay::Cosine] {
            let schedule = schedule(decay);
            assert!((schedule.rate(1) - 0.1).abs() < 1e-12);
            assert!((schedule.rate(10) - 1.0).abs() < 1e-12);
            let rates: Vec<f64> = (1..=110).map(|s| schedule.rate(s)).collect();
            assert!(rates[..10].is_sorted() && rates[9..].is_sorted_by(|a, b| a > b));
            assert!(rates[109] <= 1.0 / 101.0);
        }
        assert!((schedule(Decay::Linear).rate(60) - 51.0 / 101.0).abs() < 1e-12);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * 50.0 / 101.0).cos());
        assert!((schedule(Decay::Cosine).rate(60) - cosine).abs() < 1e-12);
    }

    #[test]
    fn a_constant_rate_stays_at_the_peak_after_the_warm_up() {
        let schedule = schedule(Decay::Constant);
        assert!((schedule.rate(5) - 0.5).abs() < 1e-12);
        assert!((10..=110).all(|step| schedule.rate(step) == 1.0));
    }

    #[test]
    fn a_trapezoid_stays_at_the_peak_and_falls_at_the_end() {
        let schedule = schedule(Decay::Trapezoid);
        assert!((10..=70).all(|step| schedule.rate(step) == 1.0));
        assert!((schedule.rate(91) - 20.0 / 101.0 / 0.4).abs() < 1e-12);
        assert!((schedule.rate(110) - 1.0 / 101.0 / 0.4).abs() < 1e-12);
    }

    #[test]
    fn a_run_without_warm_up_starts_at_the_peak() {
        let schedule = Schedule::linear(2.0, 0, 5);
        assert!((schedule.rate(1) - 5.0 / 6.0 * 2.0).abs() < 1e-12);
    }
}
