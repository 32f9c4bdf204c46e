//! A development set held out of a training file: a share of its rows, drawn by a seed, with the same share of
//! every class.

use std::collections::BTreeMap;

use crate::random::{Site, Stream};

/// Which rows are held out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// The share of the rows that is held out, from 0 to below 1.
    pub share: f64,
    /// Key of the draw.
    pub seed: u64,
}

impl Split {
    /// Returns the rows that are held out, or the others, in their order. `class` returns a row's class; rows of
    /// one class are divided by the share. If anything is held out, neither part of two or more rows is empty.
    pub fn part<T, C: Ord>(self, rows: Vec<T>, held_out: bool, class: impl Fn(&T) -> C) -> Vec<T> {
        let mut classes: BTreeMap<C, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            classes.entry(class(row)).or_default().push(index);
        }
        let mut chosen = vec![false; rows.len()];
        for index in self.drawn(rows.len(), classes.into_values()) {
            chosen[index] = true;
        }
        let all = rows.into_iter().zip(chosen);
        all.filter(|(_, chosen)| *chosen == held_out).map(|(row, _)| row).collect()
    }

    /// Draws from each class its share, rounded so that the shares add up to that of all rows.
    fn drawn(self, rows: usize, classes: impl Iterator<Item = Vec<usize>>) -> Vec<usize> {
        if self.share <= 0.0 || rows < 2 {
            return Vec::new();
        }
        let wanted = ((rows as f64 * self.share).round() as usize).clamp(1, rows - 1);
        let (mut drawn, mut spare) = (Vec::new(), Vec::new());
        for (number, mut class) in classes.enumerate() {
            Stream::new(self.seed, 0, Site::Split, number as u64).draws().shuffle(&mut class);
            let exact = class.len() as f64 * wanted as f64 / rows as f64;
            let whole = exact as usize;
            spare.extend(class.get(whole).map(|&index| (exact - whole as f64, index)));
            drawn.extend_from_slice(&class[..whole]);
        }
        // The classes with the largest rest give one row more, of equal rests any.
        Stream::new(self.seed, 0, Site::Split, u64::MAX).draws().shuffle(&mut spare);
        spare.sort_by(|a, b| b.0.total_cmp(&a.0));
        let missing = wanted.saturating_sub(drawn.len());
        drawn.extend(spare.into_iter().take(missing).map(|(_, index)| index));
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(rows: usize, share: f64, seed: u64) -> [Vec<usize>; 2] {
        let split = Split { share, seed };
        // Every fifth row has another class, and one row a third.
        let class = |&row: &usize| if row == 7 { 2 } else { u32::from(row.is_multiple_of(5)) };
        [true, false].map(|held_out| split.part((0..rows).collect(), held_out, class))
    }

    #[test]
    fn both_parts_have_the_same_share_of_every_class() {
        let [held_out, rest] = parts(100, 0.1, 1);
        assert_eq!((held_out.len(), rest.len()), (10, 90));
        assert_eq!(held_out.iter().filter(|&&row| row.is_multiple_of(5)).count(), 2);
        let mut all = [held_out.clone(), rest].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100), "every row is in one part");
        assert!(held_out.is_sorted());
        assert_eq!(held_out, parts(100, 0.1, 1)[0]);
        assert_ne!(held_out, parts(100, 0.1, 2)[0]);
    }

    #[test]
    fn of_rows_with_a_class_each_any_are_held_out() {
        let held_out = |seed| {
            let split = Split { share: 0.1, seed };
            split.part((0..400).collect(), true, |&row: &u32| row)
        };
        let rows = held_out(1);
        assert_eq!(rows.len(), 40);
        assert!(rows.iter().filter(|&&row| row >= 200).count() > 5, "{rows:?}");
        assert_ne!(rows, held_out(2));
    }

    #[test]
    fn small_files_have_two_parts_and_no_share_holds_nothing_out() {
        for (rows, share, held_out) in
            [(2, 0.1, 1), (3, 0.99, 2), (1, 0.5, 0), (0, 0.5, 0), (9, 0.0, 0), (15, 0.2, 3)]
        {
            let [chosen, rest] = parts(rows, share, 1);
            assert_eq!((chosen.len(), rest.len()), (held_out, rows - held_out), "{rows}, {share}");
        }
    }
}
