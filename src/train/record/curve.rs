//! The curve of a number over a long run.

use crate::train::series::Series;

/// Upper limit of a curve's points: more can't be distinguished in a chart.
const MOST: usize = 800;

/// Points of a curve, thinned as it grows.
#[derive(Debug, Clone, Default)]
pub struct Curve {
    points: Series<(f64, f64), MOST>,
    /// Running mean.
    recent: Option<f64>,
}

impl Curve {
    /// Adds a point.
    pub fn push(&mut self, x: f64, y: f64) {
        self.points.push((x, y));
        let old = self.recent.filter(|old| old.is_finite());
        self.recent = Some(old.map_or(y, |old| 0.9 * old + 0.1 * y));
    }

    /// Returns the kept points, always with the newest.
    pub fn points(&self) -> Vec<(f64, f64)> {
        self.points.iter().copied().collect()
    }

    /// Returns the running mean, in which the newest value counts most.
    pub fn recent(&self) -> Option<f64> {
        self.recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_even_steps_and_both_ends() {
        let mut curve = Curve::default();
        for count in 1..=10_000usize {
            curve.push(count as f64, -(count as f64));
            let points = curve.points();
            assert!(points.len() <= MOST + 1);
            assert_eq!((points[0].0, points.last().unwrap().0), (1.0, count as f64));
            if count <= MOST {
                assert_eq!(points.len(), count);
            }
        }
        let points = curve.points();
        assert!(points.len() > MOST / 2);
        for pair in points[..points.len() - 1].windows(2) {
            assert_eq!(pair[1].0 - pair[0].0, 16.0);
        }
        assert!((curve.recent().unwrap() + 9_991.0).abs() < 1e-6);
    }
}
