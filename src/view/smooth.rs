//! Smooths noisy measurements.

/// Most points of a smooth curve: more are indistinguishable at a chart's width.
const MOST: usize = 240;

/// Returns a smooth curve through noisy `points`, whose x rise: at each point (or evenly spaced ones of many)
/// the value of the line that fits its neighbours best, near ones having more weight (the locally weighted
/// regression of Cleveland, "Robust Locally Weighted Regression and Smoothing Scatterplots", 1979, in one
/// pass). Unlike a mean, it does not lag behind a steep fall.
///
/// A fourteenth of the points counts on either side: fewer near the start, so that the first value stays
/// exact; at the end equally many in all, more of them from the left.
pub fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let count = points.len().min(MOST);
    (0..count)
        .map(|n| match count {
            1 => 0,
            _ => n * (points.len() - 1) / (count - 1),
        })
        .map(|at| (points[at].0, fitted(points, at)))
        .collect()
}

fn fitted(points: &[(f64, f64)], at: usize) -> f64 {
    let reach = (points.len() / 14).min(at / 3);
    let end = points.len().min(at + reach + 1);
    let start = end.saturating_sub(2 * reach + 1);
    let furthest = (at - start).max(end - 1 - at) as f64 + 1.0;
    let near = (start..end).map(|i| {
        let distance = i.abs_diff(at) as f64 / furthest;
        let weight = (1.0 - distance.powi(3)).powi(3);
        (weight, points[i].0 - points[at].0, points[i].1)
    });
    // Sums of weighted least squares, with x relative to the point.
    let [mut w, mut x, mut y, mut xx, mut xy] = [0.0; 5];
    for (weight, dx, value) in near {
        w += weight;
        x += weight * dx;
        y += weight * value;
        xx += weight * dx * dx;
        xy += weight * dx * value;
    }
    let determinant = w * xx - x * x;
    if determinant > 1e-12 * w * xx {
        (xx * y - x * xy) / determinant
    } else {
        // All points have the same x.
        y / w
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(count: u32, y: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..count).map(|i| (f64::from(i), y(f64::from(i)))).collect()
    }

    #[test]
    fn the_start_and_the_level_are_kept() {
        let points = series(1000, |x| x % 2.0);
        let curve = smooth(&points);
        assert_eq!(curve[0], points[0]);
        assert_eq!(curve.last().unwrap().0, 999.0);
        assert_eq!(curve.len(), 240);
        assert!(curve[60..].iter().all(|p| (p.1 - 0.5).abs() < 0.1));
    }

    #[test]
    fn a_straight_line_is_unchanged() {
        let points = series(100, |x| 7.0 - 0.5 * x);
        for (curve, point) in smooth(&points).iter().zip(&points) {
            assert!((curve.1 - point.1).abs() < 1e-9, "{curve:?} {point:?}");
        }
    }

    #[test]
    fn a_steep_fall_is_followed() {
        let points = series(200, |x| 20.0 * (-x / 4.0).exp() + 0.3);
        for (curve, point) in smooth(&points).iter().zip(&points) {
            let apart = curve.1 - point.1;
            assert!(apart.abs() < 0.12 * point.1, "{curve:?} {point:?}");
        }
    }

    #[test]
    fn few_or_equal_points_are_unchanged() {
        assert_eq!(smooth(&[]), []);
        assert_eq!(smooth(&[(3.0, 2.0)]), [(3.0, 2.0)]);
        let stacked = vec![(1.0, 2.0); 50];
        assert_eq!(smooth(&stacked), stacked);
    }
}
