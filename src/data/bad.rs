//! Rows that can't be used: the first ends the reading, or they are counted and left out.

use std::path::Path;

use crate::error::{Error, Result};

/// What becomes of bad rows, and how many there were.
#[derive(Debug, Default)]
pub struct BadRows {
    skip: bool,
    count: usize,
    first: Option<String>,
}

impl BadRows {
    /// Bad rows are refused.
    pub fn refused() -> Self {
        Self::skipped_if(false)
    }

    /// Bad rows are counted and left out.
    pub fn skipped() -> Self {
        Self::skipped_if(true)
    }

    /// Bad rows are left out if `skip`, else refused.
    pub fn skipped_if(skip: bool) -> Self {
        Self {
            skip,
            ..Self::default()
        }
    }

    /// Whether bad rows are left out.
    pub fn skips(&self) -> bool {
        self.skip
    }

    /// The row; None where it is bad and left out. What is wrong with a file as a whole is never left
    /// out.
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

    /// The rows of a file; fails where there is none, and tells of those that were left out. `what`
    /// names one of them.
    pub fn some<T>(&self, path: &Path, rows: Vec<T>, what: &str) -> Result<Vec<T>> {
        if !rows.is_empty() {
            return Ok(rows);
        }
        let left_out = self.report().map(|told| format!(" ({told})"));
        let left_out = left_out.unwrap_or_default();
        let message = format!("holds no {what} that could be used{left_out}");
        Err(Error::file(path, message))
    }

    /// A sentence about the rows that were left out; None where none was.
    pub fn report(&self) -> Option<String> {
        let first = self.first.as_deref()?;
        Some(match self.count {
            1 => format!("one bad row left out: {first}"),
            count => format!("{count} bad rows left out, the first: {first}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_are_left_out_and_the_first_is_told() {
        let bad = |line| Err::<(), _>(Error::line("x.tsv", line, "is bad"));
        assert!(BadRows::refused().keep(bad(2)).is_err());
        let mut rows = BadRows::skipped();
        assert_eq!(rows.keep(Ok(5)).unwrap(), Some(5));
        assert_eq!(rows.report(), None);
        assert_eq!(rows.keep(bad(3)).unwrap(), None);
        assert_eq!(
            rows.report().unwrap(),
            "one bad row left out: x.tsv:3: is bad"
        );
        rows.keep(bad(4)).unwrap();
        assert!(
            rows.report()
                .unwrap()
                .starts_with("2 bad rows left out, the first: x.tsv:3")
        );
        assert!(
            rows.keep(Err::<(), _>(Error::file("x.tsv", "is empty")))
                .is_err()
        );
        let path = Path::new("x.tsv");
        assert_eq!(rows.some(path, vec![1], "row").unwrap(), [1]);
        let none = rows.some::<()>(path, Vec::new(), "row").unwrap_err();
        let expected = "x.tsv: holds no row that could be used (2 bad rows left out, the first: ";
        assert!(none.to_string().starts_with(expected), "{none}");
    }
}
