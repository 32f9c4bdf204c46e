//! What a chart keeps of a long run.

/// The most points of a curve; more could not be told apart in a chart.
const MOST: usize = 800;

/// Points of a curve, thinned out while it grows: every n-th is kept, n a power of two.
#[derive(Debug, Clone)]
pub struct Curve {
    points: Vec<(f64, f64)>,
    last: Option<(f64, f64)>,
    /// Running mean.
    recent: Option<f64>,
    /// Points so far.
    count: usize,
    every: usize,
}

impl Default for Curve {
    fn default() -> Self {
        Self {
            points: Vec::new(),
            last: None,
            recent: None,
            count: 0,
            every: 1,
        }
    }
}

impl Curve {
    /// Adds a point.
    pub fn push(&mut self, x: f64, y: f64) {
        if self.count.is_multiple_of(self.every) {
            if self.points.len() == MOST {
                let mut index = 0;
                self.points.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
            if self.count.is_multiple_of(self.every) {
                self.points.push((x, y));
            }
        }
        self.count += 1;
        self.last = Some((x, y));
        let old = self.recent.filter(|old| old.is_finite());
        self.recent = Some(old.map_or(y, |old| 0.9 * old + 0.1 * y));
    }

    /// The points that are kept, the newest always among them.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let mut points = self.points.clone();
        if points.last() != self.last.as_ref() {
            points.extend(self.last);
        }
        points
    }

    /// The mean of the latest values, the newest counting most.
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
