//! The comparisons that a check makes of a learner's answer, and their error messages.

use std::cmp::Ordering;
use std::fmt::Debug;

use dfdx::prelude::{Dtype, HasShape, Shape, Storage, Tensor};

use crate::view::display::Show;
use crate::view::style;

/// Collects the findings of a check. Only the first fault is kept: one thing to think about at a time.
#[derive(Debug, Default)]
pub struct Judge {
    pub(super) right: usize,
    pub(super) fault: Option<String>,
}

impl Judge {
    /// Checks that `yours`, the value of `what`, equals `expected`; if not, `think` gives advice.
    pub fn equal<T: Debug + PartialEq<U>, U: Debug>(
        &mut self,
        what: &str,
        yours: T,
        expected: U,
        think: &str,
    ) {
        let holds = yours == expected;
        self.note(holds, || {
            format!("{what} gives\n  {yours:?}\nbut should give\n  {expected:?}\n{think}")
        });
    }

    /// Checks that two lists are equal; the message names the first entry that differs.
    pub fn same_list<T: Debug + PartialEq<U>, U: Debug>(
        &mut self,
        what: &str,
        yours: &[T],
        expected: &[U],
        think: &str,
    ) {
        let first = yours.iter().zip(expected).position(|(a, b)| a != b);
        let holds = first.is_none() && yours.len() == expected.len();
        self.note(holds, || {
            let entry =
                |at: usize| format!("entry {at} is {:?}, expected {:?}", yours[at], expected[at]);
            let difference = match first {
                Some(at) => entry(at),
                None => format!("its length is {}, expected {}", yours.len(), expected.len()),
            };
            format!(
                "{what} gives\n  {}\nbut should give\n  {}\n({difference})\n{think}",
                shortened(yours),
                shortened(expected)
            )
        });
    }

    /// Checks that a number is within `tolerance` of `expected`.
    pub fn close(&mut self, what: &str, yours: f64, expected: f64, tolerance: f64, think: &str) {
        let holds = (yours - expected).abs() <= tolerance;
        self.note(holds, || {
            format!("{what} is {yours}, but should be {expected} (within {tolerance})\n{think}")
        });
    }

    /// Checks that a tensor has the shape of `expected` and, within `tolerance`, its numbers; the message gives
    /// the position of the first that differs, and both tensors if they are small.
    pub fn close_tensor<S: Shape, E: Dtype, D: Storage<E>>(
        &mut self,
        what: &str,
        yours: &Tensor<S, E, D>,
        expected: &Tensor<S, E, D>,
        tolerance: f64,
        think: &str,
    ) {
        let sizes = |tensor: &Tensor<S, E, D>| -> Vec<usize> {
            tensor.shape().concrete().into_iter().collect()
        };
        let shape = sizes(expected);
        if sizes(yours) != shape {
            let named = |sizes: &[usize]| {
                let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
                sizes.join("×")
            };
            return self.note(false, || {
                let (got, wanted) = (named(&sizes(yours)), named(&shape));
                format!("{what} has the shape {got}, but should have {wanted}\n{think}")
            });
        }
        // Every number type of dfdx converts; any other would count as wrong.
        let number = |value: &E| value.to_f64().unwrap_or(f64::NAN);
        let (got, wanted) = (yours.as_vec(), expected.as_vec());
        let differs = |(a, b): &(&E, &E)| {
            let apart = (number(a) - number(b)).abs();
            !matches!(apart.partial_cmp(&tolerance), Some(Ordering::Less | Ordering::Equal))
        };
        let first = got.iter().zip(&wanted).position(|pair| differs(&pair));
        self.note(first.is_none(), || {
            let at = first.unwrap_or_default();
            let count = got.iter().zip(&wanted).filter(differs).count();
            let mut text = format!(
                "{what} is {} at {:?}, but should be {} (within {tolerance}; {count} of {} numbers differ)",
                style::number(number(&got[at])),
                position(at, &shape),
                style::number(number(&wanted[at])),
                got.len(),
            );
            if got.len() <= SMALL {
                let (got, wanted) = (yours.content().plain(), expected.content().plain());
                text += &format!("\nyours:     {got}\nshould be: {wanted}");
            }
            format!("{text}\n{think}")
        });
    }

    /// Checks that a condition holds.
    pub fn holds(&mut self, what: &str, holds: bool, think: &str) {
        self.note(holds, || format!("expected: {what}\n{think}"));
    }

    fn note(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        match (&self.fault, holds) {
            (Some(_), _) => {}
            (None, true) => self.right += 1,
            (None, false) => self.fault = Some(fault()),
        }
    }
}

/// Returns the largest difference between two lists; infinity if their lengths differ or if one has an entry
/// that is not a number.
pub fn largest_gap<A: Copy + Into<f64>, B: Copy + Into<f64>>(a: &[A], b: &[B]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let gaps = a.iter().zip(b).map(|(&a, &b)| (a.into() - b.into()).abs());
    gaps.fold(0.0, |most, gap| if gap.is_nan() { f64::INFINITY } else { most.max(gap) })
}

/// Tensors with more numbers than this are not shown.
const SMALL: usize = 24;

/// Returns the position in a tensor of the number at `index`, counted row by row.
fn position(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut position = vec![0; shape.len()];
    for (at, size) in position.iter_mut().zip(shape).rev() {
        *at = index % size;
        index /= size;
    }
    position
}

/// Formats a list by `Debug`, without the middle of a long one.
fn shortened<T: Debug>(list: &[T]) -> String {
    const ENDS: usize = 12;
    if list.len() <= 2 * ENDS + 1 {
        return format!("{list:?}");
    }
    let inner = |part: &[T]| format!("{part:?}")[1..].trim_end_matches(']').to_owned();
    let (head, tail) = (&list[..ENDS], &list[list.len() - ENDS..]);
    format!("[{}, …, {}]", inner(head), inner(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gap_is_infinite_without_a_number_or_with_another_length() {
        let gap = largest_gap(&[1.0f32, 2.5], &[1.0, 2.0]);
        assert!((gap - 0.5).abs() < 1e-9);
        for wrong in [&[1.0, f64::NAN] as &[f64], &[f64::NAN, 2.0], &[1.0], &[1.0, 2.0, 3.0]] {
            assert!(largest_gap(wrong, &[1.0, 2.0]).is_infinite());
        }
    }

    #[test]
    fn messages_about_long_lists_stay_short() {
        let mut judge = Judge::default();
        judge.same_list("f()", &[0; 100], &[0; 101], "");
        let fault = judge.fault.unwrap();
        assert!(fault.contains("its length is 100, expected 101"));
        assert!(fault.len() < 300);
    }

    #[test]
    fn tensors_are_compared_by_shape_and_number() {
        use dfdx::prelude::*;
        let dev = Cpu::default();
        let tensor =
            |rows: usize, values: &[f32]| dev.tensor_from_vec(values.to_vec(), (rows, Const::<2>));
        let right = tensor(2, &[1.0, 2.0, 3.0, 4.0]);
        let fault = |yours: &Tensor<(usize, Const<2>), f32, Cpu>| {
            let mut judge = Judge::default();
            judge.close_tensor("f(x)", yours, &right, 0.1, "Think.");
            judge.fault
        };
        assert_eq!(fault(&tensor(2, &[1.0, 2.05, 3.0, 4.0])), None);
        let shape = fault(&tensor(1, &[1.0, 2.0])).unwrap();
        assert_eq!(shape, "f(x) has the shape 1×2, but should have 2×2\nThink.");
        let wrong = fault(&tensor(2, &[1.0, 2.0, f32::NAN, 5.0])).unwrap();
        let start = "f(x) is NaN at [1, 0], but should be 3 (within 0.1; 2 of 4 numbers differ)";
        assert!(wrong.starts_with(start), "{wrong}");
        assert!(wrong.contains("yours:     2×2 f32 cpu") && wrong.ends_with("Think."));
    }
}
