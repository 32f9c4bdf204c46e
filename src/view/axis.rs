//! The axes of line charts: their ranges, their round ticks and what stands at these.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::style;

/// The most numbers at an axis, about.
pub const TICKS: usize = 6;

/// A linear axis whose ticks are round; on a logarithmic chart it runs over exponents.
#[derive(Clone)]
pub struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// Covers `values` and a share `padding` of their range on both sides.
    pub fn over(values: impl Iterator<Item = f64>, padding: f64, logarithmic: bool) -> Self {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let pad = match (high - low) * padding {
            // One value: room around it, so that the axis has a length.
            _ if high == low => (high.abs() * 0.05).max(0.5),
            pad => pad,
        };
        Self {
            low: low - pad,
            high: high + pad,
            logarithmic,
        }
    }

    /// What stands at the ticks.
    pub fn labels(&self, count: usize) -> Vec<String> {
        let values: Vec<f64> = self.ticks(count).iter().map(|t| self.value(*t)).collect();
        style::numbers(&values)
    }

    /// What plotters is to write at a tick.
    pub fn formatter(&self, count: usize) -> impl Fn(&f64) -> String + use<> {
        let labels: Vec<(f64, String)> = self
            .ticks(count)
            .into_iter()
            .zip(self.labels(count))
            .collect();
        let axis = self.clone();
        move |tick: &f64| {
            let known = labels.iter().find(|(at, _)| at == tick);
            known.map_or_else(|| style::number(axis.value(*tick)), |(_, l)| l.clone())
        }
    }

    /// What is measured where the axis is at `tick`.
    fn value(&self, tick: f64) -> f64 {
        match self.logarithmic {
            true => 10f64.powf(tick),
            false => tick,
        }
    }

    /// Round values inside the axis, about `count` of them.
    fn ticks(&self, count: usize) -> Vec<f64> {
        match self.logarithmic {
            true => style::logarithmic_ticks(self.low, self.high, count),
            false => style::ticks(self.low, self.high, count),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let count = hint.max_num_points().clamp(2, TICKS);
        self.ticks(count)
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        style::number(*value)
    }
}
