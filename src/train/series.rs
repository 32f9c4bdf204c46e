//! The reports of a run's steps, thinned as they grow: a run of a million steps keeps them in memory and in
//! every checkpoint.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Number of newest entries that are always kept.
const LATEST: usize = 50;

/// Entries in order. Up to `MOST`, all are kept; of more, every n-th, where n is a power of two. The first
/// one and the newest ones are always kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series<T, const MOST: usize = 8192> {
    kept: Vec<T>,
    latest: VecDeque<T>,
    every: u64,
    count: u64,
}

impl<T, const MOST: usize> Default for Series<T, MOST> {
    fn default() -> Self {
        Self { kept: Vec::new(), latest: VecDeque::new(), every: 1, count: 0 }
    }
}

impl<T: Clone, const MOST: usize> Series<T, MOST> {
    /// Adds an entry.
    pub fn push(&mut self, entry: T) {
        if self.count.is_multiple_of(self.every) {
            if self.kept.len() == MOST {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
            if self.count.is_multiple_of(self.every) {
                self.kept.push(entry.clone());
            }
        }
        self.count += 1;
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(entry);
    }

    /// Returns the number of entries that were added.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns whether no entry was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the first entry.
    pub fn first(&self) -> Option<&T> {
        self.kept.first()
    }

    /// Returns the `count` newest entries, at most 50, the newest first.
    pub fn latest(&self, count: usize) -> impl Iterator<Item = &T> {
        self.latest.iter().rev().take(count)
    }

    /// Returns the kept entries, evenly spaced, and the newest one.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let newest_is_kept = self.count > 0 && (self.count - 1).is_multiple_of(self.every);
        let newest = self.latest.back().filter(|_| !newest_is_kept);
        self.kept.iter().chain(newest)
    }
}

impl<T: Clone, const MOST: usize> FromIterator<T> for Series<T, MOST> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut series = Self::default();
        entries.into_iter().for_each(|entry| series.push(entry));
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_keeps_even_steps_both_ends_and_the_newest() {
        let mut series = Series::<u64, 100>::default();
        assert!(series.is_empty() && series.iter().next().is_none());
        for number in 0..10_000 {
            series.push(number);
            let all: Vec<u64> = series.iter().copied().collect();
            assert!(all.len() <= 101);
            assert_eq!((all[0], *all.last().unwrap()), (0, number));
            assert_eq!(series.len(), number + 1);
            let apart: Vec<u64> = all[..all.len() - 1].windows(2).map(|w| w[1] - w[0]).collect();
            assert!(apart.iter().all(|&gap| gap == apart[0]), "{all:?}");
        }
        let newest: Vec<u64> = series.latest(3).copied().collect();
        assert_eq!(newest, [9_999, 9_998, 9_997]);
        assert_eq!(series.latest(1_000).count(), LATEST);
    }

    #[test]
    fn a_short_series_is_whole_and_comes_back_from_json() {
        let series: Series<u32> = (0..300).collect();
        assert!(series.iter().copied().eq(0..300));
        let text = serde_json::to_string(&series).unwrap();
        let mut again: Series<u32> = serde_json::from_str(&text).unwrap();
        assert_eq!(again, series);
        again.push(300);
        assert_eq!(again.iter().last(), Some(&300));
    }
}
