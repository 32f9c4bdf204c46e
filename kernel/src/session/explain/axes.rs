//! Axes as a learner writes them in `permute` and `broadcast_like`.

use super::types::{Dim, Shape};

/// Returns the type of these axes, by number or by name: `Axis<1>` or `Axes2<i, j>`. `None` for no axes,
/// or for more than dfdx has.
pub fn code<T: ToString>(axes: &[T]) -> Option<String> {
    let list: Vec<String> = axes.iter().map(T::to_string).collect();
    match axes.len() {
        1 => Some(format!("Axis<{}>", list[0])),
        count @ 2..=6 => Some(format!("Axes{count}<{}>", list.join(", "))),
        _ => None,
    }
}

/// Returns names for indices along `count` axes: `i`, `j`, …. `None` for more axes than dfdx has.
pub fn names(count: usize) -> Option<&'static [&'static str]> {
    ["i", "j", "k", "l", "m", "n"].get(..count)
}

/// Returns the order of the axes with the last two exchanged, which transposes a matrix.
pub fn last_two_exchanged(rank: usize) -> Vec<usize> {
    let mut axes: Vec<usize> = (0..rank).collect();
    if let [.., row, column] = axes.as_mut_slice() {
        std::mem::swap(row, column);
    }
    axes
}

/// Returns the axes by which `permute` turns `from` into `to`, if exactly one exchange of two axes does.
pub fn exchanged(from: &Shape, to: &Shape) -> Option<Vec<usize>> {
    let rank = from.rank();
    let fits =
        |axes: &[usize]| axes.iter().zip(&to.0).all(|(&axis, size)| !from.0[axis].clashes(*size));
    // A size that the compiler does not know yet is no reason to move an axis.
    let known = |axis: usize, at: usize| !to.0[at].is_constant() || from.0[axis] == to.0[at];
    // rustc omits what both sides have in common.
    let common = |at: usize| from.0[at] == Dim::Hidden && to.0[at] == Dim::Hidden;
    let unchanged: Vec<usize> = (0..rank).collect();
    if rank != to.rank() || fits(&unchanged) {
        return None;
    }
    let mut fitting = choices(rank, 2)
        .into_iter()
        .map(|pair| {
            let mut axes = unchanged.clone();
            axes.swap(pair[0], pair[1]);
            axes
        })
        .filter(|axes| {
            fits(axes) && (0..rank).all(|at| axes[at] == at || known(axes[at], at) && !common(at))
        });
    let first = fitting.next()?;
    fitting.next().is_none().then_some(first)
}

/// Returns all choices of axes of `large` along which `small` may have to be repeated. There are none if
/// the sizes of `small` do not occur in `large`, in order.
pub fn added(small: &Shape, large: &Shape) -> Vec<Vec<usize>> {
    let Some(count) = large.rank().checked_sub(small.rank()) else {
        return Vec::new();
    };
    let fits = |axes: &Vec<usize>| {
        let rest = (0..large.rank()).filter(|at| !axes.contains(at));
        rest.zip(&small.0).all(|(at, size)| !size.clashes(large.0[at]))
    };
    let mut choices = choices(large.rank(), count);
    choices.retain(fits);
    choices
}

/// Returns every choice of `count` numbers below `rank`, which is a tensor's and so small.
fn choices(rank: usize, count: usize) -> Vec<Vec<usize>> {
    (0usize..1 << rank.min(16))
        .filter(|bits| bits.count_ones() as usize == count)
        .map(|bits| (0..rank).filter(|at| bits >> at & 1 == 1).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::types::Dim::{Hidden, Known, Runtime};
    use super::*;

    #[test]
    fn axes_are_written_as_types() {
        assert_eq!(code(&[1]).as_deref(), Some("Axis<1>"));
        assert_eq!(code(&[0, 2, 1]).as_deref(), Some("Axes3<0, 2, 1>"));
        assert_eq!(code(&["i", "j"]).as_deref(), Some("Axes2<i, j>"));
        assert_eq!(code::<usize>(&[]), None);
        assert_eq!(code(&[0; 7]), None);
    }

    #[test]
    fn only_the_last_two_axes_are_exchanged() {
        assert_eq!(last_two_exchanged(2), [1, 0]);
        assert_eq!(last_two_exchanged(4), [0, 1, 3, 2]);
        assert_eq!(last_two_exchanged(1), [0]);
        assert!(last_two_exchanged(0).is_empty());
    }

    #[test]
    fn two_exchanged_axes_are_found() {
        let heads = Shape(vec![Runtime, Known(2), Runtime, Known(64)]);
        let turned = Shape(vec![Runtime, Known(2), Known(64), Runtime]);
        assert_eq!(exchanged(&heads, &turned), Some(vec![0, 1, 3, 2]));
        assert_eq!(exchanged(&heads, &heads), None);
        // A size that rustc does not know yet may be anything.
        let unknown = Shape(vec![Hidden, Hidden, Known(64), Hidden]);
        assert_eq!(exchanged(&heads, &unknown), Some(vec![0, 1, 3, 2]));
        let hidden = |last| Shape(vec![Hidden, Known(last)]);
        assert_eq!(exchanged(&hidden(3), &hidden(10)), None);
        let common = |last| Shape(vec![Hidden, last]);
        assert_eq!(exchanged(&common(Known(64)), &common(Runtime)), None);
        let ambiguous = Shape(vec![Known(64), Runtime, Hidden, Hidden]);
        assert_eq!(exchanged(&heads, &ambiguous), None);
        let other = Shape(vec![Runtime, Known(2), Known(32), Runtime]);
        assert_eq!(exchanged(&heads, &other), None);
    }

    #[test]
    fn added_axes_are_found_by_their_sizes() {
        let scores = Shape(vec![Runtime, Known(2), Runtime, Runtime]);
        let mask = Shape(vec![Runtime, Runtime]);
        let possible = added(&mask, &scores);
        assert_eq!(possible, [[0, 1], [1, 2], [1, 3]], "{possible:?}");
        let rows = Shape(vec![Runtime, Known(3)]);
        let row = Shape(vec![Known(3)]);
        assert_eq!(added(&row, &rows), [[0]]);
        assert!(added(&rows, &row).is_empty());
        assert!(added(&Shape(vec![Known(4)]), &rows).is_empty());
    }
}
