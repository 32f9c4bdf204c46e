//! The files of a model folder that belong on the Hub.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::hub::SENTENCE_FILES;
use crate::model::weights::{CONFIG, INDEX};

/// The files besides the weights. A run's records and its state, in `trainer/`, stay at home.
const NAMES: [&str; 7] = [
    CONFIG,
    INDEX,
    "README.md",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
];
/// The endings of weights.
const WEIGHTS: [&str; 2] = [".safetensors", ".onnx"];

/// A file of a model.
#[derive(Debug)]
pub struct ModelFile {
    /// Its path in the repository.
    pub name: String,
    /// Its path here.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
}

/// Returns the files of the model in `folder`, in the order of their names.
///
/// # Errors
/// If the folder holds no configuration or no weights.
pub fn files_of_model(folder: &Path) -> Result<Vec<ModelFile>> {
    let weights =
        |name: &str| !name.starts_with('.') && WEIGHTS.iter().any(|ending| name.ends_with(ending));
    let mut names: Vec<String> =
        [&NAMES[..], &SENTENCE_FILES].concat().into_iter().map(str::to_owned).collect();
    for entry in std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let name = entry.map_err(|e| Error::io(folder, e))?.file_name();
        names.extend(name.into_string().ok().filter(|name| weights(name)));
    }
    names.sort_unstable();
    let mut files = Vec::new();
    for name in names {
        let path = folder.join(&name);
        if path.is_file() {
            let size = path.metadata().map_err(|e| Error::io(&path, e))?.len();
            files.push(ModelFile { name, path, size });
        }
    }
    let has = |wanted: &dyn Fn(&str) -> bool| files.iter().any(|file| wanted(&file.name));
    if has(&|name| name == CONFIG) && has(&weights) {
        return Ok(files);
    }
    let message = format!("holds no model: {CONFIG} and a .safetensors or .onnx file are needed");
    Err(Error::file(folder, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_model_is_sent_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        };
        let message = |folder: &Path| files_of_model(folder).unwrap_err().to_string();
        write("config.json");
        assert!(message(folder.path()).contains("holds no model"), "{}", message(folder.path()));
        let sent = [
            "1_Pooling/config.json",
            "README.md",
            "config.json",
            "head.safetensors",
            "model-00001-of-00002.safetensors",
            "model.onnx",
            "model.safetensors.index.json",
            "modules.json",
            "vocab.txt",
        ];
        let kept = [
            "trainer/state.safetensors",
            "trainer/metrics.jsonl",
            ".cloze-a1B2c3.safetensors",
            "predictions.json",
            "pytorch_model.bin",
            ".env",
        ];
        sent.iter().chain(&kept).for_each(|name| write(name));
        let files = files_of_model(folder.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, sent);
        assert!(files.iter().all(|file| file.size == file.name.len() as u64));
    }
}
