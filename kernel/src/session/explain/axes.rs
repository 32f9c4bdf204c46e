//! Axes as a learner names them in `permute` and `broadcast_like`.

use super::types::Shape;

/// The type of these axes, by number or by name, `Axis<1>` or `Axes2<i, j>`; None for none, or for more
/// than dfdx has.
pub fn code<T: ToString>(axes: &[T]) -> Option<String> {
    let list: Vec<String> = axes.iter().map(T::to_string).collect();
    match axes.len() {
        1 => Some(format!("Axis<{}>", list[0])),
        count @ 2..=6 => Some(format!("Axes{count}<{}>", list.join(", "))),
        _ => None,
    }
}

/// `i, j, …`: what indices along so many axes are called; None for more than dfdx has.
pub fn names(count: usize) -> Option<&'static [&'static str]> {
    ["i", "j", "k", "l", "m", "n"].get(..count)
}

/// The order of so many axes in which the last two have changed places, a matrix' transposition.
pub fn last_two_turned(rank: usize) -> Vec<usize> {
    let mut axes: Vec<usize> = (0..rank).collect();
    if let [.., row, column] = axes.as_mut_slice() {
        std::mem::swap(row, column);
    }
    axes
}

/// What `permute` takes to make `to` of `from`, where these differ by two axes in each other's place, and
/// by no other two.
pub fn exchanged(from: &Shape, to: &Shape) -> Option<Vec<usize>> {
    let rank = from.rank();
    let fits = |axes: &[usize]| {
        axes.iter()
            .zip(&to.0)
            .all(|(&axis, size)| !from.0[axis].clashes(*size))
    };
    // A size that the compiler has not told yet is no reason to move it.
    let known = |axis: usize, at: usize| !to.0[at].is_constant() || from.0[axis] == to.0[at];
    let straight: Vec<usize> = (0..rank).collect();
    if rank != to.rank() || fits(&straight) {
        return None;
    }
    let mut turned = choices(rank, 2)
        .into_iter()
        .map(|pair| {
            let mut axes = straight.clone();
            axes.swap(pair[0], pair[1]);
            axes
        })
        .filter(|axes| fits(axes) && (0..rank).all(|at| axes[at] == at || known(axes[at], at)));
    let first = turned.next()?;
    turned.next().is_none().then_some(first)
}

/// The axes of `large` that `small` may have to be repeated along, every choice that the sizes allow;
/// none where the sizes of `small` do not stand in `large`, in order.
pub fn added(small: &Shape, large: &Shape) -> Vec<Vec<usize>> {
    let Some(count) = large.rank().checked_sub(small.rank()) else {
        return Vec::new();
    };
    let fits = |axes: &Vec<usize>| {
        let rest = (0..large.rank()).filter(|at| !axes.contains(at));
        rest.zip(&small.0)
            .all(|(at, size)| !size.clashes(large.0[at]))
    };
    let mut choices = choices(large.rank(), count);
    choices.retain(fits);
    choices
}

/// Every choice of `count` of the numbers below `rank`, which is that of a tensor and so small.
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
    fn only_the_last_two_axes_are_turned() {
        assert_eq!(last_two_turned(2), [1, 0]);
        assert_eq!(last_two_turned(4), [0, 1, 3, 2]);
        assert_eq!(last_two_turned(1), [0]);
        assert!(last_two_turned(0).is_empty());
    }

    #[test]
    fn two_axes_in_each_others_place_are_found() {
        let heads = Shape(vec![Runtime, Known(2), Runtime, Known(64)]);
        let turned = Shape(vec![Runtime, Known(2), Known(64), Runtime]);
        assert_eq!(exchanged(&heads, &turned), Some(vec![0, 1, 3, 2]));
        assert_eq!(exchanged(&heads, &heads), None);
        // What rustc has not found out yet may be anything.
        let unknown = Shape(vec![Hidden, Hidden, Known(64), Hidden]);
        assert_eq!(exchanged(&heads, &unknown), Some(vec![0, 1, 3, 2]));
        let hidden = |last| Shape(vec![Hidden, Known(last)]);
        assert_eq!(exchanged(&hidden(3), &hidden(10)), None);
        let ambiguous = Shape(vec![Known(64), Runtime, Hidden, Hidden]);
        assert_eq!(exchanged(&heads, &ambiguous), None);
        let other = Shape(vec![Runtime, Known(2), Known(32), Runtime]);
        assert_eq!(exchanged(&heads, &other), None);
    }

    #[test]
    fn new_axes_are_told_where_the_sizes_tell_them() {
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
