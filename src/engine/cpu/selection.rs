//! The rows of the last layer that heads read.
//!
//! A row of a layer's output depends on the other rows through their keys and values alone. The masked-LM head reads the
//! masked tokens, and the pooler one row for each sequence. So in the last layer only these rows attend to others and go
//! through the feed-forward layers. The results are the same.

use std::ops::Range;

use super::dropout::Rows;

/// Rows of a batch in ascending order; none stands for all rows.
#[derive(Default)]
pub struct Selection {
    indices: Vec<u32>,
    /// Their examples and positions.
    rows: Rows,
}

impl Selection {
    /// Selects `rows` out of `all` rows. Selects all if `rows` is empty, or has more than three quarters of them: leaving
    /// out so few would gain little.
    pub fn set(&mut self, rows: impl Iterator<Item = u32>, all: usize) {
        self.indices.clear();
        self.indices.extend(rows);
        self.indices.sort_unstable();
        self.indices.dedup();
        if 4 * self.indices.len() > 3 * all {
            self.indices.clear();
        }
    }

    /// Selects the rows in a range of rows that `whole` selects, relative to the start of the range.
    pub fn set_part(&mut self, whole: &Self, range: Range<u32>) {
        let (_, rows) = whole.within(range.clone());
        self.set(rows.iter().map(|row| row - range.start), range.len());
    }

    /// Finds the examples and positions of the selected rows among those of `all` rows.
    pub fn find(&mut self, all: &Rows) {
        self.rows.pick(all, &self.indices);
    }

    /// Returns None if all rows are selected.
    pub fn get(&self) -> Option<&Self> {
        (!self.indices.is_empty()).then_some(self)
    }

    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Returns the selected rows in a range of rows, and the place of the first of them among all selected.
    pub fn within(&self, range: Range<u32>) -> (usize, &[u32]) {
        let place = |at: u32| self.indices.partition_point(|&row| row < at);
        let (start, end) = (place(range.start), place(range.end));
        (start, &self.indices[start..end])
    }

    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Copies the selected rows of `from`, `width` values each, to `to`, one after the other.
    pub fn pick(&self, from: &[f32], width: usize, to: &mut [f32]) {
        pick(from, &self.indices, width, to);
    }

    /// The opposite of [`pick`](Self::pick): copies each row of `from` to its place in `to`; the other rows are zero.
    pub fn put(&self, from: &[f32], width: usize, to: &mut [f32]) {
        to.fill(0.0);
        add_picked(from, &self.indices, width, to);
    }

    /// Moves the selected rows from the front of `values` to their places. The other rows have no meaning then.
    pub fn spread(&self, width: usize, values: &mut [f32]) {
        // No row is behind its place, so the last one has to move first.
        let mut end = values.len();
        for (from, &to) in self.indices.iter().enumerate().rev() {
            let to = to as usize * width;
            values.copy_within(from * width..(from + 1) * width, to);
            if cfg!(debug_assertions) {
                // A head that reads other rows fails its tests.
                values[to + width..end].fill(f32::NAN);
            }
            end = to;
        }
        if cfg!(debug_assertions) {
            values[..end].fill(f32::NAN);
        }
    }
}

/// `to[i] = from[rows[i]]`, rows of `width` values.
pub fn pick(from: &[f32], rows: &[u32], width: usize, to: &mut [f32]) {
    for (to, &row) in to.chunks_exact_mut(width).zip(rows) {
        let first = row as usize * width;
        to.copy_from_slice(&from[first..first + width]);
    }
}

/// `to[rows[i]] += from[i]`, the gradient of [`pick`].
pub fn add_picked(from: &[f32], rows: &[u32], width: usize, to: &mut [f32]) {
    for (from, &row) in from.chunks_exact(width).zip(rows) {
        let first = row as usize * width;
        for (to, from) in to[first..first + width].iter_mut().zip(from) {
            *to += from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_rows_go_back_to_their_places() {
        let mut selection = Selection::default();
        selection.set([0, 2, 3, 6].into_iter(), 7);
        assert_eq!(selection.len(), 4);
        assert_eq!(selection.within(1..6), (1, &[2, 3][..]));
        let all: Vec<f32> = (0..14).map(|x| x as f32).collect();
        let mut picked = vec![0.0; 8];
        selection.pick(&all, 2, &mut picked);
        assert_eq!(picked, [0.0, 1.0, 4.0, 5.0, 6.0, 7.0, 12.0, 13.0]);
        let mut put = vec![9.0; 14];
        selection.put(&picked, 2, &mut put);
        let expected = [0.0, 1.0, 0.0, 0.0, 4.0, 5.0, 6.0, 7.0, 0.0, 0.0, 0.0, 0.0, 12.0, 13.0];
        assert_eq!(put, expected);
        let mut spread = [picked, vec![9.0; 6]].concat();
        selection.spread(2, &mut spread);
        for row in [0, 2, 3, 6] {
            assert_eq!(spread[2 * row..2 * row + 2], all[2 * row..2 * row + 2]);
        }
    }

    #[test]
    fn few_rows_are_selected_once_and_in_order_and_many_are_not() {
        let [mut selection, mut part] = [(); 2].map(|()| Selection::default());
        selection.set([5, 0, 5, 3].into_iter(), 8);
        assert_eq!(selection.indices, [0, 3, 5]);
        part.set_part(&selection, 3..8);
        assert_eq!(part.indices, [0, 2]);
        part.set_part(&selection, 6..8);
        assert!(part.get().is_none());
        selection.set(0..6, 8);
        assert_eq!(selection.len(), 6);
        selection.set(0..7, 8);
        assert!(selection.get().is_none());
    }
}
