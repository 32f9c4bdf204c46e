//! The model that `--size` names.

use std::path::Path;

use crate::error::Result;
use crate::model::{Config, Size};

/// Returns the configuration that `--size` names: one of Cloze's sizes, or the path of a config.json.
pub(crate) fn config_of(size: &str, vocab_size: usize) -> Result<Config> {
    if is_file(size) {
        Config::read(Path::new(size))
    } else {
        Ok(size.parse::<Size>()?.config(vocab_size))
    }
}

/// Returns whether a `--size` is a path.
pub(crate) fn is_file(size: &str) -> bool {
    size.ends_with(".json")
}
