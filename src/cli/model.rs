//! The model that `--size` names.

use std::path::Path;

use crate::error::Result;
use crate::model::{Config, Size};

/// The configuration that `--size` names: a size of ours, or the path of a config.json.
pub fn config_of(size: &str, vocab_size: usize) -> Result<Config> {
    if is_file(size) {
        Config::read(Path::new(size))
    } else {
        Ok(size.parse::<Size>()?.config(vocab_size))
    }
}

/// Whether a `--size` is a configuration's path.
pub fn is_file(size: &str) -> bool {
    size.ends_with(".json")
}
