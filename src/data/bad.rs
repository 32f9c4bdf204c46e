//! Bad rows: the first one is an error, or they are counted and skipped.

use std::path::Path;

use crate::error::{Error, Result};

/// What to do with bad rows, and how many there were.
#[derive(Debug, Default)]
pub struct BadRows {
    skip: bool,
    count: usize,
    first: Option<String>,
}

impl BadRows {
    /// Makes a bad row an error.
    pub fn refused() -> Self {
        Self::skipped_if(false)
    }

    /// Counts and skips bad rows.
    pub fn skipped() -> Self {
        Self::skipped_if(true)
    }

    /// Skips bad rows if `skip`; otherwise they are errors.
    pub fn skipped_if(skip: bool) -> Self {
        Self { skip, ..Self::default() }
    }

    /// Returns whether bad rows are skipped.
    pub fn skips(&self) -> bool {
        self.skip
    }

    /// Returns the row, or `None` if it is bad and skipped. Errors about the file as a whole are never
    /// skipped.
    pub fn keep<T>(&mut self, row: Result<T>) -> Result<Option<T>> {
        match row {
            Ok(row) => Ok(Some(row)),
            Err(error @ Error::Line { .. }) if self.skip => {
                self.count += 1;
                self.first.get_or_insert_with(|| error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the rows of a file, or an error that mentions skipped rows if there are none. `what` names
    /// a row.
    pub fn some<T>(&self, path: &Path, rows: Vec<T>, what: &str) -> Result<Vec<T>> {
        if !rows.is_empty() {
            return Ok(rows);
        }
        let skipped = self.report().map(|report| format!(" ({report})"));
        let skipped = skipped.unwrap_or_default();
        let message = format!("holds no {what} that could be used{skipped}");
        Err(Error::file(path, message))
    }

    /// Describes the skipped rows; `None` if there are none.
    pub fn report(&self) -> Option<String> {
        let first = self.first.as_deref()?;
        Some(match self.count {
            1 => format!("one bad row left out: {first}"),
            count => format!("{count} bad rows left out, the first: {first}"),
        })
    }
}

/// The largest number of columns that a row of a file may have; what sets this limit, such as the header; and
/// how to repair a row with more columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width(pub usize, pub &'static str, pub &'static str);

/// How to repair a row of a CSV file with too many columns.
pub const QUOTES: &str = "a text with commas needs quotes";
/// How to repair a row of a TSV file with too many columns.
pub const NO_TABS: &str = "a text must not hold tabs";

impl Width {
    /// Returns an error if a row has more columns: a separator in a text has split it, and the fields after
    /// it are in the wrong columns.
    pub fn check(self, path: &Path, line: usize, found: usize) -> Result<()> {
        if found <= self.0 {
            return Ok(());
        }
        let Self(columns, of, advice) = self;
        let message = format!("the row has {found} columns, but {of} has {columns}: {advice}");
        Err(Error::line(path, line, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_are_skipped_and_the_first_is_reported() {
        let bad = |line| Err::<(), _>(Error::line("x.tsv", line, "is bad"));
        assert!(BadRows::refused().keep(bad(2)).is_err());
        let mut rows = BadRows::skipped();
        assert_eq!(rows.keep(Ok(5)).unwrap(), Some(5));
        assert_eq!(rows.report(), None);
        assert_eq!(rows.keep(bad(3)).unwrap(), None);
        let one = "one bad row left out: x.tsv:3: is bad";
        assert_eq!(rows.report().as_deref(), Some(one));
        rows.keep(bad(4)).unwrap();
        let two = "2 bad rows left out, the first: x.tsv:3: is bad";
        assert_eq!(rows.report().as_deref(), Some(two));
        let file = Err::<(), _>(Error::file("x.tsv", "is empty"));
        assert!(rows.keep(file).is_err());
        let path = Path::new("x.tsv");
        assert_eq!(rows.some(path, vec![1], "row").unwrap(), [1]);
        let none = rows.some::<()>(path, Vec::new(), "row").unwrap_err();
        let expected = "x.tsv: holds no row that could be used (2 bad rows left out, the first: ";
        assert!(none.to_string().starts_with(expected), "{none}");
    }
}
