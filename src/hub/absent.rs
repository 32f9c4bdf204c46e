//! Models without the Hugging Face Hub, for builds that leave the feature `hub` out.

use std::path::{Path, PathBuf};

use crate::data::bundled;
use crate::error::{Error, Result};

/// Returns the folder of a model: `model` itself if that is one, or that of a [bundled one](bundled::model).
pub fn folder_of(model: &Path) -> Result<PathBuf> {
    if model.is_dir() {
        return Ok(model.to_path_buf());
    }
    if let Some(folder) = bundled::model(model) {
        return folder;
    }
    Err(Error::Failed(format!(
        "{} is not a folder, and this build can't load models of the Hugging Face Hub: it lacks \
         Cloze's feature `hub`",
        model.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_on_the_hub_is_refused_with_the_feature_s_name() {
        let message = folder_of(Path::new("google-bert/bert-base-uncased")).unwrap_err();
        assert!(message.to_string().contains("feature `hub`"), "{message}");
        assert!(folder_of(Path::new(bundled::SMALL)).unwrap().is_dir());
    }
}
