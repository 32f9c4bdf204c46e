//! Roofline charts: the speed of kernels beside the limits of memory and arithmetic.
//!
//! Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
//! multicore architectures", CACM 52(4), 2009.

use super::chart::LineChart;
use super::picture;

/// Kernels by their operations a byte and their operations a second, below the limits of memory (to the
/// left) and of arithmetic (to the right).
///
/// Kernels without operations, bytes or time are left out, because they are not on the logarithmic axes.
#[derive(Debug, Clone)]
pub struct RooflineChart {
    title: String,
    bandwidth: f64,
    peak: f64,
    groups: Vec<(String, Vec<(f64, f64)>)>,
}

/// Measurements of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Bytes moved between memory and chip.
    pub bytes: f64,
    /// Floating-point operations.
    pub flops: f64,
    /// Time.
    pub seconds: f64,
}

impl RooflineChart {
    /// Creates an empty chart of a machine with `bandwidth` bytes and `peak` operations a second.
    pub fn new(title: impl Into<String>, bandwidth: f64, peak: f64) -> Self {
        Self { title: title.into(), bandwidth, peak, groups: Vec::new() }
    }

    /// Adds a kernel to a group of points, which may be new.
    pub fn kernel(mut self, group: &str, measured: Measured) -> Self {
        let point = (measured.flops / measured.bytes, measured.flops / measured.seconds / 1e12);
        if [point.0, point.1].iter().all(|x| x.is_finite() && *x > 0.0) {
            match self.groups.iter_mut().find(|(name, _)| name == group) {
                Some((_, points)) => points.push(point),
                None => self.groups.push((group.into(), vec![point])),
            }
        }
        self
    }

    /// Returns the operations a byte from which on arithmetic is the limit.
    pub fn ridge(&self) -> f64 {
        self.peak / self.bandwidth
    }

    /// Returns the corners of the roof: from left of all kernels over the ridge to right of all kernels.
    fn roof(&self) -> Vec<(f64, f64)> {
        let all = || self.groups.iter().flat_map(|group| &group.1).map(|p| p.0);
        let ridge = self.ridge();
        let left = all().fold(ridge, f64::min) / 2.0;
        let right = all().fold(ridge, f64::max) * 2.0;
        [left, ridge, right].map(|x| (x, (x * self.bandwidth).min(self.peak) / 1e12)).to_vec()
    }

    fn chart(&self) -> LineChart {
        let peak = self.peak / 1e12;
        // That of a GPU without decimals, that of a CPU with two.
        let decimals = if peak < 10.0 { 2 } else { 0 };
        let roof = format!("{:.0} GB/s, {peak:.decimals$} TFLOP/s", self.bandwidth / 1e9);
        let chart = LineChart::new(&self.title)
            .axes("operations a byte", "TFLOP/s")
            .logarithmic()
            .line(roof, &self.roof());
        let groups = self.groups.iter();
        groups.fold(chart, |chart, (name, points)| chart.points(name, points))
    }

    /// Returns the chart as a stand-alone SVG document.
    pub fn svg(&self) -> String {
        self.chart().svg()
    }

    /// Returns the chart in characters, for a terminal.
    pub fn text(&self) -> String {
        self.chart().text()
    }
}

picture::shown_and_saved!(RooflineChart);

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(bytes: f64, flops: f64, seconds: f64) -> Measured {
        Measured { bytes, flops, seconds }
    }

    #[test]
    fn the_roof_rises_to_the_ridge_and_is_flat_after_it() {
        let chart = RooflineChart::new("GPU", 4e12, 800e12)
            .kernel("attention", measured(1e9, 50e9, 1e-3))
            .kernel("products", measured(1e9, 900e9, 2e-3))
            .kernel("products", measured(2e9, 900e9, 2e-3));
        assert_eq!(chart.ridge(), 200.0);
        let expected = [(25.0, 100.0), (200.0, 800.0), (1800.0, 800.0)];
        assert_eq!(chart.roof(), expected);
        assert_eq!(chart.groups[1].1, [(900.0, 450.0), (450.0, 450.0)]);
        let svg = chart.svg();
        for text in ["attention", "products", "4000 GB/s, 800 TFLOP/s"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn the_limits_of_a_cpu_have_decimals() {
        let svg = RooflineChart::new("CPU", 50e9, 0.134e12).svg();
        assert!(svg.contains("50 GB/s, 0.13 TFLOP/s"), "{svg}");
    }

    #[test]
    fn kernels_that_are_not_on_the_axes_are_left_out() {
        let chart = RooflineChart::new("GPU", 4e12, 800e12)
            .kernel("copies", measured(1e9, 0.0, 1e-3))
            .kernel("nothing", measured(0.0, 1.0, 1e-3))
            .kernel("no time", measured(1.0, 1.0, 0.0));
        assert!(chart.groups.is_empty());
        assert_eq!(chart.roof()[1], (200.0, 800.0));
    }
}
