//! The axes of line charts and text plots: their ranges, and round ticks with labels.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::style;

/// About how many ticks an axis has at most.
const TICKS: usize = 6;

/// A linear axis whose ticks are round; on a logarithmic chart it runs over exponents.
#[derive(Debug, Clone)]
pub struct Axis {
    low: f64,
    high: f64,
    /// Positions and labels of the ticks, in ascending order.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates an axis over the finite ones of `values`, plus a share `padding` of their range on both sides.
    pub fn over(values: impl Iterator<Item = f64>, padding: f64, logarithmic: bool) -> Self {
        let (low, high) = style::extent(values.filter(|value| value.is_finite()));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let pad = match (high - low) * padding {
            // A single value needs room around it, so that the axis has a length.
            _ if high == low => (high.abs() * 0.05).max(0.5),
            pad => pad,
        };
        let (low, high) = (low - pad, high + pad);
        let places = match logarithmic {
            true => style::logarithmic_ticks(low, high, TICKS),
            false => style::ticks(low, high, TICKS),
        };
        let measured = |place: &f64| match logarithmic {
            true => 10f64.powf(*place),
            false => *place,
        };
        let labels = style::numbers(&places.iter().map(measured).collect::<Vec<f64>>());
        Self { low, high, ticks: places.into_iter().zip(labels).collect() }
    }

    /// Returns the ticks, ascending: positions on the axis and labels.
    pub fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Returns the position of a value between the axis's ends, which are 0 and 1.
    pub fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * self.share(*value)).round() as i32
    }

    /// Returns the ticks, whatever number plotters suggests, because each has a label.
    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|tick| tick.0).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    /// Returns the label of the nearest tick.
    fn format_ext(&self, value: &f64) -> String {
        let away = |tick: &(f64, String)| (tick.0 - value).abs();
        let nearest = self.ticks.iter().min_by(|a, b| away(a).total_cmp(&away(b)));
        nearest.map_or_else(String::new, |tick| tick.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(values: &[f64], padding: f64, logarithmic: bool) -> Axis {
        Axis::over(values.iter().copied(), padding, logarithmic)
    }

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks().iter().map(|tick| tick.1.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_has_round_ticks_in_one_format() {
        let linear = axis(&[0.31, 1.2, 0.7], 0.0, false);
        assert_eq!(labels(&linear), ["0.4", "0.6", "0.8", "1.0", "1.2"]);
        for (place, label) in linear.ticks() {
            let said: f64 = label.parse().unwrap();
            assert!((said - place).abs() < 1e-9, "{label} stands at {place}");
        }
        assert_eq!((linear.share(0.31), linear.share(1.2)), (0.0, 1.0));
    }

    #[test]
    fn the_range_is_that_of_the_finite_values_with_padding_on_both_sides() {
        let odd = [f64::NEG_INFINITY, 1.0, f64::NAN, 3.0, f64::INFINITY];
        assert_eq!(axis(&odd, 0.0, false).range(), 1.0..3.0);
        assert_eq!(axis(&odd[..1], 0.0, false).range(), 0.0..1.0);
        let padded = axis(&[0.0, 10.0], 0.5, false);
        assert_eq!(padded.range(), -5.0..15.0);
        assert_eq!(padded.share(0.0), 0.25);
    }

    #[test]
    fn a_logarithmic_axis_has_exponents_and_is_labelled_by_values() {
        let exponents = |values: &[f64]| -> Vec<f64> { values.iter().map(|v| v.log10()).collect() };
        let three = axis(&exponents(&[0.5, 2000.0]), 0.0, true);
        let places: Vec<f64> = three.ticks().iter().map(|tick| tick.0).collect();
        assert_eq!(places, [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(labels(&three), ["1", "10", "100", "1,000"]);
        let many = axis(&exponents(&[1e-30, 1e30]), 0.0, true);
        assert_eq!(labels(&many), ["1e-22", "1e-11", "1", "1e11", "1e22"]);
    }

    #[test]
    fn a_single_value_is_in_the_middle_and_has_ticks() {
        for logarithmic in [false, true] {
            for value in [9.0, 0.0, -3.0, 1e-4] {
                let one = axis(&[value, value], 0.06, logarithmic);
                assert!((one.share(value) - 0.5).abs() < 1e-9, "{value}");
                assert!(one.ticks().len() >= 2, "{value}: {:?}", one.ticks());
            }
        }
        let nine = axis(&[9.0], 0.0, false);
        assert_eq!(labels(&nine), ["8.6", "8.8", "9.0", "9.2", "9.4"]);
    }

    #[test]
    fn plotters_labels_the_grid_by_the_axis_s_own_ticks() {
        let small = axis(&[0.0, 2e-5, 1e-4], 0.0, false);
        for room in [2, 11, 110] {
            let written = small.key_points(room).into_iter();
            let written = written.map(|place| small.format_ext(&place));
            assert!(written.eq(labels(&small)), "{room}");
        }
        assert_eq!(axis(&[], 0.0, false).format_ext(&0.21), "0.2");
    }
}
