//! In the place of the reader of Parquet files in a build without it.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Returns an error: this build does not read Parquet.
pub(super) fn rows(
    path: &Path,
    _names: &[String],
    _needed: usize,
) -> Result<std::iter::Empty<Result<Map<String, Value>>>> {
    let message =
        "is a Parquet file, which Cloze reads only if it is built with the feature parquet";
    Err(Error::file(path, message))
}
